/* See scene.h. */
#include "scene.h"

#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

double xpt_checker(int64_t i, int64_t n)
{
    return (i / n + i % n) % 2 ? -1 : 1;
}

/* A field times the checkerboard and a factor, as probes are held. */
void xpt_hold(xpe_c32 *out, const xpe_c32 *in, int64_t n, double factor)
{
    for (int64_t i = 0; i < n * n; i++) {
        out[i].re = (float)(xpt_checker(i, n) * factor * (double)in[i].re);
        out[i].im = (float)(xpt_checker(i, n) * factor * (double)in[i].im);
    }
}

void xpt_scene_destroy(xpt_scene *s)
{
    xpe_buffer *const all[] = {s->first_buffer, s->y,        s->energy, s->masked,  s->v,
                               s->image,        s->z,        s->probe,  s->divider, s->weight,
                               s->misfit,       s->v_energy, s->numbers};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        s->t.b->buffer_destroy(all[i]);
    s->t.b->sums_destroy(s->sums);
    s->t.b->close(s->t.team);
    free(s->first);
}

xpt_scene xpt_scene_create(int threads, int64_t block, int64_t rows, int64_t cols, int modes,
                           uint64_t seed)
{
    xpt_scene s = {.t = xpt_bench_open(1, threads, XPT_SCENE_SIDE, modes),
                   .block = block,
                   .rows = rows,
                   .cols = cols,
                   .modes = modes};
    xpt_random r = {seed};
    xpe_error err;
    size_t planes = (size_t)(modes * XPT_SCENE_PLANE);
    float *ones = xpt_new(planes, sizeof *ones);

    s.first = xpt_new((size_t)block * 2, sizeof *s.first);
    for (int64_t j = 0; j < block; j++) {
        s.first[2 * j] = (int32_t)(j * (rows - XPT_SCENE_SIDE) /
                                   (block > 1 ? block - 1 : 1)); /* sorted by row, as blocks are */
        s.first[2 * j + 1] = (int32_t)xpt_random_below(&r, cols - XPT_SCENE_SIDE + 1);
    }
    for (size_t i = 0; i < planes; i++)
        ones[i] = 1;
    s.first_buffer = xpt_bench_make_from(s.t, 0, s.first, (size_t)block * 2 * sizeof *s.first);
    s.y = xpt_bench_make(s.t, 0, (size_t)(block * s.t.b->amplitude_bytes(XPT_SCENE_SIDE)));
    s.energy = xpt_bench_make(s.t, 0, (size_t)block * 8);
    s.masked = xpt_bench_make(s.t, 0, (size_t)block * 8);
    s.v = xpt_bench_make(s.t, 0, (size_t)(block * XPT_SCENE_PLANE) * sizeof(xpe_c32));
    s.image = xpt_bench_make(s.t, 0, (size_t)(rows * cols) * sizeof(xpe_c32));
    s.z = xpt_bench_make(s.t, 0, (size_t)(rows * cols) * sizeof(xpe_c32));
    s.probe = xpt_bench_make(s.t, 0, planes * sizeof(xpe_c32));
    s.divider = xpt_bench_make(s.t, 0, planes * sizeof(xpe_c32));
    s.weight = xpt_bench_make_from(s.t, 0, ones, planes * sizeof *ones);
    s.misfit = xpt_bench_make(s.t, 0, (size_t)block * 8);
    s.v_energy = xpt_bench_make(s.t, 0, (size_t)block * 4);
    assert_int_equal(s.t.b->sums_create(&s.sums, s.t.team, 0,
                                        &(xpe_sums_desc){modes, true, true, true, rows, cols,
                                                         s.first, block, XPT_SCENE_SIDE},
                                        &err),
                     XPE_OK);
    for (int k = 0; k < 4; k++)
        s.unit[k] = xpe_unit_make(64.0, block);
    s.numbers = xpt_bench_numbers(s.t, modes, s.unit, NULL, NULL, 1e-6);
    free(ones);
    return s;
}

void xpt_scene_put(const xpt_scene *s, xpe_buffer *to, const void *from, size_t bytes)
{
    s->t.b->upload(s->t.team, to, 0, from, bytes);
    xpt_bench_wait(s->t);
}

/* Counts [block][n][n], a mask of the same size or NULL. */
void xpt_scene_measure(const xpt_scene *s, const float *counts, const uint8_t *mask)
{
    int64_t *order = xpt_new((size_t)s->block, sizeof *order);
    xpe_amplitude_args args = {.frames = counts,
                               .type = XPE_F32,
                               .mask = mask,
                               .mask_per_frame = true,
                               .order = order,
                               .y = s->y,
                               .energy = s->energy,
                               .masked = s->masked,
                               .batch = {0, s->block, s->block}};

    for (int64_t j = 0; j < s->block; j++)
        order[j] = j;
    s->t.b->amplitudes(s->t.team, 0, &args);
    xpt_bench_wait(s->t);
    free(order);
}

void xpt_scene_fit(const xpt_scene *s, int flags, float one_minus_alpha, float two_rho,
                   int64_t batch)
{
    xpe_fit_args args = {.flags = flags,
                         .modes = s->modes,
                         .one_minus_alpha = one_minus_alpha,
                         .two_rho = two_rho,
                         .cols = s->cols,
                         .first = s->first_buffer,
                         .y = s->y,
                         .v = s->v,
                         .image = s->image,
                         .z = s->z,
                         .probe = s->probe,
                         .divider = s->divider,
                         .weight = s->weight,
                         .sums = s->sums,
                         .numbers = s->numbers,
                         .misfit = s->misfit,
                         .v_energy = s->v_energy};

    s->t.b->sums_clear(s->t.team, 0, s->sums);
    for (int64_t at = 0; at < s->block; at += batch) {
        args.batch = (xpe_batch){at, at + batch < s->block ? batch : s->block - at, s->block};
        s->t.b->fit(s->t.team, 0, &args);
    }
    xpt_bench_wait(s->t);
}

/* Sum of mode k over the whole window. */
int64_t *xpt_scene_gather(const xpt_scene *s, int mode, xpe_sum_array array)
{
    int components = array == XPE_SUM_REAL ? 1 : 2;
    size_t bytes = (size_t)(s->rows * s->cols * components) * sizeof(int64_t);
    int64_t *out = xpt_new(bytes, 1);
    xpe_buffer *buffer = xpt_bench_make(s->t, 0, bytes);

    s->t.b->sums_gather(s->t.team, buffer, 0, 0, s->sums, mode, array, 0, s->rows);
    xpt_bench_wait(s->t);
    xpt_bench_read(s->t, out, buffer, bytes);
    s->t.b->buffer_destroy(buffer);
    return out;
}
