/* Transforms of rows and column groups (cpu/fft.c) against the sum that defines them. */
#include "cpu/fft.h"

#include "synthetic.h"

#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PI 3.14159265358979323846

static const int64_t sides[] = {2, 4, 6, 10, 16, 18, 30, 64};
#define SIDES (sizeof sides / sizeof *sides)

/* Float transforms of n random numbers are right to a few roundings: 1e-6 of the rms times sqrt(n).
 */
static double tolerance(int64_t n)
{
    return 1e-6 * sqrt((double)n);
}

static const xpe_fft *get(int64_t n)
{
    const xpe_fft *fft;
    xpe_error err;

    assert_int_equal(xpe_fft_get(&fft, n, &err), XPE_OK);
    return fft;
}

/* sum_i in[i step] exp(sign 2 pi i f i / n) */
static double complex direct(const xpe_c32 *in, int64_t n, int64_t step, int64_t f, int sign)
{
    double complex sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += CMPLX((double)in[i * step].re, (double)in[i * step].im) *
               cexp(CMPLX(0, sign * 2 * PI * (double)(f * i % n) / (double)n));
    return sum;
}

static double distance(xpe_c32 a, double complex b)
{
    return cabs(CMPLX((double)a.re, (double)a.im) - b);
}

static xpe_c32 *aligned_field(int64_t count, uint64_t seed)
{
    xpe_c32 *field = aligned_alloc(64, ((size_t)count * sizeof *field + 63) / 64 * 64);
    xpt_random r = {seed};

    assert_non_null(field);
    xpt_random_field(&r, field, count);
    return field;
}

static void rows_are_the_sum_that_defines_them(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIDES; s++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int64_t n = sides[s], stride = xpe_fft_stride(n), count = stride * XPE_GROUP;
            xpe_c32 *in = aligned_field(count, s), *out = aligned_field(count, s);
            xpe_fft_rows(get(n), out, sign);
            for (int64_t r = 0; r < XPE_GROUP; r++)
                for (int64_t f = 0; f < n; f++)
                    assert_true(distance(out[r * stride + f],
                                         direct(in + r * stride, n, 1, f, sign)) < tolerance(n));
            for (int64_t r = 0; r < XPE_GROUP; r++) /* what lies between the rows is not touched */
                assert_memory_equal(out + r * stride + n, in + r * stride + n,
                                    (size_t)(stride - n) * sizeof *in);
            free(in);
            free(out);
        }
}

static void columns_are_the_sum_that_defines_them(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIDES; s++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int64_t n = sides[s];
            xpe_c32 *in = aligned_field(n * XPE_GROUP, s), *out = aligned_field(n * XPE_GROUP, s);
            xpe_fft_columns(get(n), out, sign);
            for (int64_t c = 0; c < XPE_GROUP; c++)
                for (int64_t f = 0; f < n; f++)
                    assert_true(distance(out[f * XPE_GROUP + c],
                                         direct(in + c, n, XPE_GROUP, f, sign)) < tolerance(n));
            free(in);
            free(out);
        }
}

static void strides_hold_a_row_and_groups_hold_all_columns(void **state)
{
    (void)state;
    for (int64_t n = 2; n <= 300; n += 2) {
        assert_true(xpe_fft_stride(n) >= n);
        assert_true(xpe_fft_groups(n) * XPE_GROUP >= n && (xpe_fft_groups(n) - 1) * XPE_GROUP < n);
    }
}

static void forward_and_backward_give_n_times_the_field(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIDES; s++) {
        int64_t n = sides[s];
        xpe_c32 *in = aligned_field(n * XPE_GROUP, 50 + s),
                *out = aligned_field(n * XPE_GROUP, 50 + s);
        xpe_fft_columns(get(n), out, -1);
        xpe_fft_columns(get(n), out, +1);
        for (int64_t i = 0; i < n * XPE_GROUP; i++)
            assert_true(distance(out[i], (double)n * CMPLX((double)in[i].re, (double)in[i].im)) <
                        (double)n * tolerance(n));
        free(in);
        free(out);
    }
}

/* The position of a line among its eight must not matter to its bits. */
static void every_line_of_a_batch_has_the_same_bits(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIDES; s++) {
        int64_t n = sides[s];
        xpe_c32 *line = aligned_field(n, s), *group = aligned_field(n * XPE_GROUP, s);
        for (int64_t i = 0; i < n * XPE_GROUP; i++)
            group[i] = line[i / XPE_GROUP];
        xpe_fft_columns(get(n), group, -1);
        for (int64_t i = 0; i < n * XPE_GROUP; i++)
            assert_memory_equal(&group[i], &group[i / XPE_GROUP * XPE_GROUP], sizeof *group);
        free(line);
        free(group);
    }
}

static void a_second_request_gets_the_same_plan_and_bits(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIDES; s++) {
        int64_t n = sides[s], count = xpe_fft_stride(n) * XPE_GROUP;
        const xpe_fft *one = get(n), *two = get(n);
        xpe_c32 *a = aligned_field(count, s), *b = aligned_field(count, s);
        assert_ptr_equal(one, two);
        xpe_fft_rows(one, a, -1);
        xpe_fft_rows(two, b, -1);
        assert_memory_equal(a, b, (size_t)count * sizeof *a);
        free(a);
        free(b);
    }
}

static void *ask_for_plans(void *arg)
{
    const xpe_fft **out = arg;
    xpe_error err;

    for (int64_t i = 0; i < 20; i++)
        if (xpe_fft_get(&out[i], 32 + 2 * i, &err) != XPE_OK)
            out[i] = NULL;
    return NULL;
}

static void threads_that_ask_at_once_get_one_plan_each_side(void **state)
{
    pthread_t threads[4];
    const xpe_fft *found[4][20];

    (void)state;
    for (int t = 0; t < 4; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, ask_for_plans, found[t]), 0);
    for (int t = 0; t < 4; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 20; i++) {
            assert_non_null(found[t][i]);
            assert_ptr_equal(found[t][i], found[0][i]);
        }
}

static void host_transform_is_the_two_dimensional_sum(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIDES - 2; s++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int64_t n = sides[s];
            xpe_c64 *field = xpt_new((size_t)(n * n), sizeof *field),
                    *in = xpt_new((size_t)(n * n), sizeof *in);
            xpt_random r = {s};
            xpe_error err;
            for (int64_t i = 0; i < n * n; i++)
                in[i] = field[i] = (xpe_c64){xpt_random_sign(&r), xpt_random_sign(&r)};
            assert_int_equal(xpe_fft_host(field, n, sign, &err), XPE_OK);
            for (int64_t f = 0; f < n * n; f += 1 + n / 5) {
                double complex sum = 0;
                for (int64_t i = 0; i < n * n; i++)
                    sum +=
                        CMPLX(in[i].re, in[i].im) *
                        cexp(CMPLX(0, sign * 2 * PI *
                                          (double)((f / n) * (i / n) % n + (f % n) * (i % n) % n) /
                                          (double)n));
                assert_true(cabs(CMPLX(field[f].re, field[f].im) - sum) < 1e-11);
            }
            free(in);
            free(field);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_sum_that_defines_them),
        cmocka_unit_test(columns_are_the_sum_that_defines_them),
        cmocka_unit_test(strides_hold_a_row_and_groups_hold_all_columns),
        cmocka_unit_test(forward_and_backward_give_n_times_the_field),
        cmocka_unit_test(every_line_of_a_batch_has_the_same_bits),
        cmocka_unit_test(a_second_request_gets_the_same_plan_and_bits),
        cmocka_unit_test(threads_that_ask_at_once_get_one_plan_each_side),
        cmocka_unit_test(host_transform_is_the_two_dimensional_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
