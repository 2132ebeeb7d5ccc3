/* See engine_run.h. */
#include "engine_run.h"

#include "backend/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES_MAX 64

static const char *backend = "cpu";
static const char *device_names[DEVICES_MAX]; /* those there are, again and again; filled before any
                                                 thread is started */

int xpt_backend_begin(int argc, char **argv)
{
    static const char *const names[] = {"cpu", "cuda"};
    static xpe_device_info info[DEVICES_MAX];
    size_t count = xpe_devices_list(info, DEVICES_MAX);
    int present = 0;

    for (size_t i = 0; argc > 1 && i < sizeof names / sizeof *names; i++)
        if (strcmp(argv[1], names[i]) == 0)
            backend = names[i];
    for (size_t i = 0; i < count && i < DEVICES_MAX; i++) {
        if (strncmp(info[i].name, backend, strlen(backend)) != 0)
            continue;
        if (info[i].absent[0]) {
            printf("skipped: '%s': %s\n", info[i].name, info[i].absent);
            return 77;
        }
        device_names[present++] = info[i].name;
    }
    for (int i = present; present && i < DEVICES_MAX; i++)
        device_names[i] = device_names[i - present];
    return 0;
}

const char *xpt_backend_name(void)
{
    return backend;
}

xpe_device_list xpt_devices(int count, int threads)
{
    assert_in_range(count, 0, DEVICES_MAX);
    return (xpe_device_list){device_names, count ? count : 1, threads};
}

xpe_stage xpt_stage(int iterations)
{
    xpe_stage stage = xpe_stage_default();

    stage.iterations = iterations;
    return stage;
}

static void keep_arrays(xpt_result *r, xpe_run *run)
{
    xpe_error err;

    assert_int_equal(xpe_run_object(run, r->object, &err), XPE_OK);
    assert_int_equal(xpe_run_probe(run, r->probe, &err), XPE_OK);
    assert_int_equal(xpe_run_coverage(run, r->coverage, &err), XPE_OK);
    if (r->positions)
        assert_int_equal(xpe_run_positions(run, r->positions, r->gain, &err), XPE_OK);
    r->modes = xpe_run_modes(run);
}

static void take_arrays(xpt_result *r, const xpe_problem *problem, const xpe_problem_desc *desc,
                        const xpe_stage *stage)
{
    size_t pixels, probe = (size_t)(desc->probe_modes * desc->scan.n * desc->scan.n);

    r->n = desc->scan.n;
    r->rows = xpe_problem_grid(problem)->rows;
    r->cols = xpe_problem_grid(problem)->cols;
    pixels = (size_t)(r->rows * r->cols);
    r->object = xpt_new(pixels, sizeof *r->object);
    r->start_object = xpt_new(pixels, sizeof *r->object);
    r->coverage = xpt_new(pixels, sizeof *r->coverage);
    r->probe = xpt_new(probe, sizeof *r->probe);
    r->start_probe = xpt_new(probe, sizeof *r->probe);
    if (stage->algorithm == XPE_REFINE_POSITIONS) {
        r->positions = xpt_new((size_t)desc->scan.num_frames * 2, sizeof *r->positions);
        r->gain = xpt_new((size_t)desc->scan.num_frames, sizeof *r->gain);
    }
}

static void step_all(xpt_result *r, xpe_run *run, const xpe_stage *stage)
{
    int steps = stage->algorithm == XPE_REFINE_POSITIONS ? 1 : stage->iterations;
    xpe_report report = {0};

    for (int i = 0; i < steps && r->status == XPE_OK; i++) {
        r->status = xpe_run_step(run, &report, &r->error);
        if (r->status != XPE_OK)
            return;
        assert_int_equal(report.iteration, i + 1);
        assert_int_equal(report.modes, xpe_run_modes(run));
        assert_int_equal(report.last, i + 1 == steps);
        r->errors[i] = report.data_error;
        r->added += report.mode_added;
        r->empty += report.mode_empty;
        r->iterations++;
    }
}

xpt_result *xpt_run(const xpe_problem_desc *desc, const xpe_stage *stage, xpt_division division)
{
    xpt_result *r = xpt_new(1, sizeof *r);
    xpe_device_list devices = xpt_devices(division.devices, division.threads);
    xpe_stage divided = *stage;
    xpe_problem *problem = NULL;
    xpe_run *run = NULL;
    xpe_error err;

    divided.batch_size = division.batch;
    r->errors = xpt_new((size_t)(stage->iterations > 0 ? stage->iterations : 1), sizeof *r->errors);
    for (int i = 0; i < stage->iterations; i++)
        r->errors[i] = NAN;
    r->status = xpe_problem_create(&problem, desc, &r->error);
    if (r->status != XPE_OK)
        return r;
    r->status = xpe_run_create(&run, problem, &divided, &devices, &r->error);
    if (r->status == XPE_OK) {
        take_arrays(r, problem, desc, stage);
        r->start_modes = xpe_run_modes(run);
        assert_int_equal(xpe_run_object(run, r->start_object, &err), XPE_OK);
        assert_int_equal(xpe_run_probe(run, r->start_probe, &err), XPE_OK);
        step_all(r, run, stage);
        keep_arrays(r, run);
    }
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    return r;
}

xpt_result *xpt_run_well(const xpe_problem_desc *desc, const xpe_stage *stage,
                         xpt_division division)
{
    xpt_result *r = xpt_run(desc, stage, division);

    if (r->status != XPE_OK)
        fail_msg("%s: %s", xpe_status_name(r->status), r->error.text);
    return r;
}

void xpt_result_destroy(xpt_result *r)
{
    if (!r)
        return;
    free(r->object);
    free(r->probe);
    free(r->start_object);
    free(r->start_probe);
    free(r->coverage);
    free(r->errors);
    free(r->positions);
    free(r->gain);
    free(r);
}

static bool same_bytes(const void *a, const void *b, size_t bytes, const char *name,
                       const char **what)
{
    if ((!a && !b) || (a && b && memcmp(a, b, bytes) == 0))
        return true;
    *what = name;
    return false;
}

bool xpt_same(const xpt_result *a, const xpt_result *b, const char **what)
{
    size_t pixels = (size_t)(a->rows * a->cols), plane = (size_t)(a->n * a->n);

    *what = "status, shape or number of modes or iterations";
    if (a->status != b->status || a->n != b->n || a->rows != b->rows || a->cols != b->cols ||
        a->modes != b->modes || a->start_modes != b->start_modes || a->iterations != b->iterations)
        return false;
    return same_bytes(a->start_probe, b->start_probe,
                      (size_t)a->start_modes * plane * sizeof *a->probe, "start probe", what) &&
           same_bytes(a->start_object, b->start_object, pixels * sizeof *a->object, "start object",
                      what) &&
           same_bytes(a->object, b->object, pixels * sizeof *a->object, "object", what) &&
           same_bytes(a->probe, b->probe, (size_t)a->modes * plane * sizeof *a->probe, "probe",
                      what) &&
           same_bytes(a->coverage, b->coverage, pixels * sizeof *a->coverage, "coverage", what) &&
           same_bytes(a->errors, b->errors, (size_t)a->iterations * sizeof *a->errors,
                      "data errors", what);
}

void xpt_assert_same_at(const xpt_result *a, const xpt_result *b, const char *file, int line)
{
    const char *what;

    if (!xpt_same(a, b, &what)) {
        print_error("the %s differs\n", what);
        _fail(file, line);
    }
}

void xpt_assert_below_at(double value, double limit, const char *text, const char *file, int line)
{
    if (!(value <= limit)) {
        print_error("%s is %.3e, at most %.3e is right\n", text, value, limit);
        _fail(file, line);
    }
}

void xpt_assert_refused_at(const xpe_error *err, xpe_status expected, const char *part,
                           const char *file, int line)
{
    if (err->status != expected || !strstr(err->text, part)) {
        print_error("got %s: '%s', expected %s with '%s'\n", xpe_status_name(err->status),
                    err->text, xpe_status_name(expected), part);
        _fail(file, line);
    }
}
