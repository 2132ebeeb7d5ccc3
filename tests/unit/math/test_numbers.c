/* The numbers between the steps: what is not finite is noticed, once, and units hold what they are
 * for. */
#include "math/numbers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const xpe_numbers_model model = {.modes = 2,
                                        .object_data_fit = 0.6,
                                        .probe_data_fit = 0.4,
                                        .two_rho = 1,
                                        .frame_norm = 30,
                                        .pixels = 256,
                                        .cover_pixels = 4096,
                                        .num_frames = 100,
                                        .count_max = 12};

/* A whole iteration of numbers; input `spoilt` (from 0, -1 for none) is `value`. */
static xpe_numbers take(xpe_numbers n, int64_t iteration, int spoilt, double value)
{
    double in[] = {4, 1, 9, 1e4, 2.25, 0.25, 50, 20, 3, 2.5, 7, 1, 1.5, 4};

    if (spoilt >= 0)
        in[spoilt] = value;
    xpe_numbers_average(&model, &n, iteration, in[0], in[1], in[2], in[3]);
    xpe_numbers_copies(&n, iteration, in[4], in[5]);
    n.mode[0].energy = in[6];
    n.mode[1].energy = in[7];
    xpe_numbers_energies(&model, &n, iteration);
    xpe_numbers_mode(&n, iteration, 0, in[8], in[9], in[10]);
    xpe_numbers_mode(&n, iteration, 1, in[11], in[12], in[13]);
    for (int k = 0; k < 2; k++) {
        xpe_numbers_cover(&model, &n, k, 5e4);
        xpe_numbers_unit(&model, &n, k);
    }
    return n;
}

static void finite_numbers_are_what_the_definition_says(void **state)
{
    static const xpe_numbers none;
    xpe_numbers n = take(none, 1, -1, 0);

    (void)state;
    assert_int_equal(n.bad.iteration, 0);
    assert_true(n.v == 2 && n.z == 1 && n.image == 3 && n.s == 1.5 && n.u == 0.5);
    assert_true(fabs(n.patch_eps / (1e-6 * sqrt(1e4 / 25600)) - 1) < 1e-15);
    assert_true(fabs(n.mode[0].share - 5.0 / 7) < 1e-15);
    assert_true(fabs(n.mode[1].share - 2.0 / 7) < 1e-15);
    assert_true(fabs(n.mode[1].d_eps / (1e-6 * sqrt(20.0 / 256)) - 1) < 1e-15);
    assert_true(fabs(n.mode[0].cover_eps / (1e-6 * sqrt(5e4 / 4096)) - 1) < 1e-15);
}

/* Whichever number is spoilt, with whatever is not finite, the iteration is remembered, and stays
 * the first. */
static void what_is_not_finite_is_noticed_once(void **state)
{
    static const int64_t what[] = {XPE_BAD_OBJECT, XPE_BAD_OBJECT, XPE_BAD_OBJECT, XPE_BAD_OBJECT,
                                   XPE_BAD_COPIES, XPE_BAD_COPIES, XPE_BAD_PROBE,  XPE_BAD_PROBE,
                                   XPE_BAD_MODES,  XPE_BAD_MODES,  XPE_BAD_MODES,  XPE_BAD_MODES,
                                   XPE_BAD_MODES,  XPE_BAD_MODES};
    static const xpe_numbers none;

    (void)state;
    for (int i = 0; i < 14; i++)
        for (int infinite = 0; infinite < 2; infinite++) {
            xpe_numbers n = take(none, 7, i, infinite ? INFINITY : NAN);
            assert_int_equal(n.bad.iteration, 7);
            assert_int_equal(n.bad.what, what[i]);
            n = take(n, 8, -1, 0);
            assert_int_equal(n.bad.iteration, 7);
            assert_int_equal(n.bad.what, what[i]);
        }
}

static void an_object_or_a_probe_of_zeros_is_noticed(void **state)
{
    static const xpe_numbers none;
    xpe_numbers n = take(none, 3, 2, 0);

    (void)state;
    assert_int_equal(n.bad.what, XPE_BAD_OBJECT);
    memset(&n, 0, sizeof n);
    xpe_numbers_energies(&model, &n, 4);
    assert_int_equal(n.bad.iteration, 4);
    assert_int_equal(n.bad.what, XPE_BAD_PROBE_ZERO);
    assert_int_equal(take(none, 5, 12, 0).bad.what,
                     XPE_BAD_MODES); /* a weight of zero everywhere */
}

/* 2^50 units hold the largest contribution and 2^62 all of them. */
static void assert_holds(xpe_unit u, double largest, double count)
{
    assert_true(largest <= 0x1p50 * u.unit);
    assert_true(largest * count <= 0x1p62 * u.unit);
    assert_true(largest * count * 8 > 0x1p50 * u.unit); /* and are not coarser than needed */
    assert_true(u.magic == 0x1.8p52 * u.unit);
}

static void units_hold_what_they_are_for(void **state)
{
    static const xpe_numbers none;

    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        xpe_numbers_model m = model;
        xpe_numbers n = take(none, 1, -1, 0);
        double v = 2 + 1, copy = fmax(1.5 + 0.5, sqrt(3));
        double kept = masked ? sqrt(50 + 20) : 0; /* a masked pixel keeps its field */
        m.masked = masked;
        for (int k = 0; k < 2; k++) {
            const xpe_mode_numbers *mode = n.mode + k;
            xpe_numbers_unit(&m, &n, k);
            assert_holds(mode->unit_l, mode->weight_max, 12);
            assert_holds(mode->unit_v, mode->weight_max * v, 12);
            assert_holds(mode->unit_w,
                         0.4 * mode->weight_max * v + 0.6 * mode->reach * (30 + kept * v), 12);
            assert_holds(mode->unit_s, copy, 100);
            assert_holds(mode->unit_r, 0.6 * copy + 0.4 * (30 + kept * 3) / (2 * sqrt(n.patch_eps)),
                         100);
            assert_holds(mode->unit_dev, 1.5 + 0.5 + mode->d_max, 100);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_numbers_are_what_the_definition_says),
        cmocka_unit_test(what_is_not_finite_is_noticed_once),
        cmocka_unit_test(an_object_or_a_probe_of_zeros_is_noticed),
        cmocka_unit_test(units_hold_what_they_are_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
