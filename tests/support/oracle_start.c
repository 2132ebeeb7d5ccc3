/* The starting point of the oracle, and the filters that it and new modes use (docs/algorithm.md
 * 2). */
#include "oracle_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

double xpt_shrink(const oracle *o)
{
    return o->trap == XPT_SHRINK_NONE ? 1 : 1 / (1 + XPT_TINY_GUARD);
}

double xpt_guard(const oracle *o, double total, double count)
{
    if (o->trap == XPT_GUARD_NONE)
        return 0;
    return o->trap == XPT_GUARD_SQUARE ? XPT_TINY_GUARD * total / count
                                       : XPT_TINY_GUARD * sqrt(total / count);
}

xpt_c xpt_divide(xpt_c a, xpt_c b, double eps)
{
    double size = xpt_square(b) + eps;

    return size > 0 ? a * conj(b) / size : 0;
}

/* ------------------------------------------------------------------------- filters on the host */

static int64_t mirror(int64_t i, int64_t n)
{
    while (i < 0 || i >= n)
        i = i < 0 ? -1 - i : 2 * n - 1 - i;
    return i;
}

static xpt_c tap_sum(const oracle *o, const xpt_c *line, int64_t i, int64_t n, int64_t stride)
{
    int radius = o->trap == XPT_GAUSS_SHORT ? 3 : 4;
    double total = 0;
    xpt_c sum = 0;

    for (int d = -radius; d <= radius; d++) {
        double k = exp(-0.5 * d * d);
        total += k;
        if (o->trap == XPT_GAUSS_ZERO && (i + d < 0 || i + d >= n))
            continue;
        sum += k * line[mirror(i + d, n) * stride];
    }
    return sum / total;
}

static void gauss(const oracle *o, xpt_c *image, int64_t rows, int64_t cols)
{
    xpt_c *copy = xpt_new((size_t)(rows * cols), sizeof *copy);

    for (int64_t i = 0; i < rows * cols; i++)
        copy[i] = tap_sum(o, image + i % cols, i / cols, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++)
        image[i] = tap_sum(o, copy + i / cols * cols, i % cols, cols, 1);
    free(copy);
}

/* The uncentred transform is the centred one with a checkerboard before and after. */
void xpt_fresnel(const oracle *o, xpt_c *field)
{
    int64_t n = o->n;
    double sign = o->trap == XPT_FRESNEL_PLUS ? 1 : -1;

    if (o->q == 0)
        return;
    xpt_dft_run(o->dft, field, -1);
    for (int64_t i = 0; i < o->plane; i++) {
        double fy = (double)(i / n - n / 2) / (double)n, fx = (double)(i % n - n / 2) / (double)n;
        if (o->trap == XPT_FRESNEL_SHIFTED) {
            fy = (double)(i / n < n / 2 ? i / n : i / n - n) / (double)n;
            fx = (double)(i % n < n / 2 ? i % n : i % n - n) / (double)n;
        }
        field[i] *= cexp(CMPLX(0, sign * PI * o->q * (fx * fx + fy * fy)));
    }
    xpt_dft_run(o->dft, field, +1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *a, int64_t count)
{
    double *copy = xpt_new((size_t)count, sizeof *copy), middle;

    memcpy(copy, a, (size_t)count * sizeof *copy);
    qsort(copy, (size_t)count, sizeof *copy, by_size);
    middle = count % 2 ? copy[count / 2] : (copy[count / 2 - 1] + copy[count / 2]) / 2;
    free(copy);
    return middle;
}

/* --------------------------------------------------------------------------------------- start */

void xpt_start_probe(oracle *o)
{
    xpt_c *field = xpt_new((size_t)o->plane, sizeof *field);

    for (int64_t j = 0; j < o->frames; j++) {
        for (int64_t i = 0; i < o->plane; i++)
            field[i] = fmax(0, o->y[j * o->plane + i]);
        xpt_dft_run(o->dft, field, +1);
        for (int64_t i = 0; i < o->plane; i++)
            o->d[i] += field[i] / (double)o->frames * xpt_shrink(o);
    }
    if (o->trap == XPT_GAUSS_BEFORE_FRESNEL)
        gauss(o, o->d, o->n, o->n);
    xpt_fresnel(o, o->d);
    if (o->trap != XPT_GAUSS_BEFORE_FRESNEL)
        gauss(o, o->d, o->n, o->n);
    free(field);
}

static double frame_energy(const oracle *o, int64_t j)
{
    double sum = 0;

    for (int64_t i = 0; i < o->plane; i++)
        sum += pow(fmax(0, o->y[j * o->plane + i]), 2);
    return sum;
}

/* Exact zeros become the median. */
static void fill_zeros(const oracle *o, double *image)
{
    int64_t pixels = o->rows * o->cols, covered = 0;
    double *copy = xpt_new((size_t)pixels, sizeof *copy), middle;

    for (int64_t i = 0; i < pixels; i++)
        if (o->trap != XPT_MEDIAN_COVERED || image[i] != 0)
            copy[covered++] = image[i];
    middle = median(copy, covered);
    for (int64_t i = 0; i < pixels && o->trap != XPT_ZEROS_STAY; i++)
        if (image[i] == 0)
            image[i] = middle;
    free(copy);
}

static void smooth(const oracle *o, double *image)
{
    int64_t pixels = o->rows * o->cols;
    xpt_c *copy = xpt_new((size_t)pixels, sizeof *copy);

    for (int64_t i = 0; i < pixels; i++)
        copy[i] = fabs(image[i]);
    gauss(o, copy, o->rows, o->cols);
    for (int64_t i = 0; i < pixels; i++)
        image[i] = creal(copy[i]);
    free(copy);
}

void xpt_start_object(oracle *o)
{
    int64_t pixels = o->rows * o->cols;
    double *votes = xpt_new((size_t)pixels, sizeof *votes),
           *hits = xpt_new((size_t)pixels, sizeof *hits), eps, total = 0;
    double norm =
        sqrt(xpt_energy(o->d, o->plane * (o->trap == XPT_NORM_FIRST_MODE ? 1 : o->modes)));

    for (int64_t j = 0; j < o->frames; j++) {
        double vote = sqrt(sqrt(frame_energy(o, j)) / norm);
        for (int64_t i = 0; i < o->plane; i++) {
            int64_t at = (o->first[2 * j] + i / o->n) * o->cols + o->first[2 * j + 1] + i % o->n;
            votes[at] += vote;
            hits[at] += xpt_shrink(o);
        }
    }
    for (int64_t i = 0; i < pixels; i++)
        total += hits[i] * hits[i];
    eps = xpt_guard(o, total, (double)pixels);
    for (int64_t i = 0; i < pixels; i++)
        votes[i] = creal(xpt_divide(votes[i], hits[i], eps));
    if (o->trap == XPT_SMOOTH_FIRST)
        smooth(o, votes);
    fill_zeros(o, votes);
    if (o->trap != XPT_SMOOTH_FIRST)
        smooth(o, votes);
    for (int64_t i = 0; i < pixels; i++)
        o->x[i] = votes[i];
    free(hits);
    free(votes);
}
