/* Pixel counts, steps and probe widths (engine/io/read/pixels.c). */
#include "io/read/read.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void a_pixel_is_of_one_kind_only(void **state)
{
    const int16_t frame[4] = {-3, INT16_MAX, 50, 7};
    const float floats[4] = {NAN, INFINITY, -2, 60};
    xpe_pixel_stats s = {0};

    (void)state;
    xpe_pixel_stats_add(&s, frame, XPE_I16, 1, 2, 50);
    assert_int_equal(s.negative, 1);
    assert_int_equal(s.type_max, 1);
    assert_int_equal(s.saturated, 1);
    assert_float_equal(s.sum, 7, 0);
    assert_int_equal(xpe_pixel_stats_masked(&s), 3);
    xpe_pixel_stats_add(&s, floats, XPE_F32, 1, 2, 0);
    assert_int_equal(s.not_finite, 2);
    assert_int_equal(s.negative, 1); /* a negative float is a count of 0 */
    assert_float_equal(s.max, 60, 0);
}

static void the_largest_value_masks_integers_of_every_width(void **state)
{
    const uint8_t a[4] = {UINT8_MAX, 1, 1, 1};
    const uint16_t b[4] = {UINT16_MAX, 1, 1, 1};
    const uint32_t c[4] = {UINT32_MAX, 1, 1, 1};
    const uint64_t d[4] = {UINT64_MAX, 1, 1, 1};
    const int8_t e[4] = {INT8_MAX, -1, 1, 1};
    const int32_t f[4] = {INT32_MAX, -1, 1, 1};
    const int64_t g[4] = {INT64_MAX, -1, 1, 1};
    const void *frames[] = {a, b, c, d, e, f, g};
    const xpe_type types[] = {XPE_U8, XPE_U16, XPE_U32, XPE_U64, XPE_I8, XPE_I32, XPE_I64};

    (void)state;
    for (size_t i = 0; i < 7; i++) {
        xpe_pixel_stats s = {0};
        xpe_pixel_stats_add(&s, frames[i], types[i], 1, 2, 0);
        assert_int_equal(s.type_max, 1);
        assert_int_equal(s.negative, i >= 4);
    }
}

static void frames_of_zeros_are_counted(void **state)
{
    const double frames[12] = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    xpe_pixel_stats s = {0};

    (void)state;
    xpe_pixel_stats_add(&s, frames, XPE_F64, 3, 2, 0);
    assert_int_equal(s.frames, 3);
    assert_int_equal(s.zero_frames, 2);
    assert_int_equal(s.pixels, 12);
}

static void step_is_the_median_distance_to_the_nearest_neighbour(void **state)
{
    double grid[2 * 25], pair[4] = {0, 0, 3, 4};

    (void)state;
    for (int j = 0; j < 25; j++) {
        grid[2 * j] = j / 5 * 2.0;
        grid[2 * j + 1] = j % 5 * 3.0;
    }
    assert_float_equal(xpe_position_step(grid, 25), 2, 1e-12);
    assert_float_equal(xpe_position_step(pair, 2), 5, 1e-12);
    assert_float_equal(xpe_position_step(pair, 1), 0, 0);
}

static void probe_width_of_a_gaussian_is_four_sigma(void **state)
{
    enum { n = 64 };
    const double sigma = 3; /* of the intensity |d|^2, in object pixels */
    double *mean = calloc(n * n, sizeof *mean), width[2];

    (void)state;
    /* d = exp(-r^2 / 4 sigma^2) transforms to exp(-sigma^2 q^2), q = 2 pi k / n */
    for (int r = 0; r < n; r++)
        for (int c = 0; c < n; c++) {
            double q = 2 * acos(-1.0) / n, row = (r - n / 2) * q, col = (c - n / 2) * q;
            mean[r * n + c] = exp(-sigma * sigma * (row * row + col * col));
        }
    xpe_probe_width(width, mean, n);
    assert_float_equal(width[0], 4 * sigma, 0.3);
    assert_float_equal(width[1], 4 * sigma, 0.3);
    free(mean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pixel_is_of_one_kind_only),
        cmocka_unit_test(the_largest_value_masks_integers_of_every_width),
        cmocka_unit_test(frames_of_zeros_are_counted),
        cmocka_unit_test(step_is_the_median_distance_to_the_nearest_neighbour),
        cmocka_unit_test(probe_width_of_a_gaussian_is_four_sigma),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
