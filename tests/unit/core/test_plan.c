/* The division of a run over devices (core/plan.c): algorithm.md 4 and trap 13. */
#include "xptychod/engine.h"

#include "medium_plan.h"
#include "synthetic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static xpe_plan *build(const int32_t *first, int64_t frames, int64_t n, int64_t rows, int64_t cols,
                       int modes, bool known, int count)
{
    const xpe_grid grid = {.rows = rows, .cols = cols, .pitch_m = 1e-8};
    xpe_plan *plan;
    xpe_error err;

    if (xpe_plan_build(&plan, first, frames, n, &grid, modes, known, count, &err) != XPE_OK)
        fail_msg("%s", err.text);
    return plan;
}

static int32_t *medium_first(void)
{
    int32_t *first = xpt_new(MEDIUM_FRAMES * 2, sizeof *first);

    for (int j = 0; j < MEDIUM_FRAMES; j++) {
        first[2 * j] = medium_first_row[j];
        first[2 * j + 1] = medium_first_col[j];
    }
    return first;
}

static void division_is_that_of_the_reference_program(void **state)
{
    int32_t *first = medium_first();

    (void)state;
    for (size_t i = 0; i < sizeof medium_division / sizeof *medium_division; i++) {
        int count = medium_division[i].devices;
        xpe_plan *plan =
            build(first, MEDIUM_FRAMES, MEDIUM_N, MEDIUM_ROWS, MEDIUM_COLS, 1, true, count);
        assert_int_equal(plan->count, count);
        assert_memory_equal(plan->order, medium_order, sizeof medium_order);
        for (int g = 0; g < count; g++) {
            assert_int_equal(plan->shards[g].frames, medium_division[i].frames[g]);
            assert_int_equal(plan->shards[g].band_first,
                             g ? medium_division[i].band_stop[g - 1] : 0);
            assert_int_equal(plan->shards[g].band_stop, medium_division[i].band_stop[g]);
            assert_int_equal(plan->shards[g].window_first, medium_division[i].window_first[g]);
            assert_int_equal(plan->shards[g].window_stop, medium_division[i].window_stop[g]);
        }
        xpe_plan_destroy(plan);
    }
    free(first);
}

static void bands_are_cut_at_halves_to_even(void **state)
{
    int32_t first[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    xpe_plan *plan = build(first, 4, 2, 10, 4, 1, true, 4); /* 2.5, 5, 7.5 */

    (void)state;
    assert_int_equal(plan->shards[0].band_stop, 2);
    assert_int_equal(plan->shards[1].band_stop, 5);
    assert_int_equal(plan->shards[2].band_stop, 8);
    assert_int_equal(plan->shards[3].band_stop, 10);
    xpe_plan_destroy(plan);
    plan = build(first, 4, 2, 6, 4, 1, true, 4); /* 1.5, 3, 4.5 */
    assert_int_equal(plan->shards[0].band_stop, 2);
    assert_int_equal(plan->shards[1].band_stop, 3);
    assert_int_equal(plan->shards[2].band_stop, 4);
    xpe_plan_destroy(plan);
}

static void frames_of_one_row_keep_their_order(void **state)
{
    int32_t first[12] = {3, 9, 1, 5, 3, 2, 1, 1, 3, 0, 0, 7};
    static const int64_t order[6] = {5, 1, 3, 0, 2, 4};
    xpe_plan *plan = build(first, 6, 2, 8, 16, 1, true, 3);

    (void)state;
    assert_memory_equal(plan->order, order, sizeof order);
    xpe_plan_destroy(plan);
}

static void the_first_blocks_get_the_frames_left_over(void **state)
{
    int32_t first[22] = {0};
    xpe_plan *plan = build(first, 11, 2, 8, 8, 1, true, 4);

    (void)state;
    assert_int_equal(plan->shards[0].frames, 3);
    assert_int_equal(plan->shards[1].frames, 3);
    assert_int_equal(plan->shards[2].frames, 3);
    assert_int_equal(plan->shards[3].frames, 2);
    xpe_plan_destroy(plan);
}

static void assert_is_a_division(const xpe_plan *plan, const int32_t *first, int64_t frames,
                                 int64_t n, int64_t rows)
{
    char *seen = xpt_new((size_t)frames, 1);
    int64_t at = 0, band = 0;

    for (int g = 0; g < plan->count; g++) {
        const xpe_plan_shard *s = &plan->shards[g];
        int64_t least = INT64_MAX, most = 0;
        for (int64_t i = at; i < at + s->frames; i++) {
            int64_t j = plan->order[i];
            assert_in_range(j, 0, frames - 1);
            assert_false(seen[j]);
            seen[j] = 1;
            least = first[2 * j] < least ? first[2 * j] : least;
            most = first[2 * j] + n > most ? first[2 * j] + n : most;
            if (i) {
                int64_t before = plan->order[i - 1];
                assert_true(first[2 * before] < first[2 * j] ||
                            (first[2 * before] == first[2 * j] && before < j));
            }
        }
        assert_int_equal(s->window_first, least);
        assert_int_equal(s->window_stop, most);
        assert_int_equal(s->band_first, band);
        assert_true(s->band_stop > s->band_first);
        assert_true(labs((long)(s->frames - plan->shards[0].frames)) <= 1 && s->frames >= 1);
        assert_true(s->bytes > 0);
        at += s->frames;
        band = s->band_stop;
    }
    assert_int_equal(at, frames);
    assert_int_equal(band, rows);
    free(seen);
}

static void every_division_is_complete_and_without_overlap(void **state)
{
    xpt_random r = {1};

    (void)state;
    for (int pass = 0; pass < 2000; pass++) {
        int64_t n = 2 + 2 * xpt_random_below(&r, 8), rows = n + xpt_random_below(&r, 60),
                cols = n + xpt_random_below(&r, 20);
        int64_t frames = 1 + xpt_random_below(&r, 70), most = frames < rows ? frames : rows;
        int count = 1 + (int)xpt_random_below(&r, most);
        int32_t *first = xpt_new((size_t)frames * 2, sizeof *first);
        xpe_plan *plan;
        for (int64_t j = 0; j < frames; j++) {
            first[2 * j] = (int32_t)xpt_random_below(&r, rows - n + 1);
            first[2 * j + 1] = (int32_t)xpt_random_below(&r, cols - n + 1);
        }
        plan = build(first, frames, n, rows, cols, 1 + pass % 3, pass % 2, count);
        assert_is_a_division(plan, first, frames, n, rows);
        xpe_plan_destroy(plan);
        free(first);
    }
}

static void bytes_hold_the_frames_and_the_sums(void **state)
{
    int32_t *first = medium_first();
    int64_t plane = MEDIUM_N * MEDIUM_N, pixels = MEDIUM_ROWS * MEDIUM_COLS;

    (void)state; /* section 4: 12 n^2 a position known, 20 and 28 estimated; 16 N K sums, 8 N image,
                    4 N K coverage */
    for (int modes = 1; modes <= 3; modes++)
        for (int known = 0; known < 2; known++) {
            xpe_plan *plan =
                build(first, MEDIUM_FRAMES, MEDIUM_N, MEDIUM_ROWS, MEDIUM_COLS, modes, known, 1);
            int64_t least =
                MEDIUM_FRAMES * plane * (12 + (known ? 0 : 8 * modes)) + pixels * (8 + 20 * modes);
            assert_true(plan->shards[0].bytes >= least);
            assert_true(plan->shards[0].bytes <= 2 * least);
            xpe_plan_destroy(plan);
        }
    free(first);
}

static void more_modes_and_an_estimated_probe_need_more_bytes(void **state)
{
    int32_t *first = medium_first();
    int64_t before = 0;

    (void)state;
    for (int modes = 1; modes <= 4; modes++) {
        xpe_plan *known =
            build(first, MEDIUM_FRAMES, MEDIUM_N, MEDIUM_ROWS, MEDIUM_COLS, modes, true, 2);
        xpe_plan *blind =
            build(first, MEDIUM_FRAMES, MEDIUM_N, MEDIUM_ROWS, MEDIUM_COLS, modes, false, 2);
        assert_true(blind->shards[1].bytes > known->shards[1].bytes);
        assert_true(blind->shards[1].bytes > before);
        before = blind->shards[1].bytes;
        xpe_plan_destroy(known);
        xpe_plan_destroy(blind);
    }
    free(first);
}

static xpe_error refused(int64_t frames, int64_t rows, int count)
{
    const xpe_grid grid = {.rows = rows, .cols = 8, .pitch_m = 1e-8};
    int32_t *first = xpt_new((size_t)frames * 2, sizeof *first);
    xpe_plan *plan = (xpe_plan *)(void *)first;
    xpe_error err = {0};

    assert_int_equal(xpe_plan_build(&plan, first, frames, 2, &grid, 1, true, count, &err),
                     XPE_INVALID);
    assert_null(plan);
    assert_string_equal(err.pointer, "/devices");
    free(first);
    return err;
}

static void more_devices_than_positions_are_refused_with_both_numbers(void **state)
{
    xpe_error err = refused(3, 50, 4);

    (void)state;
    assert_non_null(strstr(err.text, "4 devices for 3 scan positions"));
    assert_non_null(strstr(err.text, "at most 3"));
}

static void more_devices_than_rows_are_refused_with_both_numbers(void **state)
{
    xpe_error err = refused(30, 5, 6);

    (void)state;
    assert_non_null(strstr(err.text, "6 devices for 5 object rows"));
    assert_non_null(strstr(err.text, "at most 5"));
}

static void fewer_than_one_device_is_refused(void **state)
{
    xpe_error err = refused(3, 50, 0);

    (void)state;
    assert_non_null(strstr(err.text, "at least 1"));
    err = refused(3, 50, -7);
    assert_non_null(strstr(err.text, "-7"));
}

/* ----------------------------------------------------------------------------------- admission */

static xpe_plan *plan_of_three(void)
{
    int32_t first[12] = {0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0};

    return build(first, 6, 16, 32, 32, 1, true, 3);
}

static void a_device_with_just_enough_is_admitted_and_one_byte_less_is_not(void **state)
{
    static const char *const names[] = {"cuda:0", "cuda:1", "cuda:2"};
    xpe_plan *plan = plan_of_three();
    int64_t room[3] = {plan->shards[0].bytes, plan->shards[1].bytes, plan->shards[2].bytes};
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_plan_admit(plan, names, room, &err), XPE_OK);
    room[1]--;
    assert_int_equal(xpe_plan_admit(plan, names, room, &err), XPE_NO_DEVICE_MEMORY);
    assert_string_equal(err.device, "cuda:1");
    assert_int_equal(err.bytes_needed, plan->shards[1].bytes);
    assert_int_equal(err.bytes_free, plan->shards[1].bytes - 1);
    assert_int_equal(err.status, XPE_NO_DEVICE_MEMORY);
    xpe_plan_destroy(plan);
}

static void shards_of_one_device_share_its_bytes(void **state)
{
    static const char *const names[] = {"cpu", "cuda:1", "cpu"};
    xpe_plan *plan = plan_of_three();
    int64_t both = plan->shards[0].bytes + plan->shards[2].bytes,
            room[3] = {both, plan->shards[1].bytes, both};
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_plan_admit(plan, names, room, &err), XPE_OK);
    room[0] = room[2] = both - 1;
    assert_int_equal(xpe_plan_admit(plan, names, room, &err), XPE_NO_DEVICE_MEMORY);
    assert_int_equal(err.bytes_needed, both);
    assert_non_null(strstr(err.text, "2 shards"));
    xpe_plan_destroy(plan);
}

static void refusal_names_needed_free_and_short(void **state)
{
    static const char *const names[] = {"cuda:0"};
    xpe_plan_shard shard = {.bytes = INT64_C(61) << 30};
    int64_t room = INT64_C(48) << 30;
    const xpe_plan plan = {1, &shard, NULL};
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_plan_admit(&plan, names, &room, &err), XPE_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.text, "'cuda:0'"));
    assert_non_null(strstr(err.text, "61.0 GiB"));
    assert_non_null(strstr(err.text, "48.0 GiB free"));
    assert_non_null(strstr(err.text, "short by 13.0 GiB"));
    assert_int_equal(xpe_plan_admit(&plan, names, &room, NULL), XPE_NO_DEVICE_MEMORY);
}

static void destroying_nothing_is_fine(void **state)
{
    (void)state;
    xpe_plan_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(division_is_that_of_the_reference_program),
        cmocka_unit_test(bands_are_cut_at_halves_to_even),
        cmocka_unit_test(frames_of_one_row_keep_their_order),
        cmocka_unit_test(the_first_blocks_get_the_frames_left_over),
        cmocka_unit_test(every_division_is_complete_and_without_overlap),
        cmocka_unit_test(bytes_hold_the_frames_and_the_sums),
        cmocka_unit_test(more_modes_and_an_estimated_probe_need_more_bytes),
        cmocka_unit_test(more_devices_than_positions_are_refused_with_both_numbers),
        cmocka_unit_test(more_devices_than_rows_are_refused_with_both_numbers),
        cmocka_unit_test(fewer_than_one_device_is_refused),
        cmocka_unit_test(a_device_with_just_enough_is_admitted_and_one_byte_less_is_not),
        cmocka_unit_test(shards_of_one_device_share_its_bytes),
        cmocka_unit_test(refusal_names_needed_free_and_short),
        cmocka_unit_test(destroying_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
