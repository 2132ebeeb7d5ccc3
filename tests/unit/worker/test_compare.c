/* The error after one complex scale, and with a phase ramp taken off. */
#include "scene.h"

#include "compare.h"

enum { ROWS = 20, COLS = 30, STRIDE = 40 };

static void fill(xpe_c32 *v, double scale_re, double scale_im, double ramp_row, double ramp_col)
{
    xpd_random random;

    xpd_random_init(&random, 8, 8);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            double re = 1.0 + 0.2 * xpd_random_normal(&random),
                   im = 0.3 * xpd_random_normal(&random);
            double cs = cos(ramp_row * r + ramp_col * c), sn = sin(ramp_row * r + ramp_col * c);
            double tr = re * cs - im * sn, ti = re * sn + im * cs;

            v[r * STRIDE + c] = (xpe_c32){(float)(scale_re * tr - scale_im * ti),
                                          (float)(scale_re * ti + scale_im * tr)};
        }
}

static void scaled_copy_has_no_error(void **state)
{
    static xpe_c32 a[ROWS * STRIDE], b[ROWS * STRIDE];
    xpd_window image = {a, ROWS, COLS, STRIDE}, truth = {b, ROWS, COLS, STRIDE};
    xpd_difference d;

    (void)state;
    fill(a, 1.0, 0.0, 0.0, 0.0);
    fill(b, 0.6, -1.1, 0.0, 0.0);
    assert_true(xpd_difference_of(&d, &image, &truth));
    assert_true(d.nrmse < 1e-6);
    assert_close(d.scale[0], 0.6, 1e-5);
    assert_close(d.scale[1], -1.1, 1e-5);
}

static void ramp_is_found_and_taken_off(void **state)
{
    static xpe_c32 a[ROWS * STRIDE], b[ROWS * STRIDE];
    xpd_window image = {a, ROWS, COLS, STRIDE}, truth = {b, ROWS, COLS, STRIDE};
    xpd_difference d;

    (void)state;
    fill(a, 1.0, 0.0, 0.0, 0.0);
    fill(b, 1.0, 0.0, 0.11, -0.07);
    assert_true(xpd_difference_of(&d, &image, &truth));
    assert_true(d.nrmse > 0.3);
    assert_true(d.nrmse_ramp < 1e-5);
    assert_close(d.ramp[0], 0.11, 1e-5);
    assert_close(d.ramp[1], -0.07, 1e-5);
}

/* nrmse of a one-pixel change of size e in N unit pixels is close to e / sqrt(N). */
static void error_has_the_stated_size(void **state)
{
    static xpe_c32 a[ROWS * STRIDE], b[ROWS * STRIDE];
    xpd_window image = {a, ROWS, COLS, STRIDE}, truth = {b, ROWS, COLS, STRIDE};
    xpd_difference d;

    (void)state;
    for (int i = 0; i < ROWS * STRIDE; i++)
        a[i] = b[i] = (xpe_c32){1.0f, 0.0f};
    a[5 * STRIDE + 5].im = 0.5f;
    assert_true(xpd_difference_of(&d, &image, &truth));
    assert_close(d.nrmse, 0.5 / sqrt(ROWS * COLS), 2e-4);
    assert_true(d.nrmse_ramp <= d.nrmse + 1e-9);
}

static void zero_image_is_refused(void **state)
{
    static xpe_c32 a[ROWS * STRIDE], zero[ROWS * STRIDE];
    xpd_window image = {a, ROWS, COLS, STRIDE}, nothing = {zero, ROWS, COLS, STRIDE};
    xpd_difference d;

    (void)state;
    fill(a, 1.0, 0.0, 0.0, 0.0);
    assert_false(xpd_difference_of(&d, &nothing, &image));
    assert_false(xpd_difference_of(&d, &image, &nothing));
}

static void single_row_has_no_plane_to_fit(void **state)
{
    static xpe_c32 a[ROWS * STRIDE];
    xpd_window image = {a, 1, COLS, STRIDE};
    xpd_difference d;

    (void)state;
    fill(a, 1.0, 0.0, 0.0, 0.0);
    assert_true(xpd_difference_of(&d, &image, &image));
    assert_true(isfinite(d.nrmse_ramp) && d.nrmse_ramp < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scaled_copy_has_no_error),
        cmocka_unit_test(ramp_is_found_and_taken_off),
        cmocka_unit_test(error_has_the_stated_size),
        cmocka_unit_test(zero_image_is_refused),
        cmocka_unit_test(single_row_has_no_plane_to_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
