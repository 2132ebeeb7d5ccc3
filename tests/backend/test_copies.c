/* The operations on probe copies, through backend.h only. */
#include "engine_run.h"
#include "oracle.h"
#include "scene.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIDE XPT_SCENE_SIDE
#define PLANE XPT_SCENE_PLANE

/* Trap 5.  A copy whose field is zero but for the centre: with the phase factor 1 there the
 * amplitudes of the modes stay, so the fitted copy is F*(|F(d)|) / p. */
static void where_the_copys_field_is_zero_the_phase_factor_is_one(void **state)
{
    xpt_scene s = xpt_scene_create(1, 1, SIDE, SIDE, 1, 17);
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
    xpt_scene_measure(&s, counts, mask);
    for (int i = 0; i < PLANE; i++)
        ones[i] = (xpe_c32){1, 0};
    xpt_scene_put(&s, s.image, ones, sizeof ones);
    xpt_hold(held, ones, SIDE, 1);
    xpt_scene_put(&s, copy, held, sizeof held);
    xpt_random_field(&r, d, PLANE);
    xpt_hold(held, d, SIDE, 1.0 / SIDE);
    xpt_scene_put(&s, s.probe, held, sizeof held);
    s.t.b->sums_clear(s.t.team, 0, sums);
    s.t.b->probe_fit(s.t.team, 0,
                     &(xpe_probe_args){.modes = 1,
                                       .batch = {0, 1, 1},
                                       .copy = {.s = copy},
                                       .one_minus_alpha = 0,
                                       .alpha = 1,
                                       .two_rho = 1,
                                       .cols = SIDE,
                                       .first = s.first_buffer,
                                       .y = s.y,
                                       .image = s.image,
                                       .probe = s.probe,
                                       .sums = sums,
                                       .numbers = s.numbers,
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
        double sign = xpt_checker(i, SIDE);
        xpt_c mine = sign * CMPLX(xpe_unfix(got[2 * i], s.unit[0].unit),
                                  xpe_unfix(got[2 * i + 1], s.unit[0].unit));
        assert_true(cabs(mine - right[i] / (1 + 1e-6)) < 1e-5);
    }
    s.t.b->sums_destroy(sums);
    s.t.b->buffer_destroy(out);
    s.t.b->buffer_destroy(s_energy);
    s.t.b->buffer_destroy(copy);
    xpt_dft_destroy(dft);
    xpt_scene_destroy(&s);
}

/* Largest |x|^2 of a field: two roundings of float, so within 2^-23 of it. */
static void assert_largest(float told, const xpe_c32 *field)
{
    double most = 0;

    for (int i = 0; i < PLANE; i++)
        most = fmax(most, (double)field[i].re * (double)field[i].re +
                              (double)field[i].im * (double)field[i].im);
    assert_true(most > 0);
    assert_true(fabs((double)told - most) <= most * 0x1p-23);
}

/* They bound the sums of the next step, so that too small a value would only be felt when a sum
 * overflows.  Frames of very different size, batches that end within a group of frames. */
static void the_largest_copies_and_patches_are_told(void **state)
{
    enum { FRAMES = 5, MODES = 2 };
    xpt_scene s = xpt_scene_create(2, FRAMES, 2 * SIDE, 2 * SIDE, MODES, 21);
    size_t all = (size_t)MODES * FRAMES * PLANE;
    xpe_buffer *copies = xpt_bench_make(s.t, 0, all * sizeof(xpe_c32)),
               *s_energy = xpt_bench_make(s.t, 0, MODES * FRAMES * sizeof(float)),
               *numbers = xpt_bench_numbers(s.t, MODES, s.unit, NULL, NULL, 1e-2);
    xpe_c32 *field = xpt_new(all, sizeof *field), *image = xpt_new(4 * PLANE, sizeof *image);
    float *counts = xpt_new(FRAMES * PLANE, sizeof *counts), told[MODES * FRAMES];
    xpt_random r = {22};
    xpe_sums *sums;
    xpe_error err;

    (void)state;
    assert_int_equal(s.t.b->sums_create(
                         &sums, s.t.team, 0,
                         &(xpe_sums_desc){MODES, true, true, true, SIDE, SIDE, NULL, FRAMES, SIDE},
                         &err),
                     XPE_OK);
    for (int i = 0; i < FRAMES * PLANE; i++)
        counts[i] = (float)xpt_random_unit(&r);
    xpt_scene_measure(&s, counts, NULL);
    xpt_random_field(&r, image, 4 * PLANE);
    xpt_scene_put(&s, s.image, image, 4 * PLANE * sizeof *image);
    xpt_random_field(&r, field, (int64_t)all);
    xpt_scene_put(&s, s.probe, field, MODES * PLANE * sizeof *field);
    xpt_scene_put(&s, s.divider, field, MODES * PLANE * sizeof *field);
    for (size_t i = 0; i < all; i++) {
        float size = ldexpf(1, (int)(i / PLANE) % FRAMES - 3);
        field[i] = (xpe_c32){size * field[i].re, size * field[i].im};
    }
    xpt_scene_put(&s, copies, field, all * sizeof *field);
    xpt_scene_put(&s, s.v, field, FRAMES * PLANE * sizeof *field);
    s.t.b->sums_clear(s.t.team, 0, sums);
    for (int64_t at = 0; at < FRAMES; at += 2)
        s.t.b->probe_fit(s.t.team, 0,
                         &(xpe_probe_args){.modes = MODES,
                                           .batch = {at, at == 4 ? 1 : 2, FRAMES},
                                           .copy = {.s = copies},
                                           .one_minus_alpha = 0.75f,
                                           .alpha = 0.25f,
                                           .two_rho = 0.5f,
                                           .cols = 2 * SIDE,
                                           .first = s.first_buffer,
                                           .y = s.y,
                                           .image = s.image,
                                           .probe = s.probe,
                                           .sums = sums,
                                           .numbers = numbers,
                                           .s_energy = s_energy});
    xpt_bench_wait(s.t);
    xpt_bench_read(s.t, field, copies, all * sizeof *field);
    xpt_bench_read(s.t, told, s_energy, sizeof told);
    for (int i = 0; i < MODES * FRAMES; i++)
        assert_largest(told[i], field + i * PLANE);
    xpt_scene_fit(&s, XPE_FIT_PATCH, 0.75f, 0.5f, 2);
    xpt_bench_read(s.t, field, s.v, FRAMES * PLANE * sizeof *field);
    xpt_bench_read(s.t, told, s.v_energy, FRAMES * sizeof *told);
    for (int i = 0; i < FRAMES; i++)
        assert_largest(told[i], field + i * PLANE);
    s.t.b->sums_destroy(sums);
    s.t.b->buffer_destroy(s_energy);
    s.t.b->buffer_destroy(copies);
    s.t.b->buffer_destroy(numbers);
    free(field);
    free(image);
    free(counts);
    xpt_scene_destroy(&s);
}

static void mean_of_the_amplitudes_transformed_back_is_the_start_probe(void **state)
{
    xpt_scene s = xpt_scene_create(2, 5, SIDE, SIDE, 1, 19);
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
    xpt_scene_measure(&s, counts, NULL);
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
        assert_true(cabs(xpt_checker(i, SIDE) * CMPLX(xpe_unfix(got[2 * i], s.unit[0].unit),
                                                      xpe_unfix(got[2 * i + 1], s.unit[0].unit)) -
                         right[i]) < 1e-5);
    assert_true(nonzero[0] > 0 && nonzero[3] > 0 && nonzero[4] == 0);
    s.t.b->sums_destroy(sums);
    s.t.b->buffer_destroy(out);
    s.t.b->buffer_destroy(flag);
    free(counts);
    xpt_dft_destroy(dft);
    xpt_scene_destroy(&s);
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
    xpe_buffer *in, *numbers = xpt_bench_numbers(t, 1, &unit, NULL, NULL, 0),
                    *to = xpt_bench_make(t, 0, sizeof out);

    (void)state;
    sum[3] = xpe_fix(0.5f, unit.magic, unit.bias);
    in = xpt_bench_make_from(t, 0, sum, sizeof sum);
    t.b->mode_deviation(t.team, 0, &(xpe_mode_deviation_args){1, 10, numbers, in, to});
    xpt_bench_wait(t);
    xpt_bench_read(t, out, to, sizeof out);
    for (int i = 0; i < PLANE; i++)
        assert_true(out[i] == (i == 3 ? 0.05f : 1e-6f));
    t.b->buffer_destroy(in);
    t.b->buffer_destroy(numbers);
    t.b->buffer_destroy(to);
    t.b->close(t.team);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_the_copys_field_is_zero_the_phase_factor_is_one),
        cmocka_unit_test(the_largest_copies_and_patches_are_told),
        cmocka_unit_test(mean_of_the_amplitudes_transformed_back_is_the_start_probe),
        cmocka_unit_test(copies_are_filled_settled_and_scaled),
        cmocka_unit_test(a_deviation_of_zero_becomes_a_millionth),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
