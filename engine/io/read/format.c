/* Choosing a format, and what formats share: notes, units, wavelengths. */
#include "format.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELECTRON_REST_KEV 510.99895069

void xpe_notes_add(xpe_notes *notes, const char *format, ...)
{
    va_list args;
    char *text = NULL;

    if (notes->count == sizeof notes->items / sizeof *notes->items)
        return;
    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0)
        notes->items[notes->count++] = text;
    va_end(args);
}

void xpe_notes_release(xpe_notes *notes)
{
    for (size_t i = 0; i < notes->count; i++)
        free(notes->items[i]);
    notes->count = 0;
}

double xpe_unit_length(const char *units, double none)
{
    static const struct {
        const char *name;
        double metres;
    } known[] = {{"m", 1},
                 {"meter", 1},
                 {"meters", 1},
                 {"metre", 1},
                 {"metres", 1},
                 {"cm", 1e-2},
                 {"mm", 1e-3},
                 {"um", 1e-6},
                 {"micron", 1e-6},
                 {"microns", 1e-6},
                 {"\xc2\xb5m", 1e-6},
                 {"\xce\xbcm", 1e-6},
                 {"nm", 1e-9},
                 {"pm", 1e-12},
                 {"A", 1e-10},
                 {"angstrom", 1e-10},
                 {"Angstrom", 1e-10},
                 {"\xc3\x85", 1e-10}};

    if (units[0] == '\0')
        return none;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, units) == 0)
            return known[i].metres;
    return 0;
}

double xpe_unit_energy(const char *units, double none)
{
    static const struct {
        const char *name;
        double kev;
    } known[] = {{"J", 1 / 1.602176634e-16},
                 {"joule", 1 / 1.602176634e-16},
                 {"keV", 1},
                 {"kev", 1},
                 {"eV", 1e-3},
                 {"ev", 1e-3},
                 {"MeV", 1e3}};

    if (units[0] == '\0')
        return none;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, units) == 0)
            return known[i].kev;
    return 0;
}

/* Photons: hc / E.  Electrons: hc / sqrt(E^2 + 2 E m c^2). */
double xpe_wavelength(double energy_kev, bool electrons)
{
    return electrons
               ? XPE_HC_KEV_M / sqrt(energy_kev * energy_kev + 2 * energy_kev * ELECTRON_REST_KEV)
               : XPE_HC_KEV_M / energy_kev;
}

xpe_status xpe_format_find(xpe_facts *facts, xpe_h5 *h, const char *format, xpe_notes *notes,
                           xpe_error *err)
{
    char names[160], unreadable[256];
    bool automatic = !format || strcmp(format, "auto") == 0;

    memset(facts, 0, sizeof *facts);
    if (automatic ? xpe_h5_look(h, "/scan") == XPE_H5_GROUP : strcmp(format, "xptycho") == 0)
        return xpe_format_xptycho(facts, h, notes, err);
    if (automatic ? xpe_h5_look(h, "/entry_1") == XPE_H5_GROUP : strcmp(format, "cxi") == 0)
        return xpe_format_cxi(facts, h, notes, err);
    if (!automatic)
        return xpe_fail(err, XPE_INVALID, "/scan/format",
                        "scan.format is '%.40s'; auto, xptycho and cxi are known", format);
    xpe_h5_names(h, "/", names, sizeof names);
    xpe_h5_find_unreadable(h, unreadable, sizeof unreadable);
    return xpe_h5_fail(
        h, err,
        "no scan was recognised: neither /scan (xptycho) nor /entry_1 (CXI) is there; the file "
        "holds %s%s%s",
        names, unreadable[0] ? "; " : "", unreadable);
}
