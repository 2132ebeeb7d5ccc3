/* `simulate`: a scan of a procedural object, with everything a reconstruction needs and the truth
 * beside it.
 *
 * The frames are those of docs/algorithm.md section 1 with patches at whole object pixels: the
 * program rounds positions to the object pixel, so the simulator places patches by the same rule,
 * through the same xpe_grid_derive, and a reconstruction with the true probe converges to the
 * truth.  The file keeps the positions before rounding, as a stage would report them; the largest
 * rounding is printed. */
#include "modes.h"

#include "fault.h"
#include "files.h"
#include "sim.h"
#include "xptychod/protocol.h"

#include "io/write/write.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODES_MAX 16

static const char help[] =
    "usage: xptycho simulate --output FILE [OPTION...]\n"
    "\n"
    "Makes a scan of a procedural object: frames, positions, geometry and the truth.\n"
    "\n"
    "  --output FILE        the scan file (HDF5)\n"
    "  --overwrite          replace it where it exists\n"
    "  --object KIND        chip (wires, pads, contacts), star (Siemens star), cells; default "
    "chip\n"
    "  --frames-side N      side of a frame in pixels, even; default 128\n"
    "  --grid RxC           rows and columns of the scan; default 16x16\n"
    "  --positions J        number of positions instead (a grid takes the squarest that holds J)\n"
    "  --pattern PATTERN    grid or spiral (Fermat's); default grid, spiral with --positions\n"
    "  --step PIXELS        between neighbours, object pixels; default a quarter of the beam\n"
    "  --jitter PIXELS      positions are off by up to this, both ways; default an eighth of the "
    "step\n"
    "  --photons N          in the beam, per frame; 0 = no noise, frames as float32; default 1e6\n"
    "  --modes K            probe modes, orthogonal, each with 0.35 of the energy of the one "
    "before; default 1\n"
    "  --defocus-m Z        from focus to object; default: a beam 0.35 N pixels wide\n"
    "  --energy-kev E       photon energy; default 8.8\n"
    "  --detector-distance-m D   object to detector; default 2; also --distance-m\n"
    "  --detector-pitch-m P      side of a detector pixel; default 75e-6; also --pitch-m\n"
    "  --seed S             of noise, jitter and object; default 1\n"
    "  --json               the figures as JSON\n"
    "\n"
    "Exit codes: 0 success, 2 usage, 3 refused (a file that exists, a disk that is full), 4 "
    "failed.\n";

typedef struct settings {
    const char *output, *pattern;
    bool overwrite, json, grid_given;
    xpd_sim_object_kind object;
    int64_t n, rows, cols, positions, modes;
    uint64_t seed;
    double step, jitter, photons, defocus_m, energy_kev, distance_m,
        pitch_m; /* negative = not given */
} settings;

/* Made from the settings; owned. */
typedef struct simulation {
    settings set;
    xpd_sim_optics optics;
    xpe_scan scan;
    xpe_grid grid;
    double *positions; /* [J][2] metres */
    int32_t *first;    /* [J][2] */
    xpe_c32 *object, *probe;
    uint8_t *frames; /* float32, uint32 or uint16 */
    double rounding; /* largest, object pixels */
    double beam, count_max, count_mean;
} simulation;

static void simulation_release(simulation *s)
{
    free(s->positions);
    free(s->first);
    free(s->object);
    free(s->probe);
    free(s->frames);
}

/* -------------------------------------------------------------------------------- arguments */

enum {
    FLAG_OUTPUT = 256,
    FLAG_OVERWRITE,
    FLAG_OBJECT,
    FLAG_SIDE,
    FLAG_GRID,
    FLAG_POSITIONS,
    FLAG_PATTERN,
    FLAG_STEP,
    FLAG_JITTER,
    FLAG_PHOTONS,
    FLAG_MODES,
    FLAG_DEFOCUS,
    FLAG_ENERGY,
    FLAG_DISTANCE,
    FLAG_PITCH,
    FLAG_SEED,
    FLAG_JSON,
    FLAG_HELP
};

static const struct option options[] = {
    {"output", required_argument, NULL, FLAG_OUTPUT},
    {"overwrite", no_argument, NULL, FLAG_OVERWRITE},
    {"object", required_argument, NULL, FLAG_OBJECT},
    {"frames-side", required_argument, NULL, FLAG_SIDE},
    {"grid", required_argument, NULL, FLAG_GRID},
    {"positions", required_argument, NULL, FLAG_POSITIONS},
    {"pattern", required_argument, NULL, FLAG_PATTERN},
    {"step", required_argument, NULL, FLAG_STEP},
    {"jitter", required_argument, NULL, FLAG_JITTER},
    {"photons", required_argument, NULL, FLAG_PHOTONS},
    {"modes", required_argument, NULL, FLAG_MODES},
    {"defocus-m", required_argument, NULL, FLAG_DEFOCUS},
    {"energy-kev", required_argument, NULL, FLAG_ENERGY},
    {"detector-distance-m", required_argument, NULL, FLAG_DISTANCE},
    {"detector-pitch-m", required_argument, NULL, FLAG_PITCH},
    {"distance-m", required_argument, NULL, FLAG_DISTANCE},
    {"pitch-m", required_argument, NULL, FLAG_PITCH},
    {"seed", required_argument, NULL, FLAG_SEED},
    {"json", no_argument, NULL, FLAG_JSON},
    {"help", no_argument, NULL, FLAG_HELP},
    {0}};

static bool read_real(double *out, const char *text)
{
    char *end;

    *out = strtod(text, &end);
    return *text && !*end && isfinite(*out);
}

static bool read_whole(int64_t *out, const char *text)
{
    double value;
    bool good = read_real(&value, text) && fabs(value) < 9e15 && floor(value) == value;

    if (good)
        *out = (int64_t)value;
    return good;
}

static bool read_grid(settings *s, const char *text)
{
    char rows[24];
    const char *x = strchr(text, 'x');

    s->grid_given = true;
    if (!x || (size_t)(x - text) >= sizeof rows)
        return false;
    memcpy(rows, text, (size_t)(x - text));
    rows[x - text] = 0;
    return read_whole(&s->rows, rows) && read_whole(&s->cols, x + 1);
}

static bool take(settings *s, int flag, const char *value)
{
    int64_t whole;

    switch (flag) {
    case FLAG_OUTPUT:
        s->output = value;
        return true;
    case FLAG_OVERWRITE:
        return s->overwrite = true;
    case FLAG_OBJECT:
        return xpd_sim_object_find(&s->object, value);
    case FLAG_SIDE:
        return read_whole(&s->n, value);
    case FLAG_GRID:
        return read_grid(s, value);
    case FLAG_POSITIONS:
        return read_whole(&s->positions, value) && s->positions > 0;
    case FLAG_PATTERN:
        s->pattern = value;
        return strcmp(value, "grid") == 0 || strcmp(value, "spiral") == 0;
    case FLAG_STEP:
        return read_real(&s->step, value) && s->step > 0.0;
    case FLAG_JITTER:
        return read_real(&s->jitter, value) && s->jitter >= 0.0;
    case FLAG_PHOTONS:
        return read_real(&s->photons, value) && s->photons >= 0.0;
    case FLAG_MODES:
        return read_whole(&s->modes, value);
    case FLAG_DEFOCUS:
        return read_real(&s->defocus_m, value) && s->defocus_m >= 0.0;
    case FLAG_ENERGY:
        return read_real(&s->energy_kev, value) && s->energy_kev > 0.0;
    case FLAG_DISTANCE:
        return read_real(&s->distance_m, value) && s->distance_m > 0.0;
    case FLAG_PITCH:
        return read_real(&s->pitch_m, value) && s->pitch_m > 0.0;
    case FLAG_SEED:
        if (!read_whole(&whole, value) || whole < 0)
            return false;
        s->seed = (uint64_t)whole;
        return true;
    case FLAG_JSON:
        return s->json = true;
    default:
        return false;
    }
}

static bool settings_read(settings *s, int argc, char **argv, int *code)
{
    int flag, index = 0;

    *s = (settings){.n = 128,
                    .rows = 16,
                    .cols = 16,
                    .modes = 1,
                    .seed = 1,
                    .step = -1.0,
                    .jitter = -1.0,
                    .photons = 1e6,
                    .defocus_m = -1.0,
                    .energy_kev = 8.8,
                    .distance_m = 2.0,
                    .pitch_m = 75e-6};
    *code = XPD_EXIT_USAGE;
    while ((flag = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (flag == FLAG_HELP) {
            fputs(help, stdout);
            *code = XPD_EXIT_OK;
            return false;
        }
        if (flag == '?') {
            fputs("xptycho simulate --help says what there is\n", stderr);
            return false;
        }
        if (!take(s, flag, optarg)) {
            fprintf(stderr,
                    "xptycho simulate: --%s: '%s' is not a value that it can have; see xptycho "
                    "simulate --help\n",
                    options[index].name, optarg);
            return false;
        }
    }
    if (!s->output || optind != argc) {
        fputs(s->output ? "xptycho simulate: it takes flags only\n"
                        : "xptycho simulate: --output FILE is missing\n",
              stderr);
        return false;
    }
    if (s->grid_given && (s->positions > 0 || (s->pattern && strcmp(s->pattern, "spiral") == 0))) {
        fputs("xptycho simulate: --grid is for a grid of its own size; --positions and --pattern "
              "spiral go without it\n",
              stderr);
        return false;
    }
    if (!s->pattern)
        s->pattern = s->positions > 0 ? "spiral" : "grid";
    return true;
}

/* ---------------------------------------------------------------------------------- checks */

static void refuse(int *count, const char *format, ...) XPE_PRINTF(2, 3);

static void refuse(int *count, const char *format, ...)
{
    va_list arguments;

    fputs("xptycho simulate: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    ++*count;
}

/* Side and geometry, on which the rest stands. */
static bool optics_make(simulation *s)
{
    settings *set = &s->set;
    double wavelength = XPE_HC_KEV_M / set->energy_kev;
    int wrong = 0;

    if (set->n < 16 || set->n > 4096 || set->n % 2)
        refuse(&wrong, "--frames-side: %lld is not an even number from 16 to 4096",
               (long long)set->n);
    if (set->modes < 1 || set->modes > MODES_MAX)
        refuse(&wrong, "--modes: %lld is not from 1 to %d", (long long)set->modes, MODES_MAX);
    if (wrong)
        return false;
    s->optics = (xpd_sim_optics){
        .n = set->n,
        .modes = (int)set->modes,
        .wavelength_m = wavelength,
        .pixel_m = xpe_pixel_pitch(wavelength, set->distance_m, set->pitch_m, set->n),
        .pupil_radius = 0.16 * (double)set->n,
        .stop_radius = 0.05 * (double)set->n,
        .photons = set->photons > 0.0 ? set->photons : 1e6};
    s->optics.defocus_m = set->defocus_m >= 0.0
                              ? set->defocus_m
                              : xpd_sim_beam_defocus(&s->optics, 0.35 * (double)set->n);
    s->beam = xpd_sim_beam_diameter(&s->optics);
    return true;
}

static bool settings_check(simulation *s)
{
    settings *set = &s->set;
    double widest = 0.6 * (double)set->n;
    double bytes, memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    int wrong = 0;

    if (set->step < 0.0)
        set->step = 0.25 * s->beam;
    if (set->jitter < 0.0)
        set->jitter = 0.125 * set->step;
    if (set->positions == 0)
        set->positions = set->rows * set->cols;
    else if (strcmp(set->pattern, "grid") == 0) {
        set->rows = (int64_t)sqrt((double)set->positions);
        set->cols = (set->positions + set->rows - 1) / set->rows;
    }
    if (set->rows < 1 || set->cols < 1 || set->rows > 2000 || set->cols > 2000 ||
        set->positions > 4000000)
        refuse(
            &wrong,
            "--grid, --positions: %lld x %lld (%lld positions) is not within 1 x 1 and 2000 x 2000",
            (long long)set->rows, (long long)set->cols, (long long)set->positions);
    if (s->beam > widest)
        refuse(&wrong,
               "--defocus-m: %.4g m makes the beam %.1f object pixels wide, a frame of %lld holds "
               "%.1f; at most "
               "%.4g m",
               s->optics.defocus_m, s->beam, (long long)set->n, widest,
               xpd_sim_beam_defocus(&s->optics, widest));
    if (set->step >= s->beam)
        refuse(&wrong,
               "--step: %.4g pixels leave no overlap, the beam is %.1f pixels wide; below %.1f are "
               "wanted",
               set->step, s->beam, 0.5 * s->beam);
    if (set->jitter > set->step)
        refuse(&wrong, "--jitter: %.4g pixels are more than the step of %.4g", set->jitter,
               set->step);
    if (set->photons > 1e12)
        refuse(&wrong, "--photons: %.4g a frame do not fit counts of 32 bits; at most 1e12",
               set->photons);
    bytes = (double)set->positions * (double)(set->n * set->n) * 4.0;
    if (bytes > 0.7 * memory)
        refuse(&wrong,
               "--positions, --frames-side: %lld frames of %lld x %lld take %.1f GiB, this machine "
               "has %.1f GiB",
               (long long)set->positions, (long long)set->n, (long long)set->n, bytes / 0x1p30,
               memory / 0x1p30);
    return wrong == 0;
}

/* ------------------------------------------------------------------------------------ make */

static xpe_status place(simulation *s, xpe_error *err)
{
    const settings *set = &s->set;
    int64_t count = set->positions;
    double pixel = s->optics.pixel_m;
    xpe_status st;

    /* a grid that holds more than the positions asked for is made whole and cut */
    s->positions = calloc((size_t)(count + set->rows * set->cols) * 2, sizeof *s->positions);
    s->first = calloc((size_t)count * 2, sizeof *s->first);
    if (!s->positions || !s->first)
        return xpe_fail(err, XPE_NO_MEMORY, "", "no memory for %lld positions", (long long)count);
    if (strcmp(set->pattern, "spiral") == 0)
        xpd_sim_spiral(s->positions, count, set->step);
    else
        xpd_sim_grid(s->positions, set->rows, set->cols, set->step);
    xpd_sim_jitter(s->positions, count, set->jitter, set->seed);
    for (int64_t i = 0; i < 2 * count; i++)
        s->positions[i] *= pixel;
    s->scan = (xpe_scan){.num_frames = count,
                         .n = set->n,
                         .positions = s->positions,
                         .wavelength_m = s->optics.wavelength_m,
                         .detector_distance_m = set->distance_m,
                         .detector_pitch_m = set->pitch_m};
    st = xpe_grid_derive(&s->grid, s->first, &s->scan, &(xpe_grid_wish){0}, err);
    for (int64_t i = 0; st == XPE_OK && i < 2 * count; i++) {
        double centre =
            (double)(s->first[i] + set->n / 2) * s->grid.pitch_m + s->grid.origin_m[i % 2];

        s->rounding = fmax(s->rounding, fabs(s->positions[i] - centre) / s->grid.pitch_m);
    }
    return st;
}

/* The frame's counts into the 32-bit array: float without noise, else unsigned. */
static void record(simulation *s, int64_t frame, const double *intensity)
{
    int64_t size = s->set.n * s->set.n;
    bool noise = s->set.photons > 0.0;
    xpd_random random;

    xpd_random_init(&random, s->set.seed, 1000 + (uint64_t)frame);
    for (int64_t i = 0; i < size; i++) {
        double count = noise ? (double)xpd_random_poisson(&random, intensity[i]) : intensity[i];

        if (noise)
            ((uint32_t *)(void *)s->frames)[frame * size + i] = (uint32_t)count;
        else
            ((float *)(void *)s->frames)[frame * size + i] = (float)count;
        s->count_max = fmax(s->count_max, count);
        s->count_mean += count;
    }
}

/* The largest value of an integer type means "masked" to a reader, so it must not occur. */
static xpe_status narrow(simulation *s, xpe_error *err)
{
    int64_t count = s->set.positions * s->set.n * s->set.n;

    s->scan.type = s->set.photons > 0.0 ? XPE_U32 : XPE_F32;
    if (s->set.photons > 0.0 && s->count_max >= 4294967295.0)
        return xpe_fail(err, XPE_INVALID, "",
                        "--photons: %.4g a frame put %.4g counts into a pixel, 32 bits hold "
                        "4.29e9",
                        s->set.photons, s->count_max);
    if (s->set.photons > 0.0 && s->count_max < 65535.0) {
        s->scan.type = XPE_U16;
        for (int64_t i = 0; i < count; i++) { /* forward: what is written was read before */
            uint32_t wide;
            uint16_t slim;

            memcpy(&wide, s->frames + 4 * i, sizeof wide);
            slim = (uint16_t)wide;
            memcpy(s->frames + 2 * i, &slim, sizeof slim);
        }
    }
    s->scan.frames = s->frames;
    return XPE_OK;
}

static xpe_status expose(simulation *s, xpe_error *err)
{
    int64_t n = s->set.n, count = s->set.positions;
    size_t pixels = (size_t)(s->grid.rows * s->grid.cols);
    double *intensity = calloc((size_t)(n * n), sizeof *intensity);
    xpd_sim_fft *fft = xpd_sim_fft_create(n);
    xpe_status st = XPE_OK;

    s->object = calloc(pixels, sizeof *s->object);
    s->probe = calloc((size_t)(s->set.modes * n * n), sizeof *s->probe);
    s->frames = calloc((size_t)(count * n * n), 4);
    if (!intensity || !fft || !s->object || !s->probe || !s->frames ||
        !xpd_sim_object(s->object, s->grid.rows, s->grid.cols, s->set.object, s->set.seed) ||
        !xpd_sim_probe(s->probe, &s->optics))
        st = xpe_fail(err, XPE_NO_MEMORY, "",
                      "no memory for an object of %lld x %lld and %lld frames",
                      (long long)s->grid.rows, (long long)s->grid.cols, (long long)count);
    for (int64_t j = 0; st == XPE_OK && j < count; j++) {
        xpd_sim_intensity(fft, intensity, s->object, s->grid.cols, s->first[2 * j],
                          s->first[2 * j + 1], s->probe, s->optics.modes);
        record(s, j, intensity);
    }
    s->count_mean /= (double)count;
    if (st == XPE_OK)
        st = narrow(s, err);
    xpd_sim_fft_destroy(fft);
    free(intensity);
    return st;
}

/* ----------------------------------------------------------------------------------- report */

static void report_text(const simulation *s, const xpe_written *written, const char *path)
{
    const settings *set = &s->set;
    xpd_sim_material material = xpd_sim_object_material(set->object);
    double pixel = s->grid.pitch_m;

    printf("scan '%s': %.1f MiB\n", path, (double)written->bytes / 0x1p20);
    printf("  %lld frames of %lld x %lld, %s, %s pattern, step %.2f pixels (%.4g m), jitter %.2f "
           "pixels\n",
           (long long)set->positions, (long long)set->n, (long long)set->n,
           xpe_type_name(s->scan.type), set->pattern, set->step, set->step * pixel, set->jitter);
    printf("  %.4g keV (%.5g m), detector %.4g m away, pixels of %.4g m: object pixel %.5g m\n",
           set->energy_kev, s->optics.wavelength_m, set->distance_m, set->pitch_m, pixel);
    printf("  beam %.1f pixels wide (%.4g m), %.4g m after the focus, %d mode%s; linear overlap "
           "%.0f %%\n",
           s->beam, s->beam * pixel, s->optics.defocus_m, s->optics.modes,
           s->optics.modes > 1 ? "s" : "", 100.0 * (1.0 - set->step / s->beam));
    printf("  object '%s' of %lld x %lld pixels: phase down to about -%.2g rad, amplitude "
           "exp(-%.2g |phase|)\n",
           xpd_sim_object_name(set->object), (long long)s->grid.rows, (long long)s->grid.cols,
           material.phase_max, material.absorption);
    if (set->photons > 0.0)
        printf("  %.4g photons a frame in the beam: %.4g counted, most in a pixel %.0f, Poisson "
               "noise, seed %llu\n",
               set->photons, s->count_mean, s->count_max, (unsigned long long)set->seed);
    else
        printf("  no noise: intensities of 1e6 photons a frame as float32\n");
    printf("  frames are of patches at whole pixels, the positions in the file are not rounded (by "
           "at most %.2f "
           "pixels)\n",
           s->rounding);
    printf("  to reconstruct with an estimated probe: fresnel_distance_m %.4g, probe_modes %d\n",
           s->optics.defocus_m, s->optics.modes);
}

static void report_json(const simulation *s, const xpe_written *written, const char *path)
{
    const settings *set = &s->set;
    json_t *out = json_pack(
        "{s:s, s:I, s:s, s:I, s:I, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, "
        "s:[I,I], s:[f,f], s:f, "
        "s:f, s:f, s:I, s:f}",
        "path", path, "bytes", (json_int_t)written->bytes, "object",
        xpd_sim_object_name(set->object), "frames", (json_int_t)set->positions, "frame_side",
        (json_int_t)set->n, "type", xpe_type_name(s->scan.type), "pattern", set->pattern,
        "step_pixels", set->step, "jitter_pixels", set->jitter, "energy_kev", set->energy_kev,
        "wavelength_m", s->optics.wavelength_m, "detector_distance_m", set->distance_m,
        "detector_pitch_m", set->pitch_m, "object_pixel_m", s->grid.pitch_m, "beam_pixels", s->beam,
        "defocus_m", s->optics.defocus_m, "modes", s->optics.modes, "object_shape",
        (json_int_t)s->grid.rows, (json_int_t)s->grid.cols, "object_origin_m", s->grid.origin_m[0],
        s->grid.origin_m[1], "photons", set->photons, "counts_per_frame", s->count_mean,
        "count_max", s->count_max, "seed", (json_int_t)set->seed, "overlap",
        1.0 - set->step / s->beam);

    if (out)
        json_dumpf(out, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    json_decref(out);
}

static xpe_status write_file(simulation *s, const char *path, xpe_error *err)
{
    char name[80], note[160];
    xpe_written written = {0};
    xpe_status st;

    snprintf(name, sizeof name, "simulated %s", xpd_sim_object_name(s->set.object));
    snprintf(
        note, sizeof note,
        "xptychod %s simulate: patches at whole object pixels, positions not rounded, seed %llu",
        xpp_version(), (unsigned long long)s->set.seed);
    xpe_scan_content content = {.scan = &s->scan,
                                .name = name,
                                .note = note,
                                .true_object = s->object,
                                .true_probe = s->probe,
                                .true_modes = s->set.modes,
                                .true_grid = &s->grid};
    st = xpe_scan_write(&written, path, s->set.overwrite, &content, err);
    if (st == XPE_OK && s->set.json)
        report_json(s, &written, path);
    else if (st == XPE_OK)
        report_text(s, &written, path);
    return st;
}

int xpd_simulate_main(int argc, char **argv)
{
    simulation s = {0};
    char path[PATH_MAX];
    xpe_error err = {0};
    xpe_status st;
    int code;

    if (!settings_read(&s.set, argc, argv, &code))
        return code;
    if (!optics_make(&s) || !settings_check(&s))
        return XPD_EXIT_USAGE;
    if (!xpd_path_absolute(path, sizeof path, s.set.output)) {
        fprintf(stderr, "xptycho simulate: --output: '%s' is too long\n", s.set.output);
        return XPD_EXIT_USAGE;
    }
    st = place(&s, &err);
    if (st == XPE_OK)
        st = expose(&s, &err);
    if (st == XPE_OK)
        st = write_file(&s, path, &err);
    if (st != XPE_OK)
        fprintf(stderr, "xptycho simulate: %s\n", err.text);
    simulation_release(&s);
    return st == XPE_OK                        ? XPD_EXIT_OK
           : st == XPE_INVALID || st == XPE_IO ? XPD_EXIT_REFUSED
                                               : XPD_EXIT_FAILED;
}
