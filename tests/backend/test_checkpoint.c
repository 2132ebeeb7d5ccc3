/* A run that is held, saved and taken up again has the bits of one that never was (engine.h,
 * "Saving and taking up"; algorithm.md 5). */
#include "engine_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ITERATIONS 5

static const int second_iteration[] = {2};

/* ---------------------------------------------------------------------------------- the stream */

typedef struct tape {
    char *data;
    size_t size, room, at;
    size_t fail_at; /* bytes after which the tape is full or ends; 0 = never */
} tape;

static xpe_status record(void *arg, const void *data, size_t bytes, xpe_error *err)
{
    tape *t = arg;

    if (t->fail_at && t->size + bytes > t->fail_at)
        return xpe_fail(err, XPE_IO, "", "the tape is full after %zu bytes", t->size);
    if (t->size + bytes > t->room) {
        char *larger = xpt_new(2 * (t->size + bytes), 1);
        if (t->size)
            memcpy(larger, t->data, t->size);
        free(t->data);
        t->data = larger;
        t->room = 2 * (t->size + bytes);
    }
    memcpy(t->data + t->size, data, bytes);
    t->size += bytes;
    return XPE_OK;
}

static xpe_status play(void *arg, void *data, size_t bytes, xpe_error *err)
{
    tape *t = arg;

    if (t->at + bytes > (t->fail_at ? t->fail_at : t->size))
        return xpe_fail(err, XPE_IO, "", "the tape ends after %zu bytes", t->at);
    memcpy(data, t->data + t->at, bytes);
    t->at += bytes;
    return XPE_OK;
}

/* ------------------------------------------------------------------------------------ the runs */

typedef struct live {
    xpe_problem *problem;
    xpe_run *run;
} live;

static live open_run(const xpe_problem_desc *desc, const xpe_stage *stage, int devices, int threads)
{
    xpe_device_list list = xpt_devices(devices, threads);
    live l;
    xpe_error err;

    if (xpe_problem_create(&l.problem, desc, &err) != XPE_OK ||
        xpe_run_create(&l.run, l.problem, stage, &list, &err) != XPE_OK)
        fail_msg("%s", err.text);
    return l;
}

static void close_run(live l)
{
    xpe_run_destroy(l.run);
    xpe_problem_destroy(l.problem);
}

static double step(live l)
{
    xpe_report report;
    xpe_error err;

    if (xpe_run_step(l.run, &report, &err) != XPE_OK)
        fail_msg("%s", err.text);
    return report.data_error;
}

typedef struct kind {
    const char *name;
    bool known, masked, orthogonal;
    int modes;
} kind;

static const kind kinds[] = {{"known", true, false, false, 1},
                             {"known, two modes", true, true, false, 2},
                             {"estimated", false, false, false, 1},
                             {"two modes on a schedule", false, true, false, 2},
                             {"orthogonalised", false, false, true, 2}};
#define KINDS (sizeof kinds / sizeof *kinds)

static xpt_case *case_of(const kind *k)
{
    xpt_case *c = xpt_small_create(10, 4, k->modes, 7);
    xpt_random r = {8};

    for (int64_t i = 0; i < c->num_frames * c->n * c->n; i++)
        c->counts[i] *= (float)(0.7 + 0.6 * xpt_random_unit(&r));
    if (k->masked)
        xpt_case_hide(c, 0.05, 3, 9);
    if (k->known)
        xpt_case_know(c);
    return c;
}

static xpe_stage stage_of(const kind *k)
{
    xpe_stage stage = xpt_stage(ITERATIONS);

    if (!k->known && k->modes > 1) {
        stage.mode_schedule = second_iteration;
        stage.schedule_count = 1;
    }
    stage.orthogonalize_modes = k->orthogonal;
    return stage;
}

/* Fails unless the finished run has the bits of `right`. */
static void assert_ends_as(live l, const xpt_result *right, const char *name, int held_at)
{
    size_t pixels = (size_t)(right->rows * right->cols), plane = (size_t)(right->n * right->n);
    xpe_c32 *object = xpt_new(pixels, sizeof *object),
            *probe = xpt_new((size_t)right->modes * plane, sizeof *probe);
    float *coverage = xpt_new(pixels, sizeof *coverage);
    xpe_error err;

    assert_int_equal(xpe_run_modes(l.run), right->modes);
    assert_int_equal(xpe_run_object(l.run, object, &err), XPE_OK);
    assert_int_equal(xpe_run_probe(l.run, probe, &err), XPE_OK);
    assert_int_equal(xpe_run_coverage(l.run, coverage, &err), XPE_OK);
    if (memcmp(object, right->object, pixels * sizeof *object) != 0 ||
        memcmp(probe, right->probe, (size_t)right->modes * plane * sizeof *probe) != 0 ||
        memcmp(coverage, right->coverage, pixels * sizeof *coverage) != 0)
        fail_msg("%s, held after iteration %d: the results differ", name, held_at);
    free(coverage);
    free(probe);
    free(object);
}

/* Steps to `at`, held there. */
static live run_to(const xpt_case *c, const xpe_stage *stage, int devices, int at,
                   const xpt_result *right)
{
    live l = open_run(&c->desc, stage, devices, 2);

    for (int i = 1; i <= at; i++) {
        if (i == at)
            xpe_run_hold(l.run);
        assert_false(xpe_run_held(l.run));
        assert_true(step(l) == right->errors[i - 1]);
    }
    assert_true(xpe_run_held(l.run));
    return l;
}

static void go_on(live l, int from, const xpt_result *right)
{
    for (int i = from + 1; i <= right->iterations; i++)
        assert_true(step(l) == right->errors[i - 1]);
}

static void save(live l, tape *t)
{
    xpe_error err;

    if (xpe_run_save(l.run, record, t, &err) != XPE_OK)
        fail_msg("%s", err.text);
}

static void a_held_run_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++)
        for (int at = 1; at < ITERATIONS; at++) {
            xpt_case *c = case_of(&kinds[k]);
            xpe_stage stage = stage_of(&kinds[k]);
            xpt_result *right =
                xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2, .threads = 2});
            live l = run_to(c, &stage, 2, at, right);
            go_on(l, at, right);
            assert_false(xpe_run_held(l.run));
            assert_ends_as(l, right, kinds[k].name, at);
            close_run(l);
            xpt_result_destroy(right);
            xpt_case_destroy(c);
        }
}

static void a_loaded_run_goes_on_with_the_same_bits_on_any_devices(void **state)
{
    static const int from[] = {1, 3, 2, 5}, to[] = {3, 1, 5, 2};

    (void)state;
    for (size_t k = 0; k < KINDS; k++)
        for (int at = 1; at < ITERATIONS; at++) {
            xpt_case *c = case_of(&kinds[k]);
            xpe_stage stage = stage_of(&kinds[k]);
            xpt_result *right =
                xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 1, .threads = 1});
            live first = run_to(c, &stage, from[at - 1], at, right), second;
            tape t = {0};
            xpe_error err;
            save(first, &t);
            close_run(first);
            second = open_run(&c->desc, &stage, to[at - 1], 2);
            if (xpe_run_load(second.run, play, &t, &err) != XPE_OK)
                fail_msg("%s: %s", kinds[k].name, err.text);
            assert_int_equal(t.at, t.size);
            assert_int_equal(xpe_run_progress(second.run).iteration, at);
            assert_true(xpe_run_progress(second.run).data_error == right->errors[at - 1]);
            assert_true(xpe_run_held(second.run));
            go_on(second, at, right);
            assert_ends_as(second, right, kinds[k].name, at);
            close_run(second);
            free(t.data);
            xpt_result_destroy(right);
            xpt_case_destroy(c);
        }
}

/* After 64 iterations the sums of a known probe's patches are taken anew, as part of the trip that
 * a held run has yet to make. */
static void a_run_held_before_its_sums_are_renewed_has_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int at = 63; at <= 65; at++) {
            xpt_case *c = case_of(&kinds[k]);
            xpe_stage stage = xpt_stage(67);
            xpt_result *right =
                xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 1, .threads = 1});
            live first = run_to(c, &stage, 2, at, right), second = open_run(&c->desc, &stage, 3, 2);
            tape t = {0};
            xpe_error err;
            save(first, &t);
            assert_int_equal(xpe_run_load(second.run, play, &t, &err), XPE_OK);
            go_on(first, at, right);
            assert_ends_as(first, right, kinds[k].name, at);
            go_on(second, at, right);
            assert_ends_as(second, right, kinds[k].name, at);
            close_run(first);
            close_run(second);
            free(t.data);
            xpt_result_destroy(right);
            xpt_case_destroy(c);
        }
}

static void a_loaded_run_shows_what_the_saved_one_showed(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        xpt_case *c = case_of(&kinds[k]);
        xpe_stage stage = stage_of(&kinds[k]), shorter = stage;
        xpt_result *right = xpt_run_well(&c->desc, &stage, (xpt_division){0}), *three;
        live first = run_to(c, &stage, 2, 3, right), second = open_run(&c->desc, &stage, 3, 1);
        tape t = {0};
        xpe_error err;
        shorter.iterations = 3;
        three = xpt_run_well(&c->desc, &shorter, (xpt_division){0});
        assert_ends_as(first, three, kinds[k].name, 3);
        save(first, &t);
        assert_int_equal(xpe_run_load(second.run, play, &t, &err), XPE_OK);
        assert_ends_as(second, three, kinds[k].name, 3);
        go_on(second, 3, right); /* and reading changed nothing */
        go_on(first, 3, right);
        assert_ends_as(first, right, kinds[k].name, 3);
        assert_ends_as(second, right, kinds[k].name, 3);
        close_run(first);
        close_run(second);
        free(t.data);
        xpt_result_destroy(three);
        xpt_result_destroy(right);
        xpt_case_destroy(c);
    }
}

static void the_stream_does_not_depend_on_the_division(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        xpt_case *c = case_of(&kinds[k]);
        xpe_stage stage = stage_of(&kinds[k]);
        xpt_result *right = xpt_run_well(&c->desc, &stage, (xpt_division){0});
        tape one = {0}, other = {0};
        live l = run_to(c, &stage, 1, 3, right);
        save(l, &one);
        save(l, &other); /* saving twice is fine, and the same */
        assert_int_equal(one.size, other.size);
        assert_memory_equal(one.data, other.data, one.size);
        close_run(l);
        free(other.data);
        other = (tape){0};
        l = run_to(c, &stage, 5, 3, right);
        save(l, &other);
        assert_int_equal(one.size, other.size);
        if (memcmp(one.data, other.data, one.size) != 0)
            fail_msg("%s: the streams of 1 and 5 devices differ", kinds[k].name);
        close_run(l);
        free(one.data);
        free(other.data);
        xpt_result_destroy(right);
        xpt_case_destroy(c);
    }
}

/* ------------------------------------------------------------------------------------ refusals */

static void a_run_that_is_not_held_cannot_be_saved(void **state)
{
    xpt_case *c = case_of(&kinds[2]);
    xpe_stage stage = xpt_stage(2);
    live l = open_run(&c->desc, &stage, 1, 1);
    tape t = {0};
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_run_save(l.run, record, &t, &err), XPE_INVALID);
    (void)step(l);
    assert_int_equal(xpe_run_save(l.run, record, &t, &err), XPE_INVALID);
    xpt_assert_refused(&err, XPE_INVALID, "not held");
    xpe_run_hold(l.run); /* the last iteration has no boundary after it */
    (void)step(l);
    assert_false(xpe_run_held(l.run));
    assert_int_equal(xpe_run_save(l.run, record, &t, &err), XPE_INVALID);
    assert_int_equal(t.size, 0);
    close_run(l);
    xpt_case_destroy(c);
}

static void a_sink_that_fails_is_passed_on_and_the_run_goes_on(void **state)
{
    xpt_case *c = case_of(&kinds[3]);
    xpe_stage stage = stage_of(&kinds[3]);
    xpt_result *right = xpt_run_well(&c->desc, &stage, (xpt_division){0});
    live l = run_to(c, &stage, 2, 3, right);
    tape whole = {0};

    (void)state;
    save(l, &whole);
    for (size_t limit = 1; limit < whole.size; limit += whole.size / 7) {
        tape t = {.fail_at = limit};
        xpe_error err;
        assert_int_equal(xpe_run_save(l.run, record, &t, &err), XPE_IO);
        xpt_assert_refused(&err, XPE_IO, "tape is full");
        free(t.data);
    }
    go_on(l, 3, right);
    assert_ends_as(l, right, kinds[3].name, 3);
    close_run(l);
    free(whole.data);
    xpt_result_destroy(right);
    xpt_case_destroy(c);
}

static void a_stream_that_ends_early_is_passed_on_and_the_run_still_destroyable(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        xpt_case *c = case_of(&kinds[k]);
        xpe_stage stage = stage_of(&kinds[k]);
        xpt_result *right = xpt_run_well(&c->desc, &stage, (xpt_division){0});
        live l = run_to(c, &stage, 2, 3, right);
        tape whole = {0};
        save(l, &whole);
        close_run(l);
        for (size_t limit = 1; limit < whole.size; limit += whole.size / 11) {
            xpe_error err;
            whole.at = 0;
            whole.fail_at = limit;
            l = open_run(&c->desc, &stage, 2, 1);
            assert_int_equal(xpe_run_load(l.run, play, &whole, &err), XPE_IO);
            xpt_assert_refused(&err, XPE_IO, "tape ends");
            close_run(l);
        }
        free(whole.data);
        xpt_result_destroy(right);
        xpt_case_destroy(c);
    }
}

static void refuse_load(const xpe_problem_desc *desc, const xpe_stage *stage, tape *t,
                        const char *part)
{
    live l = open_run(desc, stage, 1, 1);
    xpe_error err;

    t->at = 0;
    assert_int_equal(xpe_run_load(l.run, play, t, &err), XPE_INVALID);
    xpt_assert_refused(&err, XPE_INVALID, part);
    close_run(l);
}

static void states_of_another_run_are_refused(void **state)
{
    xpt_case *c = case_of(&kinds[3]), *side = xpt_small_create(8, 4, 2, 7),
             *frames = xpt_small_create(10, 3, 2, 7);
    xpe_stage stage = stage_of(&kinds[3]), known = xpt_stage(ITERATIONS), shorter = stage;
    xpt_result *right = xpt_run_well(&c->desc, &stage, (xpt_division){0});
    live l = run_to(c, &stage, 1, 3, right);
    tape t = {0};

    (void)state;
    save(l, &t);
    close_run(l);
    refuse_load(&side->desc, &stage, &t, "the state is of");
    refuse_load(&frames->desc, &stage, &t, "the state is of");
    shorter.iterations = 3;
    refuse_load(&c->desc, &shorter, &t, "after iteration 3");
    c->desc.probe_modes = 3;
    refuse_load(&c->desc, &stage, &t, "modes");
    c->desc.probe_modes = 2;
    xpt_case_know(c);
    refuse_load(&c->desc, &known, &t, "the state is of");
    c->desc.probe = NULL;
    t.data[0] ^= 1;
    refuse_load(&c->desc, &stage, &t, "not the state of a run");
    free(t.data);
    xpt_result_destroy(right);
    xpt_case_destroy(frames);
    xpt_case_destroy(side);
    xpt_case_destroy(c);
}

static void a_run_that_has_begun_takes_up_nothing(void **state)
{
    xpt_case *c = case_of(&kinds[0]);
    xpe_stage stage = stage_of(&kinds[0]);
    xpt_result *right = xpt_run_well(&c->desc, &stage, (xpt_division){0});
    live l = run_to(c, &stage, 1, 2, right);
    tape t = {0};
    xpe_error err;

    (void)state;
    save(l, &t);
    assert_int_equal(xpe_run_load(l.run, play, &t, &err), XPE_INVALID);
    xpt_assert_refused(&err, XPE_INVALID, "only a new");
    go_on(l, 2, right);
    close_run(l);
    free(t.data);
    xpt_result_destroy(right);
    xpt_case_destroy(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_run_goes_on_with_the_same_bits),
        cmocka_unit_test(a_loaded_run_goes_on_with_the_same_bits_on_any_devices),
        cmocka_unit_test(a_run_held_before_its_sums_are_renewed_has_the_same_bits),
        cmocka_unit_test(a_loaded_run_shows_what_the_saved_one_showed),
        cmocka_unit_test(the_stream_does_not_depend_on_the_division),
        cmocka_unit_test(a_run_that_is_not_held_cannot_be_saved),
        cmocka_unit_test(a_sink_that_fails_is_passed_on_and_the_run_goes_on),
        cmocka_unit_test(a_stream_that_ends_early_is_passed_on_and_the_run_still_destroyable),
        cmocka_unit_test(states_of_another_run_are_refused),
        cmocka_unit_test(a_run_that_has_begun_takes_up_nothing),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
