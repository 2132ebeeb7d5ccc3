/* Position refinement (algorithm.md 3): planted shifts are found and nothing else moves. */
#include "engine_run.h"
#include "oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double pitch_of(const xpt_case *c)
{
    return xpe_pixel_pitch(c->desc.scan.wavelength_m, c->desc.scan.detector_distance_m,
                           c->desc.scan.detector_pitch_m, c->n);
}

static xpe_stage refine_stage(int max_shift)
{
    xpe_stage stage = xpt_stage(1);

    stage.algorithm = XPE_REFINE_POSITIONS;
    stage.max_shift = max_shift;
    return stage;
}

/* The tiny problem with its truth given, two modes. */
static xpt_case *given_case(void)
{
    xpt_case *c = xpt_tiny_create(2);

    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 2;
    return c;
}

/* Shift that was planted at frame j: whole pixels, up to most both ways, only where the frame stays
 * on the grid. */
static void plant(xpt_case *c, int *shifts, int most)
{
    xpt_random r = {11};

    for (int j = 0; j < XPT_TINY_FRAMES; j++)
        for (int axis = 0; axis < 2; axis++) {
            int at = axis ? j % 7 : j / 7;
            int shift = j % 3 ? 0 : (int)xpt_random_below(&r, 2 * most + 1) - most;
            if ((at == 0 && shift < 0) || (at == 6 && shift > 0))
                shift = -shift;
            shifts[2 * j + axis] = shift;
            c->positions[2 * j + axis] += shift * XPT_TINY_PITCH;
        }
}

static void assert_found(const xpt_case *c, const xpt_result *got, const int *shifts)
{
    for (int j = 0; j < XPT_TINY_FRAMES; j++) {
        bool moved = shifts[2 * j] || shifts[2 * j + 1];
        for (int axis = 0; axis < 2; axis++)
            assert_true(fabs(got->positions[2 * j + axis] -
                             (c->positions[2 * j + axis] - shifts[2 * j + axis] * pitch_of(c))) <
                        1e-6 * XPT_TINY_PITCH);
        if (moved)
            assert_true(got->gain[j] > 0.99 && got->gain[j] <= 1);
        else
            assert_true(got->gain[j] == 0);
    }
}

static void planted_shifts_are_found_and_the_rest_stays(void **state)
{
    (void)state;
    for (int max_shift = 1; max_shift <= 3; max_shift++)
        for (int devices = 1; devices <= 5; devices += 2) {
            xpt_case *c = given_case();
            xpe_stage stage = refine_stage(max_shift);
            int shifts[2 * XPT_TINY_FRAMES];
            xpt_result *got;
            plant(c, shifts, max_shift);
            got = xpt_run_well(&c->desc, &stage,
                               (xpt_division){.devices = devices, .threads = 2, .batch = 5});
            assert_found(c, got, shifts);
            xpt_assert_below(got->errors[0], 1e-5); /* the truth at the true positions */
            xpt_result_destroy(got);
            xpt_case_destroy(c);
        }
}

/* The object of a search is that of the run before, and so is what covers it. */
static void the_coverage_is_that_of_a_run_at_the_given_positions(void **state)
{
    xpt_case *c = given_case();
    xpe_problem_desc known = c->desc;
    xpe_stage search = refine_stage(1), once = xpt_stage(1);
    xpt_result *got, *wanted;
    double most = 0, off = 0;

    (void)state;
    known.init_probe = NULL;
    known.init_probe_count = 0;
    known.probe = c->probe;
    known.probe_count = 2;
    got = xpt_run_well(&c->desc, &search, (xpt_division){.devices = 2});
    wanted = xpt_run_well(&known, &once, (xpt_division){.devices = 2});
    for (int64_t i = 0; i < c->rows * c->cols; i++) {
        most = fmax(most, wanted->coverage[i]);
        off = fmax(off, fabs((double)got->coverage[i] - (double)wanted->coverage[i]));
    }
    assert_true(most > 0);
    xpt_assert_below(off / most, 1e-6); /* one rounding to float32, and that of the units */
    xpt_result_destroy(wanted);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

static void masked_pixels_do_not_hinder_the_search(void **state)
{
    xpt_case *c = given_case();
    xpe_stage stage = refine_stage(1);
    int shifts[2 * XPT_TINY_FRAMES];
    xpt_result *got;

    (void)state;
    xpt_case_hide(c, 0.1, 1e6f, 12);
    plant(c, shifts, 1);
    got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});
    assert_found(c, got, shifts);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

/* Misfit of frame j with its patch at (row, col), from the definition; negative where the grid
 * ends. */
static double misfit(const xpt_case *c, const xpt_dft *dft, int64_t j, int64_t row, int64_t col)
{
    int64_t n = c->n, plane = n * n;
    xpt_c *field = xpt_new((size_t)plane, sizeof *field);
    double *sum = xpt_new((size_t)plane, sizeof *sum), total = 0;

    if (row < 0 || col < 0 || row + n > c->rows || col + n > c->cols)
        total = -1;
    for (int k = 0; k < c->modes && total >= 0; k++) {
        for (int64_t i = 0; i < plane; i++) {
            xpe_c32 d = c->probe[k * plane + i],
                    x = c->object[(row + i / n) * c->cols + col + i % n];
            field[i] = CMPLX((double)d.re, (double)d.im) * CMPLX((double)x.re, (double)x.im);
        }
        xpt_dft_run(dft, field, -1);
        for (int64_t i = 0; i < plane; i++)
            sum[i] += creal(field[i] * conj(field[i]));
    }
    for (int64_t i = 0; i < plane && total >= 0; i++)
        total += pow(sqrt(sum[i]) - sqrt((double)c->counts[j * plane + i]), 2);
    free(sum);
    free(field);
    return total < 0 ? -1 : sqrt(total);
}

static void choice_and_gain_are_those_of_an_exhaustive_search(void **state)
{
    xpt_case *c = xpt_small_create(10, 4, 2, 13);
    xpe_stage stage = refine_stage(2);
    xpt_dft *dft = xpt_dft_create(10);
    int64_t *first = xpt_new(32, sizeof *first);
    xpt_random r = {14};
    double total = 0, wrong = 0;
    xpt_result *got;

    (void)state;
    for (int64_t i = 0; i < c->num_frames * 100; i++)
        c->counts[i] = c->counts[i] * (float)(0.3 + 1.4 * xpt_random_unit(&r));
    for (int i = 0; i < 32; i++) /* the four in the middle have room to move */
        if (i / 8 % 3 && i / 2 % 4 % 3)
            c->positions[i] += (double)(xpt_random_below(&r, 3) - 1) * XPT_TINY_PITCH;
    xpt_case_first(c, first);
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
    xpt_case_know(c);
    got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 3, .threads = 2});
    for (int64_t j = 0; j < 16; j++) {
        double best = misfit(c, dft, j, first[2 * j], first[2 * j + 1]), now = best,
               second = INFINITY;
        int64_t best_row = 0, best_col = 0;
        for (int64_t a = -2; a <= 2; a++)
            for (int64_t b = -2; b <= 2; b++) {
                double m = misfit(c, dft, j, first[2 * j] + a, first[2 * j + 1] + b);
                if (m >= 0 && m < best) {
                    second = best;
                    best = m;
                    best_row = a;
                    best_col = b;
                } else if (m >= 0 && (a || b)) {
                    second = fmin(second, m);
                }
            }
        assert_true(second - best > 1e-5 * now); /* else rounding could choose */
        assert_true(fabs(got->positions[2 * j] - c->positions[2 * j] -
                         (double)best_row * pitch_of(c)) < 1e-6 * XPT_TINY_PITCH);
        assert_true(fabs(got->positions[2 * j + 1] - c->positions[2 * j + 1] -
                         (double)best_col * pitch_of(c)) < 1e-6 * XPT_TINY_PITCH);
        assert_true(fabs(got->gain[j] - (now - best) / now) < 1e-5);
        wrong += best * best;
    }
    for (int64_t i = 0; i < c->num_frames * 100; i++)
        total += (double)c->counts[i];
    assert_true(fabs(got->errors[0] / sqrt(wrong / total) - 1) < 1e-5);
    xpt_result_destroy(got);
    free(first);
    xpt_dft_destroy(dft);
    xpt_case_destroy(c);
}

static void object_and_probe_come_back_as_they_were_given(void **state)
{
    xpt_case *c = given_case();
    xpe_stage stage = refine_stage(1);
    xpt_result *got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});

    (void)state;
    assert_memory_equal(got->object, c->object, (size_t)(c->rows * c->cols) * sizeof *c->object);
    for (int i = 0; i < 512; i++)
        assert_true(got->probe[i].re == c->probe[i].re && got->probe[i].im == c->probe[i].im);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

static void positions_before_the_step_are_the_given_ones(void **state)
{
    xpt_case *c = given_case();
    xpe_stage stage = refine_stage(1);
    xpe_device_list devices = xpt_devices(1, 1);
    double positions[2 * XPT_TINY_FRAMES];
    xpe_problem *problem;
    xpe_report report;
    xpe_run *run;
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&run, problem, &stage, &devices, &err), XPE_OK);
    assert_int_equal(xpe_run_positions(run, positions, NULL, &err), XPE_OK);
    assert_memory_equal(positions, c->positions, sizeof positions);
    assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    assert_true(report.last);
    assert_int_equal(xpe_run_positions(run, NULL, NULL, &err), XPE_OK);
    assert_int_equal(xpe_run_step(run, &report, &err), XPE_INVALID);
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    xpt_case_destroy(c);
}

static void a_search_without_object_or_probe_is_refused(void **state)
{
    xpe_stage stage = refine_stage(1);

    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        xpt_case *c = given_case();
        xpt_result *got;
        if (missing)
            c->desc.init_probe = NULL;
        else
            c->desc.init_object = NULL;
        got = xpt_run(&c->desc, &stage, (xpt_division){0});
        xpt_assert_refused(&got->error, XPE_INVALID, "needs an object and a probe");
        xpt_result_destroy(got);
        xpt_case_destroy(c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_shifts_are_found_and_the_rest_stays),
        cmocka_unit_test(the_coverage_is_that_of_a_run_at_the_given_positions),
        cmocka_unit_test(masked_pixels_do_not_hinder_the_search),
        cmocka_unit_test(choice_and_gain_are_those_of_an_exhaustive_search),
        cmocka_unit_test(object_and_probe_come_back_as_they_were_given),
        cmocka_unit_test(positions_before_the_step_are_the_given_ones),
        cmocka_unit_test(a_search_without_object_or_probe_is_refused),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
