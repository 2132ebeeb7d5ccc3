/* `inspect FILE`: what the reader would take from a scan file, what follows from it, and what is
 * wrong with it, for a person or as JSON.  Unlike a job it goes on after a problem as far as it
 * can. */
#include "reader.h"

#include "fault.h"
#include "reading.h"

#include "io/size.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: xptycho inspect FILE [options]\n"
    "\n"
    "Shows what the reader takes from a scan file: format, frames, geometry, object pixel and "
    "grid,\n"
    "probe and step, and every problem and warning.  Reads all frames once.\n"
    "\n"
    "  --format NAME        auto (default), xptycho, cxi\n"
    "  --energy-kev E       photon energy (kinetic energy of electrons), instead of the file's\n"
    "  --wavelength-m L     wavelength, instead of the file's\n"
    "  --detector-distance-m D   sample to detector; also --distance-m\n"
    "  --detector-pitch-m P      side of a detector pixel; also --pitch-m\n"
    "  --saturation C       counts at and above which a pixel is masked\n"
    "  --json               the same as JSON\n"
    "\n"
    "Exit code: 0 a job with this scan is accepted, 3 it is refused, 2 usage, 4 failed.\n";

typedef struct report {
    xpe_scan_info info;
    xpe_grid grid;
    bool has_frames, has_geometry, has_grid, has_pixels;
    double span_m, step_m, extent_m[2], probe_m[2]; /* probe: a lower bound of its size */
    double least[2], most[2];
    double first[3][2];
    int64_t mask_pixels, mask_total;
    xpe_pixel_stats pixels;
    json_t *warnings, *problems;
    int code;
} report;

static void add_problem(report *r, const xpe_error *err)
{
    xpp_errors_add(r->problems, err->pointer, "%s", err->text);
    if (r->code == 0)
        r->code = xpd_exit_of(err);
}

/* --------------------------------------------------------------------------------- examining */

static void look_at_positions(report *r, const double *p)
{
    for (int axis = 0; axis < 2; axis++) {
        r->least[axis] = INFINITY;
        r->most[axis] = -INFINITY;
    }
    for (int64_t j = 0; j < r->info.num_frames; j++)
        for (int axis = 0; axis < 2; axis++) {
            r->least[axis] = fmin(r->least[axis], p[2 * j + axis]);
            r->most[axis] = fmax(r->most[axis], p[2 * j + axis]);
            if (j < 3)
                r->first[j][axis] = p[2 * j + axis];
        }
    for (int axis = 0; axis < 2; axis++)
        r->extent_m[axis] = r->most[axis] - r->least[axis];
    r->step_m = xpe_position_step(p, r->info.num_frames);
}

static xpe_status look_at_frames(report *r, xpe_scan_file *file, xpe_error *err)
{
    const xpe_scan_info *i = &r->info;
    size_t frame = (size_t)(i->n * i->n) * xpe_type_size(i->type);
    void *slab = malloc((size_t)i->slab_frames * frame);
    double width[2];
    char size[32];
    xpe_status st = XPE_OK;

    r->pixels.mean_amplitude = calloc((size_t)(i->n * i->n), sizeof(double));
    if (!slab || !r->pixels.mean_amplitude)
        st = xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: %s",
                      xpe_size_text(size, (double)i->slab_frames * (double)frame));
    for (int64_t first = 0; st == XPE_OK && first < i->num_frames; first += i->slab_frames) {
        int64_t count =
            i->num_frames - first < i->slab_frames ? i->num_frames - first : i->slab_frames;
        st = xpe_scan_file_frames(file, first, count, slab, err);
        if (st == XPE_OK)
            xpe_pixel_stats_add(&r->pixels, slab, i->type, count, i->n, i->saturation);
    }
    if (st == XPE_OK) {
        r->has_pixels = true;
        xpe_probe_width(width, r->pixels.mean_amplitude, i->n);
        for (int axis = 0; axis < 2; axis++)
            r->probe_m[axis] = width[axis] * r->grid.pitch_m;
        xpd_pixel_warnings(r->warnings, &r->pixels, i);
        if (r->pixels.zero_frames == r->pixels.frames)
            st = xpe_fail(err, XPE_INVALID, "/scan/path", "all %lld frames are zero everywhere",
                          (long long)r->pixels.frames);
        else if (2 * xpe_pixel_stats_masked(&r->pixels) > r->pixels.pixels)
            st =
                xpe_fail(err, XPE_INVALID, "/scan/path", "more than half of the pixels are masked");
    }
    free(r->pixels.mean_amplitude);
    r->pixels.mean_amplitude = NULL;
    free(slab);
    return st;
}

static xpe_status look_at_mask(report *r, xpe_scan_file *file, xpe_error *err)
{
    int64_t total = r->info.mask_frames * r->info.n * r->info.n;
    uint8_t *mask = total ? malloc((size_t)total) : NULL;
    xpe_status st = XPE_OK;

    if (total && !mask)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: the mask");
    if (total)
        st = xpe_scan_file_mask(file, mask, err);
    for (int64_t k = 0; st == XPE_OK && k < total; k++)
        r->mask_pixels += mask[k];
    r->mask_total = total;
    free(mask);
    return st;
}

static void examine(report *r, const char *path, const xpe_read_options *given)
{
    xpe_read_options options = *given;
    xpe_scan_file *file = NULL;
    xpe_error err = {0};
    xpe_scan scan;

    options.seen = &r->info;
    if (xpe_scan_file_open(&file, path, &options, &err) != XPE_OK)
        add_problem(r, &err);
    r->has_frames = r->info.n > 0;
    r->has_geometry = file != NULL;
    if (!file)
        return;
    scan = xpe_scan_file_scan(file);
    r->span_m = r->info.wavelength_m * r->info.detector_distance_m / r->info.detector_pitch_m;
    r->grid.pitch_m = r->span_m / (double)r->info.n;
    look_at_positions(r, xpe_scan_file_positions(file));
    if (xpe_scan_file_sampling(file, &err) != XPE_OK)
        add_problem(r, &err);
    if (xpe_grid_derive(&r->grid, NULL, &scan, NULL, &err) != XPE_OK)
        add_problem(r, &err);
    else
        r->has_grid = true;
    if (look_at_mask(r, file, &err) != XPE_OK)
        add_problem(r, &err);
    if (look_at_frames(r, file, &err) != XPE_OK)
        add_problem(r, &err);
    for (size_t k = 0; k < xpe_scan_file_warnings(file); k++)
        json_array_insert_new(r->warnings, k, json_string(xpe_scan_file_warning(file, k)));
    xpe_scan_file_close(file);
}

/* Neighbouring probes share at least this part of their width; 0 where the bound says nothing. */
static double overlap(const report *r)
{
    double probe = fmin(r->probe_m[0], r->probe_m[1]);

    return probe > r->step_m && probe > 0 ? 1 - r->step_m / probe : 0;
}

/* ---------------------------------------------------------------------------------- printing */

/* "24.3 nm": a length with a unit that suits it. */
static const char *metres(char out[32], double value)
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1, "m"}, {1e-3, "mm"}, {1e-6, "um"}, {1e-9, "nm"}, {1e-12, "pm"}};
    size_t i = 0;

    while (i + 1 < sizeof units / sizeof *units && fabs(value) < 0.9995 * units[i].unit)
        i++;
    if (value == 0)
        i = 0;
    snprintf(out, 32, "%.4g %s", value / units[i].unit, units[i].name);
    return out;
}

static void print_list(const char *title, const json_t *items)
{
    size_t k;
    json_t *item;

    if (json_array_size(items))
        printf("%s\n", title);
    json_array_foreach (items, k, item) {
        const char *text = json_is_string(item)
                               ? json_string_value(item)
                               : json_string_value(json_object_get(item, "detail"));
        printf("  - %s\n", text ? text : "");
    }
}

static void print_geometry(const report *r)
{
    const xpe_scan_info *i = &r->info;
    char a[32], b[32], c[32];

    if (i->energy_kev > 0)
        printf("  wavelength     %s (%.6g keV)\n", metres(a, i->wavelength_m), i->energy_kev);
    else
        printf("  wavelength     %s%s\n", metres(a, i->wavelength_m),
               i->electrons ? " (electrons)" : "");
    printf("  detector       %s away, pixels of %s\n", metres(a, i->detector_distance_m),
           metres(b, i->detector_pitch_m));
    printf("  object pixel   %s; a frame spans %s\n", metres(a, r->grid.pitch_m),
           metres(b, r->span_m));
    if (r->has_grid)
        printf("  object grid    %lld x %lld pixels, first pixel at (%s, %s)\n",
               (long long)r->grid.rows, (long long)r->grid.cols, metres(a, r->grid.origin_m[0]),
               metres(b, r->grid.origin_m[1]));
    printf("  scan           %s x %s (rows x columns), nearest neighbours %s apart (%.3g pixels)\n",
           metres(a, r->extent_m[0]), metres(b, r->extent_m[1]), metres(c, r->step_m),
           r->step_m / r->grid.pitch_m);
    if (!r->has_pixels)
        return;
    printf("  probe          at least %s x %s (as if in focus)", metres(a, r->probe_m[0]),
           metres(b, r->probe_m[1]));
    if (overlap(r) > 0)
        printf(", neighbours overlap by at least %.0f %%", 100 * overlap(r));
    printf("\n  counts         %.6g a frame in the mean, largest %.6g\n",
           r->pixels.sum / (double)r->pixels.frames, r->pixels.max);
    if (i->saturation > 0)
        printf("  saturation     %g counts\n", i->saturation);
    if (r->mask_total)
        printf("  mask           %lld of %lld pixels%s\n", (long long)r->mask_pixels,
               (long long)r->mask_total, i->mask_frames == 1 ? " of every frame" : "");
}

static void print_text(const report *r, const char *path)
{
    const xpe_scan_info *i = &r->info;
    char size[32];

    printf("%s\n", i->file.path[0] ? i->file.path : path);
    if (i->format[0])
        printf("  format         %s%s%s\n", i->format, i->name[0] ? ", " : "", i->name);
    if (r->has_frames)
        printf("  frames         %lld of %lld x %lld pixels, %s, %s\n", (long long)i->num_frames,
               (long long)i->n, (long long)i->n, xpe_type_name(i->type),
               xpe_size_text(size, (double)i->frames_bytes));
    if (r->has_geometry)
        print_geometry(r);
    print_list("warnings", r->warnings);
    print_list("problems", r->problems);
    if (r->code == 0)
        printf("ready: a job with this scan is accepted\n");
}

static json_t *pair(const double v[2])
{
    json_t *array = json_array();

    json_array_append_new(array, xpp_number(v[0]));
    json_array_append_new(array, xpp_number(v[1]));
    return array;
}

static json_t *text_or_empty(const char *text)
{
    json_t *value = json_string(text); /* NULL when it is not UTF-8 */

    return value ? value : json_string("");
}

static void add_scan_members(json_t *o, const report *r)
{
    const xpe_scan_info *i = &r->info;
    json_t *first = json_array();

    json_object_set_new(o, "wavelength_m", xpp_number(i->wavelength_m));
    json_object_set_new(o, "energy_kev",
                        i->energy_kev > 0 ? xpp_number(i->energy_kev) : json_null());
    json_object_set_new(o, "electrons", json_boolean(i->electrons));
    json_object_set_new(o, "detector_distance_m", xpp_number(i->detector_distance_m));
    json_object_set_new(o, "detector_pitch_m", xpp_number(i->detector_pitch_m));
    json_object_set_new(o, "saturation", xpp_number(i->saturation));
    json_object_set_new(o, "object_pixel_m", xpp_number(r->grid.pitch_m));
    json_object_set_new(o, "frame_span_m", xpp_number(r->span_m));
    for (int64_t j = 0; j < 3 && j < i->num_frames; j++)
        json_array_append_new(first, pair(r->first[j]));
    json_object_set_new(o, "positions",
                        json_pack("{s:o, s:o, s:o}", "first", first, "least", pair(r->least),
                                  "most", pair(r->most)));
    json_object_set_new(o, "step_m", xpp_number(r->step_m));
    json_object_set_new(o, "masked_by_file", json_integer((json_int_t)r->mask_pixels));
    if (r->has_grid)
        json_object_set_new(o, "grid",
                            json_pack("{s:[I,I], s:o}", "shape", (json_int_t)r->grid.rows,
                                      (json_int_t)r->grid.cols, "origin_m",
                                      pair(r->grid.origin_m)));
    if (!r->has_pixels)
        return;
    json_object_set_new(o, "probe_width_m", pair(r->probe_m));
    json_object_set_new(o, "overlap", xpp_number(overlap(r)));
    json_object_set_new(o, "counts",
                        json_pack("{s:o, s:o, s:I, s:I}", "sum", xpp_number(r->pixels.sum), "max",
                                  xpp_number(r->pixels.max), "masked",
                                  (json_int_t)xpe_pixel_stats_masked(&r->pixels), "zero_frames",
                                  (json_int_t)r->pixels.zero_frames));
}

static int print_json(const report *r, const char *path)
{
    const xpe_scan_info *i = &r->info;
    json_t *o = json_object();
    char *text;

    json_object_set_new(o, "path", text_or_empty(i->file.path[0] ? i->file.path : path));
    json_object_set_new(o, "accepted", json_boolean(r->code == 0));
    if (i->format[0]) {
        json_object_set_new(o, "format", json_string(i->format));
        json_object_set_new(o, "name", text_or_empty(i->name));
    }
    if (r->has_frames) {
        json_object_set_new(o, "frames", json_integer((json_int_t)i->num_frames));
        json_object_set_new(o, "frame_side", json_integer((json_int_t)i->n));
        json_object_set_new(o, "type", json_string(xpe_type_name(i->type)));
        json_object_set_new(o, "bytes", json_integer((json_int_t)i->frames_bytes));
    }
    if (r->has_geometry)
        add_scan_members(o, r);
    json_object_set(o, "warnings", r->warnings);
    json_object_set(o, "problems", r->problems);
    text = xpp_dump(o, JSON_INDENT(2));
    json_decref(o);
    if (!text)
        return 1;
    puts(text);
    free(text);
    return r->code;
}

/* ------------------------------------------------------------------------------------ options */

static bool positive(double *out, const char *name, const char *text)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && errno == 0 && *out > 0 && isfinite(*out))
        return true;
    fprintf(stderr, "xptycho inspect: --%s '%s' is not a positive number\n", name, text);
    return false;
}

int xpd_inspect(int argc, char **argv)
{
    enum { ENERGY = 256, WAVELENGTH, DISTANCE, PITCH, SATURATION, FORMAT, JSON };
    static const struct option options[] = {
        {"energy-kev", required_argument, NULL, ENERGY},
        {"wavelength-m", required_argument, NULL, WAVELENGTH},
        {"detector-distance-m", required_argument, NULL, DISTANCE},
        {"detector-pitch-m", required_argument, NULL, PITCH},
        {"distance-m", required_argument, NULL, DISTANCE},
        {"pitch-m", required_argument, NULL, PITCH},
        {"saturation", required_argument, NULL, SATURATION},
        {"format", required_argument, NULL, FORMAT},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    xpe_read_options o = {.format = "auto"};
    report r = {.code = 0};
    bool json = false, good = true;
    char path[PATH_MAX];
    int c, index = 0, code;

    while (good && (c = getopt_long(argc, argv, "h", options, &index)) != -1) {
        double *number = c == ENERGY       ? &o.energy_kev
                         : c == WAVELENGTH ? &o.wavelength_m
                         : c == DISTANCE   ? &o.detector_distance_m
                         : c == PITCH      ? &o.detector_pitch_m
                         : c == SATURATION ? &o.saturation
                                           : NULL;
        if (number)
            good = positive(number, options[index].name, optarg);
        else if (c == FORMAT)
            o.format = optarg;
        else if (c == JSON)
            json = true;
        else if (c == 'h')
            return fputs(help, stdout) < 0 ? 4 : 0;
        else
            good = false;
    }
    if (good && optind + 1 != argc)
        fprintf(stderr, "xptycho inspect: one FILE is needed\n%s", help);
    if (!good || optind + 1 != argc)
        return 2;
    if (!realpath(argv[optind], path)) /* a missing file is told by the reader, in its words */
        snprintf(path, sizeof path, "%s", argv[optind]);
    r.warnings = json_array();
    r.problems = json_array();
    examine(&r, path, &o);
    code = r.code;
    if (json)
        code = print_json(&r, path);
    else
        print_text(&r, path);
    json_decref(r.warnings);
    json_decref(r.problems);
    return code;
}
