/* Orthogonalisation of probe modes (core/svd.c): algorithm.md 3, step 3 and trap 14. */
#include "core/host.h"

#include "synthetic.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH 200

static double complex value(xpe_c64 a)
{
    return CMPLX(a.re, a.im);
}

static double complex inner(const xpe_c64 *a, const xpe_c64 *b)
{
    double complex sum = 0;

    for (int i = 0; i < LENGTH; i++)
        sum += conj(value(a[i])) * value(b[i]);
    return sum;
}

static xpe_c64 *random_modes(int count, uint64_t seed)
{
    xpe_c64 *modes = xpt_new((size_t)count * LENGTH, sizeof *modes);
    xpt_random r = {seed};

    for (int i = 0; i < count * LENGTH; i++)
        modes[i] = (xpe_c64){xpt_random_sign(&r) / (1 + i / LENGTH), xpt_random_sign(&r)};
    return modes;
}

static xpe_c64 *copy_of(const xpe_c64 *modes, int count)
{
    xpe_c64 *copy = xpt_new((size_t)count * LENGTH, sizeof *copy);

    memcpy(copy, modes, (size_t)count * LENGTH * sizeof *copy);
    return copy;
}

static void run(xpe_c64 *modes, int count)
{
    xpe_error err;

    assert_int_equal(xpe_orthogonalize(modes, count, LENGTH, &err), XPE_OK);
}

static void assert_orthogonal_and_sorted(const xpe_c64 *modes, int count)
{
    double most = creal(inner(modes, modes));

    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++) {
            assert_true(cabs(inner(modes + i * LENGTH, modes + k * LENGTH)) < 1e-12 * most);
            assert_true(creal(inner(modes + i * LENGTH, modes + i * LENGTH)) <=
                        creal(inner(modes + k * LENGTH, modes + k * LENGTH)));
        }
}

/* sum_k |d_k|^2 of every pixel, and more: sum_k d_k(a) conj(d_k(b)) of every pair of pixels */
static void assert_same_intensities(const xpe_c64 *a, const xpe_c64 *b, int count)
{
    for (int p = 0; p < LENGTH; p++)
        for (int q = 0; q < LENGTH; q++) {
            double complex x = 0, y = 0;
            for (int k = 0; k < count; k++) {
                x += value(a[k * LENGTH + p]) * conj(value(a[k * LENGTH + q]));
                y += value(b[k * LENGTH + p]) * conj(value(b[k * LENGTH + q]));
            }
            assert_true(cabs(x - y) < 1e-12);
        }
}

static void modes_become_orthogonal_and_sorted(void **state)
{
    (void)state;
    for (int count = 2; count <= 6; count++) {
        xpe_c64 *modes = random_modes(count, (uint64_t)count);
        run(modes, count);
        assert_orthogonal_and_sorted(modes, count);
        free(modes);
    }
}

static void modes_predict_the_same_intensities(void **state)
{
    (void)state;
    for (int count = 2; count <= 4; count++) {
        xpe_c64 *modes = random_modes(count, 20 + (uint64_t)count), *before = copy_of(modes, count);
        run(modes, count);
        assert_same_intensities(modes, before, count);
        free(before);
        free(modes);
    }
}

static void one_mode_changes_no_bit(void **state)
{
    xpe_c64 *modes = random_modes(1, 3), *before = copy_of(modes, 1);

    (void)state;
    run(modes, 1);
    assert_memory_equal(modes, before, LENGTH * sizeof *modes);
    free(before);
    free(modes);
}

static void orthogonal_modes_are_only_sorted(void **state)
{
    xpe_c64 *modes = xpt_new(3 * LENGTH, sizeof *modes);

    (void)state;
    modes[5].re = 1;
    modes[LENGTH + 6].im = 3;
    modes[2 * LENGTH + 7].re = -2;
    run(modes, 3);
    assert_true(modes[6].im == 3 && modes[LENGTH + 7].re == -2 && modes[2 * LENGTH + 5].re == 1);
    free(modes);
}

static void equal_modes_become_one_of_twice_the_energy(void **state)
{
    xpe_c64 *modes = random_modes(2, 4), *before;
    double energy;

    (void)state;
    memcpy(modes + LENGTH, modes, LENGTH * sizeof *modes);
    before = copy_of(modes, 2);
    energy = creal(inner(modes, modes));
    run(modes, 2);
    assert_true(fabs(creal(inner(modes, modes)) - 2 * energy) < 1e-12 * energy);
    assert_true(creal(inner(modes + LENGTH, modes + LENGTH)) < 1e-24 * energy);
    assert_same_intensities(modes, before, 2);
    free(before);
    free(modes);
}

static void a_zero_mode_ends_last_and_stays_zero(void **state)
{
    xpe_c64 *modes = random_modes(3, 5);

    (void)state;
    memset(modes, 0, LENGTH * sizeof *modes);
    run(modes, 3);
    assert_orthogonal_and_sorted(modes, 3);
    for (int i = 0; i < LENGTH; i++)
        assert_true(modes[2 * LENGTH + i].re == 0 && modes[2 * LENGTH + i].im == 0);
    free(modes);
}

static void scale_does_not_matter(void **state)
{
    static const double scales[] = {1e-38, 1e-20, 1e20, 1e37}; /* what float32 can hold */

    (void)state;
    for (int s = 0; s < 4; s++) {
        xpe_c64 *modes = random_modes(3, 6);
        for (int i = 0; i < 3 * LENGTH; i++)
            modes[i] = (xpe_c64){modes[i].re * scales[s], modes[i].im * scales[s]};
        run(modes, 3);
        assert_orthogonal_and_sorted(modes, 3);
        free(modes);
    }
}

static void modes_that_are_not_finite_end_in_an_error_or_unchanged_never_in_a_hang(void **state)
{
    xpe_c64 *modes = random_modes(2, 7);
    xpe_error err;
    xpe_status st;

    (void)state;
    modes[3].re = NAN;
    st = xpe_orthogonalize(modes, 2, LENGTH, &err);
    assert_true(st == XPE_OK || st == XPE_DIVERGED);
    free(modes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_become_orthogonal_and_sorted),
        cmocka_unit_test(modes_predict_the_same_intensities),
        cmocka_unit_test(one_mode_changes_no_bit),
        cmocka_unit_test(orthogonal_modes_are_only_sorted),
        cmocka_unit_test(equal_modes_become_one_of_twice_the_energy),
        cmocka_unit_test(a_zero_mode_ends_last_and_stays_zero),
        cmocka_unit_test(scale_does_not_matter),
        cmocka_unit_test(modes_that_are_not_finite_end_in_an_error_or_unchanged_never_in_a_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
