/* The account of memory: for random shapes a run takes what it was said to take, a device that is
 * too small is refused with the numbers before anything is taken, and where memory is short fewer
 * frames are in work together, with the same bits. */
#include "cuda/team.h"
#include "emu.h"
#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((int64_t)1 << 20)
/* What the emulated device loses by rounding each piece of memory up. */
#define ROUNDING ((int64_t)1 << 16)

static const char *const names[3] = {"cuda:0", "cuda:1", "cuda:2"};

typedef struct outcome {
    xpe_status status;
    bool refused; /* before the run had taken anything */
    xpe_error error;
    xpe_run_stats stats;
} outcome;

/* A run of one iteration on devices of so many bytes each. */
static outcome try_run(const xpt_case *c, int devices, int64_t bytes, xpe_c32 *object)
{
    const xpe_device_list list = {names, devices, 1};
    xpe_stage stage = xpt_stage(1);
    xpe_problem *problem;
    xpe_report report;
    xpe_run *run = NULL;
    outcome o = {0};

    xpe_emu_begin(3, (size_t)bytes, 0);
    assert_int_equal(xpe_problem_create(&problem, &c->desc, &o.error), XPE_OK);
    o.status = xpe_run_create(&run, problem, &stage, &list, &o.error);
    o.refused = o.status != XPE_OK;
    if (o.status == XPE_OK)
        o.status = xpe_run_step(run, &report, &o.error);
    if (o.status == XPE_OK)
        o.status = xpe_run_object(run, object, &o.error);
    if (run)
        o.stats = xpe_run_get_stats(run);
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
    return o;
}

static xpt_case *random_case(xpt_random *r, int *devices)
{
    static const int64_t sides[] = {8, 12, 16, 20, 32, 64};
    int64_t n = sides[xpt_random_below(r, 6)];
    int points = 2 + (int)xpt_random_below(r, n > 32 ? 4 : 8),
        modes = 1 + (int)xpt_random_below(r, 3);
    xpt_case *c = xpt_small_create(n, points, modes, (uint64_t)xpt_random_below(r, 1000) + 1);

    *devices = 1 + (int)xpt_random_below(r, 3);
    if (xpt_random_below(r, 2)) {
        xpt_case_know(c);
    } else {
        c->desc.init_probe = c->probe;
        c->desc.init_probe_count = modes;
    }
    return c;
}

static void a_run_takes_what_it_was_said_to_take_or_is_refused(void **state)
{
    xpt_random r = {2026};
    int refused = 0, runs = 24;

    (void)state;
    for (int i = 0; i < runs; i++) {
        int devices;
        xpt_case *c = random_case(&r, &devices);
        xpe_c32 *object = xpt_new((size_t)(c->rows * c->cols), sizeof *object);
        outcome o = try_run(c, devices, 512 * MIB, object);
        int64_t planned = o.stats.bytes_planned, most = planned / devices;

        if (o.status != XPE_OK)
            fail_msg("%s", o.error.text);
        if (o.stats.bytes_peak > planned || (double)planned > 1.1 * (double)o.stats.bytes_peak)
            fail_msg("%lld frames of %lld, %d devices: planned %lld, taken %lld",
                     (long long)c->num_frames, (long long)c->n, devices, (long long)planned,
                     (long long)o.stats.bytes_peak);
        for (int k = 0; k < 4;
             k++) { /* too small and large enough; never begun and then given up */
            int64_t bytes = most * (60 + xpt_random_below(&r, 80)) / 100;
            o = try_run(c, devices, bytes, object);
            if (o.status == XPE_NO_DEVICE_MEMORY && o.refused &&
                o.error.bytes_needed > o.error.bytes_free && o.error.bytes_free <= bytes) {
                refused++;
                continue;
            }
            if (o.status == XPE_OK)
                continue;
            if (o.error.bytes_free < ROUNDING &&
                o.error.bytes_needed < ROUNDING + o.error.bytes_free)
                continue; /* within the rounding of the emulated device */
            fail_msg("%lld bytes of %lld: %s: %s", (long long)bytes, (long long)most,
                     xpe_status_name(o.status), o.error.text);
        }
        free(object);
        xpt_case_destroy(c);
    }
    assert_in_range(refused, runs / 2, 4 * runs);
}

/* 100 frames of 64 x 64 with transforms of our own: fields of 3.1 MiB, of which a single frame's 32
 * KiB must fit. */
static void less_memory_means_smaller_batches_and_the_same_bits(void **state)
{
    xpt_case *c = xpt_small_create(64, 10, 1, 3);
    size_t bytes = (size_t)(c->rows * c->cols) * sizeof(xpe_c32);
    xpe_c32 *wide = xpt_new(bytes, 1), *narrow = xpt_new(bytes, 1);
    uint64_t launches, smaller = 0;
    int64_t full, least;
    outcome o;

    (void)state;
    xpt_case_know(c);
    o = try_run(c, 1, 512 * MIB, wide);
    assert_int_equal(o.status, XPE_OK);
    launches = xpe_emu_calls("k_rows_load");
    full = o.stats.bytes_planned;
    least = full - 99 * (64 * 64 * 8 + 2 * 16);
    for (int64_t room = full; room >= least; room -= (full - least) / 5) {
        o = try_run(c, 1, room + ROUNDING, narrow);
        assert_int_equal(o.status, XPE_OK);
        assert_true(o.stats.bytes_planned <= room + ROUNDING &&
                    o.stats.bytes_peak <= o.stats.bytes_planned);
        assert_memory_equal(wide, narrow, bytes);
        smaller += xpe_emu_calls("k_rows_load") > launches;
    }
    assert_true(smaller >= 3);
    o = try_run(c, 1, least - 2 * ROUNDING, narrow);
    assert_int_equal(o.status, XPE_NO_DEVICE_MEMORY);
    assert_true(o.refused);
    assert_int_equal(o.error.bytes_needed, least);
    free(wide);
    free(narrow);
    xpt_case_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_takes_what_it_was_said_to_take_or_is_refused),
        cmocka_unit_test(less_memory_means_smaller_batches_and_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
