/* Averages, modes and counts of one pixel (math/average.h, count.h, order.h). */
#include "math/average.h"
#include "math/count.h"
#include "math/order.h"

#include "synthetic.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* One patch w with weight L everywhere, v = 0 before: z = 2 w and the patch after step 2 is 2 w (2
 * rho) - 2 rho w. */
static void averages_of_one_patch_are_the_patch(void **state)
{
    xpt_random r = {3};

    (void)state;
    for (int i = 0; i < 1000; i++) {
        double w = xpt_random_sign(&r), l = 0.1 + xpt_random_unit(&r), rho = xpt_random_unit(&r);
        double q = xpe_cover_factor(l, 1.0, 0.0);
        double z = xpe_average_z(w * l, 0.0, q);
        assert_true(fabs(z - 2 * w * (1 + 1e-6)) < 1e-12);
        assert_true(fabs(xpe_average_v(0.0, w * l, z, l, 2 * rho) - 2 * rho * l * (z - w)) < 1e-12);
    }
}

static void nothing_covered_gives_nothing(void **state)
{
    (void)state;
    assert_true(xpe_cover_factor(0.0, 1.0, 1e-6) == 0.0);
}

/* Copies that are all s, fitted to r: u = 2 r - s, d = s + 2 rho (u - r). */
static void mode_averages_of_equal_copies_are_theirs(void **state)
{
    (void)state;
    for (int frames = 1; frames < 50; frames += 7) {
        double s = 0.75, fit = 0.5, u = (double)xpe_mode_u(fit * frames, s * frames, frames);
        assert_true(u == 0.25);
        assert_true(xpe_mode_d(fit * frames, s * frames, u, frames, 0.5) ==
                    (float)(s + 0.5 * (u - fit)));
        assert_true(xpe_mode_deviation(0.125 * frames, frames) == 0.125f);
        assert_true(xpe_mode_deviation(0.0, frames) == 1e-6f);
    }
}

static void power_agrees_with_pow_at_every_exponent(void **state)
{
    static const double exponents[] = {1.0, 1.1, 1.25, 1.5, 1.7, 2.0};

    (void)state;
    for (size_t k = 0; k < sizeof exponents / sizeof *exponents; k++)
        for (double size = 1e-6; size < 1e4; size *= 1.7) {
            double got = (double)xpe_power((float)(size * size), exponents[k]);
            assert_true(fabs(got / pow(size, exponents[k]) - 1) < 8 * (double)FLT_EPSILON);
        }
}

static void counts_that_say_nothing_are_masked(void **state)
{
    (void)state;
    assert_true(xpe_amplitude(xpe_count_uint8(255), 0) == XPE_MASKED);
    assert_true(xpe_amplitude(xpe_count_uint8(254), 0) == sqrtf(254));
    assert_true(xpe_amplitude(xpe_count_int16(-1), 0) == XPE_MASKED);
    assert_true(xpe_amplitude(xpe_count_uint64(UINT64_MAX), 0) == XPE_MASKED);
    assert_true(xpe_amplitude(xpe_count_float32(-3.0f), 0) == 0.0f);
    assert_true(xpe_amplitude(xpe_count_float64((double)NAN), 0) == XPE_MASKED);
    assert_true(xpe_amplitude(xpe_count_float32(INFINITY), 0) == XPE_MASKED);
    assert_true(xpe_amplitude(100, 100) == XPE_MASKED);
    assert_true(xpe_amplitude(99, 100) == sqrtf(99));
}

static void order_of_bits_is_order_of_sizes_and_nan_comes_out_on_top(void **state)
{
    (void)state;
    for (float x = 1e-38f; x < 1e38f; x *= 3)
        assert_true(xpe_order_bits(x) < xpe_order_bits(x * 1.5f));
    assert_true(xpe_order_bits(NAN) > xpe_order_bits(INFINITY));
    assert_true(xpe_order_bits(-0.0f) == xpe_order_bits(0.0f));
    assert_true(isnan(xpe_larger((double)NAN, 1)) && isnan(xpe_larger(1, (double)NAN)));
    assert_true(xpe_larger(1, 2) == 2.0 && xpe_larger(2, 1) == 2.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_of_one_patch_are_the_patch),
        cmocka_unit_test(nothing_covered_gives_nothing),
        cmocka_unit_test(mode_averages_of_equal_copies_are_theirs),
        cmocka_unit_test(power_agrees_with_pow_at_every_exponent),
        cmocka_unit_test(counts_that_say_nothing_are_masked),
        cmocka_unit_test(order_of_bits_is_order_of_sizes_and_nan_comes_out_on_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
