/* What a format finds in a file, before anything is judged: where things are and what is stated.
 * One function a format; adding one is a file, a line in `format.c` and a word in openapi.json.
 * Private to the folder. */
#ifndef XPE_IO_FORMAT_H
#define XPE_IO_FORMAT_H

#include "h5.h"

/* Sentences for the user. */
typedef struct xpe_notes {
    char *items[32];
    size_t count;
} xpe_notes;

void xpe_notes_add(xpe_notes *notes, const char *format, ...) XPE_PRINTF(2, 3);
void xpe_notes_release(xpe_notes *notes);

/* Empty text and 0 mean: not in the file. */
typedef struct xpe_facts {
    char format[16], name[128];
    char frames[256], positions[256], mask[256]; /* datasets */
    /* row = axes[0] . t, column = axes[1] . t, for a stored position t (2 or 3 numbers) */
    double axes[2][3];
    int position_columns_min, position_columns_max;
    double position_scale; /* metres a unit */
    bool mask_is_flags;    /* CXI's bit field: 4096 alone means good */
    bool far_field_stated; /* the format is for far-field data by definition */
    bool electrons;
    double wavelength_m, energy_kev, distance_m;
    double pitch_m[2]; /* along rows (slow), along columns (fast) */
    double saturation;
    const char *where_positions, *where_wavelength, *where_distance,
        *where_pitch; /* places looked at */
} xpe_facts;

/* Which format a file is; refuses what is none of them, listing what is there. */
XPE_MUST_CHECK xpe_status xpe_format_find(xpe_facts *facts, xpe_h5 *h, const char *format,
                                          xpe_notes *notes, xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_format_xptycho(xpe_facts *facts, xpe_h5 *h, xpe_notes *notes,
                                             xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_format_cxi(xpe_facts *facts, xpe_h5 *h, xpe_notes *notes,
                                         xpe_error *err);

/* Metres, or keV, in one unit of that name; 0 for a name that is not known.  "" is `none`. */
double xpe_unit_length(const char *units, double none);
double xpe_unit_energy(const char *units, double none);

/* Wavelength of photons or electrons of that (kinetic) energy. */
double xpe_wavelength(double energy_kev, bool electrons);

#endif
