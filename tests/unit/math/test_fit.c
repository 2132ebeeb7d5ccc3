/* Bringing a field to the data, one pixel (math/fit.h); algorithm.md 3 and its masked pixels. */
#include "math/fit.h"

#include "synthetic.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 3e-7 * fabs(b); /* a few roundings of float32 */
}

static void gain_is_the_root_of_the_ratio_with_an_absolute_guard(void **state)
{
    xpt_random r = {1};

    (void)state;
    for (int i = 0; i < 10000; i++) {
        float y = (float)(30 * xpt_random_unit(&r)),
              intensity = (float)pow(10, 12 * xpt_random_unit(&r) - 9);
        double exact = sqrt((double)y * (double)y / ((double)intensity + 1e-6));
        assert_true(near((double)xpe_gain(y, intensity), exact));
    }
}

static void gain_depends_on_the_scale_of_the_counts(void **state)
{
    (void)state; /* trap 2: the guard is absolute, so 1e-6 of intensity halves the square */
    assert_true(near((double)xpe_gain(1e-3f, 1e-6f), sqrt(0.5)));
    assert_true(near((double)xpe_gain(1e-3f, 0.0f), 1.0));
    assert_true(near((double)xpe_gain(1e3f, 1e6f), 1.0));
}

static void gain_of_a_zero_amplitude_is_zero_for_either_sign_of_zero(void **state)
{
    (void)state;
    assert_true(xpe_gain(0.0f, 1.0f) == 0.0f);
    assert_true(xpe_gain(-0.0f, 1.0f) == 0.0f);
    assert_true(xpe_gain(0.0f, 0.0f) == 0.0f);
}

static void a_masked_pixel_keeps_its_field(void **state)
{
    (void)state;
    assert_true(xpe_gain(-1.0f, 5.0f) == 1.0f);
    assert_true(xpe_gain(-1.0f, 0.0f) == 1.0f);
    assert_true(xpe_misfit(-1.0f, 9.0f) == 0.0f);
    assert_true(xpe_residual(-1.0f, 0.5f) == 0.0f); /* y^2 - I would be positive */
}

static void a_field_that_is_zero_stays_zero(void **state)
{
    static const float zeros[] = {0.0f, -0.0f};

    (void)state;
    for (int i = 0; i < 4; i++) {
        xpe_c32 g = xpe_c(zeros[i % 2], zeros[i / 2]),
                out = xpe_scale(g, xpe_gain(3.0f, xpe_energy(g)));
        assert_true(out.re == 0.0f && out.im == 0.0f);
    }
}

static void misfit_has_no_guard(void **state)
{
    (void)state; /* trap 2: step 7 has no 1e-6 */
    assert_true(xpe_misfit(0.0f, 0.0f) == 0.0f);
    assert_true(near((double)xpe_misfit(0.0f, 1e-10f), 1e-5));
    assert_true(near((double)xpe_misfit(2.0f, 9.0f), 1.0));
    assert_true(near((double)xpe_misfit(3.0f, 4.0f), -1.0));
}

static void residual_is_what_the_model_lacks_and_never_negative(void **state)
{
    (void)state;
    assert_true(near((double)xpe_residual(5.0f, 16.0f), 3.0));
    assert_true(xpe_residual(4.0f, 16.0f) == 0.0f);
    assert_true(xpe_residual(3.0f, 16.0f) == 0.0f);
    assert_true(xpe_residual(0.0f, 0.0f) == 0.0f);
    assert_true(xpe_residual(-0.0f, 0.0f) == 0.0f);
}

static void phase_scale_gives_the_wanted_magnitude(void **state)
{
    xpt_random r = {2};

    (void)state;
    for (int i = 0; i < 10000; i++) {
        xpe_c32 s = xpe_c((float)xpt_random_sign(&r), (float)xpt_random_sign(&r));
        float wanted = (float)(10 * xpt_random_unit(&r));
        xpe_c32 out = xpe_scale(s, xpe_phase_scale(wanted, xpe_energy(s)));
        assert_true(fabs(sqrt((double)xpe_energy(out)) - (double)wanted) <= 1e-6 * (double)wanted);
        assert_true(fabs((double)out.re * (double)s.im - (double)out.im * (double)s.re) <=
                    1e-6 * (double)wanted);
    }
    assert_true(xpe_phase_scale(7.0f, 0.0f) == 0.0f); /* the caller puts `wanted` itself */
}

static void complex_products_follow_the_rules_of_signs(void **state)
{
    xpe_c32 a = xpe_c(2, 3), b = xpe_c(-5, 7), p = xpe_mul(a, b), s = xpe_add(a, b),
            d = xpe_sub(a, b);

    (void)state;
    assert_true(p.re == -31.0f && p.im == -1.0f);
    assert_true(s.re == -3.0f && s.im == 10.0f);
    assert_true(d.re == 7.0f && d.im == -4.0f);
    assert_true(xpe_energy(a) == 13.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gain_is_the_root_of_the_ratio_with_an_absolute_guard),
        cmocka_unit_test(gain_depends_on_the_scale_of_the_counts),
        cmocka_unit_test(gain_of_a_zero_amplitude_is_zero_for_either_sign_of_zero),
        cmocka_unit_test(a_masked_pixel_keeps_its_field),
        cmocka_unit_test(a_field_that_is_zero_stays_zero),
        cmocka_unit_test(misfit_has_no_guard),
        cmocka_unit_test(residual_is_what_the_model_lacks_and_never_negative),
        cmocka_unit_test(phase_scale_gives_the_wanted_magnitude),
        cmocka_unit_test(complex_products_follow_the_rules_of_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
