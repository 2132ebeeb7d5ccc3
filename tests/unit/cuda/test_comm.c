/* What travels between devices: only the rows where windows and bands overlap, to the byte, and by
 * NCCL only where the devices are distinct.  docs/scaling.md counts with the same rows. */
#include "cuda/team.h"
#include "emu.h"
#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES 3

typedef uint64_t traffic[DEVICES][DEVICES]; /* [from][to] bytes */

static const char *const distinct[DEVICES] = {"cuda:0", "cuda:1", "cuda:2"};
static const char *const shared[DEVICES] = {"cuda:0", "cuda:0", "cuda:1"};

static int64_t overlap(int64_t a, int64_t a_stop, int64_t b, int64_t b_stop)
{
    int64_t lo = a > b ? a : b, hi = a_stop < b_stop ? a_stop : b_stop;

    return hi > lo ? hi - lo : 0;
}

/* One iteration by algorithm.md 4: sums of windows to owners of bands, two images to windows; for
 * an estimated probe more sums, and what is probe-sized to device 0 and back. */
static void expected(traffic bytes, const xpt_case *c, const xpe_plan *plan, int modes, bool known)
{
    uint64_t pixel = (uint64_t)modes * (known ? 16 : 16 + 16 + 8),
             plane = (uint64_t)(c->n * c->n * modes);

    memset(bytes, 0, sizeof(traffic));
    for (int g = 0; g < DEVICES; g++)
        for (int h = 0; h < DEVICES; h++) {
            const xpe_plan_shard *owner = &plan->shards[g], *peer = &plan->shards[h];
            uint64_t pixels = (uint64_t)(overlap(owner->band_first, owner->band_stop,
                                                 peer->window_first, peer->window_stop) *
                                         c->cols);
            if (g == h)
                continue;
            bytes[h][g] += pixels * pixel;     /* sums: W; V and L too where the modes change */
            bytes[g][h] += pixels * 8 * 2;     /* z and the image */
            bytes[g][h] += 3 * sizeof(double); /* largest values, from which the devices decide */
            if (!known) /* ... of copies and u; energies of rows, of the image and of coverage */
                bytes[g][h] += 3 * sizeof(double) +
                               (uint64_t)((owner->band_stop - owner->band_first) * (1 + modes)) *
                                   sizeof(double);
            if (!known && g == 0)
                bytes[h][0] += plane * (16 + 16 + 8); /* R, S and the deviations */
            if (!known && h == 0)
                bytes[0][g] += plane * (8 + 8 + 4); /* u, d and the mean deviations */
        }
}

static void run_to_its_end(const xpe_problem *problem, const char *const *names, int iterations)
{
    const xpe_device_list devices = {names, DEVICES, 1};
    xpe_stage stage = xpt_stage(iterations);
    xpe_report report;
    xpe_run *run;
    xpe_error err;

    assert_int_equal(xpe_run_create(&run, problem, &stage, &devices, &err), XPE_OK);
    for (int i = 0; i < iterations; i++)
        assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    xpe_run_destroy(run);
}

/* Bytes of an iteration: what a run of four moves more than one of three.  A step by itself would
 * not tell, because the devices may be ahead of it. */
static void count_iteration(traffic nccl, traffic peer, xpt_case *c, const char *const *names,
                            const xpe_plan **plan, bool known)
{
    xpe_emu_counts before, between, after;
    xpe_problem *problem;
    xpe_plan *made;
    xpe_error err;

    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
    run_to_its_end(problem, names, 1); /* makes the connections */
    before = xpe_emu_count();
    run_to_its_end(problem, names, 3);
    between = xpe_emu_count();
    run_to_its_end(problem, names, 4);
    after = xpe_emu_count();
    for (int g = 0; g < DEVICES; g++)
        for (int h = 0; h < DEVICES; h++) {
            nccl[g][h] =
                after.bytes_nccl[g][h] - 2 * between.bytes_nccl[g][h] + before.bytes_nccl[g][h];
            peer[g][h] =
                after.bytes_peer[g][h] - 2 * between.bytes_peer[g][h] + before.bytes_peer[g][h];
        }
    assert_int_equal(xpe_plan_build(&made, xpe_problem_first(problem), c->num_frames, c->n,
                                    xpe_problem_grid(problem), c->desc.probe_modes, known, DEVICES,
                                    &err),
                     XPE_OK);
    *plan = made;
    xpe_problem_destroy(problem);
}

static void distinct_devices_move_overlapping_rows_by_nccl(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++)
        for (int modes = 1; modes <= 2; modes++) {
            xpt_case *c = xpt_small_create(16, 5, modes, 3);
            traffic nccl, peer, right;
            const xpe_plan *plan;
            if (known) {
                xpt_case_know(c);
            } else {
                c->desc.init_probe = c->probe;
                c->desc.init_probe_count = modes;
            }
            xpe_emu_begin(DEVICES, (size_t)64 << 20, 0);
            count_iteration(nccl, peer, c, distinct, &plan, known);
            expected(right, c, plan, modes, known);
            for (int g = 0; g < DEVICES; g++)
                for (int h = 0; h < DEVICES; h++) {
                    assert_int_equal(nccl[g][h], right[g][h]);
                    assert_int_equal(peer[g][h], 0);
                }
            xpe_plan_destroy((xpe_plan *)(uintptr_t)plan);
            xpe_cuda_forget();
            assert_true(xpe_emu_empty());
            xpt_case_destroy(c);
        }
}

static void a_device_named_twice_makes_copies_and_none_within_itself(void **state)
{
    xpt_case *c = xpt_small_create(16, 5, 1, 3);
    traffic nccl, peer, right;
    const xpe_plan *plan;

    (void)state;
    xpt_case_know(c);
    xpe_emu_begin(DEVICES, (size_t)64 << 20, 0);
    count_iteration(nccl, peer, c, shared, &plan, true);
    expected(right, c, plan, 1, true);
    assert_int_equal(peer[0][1], right[0][2] + right[1][2]);
    assert_int_equal(peer[1][0], right[2][0] + right[2][1]);
    assert_int_equal(peer[0][0], 0);
    for (int g = 0; g < DEVICES; g++)
        for (int h = 0; h < DEVICES; h++)
            assert_int_equal(nccl[g][h], 0);
    xpe_plan_destroy((xpe_plan *)(uintptr_t)plan);
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
    xpt_case_destroy(c);
}

/* Buffers of NCCL's own are taken before a run is measured against what is free: 50 of 64 MiB are
 * gone when the account is made, and a run that fits beside them finds all that it was promised. */
static void buffers_of_nccl_are_gone_before_a_run_is_admitted(void **state)
{
    static const int64_t made = 20 << 20, connected = 30 << 20;

    (void)state;
    for (int points = 5; points <= 40; points += 35) {
        xpt_case *c = xpt_small_create(16, points, 1, 3);
        const xpe_device_list devices = {distinct, DEVICES, 1};
        bool fits = points == 5;
        xpe_stage stage = xpt_stage(1);
        xpe_problem *problem;
        xpe_report report;
        xpe_run *run;
        xpe_error err;

        xpt_case_know(c);
        xpe_emu_begin(DEVICES, (size_t)64 << 20, 0);
        for (int g = 0; g < DEVICES; g++)
            xpe_emu_device_bytes(g, fits ? (size_t)64 << 20 : (size_t)58 << 20);
        xpe_emu_nccl_bytes((size_t)made, (size_t)connected);
        assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
        if (fits) {
            assert_int_equal(xpe_run_create(&run, problem, &stage, &devices, &err), XPE_OK);
            assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
            xpe_run_destroy(run);
        } else {
            assert_int_equal(xpe_run_create(&run, problem, &stage, &devices, &err),
                             XPE_NO_DEVICE_MEMORY);
            assert_in_range(err.bytes_free, (58 << 20) - made - connected - 4096,
                            (58 << 20) - made - connected);
            assert_true(err.bytes_needed > err.bytes_free);
        }
        xpe_problem_destroy(problem);
        xpe_cuda_forget();
        assert_true(xpe_emu_empty());
        xpt_case_destroy(c);
    }
}

static void one_device_moves_nothing(void **state)
{
    xpt_case *c = xpt_small_create(16, 4, 1, 3);
    const xpe_device_list one = {distinct, 1, 1};
    xpe_stage stage = xpt_stage(2);
    xpe_problem *problem;
    xpe_report report;
    xpe_run *run;
    xpe_error err;

    (void)state;
    xpt_case_know(c);
    xpe_emu_begin(DEVICES, (size_t)64 << 20, 0);
    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&run, problem, &stage, &one, &err), XPE_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    assert_int_equal(xpe_emu_calls("ncclCommInitAll"), 0);
    assert_int_equal(xpe_emu_calls("cudaMemcpyPeerAsync"), 0);
    assert_int_equal(xpe_emu_count().pageable,
                     0); /* everything between host and device is pinned */
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
    xpt_case_destroy(c);
}

/* Kernels of the trips of an iteration that run while rows are on their way.  What NCCL moves is
 * made as slow as can be: it arrives when nothing else is left to do.  144 frames of 8 x 8 on two
 * devices: on each the frames that stay within its band make a chunk before the rim and one behind
 * it, of six kernels (three of the fit, three of the error), or before it of four (step 4). */
#define HALF 6
#define STEP_4 4

static uint64_t kernels_beside(bool known, xpe_c32 *object, int devices)
{
    xpt_case *c = xpt_small_create(8, 12, 1, 2);
    const xpe_device_list two = {distinct, devices, 1};
    xpe_stage stage = xpt_stage(4);
    xpe_problem *problem;
    uint64_t before, beside;
    xpe_report report;
    xpe_run *run;
    xpe_error err;

    if (known)
        xpt_case_know(c);
    xpe_emu_begin(DEVICES, (size_t)64 << 20, 0);
    xpe_emu_slow_nccl(true);
    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&run, problem, &stage, &two, &err), XPE_OK);
    assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    before = xpe_emu_count().beside;
    assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    beside = xpe_emu_count().beside - before;
    for (int i = 2; i < 4; i++)
        assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    assert_int_equal(xpe_run_object(run, object, &err), XPE_OK);
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
    xpt_case_destroy(c);
    return beside;
}

static void batches_that_do_not_need_the_exchange_do_not_wait_for_it(void **state)
{
    static xpe_c32 one[64 * 64], two[64 * 64];

    (void)state;
    for (int i = 0; i < 10; i++) { /* orders of work */
        memset(one, 0, sizeof one);
        memset(two, 0, sizeof two);
        assert_int_equal(kernels_beside(true, one, 1), 0);
        /* z and x-bar come in beside the first half on both devices, of step 4 where the probe is
         * estimated; sums leave beside the second
         * half at least on the device that is the last to be done with its rim */
        assert_in_range(kernels_beside(true, two, 2), 3 * HALF, 4 * HALF);
        assert_memory_equal(one, two, sizeof one);
        (void)kernels_beside(false, one, 1);
        assert_in_range(kernels_beside(false, two, 2), 2 * STEP_4 + HALF, 2 * (STEP_4 + HALF));
        assert_memory_equal(one, two, sizeof one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distinct_devices_move_overlapping_rows_by_nccl),
        cmocka_unit_test(a_device_named_twice_makes_copies_and_none_within_itself),
        cmocka_unit_test(buffers_of_nccl_are_gone_before_a_run_is_admitted),
        cmocka_unit_test(one_device_moves_nothing),
        cmocka_unit_test(batches_that_do_not_need_the_exchange_do_not_wait_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
