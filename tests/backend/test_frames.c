/* The operations on frames, through backend.h only: amplitudes, transform chains, sums, updates,
 * copies, search. */
#include "bench.h"
#include "engine_run.h"
#include "oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIDE 16
#define PLANE (SIDE * SIDE)

static double sign_of(int64_t i, int64_t n)
{
    return (i / n + i % n) % 2 ? -1 : 1;
}

/* A field times the checkerboard and a factor, as probes are held. */
static void hold(xpe_c32 *out, const xpe_c32 *in, int64_t n, double factor)
{
    for (int64_t i = 0; i < n * n; i++) {
        out[i].re = (float)(sign_of(i, n) * factor * (double)in[i].re);
        out[i].im = (float)(sign_of(i, n) * factor * (double)in[i].im);
    }
}

/* ---------------------------------------------------------------------------- one-frame scenes */

/* Everything that fit and probe_fit need for `block` frames of SIDE on a window of rows x cols. */
typedef struct scene {
    xpt_bench t;
    int64_t block, rows, cols;
    int modes;
    int32_t *first;
    xpe_buffer *first_buffer, *y, *energy, *masked, *v, *image, *z, *probe, *divider, *weight,
        *misfit, *v_energy;
    xpe_sums *sums;
    xpe_unit unit[4];
} scene;

static void destroy_scene(scene *s)
{
    xpe_buffer *const all[] = {s->first_buffer, s->y,       s->energy, s->masked,  s->v,
                               s->image,        s->z,       s->probe,  s->divider, s->weight,
                               s->misfit,       s->v_energy};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        s->t.b->buffer_destroy(all[i]);
    s->t.b->sums_destroy(s->sums);
    s->t.b->close(s->t.team);
    free(s->first);
}

static scene make_scene(int threads, int64_t block, int64_t rows, int64_t cols, int modes,
                        uint64_t seed)
{
    scene s = {.t = xpt_bench_open(1, threads, SIDE, modes),
               .block = block,
               .rows = rows,
               .cols = cols,
               .modes = modes};
    xpt_random r = {seed};
    xpe_error err;
    size_t planes = (size_t)(modes * PLANE);
    float *ones = xpt_new(planes, sizeof *ones);

    s.first = xpt_new((size_t)block * 2, sizeof *s.first);
    for (int64_t j = 0; j < block; j++) {
        s.first[2 * j] = (int32_t)(j * (rows - SIDE) /
                                   (block > 1 ? block - 1 : 1)); /* sorted by row, as blocks are */
        s.first[2 * j + 1] = (int32_t)xpt_random_below(&r, cols - SIDE + 1);
    }
    for (size_t i = 0; i < planes; i++)
        ones[i] = 1;
    s.first_buffer = xpt_bench_make_from(s.t, 0, s.first, (size_t)block * 2 * sizeof *s.first);
    s.y = xpt_bench_make(s.t, 0, (size_t)(block * s.t.b->amplitude_bytes(SIDE)));
    s.energy = xpt_bench_make(s.t, 0, (size_t)block * 8);
    s.masked = xpt_bench_make(s.t, 0, (size_t)block * 8);
    s.v = xpt_bench_make(s.t, 0, (size_t)(block * PLANE) * sizeof(xpe_c32));
    s.image = xpt_bench_make(s.t, 0, (size_t)(rows * cols) * sizeof(xpe_c32));
    s.z = xpt_bench_make(s.t, 0, (size_t)(rows * cols) * sizeof(xpe_c32));
    s.probe = xpt_bench_make(s.t, 0, planes * sizeof(xpe_c32));
    s.divider = xpt_bench_make(s.t, 0, planes * sizeof(xpe_c32));
    s.weight = xpt_bench_make_from(s.t, 0, ones, planes * sizeof *ones);
    s.misfit = xpt_bench_make(s.t, 0, (size_t)block * 8);
    s.v_energy = xpt_bench_make(s.t, 0, (size_t)block * 4);
    assert_int_equal(s.t.b->sums_create(&s.sums, s.t.team, 0,
                                        &(xpe_sums_desc){modes, true, true, true, rows, cols,
                                                         s.first, block, SIDE},
                                        &err),
                     XPE_OK);
    for (int k = 0; k < 4; k++)
        s.unit[k] = xpe_unit_make(64.0, block);
    free(ones);
    return s;
}

static void put(const scene *s, xpe_buffer *to, const void *from, size_t bytes)
{
    s->t.b->upload(s->t.team, to, 0, from, bytes);
    xpt_bench_wait(s->t);
}

/* Counts [block][n][n], a mask of the same size or NULL. */
static void measure(const scene *s, const float *counts, const uint8_t *mask)
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

static void fit(const scene *s, int flags, float one_minus_alpha, float two_rho, int64_t batch)
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
                         .unit_w = s->unit,
                         .unit_v = s->unit,
                         .unit_l = s->unit,
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
static int64_t *gather(const scene *s, int mode, xpe_sum_array array)
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

static double inner(const int64_t *a, const xpe_c32 *b, double unit)
{
    double sum = 0; /* the real part of <a, b> */

    for (int i = 0; i < PLANE; i++)
        sum += xpe_unfix(a[2 * i], unit) * (double)b[i].re +
               xpe_unfix(a[2 * i + 1], unit) * (double)b[i].im;
    return sum;
}

/* With d = 1 and amplitudes that are masked (g = 1) or 0 (g = 0), step 1 is the projection F* M F.
 */
static int64_t *project(scene *s, const xpe_c32 *v)
{
    xpe_c32 ones[PLANE], probe[PLANE], divider[PLANE];

    for (int i = 0; i < PLANE; i++)
        ones[i] = (xpe_c32){1, 0};
    hold(probe, ones, SIDE, 1.0 / SIDE);
    hold(divider, ones, SIDE, 1.0 / SIDE);
    put(s, s->probe, probe, sizeof probe);
    put(s, s->divider, divider, sizeof divider);
    put(s, s->v, v, PLANE * sizeof *v);
    fit(s, XPE_FIT_PATCH, 0, 1, 1);
    return gather(s, 0, XPE_SUM_A);
}

static void random_mask(float *counts, uint8_t *mask, uint64_t seed)
{
    xpt_random r = {seed};

    memset(counts, 0, PLANE * sizeof *counts);
    for (int i = 0; i < PLANE; i++)
        mask[i] = (uint8_t)xpt_random_below(&r, 2);
}

static void chain_of_transforms_is_its_own_adjoint(void **state)
{
    scene s = make_scene(2, 1, SIDE, SIDE, 1, 1);
    xpe_c32 a[PLANE], b[PLANE];
    float counts[PLANE];
    uint8_t mask[PLANE];
    int64_t *pa, *pb;
    xpt_random r = {2};

    (void)state;
    random_mask(counts, mask, 3);
    measure(&s, counts, mask);
    xpt_random_field(&r, a, PLANE);
    xpt_random_field(&r, b, PLANE);
    pa = project(&s, a);
    pb = project(&s, b);
    assert_true(fabs(inner(pa, b, s.unit[0].unit) - inner(pb, a, s.unit[0].unit)) < 1e-4);
    assert_true(fabs(inner(pa, b, s.unit[0].unit)) > 1e-2); /* not 0 = 0 */
    free(pa);
    free(pb);
    destroy_scene(&s);
}

static void chain_of_transforms_is_the_projection_of_the_definition(void **state)
{
    scene s = make_scene(1, 1, SIDE, SIDE, 1, 1);
    xpt_dft *dft = xpt_dft_create(SIDE);
    xpe_c32 a[PLANE];
    xpt_c right[PLANE];
    float counts[PLANE];
    uint8_t mask[PLANE];
    int64_t *got;
    xpt_random r = {4};

    (void)state;
    random_mask(counts, mask, 5);
    measure(&s, counts, mask);
    xpt_random_field(&r, a, PLANE);
    for (int i = 0; i < PLANE; i++)
        right[i] = CMPLX((double)a[i].re, (double)a[i].im);
    xpt_dft_run(dft, right, -1);
    for (int i = 0; i < PLANE; i++)
        right[i] *= mask[i];
    xpt_dft_run(dft, right, +1);
    got = project(&s, a);
    for (int i = 0; i < PLANE; i++)
        assert_true(cabs(CMPLX(xpe_unfix(got[2 * i], s.unit[0].unit),
                               xpe_unfix(got[2 * i + 1], s.unit[0].unit)) -
                         right[i]) < 2e-6);
    free(got);
    xpt_dft_destroy(dft);
    destroy_scene(&s);
}

static void a_frame_masked_whole_gives_its_patch_back(void **state)
{
    scene s = make_scene(1, 1, SIDE, SIDE, 1, 1);
    xpe_c32 a[PLANE];
    float counts[PLANE] = {0};
    uint8_t mask[PLANE];
    int64_t *got;
    xpt_random r = {6};

    (void)state;
    memset(mask, 1, sizeof mask);
    measure(&s, counts, mask);
    xpt_random_field(&r, a, PLANE);
    got = project(&s, a); /* F* F = 1 */
    for (int i = 0; i < PLANE; i++)
        assert_true(fabs(xpe_unfix(got[2 * i], s.unit[0].unit) - (double)a[i].re) < 2e-6 &&
                    fabs(xpe_unfix(got[2 * i + 1], s.unit[0].unit) - (double)a[i].im) < 2e-6);
    free(got);
    destroy_scene(&s);
}

/* Misfit 0 for the true model; ||d p||^2 when nothing was measured: the transform is unitary. */
static void misfit_is_zero_for_the_true_model_and_the_energy_for_no_counts(void **state)
{
    scene s = make_scene(2, 5, 30, 24, 2, 7);
    xpt_dft *dft = xpt_dft_create(SIDE);
    int64_t pixels = s.rows * s.cols;
    xpe_c32 *image = xpt_new((size_t)pixels, sizeof *image), d[2 * PLANE], held[2 * PLANE];
    float *counts = xpt_new((size_t)(5 * PLANE), sizeof *counts);
    double misfit[5], energy[5] = {0};
    xpt_random r = {8};

    (void)state;
    xpt_random_field(&r, image, pixels);
    xpt_random_field(&r, d, 2 * PLANE);
    for (int k = 0; k < 2; k++)
        hold(held + k * PLANE, d + k * PLANE, SIDE, 1.0 / SIDE);
    put(&s, s.image, image, (size_t)pixels * sizeof *image);
    put(&s, s.probe, held, sizeof held);
    measure(&s, counts, NULL);
    for (int64_t j = 0; j < 5; j++)
        for (int k = 0; k < 2; k++) {
            xpt_c field[PLANE];
            for (int64_t i = 0; i < PLANE; i++) {
                xpe_c32 p =
                    image[(s.first[2 * j] + i / SIDE) * s.cols + s.first[2 * j + 1] + i % SIDE];
                field[i] = CMPLX((double)p.re, (double)p.im) *
                           CMPLX((double)d[k * PLANE + i].re, (double)d[k * PLANE + i].im);
                energy[j] += creal(field[i] * conj(field[i]));
            }
            xpt_dft_run(dft, field, -1);
            for (int64_t i = 0; i < PLANE; i++)
                counts[j * PLANE + i] += (float)creal(field[i] * conj(field[i]));
        }
    fit(&s, XPE_FIT_ERROR, 0, 0, 2);
    xpt_bench_read(s.t, misfit, s.misfit, sizeof misfit);
    for (int j = 0; j < 5; j++)
        assert_true(fabs(misfit[j] / energy[j] - 1) < 1e-6);
    measure(&s, counts, NULL);
    fit(&s, XPE_FIT_ERROR, 0, 0, 2);
    xpt_bench_read(s.t, misfit, s.misfit, sizeof misfit);
    for (int j = 0; j < 5; j++)
        assert_true(misfit[j] < 1e-11 * energy[j]);
    free(counts);
    free(image);
    xpt_dft_destroy(dft);
    destroy_scene(&s);
}

static void amplitudes_report_energy_and_masked_pixels(void **state)
{
    scene s = make_scene(2, 3, SIDE, SIDE, 1, 9);
    float *counts = xpt_new(3 * PLANE, sizeof *counts);
    uint8_t *mask = xpt_new(3 * PLANE, 1);
    double energy[3];
    int64_t masked[3];

    (void)state;
    for (int i = 0; i < 3 * PLANE; i++)
        counts[i] = (float)(i / PLANE + 1); /* energy of a pixel = its count */
    mask[PLANE + 7] = mask[PLANE + 8] = 1;
    counts[2 * PLANE] = -5;
    measure(&s, counts, mask);
    xpt_bench_read(s.t, energy, s.energy, sizeof energy);
    xpt_bench_read(s.t, masked, s.masked, sizeof masked);
    assert_true(fabs(energy[0] - PLANE) < 1e-3 && fabs(energy[1] - 2 * (PLANE - 2)) < 1e-3 &&
                fabs(energy[2] - 3 * (PLANE - 1)) < 1e-3);
    assert_true(masked[0] == 0 && masked[1] == 2 && masked[2] == 0);
    free(mask);
    free(counts);
    destroy_scene(&s);
}

/* ---------------------------------------------------------------------------------------- sums */

/* The sums of a trip over random patches, all three arrays of both modes. */
static void all_sums(int threads, int64_t batch, int64_t **out)
{
    scene s = make_scene(threads, 11, 40, 20, 2, 10);
    xpe_c32 *v = xpt_new(11 * PLANE, sizeof *v), d[2 * PLANE];
    float *counts = xpt_new(11 * PLANE, sizeof *counts), weight[2 * PLANE];
    xpt_random r = {11};

    xpt_random_field(&r, v, 11 * PLANE);
    xpt_random_field(&r, d, 2 * PLANE);
    for (int i = 0; i < 11 * PLANE; i++)
        counts[i] = (float)xpt_random_unit(&r);
    for (int i = 0; i < 2 * PLANE; i++)
        weight[i] = (float)xpt_random_unit(&r);
    put(&s, s.v, v, 11 * PLANE * sizeof *v);
    put(&s, s.probe, d, sizeof d);
    put(&s, s.divider, d, sizeof d);
    put(&s, s.weight, weight, sizeof weight);
    measure(&s, counts, NULL);
    fit(&s, XPE_FIT_PATCH | XPE_FIT_SUM_V | XPE_FIT_SUM_L, 0.4f, 1.0f, batch);
    for (int i = 0; i < 6; i++)
        out[i] = gather(&s, i / 3, (xpe_sum_array)(i % 3));
    if (threads == 1 && batch == 11) { /* against plain addition, once */
        for (int64_t at = 0; at < s.rows * s.cols; at++) {
            double l = 0, v_sum = 0;
            for (int64_t j = 0; j < 11; j++) {
                int64_t row = at / s.cols - s.first[2 * j], col = at % s.cols - s.first[2 * j + 1];
                if (row < 0 || col < 0 || row >= SIDE || col >= SIDE)
                    continue;
                l += (double)weight[row * SIDE + col];
                v_sum +=
                    (double)weight[row * SIDE + col] * (double)v[j * PLANE + row * SIDE + col].re;
            }
            assert_true(fabs(xpe_unfix(out[2][at], s.unit[0].unit) - l) < 1e-6);
            assert_true(fabs(xpe_unfix(out[1][2 * at], s.unit[0].unit) - v_sum) < 1e-6);
        }
    }
    free(counts);
    free(v);
    destroy_scene(&s);
}

static void sums_are_the_same_for_any_threads_and_batches(void **state)
{
    static const int64_t batches[] = {1, 2, 7, 11};
    int64_t *right[6];

    (void)state;
    all_sums(1, 11, right);
    for (int threads = 1; threads <= 4; threads++)
        for (int b = 0; b < 4; b++) {
            int64_t *got[6];
            all_sums(threads, batches[b], got);
            for (int i = 0; i < 6; i++) {
                assert_memory_equal(got[i], right[i],
                                    (size_t)(40 * 20 * (i % 3 == 2 ? 1 : 2)) * sizeof **got);
                free(got[i]);
            }
        }
    for (int i = 0; i < 6; i++)
        free(right[i]);
}

static void gathering_adds_the_rows_asked_for(void **state)
{
    scene s = make_scene(3, 11, 40, 20, 1, 12);
    int64_t *whole, *rows = xpt_new(40 * 20, sizeof *rows);
    xpe_buffer *buffer = xpt_bench_make(s.t, 0, 40 * 20 * sizeof *rows);

    (void)state;
    fit(&s, XPE_FIT_SUM_L, 0, 0, 4);
    whole = gather(&s, 0, XPE_SUM_REAL);
    for (int i = 0; i < 40 * 20; i++)
        rows[i] = 1000 + i;
    put(&s, buffer, rows, 40 * 20 * sizeof *rows);
    s.t.b->sums_gather(s.t.team, buffer, 0, 5 * 20 * sizeof *rows, s.sums, 0, XPE_SUM_REAL, 13,
                       9); /* rows 13 to 21 to row 5 */
    xpt_bench_wait(s.t);
    xpt_bench_read(s.t, rows, buffer, 40 * 20 * sizeof *rows);
    for (int i = 0; i < 40 * 20; i++) {
        bool inside = i / 20 >= 5 && i / 20 < 14;
        assert_int_equal(rows[i], 1000 + i + (inside ? whole[i + 8 * 20] : 0));
    }
    s.t.b->sums_clear(s.t.team, 0, s.sums);
    free(whole);
    whole = gather(&s, 0, XPE_SUM_REAL);
    for (int i = 0; i < 40 * 20; i++)
        assert_int_equal(whole[i], 0);
    free(whole);
    free(rows);
    s.t.b->buffer_destroy(buffer);
    destroy_scene(&s);
}

/* --------------------------------------------------------------------------------- the updates */

static void a_pending_update_is_added_before_the_fit(void **state)
{
    scene s = make_scene(1, 3, 24, 20, 1, 13);
    xpe_c32 v[3 * PLANE], z[24 * 20], out[3 * PLANE];
    xpt_random r = {14};

    (void)state;
    xpt_random_field(&r, v, 3 * PLANE);
    xpt_random_field(&r, z, 24 * 20);
    put(&s, s.v, v, sizeof v);
    put(&s, s.z, z, sizeof z);
    fit(&s, XPE_FIT_UPDATE, 0, 0.5f, 2);
    xpt_bench_read(s.t, out, s.v, sizeof out);
    for (int i = 0; i < 3 * PLANE; i++) {
        int j = i / PLANE, p = i % PLANE;
        xpe_c32 add = z[(s.first[2 * j] + p / SIDE) * 20 + s.first[2 * j + 1] + p % SIDE];
        assert_true(out[i].re == v[i].re + 0.5f * add.re && out[i].im == v[i].im + 0.5f * add.im);
    }
    destroy_scene(&s);
}

static void patches_are_cut_where_the_frames_lie(void **state)
{
    scene s = make_scene(2, 4, 24, 20, 1, 15);
    xpe_c32 image[24 * 20], out[4 * PLANE];
    xpt_random r = {16};

    (void)state;
    xpt_random_field(&r, image, 24 * 20);
    put(&s, s.image, image, sizeof image);
    for (int64_t at = 0; at < 4; at += 3) {
        xpe_patch_args args = {.batch = {at, at ? 1 : 3, 4},
                               .cols = 20,
                               .first = s.first_buffer,
                               .image = s.image,
                               .v = s.v};
        s.t.b->patches(s.t.team, 0, &args);
    }
    xpt_bench_wait(s.t);
    xpt_bench_read(s.t, out, s.v, sizeof out);
    for (int i = 0; i < 4 * PLANE; i++) {
        int j = i / PLANE, p = i % PLANE;
        assert_memory_equal(
            &out[i], &image[(s.first[2 * j] + p / SIDE) * 20 + s.first[2 * j + 1] + p % SIDE],
            sizeof *out);
    }
    destroy_scene(&s);
}

/* ----------------------------------------------------------------------------------- the probe */

/* Trap 5.  A copy whose field is zero but for the centre: with the phase factor 1 there the
 * amplitudes of the modes stay, so the fitted copy is F*(|F(d)|) / p. */
static void where_the_copys_field_is_zero_the_phase_factor_is_one(void **state)
{
    scene s = make_scene(1, 1, SIDE, SIDE, 1, 17);
    xpe_buffer *copy = xpt_bench_make(s.t, 0, PLANE * sizeof(xpe_c32)),
               *s_energy = xpt_bench_make(s.t, 0, 4);
    xpe_c32 ones[PLANE], held[PLANE], d[PLANE];
    xpt_c right[PLANE];
    xpt_dft *dft = xpt_dft_create(SIDE);
    float counts[PLANE] = {0};
    uint8_t mask[PLANE];
    xpt_random r = {18};
    xpe_sums *sums;
    xpe_buffer *out = xpt_bench_make(s.t, 0, 2 * PLANE * sizeof(int64_t));
    int64_t got[2 * PLANE];
    xpe_error err;
    double lost = 0;

    (void)state;
    assert_int_equal(
        s.t.b->sums_create(&sums, s.t.team, 0,
                           &(xpe_sums_desc){1, true, true, true, SIDE, SIDE, NULL, 1, SIDE}, &err),
        XPE_OK);
    memset(mask, 1, sizeof mask); /* g = 1: A = |G| */
    measure(&s, counts, mask);
    for (int i = 0; i < PLANE; i++)
        ones[i] = (xpe_c32){1, 0};
    put(&s, s.image, ones, sizeof ones);
    hold(held, ones, SIDE, 1);
    put(&s, copy, held, sizeof held);
    xpt_random_field(&r, d, PLANE);
    hold(held, d, SIDE, 1.0 / SIDE);
    put(&s, s.probe, held, sizeof held);
    s.t.b->sums_clear(s.t.team, 0, sums);
    s.t.b->probe_fit(s.t.team, 0,
                     &(xpe_probe_args){.modes = 1,
                                       .batch = {0, 1, 1},
                                       .copy = {.s = copy},
                                       .one_minus_alpha = 0,
                                       .alpha = 1,
                                       .two_rho = 1,
                                       .patch_eps = 1e-6f,
                                       .cols = SIDE,
                                       .first = s.first_buffer,
                                       .y = s.y,
                                       .image = s.image,
                                       .probe = s.probe,
                                       .sums = sums,
                                       .unit_r = s.unit,
                                       .unit_s = s.unit,
                                       .s_energy = s_energy});
    s.t.b->sums_gather(s.t.team, out, 0, 0, sums, 0, XPE_SUM_A, 0, SIDE);
    xpt_bench_wait(s.t);
    xpt_bench_read(s.t, got, out, sizeof got);
    for (int i = 0; i < PLANE; i++)
        right[i] = CMPLX((double)d[i].re, (double)d[i].im);
    xpt_dft_run(dft, right, -1);
    for (int i = 0; i < PLANE; i++)
        right[i] = cabs(right[i]);
    for (int i = 0; i < PLANE; i++)
        lost += i == PLANE / 2 + SIDE / 2
                    ? 0
                    : creal(right[i] * right[i]); /* what zero amplitudes would lose */
    assert_true(lost > 10);
    xpt_dft_run(dft, right, +1);
    for (int i = 0; i < PLANE; i++) {
        double sign = sign_of(i, SIDE);
        xpt_c mine = sign * CMPLX(xpe_unfix(got[2 * i], s.unit[0].unit),
                                  xpe_unfix(got[2 * i + 1], s.unit[0].unit));
        assert_true(cabs(mine - right[i] / (1 + 1e-6)) < 1e-5);
    }
    s.t.b->sums_destroy(sums);
    s.t.b->buffer_destroy(out);
    s.t.b->buffer_destroy(s_energy);
    s.t.b->buffer_destroy(copy);
    xpt_dft_destroy(dft);
    destroy_scene(&s);
}

static void mean_of_the_amplitudes_transformed_back_is_the_start_probe(void **state)
{
    scene s = make_scene(2, 5, SIDE, SIDE, 1, 19);
    xpt_dft *dft = xpt_dft_create(SIDE);
    float *counts = xpt_new(5 * PLANE, sizeof *counts), nonzero[5];
    xpt_c right[PLANE] = {0};
    xpe_buffer *out = xpt_bench_make(s.t, 0, 2 * PLANE * sizeof(int64_t)),
               *flag = xpt_bench_make(s.t, 0, sizeof nonzero);
    int64_t got[2 * PLANE];
    xpt_random r = {20};
    xpe_sums *sums;
    xpe_error err;

    (void)state;
    assert_int_equal(
        s.t.b->sums_create(&sums, s.t.team, 0,
                           &(xpe_sums_desc){1, true, true, true, SIDE, SIDE, NULL, 5, SIDE}, &err),
        XPE_OK);
    for (int i = 0; i < 4 * PLANE; i++) /* the last frame is empty */
        counts[i] = (float)xpt_random_unit(&r);
    for (int j = 0; j < 5; j++) {
        xpt_c field[PLANE];
        for (int i = 0; i < PLANE; i++)
            field[i] = sqrt((double)counts[j * PLANE + i]);
        xpt_dft_run(dft, field, +1);
        for (int i = 0; i < PLANE; i++)
            right[i] += field[i];
    }
    measure(&s, counts, NULL);
    s.t.b->sums_clear(s.t.team, 0, sums);
    for (int64_t at = 0; at < 5; at += 2)
        s.t.b->back(s.t.team, 0,
                    &(xpe_back_args){.modes = 0,
                                     .batch = {at, at == 4 ? 1 : 2, 5},
                                     .cols = SIDE,
                                     .first = s.first_buffer,
                                     .y = s.y,
                                     .image = s.image,
                                     .probe = s.probe,
                                     .sums = sums,
                                     .unit = s.unit,
                                     .nonzero = flag});
    s.t.b->sums_gather(s.t.team, out, 0, 0, sums, 0, XPE_SUM_A, 0, SIDE);
    xpt_bench_wait(s.t);
    xpt_bench_read(s.t, got, out, sizeof got);
    xpt_bench_read(s.t, nonzero, flag, sizeof nonzero);
    for (int i = 0; i < PLANE; i++)
        assert_true(cabs(sign_of(i, SIDE) * CMPLX(xpe_unfix(got[2 * i], s.unit[0].unit),
                                                  xpe_unfix(got[2 * i + 1], s.unit[0].unit)) -
                         right[i]) < 1e-5);
    assert_true(nonzero[0] > 0 && nonzero[3] > 0 && nonzero[4] == 0);
    s.t.b->sums_destroy(sums);
    s.t.b->buffer_destroy(out);
    s.t.b->buffer_destroy(flag);
    free(counts);
    xpt_dft_destroy(dft);
    destroy_scene(&s);
}

static void copies_are_filled_settled_and_scaled(void **state)
{
    xpt_bench t = xpt_bench_open(1, 2, SIDE, 2);
    xpe_c32 modes[2 * PLANE], u[2 * PLANE], out[2 * 3 * PLANE];
    float deviation[2 * PLANE];
    xpe_buffer *s = xpt_bench_make(t, 0, sizeof out), *d, *u_buffer, *m;
    xpt_random r = {21};

    (void)state;
    xpt_random_field(&r, modes, 2 * PLANE);
    xpt_random_field(&r, u, 2 * PLANE);
    for (int i = 0; i < 2 * PLANE; i++) /* half of the pixels far beyond any outlier, half never */
        deviation[i] = i % 2 ? 1e-6f : 1e6f;
    d = xpt_bench_make_from(t, 0, modes, sizeof modes);
    u_buffer = xpt_bench_make_from(t, 0, u, sizeof u);
    m = xpt_bench_make_from(t, 0, deviation, sizeof deviation);
    for (int k = 0; k < 2; k++)
        t.b->fill(t.team, 0, &(xpe_fill_args){.mode = k, .batch = {0, 3, 3}, .s = s, .value = d});
    xpt_bench_read(t, out, s, sizeof out);
    for (int i = 0; i < 2 * 3 * PLANE; i++)
        assert_memory_equal(&out[i], &modes[i / (3 * PLANE) * PLANE + i % PLANE], sizeof *out);
    t.b->settle(t.team, 0,
                &(xpe_settle_args){.modes = 2,
                                   .batch = {0, 3, 3},
                                   .copy = {s, true, u_buffer, d, m, 0.5f},
                                   .scale = 2.0f});
    xpt_bench_read(t, out, s, sizeof out);
    for (int i = 0; i < 2 * 3 * PLANE; i++) {
        int p = i / (3 * PLANE) * PLANE + i % PLANE;
        xpe_c32 right = p % 2
                            ? modes[p]
                            : (xpe_c32){modes[p].re + 0.5f * u[p].re, modes[p].im + 0.5f * u[p].im};
        assert_true(out[i].re == 2 * right.re && out[i].im == 2 * right.im);
    }
    t.b->buffer_destroy(s);
    t.b->buffer_destroy(d);
    t.b->buffer_destroy(u_buffer);
    t.b->buffer_destroy(m);
    t.b->close(t.team);
}

static void a_deviation_of_zero_becomes_a_millionth(void **state)
{
    xpt_bench t = xpt_bench_open(1, 1, SIDE, 1);
    int64_t sum[PLANE] = {0};
    float out[PLANE];
    xpe_unit unit = xpe_unit_make(1, 10);
    xpe_buffer *in, *to = xpt_bench_make(t, 0, sizeof out);

    (void)state;
    sum[3] = xpe_fix(0.5f, unit.magic, unit.bias);
    in = xpt_bench_make_from(t, 0, sum, sizeof sum);
    t.b->mode_deviation(t.team, 0, &(xpe_mode_deviation_args){1, 10, &unit, in, to});
    xpt_bench_wait(t);
    xpt_bench_read(t, out, to, sizeof out);
    for (int i = 0; i < PLANE; i++)
        assert_true(out[i] == (i == 3 ? 0.05f : 1e-6f));
    t.b->buffer_destroy(in);
    t.b->buffer_destroy(to);
    t.b->close(t.team);
}

/* ---------------------------------------------------------------------------------- the search */

static void shifts_that_leave_the_window_are_not_a_number(void **state)
{
    scene s = make_scene(1, 1, SIDE + 1, SIDE + 2, 1, 22);
    float counts[PLANE] = {1};
    double misfit[9];
    xpe_buffer *out = xpt_bench_make(s.t, 0, sizeof misfit);
    int64_t row = s.first[0], col = s.first[1];

    (void)state;
    measure(&s, counts, NULL);
    s.t.b->search(s.t.team, 0,
                  &(xpe_search_args){.modes = 1,
                                     .max_shift = 1,
                                     .batch = {0, 1, 1},
                                     .first = s.first_buffer,
                                     .y = s.y,
                                     .image = s.image,
                                     .probe = s.probe,
                                     .rows = s.rows,
                                     .cols = s.cols,
                                     .misfit = out});
    xpt_bench_wait(s.t);
    xpt_bench_read(s.t, misfit, out, sizeof misfit);
    for (int i = 0; i < 9; i++) {
        int64_t a = row + i / 3 - 1, b = col + i % 3 - 1;
        bool inside = a >= 0 && b >= 0 && a <= 1 && b <= 2;
        assert_true(inside ? fabs(misfit[i] - 1) < 1e-6
                           : isnan(misfit[i])); /* one count, an empty model */
    }
    s.t.b->buffer_destroy(out);
    destroy_scene(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain_of_transforms_is_its_own_adjoint),
        cmocka_unit_test(chain_of_transforms_is_the_projection_of_the_definition),
        cmocka_unit_test(a_frame_masked_whole_gives_its_patch_back),
        cmocka_unit_test(misfit_is_zero_for_the_true_model_and_the_energy_for_no_counts),
        cmocka_unit_test(amplitudes_report_energy_and_masked_pixels),
        cmocka_unit_test(sums_are_the_same_for_any_threads_and_batches),
        cmocka_unit_test(gathering_adds_the_rows_asked_for),
        cmocka_unit_test(a_pending_update_is_added_before_the_fit),
        cmocka_unit_test(patches_are_cut_where_the_frames_lie),
        cmocka_unit_test(where_the_copys_field_is_zero_the_phase_factor_is_one),
        cmocka_unit_test(mean_of_the_amplitudes_transformed_back_is_the_start_probe),
        cmocka_unit_test(copies_are_filled_settled_and_scaled),
        cmocka_unit_test(a_deviation_of_zero_becomes_a_millionth),
        cmocka_unit_test(shifts_that_leave_the_window_are_not_a_number),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
