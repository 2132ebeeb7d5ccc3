/* CXI (cxidb.org), version 1.5 and later: /entry_1 with detector, source and the sample's
 * translation.
 *
 * Writers leave things out, so each thing has its places in order: frames and translation under
 * data_1, then the detector, then the sample; the distance from `distance`, else the corner's z;
 * pitches from the pixel sizes, else the lengths of the basis vectors; the wavelength recorded,
 * else from the energy (joules unless `units` says otherwise), relativistically where
 * source_1/probe says electron.
 *
 * Orientation.  `translation` is the movement of the sample, so the beam moves by its negative
 * across the object.  Rows and columns of a frame run along the detector's slow and fast axis, and
 * the far field keeps directions, so a position is the beam's movement along those axes: row = -t .
 * slow,  column = -t . fast. CXI's usual detector has slow = -y and fast = -x (seen along the
 * beam), which gives row = y and column = x; this is also taken where a file has no basis vectors.
 * The README of the measured near- field scan and the electron scan of the shared data agree with
 * it.
 *
 * Masks: 0 is a good pixel.  CXI 1.6 flags say with bit 12 (4096) that a pixel has signal above the
 * background, which is good too; any other bit is bad. */
#include "format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DETECTOR "/entry_1/instrument_1/detector_1"
#define SOURCE "/entry_1/instrument_1/source_1"

static void first_path(xpe_h5 *h, const char *const *paths, char out[256])
{
    out[0] = '\0';
    for (; *paths; paths++)
        if (xpe_h5_look(h, *paths) != XPE_H5_ABSENT) {
            snprintf(out, 256, "%s", *paths);
            return;
        }
}

/* A number in metres; 0 where it is absent. */
static xpe_status length(xpe_h5 *h, const char *at, const char *name, double *metres,
                         xpe_error *err)
{
    xpe_status st = XPE_OK;
    bool found = false;
    char units[32];

    XPE_TRY(xpe_h5_number(h, at, name, metres, &found, units, err));
    if (!found) {
        *metres = 0;
    } else {
        double unit = xpe_unit_length(units, 1);
        if (unit == 0)
            st = xpe_h5_fail(h, err,
                             "the units of '%s/%s' are '%s'; m, mm, um, nm and A are understood",
                             at, name, units);
        *metres *= unit;
    }
done:
    return st;
}

static xpe_status read_source(xpe_facts *facts, xpe_h5 *h, xpe_notes *notes, xpe_error *err)
{
    xpe_status st = XPE_OK;
    bool found = false;
    char text[64], units[32];
    double energy = 0, computed;

    if (xpe_h5_text(h, SOURCE, "probe", text, sizeof text))
        facts->electrons = strstr(text, "electron") != NULL;
    facts->where_wavelength = SOURCE "/wavelength and " SOURCE "/energy";
    XPE_TRY(length(h, SOURCE, "wavelength", &facts->wavelength_m, err));
    XPE_TRY(xpe_h5_number(h, SOURCE, "energy", &energy, &found, units, err));
    if (!found)
        goto done;
    facts->energy_kev = energy * xpe_unit_energy(units, 1 / 1.602176634e-16);
    if (facts->energy_kev == 0 && energy != 0)
        return xpe_h5_fail(
            h, err, "the units of '" SOURCE "/energy' are '%s'; J, eV and keV are understood",
            units);
    /* NeXus writers put the ring's energy here, and some write keV without saying so. */
    if (!(facts->energy_kev > 1e-3 && facts->energy_kev < (facts->electrons ? 5e3 : 5e2))) {
        if (facts->wavelength_m > 0)
            xpe_notes_add(notes,
                          "energy %g in '" SOURCE
                          "' is %g keV, which no beam of this kind has; the recorded "
                          "wavelength was used",
                          energy, facts->energy_kev);
        else
            st = xpe_h5_fail(h, err,
                             "energy %g in '" SOURCE
                             "' (joules unless its units say otherwise) is %g keV, which "
                             "no beam of this kind has; give scan.geometry.energy_kev",
                             energy, facts->energy_kev);
        facts->energy_kev = 0;
        goto done;
    }
    computed = xpe_wavelength(facts->energy_kev, facts->electrons);
    if (facts->wavelength_m > 0 && fabs(computed / facts->wavelength_m - 1) > 0.01)
        xpe_notes_add(notes,
                      "the recorded wavelength %.6g m was used; the recorded energy %.6g keV would "
                      "give %.6g m",
                      facts->wavelength_m, facts->energy_kev, computed);
done:
    return st;
}

/* v[axis][xyz] from a (3, 2) or (2, 3) dataset; false when absent. */
static xpe_status read_basis(xpe_h5 *h, double v[2][3], bool *found, xpe_error *err)
{
    xpe_status st = XPE_OK;
    xpe_dset d = {.id = -1};
    double raw[6];
    char shape[96];

    *found = false;
    if (xpe_h5_look(h, DETECTOR "/basis_vectors") == XPE_H5_ABSENT)
        return XPE_OK;
    XPE_TRY(xpe_dset_open(&d, h, DETECTOR "/basis_vectors", err));
    if (d.class != XPE_H5_NUMBER || d.rank != 2 || d.dims[0] * d.dims[1] != 6 ||
        (d.dims[0] != 2 && d.dims[0] != 3)) {
        st = xpe_h5_fail(h, err, "'%s' has shape %s; [3][2] is needed", d.path,
                         xpe_dset_shape(&d, shape));
        goto done;
    }
    XPE_TRY(xpe_dset_read(&d, h, 0, (int64_t)d.dims[0], H5T_NATIVE_DOUBLE, raw, err));
    for (int axis = 0; axis < 2; axis++)
        for (int c = 0; c < 3; c++)
            v[axis][c] = d.dims[0] == 3 ? raw[2 * c + axis] : raw[3 * axis + c];
    *found = true;
    for (int i = 0; i < 6; i++)
        if (!isfinite(raw[i]))
            st = xpe_h5_fail(h, err, "'%s' holds %g; finite numbers are needed", d.path, raw[i]);
done:
    xpe_dset_close(&d);
    return st;
}

static xpe_status read_geometry(xpe_facts *facts, xpe_h5 *h, xpe_error *err)
{
    xpe_status st = XPE_OK;
    double v[2][3], corner[3];
    bool basis = false;

    facts->where_distance = DETECTOR "/distance and /corner_position";
    facts->where_pitch = DETECTOR "/x_pixel_size, /y_pixel_size and /basis_vectors";
    XPE_TRY(length(h, DETECTOR, "distance", &facts->distance_m, err));
    if (facts->distance_m == 0 && xpe_h5_look(h, DETECTOR "/corner_position") == XPE_H5_DATASET) {
        xpe_dset d;
        XPE_TRY(xpe_dset_open(&d, h, DETECTOR "/corner_position", err));
        if (d.class == XPE_H5_NUMBER && d.rank == 1 && d.dims[0] == 3) {
            st = xpe_dset_read(&d, h, 0, 3, H5T_NATIVE_DOUBLE, corner, err);
            if (st == XPE_OK && isfinite(corner[2]))
                facts->distance_m = fabs(corner[2]);
        }
        xpe_dset_close(&d);
        if (st != XPE_OK)
            goto done;
    }
    XPE_TRY(length(h, DETECTOR, "y_pixel_size", &facts->pitch_m[0], err));
    XPE_TRY(length(h, DETECTOR, "x_pixel_size", &facts->pitch_m[1], err));
    XPE_TRY(read_basis(h, v, &basis, err));
    /* row = -t . slow, column = -t . fast; slow = -y and fast = -x where nothing is said */
    facts->axes[0][1] = facts->axes[1][0] = 1;
    for (int axis = 0; basis && axis < 2; axis++) {
        double norm =
            sqrt(v[axis][0] * v[axis][0] + v[axis][1] * v[axis][1] + v[axis][2] * v[axis][2]);
        if (!(norm > 0)) {
            st = xpe_h5_fail(h, err, "basis vector %d of '" DETECTOR "' has length 0", axis);
            goto done;
        }
        if (facts->pitch_m[axis] == 0)
            facts->pitch_m[axis] = norm;
        for (int c = 0; c < 3; c++)
            facts->axes[axis][c] = v[axis][c] == 0 ? 0 : -v[axis][c] / norm;
    }
done:
    return st;
}

xpe_status xpe_format_cxi(xpe_facts *facts, xpe_h5 *h, xpe_notes *notes, xpe_error *err)
{
    static const char *const frames[] = {"/entry_1/data_1/data", DETECTOR "/data", NULL};
    static const char *const translation[] = {"/entry_1/data_1/translation",
                                              DETECTOR "/translation",
                                              "/entry_1/sample_1/geometry_1/translation", NULL};
    static const char *const mask[] = {DETECTOR "/mask", "/entry_1/data_1/mask", NULL};
    xpe_status st = XPE_OK;
    char units[32];

    snprintf(facts->format, sizeof facts->format, "cxi");
    facts->where_positions = "/entry_1/data_1/translation, " DETECTOR "/translation and "
                             "/entry_1/sample_1/geometry_1/translation";
    facts->position_columns_min = 2;
    facts->position_columns_max = 3;
    facts->position_scale = 1;
    facts->mask_is_flags = true;
    if (xpe_h5_look(h, "/entry_1") != XPE_H5_GROUP) {
        char names[160];
        xpe_h5_names(h, "/", names, sizeof names);
        return xpe_h5_fail(h, err, "there is no group /entry_1; the file holds %s", names);
    }
    first_path(h, frames, facts->frames);
    first_path(h, translation, facts->positions);
    first_path(h, mask, facts->mask);
    if (facts->positions[0] && xpe_h5_text(h, facts->positions, "units", units, sizeof units)) {
        facts->position_scale = xpe_unit_length(units, 1);
        if (facts->position_scale == 0)
            return xpe_h5_fail(h, err,
                               "the units of '%s' are '%s'; m, mm, um and nm are understood",
                               facts->positions, units);
    }
    XPE_TRY(read_source(facts, h, notes, err));
    XPE_TRY(read_geometry(facts, h, err));
    if (xpe_h5_look(h, DETECTOR "/data_dark") == XPE_H5_DATASET)
        xpe_notes_add(notes, "dark frames are in the file (" DETECTOR
                             "/data_dark) and were not subtracted");
    if (xpe_h5_look(h, "/entry_2") == XPE_H5_GROUP)
        xpe_notes_add(notes, "the file has more than one entry; /entry_1 was taken");
    if (!xpe_h5_text(h, "/entry_1", "title", facts->name, sizeof facts->name))
        xpe_h5_text(h, "/entry_1/sample_1", "name", facts->name, sizeof facts->name);
done:
    return st;
}
