/* The project's own scan file, which is the reference program's: group /scan with `frames`,
 * positions in metres (row, column) and the instrument's numbers.  Every published spelling is
 * read; a number may be an attribute of the group or a dataset in it. */
#include "format.h"

#include <stdio.h>
#include <string.h>

/* The first of some names that the group has. */
static xpe_status first_number(xpe_h5 *h, const char *const *names, double *value, xpe_error *err)
{
    xpe_status st = XPE_OK;
    bool found = false;

    for (; *names && !found; names++)
        XPE_TRY(xpe_h5_number(h, "/scan", *names, value, &found, NULL, err));
    if (!found)
        *value = 0;
done:
    return st;
}

static xpe_status find_positions(xpe_facts *facts, xpe_h5 *h, xpe_error *err)
{
    static const char *const names[] = {"/scan/positions", "/scan/probe_positions"};
    char text[64];

    facts->where_positions = "/scan/positions and /scan/probe_positions";
    for (size_t i = 0; i < 2; i++)
        if (xpe_h5_look(h, names[i]) != XPE_H5_ABSENT) {
            snprintf(facts->positions, sizeof facts->positions, "%s", names[i]);
            break;
        }
    if (facts->positions[0] == '\0' || xpe_h5_look(h, facts->positions) != XPE_H5_DATASET)
        return XPE_OK;
    if (xpe_h5_text(h, facts->positions, "units", text, sizeof text)) {
        facts->position_scale = xpe_unit_length(text, 1);
        if (facts->position_scale == 0)
            return xpe_h5_fail(h, err, "the units of '%s' are '%s'; m, mm, um or nm are understood",
                               facts->positions, text);
    }
    if (xpe_h5_text(h, facts->positions, "order", text, sizeof text) &&
        strcmp(text, "row, column") != 0)
        return xpe_h5_fail(h, err, "the order of '%s' is '%s'; only 'row, column' is understood",
                           facts->positions, text);
    return XPE_OK;
}

xpe_status xpe_format_xptycho(xpe_facts *facts, xpe_h5 *h, xpe_notes *notes, xpe_error *err)
{
    static const char *const wavelength[] = {"wavelength", "wavelength_m", NULL};
    static const char *const energy[] = {"energy", "energy_kev", NULL};
    static const char *const distance[] = {"detector_distance", "det_distance", NULL};
    static const char *const pitch[] = {"detector_pitch", "detector_pixel", "det_pixel_pitch",
                                        NULL};
    static const char *const saturation[] = {"saturation", NULL};
    xpe_status st = XPE_OK;
    char text[64];

    (void)notes;
    snprintf(facts->format, sizeof facts->format, "xptycho");
    facts->where_wavelength = "wavelength and energy of /scan";
    facts->where_distance = "detector_distance and det_distance of /scan";
    facts->where_pitch = "detector_pitch, detector_pixel and det_pixel_pitch of /scan";
    facts->far_field_stated = true;
    facts->axes[0][0] = facts->axes[1][1] = 1;
    facts->position_columns_min = facts->position_columns_max = 2;
    facts->position_scale = 1;
    if (xpe_h5_look(h, "/scan") != XPE_H5_GROUP) {
        char names[160];
        xpe_h5_names(h, "/", names, sizeof names);
        return xpe_h5_fail(h, err, "there is no group /scan; the file holds %s", names);
    }
    if (xpe_h5_look(h, "/scan/frames") != XPE_H5_ABSENT)
        snprintf(facts->frames, sizeof facts->frames, "/scan/frames");
    if (xpe_h5_look(h, "/scan/mask") != XPE_H5_ABSENT) {
        snprintf(facts->mask, sizeof facts->mask, "/scan/mask");
        if (xpe_h5_text(h, "/scan/mask", "convention", text, sizeof text) &&
            strcmp(text, "1 = masked") != 0)
            return xpe_h5_fail(
                h, err, "the convention of '/scan/mask' is '%s'; only '1 = masked' is understood",
                text);
    }
    XPE_TRY(find_positions(facts, h, err));
    XPE_TRY(first_number(h, wavelength, &facts->wavelength_m, err));
    XPE_TRY(first_number(h, energy, &facts->energy_kev, err));
    XPE_TRY(first_number(h, distance, &facts->distance_m, err));
    XPE_TRY(first_number(h, pitch, &facts->pitch_m[0], err));
    XPE_TRY(first_number(h, saturation, &facts->saturation, err));
    facts->pitch_m[1] = facts->pitch_m[0];
    if (xpe_h5_text(h, "/scan", "probe_particle", text, sizeof text))
        facts->electrons = strcmp(text, "electron") == 0;
    xpe_h5_text(h, "/scan", "name", facts->name, sizeof facts->name);
done:
    return st;
}
