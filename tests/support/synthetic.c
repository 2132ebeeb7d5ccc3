/* See synthetic.h. */
#include "synthetic.h"

#include "oracle.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

void *xpt_new(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);

    if (!p) {
        fprintf(stderr, "the test has no memory for %zu x %zu bytes\n", count, size);
        abort();
    }
    return p;
}

/* splitmix64 */
uint64_t xpt_random_bits(xpt_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double xpt_random_unit(xpt_random *r)
{
    return (double)(xpt_random_bits(r) >> 11) * 0x1p-53;
}

double xpt_random_sign(xpt_random *r)
{
    return 2 * xpt_random_unit(r) - 1;
}

int64_t xpt_random_below(xpt_random *r, int64_t bound)
{
    return (int64_t)(xpt_random_bits(r) % (uint64_t)bound);
}

void xpt_random_field(xpt_random *r, xpe_c32 *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        out[i].re = (float)xpt_random_sign(r);
        out[i].im = (float)xpt_random_sign(r);
    }
}

/* --------------------------------------------------------------------------------------- cases */

static xpt_case *create(int64_t n, int64_t num_frames, int64_t rows, int64_t cols, int modes)
{
    xpt_case *c = xpt_new(1, sizeof *c);
    size_t plane = (size_t)(n * n);

    c->n = n;
    c->num_frames = num_frames;
    c->rows = rows;
    c->cols = cols;
    c->modes = modes;
    c->object = xpt_new((size_t)(rows * cols), sizeof *c->object);
    c->probe = xpt_new((size_t)modes * plane, sizeof *c->probe);
    c->counts = xpt_new((size_t)num_frames * plane, sizeof *c->counts);
    c->mask = xpt_new((size_t)num_frames * plane, 1);
    c->positions = xpt_new((size_t)num_frames * 2, sizeof *c->positions);
    c->shape[0] = rows;
    c->shape[1] = cols;
    c->desc.scan = (xpe_scan){.num_frames = num_frames,
                              .n = n,
                              .frames = c->counts,
                              .type = XPE_F32,
                              .positions = c->positions,
                              .wavelength_m = 1e-10,
                              .detector_distance_m = 1.0,
                              .detector_pitch_m = 1e-10 / ((double)n * XPT_TINY_PITCH)};
    c->desc.grid = (xpe_grid_wish){c->shape, c->origin};
    c->desc.probe_modes = modes;
    return c;
}

void xpt_case_destroy(xpt_case *c)
{
    if (!c)
        return;
    free(c->object);
    free(c->probe);
    free(c->counts);
    free(c->mask);
    free(c->positions);
    free(c);
}

void xpt_case_first(const xpt_case *c, int64_t *first)
{
    const xpe_scan *s = &c->desc.scan;
    double pitch =
        xpe_pixel_pitch(s->wavelength_m, s->detector_distance_m, s->detector_pitch_m, s->n);

    for (int64_t i = 0; i < 2 * c->num_frames; i++)
        first[i] = (int64_t)rint((c->positions[i] - c->origin[i % 2]) / pitch) - c->n / 2;
}

void xpt_case_measure(xpt_case *c)
{
    int64_t n = c->n, plane = n * n;
    int64_t *first = xpt_new((size_t)c->num_frames * 2, sizeof *first);
    double _Complex *field = xpt_new((size_t)plane, sizeof *field);
    xpt_dft *dft = xpt_dft_create(n);

    xpt_case_first(c, first);
    for (int64_t j = 0; j < c->num_frames; j++) {
        float *out = c->counts + j * plane;
        double *sum = xpt_new((size_t)plane, sizeof *sum);
        for (int k = 0; k < c->modes; k++) {
            for (int64_t i = 0; i < plane; i++) {
                xpe_c32 d = c->probe[k * plane + i];
                xpe_c32 x = c->object[(first[2 * j] + i / n) * c->cols + first[2 * j + 1] + i % n];
                field[i] = CMPLX((double)d.re, (double)d.im) * CMPLX((double)x.re, (double)x.im);
            }
            xpt_dft_run(dft, field, -1);
            for (int64_t i = 0; i < plane; i++)
                sum[i] += creal(field[i] * conj(field[i]));
        }
        for (int64_t i = 0; i < plane; i++)
            out[i] = (float)sum[i];
        free(sum);
    }
    xpt_dft_destroy(dft);
    free(field);
    free(first);
}

void xpt_case_know(xpt_case *c)
{
    c->desc.probe = c->probe;
    c->desc.probe_count = c->modes;
}

void xpt_case_hide(xpt_case *c, double fraction, float spoilt, uint64_t seed)
{
    xpt_random r = {seed};

    for (int64_t i = 0; i < c->num_frames * c->n * c->n; i++)
        if (xpt_random_unit(&r) < fraction) {
            c->mask[i] = 1;
            c->counts[i] = spoilt;
        }
    c->desc.scan.mask = c->mask;
    c->desc.scan.mask_frames = c->num_frames;
}

/* ---------------------------------------------------------------------------- the tiny problem */

static double _Complex tiny_object(double row, double col)
{
    double stripes = (1 + sin(2 * PI * (col + 0.3 * row))) / 2;
    double size = 1 - 0.15 * stripes * exp(-(pow(col - 0.5, 2) + pow(row - 0.4, 2)) / 0.12);
    double angle = -0.6 * exp(-(pow(col - 0.55, 2) + pow(row - 0.5, 2)) / 0.08) - 0.2 * col;

    return size * cexp(CMPLX(0, angle));
}

static double _Complex tiny_probe(double row, double col, double width, int mode)
{
    double rho2 = (row * row + col * col) / (width * width);
    double _Complex first = exp(-rho2) * cexp(CMPLX(0, 0.6 * rho2));

    return mode ? 0.4 * first * (col / width) * cexp(CMPLX(0, 0.3 * row)) : first;
}

static void fill_probe(xpt_case *c)
{
    double middle = (double)(c->n - 1) / 2, width = 0.32 * (double)c->n;

    for (int64_t i = 0; i < c->modes * c->n * c->n; i++) {
        int64_t p = i % (c->n * c->n);
        double _Complex d = tiny_probe((double)(p / c->n) - middle, (double)(p % c->n) - middle,
                                       width, (int)(i / (c->n * c->n)));
        c->probe[i] = (xpe_c32){(float)creal(d), (float)cimag(d)};
    }
}

xpt_case *xpt_tiny_create(int modes)
{
    xpt_case *c = create(XPT_TINY_N, XPT_TINY_FRAMES, XPT_TINY_SIDE, XPT_TINY_SIDE, modes);

    for (int64_t i = 0; i < c->rows * c->cols; i++) {
        double _Complex x = tiny_object((double)(i / c->cols) / (XPT_TINY_SIDE - 1),
                                        (double)(i % c->cols) / (XPT_TINY_SIDE - 1));
        c->object[i] = (xpe_c32){(float)creal(x), (float)cimag(x)};
    }
    fill_probe(c);
    for (int j = 0; j < XPT_TINY_FRAMES; j++) {
        c->positions[2 * j] = (8 * (j / XPT_TINY_POINTS) + XPT_TINY_N / 2) * XPT_TINY_PITCH;
        c->positions[2 * j + 1] = (8 * (j % XPT_TINY_POINTS) + XPT_TINY_N / 2) * XPT_TINY_PITCH;
    }
    xpt_case_measure(c);
    return c;
}

xpt_case *xpt_small_create(int64_t n, int points, int modes, uint64_t seed)
{
    int64_t step = n / 4 > 0 ? n / 4 : 1, rows = n + step * points + 1,
            cols = n + step * points + 3;
    xpt_case *c = create(n, (int64_t)points * points, rows, cols, modes);
    xpt_random r = {seed};

    for (int64_t i = 0; i < rows * cols; i++) {
        double row = (double)(i / cols), col = (double)(i % cols);
        double size = 0.8 + 0.15 * sin(0.7 * row + 0.2 * col) + 0.02 * xpt_random_sign(&r);
        double angle = 0.5 * sin(0.31 * col - 0.11 * row) + 0.1 * xpt_random_sign(&r);
        c->object[i] = (xpe_c32){(float)(size * cos(angle)), (float)(size * sin(angle))};
    }
    fill_probe(c);
    for (int64_t i = 0; i < 2 * c->num_frames; i++) {
        int64_t at = i % 2 ? i / 2 % points : i / 2 / points;
        c->positions[i] = (double)(at * step + n / 2 + xpt_random_below(&r, 2)) * XPT_TINY_PITCH;
    }
    xpt_case_measure(c);
    return c;
}
