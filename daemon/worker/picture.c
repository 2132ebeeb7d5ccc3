/* Ranges come from percentiles over the scanned part: the dim border holds noise of any phase and
 * size, and one hot pixel must not turn a picture black.  Pixels that the scan never lit are
 * painted in one neutral colour and not in noise. */
#include "picture.h"

#include "colour.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLES_MAX (1 << 18) /* for percentiles: the error is far below a grey level */

void xpd_plane_release(xpd_plane *plane)
{
    free(plane->value);
    free(plane->lit);
    free(plane->judged);
    *plane = (xpd_plane){0};
}

static bool plane_alloc(xpd_plane *plane, int64_t rows, int64_t cols, int64_t factor)
{
    size_t count = (size_t)rows * (size_t)cols;

    *plane = (xpd_plane){.rows = rows, .cols = cols, .factor = factor};
    plane->value = calloc(count, sizeof *plane->value);
    plane->lit = calloc(count, 1);
    plane->judged = calloc(count, 1);
    if (plane->value && plane->lit && plane->judged)
        return true;
    xpd_plane_release(plane);
    return false;
}

static int64_t factor_for(int64_t rows, int64_t cols, int64_t side_max)
{
    int64_t side = rows > cols ? rows : cols;

    return (side + side_max - 1) / side_max;
}

static bool is_finite(xpe_c32 v)
{
    return isfinite(v.re) && isfinite(v.im);
}

/* Mean coverage of the scanned rectangle, the scale of "lit". */
static double coverage_scale(const float *coverage, int64_t cols, const int64_t scanned[4])
{
    double sum = 0.0;

    for (int64_t r = scanned[0]; r < scanned[1]; r++)
        for (int64_t c = scanned[2]; c < scanned[3]; c++)
            sum += coverage[r * cols + c];
    return sum / (double)((scanned[1] - scanned[0]) * (scanned[3] - scanned[2]));
}

bool xpd_plane_of_object(xpd_plane *out, const xpe_c32 *object, const float *coverage, int64_t rows,
                         int64_t cols, const int64_t scanned[4], int64_t side_max)
{
    int64_t f = factor_for(rows, cols, side_max);
    double floor_of_lit = XPD_PICTURE_LIT * coverage_scale(coverage, cols, scanned);

    if (!plane_alloc(out, (rows + f - 1) / f, (cols + f - 1) / f, f))
        return false;
    out->blank = true;
    for (int64_t r = 0; r < out->rows; r++)
        for (int64_t c = 0; c < out->cols; c++) {
            int64_t r1 = (r + 1) * f < rows ? (r + 1) * f : rows;
            int64_t c1 = (c + 1) * f < cols ? (c + 1) * f : cols;
            double re = 0.0, im = 0.0, cover = 0.0;
            int64_t count = (r1 - r * f) * (c1 - c * f), at = r * out->cols + c;
            bool inside =
                r * f >= scanned[0] && r1 <= scanned[1] && c * f >= scanned[2] && c1 <= scanned[3];

            for (int64_t i = r * f; i < r1; i++)
                for (int64_t j = c * f; j < c1; j++) {
                    re += object[i * cols + j].re;
                    im += object[i * cols + j].im;
                    cover += coverage[i * cols + j];
                }
            out->value[at] = (xpe_c32){(float)(re / (double)count), (float)(im / (double)count)};
            out->lit[at] = cover / (double)count >= floor_of_lit && cover > 0.0;
            out->judged[at] = inside && out->lit[at] && is_finite(out->value[at]);
        }
    return true;
}

bool xpd_plane_of_probe(xpd_plane *out, const xpe_c32 *probe, int modes, int64_t n,
                        int64_t side_max)
{
    int64_t f = factor_for(n, n * modes, side_max), side = (n + f - 1) / f;
    double largest = 0.0;

    if (!plane_alloc(out, side, side * modes, f))
        return false;
    for (int64_t at = 0; at < out->rows * out->cols; at++) {
        int64_t r = at / out->cols, k = at % out->cols / side, c = at % out->cols % side;
        int64_t r1 = (r + 1) * f < n ? (r + 1) * f : n, c1 = (c + 1) * f < n ? (c + 1) * f : n;
        int64_t count = (r1 - r * f) * (c1 - c * f);
        double re = 0.0, im = 0.0;

        for (int64_t i = r * f; i < r1; i++)
            for (int64_t j = c * f; j < c1; j++) {
                re += probe[(k * n + i) * n + j].re;
                im += probe[(k * n + i) * n + j].im;
            }
        out->value[at] = (xpe_c32){(float)(re / (double)count), (float)(im / (double)count)};
        if (is_finite(out->value[at]))
            largest = fmax(largest, hypot(out->value[at].re, out->value[at].im));
    }
    for (int64_t at = 0; at < out->rows * out->cols; at++) {
        double size = hypot(out->value[at].re, out->value[at].im);

        out->lit[at] = is_finite(out->value[at]) && largest > 0.0 && size >= 0.02 * largest;
        out->judged[at] = is_finite(out->value[at]);
    }
    return true;
}

double xpd_plane_common_phase(const xpd_plane *plane)
{
    double re = 0.0, im = 0.0;

    for (int64_t i = 0; i < plane->rows * plane->cols; i++)
        if (plane->judged[i] && plane->lit[i]) {
            re += plane->value[i].re;
            im += plane->value[i].im;
        }
    return re == 0.0 && im == 0.0 ? 0.0 : atan2(im, re);
}

void xpd_plane_magnitude(float *out, const xpd_plane *plane)
{
    for (int64_t i = 0; i < plane->rows * plane->cols; i++)
        out[i] = hypotf(plane->value[i].re, plane->value[i].im);
}

void xpd_plane_phase(float *out, const xpd_plane *plane, double common)
{
    double cs = cos(common), sn = sin(common);

    for (int64_t i = 0; i < plane->rows * plane->cols; i++) {
        double re = plane->value[i].re, im = plane->value[i].im;

        out[i] = (float)atan2(im * cs - re * sn, re * cs + im * sn);
    }
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Linear between the two neighbours, as NumPy does it. */
static double percentile(const float *sorted, int64_t count, double percent)
{
    double at = percent / 100.0 * (double)(count - 1);
    int64_t below = (int64_t)at;
    int64_t above = below + 1 < count ? below + 1 : below;

    return sorted[below] + (at - (double)below) * ((double)sorted[above] - sorted[below]);
}

bool xpd_plane_range(double range[2], const xpd_plane *plane, const float *values, double low,
                     double high)
{
    int64_t size = plane->rows * plane->cols, judged = 0, stride, count = 0, seen = 0;
    float *sorted;

    range[0] = range[1] = 0.0;
    for (int64_t i = 0; i < size; i++)
        judged += plane->judged[i];
    stride = judged / SAMPLES_MAX + 1;
    sorted = malloc((size_t)(judged / stride + 1) * sizeof *sorted);
    if (!sorted)
        return false;
    for (int64_t i = 0; i < size; i++)
        if (plane->judged[i] && seen++ % stride == 0 && isfinite(values[i]))
            sorted[count++] = values[i];
    if (count > 0) {
        qsort(sorted, (size_t)count, sizeof *sorted, compare_floats);
        range[0] = percentile(sorted, count, low);
        range[1] = percentile(sorted, count, high);
    }
    free(sorted);
    return true;
}

void xpd_plane_paint_phase(uint8_t *out, const xpd_plane *plane, const float *phase,
                           const double range[2])
{
    double low = range[0], high = range[1];

    if (high - low > M_PI) { /* phases all round: the even circle */
        low = -M_PI;
        high = 0.0;
    } else if (high - low < 0.02) { /* nothing to see: do not blow up rounding */
        low -= 0.01;
        high += 0.01;
    }
    for (int64_t i = 0; i < plane->rows * plane->cols; i++)
        out[i] = plane->lit[i] && isfinite(phase[i]) ? xpd_colour_of_phase(phase[i], low, high)
                                                     : XPD_COLOUR_OUTSIDE;
}

void xpd_plane_paint_magnitude(uint8_t *out, const xpd_plane *plane, const float *magnitude,
                               const double range[2])
{
    double span = range[1] > range[0] ? range[1] - range[0] : 1.0;

    for (int64_t i = 0; i < plane->rows * plane->cols; i++) {
        double grey = isfinite(magnitude[i]) ? 255.0 * (magnitude[i] - range[0]) / span : 0.0;

        out[i] = plane->blank && !plane->lit[i] ? XPD_PICTURE_BLANK
                                                : (uint8_t)lround(fmin(fmax(grey, 0.0), 255.0));
    }
}
