/* Object pixel, object grid and first pixels (core/grid.c): algorithm.md 1 and trap 13. */
#include "xptychod/engine.h"

#include "engine_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Positions in pixels of exactly 1 m, so that halves are exact. */
static xpe_scan scan_of(const double *positions, int64_t frames, int64_t n)
{
    return (xpe_scan){.num_frames = frames,
                      .n = n,
                      .positions = positions,
                      .wavelength_m = 1,
                      .detector_distance_m = (double)n,
                      .detector_pitch_m = 1};
}

static xpe_grid derive(const xpe_scan *scan, const xpe_grid_wish *wish, int32_t *first)
{
    xpe_grid grid;
    xpe_error err;

    if (xpe_grid_derive(&grid, first, scan, wish, &err) != XPE_OK)
        fail_msg("%s", err.text);
    return grid;
}

static void refuse(const xpe_scan *scan, const xpe_grid_wish *wish, const char *pointer,
                   const char *part)
{
    xpe_grid grid;
    xpe_error err = {0};

    assert_int_equal(xpe_grid_derive(&grid, NULL, scan, wish, &err), XPE_INVALID);
    assert_string_equal(err.pointer, pointer);
    xpt_assert_refused(&err, XPE_INVALID, part);
}

static void pixel_pitch_is_wavelength_times_distance_over_the_detector(void **state)
{
    (void)state;
    assert_true(fabs(xpe_pixel_pitch(1e-10, 2.0, 5e-5, 128) / (1e-10 * 2 / (128 * 5e-5)) - 1) <
                1e-15);
}

static void nothing_given_makes_the_smallest_grid_that_holds_every_patch(void **state)
{
    static const double at[] = {10.2, -3.9, 12.8, 7.1, 11, 0};
    xpe_scan scan = scan_of(at, 3, 4);
    int32_t first[6];
    xpe_grid grid = derive(&scan, NULL, first);

    (void)state;
    assert_true(grid.origin_m[0] == 8 &&
                grid.origin_m[1] == -6); /* round(10.2) - 2, round(-3.9) - 2 */
    assert_int_equal(grid.rows, 3 + 4);  /* 12.8 - 8 rounds to 5, less 2 */
    assert_int_equal(grid.cols, 11 + 4);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], 0);
    assert_int_equal(first[2], 3);
    assert_int_equal(first[3], 11);
    assert_int_equal(first[4], 1);
    assert_int_equal(first[5], 4);
}

static void positions_at_halves_round_to_even(void **state)
{
    static const double at[] = {2, 2, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5};
    static const double origin[2] = {0, 0};
    static const int64_t shape[2] = {20, 20};
    static const int32_t right[] = {0, 0, 0, 2, 2, 4, 4, 6};
    xpe_grid_wish wish = {shape, origin};
    xpe_scan scan = scan_of(at, 4, 4);
    int32_t first[8];

    (void)state;
    (void)derive(&scan, &wish, first);
    assert_memory_equal(first, right, sizeof right);
}

/* Trap 13: with n/2 odd the least first pixel of a derived grid can be 1 away from 0 at exact ties.
 */
static void a_tie_with_an_odd_half_frame_follows_the_two_roundings(void **state)
{
    static const double at[] = {2.5, 4.5};
    xpe_scan scan = scan_of(at, 1, 6);
    int32_t first[2];
    xpe_grid grid = derive(&scan, NULL, first);

    (void)state;
    assert_true(grid.origin_m[0] == -1 && grid.origin_m[1] == 1); /* rint(2.5) - 3, rint(4.5) - 3 */
    assert_int_equal(first[0], 1);                                /* rint(2.5 + 1) - 3 */
    assert_int_equal(first[1], 1);                                /* rint(4.5 - 1) - 3 */
    assert_int_equal(grid.rows, 7);
}

static void origin_alone_derives_the_shape(void **state)
{
    static const double at[] = {10, 10, 14, 13}, origin[2] = {5, 6};
    xpe_grid_wish wish = {NULL, origin};
    xpe_scan scan = scan_of(at, 2, 4);
    int32_t first[4];
    xpe_grid grid = derive(&scan, &wish, first);

    (void)state;
    assert_int_equal(first[0], 3);
    assert_int_equal(first[1], 2);
    assert_int_equal(grid.rows, 7 + 4);
    assert_int_equal(grid.cols, 5 + 4);
    assert_true(grid.origin_m[0] == 5 && grid.origin_m[1] == 6);
}

static void shape_alone_puts_the_middle_at_zero(void **state)
{
    static const double at[] = {0, 0, -2, 3};
    static const int64_t shape[2] = {11, 12};
    xpe_grid_wish wish = {shape, NULL};
    xpe_scan scan = scan_of(at, 2, 4);
    int32_t first[4];
    xpe_grid grid = derive(&scan, &wish, first);

    (void)state;
    assert_true(grid.origin_m[0] == -5 && grid.origin_m[1] == -6); /* integer division */
    assert_int_equal(first[0], 5 - 2);
    assert_int_equal(first[1], 6 - 2);
    assert_int_equal(grid.rows, 11);
    assert_int_equal(grid.cols, 12);
}

static void shape_and_origin_are_taken_as_they_are(void **state)
{
    static const double at[] = {4, 4}, origin[2] = {1, 2};
    static const int64_t shape[2] = {30, 40};
    xpe_grid_wish wish = {shape, origin};
    xpe_scan scan = scan_of(at, 1, 4);
    int32_t first[2];
    xpe_grid grid = derive(&scan, &wish, first);

    (void)state;
    assert_int_equal(first[0], 1);
    assert_int_equal(first[1], 0);
    assert_int_equal(grid.rows, 30);
    assert_int_equal(grid.cols, 40);
}

static void shifting_all_positions_only_shifts_the_origin(void **state)
{
    xpt_random r = {1};
    double at[20], moved[20];
    xpe_scan a = scan_of(at, 10, 8), b = scan_of(moved, 10, 8);
    int32_t first_a[20], first_b[20];
    xpe_grid grid_a, grid_b;

    (void)state;
    for (int i = 0; i < 20; i++) {
        at[i] = floor(4096 * 30 * xpt_random_unit(&r)) / 4096; /* exact after the shift, too */
        moved[i] = at[i] + (i % 2 ? -1000 : 64);
    }
    grid_a = derive(&a, NULL, first_a);
    grid_b = derive(&b, NULL, first_b);
    assert_memory_equal(first_a, first_b, sizeof first_a);
    assert_int_equal(grid_a.rows, grid_b.rows);
    assert_int_equal(grid_a.cols, grid_b.cols);
    assert_true(grid_b.origin_m[0] == grid_a.origin_m[0] + 64 &&
                grid_b.origin_m[1] == grid_a.origin_m[1] - 1000);
}

static void frames_of_two_pixels_and_one_position_do(void **state)
{
    static const double at[] = {0.25, -0.25};
    xpe_scan scan = scan_of(at, 1, 2);
    int32_t first[2];
    xpe_grid grid = derive(&scan, NULL, first);

    (void)state;
    assert_int_equal(grid.rows, 2);
    assert_int_equal(grid.cols, 2);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], 0);
}

/* ------------------------------------------------------------------------------------ refusals */

static const double zero[2] = {0, 0};

static void odd_sides_are_refused_with_what_would_work(void **state)
{
    xpe_scan scan = scan_of(zero, 1, 127);

    (void)state;
    refuse(&scan, NULL, "/scan/path", "127 pixels wide");
    refuse(&scan, NULL, "/scan/path", "crop or pad them to 126");
    scan.n = 1;
    refuse(&scan, NULL, "/scan/path", "to 2");
    scan.n = 0;
    refuse(&scan, NULL, "/scan/path", "0 pixels wide");
    scan.n = -2;
    refuse(&scan, NULL, "/scan/path", "-2 pixels wide");
    scan.n = 16386;
    refuse(&scan, NULL, "/scan/path", "16384");
}

static void scans_without_frames_are_refused(void **state)
{
    xpe_scan scan = scan_of(zero, 0, 4);

    (void)state;
    refuse(&scan, NULL, "/scan/path", "no frames");
    scan.num_frames = -1;
    refuse(&scan, NULL, "/scan/path", "no frames");
    scan.num_frames = (int64_t)INT32_MAX + 1;
    refuse(&scan, NULL, "/scan/path", "2147483648 frames");
}

static void lengths_that_are_not_positive_and_finite_are_refused(void **state)
{
    static const double bad[] = {0, -1, NAN, INFINITY};

    (void)state;
    for (int i = 0; i < 4; i++) {
        xpe_scan scan = scan_of(zero, 1, 4);
        scan.wavelength_m = bad[i];
        refuse(&scan, NULL, "/scan/geometry/wavelength_m", "wavelength");
        scan = scan_of(zero, 1, 4);
        scan.detector_distance_m = bad[i];
        refuse(&scan, NULL, "/scan/geometry/detector_distance_m", "distance");
        scan = scan_of(zero, 1, 4);
        scan.detector_pitch_m = bad[i];
        refuse(&scan, NULL, "/scan/geometry/detector_pitch_m", "pitch");
    }
}

static void an_object_pixel_that_overflows_or_vanishes_is_refused(void **state)
{
    xpe_scan scan = scan_of(zero, 1, 4);

    (void)state;
    scan.wavelength_m = 1e300;
    scan.detector_distance_m = 1e300;
    refuse(&scan, NULL, "/scan/geometry", "object pixel");
    scan.wavelength_m = 1e-300;
    scan.detector_distance_m = 1e-300;
    refuse(&scan, NULL, "/scan/geometry", "object pixel");
}

static void positions_that_are_not_finite_are_refused_by_number(void **state)
{
    double at[] = {0, 0, 1, NAN, 2, 2};
    xpe_scan scan = scan_of(at, 3, 4);

    (void)state;
    refuse(&scan, NULL, "/scan/path", "frame 1");
    at[3] = 1;
    at[4] = -INFINITY;
    refuse(&scan, NULL, "/scan/path", "frame 2");
}

static void patches_outside_a_stated_grid_are_refused_with_their_rows(void **state)
{
    static const double at[] = {4, 4, 9, 4}, origin[2] = {0, 0};
    static const int64_t shape[2] = {10, 10};
    xpe_grid_wish wish = {shape, origin};
    xpe_scan scan = scan_of(at, 2, 4);

    (void)state;
    refuse(&scan, &wish, "/model/object_shape", "frame 1 covers object rows 7 to 10");
    refuse(&scan, &wish, "/model/object_shape", "rows 0 to 9");
}

static void patches_before_a_stated_origin_are_refused(void **state)
{
    static const double at[] = {4, 4}, origin[2] = {0, 3};
    xpe_grid_wish wish = {NULL, origin};
    xpe_scan scan = scan_of(at, 1, 4);

    (void)state;
    refuse(&scan, &wish, "/model/object_origin_m", "columns -1 to 2");
}

static void the_last_row_and_column_that_fit_are_accepted(void **state)
{
    static const double at[] = {2, 2, 8, 8}, origin[2] = {0, 0};
    static const int64_t shape[2] = {10, 10};
    xpe_grid_wish wish = {shape, origin};
    xpe_scan scan = scan_of(at, 2, 4);
    int32_t first[4];

    (void)state;
    (void)derive(&scan, &wish, first);
    assert_int_equal(first[2], 6);
}

static void absurd_units_are_refused_before_anything_is_allocated(void **state)
{
    static const double at[] = {0, 0, 3e9, 0}, far[] = {0, 0, 1e300, 1e300},
                        wide[] = {0, 0, 2e6, 2e6};
    xpe_scan scan = scan_of(at, 2, 4);

    (void)state;
    refuse(&scan, NULL, "/scan/path", "check the units of the positions");
    scan.positions = far;
    refuse(&scan, NULL, "/scan/path", "check the units of the positions");
    scan.positions = wide; /* each side is fine, the whole is not */
    refuse(&scan, NULL, "/scan/path", "2^40");
}

static void stated_grids_that_make_no_sense_are_refused(void **state)
{
    static const int64_t none[2] = {0, 10}, negative[2] = {10, -3},
                         huge[2] = {INT64_MAX, INT64_MAX};
    static const double origin[2] = {0, NAN};
    xpe_scan scan = scan_of(zero, 1, 4);
    xpe_grid_wish wish = {none, NULL};

    (void)state;
    refuse(&scan, &wish, "/model/object_shape", "0 rows");
    wish.shape = negative;
    refuse(&scan, &wish, "/model/object_shape", "-3 columns");
    wish.shape = huge;
    refuse(&scan, &wish, "/scan/path", "2^40");
    wish = (xpe_grid_wish){NULL, origin};
    refuse(&scan, &wish, "/model/object_origin_m", "finite");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixel_pitch_is_wavelength_times_distance_over_the_detector),
        cmocka_unit_test(nothing_given_makes_the_smallest_grid_that_holds_every_patch),
        cmocka_unit_test(positions_at_halves_round_to_even),
        cmocka_unit_test(a_tie_with_an_odd_half_frame_follows_the_two_roundings),
        cmocka_unit_test(origin_alone_derives_the_shape),
        cmocka_unit_test(shape_alone_puts_the_middle_at_zero),
        cmocka_unit_test(shape_and_origin_are_taken_as_they_are),
        cmocka_unit_test(shifting_all_positions_only_shifts_the_origin),
        cmocka_unit_test(frames_of_two_pixels_and_one_position_do),
        cmocka_unit_test(odd_sides_are_refused_with_what_would_work),
        cmocka_unit_test(scans_without_frames_are_refused),
        cmocka_unit_test(lengths_that_are_not_positive_and_finite_are_refused),
        cmocka_unit_test(an_object_pixel_that_overflows_or_vanishes_is_refused),
        cmocka_unit_test(positions_that_are_not_finite_are_refused_by_number),
        cmocka_unit_test(patches_outside_a_stated_grid_are_refused_with_their_rows),
        cmocka_unit_test(patches_before_a_stated_origin_are_refused),
        cmocka_unit_test(the_last_row_and_column_that_fit_are_accepted),
        cmocka_unit_test(absurd_units_are_refused_before_anything_is_allocated),
        cmocka_unit_test(stated_grids_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
