/* Relaxed updates, guarded division and outliers, one pixel (math/relax.h). */
#include "math/relax.h"

#include "synthetic.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void divider_times_b_is_nearly_one(void **state)
{
    xpt_random r = {1};

    (void)state;
    for (int i = 0; i < 10000; i++) {
        xpe_c32 b = xpe_c((float)xpt_random_sign(&r), (float)xpt_random_sign(&r));
        float eps = 1e-6f;
        xpe_c32 one = xpe_mul(b, xpe_divider(b, eps));
        double energy = (double)xpe_energy(b), exact = energy / (energy + 1e-6);
        assert_true(fabs((double)one.re - exact) < 4e-7 && fabs((double)one.im) < 4e-7);
    }
}

static void divider_of_zero_is_zero_and_finite(void **state)
{
    xpe_c32 d = xpe_divider(xpe_c(0, 0), 1e-6f);

    (void)state;
    assert_true(d.re == 0.0f && d.im == 0.0f);
    d = xpe_divider(xpe_c(-0.0f, -0.0f), 1e-6f);
    assert_true(d.re == 0.0f && d.im == 0.0f);
}

static void divider_is_at_most_half_over_the_root_of_eps(void **state)
{
    (void)state; /* what the bounds of the probe sums rest on */
    for (double size = 1e-6; size < 1e3; size *= 1.1) {
        xpe_c32 d = xpe_divider(xpe_c((float)size, 0), 1e-4f);
        assert_true((double)d.re <= 0.5 / 1e-2 * (1 + 1e-6));
    }
}

static void advance_and_retreat_undo_each_other(void **state)
{
    xpe_c32 v = xpe_c(1.5f, -2.0f), z = xpe_c(0.25f, 4.0f), a = xpe_advance(v, z, 1.0f),
            b = xpe_retreat(a, z, 1.0f);

    (void)state;
    assert_true(a.re == 1.75f && a.im == 2.0f);
    assert_true(b.re == v.re && b.im == v.im);
    a = xpe_advance(v, z, 0.0f);
    assert_true(a.re == v.re && a.im == v.im);
}

static void blend_keeps_one_minus_alpha_of_the_patch(void **state)
{
    xpe_c32 w = xpe_blend(xpe_c(2, -4), xpe_c(1, 1), 0.25f);

    (void)state;
    assert_true(w.re == 1.5f && w.im == 0.0f);
    w = xpe_blend(xpe_c(2, -4), xpe_c(1, 1), 0.0f); /* alpha = 1: the data alone */
    assert_true(w.re == 1.0f && w.im == 1.0f);
}

static void deviation_is_a_distance(void **state)
{
    (void)state;
    assert_true(xpe_deviation(xpe_c(4, 6), xpe_c(1, 2)) == 5.0f);
    assert_true(xpe_deviation(xpe_c(1, 2), xpe_c(1, 2)) == 0.0f);
}

static bool replaced(float deviation, float mean)
{
    xpe_c32 out = xpe_replace_outlier(xpe_c(1 + deviation, 0), xpe_c(1, 0), mean);

    return out.re == 1.0f;
}

static void outliers_are_strictly_above_one_and_a_half(void **state)
{
    /* a score of exactly 1.5: 0.6745f * 1 / (0.6745f / 1.5f) may round; 0.6745f / m = 1.5f at the m
     * found here */
    float m = 0.6745f / 1.5f;

    (void)state;
    while (0.6745f * 1.0f / m < 1.5f)
        m = nextafterf(m, 0);
    while (0.6745f * 1.0f / m > 1.5f)
        m = nextafterf(m, 1);
    assert_true(0.6745f * 1.0f / m == 1.5f);
    assert_false(replaced(1.0f, m)); /* trap 7 */
    while (0.6745f * 1.0f / m == 1.5f)
        m = nextafterf(m, 0);
    assert_true(replaced(1.0f, m));
}

static void a_lone_copy_among_equal_ones_is_an_outlier(void **state)
{
    (void)state;
    assert_true(replaced(0.5f, 1e-6f));
    assert_true(replaced(0.5f, 0.5f / 49));
    assert_false(replaced(0.5f, 0.5f / 2));
}

static void all_copies_at_one_distance_stay(void **state)
{
    (void)state;
    for (float x = 0.125f; x < 100; x *= 1.5f)
        assert_false(replaced(x, x));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divider_times_b_is_nearly_one),
        cmocka_unit_test(divider_of_zero_is_zero_and_finite),
        cmocka_unit_test(divider_is_at_most_half_over_the_root_of_eps),
        cmocka_unit_test(advance_and_retreat_undo_each_other),
        cmocka_unit_test(blend_keeps_one_minus_alpha_of_the_patch),
        cmocka_unit_test(deviation_is_a_distance),
        cmocka_unit_test(outliers_are_strictly_above_one_and_a_half),
        cmocka_unit_test(a_lone_copy_among_equal_ones_is_an_outlier),
        cmocka_unit_test(all_copies_at_one_distance_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
