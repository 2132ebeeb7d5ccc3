/* Probes and objects as start or truth: one complex array out of a file. */
#include "h5.h"

#include "io/size.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARRAY_PIXELS_MAX ((int64_t)1 << 32)

static xpe_status find_dataset(xpe_array *out, xpe_h5 *h, const char *dataset, xpe_array_use use,
                               xpe_error *err)
{
    static const char *const probes[] = {"/sample/probe", "/probe", "/scan/probe", NULL};
    static const char *const objects[] = {"/sample/object", "/object", NULL};
    const char *const *places = use == XPE_ARRAY_PROBE ? probes : objects;
    char names[160];

    if (dataset) {
        if (strlen(dataset) + 2 > sizeof out->dataset)
            return xpe_h5_fail(h, err,
                               "the dataset's name has %zu characters; at most %zu are read",
                               strlen(dataset), sizeof out->dataset - 2);
        snprintf(out->dataset, sizeof out->dataset, "%s%s", dataset[0] == '/' ? "" : "/", dataset);
        return XPE_OK;
    }
    for (; *places; places++)
        if (xpe_h5_look(h, *places) != XPE_H5_ABSENT) {
            snprintf(out->dataset, sizeof out->dataset, "%s", *places);
            return XPE_OK;
        }
    xpe_h5_names(h, "/", names, sizeof names);
    return use == XPE_ARRAY_PROBE ? xpe_h5_fail(h, err,
                                                "no probe: looked for /sample/probe, /probe and "
                                                "/scan/probe; name the dataset (the "
                                                "file holds %s)",
                                                names)
                                  : xpe_h5_fail(h, err,
                                                "no object: looked for /sample/object and /object; "
                                                "name the dataset (the file holds "
                                                "%s)",
                                                names);
}

static xpe_status settle_shape(xpe_array *out, const xpe_h5 *h, const xpe_dset *d,
                               xpe_array_use use, xpe_error *err)
{
    char shape[96];
    int skip = d->rank == 3 ? 1 : 0;
    bool probe = use == XPE_ARRAY_PROBE;

    if (d->class != XPE_H5_NUMBER && d->class != XPE_H5_COMPLEX)
        return xpe_h5_fail(h, err, "'%s' is %s; complex or real numbers are needed", d->path,
                           d->type_text);
    if ((d->rank != 2 && d->rank != 3) || (!probe && d->rank == 3 && d->dims[0] != 1) ||
        (probe && d->dims[skip] != d->dims[skip + 1]))
        return xpe_h5_fail(h, err, "'%s' has shape %s; %s is needed", d->path,
                           xpe_dset_shape(d, shape),
                           probe ? "[n][n] or [modes][n][n]" : "[rows][columns]");
    if (d->count > ARRAY_PIXELS_MAX)
        return xpe_h5_fail(h, err, "'%s' has shape %s; at most 2^32 pixels are read", d->path,
                           xpe_dset_shape(d, shape));
    out->shape[0] = skip ? (int64_t)d->dims[0] : 1;
    out->shape[1] = (int64_t)d->dims[skip];
    out->shape[2] = (int64_t)d->dims[skip + 1];
    return XPE_OK;
}

/* The memory type {r, i} of two floats. */
static hid_t complex_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(xpe_c32));

    H5Tinsert(type, "r", offsetof(xpe_c32, re), H5T_NATIVE_FLOAT);
    H5Tinsert(type, "i", offsetof(xpe_c32, im), H5T_NATIVE_FLOAT);
    return type;
}

static xpe_status read_values(xpe_array *out, xpe_h5 *h, xpe_dset *d, xpe_error *err)
{
    xpe_status st = XPE_OK;
    hid_t type = complex_type();
    int64_t count = d->count;
    char size[32];

    out->data = malloc((size_t)count * sizeof *out->data);
    if (!out->data) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: '%s' needs %s", d->path,
                      xpe_size_text(size, (double)count * 8));
        goto done;
    }
    if (d->class == XPE_H5_COMPLEX) {
        XPE_TRY(xpe_dset_read(d, h, 0, (int64_t)d->dims[0], type, out->data, err));
    } else { /* reals into the first half, then spread out from the end */
        float *reals = (float *)(void *)out->data;
        XPE_TRY(xpe_dset_read(d, h, 0, (int64_t)d->dims[0], H5T_NATIVE_FLOAT, reals, err));
        for (int64_t i = count; i-- > 0;) {
            float real = reals[i];
            out->data[i] = (xpe_c32){real, 0};
        }
    }
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(out->data[i].re) || !isfinite(out->data[i].im)) {
            st = xpe_h5_fail(
                h, err, "'%s' holds (%g, %g) at element %lld; finite numbers are needed", d->path,
                (double)out->data[i].re, (double)out->data[i].im, (long long)i);
            goto done;
        }
done:
    H5Tclose(type);
    return st;
}

xpe_status xpe_array_read(xpe_array *out, const char *path, const char *dataset, xpe_array_use use,
                          bool shape_only, const xpe_roots *roots, const char *pointer,
                          xpe_error *err)
{
    xpe_status st = XPE_OK;
    xpe_h5 h;
    xpe_dset d = {.id = -1};
    bool found = false;

    memset(out, 0, sizeof *out);
    XPE_TRY(xpe_h5_open(&h, path, roots, pointer, err));
    XPE_TRY(find_dataset(out, &h, dataset, use, err));
    XPE_TRY(xpe_dset_open(&d, &h, out->dataset, err));
    XPE_TRY(settle_shape(out, &h, &d, use, err));
    if (strncmp(out->dataset, "/sample/", 8) == 0)
        XPE_TRY(
            xpe_h5_number(&h, "/sample", "pixel_pitch", &out->pixel_pitch_m, &found, NULL, err));
    if (!shape_only) {
        XPE_TRY(read_values(out, &h, &d, err));
        XPE_TRY(xpe_h5_unchanged(&h, err));
    }
done:
    xpe_dset_close(&d);
    xpe_h5_close(&h);
    if (st != XPE_OK)
        xpe_array_release(out);
    return st;
}

void xpe_array_release(xpe_array *array)
{
    free(array->data);
    array->data = NULL;
}

static int64_t owner_of(xpe_h5 *h)
{
    struct stat st;
    double uid = -1;
    bool found = false;

    if (fstat(h->fd, &st) != 0 || st.st_uid != geteuid() ||
        xpe_h5_number(h, "/run", "owner_uid", &uid, &found, NULL, NULL) != XPE_OK || !found)
        return -1;
    return uid >= 0 && uid < UINT32_MAX && floor(uid) == uid ? (int64_t)uid : -1;
}

bool xpe_file_is_result(const char *path, int64_t *owner)
{
    xpe_h5 h;
    bool result = false;

    if (owner)
        *owner = -1;
    if (xpe_h5_open(&h, path, NULL, "/output/path", NULL) != XPE_OK)
        return false;
    result = xpe_h5_look(&h, "/sample/object") == XPE_H5_DATASET &&
             xpe_h5_look(&h, "/run") == XPE_H5_GROUP;
    if (result && owner)
        *owner = owner_of(&h);
    xpe_h5_close(&h);
    return result;
}
