/* The compiler rounds where the source does: what xptychod_exact (deploy/cmake/XptychodFlags.cmake)
 * is for. */
#include "math/cplx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* An average as the backends have it: what the patches receive is rounded to float before it is
 * used further.  gcc 12 leaves that out when it makes vectors of real and imaginary part. */
static __attribute__((noinline)) void average(double *v, const double *l, const double *q,
                                              xpe_c32 *out, float *sum, int n, int modes)
{
    for (int i = 0; i < n; i++) {
        double re = 0, im = 0;
        xpe_c32 z;
        for (int k = 0; k < modes; k++) {
            re += v[2 * (k * n + i)] * q[k];
            im += v[2 * (k * n + i) + 1] * q[k];
        }
        z = xpe_c((float)re, (float)im);
        out[i] = z;
        re = im = 0;
        for (int k = 0; k < modes; k++) {
            int at = k * n + i;
            double v_re = v[2 * at] + 0.9 * ((double)z.re * l[at]);
            double v_im = v[2 * at + 1] + 0.9 * ((double)z.im * l[at]);
            v[2 * at] = v_re;
            v[2 * at + 1] = v_im;
            re += v_re * q[k];
            im += v_im * q[k];
        }
        sum[i] = (float)(re + im);
    }
}

static void a_number_rounded_to_float_is_used_as_it_was_rounded(void **state)
{
    double v[4] = {1.0 / 3, 2.0 / 7, 0.1, 0.3}, l[2] = {1.7, 1.1}, q[2] = {1.3, 0.7};
    double before = v[0];
    volatile int n = 1, modes = 2; /* nothing that a compiler could specialise for */
    xpe_c32 z[1];
    float sum[1];

    (void)state;
    average(v, l, q, z, sum, n, modes);
    assert_true((double)z[0].re != before * q[0] + 0.1 * q[1]); /* rounding is felt */
    assert_true(v[0] == before + 0.9 * ((double)z[0].re * l[0]));
}

/* The product is 1 - 2^-60, which no double holds. */
static void a_product_is_rounded_before_it_is_added_to(void **state)
{
    volatile double a = 1 + 0x1p-30, b = 1 - 0x1p-30, c = -1;
    double x = a, y = b, z = c;

    (void)state;
    assert_true(x * y + z == 0); /* -2^-60 by a fused multiply-add */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_rounded_to_float_is_used_as_it_was_rounded),
        cmocka_unit_test(a_product_is_rounded_before_it_is_added_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
