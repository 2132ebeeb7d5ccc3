/* The averages on bands and modes, through backend.h only, against their formulas in double
 * precision. */
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

/* ----------------------------------------------------------------- averages on bands and modes */

#define ROWS 7
#define COLS 9
#define PIXELS (ROWS * COLS)

/* z = sum_k w_k S_k / L_k, S_k = 2 W_k - V_k; V_k += 2 rho (z Lsum_k - W_k); x = sum_k w_k V_k /
 * L_k */
static void averages_on_a_band_are_the_sums_of_the_definition(void **state)
{
    xpt_bench t = xpt_bench_open(1, 3, SIDE, 2);
    static int64_t w[2 * PIXELS * 2];
    static double v[2 * PIXELS * 2], l[2 * PIXELS], v_out[2 * PIXELS * 2], row_energy[ROWS],
        row_max[2 * ROWS];
    static int32_t count[PIXELS];
    static xpe_c32 z[PIXELS], x[PIXELS];
    const double share[2] = {0.7, 0.3}, eps[2] = {1e-3, 2e-3}, two_rho = 0.9;
    const xpe_unit unit[2] = {xpe_unit_make(4, 9), xpe_unit_make(8, 9)};
    xpe_buffer *wb, *vb, *lb, *cb,
        *nb = xpt_bench_numbers(t, 2, unit, share, eps, 0), *zb = xpt_bench_make(t, 0, sizeof z),
        *xb = xpt_bench_make(t, 0, sizeof x), *eb = xpt_bench_make(t, 0, sizeof row_energy),
        *mb = xpt_bench_make(t, 0, sizeof row_max);
    xpt_random r = {31};

    (void)state;
    for (int i = 0; i < 4 * PIXELS; i++) {
        w[i] = xpe_fix((float)xpt_random_sign(&r), unit[i / (2 * PIXELS)].magic,
                       unit[i / (2 * PIXELS)].bias);
        v[i] = xpt_random_sign(&r);
    }
    for (int i = 0; i < 2 * PIXELS; i++)
        l[i] = i % 11 ? 3 * xpt_random_unit(&r) : 0; /* some pixels that nothing covers */
    for (int i = 0; i < PIXELS; i++)
        count[i] = i % 5;
    wb = xpt_bench_make_from(t, 0, w, sizeof w);
    vb = xpt_bench_make_from(t, 0, v, sizeof v);
    lb = xpt_bench_make_from(t, 0, l, sizeof l);
    cb = xpt_bench_make_from(t, 0, count, sizeof count);
    t.b->average(t.team, 0,
                 &(xpe_average_args){.modes = 2,
                                     .rows = ROWS,
                                     .cols = COLS,
                                     .two_rho = two_rho,
                                     .numbers = nb,
                                     .w = wb,
                                     .v = vb,
                                     .l = lb,
                                     .count = cb,
                                     .z = zb,
                                     .image = xb,
                                     .row_energy = eb,
                                     .row_max = mb});
    xpt_bench_wait(t);
    xpt_bench_read(t, z, zb, sizeof z);
    xpt_bench_read(t, x, xb, sizeof x);
    xpt_bench_read(t, v_out, vb, sizeof v_out);
    xpt_bench_read(t, row_energy, eb, sizeof row_energy);
    xpt_bench_read(t, row_max, mb, sizeof row_max);
    for (int row = 0; row < ROWS; row++) {
        double energy = 0, z_max = 0, x_max = 0;
        for (int i = row * COLS; i < (row + 1) * COLS; i++) {
            xpt_c zi = 0, xi = 0;
            for (int k = 0; k < 2; k++) {
                int at = k * PIXELS + i;
                double cover = l[at] / (1 + 1e-6), q = share[k] * cover / (cover * cover + eps[k]);
                zi += q * CMPLX(2 * xpe_unfix(w[2 * at], unit[k].unit) - v[2 * at],
                                2 * xpe_unfix(w[2 * at + 1], unit[k].unit) - v[2 * at + 1]);
            }
            assert_true(cabs(zi - CMPLX((double)z[i].re, (double)z[i].im)) <=
                        1e-6 * (1 + cabs(zi)));
            zi = CMPLX((double)z[i].re, (double)z[i].im); /* what the patches receive */
            for (int k = 0; k < 2; k++) {
                int at = k * PIXELS + i;
                double cover = l[at] / (1 + 1e-6), q = share[k] * cover / (cover * cover + eps[k]);
                xpt_c vi = CMPLX(v[2 * at], v[2 * at + 1]) +
                           two_rho * (zi * l[at] - CMPLX(xpe_unfix(w[2 * at], unit[k].unit),
                                                         xpe_unfix(w[2 * at + 1], unit[k].unit)));
                assert_true(cabs(vi - CMPLX(v_out[2 * at], v_out[2 * at + 1])) < 1e-12);
                xi += q * vi;
            }
            assert_true(cabs(xi - CMPLX((double)x[i].re, (double)x[i].im)) <=
                        1e-6 * (1 + cabs(xi)));
            energy += count[i] * xpt_square(xi);
            z_max = count[i] ? fmax(z_max, xpt_square(zi)) : z_max;
            x_max = count[i] ? fmax(x_max, xpt_square(xi)) : x_max;
        }
        assert_true(fabs(row_energy[row] - energy) <= 1e-6 * energy + 1e-12);
        assert_true(fabs(row_max[2 * row] - z_max) <= 1e-6 * z_max &&
                    fabs(row_max[2 * row + 1] - x_max) <= 1e-6 * x_max);
    }
    {
        xpe_buffer *const all[] = {wb, vb, lb, cb, nb, zb, xb, eb, mb};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            t.b->buffer_destroy(all[i]);
    }
    t.b->close(t.team);
}

static void integer_sums_become_doubles_with_the_energies_of_their_rows(void **state)
{
    xpt_bench t = xpt_bench_open(1, 2, SIDE, 2);
    int64_t sum[2 * PIXELS];
    double out[2 * PIXELS], energy[2 * (3 + ROWS)];
    const xpe_unit unit[2] = {xpe_unit_make(1, 9), xpe_unit_make(100, 9)};
    xpe_buffer *in, *to = xpt_bench_make(t, 0, sizeof out),
                    *nb = xpt_bench_numbers(t, 2, unit, NULL, NULL, 0),
                    *eb = xpt_bench_make(t, 0, sizeof energy);
    xpt_random r = {32};

    (void)state;
    for (int i = 0; i < 2 * PIXELS; i++)
        sum[i] = (int64_t)(xpt_random_bits(&r) >> 12);
    in = xpt_bench_make_from(t, 0, sum, sizeof sum);
    t.b->unfix(t.team, 0, &(xpe_unfix_args){2, 1, ROWS, COLS, nb, in, to, 3, eb});
    xpt_bench_wait(t);
    xpt_bench_read(t, out, to, sizeof out);
    xpt_bench_read(t, energy, eb, sizeof energy);
    for (int row = 0; row < 2 * ROWS; row++) {
        double total = 0;
        for (int i = row * COLS; i < (row + 1) * COLS; i++) {
            assert_true(out[i] == (double)sum[i] * unit[i / PIXELS].unit);
            total += pow(out[i] / (1 + 1e-6), 2);
        }
        assert_true(fabs(energy[2 * (3 + row % ROWS) + row / ROWS] / total - 1) < 1e-12);
    }
    for (int i = 0; i < 6; i++) /* rows of another band */
        assert_true(energy[i] == 0);
    t.b->buffer_destroy(in);
    t.b->buffer_destroy(to);
    t.b->buffer_destroy(nb);
    t.b->buffer_destroy(eb);
    t.b->close(t.team);
}

/* u = (2 R - S) / J, d = (S - 2 rho R) / J + 2 rho u */
static void averages_of_the_copies_are_those_of_steps_4_and_5(void **state)
{
    xpt_bench t = xpt_bench_open(1, 2, SIDE, 2);
    static int64_t fit_sum[4 * PLANE], copy_sum[4 * PLANE];
    static xpe_c32 u[2 * PLANE], d[2 * PLANE], before[2 * PLANE], kept[2 * PLANE];
    const double frames = 9, two_rho = 0.8;
    const xpe_unit units[2] = {xpe_unit_make(2, 9), xpe_unit_make(3, 9)};
    double row_max[2 * SIDE];
    xpe_buffer *rb, *sb, *db, *ub = xpt_bench_make(t, 0, sizeof u),
                              *kb = xpt_bench_make(t, 0, sizeof kept),
                              *nb = xpt_bench_numbers(t, 2, units, NULL, NULL, 0),
                              *mb = xpt_bench_make(t, 0, sizeof row_max);
    xpt_random r = {33};

    (void)state;
    xpt_random_field(&r, before, 2 * PLANE);
    db = xpt_bench_make_from(t, 0, before, sizeof before);
    for (int i = 0; i < 4 * PLANE; i++) {
        fit_sum[i] = (int64_t)(xpt_random_bits(&r) >> 13) - (INT64_C(1) << 50);
        copy_sum[i] = (int64_t)(xpt_random_bits(&r) >> 13) - (INT64_C(1) << 50);
    }
    rb = xpt_bench_make_from(t, 0, fit_sum, sizeof fit_sum);
    sb = xpt_bench_make_from(t, 0, copy_sum, sizeof copy_sum);
    t.b->mode_average(t.team, 0,
                      &(xpe_mode_average_args){2, frames, two_rho, nb, rb, sb, ub, db, kb, mb});
    xpt_bench_wait(t);
    xpt_bench_read(t, u, ub, sizeof u);
    xpt_bench_read(t, d, db, sizeof d);
    xpt_bench_read(t, kept, kb, sizeof kept);
    xpt_bench_read(t, row_max, mb, sizeof row_max);
    assert_memory_equal(kept, before, sizeof kept);
    for (int i = 0; i < 2 * PLANE; i++) {
        double unit = units[i / PLANE].unit;
        xpt_c fit_at = unit * CMPLX((double)fit_sum[2 * i], (double)fit_sum[2 * i + 1]);
        xpt_c copy_at = unit * CMPLX((double)copy_sum[2 * i], (double)copy_sum[2 * i + 1]);
        xpt_c u_at = (2 * fit_at - copy_at) / frames,
              d_at = (copy_at - two_rho * fit_at) / frames + two_rho * u_at;
        assert_true(cabs(u_at - CMPLX((double)u[i].re, (double)u[i].im)) < 1e-6);
        assert_true(cabs(d_at - CMPLX((double)d[i].re, (double)d[i].im)) < 1e-6);
        assert_true(xpt_square(u_at) <= row_max[i / SIDE] * (1 + 1e-6));
    }
    t.b->buffer_destroy(rb);
    t.b->buffer_destroy(sb);
    t.b->buffer_destroy(ub);
    t.b->buffer_destroy(kb);
    t.b->buffer_destroy(nb);
    t.b->buffer_destroy(db);
    t.b->buffer_destroy(mb);
    t.b->close(t.team);
}

/* d / n, alpha w conj(d) / (n (|d|^2 + eps)), |d|^kappa; energies and largest values by rows */
static void what_follows_from_the_modes_is_what_the_definition_says(void **state)
{
    static const double kappas[] = {1, 1.25, 1.5, 1.7, 2};

    (void)state;
    for (size_t at = 0; at < sizeof kappas / sizeof *kappas; at++) {
        xpt_bench t = xpt_bench_open(1, 2, SIDE, 2);
        static xpe_c32 d[2 * PLANE], probe[2 * PLANE], divider[2 * PLANE];
        static float weight[2 * PLANE];
        static double row_energy[2 * SIDE], row_max[6 * SIDE];
        const double share[2] = {0.9, 0.1}, eps[2] = {1e-3, 1e-4}, alpha = 0.6;
        const xpe_unit units[2] = {xpe_unit_make(1, 1), xpe_unit_make(1, 1)};
        xpe_buffer *db, *nb = xpt_bench_numbers(t, 2, units, share, eps, 0),
                        *pb = xpt_bench_make(t, 0, sizeof probe),
                        *qb = xpt_bench_make(t, 0, sizeof divider),
                        *wb = xpt_bench_make(t, 0, sizeof weight),
                        *eb = xpt_bench_make(t, 0, sizeof row_energy),
                        *mb = xpt_bench_make(t, 0, sizeof row_max);
        xpt_random r = {34};
        xpt_random_field(&r, d, 2 * PLANE);
        d[5] = (xpe_c32){0, 0};
        db = xpt_bench_make_from(t, 0, d, sizeof d);
        t.b->mode_energy(t.team, 0, &(xpe_mode_energy_args){2, db, eb});
        t.b->mode_derive(t.team, 0,
                         &(xpe_mode_derive_args){2, kappas[at], alpha, nb, db, pb, qb, wb, mb});
        xpt_bench_wait(t);
        xpt_bench_read(t, probe, pb, sizeof probe);
        xpt_bench_read(t, divider, qb, sizeof divider);
        xpt_bench_read(t, weight, wb, sizeof weight);
        xpt_bench_read(t, row_energy, eb, sizeof row_energy);
        xpt_bench_read(t, row_max, mb, sizeof row_max);
        for (int i = 0; i < 2 * PLANE; i++) {
            int k = i / PLANE;
            xpt_c x = CMPLX((double)d[i].re, (double)d[i].im),
                  q = alpha * share[k] * conj(x) / (SIDE * (xpt_square(x) + eps[k]));
            double kept = pow(cabs(x), kappas[at]);
            assert_true(cabs(CMPLX((double)probe[i].re, (double)probe[i].im) - x / SIDE) < 1e-7);
            assert_true(cabs(CMPLX((double)divider[i].re, (double)divider[i].im) - q) <=
                        1e-6 * cabs(q));
            assert_true(fabs((double)weight[i] - kept) <= 1e-6 * kept);
            assert_true(row_max[3 * (i / SIDE)] >= xpt_square(x) * (1 - 1e-6));
            assert_true(row_max[3 * (i / SIDE) + 1] >= kept * (1 - 1e-6));
            assert_true(row_max[3 * (i / SIDE) + 2] >=
                        kept * cabs(q) * SIDE / alpha *
                            (1 - 1e-6)); /* one mode of the sum at least */
        }
        for (int row = 0; row < 2 * SIDE; row++) {
            double total = 0;
            for (int i = row * SIDE; i < (row + 1) * SIDE; i++)
                total += pow((double)d[i].re, 2) + pow((double)d[i].im, 2);
            assert_true(fabs(row_energy[row] / total - 1) < 1e-12);
        }
        {
            xpe_buffer *const all[] = {db, nb, pb, qb, wb, eb, mb};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                t.b->buffer_destroy(all[i]);
        }
        t.b->close(t.team);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_on_a_band_are_the_sums_of_the_definition),
        cmocka_unit_test(integer_sums_become_doubles_with_the_energies_of_their_rows),
        cmocka_unit_test(averages_of_the_copies_are_those_of_steps_4_and_5),
        cmocka_unit_test(what_follows_from_the_modes_is_what_the_definition_says),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
