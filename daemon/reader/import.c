/* `import ARCHIVE.npz`: a NumPy archive into a scan file of the own format.
 *
 * Nothing about the instrument is assumed: unit of the positions and geometry must be stated. Where
 * a data set records no geometry at all, the object pixel is enough, since only wavelength x
 * distance / (n x pitch) enters the reconstruction; a matching set is then written and said to be
 * one. */
#include "reader.h"

#include "convert.h"
#include "fault.h"
#include "io/read/read.h"
#include "io/write/write.h"
#include "sandbox.h"
#include "xptychod/protocol.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: xptycho import ARCHIVE.npz --output SCAN.h5 --positions-unit UNIT GEOMETRY [options]\n"
    "\n"
    "Makes a scan file out of a NumPy archive (.npz, also compressed by bzip2, gzip or xz).  "
    "Arrays may\n"
    "have leading axes of length 1; pickled objects are never loaded.\n"
    "\n"
    "  --output FILE            the scan file to write\n"
    "  --overwrite              replace it if it exists\n"
    "  --key ROLE=NAME          which array is what; ROLE is frames, positions or probe.  Without "
    "it the\n"
    "                           usual names are looked for (data, frames; scan, positions; probe; "
    "...)\n"
    "  --positions-unit UNIT    pixel (of the object), m, mm, um or nm; columns are row, column\n"
    "  --swap                   positions are column, row\n"
    "  --flip-rows, --flip-columns   change the sign of rows or columns (after --swap)\n"
    "  --shifted auto|yes|no    whether frames have zero frequency at [0][0]; auto (default) "
    "looks\n"
    "  --name TEXT              name of the scan\n"
    "GEOMETRY is either\n"
    "  --energy-kev E | --wavelength-m L,  --detector-distance-m D,  --detector-pitch-m P\n"
    "  (--distance-m and --pitch-m are the same)\n"
    "or, where none of it is recorded,\n"
    "  --object-pixel-m P       the object pixel; a matching wavelength, distance and pitch are "
    "made up\n"
    "  --json                   print what was written as JSON\n"
    "\n"
    "A probe in the archive is written as /scan/probe: \"init_probe\": {\"path\": \"SCAN.h5\"} "
    "uses it.\n"
    "Example: xptycho import siemens-star-small.npz.bz2 --output siemens.h5 \\\n"
    "             --positions-unit pixel --object-pixel-m 1e-8\n"
    "\n"
    "Exit code: 0 written, 3 refused, 2 usage, 4 failed.\n";

typedef struct options {
    const char *archive, *output, *name, *unit;
    const char *frames, *positions, *probe; /* keys, NULL = look */
    xpd_shifted shifted;
    bool overwrite, swap, flip_rows, flip_columns, json;
    double energy_kev, wavelength_m, distance_m, pitch_m, object_pixel_m;
} options;

/* ------------------------------------------------------------------------------------ options */

static int usage_error(const char *text, const char *value)
{
    fprintf(stderr, "xptycho import: %s%s%s%s\n'xptycho import --help' lists the options.\n", text,
            value ? " '" : "", value ? value : "", value ? "'" : "");
    return 2;
}

static bool take_key(options *o, const char *text)
{
    static const char *const roles[] = {"frames=", "positions=", "probe="};
    const char **targets[] = {&o->frames, &o->positions, &o->probe};

    for (size_t i = 0; i < 3; i++)
        if (strncmp(text, roles[i], strlen(roles[i])) == 0 && text[strlen(roles[i])]) {
            *targets[i] = text + strlen(roles[i]);
            return true;
        }
    return false;
}

static bool take_shifted(options *o, const char *text)
{
    static const char *const names[] = {"auto", "yes", "no"};

    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            o->shifted = (xpd_shifted)i;
            return true;
        }
    return false;
}

static bool take_number(double *out, const char *text)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && errno == 0 && *out > 0 && isfinite(*out);
}

/* What an option sets, and where in `options`. */
typedef enum option_kind { TEXT, SWITCH, POSITIVE, KEY, SHIFTED, HELP } option_kind;

typedef struct option_entry {
    const char *name;
    option_kind kind;
    size_t at;
} option_entry;

static const option_entry entries[] = {
    {"output", TEXT, offsetof(options, output)},
    {"overwrite", SWITCH, offsetof(options, overwrite)},
    {"key", KEY, 0},
    {"positions-unit", TEXT, offsetof(options, unit)},
    {"swap", SWITCH, offsetof(options, swap)},
    {"flip-rows", SWITCH, offsetof(options, flip_rows)},
    {"flip-columns", SWITCH, offsetof(options, flip_columns)},
    {"shifted", SHIFTED, 0},
    {"name", TEXT, offsetof(options, name)},
    {"json", SWITCH, offsetof(options, json)},
    {"energy-kev", POSITIVE, offsetof(options, energy_kev)},
    {"wavelength-m", POSITIVE, offsetof(options, wavelength_m)},
    {"detector-distance-m", POSITIVE, offsetof(options, distance_m)},
    {"detector-pitch-m", POSITIVE, offsetof(options, pitch_m)},
    {"distance-m", POSITIVE, offsetof(options, distance_m)},
    {"pitch-m", POSITIVE, offsetof(options, pitch_m)},
    {"object-pixel-m", POSITIVE, offsetof(options, object_pixel_m)},
    {"help", HELP, 0},
};
#define ENTRIES (sizeof entries / sizeof *entries)

/* The exit code; -1 = go on. */
static int take_option(options *o, const option_entry *e, const char *value)
{
    void *member = (char *)o + e->at;

    switch (e->kind) {
    case TEXT:
        *(const char **)member = value;
        break;
    case SWITCH:
        *(bool *)member = true;
        break;
    case POSITIVE:
        if (!take_number(member, value))
            return usage_error("this is not a positive number:", value);
        break;
    case KEY:
        if (!take_key(o, value))
            return usage_error("--key needs frames=NAME, positions=NAME or probe=NAME, not", value);
        break;
    case SHIFTED:
        if (!take_shifted(o, value))
            return usage_error("--shifted is auto, yes or no, not", value);
        break;
    case HELP:
        return fputs(help, stdout) < 0 ? 4 : 0;
    }
    return -1;
}

static int take_options(options *o, int argc, char **argv)
{
    struct option known[ENTRIES + 1] = {{0}};
    int c, code;

    for (size_t i = 0; i < ENTRIES; i++)
        known[i] = (struct option){
            entries[i].name,
            entries[i].kind == SWITCH || entries[i].kind == HELP ? no_argument : required_argument,
            NULL, (int)(256 + i)};
    while ((c = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        if (c == 'h')
            return fputs(help, stdout) < 0 ? 4 : 0;
        if (c < 256)
            return usage_error("unknown option or missing value", NULL);
        code = take_option(o, &entries[c - 256], optarg);
        if (code >= 0)
            return code;
    }
    if (optind + 1 != argc)
        return usage_error("one ARCHIVE is needed", NULL);
    o->archive = argv[optind];
    if (!o->output)
        return usage_error("--output is needed", NULL);
    if (o->energy_kev > 0 && o->wavelength_m > 0)
        return usage_error("give --energy-kev or --wavelength-m, not both", NULL);
    return -1;
}

/* ----------------------------------------------------------------------------------- choosing */

static void list_names(const xpd_archive *a, char *out, size_t size)
{
    size_t used = 0;
    char shape[128];

    out[0] = '\0';
    for (size_t i = 0; i < a->count && used + 40 < size; i++) {
        int n = snprintf(out + used, size - used, "%s%.60s %s", i ? ", " : "", a->entries[i].name,
                         a->entries[i].refusal[0] ? "(unreadable)"
                                                  : xpd_npy_shape(&a->entries[i].header, shape));
        used += n > 0 ? (size_t)n : 0;
    }
}

/* The array of a role: the one named, else the only one with a usual name. */
static xpe_status choose(const char **key, const xpd_archive *a, const char *role,
                         const char *const *usual, bool needed, xpe_error *err)
{
    char names[240];
    const char *found = NULL;

    list_names(a, names, sizeof names);
    if (*key)
        return xpd_archive_find(a, *key)
                   ? XPE_OK
                   : xpe_fail(err, XPE_INVALID, "",
                              "there is no array '%.60s' for the %s; the archive holds %s", *key,
                              role, names);
    for (; *usual; usual++) {
        if (!xpd_archive_find(a, *usual))
            continue;
        if (found)
            return xpe_fail(err, XPE_INVALID, "",
                            "both '%s' and '%s' may be the %s; say which with --key %s=NAME", found,
                            *usual, role, role);
        found = *usual;
    }
    if (!found && needed)
        return xpe_fail(
            err, XPE_INVALID, "",
            "no array looks like the %s; say which with --key %s=NAME (the archive holds %s)", role,
            role, names);
    *key = found;
    return XPE_OK;
}

static xpe_status choose_all(options *o, xpe_error *err)
{
    static const char *const frames[] = {
        "frames", "data", "diffraction", "diffraction_patterns", "intensities", "dp", NULL};
    static const char *const positions[] = {
        "positions", "scan", "probe_positions", "translations", "points", "coords", NULL};
    static const char *const probe[] = {"probe", "probe_guess", "init_probe", "initial_probe",
                                        NULL};
    xpd_archive a;
    xpe_status st = xpd_archive_read(&a, o->archive, NULL, 0, err);

    if (st != XPE_OK)
        return st;
    st = choose(&o->frames, &a, "frames", frames, true, err);
    if (st == XPE_OK)
        st = choose(&o->positions, &a, "positions", positions, true, err);
    if (st == XPE_OK)
        st = choose(&o->probe, &a, "probe", probe, false, err);
    xpd_archive_release(&a);
    return st;
}

/* ----------------------------------------------------------------------------------- geometry */

static xpe_status settle_geometry(xpe_scan *scan, const options *o, const char **note,
                                  xpe_error *err)
{
    double n = (double)scan->n,
           wavelength = o->energy_kev > 0 ? XPE_HC_KEV_M / o->energy_kev : o->wavelength_m, pixel;

    scan->wavelength_m = wavelength;
    scan->detector_distance_m = o->distance_m;
    scan->detector_pitch_m = o->pitch_m;
    if (o->object_pixel_m > 0) {
        scan->wavelength_m = wavelength > 0 ? wavelength : 1e-10;
        if (o->distance_m <= 0)
            scan->detector_distance_m =
                o->pitch_m > 0 ? n * o->pitch_m * o->object_pixel_m / scan->wavelength_m : 1;
        if (o->pitch_m <= 0)
            scan->detector_pitch_m =
                scan->wavelength_m * scan->detector_distance_m / (n * o->object_pixel_m);
        *note = "wavelength, distance and pitch match the object pixel stated at import; not all "
                "of them were recorded";
        pixel = xpe_pixel_pitch(scan->wavelength_m, scan->detector_distance_m,
                                scan->detector_pitch_m, scan->n);
        if (fabs(pixel / o->object_pixel_m - 1) > 1e-3)
            return xpe_fail(err, XPE_INVALID, "",
                            "wavelength, distance and pitch give an object pixel of %.6g m, but "
                            "--object-pixel-m says %.6g; leave one of them out",
                            pixel, o->object_pixel_m);
        return XPE_OK;
    }
    if (wavelength > 0 && o->distance_m > 0 && o->pitch_m > 0)
        return XPE_OK;
    return xpe_fail(
        err, XPE_INVALID, "",
        "the archive records no geometry: give%s%s%s, or --object-pixel-m alone where none of "
        "it is known",
        wavelength > 0 ? "" : " --energy-kev or --wavelength-m",
        o->distance_m > 0 ? "" : " --detector-distance-m",
        o->pitch_m > 0 ? "" : " --detector-pitch-m");
}

/* Metres a unit of the positions. */
static xpe_status settle_unit(double *scale, const options *o, const xpe_scan *scan,
                              const double *positions, xpe_error *err)
{
    static const struct {
        const char *name;
        double metres;
    } units[] = {{"m", 1}, {"mm", 1e-3}, {"um", 1e-6}, {"nm", 1e-9}};
    double least = INFINITY, most = -INFINITY;

    for (size_t i = 0; o->unit && i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, o->unit) == 0) {
            *scale = units[i].metres;
            return XPE_OK;
        }
    if (o->unit && (strcmp(o->unit, "pixel") == 0 || strcmp(o->unit, "pixels") == 0)) {
        *scale = xpe_pixel_pitch(scan->wavelength_m, scan->detector_distance_m,
                                 scan->detector_pitch_m, scan->n);
        return XPE_OK;
    }
    for (int64_t k = 0; k < 2 * scan->num_frames; k++) {
        least = fmin(least, positions[k]);
        most = fmax(most, positions[k]);
    }
    return xpe_fail(err, XPE_INVALID, "",
                    "the unit of the positions is %s; they lie between %.4g and %.4g: say "
                    "--positions-unit pixel, m, mm, um or nm",
                    o->unit ? "not known" : "not stated", least, most);
}

/* ---------------------------------------------------------------------------------------- all */

static void print_summary(const options *o, const xpe_scan *scan, int64_t modes, bool moved,
                          double step, const char *note)
{
    double pixel = xpe_pixel_pitch(scan->wavelength_m, scan->detector_distance_m,
                                   scan->detector_pitch_m, scan->n);

    if (o->json) {
        json_t *out =
            json_pack("{s:s*, s:I, s:I, s:s, s:f, s:f, s:I, s:b}", "path", o->output, "frames",
                      (json_int_t)scan->num_frames, "frame_side", (json_int_t)scan->n, "type",
                      xpe_type_name(scan->type), "object_pixel_m", pixel, "step_m", step,
                      "probe_modes", (json_int_t)modes, "zero_frequency_moved", moved);
        char *text = out ? xpp_dump(out, JSON_INDENT(2)) : NULL;
        if (text)
            puts(text);
        free(text);
        json_decref(out);
        return;
    }
    printf("wrote %s: %lld frames of %lld x %lld (%s), object pixel %.4g m, nearest neighbours "
           "%.4g pixels apart\n",
           o->output, (long long)scan->num_frames, (long long)scan->n, (long long)scan->n,
           xpe_type_name(scan->type), pixel, step / pixel);
    printf("zero frequency was %s\n",
           moved ? "at [0][0] and was moved to the middle" : "in the middle already");
    if (modes)
        printf("first probe: /scan/probe, %lld mode%s\n", (long long)modes, modes == 1 ? "" : "s");
    if (note)
        printf("note: %s\n", note);
}

static xpe_status import_arrays(const options *o, xpd_archive *a, xpe_error *err)
{
    xpd_entry *frames = xpd_archive_find(a, o->frames),
              *probe = o->probe ? xpd_archive_find(a, o->probe) : NULL;
    xpd_entry *where = xpd_archive_find(a, o->positions);
    xpe_scan scan = {0};
    xpe_grid grid;
    xpe_scan_content content = {.scan = &scan, .name = o->name};
    xpe_written written;
    double *positions = NULL, scale = 1;
    xpe_c32 *modes = NULL;
    bool moved = false;
    xpe_status st;

    if (!frames->data || !where->data || (probe && !probe->data))
        return xpe_fail(err, XPE_INVALID, "",
                        "an array stands for two roles, or stands twice in the archive");
    st = xpd_convert_frames(frames, &scan.type, err);
    if (st != XPE_OK)
        return st;
    scan.num_frames = frames->header.shape[0];
    scan.n = frames->header.shape[1];
    st = xpd_convert_positions(&positions, where, scan.num_frames, o->swap, o->flip_rows,
                               o->flip_columns, err);
    if (st == XPE_OK && probe)
        st = xpd_convert_probe(&modes, &content.probe_modes, probe, scan.n, err);
    if (st == XPE_OK)
        st = settle_geometry(&scan, o, &content.note, err);
    if (st == XPE_OK)
        st = settle_unit(&scale, o, &scan, positions, err);
    for (int64_t k = 0; st == XPE_OK && k < 2 * scan.num_frames; k++)
        positions[k] *= scale;
    scan.positions = positions;
    if (st == XPE_OK)
        st = xpe_grid_derive(&grid, NULL, &scan, NULL, err);
    if (st == XPE_OK)
        st = xpd_convert_zero_frequency(frames, scan.type, o->shifted, &moved, err);
    scan.frames = frames->data;
    content.probe = modes;
    if (st == XPE_OK)
        st = xpe_scan_write(&written, o->output, o->overwrite, &content, err);
    if (st == XPE_OK)
        print_summary(o, &scan, content.probe_modes, moved,
                      xpe_position_step(positions, scan.num_frames), content.note);
    free(modes);
    free(positions);
    return st;
}

int xpd_import(int argc, char **argv)
{
    options o = {.shifted = XPD_SHIFTED_AUTO};
    xpd_archive a = {0};
    xpe_error err = {0};
    xpe_status st;
    int code = take_options(&o, argc, argv);

    if (code >= 0)
        return code;
    st = choose_all(&o, &err);
    if (st == XPE_OK) {
        const char *wanted[] = {o.frames, o.positions, o.probe, NULL};
        st = xpd_archive_read(&a, o.archive, wanted, xpd_memory_available() / 2, &err);
    }
    if (st == XPE_OK)
        st = import_arrays(&o, &a, &err);
    xpd_archive_release(&a);
    if (st == XPE_OK)
        return 0;
    fprintf(stderr, "xptycho import: %s\n", err.text);
    return xpd_exit_of(&err);
}
