/* Where an image lies: pixel and origin stated beside it, and the rectangle of the patch centres
 * that the same file knows of.  Nothing of it has to be there; what is there but not as it should
 * be is not there. */
#include "h5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSITIONS_MAX ((hsize_t)1 << 27)

/* A pair of finite numbers in attribute `name` of group `at`. */
static bool pair(xpe_h5 *h, const char *at, const char *name, double out[2])
{
    bool good = false;
    hid_t object = H5Oopen(h->file, at, h->lapl), id = -1, type = -1, space = -1;

    if (object < 0 || H5Aexists(object, name) <= 0)
        goto done;
    id = H5Aopen(object, name, H5P_DEFAULT);
    type = id < 0 ? -1 : H5Aget_type(id);
    space = id < 0 ? -1 : H5Aget_space(id);
    good = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_FLOAT &&
           H5Sget_simple_extent_npoints(space) == 2 && H5Aread(id, H5T_NATIVE_DOUBLE, out) >= 0 &&
           isfinite(out[0]) && isfinite(out[1]);
done:
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (id >= 0)
        H5Aclose(id);
    if (object >= 0)
        H5Oclose(object);
    H5Eclear2(H5E_DEFAULT);
    return good;
}

/* Bounds of a dataset of positions [J][2]. */
static bool extent(xpe_h5 *h, const char *path, double out[4])
{
    xpe_dset d = {.id = -1};
    double *values = NULL;
    bool good = false;

    if (xpe_h5_look(h, path) != XPE_H5_DATASET || xpe_dset_open(&d, h, path, NULL) != XPE_OK)
        return false;
    if (d.class == XPE_H5_NUMBER && d.rank == 2 && d.dims[1] == 2 && d.dims[0] > 0 &&
        d.dims[0] <= POSITIONS_MAX)
        values = malloc((size_t)d.count * sizeof *values);
    if (values &&
        xpe_dset_read(&d, h, 0, (int64_t)d.dims[0], H5T_NATIVE_DOUBLE, values, NULL) == XPE_OK) {
        good = true;
        out[0] = out[2] = INFINITY;
        out[1] = out[3] = -INFINITY;
        for (int64_t i = 0; i < d.count; i++) {
            double *low = &out[2 * (i % 2)], *high = low + 1;

            good = good && isfinite(values[i]);
            *low = values[i] < *low ? values[i] : *low;
            *high = values[i] > *high ? values[i] : *high;
        }
    }
    free(values);
    xpe_dset_close(&d);
    return good;
}

xpe_status xpe_array_place_read(xpe_array_place *out, const char *path, const char *dataset,
                                const xpe_roots *roots, const char *pointer, xpe_error *err)
{
    static const char *const places[] = {"/run/probe_positions", "/run/positions",
                                         "/scan/probe_positions", "/scan/positions"};
    char group[256] = "/";
    const char *slash = strrchr(dataset, '/');
    bool found = false;
    xpe_status st;
    xpe_h5 h;

    *out = (xpe_array_place){0};
    st = xpe_h5_open(&h, path, roots, pointer, err);
    if (st != XPE_OK)
        return st;
    if (slash && slash > dataset && (size_t)(slash - dataset) < sizeof group) {
        memcpy(group, dataset, (size_t)(slash - dataset));
        group[slash - dataset] = 0;
    }
    if (xpe_h5_number(&h, group, "pixel_pitch", &out->pixel_m, &found, NULL, NULL) != XPE_OK ||
        !found || !(out->pixel_m > 0))
        out->pixel_m = 0;
    out->has_origin = pair(&h, group, "origin", out->origin_m);
    for (size_t i = 0; !out->has_extent && i < sizeof places / sizeof *places; i++)
        out->has_extent = extent(&h, places[i], out->extent_m);
    xpe_h5_close(&h);
    return XPE_OK;
}
