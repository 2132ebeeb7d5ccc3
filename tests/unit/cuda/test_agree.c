/* Every operation of the backend table on the CPU and on emulated CUDA, from the same arrays.
 *
 * Where both do the same roundings in the same order the results are equal, to the byte: patches,
 * copies, exact sums of what no transform has touched, averages, what follows from the modes.
 * Otherwise the bound comes from the roundings:
 *
 *   sums of N numbers that are not negative, in double, in any order: each within (N - 1) 2^-53 of
 * its value (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), so two differ by at most
 * 2 N 2^-53 times it; a transform of N = n^2 points in float: the error is at most log2(N) eta
 * times the result in the 2-norm, with eta = u + gamma_4 (sqrt 2 + u) < 6.7 u, u = 2^-24 (the same,
 * theorem 24.2).
 *
 * delta below is that for one transform with the product before it.  What comes of transforms is
 * compared in the 2-norm, of a frame or of a window; roundings of single pixels count sqrt(pixels)
 * times in it. */
#include "bench.h"
#include "oracle.h"
#include "synthetic.h"

#include "math/fit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIDES 2 /* CPU, emulated CUDA */
#define FRAMES 5
#define MODES 2
#define U 0x1p-24
#define ALPHA 0.6f
#define TWO_RHO 1.0f

extern const xpe_backend xpe_backend_cpu, xpe_backend_cuda;

typedef struct scene {
    int64_t n, plane, rows, cols, window;
    xpt_bench t[SIDES];
    int32_t first[2 * FRAMES];
    xpe_unit unit[MODES];
    /* host */
    xpe_c32 *v, *z, *image, *probe, *divider, *copies, *u, *d, *told[SIDES];
    float *counts, *weight, *deviation;
} scene;

static double delta_of(int64_t n)
{
    return 2 * log2((double)n) * 6.7 * U + 3 * U;
}

static xpe_c32 near_one(xpt_random *r, double size)
{
    double angle = 2 * xpt_random_unit(r), length = size * (0.75 + 0.5 * xpt_random_unit(r));

    return (xpe_c32){(float)(length * cos(angle)), (float)(length * sin(angle))};
}

static void fill(xpt_random *r, xpe_c32 *to, int64_t count, double size)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = near_one(r, size);
}

static xpe_c32 pixel_of(const scene *s, const xpe_c32 *image, int j, int64_t i)
{
    return image ? image[(s->first[2 * j] + i / s->n) * s->cols + s->first[2 * j + 1] + i % s->n]
                 : s->v[j * s->plane + i];
}

/* sum_k ||d_k x||^2 / n^2 of frame j's patch x of an image, or of v_j where image is NULL. */
static double field_energy(const scene *s, const xpe_c32 *image, int j)
{
    double sum = 0;

    for (int k = 0; k < MODES; k++)
        for (int64_t i = 0; i < s->plane; i++) {
            xpe_c32 x = pixel_of(s, image, j, i), p = s->probe[k * s->plane + i];
            sum += ((double)x.re * (double)x.re + (double)x.im * (double)x.im) *
                   ((double)p.re * (double)p.re + (double)p.im * (double)p.im);
        }
    return sum;
}

/* Counts whose amplitudes are 0.7 of those that v_j gives (the patch of an image): a small change
 * of the field changes what replaces it by at most 1.4 times as much, also where the field is
 * small. */
static void measure(scene *s, const xpe_c32 *image)
{
    xpt_dft *dft = xpt_dft_create(s->n);
    xpt_c *field = xpt_new((size_t)s->plane, sizeof *field);

    memset(s->counts, 0, (size_t)(FRAMES * s->plane) * sizeof *s->counts);
    for (int j = 0; j < FRAMES; j++)
        for (int k = 0; k < MODES; k++) {
            for (int64_t i = 0; i < s->plane; i++) {
                xpe_c32 x = pixel_of(s, image, j, i), p = s->probe[k * s->plane + i];
                field[i] = CMPLX((double)x.re, (double)x.im) * CMPLX((double)p.re, (double)p.im);
            }
            xpt_dft_run(dft, field, -1);
            for (int64_t i = 0; i < s->plane; i++)
                s->counts[j * s->plane + i] += (float)(0.49 * creal(field[i] * conj(field[i])));
        }
    free(field);
    xpt_dft_destroy(dft);
}

static scene scene_create(int64_t n)
{
    static const xpe_backend *const backends[SIDES] = {&xpe_backend_cpu, &xpe_backend_cuda};
    static const char *const names[SIDES][1] = {{"cpu"}, {"cuda:0"}};
    scene s = {.n = n, .plane = n * n, .rows = 2 * n, .cols = 2 * n, .window = 4 * n * n};
    size_t frames = (size_t)(FRAMES * s.plane), modes = (size_t)(MODES * s.plane);
    xpt_random r = {(uint64_t)n};
    xpe_error err;

    for (int i = 0; i < SIDES; i++) {
        const xpe_device_list one = {names[i], 1, 2};
        s.t[i].b = backends[i];
        if (backends[i]->open(&s.t[i].team, &one, n, MODES, &err) != XPE_OK)
            fail_msg("%s", err.text);
        s.told[i] = xpt_new(frames * MODES * 2, sizeof *s.told[i]);
    }
    for (int j = 0; j < FRAMES; j++) { /* sorted by row */
        s.first[2 * j] = (int32_t)(j * n / FRAMES);
        s.first[2 * j + 1] = (int32_t)(xpt_random_below(&r, n + 1));
    }
    s.v = xpt_new(frames, sizeof *s.v);
    s.copies = xpt_new(frames * MODES, sizeof *s.copies);
    s.z = xpt_new((size_t)s.window, sizeof *s.z);
    s.image = xpt_new((size_t)s.window, sizeof *s.image);
    s.probe = xpt_new(modes, sizeof *s.probe);
    s.divider = xpt_new(modes, sizeof *s.divider);
    s.u = xpt_new(modes, sizeof *s.u);
    s.d = xpt_new(modes, sizeof *s.d);
    s.weight = xpt_new(modes, sizeof *s.weight);
    s.deviation = xpt_new(modes, sizeof *s.deviation);
    s.counts = xpt_new(frames, sizeof *s.counts);
    fill(&r, s.image, s.window, 1);
    fill(&r, s.z, s.window, 0.1);
    fill(&r, s.v, (int64_t)frames, 1);
    fill(&r, s.d, (int64_t)modes, 1);
    fill(&r, s.u, (int64_t)modes, 0.1);
    for (size_t i = 0; i < modes; i++) {
        double energy =
            (double)s.d[i].re * (double)s.d[i].re + (double)s.d[i].im * (double)s.d[i].im;
        double scale = (double)ALPHA / (double)n / MODES / energy;
        s.probe[i] = (xpe_c32){s.d[i].re / (float)n, s.d[i].im / (float)n};
        s.divider[i] =
            (xpe_c32){(float)(scale * (double)s.d[i].re), (float)(-scale * (double)s.d[i].im)};
        s.weight[i] = (float)energy;
        s.deviation[i] = (float)(0.1 + xpt_random_unit(&r));
    }
    for (size_t i = 0; i < frames * MODES;
         i++) { /* half the modes: the same phases in the far field */
        size_t at = i / frames * (size_t)s.plane + i % (size_t)s.plane;
        s.copies[i] = (xpe_c32){0.5f * s.d[at].re, 0.5f * s.d[at].im};
    }
    measure(&s, NULL);
    for (int k = 0; k < MODES; k++)
        s.unit[k] = xpe_unit_make(64, FRAMES);
    return s;
}

static void scene_destroy(scene *s)
{
    for (int i = 0; i < SIDES; i++) {
        s->t[i].b->close(s->t[i].team);
        free(s->told[i]);
    }
    free(s->v);
    free(s->copies);
    free(s->z);
    free(s->image);
    free(s->probe);
    free(s->divider);
    free(s->u);
    free(s->d);
    free(s->weight);
    free(s->deviation);
    free(s->counts);
}

static xpe_buffer *put(xpt_bench t, const void *from, size_t bytes)
{
    return xpt_bench_make_from(t, 0, from, bytes);
}

/* The 2-norm of the difference of two fields. */
static double apart(const xpe_c32 *a, const xpe_c32 *b, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum +=
            pow((double)a[i].re - (double)b[i].re, 2) + pow((double)a[i].im - (double)b[i].im, 2);
    return sqrt(sum);
}

/* ... of two sums, in the numbers that they stand for. */
static double sums_apart(const int64_t *a, const int64_t *b, size_t count, double unit)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += pow((double)(a[i] - b[i]) * unit, 2);
    return sqrt(sum);
}

static void assert_close(const char *what, double seen, double bound)
{
    if (!(seen <= bound))
        fail_msg("%s: %g apart, at most %g is rounding", what, seen, bound);
}

/* What the operations on frames use, on one side. */
typedef struct side {
    xpt_bench t;
    xpe_buffer *first, *y, *energy, *masked, *v, *z, *image, *probe, *divider, *weight, *misfit,
        *v_energy, *numbers;
    xpe_sums *sums;
    int64_t order[FRAMES];
} side;

static side side_create(const scene *s, int i)
{
    xpt_bench t = s->t[i];
    size_t frames = (size_t)(FRAMES * s->plane), modes = (size_t)(MODES * s->plane);
    xpe_sums_desc desc = {MODES, true, true, true, s->rows, s->cols, s->first, FRAMES, s->n};
    side a = {.t = t};
    xpe_error err;

    a.first = put(t, s->first, sizeof s->first);
    a.y = xpt_bench_make(t, 0, (size_t)(FRAMES * t.b->amplitude_bytes(s->n)));
    a.energy = xpt_bench_make(t, 0, FRAMES * sizeof(double));
    a.masked = xpt_bench_make(t, 0, FRAMES * sizeof(int64_t));
    a.v = put(t, s->v, frames * sizeof *s->v);
    a.z = put(t, s->z, (size_t)s->window * sizeof *s->z);
    a.image = put(t, s->image, (size_t)s->window * sizeof *s->image);
    a.probe = put(t, s->probe, modes * sizeof *s->probe);
    a.divider = put(t, s->divider, modes * sizeof *s->divider);
    a.weight = put(t, s->weight, modes * sizeof *s->weight);
    a.misfit = xpt_bench_make(t, 0, FRAMES * sizeof(double));
    a.v_energy = xpt_bench_make(t, 0, FRAMES * sizeof(float));
    a.numbers = xpt_bench_numbers(t, MODES, s->unit, NULL, NULL, 1e-6);
    if (t.b->sums_create(&a.sums, t.team, 0, &desc, &err) != XPE_OK)
        fail_msg("%s", err.text);
    for (int j = 0; j < FRAMES; j++)
        a.order[j] = j;
    t.b->amplitudes(t.team, 0,
                    &(xpe_amplitude_args){.frames = s->counts,
                                          .type = XPE_F32,
                                          .order = a.order,
                                          .y = a.y,
                                          .energy = a.energy,
                                          .masked = a.masked,
                                          .batch = {0, FRAMES, FRAMES}});
    xpt_bench_wait(t);
    return a;
}

static void side_destroy(side *a)
{
    xpe_buffer *const all[] = {a->first,  a->y,        a->energy, a->masked,  a->v,
                               a->z,      a->image,    a->probe,  a->divider, a->weight,
                               a->misfit, a->v_energy, a->numbers};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        a->t.b->buffer_destroy(all[i]);
    a->t.b->sums_destroy(a->sums);
}

static void read_sum(const scene *s, const side *a, xpe_sum_array array, int mode, int64_t *to)
{
    size_t bytes = (size_t)s->window * (array == XPE_SUM_REAL ? 1 : 2) * sizeof *to;
    xpe_buffer *out = xpt_bench_make(a->t, 0, bytes);

    a->t.b->sums_gather(a->t.team, out, 0, 0, a->sums, mode, array, 0, s->rows);
    xpt_bench_wait(a->t);
    xpt_bench_read(a->t, to, out, bytes);
    a->t.b->buffer_destroy(out);
}

/* Step 7, 2 and 1 in a trip of two batches. */
static void the_trip(int64_t n)
{
    scene s = scene_create(n);
    double delta = delta_of(n), energy[SIDES][FRAMES], misfit[SIDES][FRAMES], strongest = 0, fit,
           reach = 0;
    size_t frames = (size_t)(FRAMES * s.plane);
    int64_t *sum[SIDES];
    float largest[SIDES][FRAMES];

    for (int i = 0; i < SIDES; i++) {
        side a = side_create(&s, i);
        sum[i] = xpt_new((size_t)(s.window * 5 * MODES), sizeof *sum[i]);
        a.t.b->sums_clear(a.t.team, 0, a.sums);
        for (int64_t at = 0; at < FRAMES; at += 3)
            a.t.b->fit(a.t.team, 0,
                       &(xpe_fit_args){
                           .flags = XPE_FIT_ERROR | XPE_FIT_UPDATE | XPE_FIT_PATCH | XPE_FIT_SUM_V |
                                    XPE_FIT_SUM_L,
                           .modes = MODES,
                           .batch = {at, at ? FRAMES - 3 : 3, FRAMES},
                           .one_minus_alpha = 1 - ALPHA,
                           .two_rho = 0, /* v stays what the counts were made for; see the_update */
                           .cols = s.cols,
                           .first = a.first,
                           .y = a.y,
                           .v = a.v,
                           .image = a.image,
                           .z = a.z,
                           .probe = a.probe,
                           .divider = a.divider,
                           .weight = a.weight,
                           .sums = a.sums,
                           .numbers = a.numbers,
                           .misfit = a.misfit,
                           .v_energy = a.v_energy});
        xpt_bench_wait(a.t);
        xpt_bench_read(a.t, energy[i], a.energy, sizeof energy[i]);
        xpt_bench_read(a.t, misfit[i], a.misfit, sizeof misfit[i]);
        xpt_bench_read(a.t, largest[i], a.v_energy, sizeof largest[i]);
        xpt_bench_read(a.t, s.told[i], a.v, frames * sizeof *s.v);
        for (int k = 0; k < MODES; k++) {
            read_sum(&s, &a, XPE_SUM_A, k, sum[i] + 5 * s.window * k);
            read_sum(&s, &a, XPE_SUM_B, k, sum[i] + 5 * s.window * k + 2 * s.window);
            read_sum(&s, &a, XPE_SUM_REAL, k, sum[i] + 5 * s.window * k + 4 * s.window);
        }
        side_destroy(&a);
    }
    for (int j = 0; j < FRAMES; j++) {
        /* far fields of norm n ||d x||, each side off by delta of it; | ||G| - y| changes by no
         * more, and the square of its norm by 2 ||r|| ||dr|| + ||dr||^2 */
        double off = 2 * delta * (double)n * sqrt(field_energy(&s, s.image, j));
        assert_close("energy", fabs(energy[0][j] - energy[1][j]),
                     2 * (double)s.plane * 0x1p-53 * energy[0][j]);
        assert_close("misfit", fabs(misfit[0][j] - misfit[1][j]),
                     2 * sqrt(misfit[0][j]) * off + off * off);
        strongest = fmax(strongest, sqrt(field_energy(&s, NULL, j)));
    }
    for (int64_t i = 0; i < MODES * s.plane; i++)
        reach = fmax(reach, hypot((double)s.divider[i].re, (double)s.divider[i].im));
    /* forward, replaced (1.4 of the error, three roundings of 0.7 of the field), back: n ||F||
     * delta times these; then times the divider of each mode, and a few roundings of numbers below
     * 4 in each pixel */
    fit = 2 * (reach * sqrt(MODES) * (double)(n * n) * strongest *
                   (1.4 * delta + 2.1 * U + 0.7 * delta) +
               16 * U * 4 * (double)n);
    assert_memory_equal(s.told[0], s.told[1], frames * sizeof *s.v); /* two_rho is 0 */
    assert_memory_equal(largest[0], largest[1], sizeof largest[0]);
    for (int k = 0; k < MODES; k++) {
        const int64_t *a = sum[0] + 5 * s.window * k, *b = sum[1] + 5 * s.window * k;
        assert_close("W", sums_apart(a, b, (size_t)(2 * s.window), s.unit[k].unit),
                     FRAMES * (2 * fit + (double)n * s.unit[k].unit)); /* weights are below 1.6 */
        assert_memory_equal(a + 2 * s.window, b + 2 * s.window,
                            (size_t)(3 * s.window) * sizeof *a); /* V and L */
    }
    for (int i = 0; i < SIDES; i++)
        free(sum[i]);
    scene_destroy(&s);
}

/* Step 2 alone, patches, and the sums without transforms: the same bits. */
static void the_update(int64_t n)
{
    scene s = scene_create(n);
    size_t frames = (size_t)(FRAMES * s.plane);
    int64_t *sum[SIDES];

    for (int i = 0; i < SIDES; i++) {
        side a = side_create(&s, i);
        xpe_fit_args args = {.flags = XPE_FIT_UPDATE,
                             .modes = MODES,
                             .batch = {0, FRAMES, FRAMES},
                             .two_rho = TWO_RHO,
                             .cols = s.cols,
                             .first = a.first,
                             .y = a.y,
                             .v = a.v,
                             .z = a.z,
                             .probe = a.probe,
                             .weight = a.weight,
                             .divider = a.divider,
                             .sums = a.sums,
                             .numbers = a.numbers,
                             .misfit = a.misfit,
                             .v_energy = a.v_energy,
                             .image = a.image};
        sum[i] = xpt_new((size_t)s.window, sizeof *sum[i]);
        a.t.b->fit(a.t.team, 0, &args);
        xpt_bench_wait(a.t);
        xpt_bench_read(a.t, s.told[i], a.v, frames * sizeof *s.v);
        args.flags = XPE_FIT_SUM_L;
        a.t.b->sums_clear(a.t.team, 0, a.sums);
        a.t.b->fit(a.t.team, 0, &args);
        xpt_bench_wait(a.t);
        read_sum(&s, &a, XPE_SUM_REAL, 1, sum[i]);
        a.t.b->patches(a.t.team, 0,
                       &(xpe_patch_args){{0, FRAMES, FRAMES}, s.cols, a.first, a.image, a.v});
        xpt_bench_wait(a.t);
        xpt_bench_read(a.t, s.told[i] + frames, a.v, frames * sizeof *s.v);
        side_destroy(&a);
    }
    assert_memory_equal(s.told[0], s.told[1], 2 * frames * sizeof *s.v);
    assert_memory_equal(sum[0], sum[1], (size_t)s.window * sizeof *sum[0]);
    for (int i = 0; i < SIDES; i++)
        free(sum[i]);
    scene_destroy(&s);
}

/* What the operations on copies tell, on one side. */
typedef struct copies_told {
    xpe_c32 *settled, *filled, *after;
    int64_t *deviation, *sum_s, *sum_r;
    float largest[MODES * FRAMES];
} copies_told;

static void read_probe_sum(const scene *s, xpt_bench t, const xpe_sums *sums, xpe_sum_array array,
                           int64_t *to)
{
    size_t bytes = (size_t)s->plane * (array == XPE_SUM_REAL ? 1 : 2) * sizeof *to;
    xpe_buffer *out = xpt_bench_make(t, 0, bytes);

    t.b->sums_gather(t.team, out, 0, 0, sums, 1, array, 0, s->n);
    xpt_bench_wait(t);
    xpt_bench_read(t, to, out, bytes);
    t.b->buffer_destroy(out);
}

/* Deviations, steps 5 and 6 now, filling, and step 4 from the copies as they were. */
static copies_told work_on_copies(const scene *s, int i)
{
    size_t all = (size_t)(MODES * FRAMES * s->plane), plane = (size_t)s->plane,
           modes = MODES * plane;
    side a = side_create(s, i);
    xpt_bench t = a.t;
    xpe_buffer *copies = put(t, s->copies, all * sizeof *s->copies),
               *u = put(t, s->u, modes * sizeof *s->u), *d = put(t, s->d, modes * sizeof *s->d),
               *deviation = put(t, s->deviation, modes * sizeof *s->deviation),
               *s_energy = xpt_bench_make(t, 0, MODES * FRAMES * sizeof(float));
    xpe_copy_state state = {
        .s = copies, .pending = true, .u = u, .d = d, .deviation = deviation, .two_rho = TWO_RHO};
    xpe_batch batch = {0, FRAMES, FRAMES};
    copies_told told = {.settled = xpt_new(all, sizeof(xpe_c32)),
                        .filled = xpt_new(all, sizeof(xpe_c32)),
                        .after = xpt_new(all, sizeof(xpe_c32)),
                        .deviation = xpt_new(plane, 8),
                        .sum_s = xpt_new(2 * plane, 8),
                        .sum_r = xpt_new(2 * plane, 8)};
    xpe_sums *sums;
    xpe_error err;

    if (t.b->sums_create(&sums, t.team, 0,
                         &(xpe_sums_desc){MODES, true, true, true, s->n, s->n, NULL, FRAMES, s->n},
                         &err) != XPE_OK)
        fail_msg("%s", err.text);
    t.b->sums_clear(t.team, 0, sums);
    t.b->deviation(t.team, 0, &(xpe_deviation_args){MODES, batch, state, sums, a.numbers});
    read_probe_sum(s, t, sums, XPE_SUM_REAL, told.deviation);
    t.b->settle(t.team, 0, &(xpe_settle_args){MODES, batch, state, 0.9f});
    xpt_bench_wait(t);
    xpt_bench_read(t, told.settled, copies, all * sizeof *told.settled);
    t.b->fill(t.team, 0, &(xpe_fill_args){1, batch, copies, d});
    xpt_bench_wait(t);
    xpt_bench_read(t, told.filled, copies, all * sizeof *told.filled);
    t.b->upload(t.team, copies, 0, s->copies, all * sizeof *s->copies);
    state.pending = false;
    t.b->probe_fit(t.team, 0,
                   &(xpe_probe_args){.modes = MODES,
                                     .batch = batch,
                                     .copy = state,
                                     .one_minus_alpha = 1 - ALPHA,
                                     .alpha = ALPHA,
                                     .two_rho = TWO_RHO,
                                     .cols = s->cols,
                                     .first = a.first,
                                     .y = a.y,
                                     .image = a.image,
                                     .probe = a.probe,
                                     .sums = sums,
                                     .numbers = a.numbers,
                                     .s_energy = s_energy});
    read_probe_sum(s, t, sums, XPE_SUM_B, told.sum_s);
    read_probe_sum(s, t, sums, XPE_SUM_A, told.sum_r);
    xpt_bench_read(t, told.after, copies, all * sizeof *told.after);
    xpt_bench_read(t, told.largest, s_energy, sizeof told.largest);
    t.b->sums_destroy(sums);
    t.b->buffer_destroy(copies);
    t.b->buffer_destroy(u);
    t.b->buffer_destroy(d);
    t.b->buffer_destroy(deviation);
    t.b->buffer_destroy(s_energy);
    side_destroy(&a);
    return told;
}

static void copies_release(copies_told *c)
{
    free(c->settled);
    free(c->filled);
    free(c->after);
    free(c->deviation);
    free(c->sum_s);
    free(c->sum_r);
}

static void the_copies(int64_t n)
{
    scene s = scene_create(n);
    size_t all = (size_t)(MODES * FRAMES * s.plane), plane = (size_t)s.plane;
    double delta = delta_of(n), strongest = 0, fit;
    copies_told told[SIDES];

    measure(&s, s.image);
    for (int i = 0; i < SIDES; i++)
        told[i] = work_on_copies(&s, i);
    assert_memory_equal(told[0].deviation, told[1].deviation, plane * sizeof(int64_t));
    assert_memory_equal(told[0].settled, told[1].settled, all * sizeof(xpe_c32));
    assert_memory_equal(told[0].filled, told[1].filled, all * sizeof(xpe_c32));
    assert_memory_equal(told[0].sum_s, told[1].sum_s, 2 * plane * sizeof(int64_t));
    for (int j = 0; j < FRAMES; j++)
        strongest = fmax(strongest, sqrt(field_energy(&s, s.image, j)));
    /* Imposed is A S_k / |S_k| with A = g |G_k|, g = 0.7, S_k = n / 2 G_k.  A is off by 1.4 delta n
     * ||F|| in the 2-norm, as in the trip; the phase by 2 |dS_k| / |S_k|, which times A is 2.8 / n
     * |dS_k|, and ||dS_k|| <= delta n n / 2 ||F||.  Then back, with delta of 0.7 of the field, four
     * roundings, and times alpha / n and 1 / |p| <= 1 / 0.75. */
    fit = 2 * ((double)ALPHA / (0.75 * (double)n) * (double)(n * n) * strongest *
                   (3.5 * delta + 4 * U) +
               16 * U * 4 * (double)n);
    for (size_t i = 0; i < MODES * FRAMES; i++)
        assert_close("copies", apart(told[0].after + i * plane, told[1].after + i * plane, plane),
                     (double)TWO_RHO * fit);
    assert_close("R", sums_apart(told[0].sum_r, told[1].sum_r, 2 * plane, s.unit[1].unit),
                 FRAMES * (fit + (double)n * s.unit[1].unit));
    for (int i = 0; i < MODES * FRAMES; i++)
        assert_close("largest copies",
                     fabs((double)told[0].largest[i] - (double)told[1].largest[i]),
                     2 * sqrt((double)told[0].largest[i]) * 2 * fit + 4 * fit * fit);
    for (int i = 0; i < SIDES; i++)
        copies_release(&told[i]);
    scene_destroy(&s);
}

/* The position search and the mean of what comes back; averages on bands; modes. */
typedef struct rest_told {
    double search[FRAMES * 9], row_energy[64 * 2], row_max[128 * 2], cover_energy[64 * 2 * MODES],
        mode_energy[64 * MODES], mode_max[64 * MODES * 3], u_max[64 * MODES];
    float nonzero[FRAMES];
    int64_t *back;
    double *v, *l;
    xpe_c32 *z, *image, *u, *d, *probe, *divider;
    float *weight, *deviation;
} rest_told;

static void take(xpt_bench t, void *to, xpe_buffer *from, size_t bytes)
{
    xpt_bench_read(t, to, from, bytes);
    t.b->buffer_destroy(from);
}

static void work_on_frames(const scene *s, int i, rest_told *told)
{
    side a = side_create(s, i);
    xpt_bench t = a.t;
    xpe_buffer *misfit = xpt_bench_make(t, 0, sizeof told->search),
               *nonzero = xpt_bench_make(t, 0, sizeof told->nonzero);
    xpe_batch batch = {0, FRAMES, FRAMES};
    xpe_sums *sums;
    xpe_error err;

    if (t.b->sums_create(&sums, t.team, 0,
                         &(xpe_sums_desc){MODES, true, true, true, s->n, s->n, NULL, FRAMES, s->n},
                         &err) != XPE_OK)
        fail_msg("%s", err.text);
    t.b->search(t.team, 0,
                &(xpe_search_args){MODES, 1, batch, a.first, a.y, a.image, a.probe, s->rows,
                                   s->cols, misfit});
    xpt_bench_wait(t);
    take(t, told->search, misfit, sizeof told->search);
    t.b->sums_clear(t.team, 0, sums);
    t.b->back(t.team, 0,
              &(xpe_back_args){.batch = batch,
                               .cols = s->cols,
                               .first = a.first,
                               .y = a.y,
                               .image = a.image,
                               .probe = a.probe,
                               .sums = sums,
                               .unit = s->unit,
                               .nonzero = nonzero});
    xpt_bench_wait(t);
    take(t, told->nonzero, nonzero, sizeof told->nonzero);
    told->back = xpt_new((size_t)s->plane * 2, sizeof *told->back);
    {
        xpe_buffer *out = xpt_bench_make(t, 0, (size_t)s->plane * 2 * sizeof *told->back);
        t.b->sums_gather(t.team, out, 0, 0, sums, 0, XPE_SUM_A, 0, s->n);
        xpt_bench_wait(t);
        take(t, told->back, out, (size_t)s->plane * 2 * sizeof *told->back);
    }
    t.b->sums_destroy(sums);
    side_destroy(&a);
}

/* Sums as a trip would leave them: any integers. */
static void work_on_images(const scene *s, int i, rest_told *told)
{
    xpt_bench t = s->t[i];
    xpt_random r = {77};
    size_t pixels = (size_t)(s->window * MODES), plane = (size_t)(s->plane * MODES);
    int64_t *w = xpt_new(pixels * 2, sizeof *w), *real = xpt_new(pixels, sizeof *real);
    double share[MODES] = {0.7, 0.3}, eps[MODES] = {1e-6, 2e-6};
    int32_t *count = xpt_new((size_t)s->window, sizeof *count);
    xpe_buffer *b_w, *b_real, *v, *l, *b_count, *z, *image, *row_energy, *row_max, *cover, *u, *d,
        *u_max, *dev, *me, *probe, *divider, *weight, *mode_max,
        *numbers = xpt_bench_numbers(t, MODES, s->unit, share, eps, 0);

    for (size_t k = 0; k < pixels * 2; k++)
        w[k] = (int64_t)((xpt_random_unit(&r) - 0.5) * 0x1p52);
    for (size_t k = 0; k < pixels; k++)
        real[k] = (int64_t)(xpt_random_unit(&r) * 0x1p52) + 1;
    for (int64_t k = 0; k < s->window; k++)
        count[k] = (int32_t)xpt_random_below(&r, 5);
    b_w = put(t, w, pixels * 2 * sizeof *w);
    b_real = put(t, real, pixels * sizeof *real);
    b_count = put(t, count, (size_t)s->window * sizeof *count);
    v = xpt_bench_make(t, 0, pixels * 2 * sizeof(double));
    l = xpt_bench_make(t, 0, pixels * sizeof(double));
    z = xpt_bench_make(t, 0, (size_t)s->window * sizeof(xpe_c32));
    image = xpt_bench_make(t, 0, (size_t)s->window * sizeof(xpe_c32));
    row_energy = xpt_bench_make(t, 0, (size_t)s->rows * sizeof(double));
    row_max = xpt_bench_make(t, 0, (size_t)s->rows * 2 * sizeof(double));
    cover = xpt_bench_make(t, 0, (size_t)s->rows * MODES * sizeof(double));
    t.b->unfix(t.team, 0, &(xpe_unfix_args){MODES, 2, s->rows, s->cols, numbers, b_w, v, 0, NULL});
    t.b->unfix(t.team, 0,
               &(xpe_unfix_args){MODES, 1, s->rows, s->cols, numbers, b_real, l, 0, cover});
    t.b->average(t.team, 0,
                 &(xpe_average_args){.modes = MODES,
                                     .rows = s->rows,
                                     .cols = s->cols,
                                     .two_rho = 0.8,
                                     .numbers = numbers,
                                     .w = b_w,
                                     .v = v,
                                     .l = l,
                                     .count = b_count,
                                     .z = z,
                                     .image = image,
                                     .row_energy = row_energy,
                                     .row_max = row_max});
    u = xpt_bench_make(t, 0, plane * sizeof(xpe_c32));
    d = xpt_bench_make(t, 0, plane * sizeof(xpe_c32));
    u_max = xpt_bench_make(t, 0, (size_t)(s->n * MODES) * sizeof(double));
    dev = xpt_bench_make(t, 0, plane * sizeof(float));
    me = xpt_bench_make(t, 0, (size_t)(s->n * MODES) * sizeof(double));
    probe = xpt_bench_make(t, 0, plane * sizeof(xpe_c32));
    divider = xpt_bench_make(t, 0, plane * sizeof(xpe_c32));
    weight = xpt_bench_make(t, 0, plane * sizeof(float));
    mode_max = xpt_bench_make(t, 0, (size_t)(s->n * MODES * 3) * sizeof(double));
    t.b->mode_average(
        t.team, 0,
        &(xpe_mode_average_args){MODES, FRAMES, 0.8, numbers, b_w, b_w, u, d, NULL, u_max});
    t.b->mode_deviation(t.team, 0, &(xpe_mode_deviation_args){MODES, FRAMES, numbers, b_real, dev});
    t.b->mode_energy(t.team, 0, &(xpe_mode_energy_args){MODES, d, me});
    t.b->mode_derive(
        t.team, 0,
        &(xpe_mode_derive_args){MODES, 1.25, 0.6, numbers, d, probe, divider, weight, mode_max});
    xpt_bench_wait(t);
    take(t, told->v = xpt_new(pixels * 2, 8), v, pixels * 2 * sizeof(double));
    take(t, told->l = xpt_new(pixels, 8), l, pixels * sizeof(double));
    take(t, told->z = xpt_new((size_t)s->window, 8), z, (size_t)s->window * sizeof(xpe_c32));
    take(t, told->image = xpt_new((size_t)s->window, 8), image,
         (size_t)s->window * sizeof(xpe_c32));
    take(t, told->row_energy, row_energy, (size_t)s->rows * sizeof(double));
    take(t, told->row_max, row_max, (size_t)s->rows * 2 * sizeof(double));
    take(t, told->cover_energy, cover, (size_t)s->rows * MODES * sizeof(double));
    take(t, told->u = xpt_new(plane, 8), u, plane * sizeof(xpe_c32));
    take(t, told->d = xpt_new(plane, 8), d, plane * sizeof(xpe_c32));
    take(t, told->u_max, u_max, (size_t)(s->n * MODES) * sizeof(double));
    take(t, told->deviation = xpt_new(plane, 4), dev, plane * sizeof(float));
    take(t, told->mode_energy, me, (size_t)(s->n * MODES) * sizeof(double));
    take(t, told->probe = xpt_new(plane, 8), probe, plane * sizeof(xpe_c32));
    take(t, told->divider = xpt_new(plane, 8), divider, plane * sizeof(xpe_c32));
    take(t, told->weight = xpt_new(plane, 4), weight, plane * sizeof(float));
    take(t, told->mode_max, mode_max, (size_t)(s->n * MODES * 3) * sizeof(double));
    t.b->buffer_destroy(numbers);
    t.b->buffer_destroy(b_w);
    t.b->buffer_destroy(b_real);
    t.b->buffer_destroy(b_count);
    free(w);
    free(real);
    free(count);
}

static void rest_release(rest_told *t)
{
    void *const all[] = {t->back, t->v,     t->l,       t->z,      t->image,    t->u,
                         t->d,    t->probe, t->divider, t->weight, t->deviation};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Sums of `length` numbers each. */
static void assert_sums(const char *what, const double *a, const double *b, int64_t count,
                        int64_t length)
{
    for (int64_t i = 0; i < count; i++)
        assert_close(what, fabs(a[i] - b[i]), 2 * (double)length * 0x1p-53 * fabs(a[i]));
}

static void the_rest(int64_t n)
{
    scene s = scene_create(n);
    size_t pixels = (size_t)(s.window * MODES), plane = (size_t)(s.plane * MODES),
           line = (size_t)(n * MODES) * sizeof(double);
    rest_told *told = xpt_new(SIDES, sizeof *told);
    double delta = delta_of(n), y = 0;

    for (int i = 0; i < SIDES; i++) {
        work_on_frames(&s, i, &told[i]);
        work_on_images(&s, i, &told[i]);
    }
    for (int i = 0; i < FRAMES * 9;
         i++) { /* as the misfit of the trip; what leaves the window does so on both sides */
        /* at most all pixels of the window as bright as can be, 1.25^2 each, in the place of the
         * shifted patch */
        double off = 2 * delta * (double)n * sqrt(MODES) * 1.25 * 1.25, a = told[0].search[i],
               b = told[1].search[i];
        assert_int_equal(isnan(a), isnan(b));
        if (!isnan(a))
            assert_close("search", fabs(a - b), 2 * sqrt(a) * off + off * off);
    }
    for (int64_t i = 0; i < FRAMES * s.plane; i++)
        y += (double)s.counts[i];
    /* a transform of y for each frame, n ||y||; their sum by Cauchy */
    assert_close("back",
                 sums_apart(told[0].back, told[1].back, 2 * (size_t)s.plane, s.unit[0].unit),
                 2 * delta * (double)n * sqrt(FRAMES * y) + FRAMES * (double)n * s.unit[0].unit);
    assert_memory_equal(told[0].nonzero, told[1].nonzero, sizeof told[0].nonzero);
    assert_memory_equal(told[0].v, told[1].v, pixels * 2 * sizeof(double));
    assert_memory_equal(told[0].l, told[1].l, pixels * sizeof(double));
    assert_memory_equal(told[0].z, told[1].z, (size_t)s.window * sizeof(xpe_c32));
    assert_memory_equal(told[0].image, told[1].image, (size_t)s.window * sizeof(xpe_c32));
    assert_memory_equal(told[0].row_max, told[1].row_max, (size_t)s.rows * 2 * sizeof(double));
    assert_sums("row energy", told[0].row_energy, told[1].row_energy, s.rows, s.cols);
    assert_sums("cover energy", told[0].cover_energy, told[1].cover_energy, s.rows * MODES, s.cols);
    assert_memory_equal(told[0].u, told[1].u, plane * sizeof(xpe_c32));
    assert_memory_equal(told[0].d, told[1].d, plane * sizeof(xpe_c32));
    assert_memory_equal(told[0].u_max, told[1].u_max, line);
    assert_memory_equal(told[0].deviation, told[1].deviation, plane * sizeof(float));
    assert_sums("mode energy", told[0].mode_energy, told[1].mode_energy, n * MODES, n);
    assert_memory_equal(told[0].probe, told[1].probe, plane * sizeof(xpe_c32));
    assert_memory_equal(told[0].divider, told[1].divider, plane * sizeof(xpe_c32));
    assert_memory_equal(told[0].weight, told[1].weight, plane * sizeof(float));
    assert_memory_equal(told[0].mode_max, told[1].mode_max, 3 * line);
    for (int i = 0; i < SIDES; i++)
        rest_release(&told[i]);
    free(told);
    scene_destroy(&s);
}

/* The numbers between the steps: largest values and what follows from them are equal, sums of rows
 * are sums. */
#define ROWS 700 /* more than one for a thread of a block */

static xpe_numbers numbers_of(xpt_bench t, bool known, double maxima[6])
{
    xpe_numbers_model model = {.modes = MODES,
                               .known = known,
                               .masked = true,
                               .object_data_fit = 0.6,
                               .probe_data_fit = 0.4,
                               .two_rho = 1,
                               .frame_norm = 30,
                               .pixels = 256,
                               .cover_pixels = ROWS * ROWS,
                               .num_frames = 100,
                               .count_max = 12};
    static float floats[ROWS];
    static double rows[ROWS * 3 * MODES];
    xpe_numbers n;
    xpe_buffer *fb, *rb, *mb = xpt_bench_make(t, 0, 6 * sizeof(double)),
                         *nb = xpt_bench_make(t, 0, sizeof(xpe_numbers));
    xpt_random r = {78};

    for (int i = 0; i < ROWS; i++)
        floats[i] = (float)xpt_random_unit(&r);
    for (int i = 0; i < ROWS * 3 * MODES; i++)
        rows[i] = xpt_random_unit(&r);
    fb = put(t, floats, sizeof floats);
    rb = put(t, rows, sizeof rows);
    for (int slot = 0; slot < 2; slot++)
        t.b->maxima(t.team, 0,
                    &(xpe_maxima_args){.slot = slot,
                                       .floats_count = slot ? ROWS : 3,
                                       .doubles_count = ROWS,
                                       .floats = fb,
                                       .doubles = slot ? rb : NULL,
                                       .columns = 2,
                                       .out = mb});
    for (int step = XPE_NUMBERS_AVERAGE; step <= XPE_NUMBERS_COVER; step++)
        t.b->numbers(t.team, 0,
                     &(xpe_numbers_args){.step = (xpe_numbers_step)step,
                                         .model = model,
                                         .iteration = 5,
                                         .devices = 2,
                                         .maxima = mb,
                                         .count = ROWS,
                                         .rows = known && step == XPE_NUMBERS_AVERAGE ? NULL : rb,
                                         .numbers = nb});
    xpt_bench_wait(t);
    take(t, maxima, mb, 6 * sizeof(double));
    take(t, &n, nb, sizeof n);
    t.b->buffer_destroy(fb);
    t.b->buffer_destroy(rb);
    return n;
}

static void assert_sum_of_rows(double a, double b)
{
    assert_true(a > 0);
    assert_close("numbers", fabs(a - b), 2 * ROWS * 0x1p-53 * a);
}

static void numbers_between_the_steps(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        scene s = scene_create(16);
        double maxima[SIDES][6];
        xpe_numbers n[SIDES];

        for (int i = 0; i < SIDES; i++)
            n[i] = numbers_of(s.t[i], known, maxima[i]);
        assert_memory_equal(maxima[0], maxima[1], sizeof maxima[0]);
        assert_int_equal(n[0].bad.iteration, 0);
        assert_int_equal(n[1].bad.iteration, 0);
        assert_true(n[0].v == n[1].v && n[0].z == n[1].z && n[0].image == n[1].image &&
                    n[0].s == n[1].s && n[0].u == n[1].u);
        if (!known)
            assert_sum_of_rows(n[0].patch_eps, n[1].patch_eps);
        for (int k = 0; k < MODES; k++) {
            const xpe_mode_numbers *a = &n[0].mode[k], *b = &n[1].mode[k];
            assert_sum_of_rows(a->energy, b->energy);
            assert_sum_of_rows(a->share, b->share);
            assert_sum_of_rows(a->d_eps, b->d_eps);
            assert_sum_of_rows(a->cover_eps, b->cover_eps);
            assert_true(a->d_max == b->d_max && a->weight_max == b->weight_max &&
                        a->reach == b->reach);
            assert_memory_equal(&a->unit_l, &b->unit_l, sizeof a->unit_l);
            assert_memory_equal(&a->unit_v, &b->unit_v, sizeof a->unit_v);
            assert_memory_equal(&a->unit_s, &b->unit_s, sizeof a->unit_s);
        }
        scene_destroy(&s);
    }
}

static void by_cufft_and_by_transforms_of_our_own(void **state)
{
    (void)state;
    for (int64_t n = 16; n <= 64; n *= 4) {
        the_trip(n);
        the_update(n);
        the_copies(n);
        the_rest(n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_cufft_and_by_transforms_of_our_own),
        cmocka_unit_test(numbers_between_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
