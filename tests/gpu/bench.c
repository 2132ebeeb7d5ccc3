/* Times iterations of the engine on scans that it makes itself, through engine.h and backend.h
 * only.
 *
 *   bench_cuda cuda:0 [cuda:1 ...] [--case NAME] [--iterations N] [--frames-scale F]
 *
 * A table for docs/performance.md.  For every case: seconds an iteration (the median of those after
 * the first two), bytes by design (docs/performance.md), and the share of this device's copy
 * bandwidth that they make, which is the figure that compares between cards.  The counts are a
 * speckle that means nothing: an iteration takes the same time whatever it reconstructs. */
#include "backend/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench_case {
    const char *name;
    int64_t frames, n;
    int modes;
    bool known;
} bench_case;

static const bench_case cases[] = {
    {"gold-known", 794, 512, 1, true}, {"gold-one", 794, 512, 1, false},
    {"gold-two", 794, 512, 2, false},  {"256-known", 10000, 256, 1, true},
    {"256-two", 10000, 256, 2, false}, {"128-known", 50000, 128, 1, true},
    {"128-two", 50000, 128, 2, false}, {"cufft-400", 1200, 400, 1, true},
    {"tiny", 64, 64, 1, true},
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop(const char *what, const xpe_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(EXIT_FAILURE);
}

static void *make(size_t count, size_t size)
{
    void *p = calloc(count, size);

    if (!p) {
        fprintf(stderr, "host memory is exhausted: %.1f GiB were asked for\n",
                (double)count * (double)size / 0x1p30);
        exit(EXIT_FAILURE);
    }
    return p;
}

/* --------------------------------------------------------------------------- copy bandwidth */

/* Bytes read and written a second by a copy within the device, or 0 when there is no room for it.
 */
static double copy_bandwidth(const xpe_device_list *devices)
{
    const size_t bytes = (size_t)1 << 30;
    const xpe_device_list one = {devices->names, 1, 0};
    const xpe_backend *backend;
    xpe_buffer *from = NULL, *to = NULL;
    xpe_team *team = NULL;
    xpe_error err;
    double best = 0, seen;

    if (xpe_backend_find(&backend, &one, &err) != XPE_OK ||
        backend->open(&team, &one, 64, 1, &err) != XPE_OK)
        stop("copy bandwidth", &err);
    if (backend->buffer_create(&from, team, 0, bytes, &err) == XPE_OK &&
        backend->buffer_create(&to, team, 0, bytes, &err) == XPE_OK)
        for (int pass = 0; pass < 12; pass++) {
            double begin;
            backend->download(team, &seen, to, 0, sizeof seen); /* makes the host wait */
            if (backend->wait(team, &err) != XPE_OK)
                stop("copy bandwidth", &err);
            begin = now();
            for (int i = 0; i < 10; i++)
                backend->copy(team, to, 0, from, 0, bytes);
            backend->download(team, &seen, to, 0, sizeof seen);
            if (backend->wait(team, &err) != XPE_OK)
                stop("copy bandwidth", &err);
            best = fmax(best, 20.0 * (double)bytes / (now() - begin));
        }
    backend->buffer_destroy(from);
    backend->buffer_destroy(to);
    backend->close(team);
    return best;
}

/* ------------------------------------------------------------------------------------ a scan */

typedef struct scan {
    uint16_t *frames;
    double *positions;
    xpe_c32 *probe, *object;
    xpe_problem_desc desc;
} scan;

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Speckle under an envelope: 256 different rows, put together anew for every frame, fast to make.
 */
static void fill_frames(scan *s, const bench_case *c)
{
    uint16_t *rows = make((size_t)(256 * c->n), sizeof *rows);
    uint64_t state = 1;

    for (int64_t i = 0; i < 256 * c->n; i++) {
        double x = (double)(i % c->n - c->n / 2) / (double)c->n;
        rows[i] = (uint16_t)(exp(-60 * x * x) * (double)(draw(&state) % 1000));
    }
    for (int64_t r = 0; r < c->frames * c->n; r++)
        memcpy(s->frames + r * c->n, rows + (int64_t)(draw(&state) % 256) * c->n,
               (size_t)c->n * sizeof *rows);
    free(rows);
}

/* A raster with steps of a sixteenth of the frame. */
static void place_frames(scan *s, const bench_case *c, double pitch)
{
    int64_t side = (int64_t)ceil(sqrt((double)c->frames)), step = c->n / 16;

    for (int64_t j = 0; j < c->frames; j++) {
        s->positions[2 * j] = (double)(j / side * step) * pitch;
        s->positions[2 * j + 1] = (double)(j % side * step) * pitch;
    }
}

static void scan_make(scan *s, const bench_case *c)
{
    const double pitch = 1e-8;
    int64_t plane = c->n * c->n;

    memset(s, 0, sizeof *s);
    s->frames = make((size_t)(c->frames * plane), sizeof *s->frames);
    s->positions = make((size_t)c->frames * 2, sizeof *s->positions);
    s->probe = make((size_t)(c->modes * plane), sizeof *s->probe);
    fill_frames(s, c);
    place_frames(s, c, pitch);
    for (int64_t i = 0; i < c->modes * plane; i++) {
        double r = (double)(i % plane / c->n - c->n / 2) / (double)c->n,
               q = (double)(i % c->n - c->n / 2) / (double)c->n;
        s->probe[i].re = (float)(20 * exp(-20 * (r * r + q * q)) * (i < plane ? 1 : 4 * r));
    }
    s->desc.scan = (xpe_scan){.num_frames = c->frames,
                              .n = c->n,
                              .frames = s->frames,
                              .type = XPE_U16,
                              .positions = s->positions,
                              .wavelength_m = 1e-10,
                              .detector_distance_m = 1};
    s->desc.scan.detector_pitch_m = s->desc.scan.wavelength_m / ((double)c->n * pitch);
    s->desc.probe_modes = c->modes;
    if (c->known) {
        s->desc.probe = s->probe;
        s->desc.probe_count = c->modes;
    } else {
        s->desc.init_probe = s->probe;
        s->desc.init_probe_count = c->modes;
    }
}

static void scan_release(scan *s)
{
    free(s->frames);
    free(s->positions);
    free(s->probe);
    free(s->object);
}

/* ------------------------------------------------------------------------------------ timing */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void time_case(const bench_case *c, const xpe_device_list *devices, int iterations,
                      double bandwidth)
{
    double *seconds = make((size_t)iterations, sizeof *seconds), created;
    xpe_stage stage = xpe_stage_default();
    xpe_problem *problem = NULL;
    xpe_run *run = NULL;
    xpe_run_stats before = {0}, after = {0};
    xpe_error err;
    scan s;
    double median;

    scan_make(&s, c);
    if (xpe_problem_create(&problem, &s.desc, &err) != XPE_OK)
        stop(c->name, &err);
    /* an object of ones: the start is not what is timed */
    s.desc.init_object_shape[0] = xpe_problem_grid(problem)->rows;
    s.desc.init_object_shape[1] = xpe_problem_grid(problem)->cols;
    s.object =
        make((size_t)(s.desc.init_object_shape[0] * s.desc.init_object_shape[1]), sizeof *s.object);
    for (int64_t i = 0; i < s.desc.init_object_shape[0] * s.desc.init_object_shape[1]; i++)
        s.object[i].re = 1;
    s.desc.init_object = s.object;
    xpe_problem_destroy(problem);
    if (xpe_problem_create(&problem, &s.desc, &err) != XPE_OK)
        stop(c->name, &err);
    stage.iterations = iterations + 1;
    created = now();
    if (xpe_run_create(&run, problem, &stage, devices, &err) != XPE_OK) {
        printf("| %-10s | not run: %s |\n", c->name, err.text);
        goto done;
    }
    created = now() - created;
    for (int i = 0; i < iterations; i++) {
        xpe_report report;
        if (i == 2)
            before = xpe_run_get_stats(run);
        if (xpe_run_step(run, &report, &err) != XPE_OK)
            stop(c->name, &err);
        seconds[i] = report.seconds;
    }
    after = xpe_run_get_stats(run);
    qsort(seconds + 2, (size_t)(iterations - 2), sizeof *seconds, by_size);
    median = seconds[2 + (iterations - 2) / 2];
    {
        double bytes = (double)(after.bytes_moved - before.bytes_moved) / (iterations - 2);
        printf("| %-10s | %6lld x %3lld^2, %d %-9s | %7.2f | %9.3f | %8.2f | %7.1f | %5.1f %% | "
               "%7.2f | %.3f |\n",
               c->name, (long long)c->frames, (long long)c->n, c->modes,
               c->known ? "known" : "estimated", created, 1e3 * median, bytes * 1e-9,
               bytes / median * 1e-9,
               bandwidth > 0 ? 100 * bytes / median / (bandwidth * devices->count) : 0,
               (double)after.bytes_peak / 0x1p30,
               (double)after.bytes_planned / (double)after.bytes_peak);
        (void)fflush(stdout);
    }
done:
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    scan_release(&s);
    free(seconds);
}

static void show_devices(void)
{
    xpe_device_info infos[64];
    size_t count = xpe_devices_list(infos, sizeof infos / sizeof *infos);

    for (size_t i = 0; i < count && i < sizeof infos / sizeof *infos; i++)
        printf("%s: %s%s%s, %.1f GiB free\n", infos[i].name, infos[i].model,
               infos[i].absent[0] ? "absent: " : "", infos[i].absent,
               (double)infos[i].bytes_free / 0x1p30);
}

int main(int argc, char **argv)
{
    const char *names[64], *wanted = NULL;
    xpe_device_list devices = {names, 0, 0};
    int iterations = 22;
    double scale = 1, bandwidth;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--case") == 0 && i + 1 < argc)
            wanted = argv[++i];
        else if (strcmp(argv[i], "--iterations") == 0 && i + 1 < argc)
            iterations = atoi(argv[++i]);
        else if (strcmp(argv[i], "--frames-scale") == 0 && i + 1 < argc)
            scale = atof(argv[++i]);
        else if (argv[i][0] != '-' && devices.count < 64)
            names[devices.count++] = argv[i];
        else {
            fprintf(stderr,
                    "usage: %s DEVICE... [--case NAME] [--iterations N] [--frames-scale F]\n",
                    argv[0]);
            return 2;
        }
    }
    if (devices.count == 0)
        names[devices.count++] = "cuda:0";
    iterations = iterations < 3 ? 3 : iterations;
    show_devices();
    bandwidth = copy_bandwidth(&devices);
    printf("copy within %s: %.0f GB/s read and written\n", names[0], bandwidth * 1e-9);
    printf("\n| %d device%s | frames, modes, probe | start s | ms an iteration | GB by design | "
           "GB/s | of copy | memory GiB | planned "
           "x |\n|---|---|---|---|---|---|---|---|---|\n",
           devices.count, devices.count > 1 ? "s" : "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench_case c = cases[i];
        c.frames = (int64_t)fmax(devices.count, (double)c.frames * scale);
        if (!wanted || strcmp(wanted, c.name) == 0)
            time_case(&c, &devices, iterations, bandwidth);
    }
    return 0;
}
