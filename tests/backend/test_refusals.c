/* What a run refuses before it takes any memory: the status, the member at fault and the numbers.
 */
#include "engine_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ----------------------------------------------------------------------------------- the stage */

static void refuse_stage(const xpt_case *c, const xpe_stage *stage, const char *pointer,
                         const char *part)
{
    xpt_result *got = xpt_run(&c->desc, stage, (xpt_division){.batch = stage->batch_size});

    xpt_assert_refused(&got->error, XPE_INVALID, part);
    assert_string_equal(got->error.pointer, pointer);
    assert_null(got->object);
    xpt_result_destroy(got);
}

static void numbers_outside_their_range_are_refused_with_the_range(void **state)
{
    static const double bad[] = {-0.001, 1.001, NAN, INFINITY};
    xpt_case *c = xpt_small_create(4, 3, 1, 1);

    (void)state;
    for (int i = 0; i < 4; i++) {
        xpe_stage stage = xpt_stage(1);
        stage.object_data_fit = bad[i];
        refuse_stage(c, &stage, "/recon/object_data_fit", "from 0 to 1");
        stage = xpt_stage(1);
        stage.probe_data_fit = bad[i];
        refuse_stage(c, &stage, "/recon/probe_data_fit", "from 0 to 1");
        stage = xpt_stage(1);
        stage.relaxation = bad[i];
        refuse_stage(c, &stage, "/recon/relaxation", "from 0 to 1");
        stage = xpt_stage(1);
        stage.probe_weight_exponent = bad[i] + 1;
        refuse_stage(c, &stage, "/recon/probe_weight_exponent", "from 1 to 2");
    }
    xpt_case_destroy(c);
}

static void counts_outside_their_range_are_refused(void **state)
{
    xpt_case *c = xpt_small_create(4, 3, 1, 1);
    xpe_stage stage = xpt_stage(0);

    (void)state;
    refuse_stage(c, &stage, "/recon/iterations", "iterations is 0");
    stage = xpt_stage(-4);
    refuse_stage(c, &stage, "/recon/iterations", "iterations is -4");
    stage = xpt_stage(1);
    stage.report_every = 0;
    refuse_stage(c, &stage, "/recon/report_every", "report_every is 0");
    stage = xpt_stage(1);
    stage.batch_size = -1;
    refuse_stage(c, &stage, "/recon/batch_size", "batch_size is -1");
    stage = xpt_stage(1);
    stage.max_shift = 0;
    refuse_stage(c, &stage, "/recon/max_shift", "max_shift is 0");
    stage = xpt_stage(1);
    stage.mode_energy_fraction = 0;
    refuse_stage(c, &stage, "/recon/mode_energy_fraction", "mode_energy_fraction is 0");
    xpt_case_destroy(c);
}

static void two_propagations_at_once_are_refused(void **state)
{
    xpt_case *c = xpt_small_create(4, 3, 1, 1);
    xpe_stage stage = xpt_stage(1);

    (void)state;
    stage.fresnel_distance_m = 1e-6;
    stage.fresnel_radius_pixels = 2;
    refuse_stage(c, &stage, "/recon/fresnel_radius_pixels", "give one of them");
    stage.fresnel_distance_m = NAN;
    stage.fresnel_radius_pixels = 0;
    refuse_stage(c, &stage, "/recon/fresnel_distance_m", "fresnel_distance_m");
    xpt_case_destroy(c);
}

static void schedules_that_cannot_be_kept_are_refused(void **state)
{
    static const int twice[] = {2, 1, 2}, late[] = {1, 6}, early[] = {0};
    xpt_case *c = xpt_small_create(4, 3, 2, 1);
    xpe_stage stage = xpt_stage(5);

    (void)state;
    stage.mode_schedule = twice;
    stage.schedule_count = 3;
    refuse_stage(c, &stage, "/recon/mode_schedule", "iteration 2 twice");
    stage.mode_schedule = late;
    stage.schedule_count = 2;
    refuse_stage(c, &stage, "/recon/mode_schedule", "iteration 6 of a stage of 5");
    stage.mode_schedule = early;
    stage.schedule_count = 1;
    refuse_stage(c, &stage, "/recon/mode_schedule", "iteration 0");
    xpt_case_know(c);
    stage.mode_schedule = late;
    refuse_stage(c, &stage, "/recon/mode_schedule", "a known probe gets no modes");
    xpt_case_destroy(c);
}

/* --------------------------------------------------------------------------------- the problem */

static void refuse_problem(xpt_case *c, const char *pointer, const char *part)
{
    xpe_problem *problem = (xpe_problem *)(void *)c;
    xpe_error err = {0};

    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_INVALID);
    assert_null(problem);
    xpt_assert_refused(&err, XPE_INVALID, part);
    assert_string_equal(err.pointer, pointer);
    assert_int_equal(xpe_problem_create(&problem, &c->desc, NULL), XPE_INVALID);
    xpt_case_destroy(c);
}

static xpt_case *two_modes(void)
{
    return xpt_small_create(4, 3, 2, 1);
}

static void probes_that_do_not_fit_the_number_of_modes_are_refused(void **state)
{
    xpt_case *c = two_modes();

    (void)state;
    c->desc.probe_modes = 0;
    refuse_problem(c, "/model/probe_modes", "0 probe modes");
    c = two_modes();
    xpt_case_know(c);
    c->desc.probe_modes = 3;
    refuse_problem(c, "/model/probe_modes",
                   "has 2 modes but probe_modes is 3; set probe_modes to 2");
    c = two_modes();
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 2;
    c->desc.probe_modes = 1;
    refuse_problem(c, "/model/probe_modes", "has 2 modes but probe_modes is 1");
    c = two_modes();
    c->desc.init_probe = c->probe;
    refuse_problem(c, "/model/probe_modes", "has 0 modes");
    c = two_modes();
    xpt_case_know(c);
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 2;
    refuse_problem(c, "/init_probe", "exclude each other");
}

static void fields_that_are_zero_or_not_finite_are_refused(void **state)
{
    xpt_case *c = two_modes();

    (void)state;
    xpt_case_know(c);
    c->probe[5].im = NAN;
    refuse_problem(c, "/probe", "not finite at element 5");
    c = two_modes();
    memset(c->probe, 0, 16 * sizeof *c->probe);
    c->desc.init_probe = c->probe;
    c->desc.init_probe_count = 1;
    refuse_problem(c, "/init_probe", "zero everywhere");
    c = two_modes();
    c->object[7].re = INFINITY;
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->rows;
    c->desc.init_object_shape[1] = c->cols;
    refuse_problem(c, "/init_object", "not finite at element 7");
}

static void start_objects_of_another_shape_are_refused_with_both(void **state)
{
    xpt_case *c = two_modes();

    (void)state; /* the grid is 8 x 10 */
    c->desc.init_object = c->object;
    c->desc.init_object_shape[0] = c->cols;
    c->desc.init_object_shape[1] = c->rows;
    refuse_problem(c, "/init_object", "10 x 8 pixels but the grid has 8 x 10");
}

static void refusals_of_the_grid_come_through(void **state)
{
    xpt_case *c = two_modes();

    (void)state;
    c->desc.scan.n = 3;
    refuse_problem(c, "/scan/path", "3 pixels wide");
    c = two_modes();
    c->positions[4] = NAN;
    refuse_problem(c, "/scan/path", "frame 2");
    c = two_modes();
    c->shape[0] = 5;
    refuse_problem(c, "/model/object_shape", "covers object rows");
    c = two_modes();
    c->desc.scan.num_frames = 0;
    refuse_problem(c, "/scan/path", "no frames");
}

/* --------------------------------------------------------------------------------- the devices */

static xpe_error refuse_devices(const char *const *names, int count, xpe_status status)
{
    xpt_case *c = xpt_small_create(4, 3, 1, 1);
    xpe_device_list devices = {names, count, 1};
    xpe_stage stage = xpt_stage(1);
    xpe_problem *problem;
    xpe_run *run = (xpe_run *)(void *)c;
    xpe_error err = {0};

    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&run, problem, &stage, &devices, &err), status);
    assert_null(run);
    assert_int_equal(err.status, status);
    xpe_problem_destroy(problem);
    xpt_case_destroy(c);
    return err;
}

static void devices_that_do_not_exist_are_refused_by_name(void **state)
{
    char name[32];
    const char *numbered[] = {name};
    static const char *const unknown[] = {"gpu"}, *const almost[] = {"cpux"}, *const empty[] = {""};
    xpe_error err = refuse_devices(unknown, 1, XPE_NO_DEVICE);

    (void)state;
    xpt_assert_refused(&err, XPE_NO_DEVICE, "'gpu'");
    err = refuse_devices(almost, 1, XPE_NO_DEVICE);
    xpt_assert_refused(&err, XPE_NO_DEVICE, "'cpux'");
    err = refuse_devices(empty, 1, XPE_NO_DEVICE);
    xpt_assert_refused(&err, XPE_NO_DEVICE, "''");
    snprintf(name, sizeof name, "%s:99", xpt_backend_name());
    err = refuse_devices(numbered, 1, XPE_NO_DEVICE);
    xpt_assert_refused(&err, XPE_NO_DEVICE, numbered[0]);
    err = refuse_devices(unknown, 0, XPE_INVALID);
    xpt_assert_refused(&err, XPE_INVALID, "no device was named");
}

static void more_devices_than_positions_or_rows_are_refused(void **state)
{
    static const char *names[16];
    xpe_error err;

    (void)state;
    for (int i = 0; i < 16; i++)
        names[i] = xpt_backend_name();
    err = refuse_devices(names, 10, XPE_INVALID);
    xpt_assert_refused(&err, XPE_INVALID, "10 devices for 9 scan positions");
    err = refuse_devices(names, 9, XPE_INVALID);
    xpt_assert_refused(&err, XPE_INVALID, "9 devices for 8 object rows");
}

static void the_list_of_devices_tells_what_is_there_and_why_not(void **state)
{
    xpe_device_info info[32];
    size_t count = xpe_devices_list(info, 32);
    bool found = false;

    (void)state;
    assert_true(count >= 2);
    for (size_t i = 0; i < count; i++) {
        found = found || strcmp(info[i].name, "cpu") == 0;
        if (info[i].absent[0])
            continue;
        assert_true(info[i].bytes_total > 0 && info[i].bytes_free > 0 &&
                    info[i].bytes_free <= info[i].bytes_total);
        assert_true(info[i].model[0] != 0);
    }
    assert_true(found);
    assert_int_equal(xpe_devices_list(info, 0), count);
    info[1].name[0] = 'x';
    assert_int_equal(xpe_devices_list(info, 1), count);
    assert_int_equal(info[1].name[0], 'x');
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_outside_their_range_are_refused_with_the_range),
        cmocka_unit_test(counts_outside_their_range_are_refused),
        cmocka_unit_test(two_propagations_at_once_are_refused),
        cmocka_unit_test(schedules_that_cannot_be_kept_are_refused),
        cmocka_unit_test(probes_that_do_not_fit_the_number_of_modes_are_refused),
        cmocka_unit_test(fields_that_are_zero_or_not_finite_are_refused),
        cmocka_unit_test(start_objects_of_another_shape_are_refused_with_both),
        cmocka_unit_test(refusals_of_the_grid_come_through),
        cmocka_unit_test(devices_that_do_not_exist_are_refused_by_name),
        cmocka_unit_test(more_devices_than_positions_or_rows_are_refused),
        cmocka_unit_test(the_list_of_devices_tells_what_is_there_and_why_not),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
