/* The smoothing of the starting estimates (core/gauss.c): algorithm.md 2 and trap 12. */
#include "core/host.h"

#include "synthetic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* "d c b a | a b c d | d c b a" for any distance from the edge */
static int64_t mirror(int64_t i, int64_t n)
{
    while (i < 0 || i >= n)
        i = i < 0 ? -1 - i : 2 * n - 1 - i;
    return i;
}

static double direct(const double *in, int64_t rows, int64_t cols, int64_t r, int64_t c)
{
    double sum = 0, total = 0;

    for (int dr = -4; dr <= 4; dr++)
        for (int dc = -4; dc <= 4; dc++) {
            double k = exp(-0.5 * (dr * dr + dc * dc));
            sum += k * in[mirror(r + dr, rows) * cols + mirror(c + dc, cols)];
            total += k;
        }
    return sum / total;
}

static double *filtered(const double *in, int64_t rows, int64_t cols)
{
    double *out = xpt_new((size_t)(rows * cols), sizeof *out);
    xpe_error err;

    for (int64_t i = 0; i < rows * cols; i++)
        out[i] = in[i];
    assert_int_equal(xpe_gauss(out, rows, cols, 1, &err), XPE_OK);
    return out;
}

static double *random_image(int64_t rows, int64_t cols, uint64_t seed)
{
    double *image = xpt_new((size_t)(rows * cols), sizeof *image);
    xpt_random r = {seed};

    for (int64_t i = 0; i < rows * cols; i++)
        image[i] = xpt_random_sign(&r);
    return image;
}

static void filter_equals_the_direct_sum_at_every_size(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},  {1, 9}, {2, 3},   {3, 2},  {4, 4},
                                       {5, 16}, {9, 1}, {16, 16}, {23, 17}};

    (void)state; /* sides below 4 mirror more than once */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t rows = sizes[i][0], cols = sizes[i][1];
        double *in = random_image(rows, cols, i), *out = filtered(in, rows, cols);
        for (int64_t p = 0; p < rows * cols; p++)
            assert_true(fabs(out[p] - direct(in, rows, cols, p / cols, p % cols)) < 1e-14);
        free(out);
        free(in);
    }
}

static void kernel_has_nine_normalised_taps(void **state)
{
    double *in = xpt_new(21 * 21, sizeof *in), *out, total = 0;

    (void)state;
    in[10 * 21 + 10] = 1;
    out = filtered(in, 21, 21);
    for (int i = 0; i < 21 * 21; i++) {
        bool inside = abs(i / 21 - 10) <= 4 && abs(i % 21 - 10) <= 4;
        assert_true(inside ? out[i] > 0 : out[i] == 0);
        total += out[i];
    }
    assert_true(fabs(total - 1) < 1e-14);
    assert_true(fabs(out[10 * 21 + 11] / out[10 * 21 + 10] - exp(-0.5)) < 1e-14);
    assert_true(fabs(out[14 * 21 + 10] / out[10 * 21 + 10] - exp(-8)) < 1e-14);
    free(out);
    free(in);
}

static void a_constant_stays_constant_up_to_the_edges(void **state)
{
    double *in = xpt_new(7 * 5, sizeof *in), *out;

    (void)state;
    for (int i = 0; i < 35; i++)
        in[i] = 3.25;
    out = filtered(in, 7, 5);
    for (int i = 0; i < 35; i++)
        assert_true(fabs(out[i] - 3.25) < 1e-14);
    free(out);
    free(in);
}

static void mean_is_kept_by_the_reflecting_boundary(void **state)
{
    double *in = random_image(13, 9, 5), *out = filtered(in, 13, 9), before = 0, after = 0;

    (void)state;
    for (int i = 0; i < 13 * 9; i++) {
        before += in[i];
        after += out[i];
    }
    assert_true(fabs(before - after) < 1e-12);
    free(out);
    free(in);
}

/* <G a, b> = <a, G b>: with repeated edge pixels the filter is its own adjoint */
static void filter_is_symmetric(void **state)
{
    double *a = random_image(12, 10, 6), *b = random_image(12, 10, 7);
    double *ga = filtered(a, 12, 10), *gb = filtered(b, 12, 10), left = 0, right = 0;

    (void)state;
    for (int i = 0; i < 120; i++) {
        left += ga[i] * b[i];
        right += a[i] * gb[i];
    }
    assert_true(fabs(left - right) < 1e-13);
    free(gb);
    free(ga);
    free(b);
    free(a);
}

static void stride_filters_one_part_and_leaves_the_other(void **state)
{
    double *in = random_image(8, 8, 8), *out = filtered(in, 8, 8), pairs[128];
    xpe_error err;

    (void)state;
    for (int i = 0; i < 64; i++) {
        pairs[2 * i] = -77;
        pairs[2 * i + 1] = in[i];
    }
    assert_int_equal(xpe_gauss(pairs + 1, 8, 8, 2, &err), XPE_OK);
    for (int i = 0; i < 64; i++) {
        assert_true(pairs[2 * i] == -77);
        assert_true(pairs[2 * i + 1] == out[i]);
    }
    free(out);
    free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_equals_the_direct_sum_at_every_size),
        cmocka_unit_test(kernel_has_nine_normalised_taps),
        cmocka_unit_test(a_constant_stays_constant_up_to_the_edges),
        cmocka_unit_test(mean_is_kept_by_the_reflecting_boundary),
        cmocka_unit_test(filter_is_symmetric),
        cmocka_unit_test(stride_filters_one_part_and_leaves_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
