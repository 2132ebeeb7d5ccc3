/* From a job and a scan message to the engine's description; every way in which a message can be
 * wrong. */
#include "scene.h"

#include "job.h"

typedef struct fixture {
    scene *s;
    json_t *message, *doc;
    xpp_job *job;
    int fds[XPP_IPC_FDS_MAX], count;
    xpd_input input;
    xpe_error err;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    f->s = scene_make();
    f->message = scene_message(f->s, true, f->fds, &f->count);
    f->doc = scene_job("{'scan': {'path': '/x.h5'}, 'model': {'object_origin_m': [-3e-6, -3e-6]},"
                       " 'recon': [{'iterations': 7, 'relaxation': 0.25, 'object_data_fit': 0.5},"
                       " {'algorithm': 'refine_positions', 'max_shift': 3}]}");
    f->job = xpp_job_decode(f->doc);
    *state = f;
    return f->job ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;

    for (int i = 0; i < f->count; i++)
        if (f->fds[i] >= 0)
            close(f->fds[i]);
    xpd_input_release(&f->input);
    xpp_job_free(f->job);
    json_decref(f->doc);
    json_decref(f->message);
    scene_free(f->s);
    free(f);
    return 0;
}

static json_t *array_of(fixture *f, size_t index)
{
    return json_array_get(json_object_get(f->message, "arrays"), index);
}

/* The message is refused as a defect of its sender, with this in the text, and no descriptor is
 * left open. */
static void refused(fixture *f, const char *text)
{
    assert_int_equal(xpd_input_open(&f->input, f->job, f->message, f->fds, f->count, &f->err),
                     XPE_INTERNAL);
    if (!strstr(f->err.text, text))
        fail_msg("'%s' does not say '%s'", f->err.text, text);
    for (int i = 0; i < f->count; i++)
        assert_int_equal(f->fds[i], -1);
    assert_int_equal(f->input.map_count, 0);
}

static void message_becomes_a_description(void **state)
{
    fixture *f = *state;
    const xpe_problem_desc *d = &f->input.desc;

    assert_int_equal(xpd_input_open(&f->input, f->job, f->message, f->fds, f->count, &f->err),
                     XPE_OK);
    assert_int_equal(d->scan.num_frames, SCENE_J);
    assert_int_equal(d->scan.n, SCENE_N);
    assert_int_equal(d->scan.type, XPE_F32);
    assert_memory_equal(d->scan.frames, f->s->frames, sizeof f->s->frames);
    assert_memory_equal(d->scan.positions, f->s->positions, sizeof f->s->positions);
    assert_close(d->scan.wavelength_m, 1.409e-10, 1e-20);
    assert_close(d->scan.detector_distance_m, 2.0, 0.0);
    assert_int_equal(d->probe_count, 1);
    assert_memory_equal(d->probe, f->s->probe, sizeof f->s->probe);
    assert_null(d->grid.shape);
    assert_non_null(d->grid.origin_m);
    assert_close(d->grid.origin_m[0], -3e-6, 0.0);
    assert_null(d->init_object);
    assert_string_equal(f->input.scan_name, "scene");
    for (int i = 0; i < f->count; i++)
        assert_int_equal(f->fds[i], -1);
    xpd_input_drop_pages(&f->input);
    assert_memory_equal(d->scan.frames, f->s->frames, sizeof f->s->frames); /* they come back */
}

static void frames_must_be_there(void **state)
{
    fixture *f = *state;

    json_object_set_new(array_of(f, 0), "name", json_string("something new"));
    refused(f, "frames or positions are missing");
}

static void size_must_be_that_of_the_shape(void **state)
{
    fixture *f = *state;

    json_array_set_new(json_object_get(array_of(f, 0), "shape"), 0, json_integer(SCENE_J + 1));
    refused(f, "should take");
}

static void shapes_must_agree(void **state)
{
    fixture *f = *state;

    close(f->fds[1]);
    f->fds[1] = scene_memfd(f->s->positions, sizeof(double) * 2 * (SCENE_J - 1), true);
    json_array_set_new(json_object_get(array_of(f, 1), "shape"), 0, json_integer(SCENE_J - 1));
    refused(f, "'positions' does not fit");
}

static void unsealed_memory_is_not_mapped(void **state)
{
    fixture *f = *state;

    close(f->fds[0]);
    f->fds[0] = scene_memfd(f->s->frames, sizeof f->s->frames, false);
    refused(f, "not in a sealed memfd");
}

static void array_comes_once(void **state)
{
    fixture *f = *state;

    json_object_set_new(array_of(f, 2), "name", json_string("frames"));
    refused(f, "comes twice");
}

static void descriptors_and_arrays_are_as_many(void **state)
{
    fixture *f = *state;

    json_array_remove(json_object_get(f->message, "arrays"), 2);
    refused(f, "2 arrays, 3 descriptors");
}

static void impossible_shapes_are_refused(void **state)
{
    fixture *f = *state;
    static const json_int_t sides[] = {0, -1, (json_int_t)1 << 40};

    for (size_t i = 0; i < 3; i++) {
        int again[XPP_IPC_FDS_MAX];

        for (int k = 0; k < f->count; k++)
            again[k] = dup(f->fds[k]);
        json_array_set_new(json_object_get(array_of(f, 0), "shape"), 1, json_integer(sides[i]));
        refused(f, "impossible shape");
        memcpy(f->fds, again, sizeof again);
    }
    /* the product, not one side, is too large */
    json_object_set_new(array_of(f, 0), "shape",
                        json_pack("[i,i,i]", 2147483647, 2147483647, 2147483647));
    refused(f, "impossible shape");
}

static void types_and_axes_are_those_of_the_contract(void **state)
{
    fixture *f = *state;

    json_object_set_new(array_of(f, 1), "type", json_string("int64")); /* as many bytes */
    refused(f, "type or axes");
}

static void unknown_type_is_refused(void **state)
{
    fixture *f = *state;

    json_object_set_new(array_of(f, 0), "type", json_string("float16"));
    refused(f, "unknown type");
}

static void probe_must_have_the_frames_side(void **state)
{
    fixture *f = *state;

    json_object_set_new(array_of(f, 2), "shape", json_pack("[i,i,i]", 4, SCENE_N / 2, SCENE_N / 2));
    refused(f, "'probe' does not fit");
}

static void geometry_must_be_there(void **state)
{
    fixture *f = *state;

    json_object_set_new(f->message, "detector_pitch_m", json_null());
    refused(f, "'detector_pitch_m'");
}

static void unknown_arrays_are_let_pass(void **state)
{
    fixture *f = *state;

    json_object_set_new(array_of(f, 2), "name", json_string("something new"));
    assert_int_equal(xpd_input_open(&f->input, f->job, f->message, f->fds, f->count, &f->err),
                     XPE_OK);
    assert_null(f->input.desc.probe);
}

static void stages_carry_their_own_settings_only(void **state)
{
    fixture *f = *state;
    xpe_stage first = xpd_stage_of(&f->job->stages[0]), second = xpd_stage_of(&f->job->stages[1]);

    assert_int_equal(first.algorithm, XPE_PMACE);
    assert_int_equal(first.iterations, 7);
    assert_close(first.relaxation, 0.25, 0.0);
    assert_close(first.object_data_fit, 0.5, 0.0);
    assert_close(first.probe_data_fit, 0.6, 0.0);
    assert_int_equal(first.report_every, 1);
    assert_int_equal(second.algorithm, XPE_REFINE_POSITIONS);
    assert_int_equal(second.max_shift, 3);
    assert_int_equal(second.iterations, 1);
}

static xpe_status choose(xpd_devices *out, const char *text, xpe_error *err)
{
    json_t *doc = scene_job(text);
    xpp_job *job = xpp_job_decode(doc);
    xpe_status st = xpd_devices_choose(out, job, err);

    xpp_job_free(job);
    json_decref(doc);
    return st;
}

static void cpu_is_chosen_where_there_is_no_gpu(void **state)
{
    fixture *f = *state;
    xpd_devices d;

    assert_int_equal(choose(&d, "{'scan': {'path': '/x'}}", &f->err), XPE_OK);
    assert_int_equal(d.count, 1);
    assert_string_equal(d.names[0], "cpu");
    assert_true(d.cpu_threads >= 1);
    assert_int_equal(choose(&d, "{'scan': {'path': '/x'}, 'devices': {'num_devices': 1}}", &f->err),
                     XPE_OK);
    assert_int_equal(d.count, 1);
}

static void named_devices_and_threads_are_taken(void **state)
{
    fixture *f = *state;
    xpd_devices d;

    assert_int_equal(choose(&d,
                            "{'scan': {'path': '/x'}, 'devices': {'devices': ['cpu', 'cpu', "
                            "'cpu'], 'cpu_threads': 2}}",
                            &f->err),
                     XPE_OK);
    assert_int_equal(d.count, 3);
    assert_string_equal(d.names[2], "cpu");
    assert_int_equal(d.cpu_threads, 2);
}

static void more_devices_than_there_are_are_refused_with_both_numbers(void **state)
{
    fixture *f = *state;
    xpd_devices d;

    assert_int_equal(choose(&d, "{'scan': {'path': '/x'}, 'devices': {'num_devices': 7}}", &f->err),
                     XPE_NO_DEVICE);
    assert_non_null(strstr(f->err.text, "7 devices are asked for, this machine has 1"));
    assert_string_equal(f->err.pointer, "/devices/num_devices");
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(message_becomes_a_description),
        WITH_FIXTURE(frames_must_be_there),
        WITH_FIXTURE(size_must_be_that_of_the_shape),
        WITH_FIXTURE(shapes_must_agree),
        WITH_FIXTURE(unsealed_memory_is_not_mapped),
        WITH_FIXTURE(array_comes_once),
        WITH_FIXTURE(descriptors_and_arrays_are_as_many),
        WITH_FIXTURE(impossible_shapes_are_refused),
        WITH_FIXTURE(types_and_axes_are_those_of_the_contract),
        WITH_FIXTURE(unknown_type_is_refused),
        WITH_FIXTURE(probe_must_have_the_frames_side),
        WITH_FIXTURE(geometry_must_be_there),
        WITH_FIXTURE(unknown_arrays_are_let_pass),
        WITH_FIXTURE(stages_carry_their_own_settings_only),
        WITH_FIXTURE(cpu_is_chosen_where_there_is_no_gpu),
        WITH_FIXTURE(named_devices_and_threads_are_taken),
        WITH_FIXTURE(more_devices_than_there_are_are_refused_with_both_numbers),
    };

    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
