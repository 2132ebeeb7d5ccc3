/* Sums that do not depend on their order (math/fixsum.h). */
#include "math/fixsum.h"

#include "synthetic.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static int64_t fix(float x, xpe_unit u)
{
    return xpe_fix(x, u.magic, u.bias);
}

static void halves_are_rounded_to_even(void **state)
{
    xpe_unit u = {1.0, 0x1.8p52, xpe_fix_bits(0x1.8p52)};

    (void)state;
    assert_int_equal(fix(0.5f, u), 0);
    assert_int_equal(fix(1.5f, u), 2);
    assert_int_equal(fix(2.5f, u), 2);
    assert_int_equal(fix(3.5f, u), 4);
    assert_int_equal(fix(-0.5f, u), 0);
    assert_int_equal(fix(-1.5f, u), -2);
    assert_int_equal(fix(-2.5f, u), -2);
    assert_int_equal(fix(0.50001f, u), 1);
    assert_int_equal(fix(-0.50001f, u), -1);
}

static void rounding_agrees_with_rint_at_every_unit(void **state)
{
    xpt_random r = {1};

    (void)state;
    for (int i = 0; i < 100000; i++) {
        double bound = ldexp(0.5 + xpt_random_unit(&r), (int)xpt_random_below(&r, 100) - 50);
        xpe_unit u = xpe_unit_make(bound, 1 + xpt_random_below(&r, 1000000));
        float x = (float)(xpt_random_sign(&r) * bound);
        assert_true((double)fix(x, u) == rint((double)x / u.unit));
    }
}

static void zeros_of_both_signs_and_denormals_are_nothing(void **state)
{
    xpe_unit u = xpe_unit_make(1, 1000);

    (void)state;
    assert_int_equal(fix(0.0f, u), 0);
    assert_int_equal(fix(-0.0f, u), 0);
    assert_int_equal(fix(FLT_TRUE_MIN, u), 0);
    assert_int_equal(fix(-FLT_TRUE_MIN, u), 0);
}

static void the_negative_of_a_value_is_the_negative_of_its_integer(void **state)
{
    xpt_random r = {2};
    xpe_unit u = xpe_unit_make(3, 77);

    (void)state;
    for (int i = 0; i < 10000; i++) {
        float x = (float)(3 * xpt_random_sign(&r));
        assert_int_equal(fix(-x, u), -fix(x, u));
    }
}

static void every_order_and_every_split_gives_the_same_sum(void **state)
{
    enum { COUNT = 1000 };
    static float x[COUNT];
    xpt_random r = {3};
    xpe_unit u = xpe_unit_make(1e4, COUNT);
    int64_t straight = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++) { /* values of very different sizes */
        x[i] = (float)(1e4 * xpt_random_sign(&r) * pow(10, -8 * xpt_random_unit(&r)));
        straight += fix(x[i], u);
    }
    for (int pass = 0; pass < 200; pass++) {
        int64_t part[7] = {0}, total = 0;
        for (int i = COUNT - 1; i > 0; i--) {
            int k = (int)xpt_random_below(&r, i + 1);
            float swap = x[i];
            x[i] = x[k];
            x[k] = swap;
        }
        for (int i = 0; i < COUNT; i++)
            part[xpt_random_below(&r, 7)] += fix(x[i], u);
        for (int i = 0; i < 7; i++)
            total += part[i];
        assert_int_equal(total, straight);
    }
}

static void float_sums_would_depend_on_the_order(void **state)
{
    float up = 0, down = 0; /* so the test above tests something */
    xpt_random a = {4}, values[1000];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        values[i] = a;
        up += (float)xpt_random_sign(&a);
    }
    for (int i = 999; i >= 0; i--)
        down += (float)xpt_random_sign(&values[i]);
    assert_true(up != down);
}

static void the_unit_is_a_power_of_two_that_bounds_contribution_and_sum(void **state)
{
    static const double bounds[] = {1, 0.999, 1.001, 2, 1e-30, 1e30, 3e38, 1e-300, 5e-324, 1e200};
    static const int64_t counts[] = {
        1, 2, 3, 4, 1023, 1024, 1025, 1 << 20, INT64_C(1) << 40, (INT64_C(1) << 40) + 1};

    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            xpe_unit u = xpe_unit_make(bounds[i], counts[k]);
            int exponent;
            double most = bounds[i] / u.unit; /* units of the largest contribution */
            assert_true(frexp(u.unit, &exponent) == 0.5);
            assert_true(most <= 0x1p50 + 1);
            assert_true(most * (double)counts[k] < 0x1p63);
            assert_true(u.magic == 0x1.8p52 * u.unit);
            assert_int_equal(u.bias, xpe_fix_bits(u.magic));
        }
}

static void the_largest_sum_does_not_overflow(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 5000; count = count * 3 / 2 + 1) {
        xpe_unit u = xpe_unit_make(1.0, count);
        int64_t sum = 0;
        for (int64_t i = 0; i < count; i++)
            assert_false(__builtin_add_overflow(sum, fix(i % 2 ? 1.0f : 0x1.fffffep-1f, u), &sum));
        assert_true(sum > 0);
        assert_true(fabs(xpe_unfix(sum, u.unit) - (double)count) < 1e-6 * (double)count);
    }
}

/* algorithm.md 5: the error of a sum is at most 2^-30 of the largest sum of its array. */
static void the_error_of_a_sum_is_below_two_to_the_minus_30(void **state)
{
    xpt_random r = {5};

    (void)state;
    for (int64_t count = 1; count <= 100000; count *= 10) {
        xpe_unit u = xpe_unit_make(1.0, count);
        int64_t sum = 0;
        double exact = 0, largest = 0;
        for (int64_t i = 0; i < count; i++) {
            float x = (float)xpt_random_unit(&r);
            sum += fix(x, u);
            exact += (double)x;
            largest += 1.0;
        }
        assert_true(fabs(xpe_unfix(sum, u.unit) - exact) <= largest * 0x1p-30);
    }
}

static void unfix_is_the_inverse_of_fix_on_multiples_of_the_unit(void **state)
{
    xpe_unit u = xpe_unit_make(8, 16);

    (void)state;
    for (int i = -8; i <= 8; i++)
        assert_true(xpe_unfix(fix((float)i, u), u.unit) == (double)i);
    assert_true(xpe_unfix(0, u.unit) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_rounded_to_even),
        cmocka_unit_test(rounding_agrees_with_rint_at_every_unit),
        cmocka_unit_test(zeros_of_both_signs_and_denormals_are_nothing),
        cmocka_unit_test(the_negative_of_a_value_is_the_negative_of_its_integer),
        cmocka_unit_test(every_order_and_every_split_gives_the_same_sum),
        cmocka_unit_test(float_sums_would_depend_on_the_order),
        cmocka_unit_test(the_unit_is_a_power_of_two_that_bounds_contribution_and_sum),
        cmocka_unit_test(the_largest_sum_does_not_overflow),
        cmocka_unit_test(the_error_of_a_sum_is_below_two_to_the_minus_30),
        cmocka_unit_test(unfix_is_the_inverse_of_fix_on_multiples_of_the_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
