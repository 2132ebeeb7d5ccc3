/* The life of a run: stepping, reading, cancelling, diverging, ending (engine.h). */
#include "engine_run.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const int second_iteration[] = {2};

/* A problem and a run of it that a test steps itself. */
typedef struct live {
    xpe_problem *problem;
    xpe_run *run;
} live;

static live open_run(const xpt_case *c, const xpe_stage *stage, int devices, int threads)
{
    xpe_device_list list = xpt_devices(devices, threads);
    live l;
    xpe_error err;

    if (xpe_problem_create(&l.problem, &c->desc, &err) != XPE_OK ||
        xpe_run_create(&l.run, l.problem, stage, &list, &err) != XPE_OK)
        fail_msg("%s", err.text);
    return l;
}

static void close_run(live l)
{
    xpe_run_destroy(l.run);
    xpe_problem_destroy(l.problem);
}

static xpe_report step(live l)
{
    xpe_report report;
    xpe_error err;

    if (xpe_run_step(l.run, &report, &err) != XPE_OK)
        fail_msg("%s", err.text);
    return report;
}

static void nudge(xpt_case *c)
{
    xpt_random r = {5};

    for (int64_t i = 0; i < c->num_frames * c->n * c->n; i++)
        c->counts[i] *= (float)(0.8 + 0.4 * xpt_random_unit(&r));
}

static void start_from_truth(xpt_case *c)
{
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
}

/* ------------------------------------------------------------------------------------ stepping */

static void reports_and_progress_count_from_one(void **state)
{
    xpt_case *c = xpt_small_create(8, 4, 2, 1);
    xpe_stage stage = xpt_stage(4);
    live l;

    (void)state;
    stage.mode_schedule = second_iteration;
    stage.schedule_count = 1;
    l = open_run(c, &stage, 2, 2);
    assert_int_equal(xpe_run_progress(l.run).iteration, 0);
    assert_int_equal(xpe_run_progress(l.run).iterations, 4);
    assert_true(isnan(xpe_run_progress(l.run).data_error));
    assert_int_equal(xpe_run_modes(l.run), 1);
    for (int i = 1; i <= 4; i++) {
        xpe_report r = step(l);
        assert_int_equal(r.iteration, i);
        assert_int_equal(r.modes, i < 2 ? 1 : 2);
        assert_int_equal(xpe_run_modes(l.run), r.modes);
        assert_int_equal(r.mode_added, i == 2);
        assert_false(r.mode_empty);
        assert_int_equal(r.last, i == 4);
        assert_true(isfinite(r.data_error) && r.data_error > 0 && r.seconds >= 0);
        assert_int_equal(xpe_run_progress(l.run).iteration, i);
        assert_true(xpe_run_progress(l.run).data_error == r.data_error);
    }
    close_run(l);
    xpt_case_destroy(c);
}

static void a_step_beyond_the_end_is_refused_and_changes_nothing(void **state)
{
    xpt_case *c = xpt_small_create(8, 3, 1, 2);
    xpe_stage stage = xpt_stage(2);
    live l = open_run(c, &stage, 1, 1);
    size_t pixels = (size_t)(c->rows * c->cols);
    xpe_c32 *before = xpt_new(pixels, sizeof *before), *after = xpt_new(pixels, sizeof *after);
    xpe_report report;
    xpe_error err;

    (void)state;
    (void)step(l);
    (void)step(l);
    assert_int_equal(xpe_run_object(l.run, before, &err), XPE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(xpe_run_step(l.run, &report, &err), XPE_INVALID);
        xpt_assert_refused(&err, XPE_INVALID, "over after iteration 2");
    }
    assert_int_equal(xpe_run_object(l.run, after, &err), XPE_OK);
    assert_memory_equal(before, after, pixels * sizeof *before);
    free(before);
    free(after);
    close_run(l);
    xpt_case_destroy(c);
}

static void before_the_first_step_the_start_is_read(void **state)
{
    xpt_case *c = xpt_small_create(8, 3, 1, 3);
    xpe_stage stage = xpt_stage(1);
    size_t pixels = (size_t)(c->rows * c->cols);
    xpe_c32 *object = xpt_new(pixels, sizeof *object), probe[64];
    xpe_error err;
    live l;

    (void)state;
    start_from_truth(c);
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 1;
    l = open_run(c, &stage, 3, 1);
    assert_int_equal(xpe_run_object(l.run, object, &err), XPE_OK);
    assert_int_equal(xpe_run_probe(l.run, probe, &err), XPE_OK);
    assert_memory_equal(object, c->object, pixels * sizeof *object);
    for (int i = 0; i < 64; i++)
        assert_true(probe[i].re == c->probe[i].re && probe[i].im == c->probe[i].im);
    assert_int_equal(xpe_run_positions(l.run, NULL, NULL, &err), XPE_INVALID);
    free(object);
    close_run(l);
    xpt_case_destroy(c);
}

static void reading_in_between_changes_no_bit(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        xpt_case *c = xpt_tiny_create(2);
        xpe_stage stage = xpt_stage(4);
        size_t pixels = (size_t)(c->rows * c->cols);
        xpe_c32 *object = xpt_new(pixels, sizeof *object), *probe = xpt_new(2 * 256, sizeof *probe);
        float *coverage = xpt_new(pixels, sizeof *coverage);
        xpt_result *plain;
        xpe_error err;
        live l;
        nudge(c);
        if (known) {
            xpt_case_know(c);
        } else {
            stage.mode_schedule = second_iteration;
            stage.schedule_count = 1;
        }
        plain = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2, .threads = 2});
        l = open_run(c, &stage, 2, 2);
        for (int i = 0; i <= 4; i++) {
            if (i)
                assert_true(step(l).data_error == plain->errors[i - 1]);
            assert_int_equal(xpe_run_coverage(l.run, coverage, &err), XPE_OK);
            assert_int_equal(xpe_run_object(l.run, object, &err), XPE_OK);
            assert_int_equal(xpe_run_probe(l.run, probe, &err), XPE_OK);
            assert_int_equal(xpe_run_coverage(l.run, coverage, &err), XPE_OK);
        }
        assert_memory_equal(object, plain->object, pixels * sizeof *object);
        assert_memory_equal(probe, plain->probe, 2 * 256 * sizeof *probe);
        assert_memory_equal(coverage, plain->coverage, pixels * sizeof *coverage);
        close_run(l);
        xpt_result_destroy(plain);
        free(coverage);
        free(probe);
        free(object);
        xpt_case_destroy(c);
    }
}

/* sum_k w_k L_k of the modes as they are, from the definition. */
static double *coverage_of(const xpt_case *c, const xpe_c32 *probe, int modes, double kappa)
{
    double *out = xpt_new((size_t)(c->rows * c->cols), sizeof *out), energy[4] = {0}, total = 0;
    int64_t *first = xpt_new((size_t)c->num_frames * 2, sizeof *first), plane = c->n * c->n;

    xpt_case_first(c, first);
    for (int64_t i = 0; i < modes * plane; i++)
        energy[i / plane] += pow((double)probe[i].re, 2) + pow((double)probe[i].im, 2);
    for (int k = 0; k < modes; k++)
        total += energy[k];
    for (int64_t j = 0; j < c->num_frames; j++)
        for (int64_t i = 0; i < modes * plane; i++) {
            int64_t p = i % plane,
                    at = (first[2 * j] + p / c->n) * c->cols + first[2 * j + 1] + p % c->n;
            out[at] += energy[i / plane] / total *
                       pow(hypot((double)probe[i].re, (double)probe[i].im), kappa) / (1 + 1e-6);
        }
    free(first);
    return out;
}

static void coverage_is_the_sum_of_the_modes_before_during_and_after(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        xpt_case *c = xpt_tiny_create(2);
        xpe_stage stage = xpt_stage(3);
        size_t pixels = (size_t)(c->rows * c->cols);
        float *coverage = xpt_new(pixels, sizeof *coverage);
        xpe_c32 *probe = xpt_new(2 * 256, sizeof *probe);
        xpe_error err;
        live l;
        if (known) {
            xpt_case_know(c);
        } else {
            stage.mode_schedule = second_iteration;
            stage.schedule_count = 1;
        }
        l = open_run(c, &stage, 3, 2);
        for (int i = 0; i <= 3; i++) {
            double *right, most = 0;
            if (i)
                (void)step(l);
            assert_int_equal(xpe_run_coverage(l.run, coverage, &err), XPE_OK);
            assert_int_equal(xpe_run_probe(l.run, probe, &err), XPE_OK);
            right = coverage_of(c, probe, xpe_run_modes(l.run), stage.probe_weight_exponent);
            for (size_t p = 0; p < pixels; p++)
                most = fmax(most, right[p]);
            for (size_t p = 0; p < pixels; p++) /* a few roundings of float32 */
                assert_true(fabs((double)coverage[p] - right[p]) <= 1e-6 * right[p] + 1e-9 * most);
            free(right);
        }
        close_run(l);
        free(probe);
        free(coverage);
        xpt_case_destroy(c);
    }
}

/* ---------------------------------------------------------------------------------- cancelling */

static void cancel_before_the_first_step_stops_it(void **state)
{
    xpt_case *c = xpt_small_create(8, 3, 1, 4);
    xpe_stage stage = xpt_stage(3);
    live l = open_run(c, &stage, 1, 1);
    xpe_report report;
    xpe_error err;

    (void)state;
    (void)step(l);
    xpe_run_cancel(l.run);
    assert_int_equal(xpe_run_step(l.run, &report, &err), XPE_CANCELLED);
    xpt_assert_refused(&err, XPE_CANCELLED, "after iteration 1");
    assert_int_equal(xpe_run_step(l.run, &report, NULL), XPE_CANCELLED);
    close_run(l);
    xpt_case_destroy(c);
}

typedef struct watcher {
    xpe_run *run;
    atomic_bool stop;
    int seen; /* after the thread has ended */
} watcher;

static void *watch_and_cancel(void *arg)
{
    watcher *w = arg;
    struct timespec pause = {0, 200000};

    while (!atomic_load(&w->stop)) {
        xpe_progress p = xpe_run_progress(w->run);
        if (p.iteration > 0 && !(p.data_error > 0))
            return NULL; /* seen stays 0 */
        if (p.iteration >= 3) {
            w->seen = p.iteration;
            xpe_run_cancel(w->run);
            return NULL;
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void another_thread_watches_and_cancels(void **state)
{
    xpt_case *c = xpt_small_create(16, 5, 1, 5);
    xpe_stage stage = xpt_stage(100000);
    live l = open_run(c, &stage, 2, 2);
    watcher w = {.run = l.run};
    pthread_t thread;
    xpe_c32 *object = xpt_new((size_t)(c->rows * c->cols), sizeof *object);
    xpe_report report;
    xpe_error err;
    xpe_status st = XPE_OK;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, watch_and_cancel, &w), 0);
    for (int i = 0; i < 100000 && st == XPE_OK; i++)
        st = xpe_run_step(l.run, &report, &err);
    atomic_store(&w.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(st, XPE_CANCELLED);
    assert_true(w.seen >= 3);
    assert_int_equal(xpe_run_object(l.run, object, &err), XPE_OK);
    for (int64_t i = 0; i < c->rows * c->cols; i++)
        assert_true(isfinite(object[i].re) && isfinite(object[i].im));
    free(object);
    close_run(l);
    xpt_case_destroy(c);
}

/* ----------------------------------------------------------------------------------- diverging */

static void assert_finite(const xpt_result *r)
{
    for (int64_t i = 0; i < r->rows * r->cols; i++)
        assert_true(isfinite(r->object[i].re) && isfinite(r->object[i].im) &&
                    isfinite(r->coverage[i]));
    for (int64_t i = 0; i < r->modes * r->n * r->n; i++)
        assert_true(isfinite(r->probe[i].re) && isfinite(r->probe[i].im));
}

static void a_run_that_diverges_at_once_keeps_its_start(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        xpt_case *c = xpt_tiny_create(1);
        xpe_stage stage = xpt_stage(3);
        xpt_result *got;
        for (int64_t i = 0; i < c->rows * c->cols; i++)
            c->object[i] = (xpe_c32){c->object[i].re * 1e30f, c->object[i].im * 1e30f};
        start_from_truth(c);
        if (known)
            xpt_case_know(c);
        got = xpt_run(&c->desc, &stage, (xpt_division){.devices = 2, .threads = 2});
        assert_int_equal(got->status, XPE_DIVERGED);
        xpt_assert_refused(&got->error, XPE_DIVERGED, "iteration 1");
        assert_int_equal(got->iterations, 0);
        assert_finite(got);
        assert_memory_equal(got->object, c->object,
                            (size_t)(c->rows * c->cols) * sizeof *got->object);
        assert_memory_equal(got->probe, got->start_probe, 256 * sizeof *got->probe);
        xpt_result_destroy(got);
        xpt_case_destroy(c);
    }
}

/* Counts so large that an iteration after the first overflows.  Returns them, the caller's. */
static double *near_the_end_of_float(xpt_case *c, xpe_stage *stage, bool known)
{
    double most = 0, *counts = xpt_new(XPT_TINY_FRAMES * 256, sizeof *counts);

    for (int i = 0; i < XPT_TINY_FRAMES * 256; i++)
        most = fmax(most, (double)c->counts[i]);
    for (int i = 0; i < XPT_TINY_FRAMES * 256; i++)
        counts[i] = (double)c->counts[i] / most * pow(2.6e19, 2);
    c->desc.scan.frames = counts;
    c->desc.scan.type = XPE_F64;
    start_from_truth(c);
    if (known) {
        xpt_case_know(c);
    } else {
        c->desc.init_probe = c->probe;
        c->desc.init_probe_count = 1;
        stage->probe_data_fit = 0; /* the object alone grows */
    }
    return counts;
}

/* Data whose model overflows float32 only when the object has come close to it, in the second
 * iteration. */
static void a_run_that_diverges_later_keeps_its_last_good_iteration(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++)
        for (int devices = 1; devices <= 3; devices += 2) {
            xpt_case *c = xpt_tiny_create(1);
            xpe_stage stage = xpt_stage(6), one = xpt_stage(1);
            double *counts = near_the_end_of_float(c, &stage, known);
            xpt_result *got, *good;
            one.probe_data_fit = stage.probe_data_fit;
            got = xpt_run(&c->desc, &stage, (xpt_division){.devices = devices, .threads = 2});
            assert_int_equal(got->status, XPE_DIVERGED);
            assert_int_equal(got->iterations, 1);
            assert_finite(got);
            good = xpt_run_well(&c->desc, &one, (xpt_division){.devices = devices, .threads = 2});
            got->status = XPE_OK;
            xpt_assert_same(got, good);
            xpt_result_destroy(good);
            xpt_result_destroy(got);
            free(counts);
            xpt_case_destroy(c);
        }
}

typedef struct shown {
    xpe_c32 *object, *probe;
} shown;

static shown show(xpe_run *run, size_t pixels)
{
    shown s = {xpt_new(pixels, sizeof *s.object), xpt_new(256, sizeof *s.probe)};
    xpe_error err;

    assert_int_equal(xpe_run_object(run, s.object, &err), XPE_OK);
    assert_int_equal(xpe_run_probe(run, s.probe, &err), XPE_OK);
    for (size_t i = 0; i < pixels; i++)
        assert_true(isfinite(s.object[i].re) && isfinite(s.object[i].im));
    for (int i = 0; i < 256; i++)
        assert_true(isfinite(s.probe[i].re) && isfinite(s.probe[i].im));
    return s;
}

static void hide(shown s)
{
    free(s.object);
    free(s.probe);
}

/* The same without a data error in between: whenever it is noticed, what was read is finite, and
 * what stays is the iteration before.  Returns how many stay. */
static int diverge_unnoticed(bool known, float probe_data_fit, bool look, int devices)
{
    xpt_case *c = xpt_tiny_create(1);
    size_t pixels = (size_t)(c->rows * c->cols);
    xpe_stage stage = xpt_stage(12);
    shown kept[13], got;
    xpe_status st = XPE_OK;
    xpe_report report;
    xpe_error err;
    double *counts = near_the_end_of_float(c, &stage, known);
    int steps = 0, good;
    live l;

    stage.report_every = 12;
    stage.probe_data_fit = (double)probe_data_fit;
    l = open_run(c, &stage, devices, 2);
    kept[0] = show(l.run, pixels);
    while (st == XPE_OK && steps < 12) {
        st = xpe_run_step(l.run, &report, &err);
        if (st == XPE_OK && look)
            kept[steps + 1] = show(l.run, pixels);
        steps += st == XPE_OK;
    }
    assert_int_equal(st, XPE_DIVERGED);
    got = show(l.run, pixels);
    good = xpe_run_progress(l.run).iteration;
    assert_in_range(good, 0, 11);
    if (look) {
        assert_memory_equal(got.object, kept[good].object, pixels * sizeof *got.object);
        assert_memory_equal(got.probe, kept[good].probe, 256 * sizeof *got.probe);
    }
    assert_int_equal(xpe_run_step(l.run, &report, &err), XPE_INVALID);
    for (int i = 0; i <= (look ? steps : 0); i++)
        hide(kept[i]);
    hide(got);
    close_run(l);
    free(counts);
    xpt_case_destroy(c);
    return good;
}

static void a_run_that_diverges_unnoticed_goes_back_when_it_is_noticed(void **state)
{
    (void)state;
    for (int look = 0; look < 2; look++)
        for (int devices = 1; devices <= 3; devices += 2) { /* wherever it is noticed */
            assert_int_equal(diverge_unnoticed(true, 0, look, devices), 2);
            assert_int_equal(diverge_unnoticed(false, 0, look, devices), 1);
            assert_int_equal(diverge_unnoticed(false, 0.6f, look, devices),
                             diverge_unnoticed(false, 0.6f, true, 1));
        }
}

static void after_diverging_there_is_no_next_step(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(3);
    xpe_report report;
    xpe_error err;
    live l;

    (void)state;
    for (int64_t i = 0; i < c->rows * c->cols; i++)
        c->object[i].re = 1e30f;
    start_from_truth(c);
    xpt_case_know(c);
    l = open_run(c, &stage, 1, 1);
    assert_int_equal(xpe_run_step(l.run, &report, &err), XPE_DIVERGED);
    assert_int_equal(xpe_run_step(l.run, &report, &err), XPE_INVALID);
    assert_int_equal(xpe_run_progress(l.run).iteration, 0);
    close_run(l);
    xpt_case_destroy(c);
}

/* --------------------------------------------------------------------------------------- modes */

/* The model lies far above the data, so nothing is left for a new mode. */
static void a_residual_that_is_zero_adds_no_mode_and_changes_no_bit(void **state)
{
    static const int schedule[] = {1, 3};
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(3);
    xpt_result *without, *with;

    (void)state;
    for (int64_t i = 0; i < c->num_frames * 256; i++)
        c->counts[i] *= 1e-6f;
    start_from_truth(c);
    c->desc.probe_modes = 2;
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 1;
    stage.object_data_fit = 0;
    stage.probe_data_fit = 0;
    stage.orthogonalize_modes = true;
    without = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2, .threads = 1});
    stage.mode_schedule = schedule;
    stage.schedule_count = 2;
    with = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2, .threads = 1});
    xpt_assert_same(without, with);
    assert_int_equal(with->empty, 2); /* the second scheduled iteration tries again */
    assert_int_equal(with->added, 0);
    assert_int_equal(with->modes, 1);
    xpt_result_destroy(without);
    xpt_result_destroy(with);
    xpt_case_destroy(c);
}

static void no_more_modes_are_added_than_asked_for(void **state)
{
    static const int schedule[] = {1, 2, 3, 4};
    xpt_case *c = xpt_tiny_create(2);
    xpe_stage stage = xpt_stage(5);
    xpt_result *got;

    (void)state;
    c->desc.probe_modes = 3;
    stage.mode_schedule = schedule;
    stage.schedule_count = 4;
    got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});
    assert_int_equal(got->modes, 3);
    assert_int_equal(got->added, 2);
    assert_int_equal(got->empty, 0);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

/* -------------------------------------------------------------------------------- side by side */

static void several_problems_and_runs_live_side_by_side(void **state)
{
    xpt_case *a = xpt_tiny_create(1), *b = xpt_small_create(18, 4, 1, 6);
    xpe_stage stage = xpt_stage(3);
    xpt_result *alone_a = xpt_run_well(&a->desc, &stage, (xpt_division){2, 2, 0});
    xpt_result *alone_b = xpt_run_well(&b->desc, &stage, (xpt_division){3, 2, 0});
    live one = open_run(a, &stage, 2, 2), two = open_run(b, &stage, 3, 2),
         three = open_run(a, &stage, 1, 3);

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(step(one).data_error == alone_a->errors[i]);
        assert_true(step(two).data_error == alone_b->errors[i]);
        assert_true(step(three).data_error == alone_a->errors[i]);
    }
    close_run(two);
    close_run(one);
    close_run(three);
    xpt_result_destroy(alone_a);
    xpt_result_destroy(alone_b);
    xpt_case_destroy(a);
    xpt_case_destroy(b);
}

static void *run_alone(void *arg)
{
    const xpt_case *c = arg;
    xpe_stage stage = xpt_stage(3);

    return xpt_run(&c->desc, &stage, (xpt_division){2, 2, 0});
}

static void runs_on_two_threads_do_not_disturb_each_other(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    pthread_t threads[2];
    void *got[2];
    xpt_result *right = run_alone(c);

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_alone, c), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], &got[i]), 0);
    for (int i = 0; i < 2; i++) {
        xpt_assert_same(right, (xpt_result *)got[i]);
        xpt_result_destroy(got[i]);
    }
    xpt_result_destroy(right);
    xpt_case_destroy(c);
}

typedef struct forgetful {
    xpt_case *c;
    int calls;
} forgetful;

static void forget_frames(void *arg)
{
    forgetful *f = arg;

    f->calls++;
    memset(f->c->counts, 0x7f,
           (size_t)(f->c->num_frames * f->c->n * f->c->n) * sizeof *f->c->counts);
    memset(f->c->mask, 1, (size_t)(f->c->num_frames * f->c->n * f->c->n));
}

static void frames_and_mask_are_not_read_after_the_call_that_says_so(void **state)
{
    xpt_case *c = xpt_tiny_create(1), *kept = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(3);
    forgetful f = {c, 0};
    xpt_result *right, *got;

    (void)state;
    xpt_case_hide(c, 0.05, 3, 1);
    xpt_case_hide(kept, 0.05, 3, 1);
    right = xpt_run_well(&kept->desc, &stage, (xpt_division){.devices = 2});
    c->desc.frames_read = forget_frames;
    c->desc.frames_read_arg = &f;
    got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});
    assert_int_equal(f.calls, 1);
    xpt_assert_same(right, got);
    xpt_result_destroy(right);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
    xpt_case_destroy(kept);
}

static void stats_count_transforms_as_section_6_says(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        xpt_case *c = xpt_tiny_create(1);
        xpe_stage stage = xpt_stage(5);
        int64_t before;
        live l;
        if (known)
            xpt_case_know(c);
        l = open_run(c, &stage, 2, 2);
        xpe_run_profile(l.run, true);
        (void)step(l);
        before = xpe_run_get_stats(l.run).transforms;
        (void)step(l);
        /* step 1: 2, step 7: 1, step 4: 3; a frame and mode */
        assert_int_equal(xpe_run_get_stats(l.run).transforms - before,
                         XPT_TINY_FRAMES * (known ? 3 : 6));
        assert_true(xpe_run_get_stats(l.run).bytes_peak > XPT_TINY_FRAMES * 256 * 12);
        assert_true(xpe_run_get_stats(l.run).seconds_busy > 0);
        assert_true(xpe_run_get_stats(l.run).seconds_transforms <=
                    xpe_run_get_stats(l.run).seconds_busy);
        close_run(l);
        xpt_case_destroy(c);
    }
}

static void memory_taken_is_at_most_what_the_plan_says(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++)
        for (int devices = 1; devices <= 3; devices++) {
            xpt_case *c = xpt_small_create(
                32, 7, 2, 7); /* large enough that rounding to cache lines is nothing */
            xpe_stage stage = xpt_stage(2);
            xpe_run_stats stats;
            live l;
            if (known)
                xpt_case_know(c);
            l = open_run(c, &stage, devices, 1);
            (void)step(l);
            (void)step(l);
            stats = xpe_run_get_stats(l.run);
            xpt_assert_below((double)stats.bytes_peak, (double)stats.bytes_planned * 1.1 + 65536);
            if (strcmp(xpt_backend_name(), "cpu") !=
                0) { /* a device's account is exact, and nothing is left out */
                xpt_assert_below((double)stats.bytes_peak, (double)stats.bytes_planned);
                xpt_assert_below((double)stats.bytes_planned, (double)stats.bytes_peak * 1.1);
            }
            close_run(l);
            xpt_case_destroy(c);
        }
}

static void destroying_nothing_is_fine(void **state)
{
    (void)state;
    xpe_run_destroy(NULL);
    xpe_problem_destroy(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_and_progress_count_from_one),
        cmocka_unit_test(a_step_beyond_the_end_is_refused_and_changes_nothing),
        cmocka_unit_test(before_the_first_step_the_start_is_read),
        cmocka_unit_test(reading_in_between_changes_no_bit),
        cmocka_unit_test(coverage_is_the_sum_of_the_modes_before_during_and_after),
        cmocka_unit_test(cancel_before_the_first_step_stops_it),
        cmocka_unit_test(another_thread_watches_and_cancels),
        cmocka_unit_test(a_run_that_diverges_at_once_keeps_its_start),
        cmocka_unit_test(a_run_that_diverges_later_keeps_its_last_good_iteration),
        cmocka_unit_test(a_run_that_diverges_unnoticed_goes_back_when_it_is_noticed),
        cmocka_unit_test(after_diverging_there_is_no_next_step),
        cmocka_unit_test(a_residual_that_is_zero_adds_no_mode_and_changes_no_bit),
        cmocka_unit_test(no_more_modes_are_added_than_asked_for),
        cmocka_unit_test(several_problems_and_runs_live_side_by_side),
        cmocka_unit_test(runs_on_two_threads_do_not_disturb_each_other),
        cmocka_unit_test(frames_and_mask_are_not_read_after_the_call_that_says_so),
        cmocka_unit_test(stats_count_transforms_as_section_6_says),
        cmocka_unit_test(memory_taken_is_at_most_what_the_plan_says),
        cmocka_unit_test(destroying_nothing_is_fine),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
