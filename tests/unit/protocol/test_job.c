/* Defaults, the resolved document and the struct. */
#include "documents.h"

#include <stdio.h>

static json_t *openapi;

static int load_openapi(void **state)
{
    (void)state;
    openapi = json_load_file(OPENAPI_FILE, 0, NULL);
    return openapi ? 0 : -1;
}

static int drop_openapi(void **state)
{
    (void)state;
    json_decref(openapi);
    return 0;
}

/* The default that openapi.json states for a property of a schema. */
static const json_t *stated(const char *schema, const char *property)
{
    const json_t *schemas = json_object_get(json_object_get(openapi, "components"), "schemas");
    const json_t *found = json_object_get(
        json_object_get(json_object_get(json_object_get(schemas, schema), "properties"), property),
        "default");

    if (!found)
        fail_msg("openapi.json states no default for %s.%s", schema, property);
    return found;
}

static double stated_number(const char *schema, const char *property)
{
    return json_number_value(stated(schema, property));
}

static xpp_job *decoded(const char *quoted)
{
    json_t *doc = document(quoted), *errors = xpp_job_check(doc);
    xpp_job *job;

    if (errors)
        fail_msg("%s: %s", quoted,
                 json_string_value(json_object_get(json_array_get(errors, 0), "detail")));
    job = xpp_job_decode(doc);
    assert_non_null(job);
    json_decref(doc);
    return job;
}

static void defaults_are_those_of_openapi(void **state)
{
    xpp_job *job = decoded("{'scan':{'path':'/x.h5'}}");
    const xpp_stage *stage = &job->stages[0];

    (void)state;
    assert_string_equal(job->name, json_string_value(stated("JobRequest", "name")));
    assert_int_equal(job->priority, json_integer_value(stated("JobRequest", "priority")));
    assert_true(job->preview_every_s == stated_number("JobRequest", "preview_every_s"));
    assert_string_equal(job->scan.format, json_string_value(stated("Scan", "format")));
    assert_int_equal(job->model.probe_modes, json_integer_value(stated("Model", "probe_modes")));
    assert_int_equal(job->output_overwrite, json_is_true(stated("Output", "overwrite")));
    assert_int_equal(job->stage_count, 1);
    assert_string_equal(stage->algorithm, json_string_value(stated("PmaceStage", "algorithm")));
    assert_int_equal(stage->iterations, json_integer_value(stated("PmaceStage", "iterations")));
    assert_true(stage->object_data_fit == stated_number("PmaceStage", "object_data_fit"));
    assert_true(stage->probe_data_fit == stated_number("PmaceStage", "probe_data_fit"));
    assert_true(stage->probe_weight_exponent ==
                stated_number("PmaceStage", "probe_weight_exponent"));
    assert_true(stage->relaxation == stated_number("PmaceStage", "relaxation"));
    assert_true(stage->mode_energy_fraction == stated_number("PmaceStage", "mode_energy_fraction"));
    assert_int_equal(stage->orthogonalize_modes,
                     json_is_true(stated("PmaceStage", "orthogonalize_modes")));
    assert_int_equal(stage->mode_schedule_count,
                     json_array_size(stated("PmaceStage", "mode_schedule")));
    assert_int_equal(stage->report_every, json_integer_value(stated("PmaceStage", "report_every")));
    xpp_job_free(job);
}

static void defaults_are_those_of_the_method(void **state)
{
    xpp_job *job =
        decoded("{'scan':{'path':'/x.h5'},'recon':[{},{'algorithm':'refine_positions'}]}");
    const xpp_stage *stage = &job->stages[0];

    (void)state;
    assert_int_equal(stage->iterations, 100);
    assert_true(stage->object_data_fit == 0.6 && stage->probe_data_fit == 0.6);
    assert_true(stage->probe_weight_exponent == 1.25 && stage->relaxation == 0.5);
    assert_true(stage->mode_energy_fraction == 0.05);
    assert_int_equal(job->stages[1].max_shift, 1);
    assert_int_equal(job->stages[1].iterations, 1);
    assert_int_equal(job->stages[1].report_every, 1);
    xpp_job_free(job);
}

static void what_is_not_given_is_null_or_zero(void **state)
{
    xpp_job *job = decoded("{'scan':{'path':'/x.h5'}}");

    (void)state;
    assert_null(job->probe.path);
    assert_null(job->init_object.path);
    assert_null(job->init_probe.path);
    assert_null(job->init_path);
    assert_null(job->output_path);
    assert_false(job->model.has_shape || job->model.has_origin);
    assert_int_equal(job->devices.count, 0);
    assert_int_equal(job->devices.num_devices, 0);
    assert_int_equal(job->devices.cpu_threads, 0);
    assert_true(job->scan.energy_kev == 0 && job->scan.wavelength_m == 0 &&
                job->scan.saturation == 0);
    assert_true(job->deadline_s == 0 && job->stages[0].batch_size == 0);
    assert_true(job->checkpoint && job->checkpoint_every_s < 0);
    assert_true(job->stages[0].fresnel_distance_m == 0 &&
                job->stages[0].fresnel_radius_pixels == 0);
    xpp_job_free(job);
}

static void every_member_reaches_the_struct(void **state)
{
    xpp_job *job = decoded(
        "{'name':'n','labels':{'a':'b'},'metadata':1,'priority':-3,"
        "'scan':{'path':'/s.h5','format':'cxi','geometry':{'energy_kev':8.5,"
        "'detector_distance_m':2,'detector_pitch_m':7.5e-5},'saturation':65535},"
        "'model':{'probe_modes':2,'object_shape':[60,70],'object_origin_m':[-1e-6,2]},"
        "'init_object':{'path':'/o.h5','dataset':'/o'},'init_probe':{'path':'/p.h5','dataset':'/"
        "p'},"
        "'recon':[{'algorithm':'pmace','iterations':7,'object_data_fit':0.1,'probe_data_fit':0.2,"
        "'probe_weight_exponent':1.5,'relaxation':0.3,'mode_schedule':[2,5],'mode_energy_fraction':"
        "0.4,"
        "'orthogonalize_modes':true,'fresnel_distance_m':-1e-3,'batch_size':9,'report_every':4},"
        "{'algorithm':'refine_positions','max_shift':3,'batch_size':8},{'fresnel_radius_pixels':2."
        "5}],"
        "'devices':{'devices':['cpu','cpu'],'cpu_threads':5},'preview_every_s':0.5,'deadline_s':60,"
        "'checkpoint':'off','checkpoint_every_s':0,"
        "'output':{'path':'/r.h5','overwrite':true}}");
    const xpp_stage *first = &job->stages[0], *second = &job->stages[1];

    (void)state;
    assert_string_equal(job->name, "n");
    assert_int_equal(job->priority, -3);
    assert_string_equal(job->scan.path, "/s.h5");
    assert_string_equal(job->scan.format, "cxi");
    assert_true(job->scan.energy_kev == 8.5 && job->scan.detector_distance_m == 2);
    assert_true(job->scan.detector_pitch_m == 7.5e-5 && job->scan.saturation == 65535);
    assert_int_equal(job->model.probe_modes, 2);
    assert_true(job->model.has_shape && job->model.has_origin);
    assert_true(job->model.object_shape[0] == 60 && job->model.object_shape[1] == 70);
    assert_true(job->model.object_origin_m[0] == -1e-6 && job->model.object_origin_m[1] == 2);
    assert_string_equal(job->init_object.path, "/o.h5");
    assert_string_equal(job->init_object.dataset, "/o");
    assert_string_equal(job->init_probe.dataset, "/p");
    assert_int_equal(job->stage_count, 3);
    assert_int_equal(first->iterations, 7);
    assert_true(first->object_data_fit == 0.1 && first->probe_data_fit == 0.2);
    assert_true(first->probe_weight_exponent == 1.5 && first->relaxation == 0.3);
    assert_int_equal(first->mode_schedule_count, 2);
    assert_true(first->mode_schedule[0] == 2 && first->mode_schedule[1] == 5);
    assert_true(first->mode_energy_fraction == 0.4 && first->orthogonalize_modes);
    assert_true(first->fresnel_distance_m == -1e-3);
    assert_int_equal(first->batch_size, 9);
    assert_int_equal(first->report_every, 4);
    assert_string_equal(second->algorithm, "refine_positions");
    assert_int_equal(second->max_shift, 3);
    assert_int_equal(second->batch_size, 8);
    assert_true(job->stages[2].fresnel_radius_pixels == 2.5);
    assert_int_equal(job->devices.count, 2);
    assert_string_equal(job->devices.names[1], "cpu");
    assert_int_equal(job->devices.cpu_threads, 5);
    assert_true(job->preview_every_s == 0.5 && job->deadline_s == 60);
    assert_true(!job->checkpoint && job->checkpoint_every_s == 0);
    assert_string_equal(job->output_path, "/r.h5");
    assert_true(job->output_overwrite);
    xpp_job_free(job);
}

static void known_probe_and_init_reach_the_struct(void **state)
{
    xpp_job *job =
        decoded("{'scan':{'path':'/s','geometry':{'wavelength_m':2e-12}},'probe':{'path':'/"
                "p'},'init':{'path':'/i'},"
                "'devices':{'num_devices':2}}");

    (void)state;
    assert_string_equal(job->probe.path, "/p");
    assert_null(job->probe.dataset);
    assert_string_equal(job->init_path, "/i");
    assert_true(job->scan.wavelength_m == 2e-12);
    assert_int_equal(job->devices.num_devices, 2);
    xpp_job_free(job);
}

static void the_struct_outlives_the_callers_reference(void **state)
{
    json_t *doc = document("{'scan':{'path':'/x.h5'}}");
    xpp_job *job = xpp_job_decode(doc);

    (void)state;
    assert_ptr_equal(job->doc, doc);
    json_decref(doc);
    assert_string_equal(job->scan.path, "/x.h5");
    xpp_job_free(job);
    xpp_job_free(NULL);
}

static void resolved_is_good_and_its_own_resolved(void **state)
{
    json_t *doc = document(
        "{'recon':[{'iterations':30.0,'mode_schedule':[2]},{'algorithm':'refine_positions'}],"
        "'scan':{'path':'/"
        "x.h5','geometry':{}},'model':{'probe_modes':2},'metadata':{'z':1,'a':[1.5]}}");
    json_t *resolved = xpp_job_resolved(doc), *again = xpp_job_resolved(resolved),
           *errors = xpp_job_check(resolved);

    (void)state;
    assert_null(errors);
    assert_true(json_equal(resolved, again));
    assert_true(
        json_equal(json_object_get(doc, "metadata"), json_object_get(resolved, "metadata")));
    assert_true(json_is_integer(
        json_object_get(json_array_get(json_object_get(resolved, "recon"), 0), "iterations")));
    json_decref(again);
    json_decref(resolved);
    json_decref(doc);
}

static void resolved_text_does_not_depend_on_the_order_of_members(void **state)
{
    json_t *a = document("{'scan':{'path':'/x.h5','format':'cxi'},'priority':1,'name':'n'}");
    json_t *b = document("{'name':'n','priority':1,'scan':{'format':'cxi','path':'/x.h5'}}");
    json_t *ra = xpp_job_resolved(a), *rb = xpp_job_resolved(b);
    char *ta = json_dumps(ra, JSON_COMPACT), *tb = json_dumps(rb, JSON_COMPACT);

    (void)state;
    assert_string_equal(ta, tb);
    free(ta);
    free(tb);
    json_decref(ra);
    json_decref(rb);
    json_decref(a);
    json_decref(b);
}

static void resolved_keeps_what_it_does_not_understand(void **state)
{
    json_t *doc = document("{'scan':5,'recon':[1,{'algorithm':'epie'}],'zzz':1,'model':null}"),
           *resolved = xpp_job_resolved(doc);

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(resolved, "scan")), 5);
    assert_int_equal(json_integer_value(json_object_get(resolved, "zzz")), 1);
    assert_true(json_is_null(json_object_get(resolved, "model")));
    assert_int_equal(json_array_size(json_object_get(resolved, "recon")), 2);
    json_decref(resolved);
    json_decref(doc);
}

static void served_texts_are_the_file_and_a_schema_without_references(void **state)
{
    FILE *file = fopen(OPENAPI_FILE, "rb");
    char *text = calloc(1, 1 << 20);
    json_t *schema = json_loads(xpp_schema_job(), JSON_REJECT_DUPLICATES, NULL);

    (void)state;
    assert_non_null(file);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, xpp_openapi());
    assert_true(json_is_object(schema));
    assert_null(strstr(xpp_schema_job(), "\"$ref\""));
    json_decref(schema);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_openapi),
        cmocka_unit_test(defaults_are_those_of_the_method),
        cmocka_unit_test(what_is_not_given_is_null_or_zero),
        cmocka_unit_test(every_member_reaches_the_struct),
        cmocka_unit_test(known_probe_and_init_reach_the_struct),
        cmocka_unit_test(the_struct_outlives_the_callers_reference),
        cmocka_unit_test(resolved_is_good_and_its_own_resolved),
        cmocka_unit_test(resolved_text_does_not_depend_on_the_order_of_members),
        cmocka_unit_test(resolved_keeps_what_it_does_not_understand),
        cmocka_unit_test(served_texts_are_the_file_and_a_schema_without_references),
    };

    xpp_init();
    return cmocka_run_group_tests(tests, load_openapi, drop_openapi);
}
