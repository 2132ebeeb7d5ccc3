/* The operations on frames, through backend.h only: amplitudes, transform chains, sums, updates,
 * search. */
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
static int64_t *project(xpt_scene *s, const xpe_c32 *v)
{
    xpe_c32 ones[PLANE], probe[PLANE], divider[PLANE];

    for (int i = 0; i < PLANE; i++)
        ones[i] = (xpe_c32){1, 0};
    xpt_hold(probe, ones, SIDE, 1.0 / SIDE);
    xpt_hold(divider, ones, SIDE, 1.0 / SIDE);
    xpt_scene_put(s, s->probe, probe, sizeof probe);
    xpt_scene_put(s, s->divider, divider, sizeof divider);
    xpt_scene_put(s, s->v, v, PLANE * sizeof *v);
    xpt_scene_fit(s, XPE_FIT_PATCH, 0, 1, 1);
    return xpt_scene_gather(s, 0, XPE_SUM_A);
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
    xpt_scene s = xpt_scene_create(2, 1, SIDE, SIDE, 1, 1);
    xpe_c32 a[PLANE], b[PLANE];
    float counts[PLANE];
    uint8_t mask[PLANE];
    int64_t *pa, *pb;
    xpt_random r = {2};

    (void)state;
    random_mask(counts, mask, 3);
    xpt_scene_measure(&s, counts, mask);
    xpt_random_field(&r, a, PLANE);
    xpt_random_field(&r, b, PLANE);
    pa = project(&s, a);
    pb = project(&s, b);
    assert_true(fabs(inner(pa, b, s.unit[0].unit) - inner(pb, a, s.unit[0].unit)) < 1e-4);
    assert_true(fabs(inner(pa, b, s.unit[0].unit)) > 1e-2); /* not 0 = 0 */
    free(pa);
    free(pb);
    xpt_scene_destroy(&s);
}

static void chain_of_transforms_is_the_projection_of_the_definition(void **state)
{
    xpt_scene s = xpt_scene_create(1, 1, SIDE, SIDE, 1, 1);
    xpt_dft *dft = xpt_dft_create(SIDE);
    xpe_c32 a[PLANE];
    xpt_c right[PLANE];
    float counts[PLANE];
    uint8_t mask[PLANE];
    int64_t *got;
    xpt_random r = {4};

    (void)state;
    random_mask(counts, mask, 5);
    xpt_scene_measure(&s, counts, mask);
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
    xpt_scene_destroy(&s);
}

static void a_frame_masked_whole_gives_its_patch_back(void **state)
{
    xpt_scene s = xpt_scene_create(1, 1, SIDE, SIDE, 1, 1);
    xpe_c32 a[PLANE];
    float counts[PLANE] = {0};
    uint8_t mask[PLANE];
    int64_t *got;
    xpt_random r = {6};

    (void)state;
    memset(mask, 1, sizeof mask);
    xpt_scene_measure(&s, counts, mask);
    xpt_random_field(&r, a, PLANE);
    got = project(&s, a); /* F* F = 1 */
    for (int i = 0; i < PLANE; i++)
        assert_true(fabs(xpe_unfix(got[2 * i], s.unit[0].unit) - (double)a[i].re) < 2e-6 &&
                    fabs(xpe_unfix(got[2 * i + 1], s.unit[0].unit) - (double)a[i].im) < 2e-6);
    free(got);
    xpt_scene_destroy(&s);
}

/* Misfit 0 for the true model; ||d p||^2 when nothing was measured: the transform is unitary. */
static void misfit_is_zero_for_the_true_model_and_the_energy_for_no_counts(void **state)
{
    xpt_scene s = xpt_scene_create(2, 5, 30, 24, 2, 7);
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
        xpt_hold(held + k * PLANE, d + k * PLANE, SIDE, 1.0 / SIDE);
    xpt_scene_put(&s, s.image, image, (size_t)pixels * sizeof *image);
    xpt_scene_put(&s, s.probe, held, sizeof held);
    xpt_scene_measure(&s, counts, NULL);
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
    xpt_scene_fit(&s, XPE_FIT_ERROR, 0, 0, 2);
    xpt_bench_read(s.t, misfit, s.misfit, sizeof misfit);
    for (int j = 0; j < 5; j++)
        assert_true(fabs(misfit[j] / energy[j] - 1) < 1e-6);
    xpt_scene_measure(&s, counts, NULL);
    xpt_scene_fit(&s, XPE_FIT_ERROR, 0, 0, 2);
    xpt_bench_read(s.t, misfit, s.misfit, sizeof misfit);
    for (int j = 0; j < 5; j++)
        assert_true(misfit[j] < 1e-11 * energy[j]);
    free(counts);
    free(image);
    xpt_dft_destroy(dft);
    xpt_scene_destroy(&s);
}

static void amplitudes_report_energy_and_masked_pixels(void **state)
{
    xpt_scene s = xpt_scene_create(2, 3, SIDE, SIDE, 1, 9);
    float *counts = xpt_new(3 * PLANE, sizeof *counts);
    uint8_t *mask = xpt_new(3 * PLANE, 1);
    double energy[3];
    int64_t masked[3];

    (void)state;
    for (int i = 0; i < 3 * PLANE; i++)
        counts[i] = (float)(i / PLANE + 1); /* energy of a pixel = its count */
    mask[PLANE + 7] = mask[PLANE + 8] = 1;
    counts[2 * PLANE] = -5;
    xpt_scene_measure(&s, counts, mask);
    xpt_bench_read(s.t, energy, s.energy, sizeof energy);
    xpt_bench_read(s.t, masked, s.masked, sizeof masked);
    assert_true(fabs(energy[0] - PLANE) < 1e-3 && fabs(energy[1] - 2 * (PLANE - 2)) < 1e-3 &&
                fabs(energy[2] - 3 * (PLANE - 1)) < 1e-3);
    assert_true(masked[0] == 0 && masked[1] == 2 && masked[2] == 0);
    free(mask);
    free(counts);
    xpt_scene_destroy(&s);
}

/* ---------------------------------------------------------------------------------------- sums */

/* The sums of a trip over random patches, all three arrays of both modes. */
static void all_sums(int threads, int64_t batch, int64_t **out)
{
    xpt_scene s = xpt_scene_create(threads, 11, 40, 20, 2, 10);
    xpe_c32 *v = xpt_new(11 * PLANE, sizeof *v), d[2 * PLANE];
    float *counts = xpt_new(11 * PLANE, sizeof *counts), weight[2 * PLANE];
    xpt_random r = {11};

    xpt_random_field(&r, v, 11 * PLANE);
    xpt_random_field(&r, d, 2 * PLANE);
    for (int i = 0; i < 11 * PLANE; i++)
        counts[i] = (float)xpt_random_unit(&r);
    for (int i = 0; i < 2 * PLANE; i++)
        weight[i] = (float)xpt_random_unit(&r);
    xpt_scene_put(&s, s.v, v, 11 * PLANE * sizeof *v);
    xpt_scene_put(&s, s.probe, d, sizeof d);
    xpt_scene_put(&s, s.divider, d, sizeof d);
    xpt_scene_put(&s, s.weight, weight, sizeof weight);
    xpt_scene_measure(&s, counts, NULL);
    xpt_scene_fit(&s, XPE_FIT_PATCH | XPE_FIT_SUM_V | XPE_FIT_SUM_L, 0.4f, 1.0f, batch);
    for (int i = 0; i < 6; i++)
        out[i] = xpt_scene_gather(&s, i / 3, (xpe_sum_array)(i % 3));
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
    xpt_scene_destroy(&s);
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
    xpt_scene s = xpt_scene_create(3, 11, 40, 20, 1, 12);
    int64_t *whole, *rows = xpt_new(40 * 20, sizeof *rows);
    xpe_buffer *buffer = xpt_bench_make(s.t, 0, 40 * 20 * sizeof *rows);

    (void)state;
    xpt_scene_fit(&s, XPE_FIT_SUM_L, 0, 0, 4);
    whole = xpt_scene_gather(&s, 0, XPE_SUM_REAL);
    for (int i = 0; i < 40 * 20; i++)
        rows[i] = 1000 + i;
    xpt_scene_put(&s, buffer, rows, 40 * 20 * sizeof *rows);
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
    whole = xpt_scene_gather(&s, 0, XPE_SUM_REAL);
    for (int i = 0; i < 40 * 20; i++)
        assert_int_equal(whole[i], 0);
    free(whole);
    free(rows);
    s.t.b->buffer_destroy(buffer);
    xpt_scene_destroy(&s);
}

/* --------------------------------------------------------------------------------- the updates */

static void a_pending_update_is_added_before_the_fit(void **state)
{
    xpt_scene s = xpt_scene_create(1, 3, 24, 20, 1, 13);
    xpe_c32 v[3 * PLANE], z[24 * 20], out[3 * PLANE];
    xpt_random r = {14};

    (void)state;
    xpt_random_field(&r, v, 3 * PLANE);
    xpt_random_field(&r, z, 24 * 20);
    xpt_scene_put(&s, s.v, v, sizeof v);
    xpt_scene_put(&s, s.z, z, sizeof z);
    xpt_scene_fit(&s, XPE_FIT_UPDATE, 0, 0.5f, 2);
    xpt_bench_read(s.t, out, s.v, sizeof out);
    for (int i = 0; i < 3 * PLANE; i++) {
        int j = i / PLANE, p = i % PLANE;
        xpe_c32 add = z[(s.first[2 * j] + p / SIDE) * 20 + s.first[2 * j + 1] + p % SIDE];
        assert_true(out[i].re == v[i].re + 0.5f * add.re && out[i].im == v[i].im + 0.5f * add.im);
    }
    xpt_scene_destroy(&s);
}

static void patches_are_summed_anew_after_an_update(void **state)
{
    xpt_scene s = xpt_scene_create(2, 5, 24, 20, 2, 16);
    xpe_c32 v[5 * PLANE], z[24 * 20], after[5 * PLANE];
    float weight[2 * PLANE];
    xpt_random r = {17};

    (void)state;
    xpt_random_field(&r, v, 5 * PLANE);
    xpt_random_field(&r, z, 24 * 20);
    for (int i = 0; i < 2 * PLANE; i++)
        weight[i] = (float)xpt_random_unit(&r);
    xpt_scene_put(&s, s.v, v, sizeof v);
    xpt_scene_put(&s, s.z, z, sizeof z);
    xpt_scene_put(&s, s.weight, weight, sizeof weight);
    xpt_scene_fit(&s, XPE_FIT_UPDATE | XPE_FIT_SUM_V, 0, 0.5f, 2);
    xpt_bench_read(s.t, after, s.v, sizeof after);
    for (int k = 0; k < 2; k++) {
        int64_t *sum = xpt_scene_gather(&s, k, XPE_SUM_A);
        for (int64_t at = 0; at < 24 * 20; at++) {
            double re = 0, im = 0;
            for (int64_t j = 0; j < 5; j++) {
                int64_t row = at / 20 - s.first[2 * j], col = at % 20 - s.first[2 * j + 1];
                if (row < 0 || col < 0 || row >= SIDE || col >= SIDE)
                    continue;
                re += (double)weight[k * PLANE + row * SIDE + col] *
                      (double)after[j * PLANE + row * SIDE + col].re;
                im += (double)weight[k * PLANE + row * SIDE + col] *
                      (double)after[j * PLANE + row * SIDE + col].im;
            }
            /* a rounded product of numbers below 4 for each of at most five patches */
            assert_true(fabs(xpe_unfix(sum[2 * at], s.unit[k].unit) - re) < 5 * 4 * 0x1p-24 + 1e-9);
            assert_true(fabs(xpe_unfix(sum[2 * at + 1], s.unit[k].unit) - im) <
                        5 * 4 * 0x1p-24 + 1e-9);
        }
        free(sum);
    }
    xpt_scene_destroy(&s);
}

static void patches_are_cut_where_the_frames_lie(void **state)
{
    xpt_scene s = xpt_scene_create(2, 4, 24, 20, 1, 15);
    xpe_c32 image[24 * 20], out[4 * PLANE];
    xpt_random r = {16};

    (void)state;
    xpt_random_field(&r, image, 24 * 20);
    xpt_scene_put(&s, s.image, image, sizeof image);
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
    xpt_scene_destroy(&s);
}

/* ---------------------------------------------------------------------------------- the search */

static void shifts_that_leave_the_window_are_not_a_number(void **state)
{
    xpt_scene s = xpt_scene_create(1, 1, SIDE + 1, SIDE + 2, 1, 22);
    float counts[PLANE] = {1};
    double misfit[9];
    xpe_buffer *out = xpt_bench_make(s.t, 0, sizeof misfit);
    int64_t row = s.first[0], col = s.first[1];

    (void)state;
    xpt_scene_measure(&s, counts, NULL);
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
    xpt_scene_destroy(&s);
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
        cmocka_unit_test(patches_are_summed_anew_after_an_update),
        cmocka_unit_test(patches_are_cut_where_the_frames_lie),
        cmocka_unit_test(shifts_that_leave_the_window_are_not_a_number),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
