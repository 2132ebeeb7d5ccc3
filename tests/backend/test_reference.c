/* The figures of the public programs on the tiny problem (tests/data/tiny_*.json; algorithm.md 6),
 * and properties that hold whatever the figures are. */
#include "engine_run.h"
#include "oracle.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* algorithm.md 6; correct single-precision programs reach 2e-6 (known) and 6e-6 (blind). */
#define KNOWN_TOLERANCE 1e-5
#define START_TOLERANCE 1e-6
#define BLIND_TOLERANCE 1e-4

/* What a recorded entry says about an image or a mode. */
typedef struct figures {
    double frobenius, sum_real, sum_imag, max_abs;
} figures;

static figures figures_of(const xpe_c32 *a, int64_t count, xpt_c scale)
{
    figures f = {0};

    for (int64_t i = 0; i < count; i++) {
        xpt_c x = scale * CMPLX((double)a[i].re, (double)a[i].im);
        f.frobenius += creal(x * conj(x));
        f.sum_real += creal(x);
        f.sum_imag += cimag(x);
        f.max_abs = fmax(f.max_abs, cabs(x));
    }
    f.frobenius = sqrt(f.frobenius);
    return f;
}

/* The one complex number that brings a closest to b. */
static xpt_c best_scale(const xpe_c32 *a, const xpe_c32 *b, int64_t count)
{
    xpt_c dot = 0;
    double size = 0;

    for (int64_t i = 0; i < count; i++) {
        xpt_c x = CMPLX((double)a[i].re, (double)a[i].im);
        dot += conj(x) * CMPLX((double)b[i].re, (double)b[i].im);
        size += creal(x * conj(x));
    }
    return dot / size;
}

static json_t *load(const char *name)
{
    char path[512];
    json_error_t err;
    json_t *document;

    (void)snprintf(path, sizeof path, "%s/%s", XPT_DATA, name);
    document = json_load_file(path, 0, &err);
    if (!document)
        fail_msg("%s: %s", path, err.text);
    return document;
}

static double number(const json_t *entry, const char *name)
{
    const json_t *value = json_object_get(entry, name);

    if (!json_is_number(value))
        fail_msg("the recorded entry has no number '%s'", name);
    return json_number_value(value);
}

static void compare(double mine, double recorded, double tolerance, const char *name, int iteration)
{
    if (!(fabs(mine - recorded) <= tolerance * fabs(recorded)))
        fail_msg("iteration %d, %s: %.9g, recorded %.9g", iteration, name, mine, recorded);
}

/* `small`: how far a sum that nearly cancels may be off in absolute terms. */
static void compare_figures(figures mine, const json_t *entry, double tolerance, double small,
                            int iteration)
{
    double imag = number(entry, "sum_imag");

    compare(mine.frobenius, number(entry, "frobenius"), tolerance, "frobenius", iteration);
    compare(mine.sum_real, number(entry, "sum_real"), tolerance, "sum_real", iteration);
    compare(mine.max_abs, number(entry, "max_abs"), tolerance, "max_abs", iteration);
    if (fabs(imag) > 0.05)
        compare(mine.sum_imag, imag, tolerance, "sum_imag", iteration);
    else if (!(fabs(mine.sum_imag - imag) <= small))
        fail_msg("iteration %d, sum_imag: %.9g, recorded %.9g", iteration, mine.sum_imag, imag);
}

static void tiny_known_meets_every_figure_of_iterations_1_to_20(void **state)
{
    json_t *document = load("tiny_known.json"), *all = json_object_get(document, "iterations");
    xpt_case *c = xpt_tiny_create(1);
    int64_t pixels = c->rows * c->cols;

    (void)state;
    xpt_case_know(c);
    assert_int_equal(json_object_size(all), 20);
    for (int it = 1; it <= 20; it++) {
        xpe_stage stage = xpt_stage(it);
        char name[16];
        const json_t *entry;
        xpt_result *got;
        xpt_c scale;
        (void)snprintf(name, sizeof name, "%d", it);
        entry = json_object_get(all, name);
        stage.object_data_fit = 0.5;
        stage.probe_weight_exponent = 1.5;
        got = xpt_run_well(&c->desc, &stage, (xpt_division){0});
        scale = best_scale(got->object, c->object, pixels);
        compare_figures(figures_of(got->object, pixels, scale), entry, KNOWN_TOLERANCE, 1e-4, it);
        compare(got->errors[it - 1], number(entry, "data_error"), KNOWN_TOLERANCE, "data_error",
                it);
        {
            double wrong = 0, right = 0;
            for (int64_t i = 0; i < pixels; i++) {
                xpt_c x = CMPLX((double)c->object[i].re, (double)c->object[i].im);
                xpt_c off = scale * CMPLX((double)got->object[i].re, (double)got->object[i].im) - x;
                wrong += creal(off * conj(off));
                right += creal(x * conj(x));
            }
            compare(sqrt(wrong / right), number(entry, "nrmse_object"), KNOWN_TOLERANCE,
                    "nrmse_object", it);
        }
        xpt_result_destroy(got);
    }
    xpt_case_destroy(c);
    json_decref(document);
}

static const int second_iteration[] = {2};

static xpe_stage blind_stage(int iterations)
{
    xpe_stage stage = xpt_stage(iterations);

    stage.object_data_fit = 0.5;
    stage.mode_schedule = second_iteration;
    stage.schedule_count = iterations >= 2;
    stage.fresnel_distance_m = 2e-6;
    return stage;
}

static void tiny_blind_meets_every_figure_of_its_start_and_iterations(void **state)
{
    static const int iterations[] = {1, 3, 4, 5, 6};
    json_t *document = load("tiny_blind.json"), *all = json_object_get(document, "iterations");
    xpt_case *c = xpt_tiny_create(2);
    int64_t pixels = c->rows * c->cols, plane = c->n * c->n;

    (void)state;
    for (size_t i = 0; i < sizeof iterations / sizeof *iterations; i++) {
        int it = iterations[i];
        xpe_stage stage = blind_stage(it);
        xpt_result *got = xpt_run_well(&c->desc, &stage, (xpt_division){0});
        char name[16];
        const json_t *entry, *probe;
        (void)snprintf(name, sizeof name, "%d", it);
        entry = json_object_get(all, name);
        probe = json_object_get(entry, "probe");
        compare_figures(figures_of(got->start_probe, plane, 1),
                        json_object_get(document, "start_probe"), START_TOLERANCE, 1e-5, 0);
        compare_figures(figures_of(got->start_object, pixels, 1),
                        json_object_get(document, "start_object"), START_TOLERANCE, 0, 0);
        compare_figures(figures_of(got->object, pixels, best_scale(got->object, c->object, pixels)),
                        json_object_get(entry, "object"), BLIND_TOLERANCE, 1e-4, it);
        assert_int_equal(json_array_size(probe), got->modes);
        for (int k = 0; k < got->modes; k++)
            compare_figures(figures_of(got->probe + k * plane, plane, 1),
                            json_array_get(probe, (size_t)k), BLIND_TOLERANCE, 1e-4, it);
        compare(got->errors[it - 1], number(entry, "data_error"), BLIND_TOLERANCE, "data_error",
                it);
        xpt_result_destroy(got);
    }
    xpt_case_destroy(c);
    json_decref(document);
}

/* -------------------------------------------------------------------------- against the oracle */

/* Known, estimated, two modes, masked; even sides that are no powers of two; every common exponent.
 */
static void engine_follows_the_oracle_at_every_side_exponent_and_mode_count(void **state)
{
    static const struct {
        int64_t n;
        int points, modes;
        bool known;
        double kappa, hidden;
    } runs[] = {
        {2, 6, 1, true, 1.25, 0}, {4, 5, 1, false, 1.25, 0},    {6, 5, 1, true, 1.0, 0},
        {10, 4, 2, true, 1.5, 0}, {16, 4, 2, false, 1.25, 0},   {18, 4, 1, false, 2.0, 0},
        {16, 4, 3, true, 1.7, 0}, {16, 4, 2, false, 1.1, 0.05}, {30, 3, 1, true, 1.25, 0.1}};

    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        xpt_case *c = xpt_small_create(runs[i].n, runs[i].points, runs[i].modes, i + 1);
        xpe_stage stage = xpt_stage(3);
        xpt_oracle *right;
        xpt_result *got;
        stage.probe_weight_exponent = runs[i].kappa;
        if (runs[i].hidden > 0)
            xpt_case_hide(c, runs[i].hidden, 1e4f, i);
        c->desc.init_object = c->object; /* on the grid's rim nothing but the start says anything */
        c->desc.init_object_shape[0] = c->rows;
        c->desc.init_object_shape[1] = c->cols;
        c->desc.init_probe = c->probe;
        c->desc.init_probe_count = runs[i].modes;
        if (runs[i].known) {
            c->desc.init_probe = NULL;
            xpt_case_know(c);
        }
        for (int64_t p = 0; p < c->num_frames * c->n * c->n; p++)
            c->counts[p] *= 1.2f; /* the start is not the solution */
        right = xpt_oracle_run(c, &stage, XPT_RIGHT);
        got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});
        printf("    n %lld, %d mode(s): object %.1e probe %.1e error %.1e\n", (long long)runs[i].n,
               runs[i].modes, xpt_distance(got->object, right->object, c->rows * c->cols),
               xpt_distance(got->probe, right->probe, runs[i].modes * c->n * c->n),
               fabs(got->errors[2] / right->errors[2] - 1));
        xpt_assert_below(xpt_distance(got->object, right->object, c->rows * c->cols), 1e-4);
        xpt_assert_below(xpt_distance(got->probe, right->probe, runs[i].modes * c->n * c->n), 1e-4);
        xpt_assert_below(fabs(got->errors[2] - right->errors[2]), 1e-4 * right->errors[2] + 1e-6);
        xpt_result_destroy(got);
        xpt_oracle_destroy(right);
        xpt_case_destroy(c);
    }
}

/* ---------------------------------------------------------------------------------- properties */

static void start_from_truth(xpt_case *c, bool known)
{
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
    if (known) {
        xpt_case_know(c);
    } else {
        c->desc.init_probe = c->probe;
        c->desc.init_probe_count = c->modes;
    }
}

/* A fixed point stays fixed: the guards move it by 4e-3. */
static void the_truth_stays_with_and_without_masked_pixels(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        xpt_case *c = xpt_tiny_create(2);
        xpe_stage stage = xpt_stage(2);
        xpt_result *got;
        double off = 0, size = 0;
        if (i % 2)
            xpt_case_hide(c, 0.04, 1e8f, 1);
        start_from_truth(c, i / 2);
        got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = i ? 3 : 1});
        for (int64_t p = 0; p < c->rows * c->cols; p++) {
            off += pow((double)(got->object[p].re - c->object[p].re), 2) +
                   pow((double)(got->object[p].im - c->object[p].im), 2);
            size += pow((double)c->object[p].re, 2) + pow((double)c->object[p].im, 2);
        }
        xpt_assert_below(sqrt(off / size), 5e-3);
        xpt_assert_below(got->errors[1], 1e-3);
        xpt_result_destroy(got);
        xpt_case_destroy(c);
    }
}

/* The sum of the patches follows from itself and is summed anew now and then: without that the
 * object is 1.1e-5 away after 500 iterations. */
static void a_long_run_stays_with_the_oracle(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(500);
    xpt_result *got;
    xpt_oracle *right;

    (void)state;
    xpt_case_know(c);
    stage.object_data_fit = 0.5;
    stage.probe_weight_exponent = 1.5;
    got = xpt_run_well(&c->desc, &stage, (xpt_division){.devices = 2});
    right = xpt_oracle_run(c, &stage, XPT_RIGHT);
    xpt_assert_below(xpt_distance(got->object, right->object, c->rows * c->cols), 4e-6);
    xpt_oracle_destroy(right);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

static void data_error_falls_on_noise_free_data(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(30);
    xpt_result *got;

    (void)state;
    xpt_case_know(c);
    got = xpt_run_well(&c->desc, &stage, (xpt_division){0});
    xpt_assert_below(got->errors[29], got->errors[0] / 3);
    for (int i = 1; i < 30; i++)
        xpt_assert_below(got->errors[i], got->errors[i - 1] * 1.01);
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

/* A phase on the start object only turns the object: nothing in an iteration looks at it. */
static void a_global_phase_goes_through(void **state)
{
    xpt_case *c = xpt_tiny_create(1);
    xpe_stage stage = xpt_stage(3);
    xpt_result *a, *b;

    (void)state;
    start_from_truth(c, true);
    for (int64_t i = 0; i < c->num_frames * c->n * c->n; i++)
        c->counts[i] *= 1.1f;
    a = xpt_run_well(&c->desc, &stage, (xpt_division){0});
    for (int64_t i = 0; i < c->rows * c->cols; i++) /* by i: exact in float32 */
        c->object[i] = (xpe_c32){-c->object[i].im, c->object[i].re};
    b = xpt_run_well(&c->desc, &stage, (xpt_division){0});
    for (int64_t i = 0; i < c->rows * c->cols; i++)
        assert_true(fabs((double)(b->object[i].re + a->object[i].im)) < 1e-4 &&
                    fabs((double)(b->object[i].im - a->object[i].re)) < 1e-4);
    xpt_result_destroy(a);
    xpt_result_destroy(b);
    xpt_case_destroy(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_known_meets_every_figure_of_iterations_1_to_20),
        cmocka_unit_test(tiny_blind_meets_every_figure_of_its_start_and_iterations),
        cmocka_unit_test(engine_follows_the_oracle_at_every_side_exponent_and_mode_count),
        cmocka_unit_test(the_truth_stays_with_and_without_masked_pixels),
        cmocka_unit_test(a_long_run_stays_with_the_oracle),
        cmocka_unit_test(data_error_falls_on_noise_free_data),
        cmocka_unit_test(a_global_phase_goes_through),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
