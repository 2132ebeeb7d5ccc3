/* Fresnel propagation of the start probe and of new modes (core/fresnel.c): algorithm.md 2 and
 * trap 10. */
#include "core/host.h"

#include "synthetic.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PI 3.14159265358979323846

static const xpe_backend *backend(void)
{
    static const char *const names[] = {"cpu"};
    const xpe_device_list devices = {names, 1, 1};
    const xpe_backend *found;
    xpe_error err;

    assert_int_equal(xpe_backend_find(&found, &devices, &err), XPE_OK);
    return found;
}

static void fill(xpe_c64 *field, int64_t n, uint64_t seed)
{
    xpt_random r = {seed};

    for (int64_t i = 0; i < n * n; i++)
        field[i] = (xpe_c64){xpt_random_sign(&r), xpt_random_sign(&r)};
}

static double distance(const xpe_c64 *a, const xpe_c64 *b, int64_t count)
{
    double most = 0;

    for (int64_t i = 0; i < count; i++)
        most = fmax(most, hypot(a[i].re - b[i].re, a[i].im - b[i].im));
    return most;
}

static double energy(const xpe_c64 *a, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += a[i].re * a[i].re + a[i].im * a[i].im;
    return sum;
}

static void propagation_keeps_the_energy(void **state)
{
    xpe_c64 field[18 * 18];
    double before;
    xpe_error err;

    (void)state;
    fill(field, 18, 1);
    before = energy(field, 18 * 18);
    assert_int_equal(xpe_fresnel(backend(), field, 18, 3.7, &err), XPE_OK);
    assert_true(fabs(energy(field, 18 * 18) / before - 1) < 1e-13);
}

static void the_opposite_distance_brings_the_field_back(void **state)
{
    xpe_c64 field[16 * 16], copy[16 * 16];
    xpe_error err;

    (void)state;
    fill(field, 16, 2);
    memcpy(copy, field, sizeof copy);
    assert_int_equal(xpe_fresnel(backend(), field, 16, 5.25, &err), XPE_OK);
    assert_true(distance(field, copy, 256) > 0.1);
    assert_int_equal(xpe_fresnel(backend(), field, 16, -5.25, &err), XPE_OK);
    assert_true(distance(field, copy, 256) < 1e-13);
}

static void no_distance_changes_no_bit(void **state)
{
    xpe_c64 field[64], copy[64];
    xpe_error err;

    (void)state;
    fill(field, 8, 3);
    memcpy(copy, field, sizeof copy);
    assert_int_equal(xpe_fresnel(backend(), field, 8, 0, &err), XPE_OK);
    assert_memory_equal(field, copy, sizeof copy);
}

/* A plane wave of frequency (a, b) / n only gains the factor exp(-i pi q (a^2 + b^2) / n^2). */
static void a_plane_wave_gains_the_phase_of_its_frequency(void **state)
{
    static const int64_t sides[] = {2, 6, 10, 16};

    (void)state;
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
        int64_t n = sides[s];
        xpe_c64 *field = xpt_new((size_t)(n * n), sizeof *field),
                *right = xpt_new((size_t)(n * n), sizeof *right);
        for (int64_t a = -n / 2; a < n / 2; a++)
            for (int64_t b = -n / 2; b < n / 2; b += 1 + n / 8) {
                double q = 2.5, turn = -PI * q * (double)(a * a + b * b) / (double)(n * n);
                xpe_error err;
                for (int64_t i = 0; i < n * n; i++) {
                    double phase = 2 * PI * (double)(a * (i / n) + b * (i % n)) / (double)n;
                    field[i] = (xpe_c64){cos(phase), sin(phase)};
                    right[i] = (xpe_c64){cos(phase + turn), sin(phase + turn)};
                }
                assert_int_equal(xpe_fresnel(backend(), field, n, q, &err), XPE_OK);
                assert_true(distance(field, right, n * n) < 1e-12);
            }
        free(right);
        free(field);
    }
}

/* exp(-r^2 / 2 s^2) becomes exp(-r^2 / 2 (s^2 + i q / 2 pi)) times s^2 / (s^2 + i q / 2 pi): the
 * sign of the step. */
static void a_gaussian_beam_curves_as_the_closed_form_says(void **state)
{
    enum { N = 64 };
    static xpe_c64 field[N * N], right[N * N], other[N * N];
    double s2 = 16, q = 40;
    double complex wide = CMPLX(s2, q / (2 * PI));
    xpe_error err;

    (void)state;
    for (int i = 0; i < N * N; i++) {
        double r2 = pow(i / N - N / 2, 2) + pow(i % N - N / 2, 2);
        double complex a = s2 / wide * cexp(-r2 / (2 * wide)), b = conj(a);
        field[i] = (xpe_c64){exp(-r2 / (2 * s2)), 0};
        right[i] = (xpe_c64){creal(a), cimag(a)};
        other[i] = (xpe_c64){creal(b), cimag(b)};
    }
    assert_int_equal(xpe_fresnel(backend(), field, N, q, &err), XPE_OK);
    assert_true(distance(field, right, N * N) < 1e-6); /* the tails leave the field there */
    assert_true(distance(field, other, N * N) > 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(propagation_keeps_the_energy),
        cmocka_unit_test(the_opposite_distance_brings_the_field_back),
        cmocka_unit_test(no_distance_changes_no_bit),
        cmocka_unit_test(a_plane_wave_gains_the_phase_of_its_frequency),
        cmocka_unit_test(a_gaussian_beam_curves_as_the_closed_form_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
