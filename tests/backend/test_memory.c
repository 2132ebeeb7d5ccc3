/* Host memory that runs out: every allocation of a small run is made to fail in turn until the run
 * succeeds.
 *
 * The linker hands malloc, calloc, realloc, aligned_alloc and free of this program and of the
 * engine's libraries to the functions below (--wrap), which count and, when armed, refuse. */
#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *p);

static atomic_long fail_at;    /* number of the allocation that fails; 0 = none */
static atomic_bool fail_after; /* and all later ones */
static atomic_long asked, live;

static bool refuse(void)
{
    long at = atomic_load(&fail_at), now = atomic_fetch_add(&asked, 1) + 1;

    return at > 0 && (now == at || (now > at && atomic_load(&fail_after)));
}

static void *counted(void *p)
{
    atomic_fetch_add(&live, p != NULL);
    return p;
}

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refuse() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    void *q = refuse() ? NULL : __real_realloc(p, size);

    atomic_fetch_add(&live, q && !p);
    return q;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refuse() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

void __wrap_free(void *p)
{
    atomic_fetch_sub(&live, p != NULL);
    __real_free(p);
}

static void arm(long at, bool after)
{
    atomic_store(&asked, 0);
    atomic_store(&fail_after, after);
    atomic_store(&fail_at, at);
}

/* Whether the armed failure really happened. */
static bool disarm(void)
{
    long at = atomic_exchange(&fail_at, 0);

    return at > 0 && atomic_load(&asked) >= at;
}

/* ------------------------------------------------------------------------------------ the runs */

typedef struct outcome {
    xpe_status status;
    xpe_error error;
    bool handed_out_on_failure;
} outcome;

static xpe_status read_all(xpe_run *run, xpe_c32 *object, xpe_c32 *probe, float *coverage,
                           xpe_error *err)
{
    xpe_status st = xpe_run_object(run, object, err);

    if (st == XPE_OK)
        st = xpe_run_probe(run, probe, err);
    if (st == XPE_OK)
        st = xpe_run_coverage(run, coverage, err);
    return st;
}

/* A whole life, everything read after every step; stops at the first failure. */
static outcome live_once(const xpe_problem_desc *desc, const xpe_stage *stage, xpe_c32 *object,
                         xpe_c32 *probe, float *coverage)
{
    xpe_device_list devices = xpt_devices(2, 2);
    xpe_problem *problem = NULL;
    xpe_run *run = NULL;
    xpe_report report;
    outcome o = {0};

    o.status = xpe_problem_create(&problem, desc, &o.error);
    o.handed_out_on_failure = o.status != XPE_OK && problem;
    if (o.status == XPE_OK) {
        o.status = xpe_run_create(&run, problem, stage, &devices, &o.error);
        o.handed_out_on_failure = o.status != XPE_OK && run;
    }
    for (int i = 0; o.status == XPE_OK && i <= stage->iterations; i++) {
        if (i)
            o.status = xpe_run_step(run, &report, &o.error);
        if (o.status == XPE_OK)
            o.status = read_all(run, object, probe, coverage, &o.error);
    }
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    return o;
}

static void fail_in_turn(const xpt_case *c, const xpe_stage *stage, xpe_status in_the_end,
                         bool after)
{
    size_t pixels = (size_t)(c->rows * c->cols);
    xpe_c32 *object = xpt_new(pixels, sizeof *object),
            *probe = xpt_new((size_t)(4 * c->n * c->n), sizeof *probe);
    float *coverage = xpt_new(pixels, sizeof *coverage);
    outcome o =
        live_once(&c->desc, stage, object, probe, coverage); /* transforms are planned and stay */
    long before = atomic_load(&live), failures = 0;
    bool happened = true;

    assert_int_equal(o.status, in_the_end);
    for (long at = 1; happened; at++) {
        arm(at, after);
        o = live_once(&c->desc, stage, object, probe, coverage);
        happened = disarm();
        failures += happened;
        if (atomic_load(&live) > before) /* fewer: a cache of the backend was given up */
            fail_msg("allocation %ld failed and %ld pieces of memory are left", at,
                     atomic_load(&live) - before);
        if (o.status != (happened ? XPE_NO_MEMORY : in_the_end))
            fail_msg("allocation %ld failed: %s: '%s'", at, xpe_status_name(o.status),
                     o.error.text);
        assert_false(o.handed_out_on_failure);
        if (happened)
            assert_non_null(strstr(o.error.text, "memory"));
    }
    printf("    %ld allocations failed in turn\n", failures);
    assert_true(failures > 20);
    free(coverage);
    free(probe);
    free(object);
}

static const int second_iteration[] = {2};

static void a_run_with_a_known_probe_survives_every_failure(void **state)
{
    xpt_case *c = xpt_small_create(8, 3, 2, 1);
    xpe_stage stage = xpt_stage(2);

    (void)state;
    xpt_case_know(c);
    fail_in_turn(c, &stage, XPE_OK, false);
    fail_in_turn(c, &stage, XPE_OK, true);
    xpt_case_destroy(c);
}

static void a_run_that_adds_modes_survives_every_failure(void **state)
{
    xpt_case *c = xpt_small_create(8, 3, 2, 2);
    xpe_stage stage = xpt_stage(3);

    (void)state;
    stage.mode_schedule = second_iteration;
    stage.schedule_count = 1;
    stage.orthogonalize_modes = true;
    stage.fresnel_distance_m = 1e-6;
    xpt_case_hide(c, 0.1, 5, 3);
    fail_in_turn(c, &stage, XPE_OK, false);
    fail_in_turn(c, &stage, XPE_OK, true);
    xpt_case_destroy(c);
}

static void a_search_of_positions_survives_every_failure(void **state)
{
    xpt_case *c = xpt_small_create(8, 3, 1, 3);
    xpe_stage stage = xpt_stage(1);

    (void)state;
    stage.algorithm = XPE_REFINE_POSITIONS;
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
    xpt_case_know(c);
    fail_in_turn(c, &stage, XPE_OK, false);
    fail_in_turn(c, &stage, XPE_OK, true);
    xpt_case_destroy(c);
}

/* A side that was not met before has its transforms planned; each attempt takes a new one. */
static void transforms_that_cannot_be_planned_are_no_memory(void **state)
{
    (void)state;
    for (long at = 1; at <= 40; at++) {
        xpt_case *c = xpt_small_create(20 + 2 * at, 2, 1, 4);
        xpe_c32 *object = xpt_new((size_t)(c->rows * c->cols), sizeof *object);
        xpe_c32 *probe = xpt_new((size_t)(c->n * c->n), sizeof *probe);
        float *coverage = xpt_new((size_t)(c->rows * c->cols), sizeof *coverage);
        xpe_stage stage = xpt_stage(1);
        outcome o;
        arm(at, false);
        o = live_once(&c->desc, &stage, object, probe, coverage);
        assert_true(disarm());
        assert_int_equal(o.status, XPE_NO_MEMORY);
        o = live_once(&c->desc, &stage, object, probe, coverage); /* the next one is unharmed */
        assert_int_equal(o.status, XPE_OK);
        free(coverage);
        free(probe);
        free(object);
        xpt_case_destroy(c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_with_a_known_probe_survives_every_failure),
        cmocka_unit_test(a_run_that_adds_modes_survives_every_failure),
        cmocka_unit_test(a_search_of_positions_survives_every_failure),
        cmocka_unit_test(transforms_that_cannot_be_planned_are_no_memory),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
