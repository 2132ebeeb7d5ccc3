/* What an independent implementation gets wrong (algorithm.md 7), one test a trap.
 *
 * The oracle computes in complex128 what is right and what each mistake would give.  The engine
 * must agree with the right one within what float32 can, and every mistake must lie further away by
 * at least the factor MARGIN, or the test could not see it.  Some mistakes are invisible on the
 * plain tiny problem (its modes have equal guards, its grid no empty pixel): those are looked for
 * on a problem that shows them. */
#include "engine_run.h"
#include "oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A mistake must be this much further from the engine than what is right. */
#define MARGIN 5.0

/* A problem, its stage, and what the engine made of it. */
typedef struct view {
    xpt_case *c;
    xpe_stage stage;
    xpt_result *got;
    double tolerance;
    xpt_oracle *right;
} view;

typedef enum quantity { OBJECT, PROBE, COVERAGE, ERRORS, START_OBJECT, START_PROBE } quantity;

static const int second_iteration[] = {2};

static double coverage_distance(const float *a, const double *b, int64_t count)
{
    double wrong = 0, right = 0;

    for (int64_t i = 0; i < count; i++) {
        wrong += pow((double)a[i] - b[i], 2);
        right += b[i] * b[i];
    }
    return sqrt(wrong / right);
}

static double error_distance(const double *a, const double *b, int count)
{
    double most = 0;

    for (int i = 0; i < count; i++)
        most = fmax(most, fabs(a[i] / b[i] - 1));
    return most;
}

static double distance_to(const view *v, const xpt_oracle *o, quantity what)
{
    int64_t pixels = o->rows * o->cols, plane = o->n * o->n;

    switch (what) {
    case OBJECT:
        return xpt_distance(v->got->object, o->object, pixels);
    case PROBE:
        return xpt_distance(v->got->probe, o->probe, o->modes * plane);
    case COVERAGE:
        return coverage_distance(v->got->coverage, o->coverage, pixels);
    case ERRORS:
        return error_distance(v->got->errors, o->errors, o->iterations);
    case START_OBJECT:
        return xpt_distance(v->got->start_object, o->start_object, pixels);
    case START_PROBE:
        return xpt_distance(v->got->start_probe, o->start_probe, plane);
    }
    return NAN;
}

/* The engine is right within the tolerance, and the mistake lies `figure` or more away. */
static void expect(const view *v, xpt_trap trap, quantity what, double figure)
{
    xpt_oracle *mistaken = xpt_oracle_run(v->c, &v->stage, trap);
    double right = distance_to(v, v->right, what), wrong = distance_to(v, mistaken, what);

    xpt_oracle_destroy(mistaken);
    printf("    right %.2e, mistake %.2e\n", right, wrong);
    xpt_assert_below(right, v->tolerance);
    xpt_assert_below(figure, wrong);
    xpt_assert_below(v->tolerance * MARGIN, wrong);
}

/* --------------------------------------------------------------------------------------- views */

static void begin(view *v)
{
    v->got = xpt_run_well(&v->c->desc, &v->stage, (xpt_division){.devices = 2, .threads = 2});
    v->right = xpt_oracle_run(v->c, &v->stage, XPT_RIGHT);
}

static void end(view *v)
{
    xpt_oracle_destroy(v->right);
    xpt_result_destroy(v->got);
    xpt_case_destroy(v->c);
}

/* Known probe, 20 iterations, as in tiny_known.json. */
static view known_view(void)
{
    view v = {xpt_tiny_create(1), xpt_stage(20), NULL, 1e-5, NULL};

    xpt_case_know(v.c);
    v.stage.object_data_fit = 0.5;
    v.stage.probe_weight_exponent = 1.5;
    begin(&v);
    return v;
}

/* Estimated probe, 6 iterations, second mode at 2, as in tiny_blind.json. */
static view blind_view(void)
{
    view v = {xpt_tiny_create(2), xpt_stage(6), NULL, 3e-5, NULL};

    v.stage.object_data_fit = 0.5;
    v.stage.mode_schedule = second_iteration;
    v.stage.schedule_count = 1;
    v.stage.fresnel_distance_m = 2e-6;
    begin(&v);
    return v;
}

/* The same, orthogonalised after the addition. */
static view orthogonal_view(void)
{
    view v = {xpt_tiny_create(2), xpt_stage(6), NULL, 3e-5, NULL};

    v.stage.object_data_fit = 0.5;
    v.stage.mode_schedule = second_iteration;
    v.stage.schedule_count = 1;
    v.stage.fresnel_distance_m = 2e-6;
    v.stage.orthogonalize_modes = true;
    begin(&v);
    return v;
}

/* Both modes given at the start. */
static view given_view(void)
{
    view v = {xpt_tiny_create(2), xpt_stage(3), NULL, 1e-5, NULL};

    v.c->desc.init_probe = v.c->probe;
    v.c->desc.init_probe_count = 2;
    begin(&v);
    return v;
}

/* An object whose lower half is nearly dark, so that the guard of divisions by patches is felt
 * there. */
static view dark_view(void)
{
    view v = {xpt_tiny_create(1), xpt_stage(2), NULL, 1e-4, NULL};

    for (int64_t i = v.c->rows / 2 * v.c->cols; i < v.c->rows * v.c->cols; i++)
        v.c->object[i] = (xpe_c32){v.c->object[i].re * 3e-3f, v.c->object[i].im * 3e-3f};
    xpt_case_measure(v.c);
    v.c->desc.init_object = v.c->object;
    v.c->desc.init_object_shape[0] = v.c->rows;
    v.c->desc.init_object_shape[1] = v.c->cols;
    v.c->desc.init_probe = v.c->probe;
    v.c->desc.init_probe_count = 1;
    begin(&v);
    return v;
}

/* A grid with a margin that no patch reaches, less than half of it; n / 2 is odd.  Its rim is lit
 * so faintly that rounding is felt there, hence the wider tolerance. */
static view margin_view(void)
{
    view v = {xpt_small_create(18, 5, 2, 3), xpt_stage(2), NULL, 5e-5, NULL};

    v.c->desc.init_probe = v.c->probe;
    v.c->desc.init_probe_count = 1;
    begin(&v);
    return v;
}

/* --------------------------------------------------------------------------------------- traps */

static void trap_1_guard_is_relative_to_the_rms(void **state)
{
    view v = known_view();

    (void)state;
    expect(&v, XPT_GUARD_SQUARE, OBJECT, 5e-3);
    expect(&v, XPT_GUARD_NONE, OBJECT, 2e-2);
    end(&v);
}

static void trap_2_guard_of_the_amplitude_ratio_is_absolute_and_inside_the_root(void **state)
{
    view v = known_view();

    (void)state;
    expect(&v, XPT_GAIN_RELATIVE, OBJECT, 5e-4);
    expect(&v, XPT_GAIN_OUTSIDE, OBJECT, 5e-4);
    expect(&v, XPT_ERROR_GUARDED, ERRORS, 1e-2);
    end(&v);
}

static void trap_3_coverage_is_divided_by_one_and_a_millionth(void **state)
{
    view v = known_view();

    (void)state;
    v.tolerance =
        1.5e-7; /* the reported coverage and the starts: little more than a rounding to float32 */
    expect(&v, XPT_SHRINK_NONE, COVERAGE, 9e-7);
    expect(&v, XPT_SHRINK_NONE, START_OBJECT, 9e-7);
    end(&v);
    v = blind_view();
    v.tolerance = 1.5e-7;
    expect(&v, XPT_SHRINK_NONE, START_PROBE, 9e-7);
    end(&v);
}

static void trap_4_each_guard_has_its_own_mean_over_everything(void **state)
{
    view v = margin_view();

    (void)state;
    expect(&v, XPT_COVER_GUARD_BAND, OBJECT, 1e-3);
    end(&v);
    v = dark_view();
    expect(&v, XPT_PATCH_GUARD_BLOCK, PROBE, 1e-3);
    end(&v);
    v = given_view();
    v.tolerance = 2e-6;
    expect(&v, XPT_MODE_GUARD_SHARED, OBJECT, 3e-5);
    end(&v);
}

/* arg(0) = 0 is looked at by unit-cpu-loops and backend-copies: no scan reaches it at will. */
static void trap_5_amplitude_is_the_modes_and_phase_the_copys(void **state)
{
    view v = blind_view();

    (void)state;
    expect(&v, XPT_AMPLITUDE_OF_COPY, OBJECT, 1e-3);
    expect(&v, XPT_AMPLITUDE_OF_COPY, PROBE, 1e-3);
    expect(&v, XPT_PHASE_OF_MODE, OBJECT, 5e-4);
    expect(&v, XPT_PHASE_OF_MODE, PROBE, 1e-3);
    end(&v);
}

static void trap_6_all_modes_are_fitted_at_once_to_the_second_average(void **state)
{
    view v = blind_view();

    (void)state;
    expect(&v, XPT_MODES_IN_TURN, PROBE, 5e-4);
    expect(&v, XPT_PATCHES_OF_Z, PROBE, 1e-2);
    expect(&v, XPT_PATCHES_OF_V, PROBE, 5e-3);
    end(&v);
}

/* That the test is strict is a fact of unit-math-relax. */
static void trap_7_modes_are_averaged_before_outliers_are_replaced(void **state)
{
    view v = blind_view();

    (void)state;
    expect(&v, XPT_MEAN_AFTER_OUTLIERS, OBJECT, 5e-4);
    expect(&v, XPT_OUTLIERS_KEPT, OBJECT, 5e-4);
    expect(&v, XPT_OUTLIERS_FROM_ONE, OBJECT, 5e-4);
    end(&v);
}

static void trap_8_steps_follow_in_the_stated_order(void **state)
{
    view v = blind_view();

    (void)state;
    expect(&v, XPT_SCHEDULE_FROM_ZERO, OBJECT, 1e-2);
    expect(&v, XPT_ADD_AFTER_PROBE, OBJECT, 1e-2);
    expect(&v, XPT_ERROR_OF_OLD_MODES, ERRORS, 1e-1);
    expect(&v, XPT_COVER_NEVER_RENEWED, COVERAGE, 1e-2);
    expect(&v, XPT_COVER_NEVER_RENEWED, OBJECT, 1e-3);
    end(&v);
}

static void trap_9_a_new_mode_has_its_share_of_the_old_energy(void **state)
{
    view v = blind_view();

    (void)state;
    expect(&v, XPT_ENERGY_UNSCALED, OBJECT, 5e-3);
    expect(&v, XPT_COPIES_UNSCALED, OBJECT, 5e-3);
    expect(&v, XPT_SHARE_OF_NORMS, OBJECT, 1e-2);
    expect(&v, XPT_SHARE_OF_NORMS, COVERAGE, 1e-1);
    end(&v);
}

static void trap_10_fresnel_sign_is_minus_and_the_transform_unshifted(void **state)
{
    view v = blind_view();

    (void)state;
    expect(&v, XPT_FRESNEL_PLUS, PROBE, 2e-2);
    expect(&v, XPT_FRESNEL_PLUS, START_PROBE, 2e-2);
    expect(&v, XPT_FRESNEL_SHIFTED, PROBE, 2e-2);
    end(&v);
}

static void trap_11_start_object_uses_all_modes_and_the_median_of_the_whole_grid(void **state)
{
    view v = given_view();

    (void)state;
    expect(&v, XPT_NORM_FIRST_MODE, START_OBJECT, 5e-3);
    end(&v);
    v = margin_view();
    expect(&v, XPT_MEDIAN_COVERED, START_OBJECT, 1e-4);
    expect(&v, XPT_ZEROS_STAY, START_OBJECT, 1e-2);
    expect(&v, XPT_SMOOTH_FIRST, START_OBJECT, 1e-2);
    end(&v);
}

static void trap_12_gaussian_has_nine_taps_a_mirrored_edge_and_comes_last(void **state)
{
    view v = blind_view();

    (void)state;
    expect(&v, XPT_GAUSS_ZERO, START_PROBE, 5e-3);
    expect(&v, XPT_GAUSS_ZERO, START_OBJECT, 5e-3);
    expect(&v, XPT_GAUSS_SHORT, START_PROBE, 1e-4);
    expect(&v, XPT_GAUSS_SHORT, OBJECT, 1e-4);
    expect(&v, XPT_GAUSS_BEFORE_FRESNEL, START_PROBE, 1e-3);
    end(&v);
}

/* Positions at exact halves of a pixel of 1 m; the bands' halves are a fact of unit-core-plan. */
static void trap_13_positions_at_halves_are_rounded_to_even(void **state)
{
    xpt_case *c = xpt_small_create(18, 5, 1, 5);
    xpe_stage stage = xpt_stage(1);
    xpt_result *right, *wrong;
    int moved = 0;

    (void)state;
    c->desc.scan.wavelength_m = 1;
    c->desc.scan.detector_distance_m = 18;
    c->desc.scan.detector_pitch_m = 1;
    for (int i = 0; i < 2 * 25; i++) {
        c->positions[i] = floor(c->positions[i] / XPT_TINY_PITCH + 0.25) + 0.5;
        moved += rint(c->positions[i]) != floor(c->positions[i] + 0.5);
    }
    assert_in_range(moved, 5, 45);
    xpt_case_measure(c);
    xpt_case_know(c);
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
    right = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});
    for (int i = 0; i < 2 * 25; i++)
        c->positions[i] = floor(c->positions[i] + 0.5); /* what another rounding would take */
    wrong = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});
    printf("    right %.2e, mistake %.2e\n", right->errors[0], wrong->errors[0]);
    xpt_assert_below(right->errors[0], 1e-3); /* the truth stays but for the guards */
    xpt_assert_below(1e-2, wrong->errors[0]);
    xpt_result_destroy(wrong);
    xpt_result_destroy(right);
    xpt_case_destroy(c);
}

/* Largest distance of a mode to the oracle's, one complex factor each left free. */
static double mode_distance(const view *v, const xpt_oracle *o)
{
    int64_t plane = o->n * o->n;
    double most = 0;

    for (int k = 0; k < o->modes; k++)
        most =
            fmax(most, xpt_distance_scaled(v->got->probe + k * plane, o->probe + k * plane, plane));
    return most;
}

static void trap_14_orthogonal_modes_agree_but_for_a_phase(void **state)
{
    view v = orthogonal_view();
    xpt_oracle *wrong;

    (void)state;
    v.stage.orthogonalize_modes = false;
    wrong = xpt_oracle_run(v.c, &v.stage, XPT_RIGHT);
    printf("    right %.2e, mistake %.2e\n", mode_distance(&v, v.right), mode_distance(&v, wrong));
    xpt_assert_below(mode_distance(&v, v.right), 1e-5);
    xpt_assert_below(1e-2, mode_distance(&v, wrong));
    xpt_assert_below(distance_to(&v, v.right, OBJECT), 1e-5);
    xpt_assert_below(distance_to(&v, v.right, ERRORS), 1e-5);
    xpt_oracle_destroy(wrong);
    end(&v);
}

/* Over a constant object every shift fits equally well: the first in row-major order wins. */
static void trap_15_the_first_of_equal_shifts_wins_and_given_positions_are_moved(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(1);
    xpt_result *got;

    (void)state;
    stage.algorithm = XPE_REFINE_POSITIONS;
    stage.max_shift = 1;
    for (int64_t i = 0; i < c->rows * c->cols; i++)
        c->object[i] = (xpe_c32){1, 0};
    xpt_case_measure(c);
    for (int i = 0; i < 2 * XPT_TINY_FRAMES; i++)
        c->positions[i] +=
            0.3 * XPT_TINY_PITCH; /* off the pixels: rounded for the search, not in the result */
    memset(c->counts, 0, 256 * sizeof *c->counts);
    for (int i = 0; i < 256; i++) /* frame 0 sees nothing and models nothing: misfit 0 now */
        c->object[i / 16 * 64 + i % 16] = (xpe_c32){0, 0};
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 1;
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
    got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 3});
    for (int axis = 0; axis < 2; axis++) {
        double pitch = 1e-10 * 1.0 / (16 * c->desc.scan.detector_pitch_m);
        assert_true(got->positions[axis] == c->positions[axis]);
        assert_true(got->positions[2 * 24 + axis] ==
                    c->positions[2 * 24 + axis] - pitch); /* shift (-1, -1) */
        assert_true(got->positions[2 * 48 + axis] == c->positions[2 * 48 + axis] - pitch);
    }
    assert_true(got->gain[0] == 0);
    assert_true(got->gain[24] == 0);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trap_1_guard_is_relative_to_the_rms),
        cmocka_unit_test(trap_2_guard_of_the_amplitude_ratio_is_absolute_and_inside_the_root),
        cmocka_unit_test(trap_3_coverage_is_divided_by_one_and_a_millionth),
        cmocka_unit_test(trap_4_each_guard_has_its_own_mean_over_everything),
        cmocka_unit_test(trap_5_amplitude_is_the_modes_and_phase_the_copys),
        cmocka_unit_test(trap_6_all_modes_are_fitted_at_once_to_the_second_average),
        cmocka_unit_test(trap_7_modes_are_averaged_before_outliers_are_replaced),
        cmocka_unit_test(trap_8_steps_follow_in_the_stated_order),
        cmocka_unit_test(trap_9_a_new_mode_has_its_share_of_the_old_energy),
        cmocka_unit_test(trap_10_fresnel_sign_is_minus_and_the_transform_unshifted),
        cmocka_unit_test(trap_11_start_object_uses_all_modes_and_the_median_of_the_whole_grid),
        cmocka_unit_test(trap_12_gaussian_has_nine_taps_a_mirrored_edge_and_comes_last),
        cmocka_unit_test(trap_13_positions_at_halves_are_rounded_to_even),
        cmocka_unit_test(trap_14_orthogonal_modes_agree_but_for_a_phase),
        cmocka_unit_test(trap_15_the_first_of_equal_shifts_wins_and_given_positions_are_moved),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
