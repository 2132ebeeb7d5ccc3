/* The smoothing of both starting estimates (algorithm.md 2). */
#include "host.h"

#include "backend/util.h"

#include <math.h>

#define RADIUS 4 /* 4 sigma, sigma = 1 pixel */

/* Index i mirrored at the edges of [0, n), edge pixels repeated. */
static int64_t mirror(int64_t i, int64_t n)
{
    int64_t period = 2 * n, m = ((i % period) + period) % period;
    return m < n ? m : period - 1 - m;
}

static void filter_line(double *line, int64_t n, int64_t stride, const double *kernel, double *copy)
{
    for (int64_t i = 0; i < n; i++)
        copy[i] = line[i * stride];
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t d = -RADIUS; d <= RADIUS; d++)
            sum += kernel[d + RADIUS] * copy[mirror(i + d, n)];
        line[i * stride] = sum;
    }
}

xpe_status xpe_gauss(double *image, int64_t rows, int64_t cols, int stride, xpe_error *err)
{
    double kernel[2 * RADIUS + 1], total = 0, *copy;
    xpe_status st = xpe_new(&copy, (size_t)xpe_max64(rows, cols), sizeof *copy, err);

    if (st != XPE_OK)
        return st;
    for (int d = -RADIUS; d <= RADIUS; d++)
        total += kernel[d + RADIUS] = exp(-0.5 * d * d);
    for (int d = 0; d <= 2 * RADIUS; d++)
        kernel[d] /= total;
    for (int64_t c = 0; c < cols; c++)
        filter_line(image + c * stride, rows, cols * stride, kernel, copy);
    for (int64_t r = 0; r < rows; r++)
        filter_line(image + r * cols * stride, cols, stride, kernel, copy);
    free(copy);
    return XPE_OK;
}
