/* Object, beam, positions and intensities of the simulator, by their properties; and that the truth
 * of a simulated scan is where the engine stays. */
#include "scene.h"

static double energy(const xpe_c32 *v, int64_t count)
{
    double sum = 0.0;

    for (int64_t i = 0; i < count; i++)
        sum += (double)v[i].re * v[i].re + (double)v[i].im * v[i].im;
    return sum;
}

static void objects_absorb_and_never_amplify(void **state)
{
    enum { ROWS = 150, COLS = 170 };

    (void)state;
    for (int kind = XPD_SIM_CHIP; kind <= XPD_SIM_CELLS; kind++) {
        xpd_sim_material material = xpd_sim_object_material((xpd_sim_object_kind)kind);
        xpe_c32 *a = calloc(ROWS * COLS, sizeof *a), *b = calloc(ROWS * COLS, sizeof *b);
        double lowest = 1.0, mean = 0.0;

        assert_true(xpd_sim_object(a, ROWS, COLS, (xpd_sim_object_kind)kind, 4));
        for (int i = 0; i < ROWS * COLS; i++) {
            double size = hypot(a[i].re, a[i].im), phase = atan2(a[i].im, a[i].re);

            assert_true(size <= 1.0 + 1e-6 && phase <= 1e-6);
            /* one material: magnitude and phase say the same */
            assert_close(log(size), material.absorption * phase, 1e-5);
            lowest = fmin(lowest, size);
            mean += phase / (ROWS * COLS);
        }
        assert_true(lowest < 1.0 - 0.5 * material.absorption * material.phase_max);
        assert_true(mean < -0.1); /* a good part of the field has something in it */
        assert_true(xpd_sim_object(b, ROWS, COLS, (xpd_sim_object_kind)kind, 4));
        assert_memory_equal(a, b, ROWS * COLS * sizeof *a);
        free(a);
        free(b);
    }
}

static void chip_and_cells_depend_on_the_seed(void **state)
{
    enum { SIDE = 100 };
    static xpe_c32 a[SIDE * SIDE], b[SIDE * SIDE];

    (void)state;
    assert_true(xpd_sim_object(a, SIDE, SIDE, XPD_SIM_CHIP, 1) &&
                xpd_sim_object(b, SIDE, SIDE, XPD_SIM_CHIP, 2));
    assert_true(memcmp(a, b, sizeof a) != 0);
    assert_true(xpd_sim_object(a, SIDE, SIDE, XPD_SIM_CELLS, 1) &&
                xpd_sim_object(b, SIDE, SIDE, XPD_SIM_CELLS, 2));
    assert_true(memcmp(a, b, sizeof a) != 0);
}

static void object_names_are_found(void **state)
{
    xpd_sim_object_kind kind;

    (void)state;
    assert_true(xpd_sim_object_find(&kind, "star"));
    assert_int_equal(kind, XPD_SIM_STAR);
    assert_string_equal(xpd_sim_object_name(kind), "star");
    assert_false(xpd_sim_object_find(&kind, "chips"));
}

static xpd_sim_optics optics_of(int modes)
{
    xpd_sim_optics o = {.n = 64,
                        .modes = modes,
                        .wavelength_m = 1.4e-10,
                        .pixel_m = 3e-8,
                        .pupil_radius = 10.0,
                        .stop_radius = 3.0,
                        .photons = 5e4};

    o.defocus_m = xpd_sim_beam_defocus(&o, 22.0);
    return o;
}

static void probe_has_the_photons_and_orthogonal_modes(void **state)
{
    enum { K = 4, SIZE = 64 * 64 };
    static xpe_c32 probe[K * SIZE];
    xpd_sim_optics o = optics_of(K);

    (void)state;
    assert_true(xpd_sim_probe(probe, &o));
    assert_close(energy(probe, K * SIZE), 5e4, 5.0);
    for (int a = 0; a < K; a++) {
        double own = energy(probe + a * SIZE, SIZE);

        if (a > 0)
            assert_close(own / energy(probe + (a - 1) * SIZE, SIZE), XPD_SIM_MODE_RATIO, 1e-4);
        for (int b = 0; b < a; b++) {
            double re = 0.0, im = 0.0;

            for (int i = 0; i < SIZE; i++) {
                xpe_c32 x = probe[a * SIZE + i], y = probe[b * SIZE + i];

                re += (double)x.re * y.re + (double)x.im * y.im;
                im += (double)x.re * y.im - (double)x.im * y.re;
            }
            assert_true(hypot(re, im) < 1e-5 * own);
        }
    }
}

/* Most energy of the beam lies inside the diameter that is stated, nearly all inside half as much
 * again: the rest is the diffraction of the two rims. */
static void beam_is_as_wide_as_stated(void **state)
{
    enum { N = 64 };
    static xpe_c32 probe[N * N];
    xpd_sim_optics o = optics_of(1);
    double inside[2] = {0.0, 0.0}, all;

    (void)state;
    assert_close(xpd_sim_beam_diameter(&o), 22.0, 1e-9);
    assert_true(xpd_sim_probe(probe, &o));
    all = energy(probe, N * N);
    for (int r = 0; r < N; r++)
        for (int c = 0; c < N; c++)
            for (int k = 0; k < 2; k++)
                if (hypot(r - N / 2, c - N / 2) <= 0.5 * (k ? 1.5 : 1.0) * 22.0)
                    inside[k] += energy(&probe[r * N + c], 1);
    assert_true(inside[0] > 0.75 * all && inside[0] < 0.88 * all);
    assert_true(inside[1] > 0.94 * all);
}

static void intensity_keeps_the_energy(void **state)
{
    scene *s = scene_make();
    double exit_wave = 0.0, sum = 0.0;

    (void)state;
    for (int r = 0; r < SCENE_N; r++)
        for (int c = 0; c < SCENE_N; c++) {
            xpe_c32 d = s->probe[r * SCENE_N + c];
            xpe_c32 x = s->object[(s->first[0] + r) * s->grid.cols + s->first[1] + c];

            exit_wave += ((double)d.re * d.re + (double)d.im * d.im) *
                         ((double)x.re * x.re + (double)x.im * x.im);
        }
    for (int i = 0; i < SCENE_N * SCENE_N; i++)
        sum += s->frames[i];
    assert_close(sum / exit_wave, 1.0, 1e-5);
    scene_free(s);
}

/* Zero frequency at [n/2][n/2]: a flat exit wave lights that pixel alone. */
static void flat_wave_lights_the_middle_pixel(void **state)
{
    enum { N = 16 };
    static xpe_c32 object[N * N], probe[N * N];
    static double intensity[N * N];
    xpd_sim_fft *fft = xpd_sim_fft_create(N);

    (void)state;
    for (int i = 0; i < N * N; i++)
        object[i] = probe[i] = (xpe_c32){1.0f, 0.0f};
    xpd_sim_intensity(fft, intensity, object, N, 0, 0, probe, 1);
    for (int i = 0; i < N * N; i++)
        assert_close(intensity[i], i == N / 2 * N + N / 2 ? N * N : 0.0, 1e-9);
    xpd_sim_fft_destroy(fft);
}

static void spiral_fills_the_plane_evenly(void **state)
{
    enum { J = 400 };
    double p[2 * J], nearest_sum = 0.0, nearest_least = 1e9;

    (void)state;
    xpd_sim_spiral(p, J, 10.0);
    for (int a = 0; a < J; a++) {
        double nearest = 1e9;

        for (int b = 0; b < J; b++)
            if (b != a)
                nearest = fmin(nearest, hypot(p[2 * a] - p[2 * b], p[2 * a + 1] - p[2 * b + 1]));
        nearest_sum += nearest;
        nearest_least = fmin(nearest_least, nearest);
    }
    /* one point in each step^2 of area */
    assert_in_range((int)(nearest_sum / J * 100), 800, 1060);
    assert_true(nearest_least > 5.0);
}

static void jitter_stays_within_its_bound(void **state)
{
    enum { J = 1000 };
    double p[2 * J] = {0}, largest = 0.0, sum = 0.0;

    (void)state;
    xpd_sim_jitter(p, J, 1.5, 3);
    for (int i = 0; i < 2 * J; i++) {
        largest = fmax(largest, fabs(p[i]));
        sum += p[i];
    }
    assert_true(largest <= 1.5 && largest > 1.45);
    assert_true(fabs(sum / (2 * J)) < 5 * 1.5 / sqrt(3.0 * 2 * J));
}

/* Known probe, no noise, start at the truth: the data error is rounding and the object does not
 * move. */
static void truth_is_a_fixed_point_of_the_engine(void **state)
{
    scene *s = scene_make();
    xpe_problem_desc desc = {.scan = s->scan,
                             .probe_modes = 1,
                             .probe = s->probe,
                             .probe_count = 1,
                             .init_object = s->object,
                             .init_object_shape = {s->grid.rows, s->grid.cols}};
    const char *names[] = {"cpu"};
    xpe_device_list devices = {names, 1, 1};
    xpe_stage stage = xpe_stage_default();
    size_t size = (size_t)(s->grid.rows * s->grid.cols);
    xpe_c32 *object = calloc(size, sizeof *object);
    xpe_problem *problem = NULL;
    xpe_run *run = NULL;
    xpe_report report = {0};
    xpe_error err = {0};
    double off = 0.0, all = 0.0;

    (void)state;
    stage.iterations = 5;
    assert_int_equal(xpe_problem_create(&problem, &desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&run, problem, &stage, &devices, &err), XPE_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    assert_true(report.data_error < 2e-5);
    assert_int_equal(xpe_run_object(run, object, &err), XPE_OK);
    for (int64_t r = SCENE_N / 2; r < s->grid.rows - SCENE_N / 2; r++)
        for (int64_t c = SCENE_N / 2; c < s->grid.cols - SCENE_N / 2; c++) {
            xpe_c32 a = object[r * s->grid.cols + c], b = s->object[r * s->grid.cols + c];

            off += pow((double)a.re - b.re, 2) + pow((double)a.im - b.im, 2);
            all += (double)b.re * b.re + (double)b.im * b.im;
        }
    assert_true(sqrt(off / all) < 2e-4);
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    free(object);
    scene_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_absorb_and_never_amplify),
        cmocka_unit_test(chip_and_cells_depend_on_the_seed),
        cmocka_unit_test(object_names_are_found),
        cmocka_unit_test(probe_has_the_photons_and_orthogonal_modes),
        cmocka_unit_test(beam_is_as_wide_as_stated),
        cmocka_unit_test(intensity_keeps_the_energy),
        cmocka_unit_test(flat_wave_lights_the_middle_pixel),
        cmocka_unit_test(spiral_fills_the_plane_evenly),
        cmocka_unit_test(jitter_stays_within_its_bound),
        cmocka_unit_test(truth_is_a_fixed_point_of_the_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
