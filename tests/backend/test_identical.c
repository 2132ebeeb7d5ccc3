/* One result, whatever the division: algorithm.md 5.  Every comparison here is of bytes. */
#include "engine_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int devices[] = {1, 2, 3, 5};
static const int threads[] = {1, 2, 3};
static const int64_t batches[] = {1, 7, 0};

static const int second_iteration[] = {2};

/* Counts that no model explains, so that rounding is felt. */
static void add_noise(xpt_case *c)
{
    xpt_random r = {99};

    for (int64_t i = 0; i < c->num_frames * c->n * c->n; i++)
        c->counts[i] = c->counts[i] * (float)(0.7 + 0.6 * xpt_random_unit(&r)) +
                       (float)(0.01 * xpt_random_unit(&r));
}

static void every_division_gives_the_bytes_of_one(const xpt_case *c, const xpe_stage *stage)
{
    xpt_result *one = xpt_run_well(&c->desc, stage, (xpt_division){1, 1, 0});

    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                xpt_division division = {devices[d], threads[t], batches[b]};
                xpt_result *other = xpt_run_well(&c->desc, stage, division);
                const char *what;
                if (!xpt_same(one, other, &what))
                    fail_msg("%d devices, %d threads, batches of %lld: the %s differs", devices[d],
                             threads[t], (long long)batches[b], what);
                xpt_result_destroy(other);
            }
    xpt_result_destroy(one);
}

static void known_probe(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(4);

    (void)state;
    add_noise(c);
    xpt_case_know(c);
    every_division_gives_the_bytes_of_one(c, &stage);
    xpt_case_destroy(c);
}

static void known_probe_of_two_modes(void **state)
{
    xpt_case *c = xpt_small_create(
        18, 6, 2, 1); /* 36 frames, not a multiple of anything; columns in padded groups */
    xpe_stage stage = xpt_stage(3);

    (void)state;
    add_noise(c);
    xpt_case_know(c);
    stage.probe_weight_exponent = 1.7;
    every_division_gives_the_bytes_of_one(c, &stage);
    xpt_case_destroy(c);
}

static void estimated_probe(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(4);

    (void)state;
    add_noise(c);
    stage.fresnel_radius_pixels = 1.3;
    every_division_gives_the_bytes_of_one(c, &stage);
    xpt_case_destroy(c);
}

static void two_modes_on_a_schedule(void **state)
{
    xpt_case *c = xpt_tiny_create(2);
    xpe_stage stage = xpt_stage(4);

    (void)state;
    add_noise(c);
    stage.mode_schedule = second_iteration;
    stage.schedule_count = 1;
    stage.fresnel_distance_m = 2e-6;
    every_division_gives_the_bytes_of_one(c, &stage);
    xpt_case_destroy(c);
}

static void two_modes_orthogonalised(void **state)
{
    xpt_case *c = xpt_tiny_create(2);
    xpe_stage stage = xpt_stage(4);

    (void)state;
    add_noise(c);
    stage.mode_schedule = second_iteration;
    stage.schedule_count = 1;
    stage.orthogonalize_modes = true;
    every_division_gives_the_bytes_of_one(c, &stage);
    xpt_case_destroy(c);
}

static void masked_frames(void **state)
{
    xpt_case *c = xpt_small_create(10, 5, 1, 2);
    xpe_stage stage = xpt_stage(3);

    (void)state;
    add_noise(c);
    xpt_case_hide(c, 0.1, NAN, 3);
    every_division_gives_the_bytes_of_one(c, &stage);
    xpt_case_destroy(c);
}

static void refined_positions(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(1);
    xpt_result *one;

    (void)state;
    add_noise(c);
    stage.algorithm = XPE_REFINE_POSITIONS;
    stage.max_shift = 2;
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->desc.init_object_shape[1] = XPT_TINY_SIDE;
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 1;
    one = xpt_run_well(&c->desc, &stage, (xpt_division){1, 1, 0});
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            xpt_result *other =
                xpt_run_well(&c->desc, &stage, (xpt_division){devices[d], 2, batches[b]});
            assert_memory_equal(one->positions, other->positions,
                                2 * XPT_TINY_FRAMES * sizeof *one->positions);
            assert_memory_equal(one->gain, other->gain, XPT_TINY_FRAMES * sizeof *one->gain);
            assert_memory_equal(one->errors, other->errors, sizeof *one->errors);
            xpt_result_destroy(other);
        }
    xpt_result_destroy(one);
    xpt_case_destroy(c);
}

static void as_many_devices_as_rows(void **state)
{
    xpt_case *c = xpt_small_create(4, 3, 1, 4);
    xpe_stage stage = xpt_stage(3);
    xpt_result *one, *nine;

    (void)state;
    add_noise(c);
    xpt_case_know(c);
    assert_in_range(c->rows, 7, 9);
    one = xpt_run_well(&c->desc, &stage, (xpt_division){1, 2, 0});
    nine = xpt_run_well(&c->desc, &stage, (xpt_division){(int)c->rows, 2, 0});
    xpt_assert_same(one, nine);
    xpt_result_destroy(nine);
    xpt_result_destroy(one);
    xpt_case_destroy(c);
}

static void one_frame_on_one_device(void **state)
{
    xpt_case *c = xpt_small_create(8, 1, 1, 5);
    xpe_stage stage = xpt_stage(3);
    xpt_result *a, *b;

    (void)state;
    a = xpt_run_well(&c->desc, &stage, (xpt_division){1, 1, 0});
    b = xpt_run_well(&c->desc, &stage, (xpt_division){1, 3, 1});
    xpt_assert_same(a, b);
    xpt_result_destroy(a);
    xpt_result_destroy(b);
    xpt_case_destroy(c);
}

/* The order in which frames were recorded must not matter either: sums are exact. */
static void frames_in_another_order(void **state)
{
    xpt_case *c = xpt_tiny_create(1), *turned = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(3);
    xpt_result *a, *b;

    (void)state;
    add_noise(c);
    for (int j = 0; j < XPT_TINY_FRAMES; j++) {
        int from = (j * 10 + 3) % XPT_TINY_FRAMES;
        memcpy(turned->counts + j * 256, c->counts + from * 256, 256 * sizeof *c->counts);
        memcpy(turned->positions + 2 * j, c->positions + 2 * from, 2 * sizeof *c->positions);
    }
    a = xpt_run_well(&c->desc, &stage, (xpt_division){2, 2, 0});
    b = xpt_run_well(&turned->desc, &stage, (xpt_division){2, 2, 0});
    assert_memory_equal(a->object, b->object, (size_t)(c->rows * c->cols) * sizeof *a->object);
    assert_memory_equal(a->probe, b->probe, 256 * sizeof *a->probe);
    xpt_result_destroy(a);
    xpt_result_destroy(b);
    xpt_case_destroy(turned);
    xpt_case_destroy(c);
}

static void the_same_run_twice_in_one_process(void **state)
{
    xpt_case *c = xpt_tiny_create(1), *other = xpt_small_create(30, 3, 1, 6);
    xpe_stage stage = xpt_stage(3);
    xpt_result *first = xpt_run_well(&c->desc, &stage, (xpt_division){2, 2, 0});
    xpt_result *between =
        xpt_run_well(&other->desc, &stage, (xpt_division){2, 2, 0}); /* plans another side */
    xpt_result *second = xpt_run_well(&c->desc, &stage, (xpt_division){2, 2, 0});

    (void)state;
    xpt_assert_same(first, second);
    xpt_result_destroy(first);
    xpt_result_destroy(between);
    xpt_result_destroy(second);
    xpt_case_destroy(other);
    xpt_case_destroy(c);
}

static void reporting_seldom_changes_no_bit_and_reports_the_last(void **state)
{
    xpt_case *c = xpt_tiny_create(2);
    xpe_stage stage = xpt_stage(7);
    xpt_result *often, *seldom;

    (void)state;
    add_noise(c);
    stage.mode_schedule = second_iteration;
    stage.schedule_count = 1;
    often = xpt_run_well(&c->desc, &stage, (xpt_division){2, 1, 0});
    stage.report_every = 3;
    seldom = xpt_run_well(&c->desc, &stage, (xpt_division){2, 1, 0});
    for (int i = 0; i < 7; i++) {
        bool reported = (i + 1) % 3 == 0 || i == 6;
        assert_true(reported ? seldom->errors[i] == often->errors[i] : isnan(seldom->errors[i]));
    }
    memcpy(seldom->errors, often->errors, 7 * sizeof *often->errors);
    xpt_assert_same(often, seldom);
    xpt_result_destroy(often);
    xpt_result_destroy(seldom);
    xpt_case_destroy(c);
}

/* As many as a node has; every band is lower than a frame. */
static void eight_devices_give_the_bytes_of_one(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        xpt_case *c = xpt_tiny_create(1);
        xpe_stage stage = xpt_stage(4);
        xpt_result *one, *eight;
        add_noise(c);
        if (known)
            xpt_case_know(c);
        one = xpt_run_well(&c->desc, &stage, (xpt_division){1, 1, 0});
        eight = xpt_run_well(&c->desc, &stage, (xpt_division){8, 1, 3});
        xpt_assert_same(one, eight);
        xpt_result_destroy(one);
        xpt_result_destroy(eight);
        xpt_case_destroy(c);
    }
}

/* Beyond the iteration in which the sums of a known probe are made anew. */
static void reporting_seldom_changes_no_bit_with_a_known_probe(void **state)
{
    xpt_case *c = xpt_small_create(8, 6, 1, 4);
    xpe_stage stage = xpt_stage(67);
    xpt_result *often;

    (void)state;
    add_noise(c);
    xpt_case_know(c);
    often = xpt_run_well(&c->desc, &stage, (xpt_division){1, 1, 0});
    for (int count = 1; count <= 3; count += 2) {
        xpt_result *seldom;
        stage.report_every = 13;
        seldom = xpt_run_well(&c->desc, &stage, (xpt_division){count, 1, 0});
        for (int i = 0; i < 67; i++) {
            bool reported = (i + 1) % 13 == 0 || i == 66;
            assert_true(reported ? seldom->errors[i] == often->errors[i]
                                 : isnan(seldom->errors[i]));
        }
        memcpy(seldom->errors, often->errors, 67 * sizeof *often->errors);
        xpt_assert_same(often, seldom);
        xpt_result_destroy(seldom);
    }
    xpt_result_destroy(often);
    xpt_case_destroy(c);
}

/* A run of 3 iterations is the first 3 of a run of 6. */
static void a_longer_run_passes_through_the_shorter(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(6);
    xpt_result *shorter, *longer = xpt_run_well(&c->desc, &stage, (xpt_division){0});

    (void)state;
    stage.iterations = 3;
    shorter = xpt_run_well(&c->desc, &stage, (xpt_division){0});
    assert_memory_equal(shorter->errors, longer->errors, 3 * sizeof *shorter->errors);
    xpt_result_destroy(shorter);
    xpt_result_destroy(longer);
    xpt_case_destroy(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_probe),
        cmocka_unit_test(known_probe_of_two_modes),
        cmocka_unit_test(estimated_probe),
        cmocka_unit_test(two_modes_on_a_schedule),
        cmocka_unit_test(two_modes_orthogonalised),
        cmocka_unit_test(masked_frames),
        cmocka_unit_test(refined_positions),
        cmocka_unit_test(as_many_devices_as_rows),
        cmocka_unit_test(one_frame_on_one_device),
        cmocka_unit_test(frames_in_another_order),
        cmocka_unit_test(the_same_run_twice_in_one_process),
        cmocka_unit_test(eight_devices_give_the_bytes_of_one),
        cmocka_unit_test(reporting_seldom_changes_no_bit_and_reports_the_last),
        cmocka_unit_test(reporting_seldom_changes_no_bit_with_a_known_probe),
        cmocka_unit_test(a_longer_run_passes_through_the_shorter),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
