/* The transform of the oracle, and distances between images; see oracle.h. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

double xpt_square(xpt_c a)
{
    return creal(a) * creal(a) + cimag(a) * cimag(a);
}

double xpt_energy(const xpt_c *a, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += xpt_square(a[i]);
    return sum;
}

struct xpt_dft {
    int64_t n;
    xpt_c *forward; /* [n][n] */
    xpt_c *scratch;
};

xpt_dft *xpt_dft_create(int64_t n)
{
    xpt_dft *t = xpt_new(1, sizeof *t);

    t->n = n;
    t->forward = xpt_new((size_t)(n * n), sizeof *t->forward);
    t->scratch = xpt_new((size_t)(n * n), sizeof *t->scratch);
    for (int64_t f = 0; f < n; f++)
        for (int64_t i = 0; i < n; i++) {
            int64_t turns = (f - n / 2) * (i - n / 2) % n;
            t->forward[f * n + i] =
                cexp(CMPLX(0, -2 * PI * (double)turns / (double)n)) / sqrt((double)n);
        }
    return t;
}

void xpt_dft_destroy(xpt_dft *t)
{
    if (!t)
        return;
    free(t->forward);
    free(t->scratch);
    free(t);
}

/* out[f][j] = sum_i m[f][i] in[j][i]: the transform of every row, transposed */
static void transform_rows(const xpt_dft *t, xpt_c *out, const xpt_c *in, int sign)
{
    int64_t n = t->n;

    for (int64_t f = 0; f < n; f++)
        for (int64_t j = 0; j < n; j++) {
            double re = 0, im = 0;
            for (int64_t i = 0; i < n; i++) {
                double mr = creal(t->forward[f * n + i]), mi = -sign * cimag(t->forward[f * n + i]);
                double ar = creal(in[j * n + i]), ai = cimag(in[j * n + i]);
                re += mr * ar - mi * ai;
                im += mr * ai + mi * ar;
            }
            out[f * n + j] = CMPLX(re, im);
        }
}

void xpt_dft_run(const xpt_dft *t, xpt_c *field, int sign)
{
    transform_rows(t, t->scratch, field, sign);
    transform_rows(t, field, t->scratch, sign);
}

/* ----------------------------------------------------------------------------------- distances */

static double distance(const xpe_c32 *a, const xpt_c *b, int64_t count, xpt_c scale)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += xpt_square(scale * CMPLX((double)a[i].re, (double)a[i].im) - b[i]);
    return sqrt(sum / xpt_energy(b, count));
}

double xpt_distance(const xpe_c32 *a, const xpt_c *b, int64_t count)
{
    return distance(a, b, count, 1);
}

double xpt_distance_scaled(const xpe_c32 *a, const xpt_c *b, int64_t count)
{
    xpt_c dot = 0;
    double size = 0;

    for (int64_t i = 0; i < count; i++) {
        xpt_c x = CMPLX((double)a[i].re, (double)a[i].im);
        dot += conj(x) * b[i];
        size += xpt_square(x);
    }
    return distance(a, b, count, dot / size);
}
