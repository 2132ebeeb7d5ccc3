/* `bench`: what an iteration costs beside the transforms alone.
 *
 * A scan is synthesised in memory.  Iterations (A) and a bare loop of as many in-place 2-D
 * transforms on as many threads (B) take turns, A B A B, so that a machine that changes its pace
 * changes both.  The bare loop is FFTW at its best: a measured plan, one frame in cache for each
 * thread, nothing else.  It works on zeros: their transforms are zeros, so nothing has to be scaled
 * or refilled, and the arithmetic takes the same time.
 *
 * The counts lie in a memfd as they do in a job and leave this process's memory once the engine has
 * made amplitudes of them, so the peak is that of a real run. */
#include "modes.h"

#include "execute.h"
#include "fault.h"
#include "residency.h"
#include "sim.h"

#include <fftw3.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define THREADS_MAX 1024

static const char help[] =
    "usage: xptycho bench [OPTION...]\n"
    "\n"
    "Times iterations on a synthetic scan beside a bare loop of the same "
    "number of FFTW transforms.\n"
    "\n"
    "  --positions J     default 400\n"
    "  --frames-side N   default 128\n"
    "  --modes K         probe modes; default 1\n"
    "  --known           known probe (default)\n"
    "  --estimated       estimated probe\n"
    "  --iterations N    timed; default 10\n"
    "  --devices LIST    for instance cpu or cpu,cpu; default cpu\n"
    "  --cpu-threads T   default every core\n"
    "  --residency       instead: from submit to the first line of a tiny job, on a\n"
    "                    cold and on a warm worker; --iterations is the number of rounds\n"
    "  --json            the figures as JSON\n";

typedef struct settings {
    int64_t positions, n, modes, iterations, threads;
    bool estimated, json, residency;
    char devices[XPP_DEVICES_MAX * 32];
} settings;

typedef struct bench {
    settings set;
    xpe_problem_desc desc;
    xpe_grid grid;
    double *positions;
    int32_t *first;
    xpe_c32 *probe;
    uint16_t *frames; /* mapped from a memfd */
    size_t frames_bytes;
    xpd_devices devices;
    /* figures */
    double *step, *bare; /* [iterations] seconds */
    int64_t transforms;  /* of one iteration */
    double share;        /* of transforms, in busy thread time */
    xpe_run_stats stats;
    int64_t rss_peak, moved;
} bench;

/* --------------------------------------------------------------------------------- synthesis */

static xpe_status frames_map(bench *b, xpe_error *err)
{
    int fd = memfd_create("xptycho bench", MFD_CLOEXEC);

    b->frames_bytes = (size_t)(b->set.positions * b->set.n * b->set.n) * sizeof *b->frames;
    if (fd < 0 || ftruncate(fd, (off_t)b->frames_bytes) != 0) {
        if (fd >= 0)
            close(fd);
        return xpe_fail(err, XPE_NO_MEMORY, "", "no memory for %zu bytes of frames",
                        b->frames_bytes);
    }
    b->frames = mmap(NULL, b->frames_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (b->frames == MAP_FAILED) {
        b->frames = NULL;
        return xpe_fail(err, XPE_NO_MEMORY, "", "no memory for %zu bytes of frames",
                        b->frames_bytes);
    }
    return XPE_OK;
}

static xpe_status expose(bench *b, xpe_error *err)
{
    int64_t n = b->set.n, size = n * n;
    size_t pixels = (size_t)(b->grid.rows * b->grid.cols);
    xpe_c32 *object = calloc(pixels, sizeof *object);
    double *intensity = calloc((size_t)size, sizeof *intensity);
    xpd_sim_fft *fft = xpd_sim_fft_create(n);
    xpe_status st = object && intensity && fft &&
                            xpd_sim_object(object, b->grid.rows, b->grid.cols, XPD_SIM_CHIP, 1)
                        ? XPE_OK
                        : xpe_fail(err, XPE_NO_MEMORY, "", "no memory for the synthetic object");

    for (int64_t j = 0; st == XPE_OK && j < b->set.positions; j++) {
        xpd_random random;

        xpd_random_init(&random, 1, (uint64_t)j);
        xpd_sim_intensity(fft, intensity, object, b->grid.cols, b->first[2 * j],
                          b->first[2 * j + 1], b->probe, (int)b->set.modes);
        for (int64_t i = 0; i < size; i++)
            b->frames[j * size + i] =
                (uint16_t)fmin((double)xpd_random_poisson(&random, intensity[i]), 65534.0);
        /* written pages stay in the memfd; here they would count as this run's memory */
        madvise(b->frames, b->frames_bytes, MADV_DONTNEED);
    }
    xpd_sim_fft_destroy(fft);
    free(intensity);
    free(object);
    return st;
}

/* The engine has amplitudes of its own now. */
static void drop_pages(void *argument)
{
    bench *b = argument;

    madvise(b->frames, b->frames_bytes, MADV_DONTNEED);
}

static xpe_status synthesise(bench *b, xpe_error *err)
{
    int64_t n = b->set.n, count = b->set.positions;
    xpd_sim_optics optics = {.n = n,
                             .modes = (int)b->set.modes,
                             .wavelength_m = 1.409e-10,
                             .pupil_radius = 0.16 * (double)n,
                             .stop_radius = 0.05 * (double)n,
                             .photons = 1e6};
    double step;
    xpe_status st;

    optics.pixel_m = xpe_pixel_pitch(optics.wavelength_m, 2.0, 75e-6, n);
    optics.defocus_m = xpd_sim_beam_defocus(&optics, 0.35 * (double)n);
    step = 0.25 * xpd_sim_beam_diameter(&optics);
    b->positions = calloc((size_t)count * 2, sizeof *b->positions);
    b->first = calloc((size_t)count * 2, sizeof *b->first);
    b->probe = calloc((size_t)(b->set.modes * n * n), sizeof *b->probe);
    if (!b->positions || !b->first || !b->probe || !xpd_sim_probe(b->probe, &optics))
        return xpe_fail(err, XPE_NO_MEMORY, "", "no memory for the synthetic scan");
    xpd_sim_spiral(b->positions, count, step);
    for (int64_t i = 0; i < 2 * count; i++)
        b->positions[i] *= optics.pixel_m;
    b->desc = (xpe_problem_desc){.scan = {.num_frames = count,
                                          .n = n,
                                          .type = XPE_U16,
                                          .positions = b->positions,
                                          .wavelength_m = optics.wavelength_m,
                                          .detector_distance_m = 2.0,
                                          .detector_pitch_m = 75e-6},
                                 .probe_modes = (int)b->set.modes};
    if (b->set.estimated) { /* all modes from the start: every iteration costs the same */
        b->desc.init_probe = b->probe;
        b->desc.init_probe_count = (int)b->set.modes;
    } else {
        b->desc.probe = b->probe;
        b->desc.probe_count = (int)b->set.modes;
    }
    st = xpe_grid_derive(&b->grid, b->first, &b->desc.scan, &(xpe_grid_wish){0}, err);
    if (st == XPE_OK)
        st = frames_map(b, err);
    if (st == XPE_OK)
        st = expose(b, err);
    b->desc.scan.frames = b->frames;
    b->desc.frames_read = drop_pages;
    b->desc.frames_read_arg = b;
    return st;
}

/* ---------------------------------------------------------------------------------- bare loop */

typedef struct bare_thread {
    pthread_t thread;
    fftwf_complex *field;
    fftwf_plan forward, backward; /* shared, read only */
    int64_t count;
} bare_thread;

typedef struct bare_loop {
    bare_thread *threads;
    int thread_count;
    fftwf_plan forward, backward;
} bare_loop;

static void *bare_main(void *argument)
{
    bare_thread *t = argument;

    for (int64_t i = 0; i < t->count; i++)
        fftwf_execute_dft(i & 1 ? t->backward : t->forward, t->field, t->field);
    return NULL;
}

static void bare_destroy(bare_loop *loop)
{
    for (int i = 0; loop->threads && i < loop->thread_count; i++)
        fftwf_free(loop->threads[i].field);
    free(loop->threads);
    if (loop->forward)
        fftwf_destroy_plan(loop->forward);
    if (loop->backward)
        fftwf_destroy_plan(loop->backward);
}

static bool bare_create(bare_loop *loop, int64_t n, int threads)
{
    size_t size = (size_t)(n * n);

    *loop = (bare_loop){.threads = calloc((size_t)threads, sizeof *loop->threads),
                        .thread_count = threads};
    if (!loop->threads)
        return false;
    for (int i = 0; i < threads; i++)
        loop->threads[i].field = fftwf_alloc_complex(size);
    for (int i = 0; i < threads; i++)
        if (!loop->threads[i].field)
            return false;
    loop->forward = fftwf_plan_dft_2d((int)n, (int)n, loop->threads[0].field,
                                      loop->threads[0].field, FFTW_FORWARD, FFTW_MEASURE);
    loop->backward = fftwf_plan_dft_2d((int)n, (int)n, loop->threads[0].field,
                                       loop->threads[0].field, FFTW_BACKWARD, FFTW_MEASURE);
    for (int i = 0; i < threads; i++) { /* measuring wrote into the first */
        memset(loop->threads[i].field, 0, size * sizeof *loop->threads[i].field);
        loop->threads[i].forward = loop->forward;
        loop->threads[i].backward = loop->backward;
    }
    return loop->forward && loop->backward;
}

/* Seconds of `count` transforms over all threads. */
static double bare_run(bare_loop *loop, int64_t count)
{
    int started = 0;
    double began = xpd_now();

    for (int i = 0; i < loop->thread_count; i++) {
        bare_thread *t = &loop->threads[i];

        t->count = count / loop->thread_count + (i < count % loop->thread_count);
        if (i + 1 < loop->thread_count && pthread_create(&t->thread, NULL, bare_main, t) == 0)
            started++;
        else
            bare_main(t); /* the last share, on this thread */
    }
    for (int i = 0; i < started; i++)
        pthread_join(loop->threads[i].thread, NULL);
    return xpd_now() - began;
}

/* ---------------------------------------------------------------------------------- measuring */

static xpe_status step_once(xpe_run *run, double *seconds, xpe_error *err)
{
    xpe_report report = {0};
    double began = xpd_now();
    xpe_status st = xpe_run_step(run, &report, err);

    *seconds = xpd_now() - began;
    return st;
}

static xpe_status measure(bench *b, xpe_run *run, bare_loop *loop, xpe_error *err)
{
    const int profiled = 3;
    xpe_run_stats before, after;
    double seconds;
    xpe_status st = step_once(run, &seconds, err); /* touches all memory */

    for (int64_t i = 0; st == XPE_OK && i < b->set.iterations; i++) {
        before = xpe_run_get_stats(run);
        st = step_once(run, &b->step[i], err);
        after = xpe_run_get_stats(run);
        b->transforms = after.transforms - before.transforms;
        b->moved = after.bytes_moved - before.bytes_moved;
        b->bare[i] = bare_run(loop, b->transforms);
    }
    /* with clocks inside, so apart from the timing */
    xpe_run_profile(run, true);
    for (int i = 0; st == XPE_OK && i < profiled; i++)
        st = step_once(run, &seconds, err);
    b->stats = xpe_run_get_stats(run);
    b->share =
        b->stats.seconds_busy > 0.0 ? b->stats.seconds_transforms / b->stats.seconds_busy : 0.0;
    return st;
}

static int64_t rss_peak(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static xpe_status bench_run(bench *b, xpe_error *err)
{
    xpe_stage stage = xpe_stage_default();
    xpe_device_list devices = xpd_devices_list(&b->devices);
    xpe_problem *problem = NULL;
    xpe_run *run = NULL;
    bare_loop loop = {0};
    xpe_status st;

    stage.iterations = (int)b->set.iterations + 4; /* one before, three profiled after */
    b->step = calloc((size_t)b->set.iterations, sizeof *b->step);
    b->bare = calloc((size_t)b->set.iterations, sizeof *b->bare);
    if (!b->step || !b->bare ||
        !bare_create(&loop, b->set.n, b->devices.cpu_threads > 0 ? b->devices.cpu_threads : 1)) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "no memory for the bare loop");
        goto done;
    }
    st = xpe_problem_create(&problem, &b->desc, err);
    if (st == XPE_OK)
        st = xpe_run_create(&run, problem, &stage, &devices, err);
    if (st == XPE_OK)
        st = measure(b, run, &loop, err);
    b->rss_peak = rss_peak();
done:
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    bare_destroy(&loop);
    return st;
}

/* ----------------------------------------------------------------------------------- report */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* The bound of the memory that a run may take: data, object arrays, 64 MiB. */
static double memory_bound(const bench *b)
{
    double k = (double)b->set.modes, pixels = (double)(b->grid.rows * b->grid.cols);
    double frame = 12.0 + (b->set.estimated ? 8.0 * k : 0.0);

    return frame * (double)(b->set.positions * b->set.n * b->set.n) + pixels * (8.0 + 20.0 * k) +
           0x1p26;
}

static void report(bench *b)
{
    const settings *s = &b->set;
    double step = median(b->step, s->iterations), bare = median(b->bare, s->iterations);
    const char *kind = s->estimated ? "estimated" : "known";

    if (s->json) {
        json_t *out = json_pack(
            "{s:I, s:I, s:I, s:s, s:I, s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:I, s:I, "
            "s:I, s:f, s:[I,I], s:s}",
            "positions", (json_int_t)s->positions, "frame_side", (json_int_t)s->n, "modes",
            (json_int_t)s->modes, "probe", kind, "iterations", (json_int_t)s->iterations, "devices",
            b->devices.count, "model", b->devices.model, "cpu_threads", b->devices.cpu_threads,
            "seconds_per_iteration", step, "seconds_fastest", b->step[0], "seconds_bare", bare,
            "seconds_bare_fastest", b->bare[0], "ratio", step / bare, "transforms",
            (json_int_t)b->transforms, "transform_share", b->share, "bytes_moved",
            (json_int_t)b->moved, "bytes_device_peak", (json_int_t)b->stats.bytes_peak, "rss_peak",
            (json_int_t)b->rss_peak, "rss_bound", memory_bound(b), "object_shape",
            (json_int_t)b->grid.rows, (json_int_t)b->grid.cols, "build", xpe_build_identity());

        if (out)
            json_dumpf(out, stdout, JSON_COMPACT);
        fputc('\n', stdout);
        json_decref(out);
        return;
    }
    printf("%lld frames of %lld x %lld, %s probe, %lld mode%s, object %lld x %lld\n",
           (long long)s->positions, (long long)s->n, (long long)s->n, kind, (long long)s->modes,
           s->modes > 1 ? "s" : "", (long long)b->grid.rows, (long long)b->grid.cols);
    printf("  on %d device%s (%s), %d threads\n", b->devices.count, b->devices.count > 1 ? "s" : "",
           b->devices.model, b->devices.cpu_threads);
    printf("  %.4f s an iteration (median of %lld; fastest %.4f)\n", step, (long long)s->iterations,
           b->step[0]);
    printf("  %.4f s for %lld bare transforms (fastest %.4f): ratio %.2f\n", bare,
           (long long)b->transforms, b->bare[0], step / bare);
    printf("  %.0f %% of the thread time in transforms\n", 100.0 * b->share);
    printf("  %.1f MiB moved an iteration, %.2f GiB/s\n", (double)b->moved / 0x1p20,
           (double)b->moved / step / 0x1p30);
    printf("  device memory %.1f MiB, process at most %.1f MiB (bound %.1f MiB)\n",
           (double)b->stats.bytes_peak / 0x1p20, (double)b->rss_peak / 0x1p20,
           memory_bound(b) / 0x1p20);
}

/* -------------------------------------------------------------------------------- arguments */

static bool whole(int64_t *out, const char *text, int64_t low, int64_t high)
{
    char *end;
    long long value = strtoll(text, &end, 10);

    *out = value;
    return *text && !*end && value >= low && value <= high;
}

static bool settings_read(settings *s, int argc, char **argv, int *code)
{
    static const struct option options[] = {{"positions", required_argument, NULL, 'J'},
                                            {"frames-side", required_argument, NULL, 'n'},
                                            {"modes", required_argument, NULL, 'K'},
                                            {"known", no_argument, NULL, 'k'},
                                            {"estimated", no_argument, NULL, 'e'},
                                            {"iterations", required_argument, NULL, 'i'},
                                            {"devices", required_argument, NULL, 'd'},
                                            {"cpu-threads", required_argument, NULL, 't'},
                                            {"residency", no_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int flag, index = 0;

    *s = (settings){.positions = 400, .n = 128, .modes = 1, .iterations = 10, .devices = "cpu"};
    *code = XPD_EXIT_USAGE;
    while ((flag = getopt_long(argc, argv, "", options, &index)) != -1) {
        bool good = true;

        switch (flag) {
        case 'J':
            good = whole(&s->positions, optarg, 1, 10000000);
            break;
        case 'n':
            good = whole(&s->n, optarg, 16, 8192) && s->n % 2 == 0;
            break;
        case 'K':
            good = whole(&s->modes, optarg, 1, 16);
            break;
        case 'k':
            s->estimated = false;
            break;
        case 'e':
            s->estimated = true;
            break;
        case 'i':
            good = whole(&s->iterations, optarg, 1, 100000);
            break;
        case 'd':
            good = snprintf(s->devices, sizeof s->devices, "%s", optarg) < (int)sizeof s->devices;
            break;
        case 't':
            good = whole(&s->threads, optarg, 1, THREADS_MAX);
            break;
        case 'r':
            s->residency = true;
            break;
        case 'j':
            s->json = true;
            break;
        case 'h':
            fputs(help, stdout);
            *code = XPD_EXIT_OK;
            return false;
        default:
            fputs("xptycho bench --help says what there is\n", stderr);
            return false;
        }
        if (!good) {
            fprintf(stderr, "--%s: '%s' is out of range\n", options[index].name, optarg);
            return false;
        }
    }
    if (optind != argc) {
        fputs("xptycho bench takes flags only\n", stderr);
        return false;
    }
    return true;
}

static xpe_status devices_read(bench *b, xpe_error *err)
{
    char *names[XPP_DEVICES_MAX], *rest = NULL;
    xpp_job job = {.devices = {.names = names, .cpu_threads = (int)b->set.threads}};

    for (char *name = strtok_r(b->set.devices, ",", &rest);
         name && job.devices.count < XPP_DEVICES_MAX; name = strtok_r(NULL, ",", &rest))
        names[job.devices.count++] = name;
    return xpd_devices_choose(&b->devices, &job, err);
}

static xpe_status bench_all(bench *b, xpe_error *err)
{
    xpe_status st = devices_read(b, err);

    if (st == XPE_OK)
        st = synthesise(b, err);
    if (st == XPE_OK)
        st = bench_run(b, err);
    if (st == XPE_OK)
        report(b);
    return st;
}

int xpd_bench_main(int argc, char **argv)
{
    bench b = {0};
    xpe_error err = {0};
    xpe_status st;
    int code;

    if (!settings_read(&b.set, argc, argv, &code))
        return code;
    if (b.set.residency)
        st = xpd_residency_bench((int)b.set.iterations, b.set.json, &err);
    else
        st = bench_all(&b, &err);
    if (st != XPE_OK)
        fprintf(stderr, "xptycho bench: %s\n", err.text);
    if (b.frames)
        munmap(b.frames, b.frames_bytes);
    free(b.positions);
    free(b.first);
    free(b.probe);
    free(b.step);
    free(b.bare);
    return st == XPE_OK ? XPD_EXIT_OK : xpd_exit_of("failed", xpd_reason_of(st));
}
