/* What frames hold, counted while they pass by, and what positions and frames say about overlap. */
#include "io/read/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One loop for each stored type: a pixel is of one kind only, in the order of engine.h's rules.
 * Integers are counted without branches, in whole numbers (SUM), since every pixel of a scan passes
 * here; the largest type is summed as double, which cannot overflow. */
#define COUNT_INTEGERS(T, SUM, BAD, TYPE_MAX)                                                      \
    do {                                                                                           \
        const T *p = pixels;                                                                       \
        T limit =                                                                                  \
            saturation > 0 && saturation < (double)(TYPE_MAX) ? (T)ceil(saturation) : (TYPE_MAX);  \
        T high = 0, all = 0;                                                                       \
        SUM total = 0;                                                                             \
        int64_t good = 0, bad = 0, top = 0;                                                        \
        for (int64_t i = 0; i < n2; i++) {                                                         \
            T v = p[i];                                                                            \
            bool use = !(BAD) && v < limit;                                                        \
            T counts = use ? v : 0;                                                                \
            all = (T)(all | v);                                                                    \
            bad += BAD;                                                                            \
            top += v == (TYPE_MAX);                                                                \
            good += use;                                                                           \
            total += (SUM)counts;                                                                  \
            high = counts > high ? counts : high;                                                  \
        }                                                                                          \
        for (int64_t i = 0; mean && i < n2; i++)                                                   \
            if (p[i] > 0 && p[i] < limit)                                                          \
                mean[i] += sqrt((double)p[i]);                                                     \
        any = all != 0;                                                                            \
        sum = (double)total;                                                                       \
        s->max = (double)high > s->max ? (double)high : s->max;                                    \
        s->negative += bad;                                                                        \
        s->type_max += top;                                                                        \
        s->saturated += n2 - good - bad - top;                                                     \
    } while (0)

#define COUNT_FLOATS(T)                                                                            \
    do {                                                                                           \
        const T *p = pixels;                                                                       \
        for (int64_t i = 0; i < n2; i++) {                                                         \
            double v = (double)p[i];                                                               \
            if (!isfinite(v))                                                                      \
                s->not_finite++;                                                                   \
            else if (saturation > 0 && v >= saturation)                                            \
                s->saturated++;                                                                    \
            else if (v > 0) {                                                                      \
                sum += v;                                                                          \
                s->max = v > s->max ? v : s->max;                                                  \
                if (mean)                                                                          \
                    mean[i] += sqrt(v);                                                            \
            }                                                                                      \
            any |= v != 0;                                                                         \
        }                                                                                          \
    } while (0)

static void add_frame(xpe_pixel_stats *s, const void *pixels, xpe_type type, int64_t n2,
                      double saturation)
{
    double *mean = s->mean_amplitude;
    double sum = 0;
    bool any = false;

    switch (type) {
    case XPE_U8:
        COUNT_INTEGERS(uint8_t, uint64_t, false, UINT8_MAX);
        break;
    case XPE_I8:
        COUNT_INTEGERS(int8_t, uint64_t, v < 0, INT8_MAX);
        break;
    case XPE_U16:
        COUNT_INTEGERS(uint16_t, uint64_t, false, UINT16_MAX);
        break;
    case XPE_I16:
        COUNT_INTEGERS(int16_t, uint64_t, v < 0, INT16_MAX);
        break;
    case XPE_U32:
        COUNT_INTEGERS(uint32_t, uint64_t, false, UINT32_MAX);
        break;
    case XPE_I32:
        COUNT_INTEGERS(int32_t, uint64_t, v < 0, INT32_MAX);
        break;
    case XPE_U64:
        COUNT_INTEGERS(uint64_t, double, false, UINT64_MAX);
        break;
    case XPE_I64:
        COUNT_INTEGERS(int64_t, double, v < 0, INT64_MAX);
        break;
    case XPE_F32:
        COUNT_FLOATS(float);
        break;
    case XPE_F64:
        COUNT_FLOATS(double);
        break;
    }
    s->frames++;
    s->zero_frames += !any;
    s->pixels += n2;
    s->sum += sum;
}

void xpe_pixel_stats_add(xpe_pixel_stats *s, const void *frames, xpe_type type, int64_t count,
                         int64_t n, double saturation)
{
    const char *bytes = frames;
    size_t frame = (size_t)(n * n) * xpe_type_size(type);

    for (int64_t j = 0; j < count; j++)
        add_frame(s, bytes + (size_t)j * frame, type, n * n, saturation);
}

int64_t xpe_pixel_stats_masked(const xpe_pixel_stats *s)
{
    return s->not_finite + s->negative + s->type_max + s->saturated;
}

/* ---------------------------------------------------------------------------------- overlap */

typedef struct point {
    double row, col;
} point;

static int by_row(const void *a, const void *b)
{
    double x = ((const point *)a)->row, y = ((const point *)b)->row;
    return (x > y) - (x < y);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorted by row, a neighbour search stops where the rows alone are farther apart than the best. */
double xpe_position_step(const double *positions, int64_t count)
{
    point *p;
    double *nearest, step = 0;

    if (count < 2)
        return 0;
    p = malloc((size_t)count * sizeof *p);
    nearest = malloc((size_t)count * sizeof *nearest);
    if (p && nearest) {
        for (int64_t j = 0; j < count; j++)
            p[j] = (point){positions[2 * j], positions[2 * j + 1]};
        qsort(p, (size_t)count, sizeof *p, by_row);
        for (int64_t j = 0; j < count; j++) {
            double best = INFINITY;
            for (int64_t way = -1; way <= 1; way += 2)
                for (int64_t k = j + way, tried = 0; k >= 0 && k < count && tried < 4096;
                     k += way, tried++) {
                    double dr = fabs(p[k].row - p[j].row), d;
                    if (dr >= best)
                        break;
                    d = hypot(dr, p[k].col - p[j].col);
                    best = d < best ? d : best;
                }
            nearest[j] = best;
        }
        qsort(nearest, (size_t)count, sizeof *nearest, by_value);
        step = nearest[count / 2];
    }
    free(nearest);
    free(p);
    return step;
}

/* By Parseval, the spread of a probe is the slope of its transform; differences of neighbouring
 * pixels stand for the slope, which is fair while the probe is small against the window. */
void xpe_probe_width(double width[2], const double *mean, int64_t n)
{
    double slope[2] = {0, 0}, power = 0;

    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            double v = mean[r * n + c];
            double down = r + 1 < n ? mean[(r + 1) * n + c] - v : 0,
                   right = c + 1 < n ? mean[r * n + c + 1] - v : 0;
            slope[0] += down * down;
            slope[1] += right * right;
            power += v * v;
        }
    for (int axis = 0; axis < 2; axis++)
        width[axis] = power > 0 ? 4 * sqrt(slope[axis] / power) * (double)n / (2 * acos(-1.0)) : 0;
}
