/* Every refusal of a job document, its pointer and what the message says. */
#include "documents.h"

#include <stdio.h>

/* Checks that quoted has an error at pointer whose detail holds words. */
static void refused(const char *quoted, const char *pointer, const char *words)
{
    json_t *doc = document(quoted), *errors = xpp_job_check(doc), *error;
    size_t i;
    bool found = false;

    json_array_foreach (errors, i, error) {
        const char *at = json_string_value(json_object_get(error, "pointer"));
        const char *detail = json_string_value(json_object_get(error, "detail"));

        if (strcmp(at, pointer) == 0 && strstr(detail, words))
            found = true;
        else
            print_message("  %s: %s\n", at, detail);
    }
    if (!found)
        fail_msg("%s: no error at '%s' saying '%s'", quoted, pointer, words);
    json_decref(errors);
    json_decref(doc);
}

static void accepted(const char *quoted)
{
    json_t *doc = document(quoted), *errors = xpp_job_check(doc);

    if (errors)
        fail_msg("%s: %s", quoted,
                 json_string_value(json_object_get(json_array_get(errors, 0), "detail")));
    json_decref(doc);
}

/* A job with members beside the scan. */
#define JOB(members) "{'scan':{'path':'/x.h5'}," members "}"
#define SCAN(members) "{'scan':{'path':'/x.h5'," members "}}"
#define STAGE(members) "{'scan':{'path':'/x.h5'},'recon':{" members "}}"
#define REFINE(members)                                                                            \
    "{'scan':{'path':'/x.h5'},'recon':{'algorithm':'refine_positions'," members "}}"

static void accepts_the_smallest_job(void **state)
{
    (void)state;
    accepted("{'scan':{'path':'/x.h5'}}");
}

static void accepts_every_bound(void **state)
{
    (void)state;
    accepted(JOB("'priority':-100"));
    accepted(JOB("'priority':100"));
    accepted(
        STAGE("'iterations':1,'object_data_fit':0,'probe_data_fit':0,'probe_weight_exponent':1,"
              "'relaxation':0,'fresnel_distance_m':-1,'batch_size':1,'report_every':1"));
    accepted(STAGE(
        "'iterations':100000,'object_data_fit':1,'probe_data_fit':1,'probe_weight_exponent':2,"
        "'relaxation':1,'mode_energy_fraction':1,'fresnel_distance_m':1,'batch_size':2147483647,"
        "'report_every':100000"));
    accepted(STAGE("'fresnel_radius_pixels':65536"));
    accepted(REFINE("'max_shift':1"));
    accepted(REFINE("'max_shift':64,'batch_size':5"));
    accepted(JOB("'preview_every_s':0.1,'deadline_s':1"));
    accepted(JOB("'checkpoint':'exact','checkpoint_every_s':0"));
    accepted(JOB("'devices':{'num_devices':64,'cpu_threads':4096}"));
}

static void accepts_whole_reals_as_integers(void **state)
{
    (void)state;
    accepted(STAGE("'iterations':30.0"));
    accepted(STAGE("'iterations':1e2"));
}

static void accepts_an_empty_schedule_with_a_known_probe(void **state)
{
    (void)state;
    accepted(JOB("'probe':{'path':'/p.h5','dataset':'/probe'},'recon':{'mode_schedule':[]}"));
}

static void accepts_any_metadata(void **state)
{
    (void)state;
    accepted(JOB("'metadata':null"));
    accepted(JOB("'metadata':[1,'a',{'b':[true]}]"));
}

static void refuses_what_is_no_object(void **state)
{
    (void)state;
    refused("[]", "", "the job must be an object, not an array");
    refused(JOB("'model':[]"), "/model", "model must be an object, not an array");
    refused(JOB("'recon':5"), "/recon",
            "recon must be an object or an array of objects, not a number");
    refused(JOB("'recon':[3]"), "/recon/0", "must be an object, not a number");
    refused(JOB("'labels':'x'"), "/labels", "labels must be an object, not text");
    refused("{'scan':null}", "/scan", "scan must be an object, not null");
}

static void refuses_missing_members(void **state)
{
    (void)state;
    refused("{}", "/scan", "scan is missing");
    refused("{'scan':{}}", "/scan/path", "path is missing; it must be an absolute path");
    refused(JOB("'probe':{}"), "/probe/path", "path is missing");
    refused(JOB("'init':{}"), "/init/path", "path is missing");
    refused(JOB("'init_object':{'dataset':'/a'}"), "/init_object/path", "path is missing");
}

static void refuses_paths_that_are_not_absolute(void **state)
{
    (void)state;
    refused("{'scan':{'path':'x.h5'}}", "/scan/path",
            "path is 'x.h5'; it must be an absolute path");
    refused("{'scan':{'path':''}}", "/scan/path", "0 characters; it needs at least 1");
    refused("{'scan':{'path':7}}", "/scan/path", "must be an absolute path, not a number");
    refused(JOB("'output':{'path':'out.h5'}"), "/output/path", "absolute");
    refused(JOB("'init':{'path':'r.h5'}"), "/init/path", "absolute");
    refused(JOB("'probe':{'path':'r.h5'}"), "/probe/path", "absolute");
}

static void refuses_numbers_out_of_range(void **state)
{
    static const struct {
        const char *doc, *pointer, *words;
    } rows[] = {
        {JOB("'priority':101"), "/priority",
         "priority is 101; it must be a whole number from -100 to 100"},
        {JOB("'priority':-101"), "/priority", "-101"},
        {JOB("'preview_every_s':0"), "/preview_every_s", "from 0.1 to 86400"},
        {JOB("'deadline_s':0"), "/deadline_s", "from 1 to 31536000"},
        {JOB("'checkpoint_every_s':-1"), "/checkpoint_every_s", "from 0 to 31536000"},
        {JOB("'checkpoint':'on'"), "/checkpoint", "exact"},
        {SCAN("'saturation':0"), "/scan/saturation",
         "saturation is 0; it must be a number above 0"},
        {SCAN("'geometry':{'energy_kev':0}"), "/scan/geometry/energy_kev",
         "above 0 and at most 1000000"},
        {SCAN("'geometry':{'wavelength_m':1}"), "/scan/geometry/wavelength_m", "at most 0.001"},
        {SCAN("'geometry':{'detector_distance_m':-1}"), "/scan/geometry/detector_distance_m",
         "above 0"},
        {SCAN("'geometry':{'detector_pitch_m':0}"), "/scan/geometry/detector_pitch_m", "above 0"},
        {JOB("'model':{'probe_modes':0}"), "/model/probe_modes", "from 1 to 64"},
        {JOB("'model':{'probe_modes':65}"), "/model/probe_modes", "from 1 to 64"},
        {JOB("'model':{'object_shape':[1,64]}"), "/model/object_shape/0", "from 2 to 2147483647"},
        {STAGE("'iterations':0"), "/recon/iterations", "from 1 to 100000"},
        {STAGE("'iterations':100001"), "/recon/iterations", "from 1 to 100000"},
        {STAGE("'iterations':1.5"), "/recon/iterations",
         "iterations is 1.5; it must be a whole number"},
        {STAGE("'iterations':9223372036854775807"), "/recon/iterations", "from 1 to 100000"},
        {STAGE("'object_data_fit':1.0000000000000002"), "/recon/object_data_fit",
         "object_data_fit is 1.0000000000000002"},
        {STAGE("'object_data_fit':-0.1"), "/recon/object_data_fit", "from 0 to 1"},
        {STAGE("'probe_data_fit':2"), "/recon/probe_data_fit", "from 0 to 1"},
        {STAGE("'probe_weight_exponent':0.9"), "/recon/probe_weight_exponent", "from 1 to 2"},
        {STAGE("'relaxation':1.5"), "/recon/relaxation",
         "relaxation is 1.5; it must be a number from 0 to 1"},
        {STAGE("'mode_energy_fraction':0"), "/recon/mode_energy_fraction", "above 0 and at most 1"},
        {STAGE("'mode_schedule':[0]"), "/recon/mode_schedule/0", "from 1 to 100000"},
        {STAGE("'fresnel_distance_m':2"), "/recon/fresnel_distance_m", "from -1 to 1"},
        {STAGE("'fresnel_radius_pixels':0"), "/recon/fresnel_radius_pixels", "above 0"},
        {STAGE("'batch_size':0"), "/recon/batch_size", "from 1"},
        {STAGE("'report_every':0"), "/recon/report_every", "from 1"},
        {REFINE("'max_shift':0"), "/recon/max_shift", "from 1 to 64"},
        {REFINE("'max_shift':65"), "/recon/max_shift", "from 1 to 64"},
        {JOB("'devices':{'num_devices':0}"), "/devices/num_devices", "from 1 to 64"},
        {JOB("'devices':{'cpu_threads':0}"), "/devices/cpu_threads", "from 1 to 4096"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(rows[i].doc, rows[i].pointer, rows[i].words);
}

static void refuses_values_of_another_type(void **state)
{
    static const struct {
        const char *doc, *pointer, *words;
    } rows[] = {
        {JOB("'name':5"), "/name", "name must be text, not a number"},
        {JOB("'priority':'high'"), "/priority", "not text"},
        {JOB("'labels':{'a':1}"), "/labels/a", "an entry of labels must be text, not a number"},
        {STAGE("'iterations':true"), "/recon/iterations", "not true"},
        {STAGE("'relaxation':null"), "/recon/relaxation", "not null"},
        {STAGE("'orthogonalize_modes':1"), "/recon/orthogonalize_modes",
         "must be true or false, not a number"},
        {STAGE("'mode_schedule':5"), "/recon/mode_schedule", "must be an array, not a number"},
        {STAGE("'mode_schedule':['5']"), "/recon/mode_schedule/0", "not text"},
        {JOB("'model':{'object_shape':[64]}"), "/model/object_shape",
         "has 1 entries; it must have 2"},
        {JOB("'model':{'object_origin_m':[0,0,0]}"), "/model/object_origin_m", "it must have 2"},
        {JOB("'devices':{'devices':'cpu'}"), "/devices/devices", "must be an array, not text"},
        {JOB("'devices':{'devices':[]}"), "/devices/devices",
         "has 0 entries; it must have 1 to 64"},
        {JOB("'devices':{'devices':[1]}"), "/devices/devices/0", "not a number"},
        {JOB("'recon':[]"), "/recon", "has 0 entries; it must have 1 to 32"},
        {JOB("'output':{'overwrite':'yes'}"), "/output/overwrite",
         "must be true or false, not text"},
        {SCAN("'format':'tiff'"), "/scan/format",
         "format is 'tiff'; it must be one of 'auto', 'xptycho', 'cxi'"},
        {SCAN("'format':1"), "/scan/format", "must be one of"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(rows[i].doc, rows[i].pointer, rows[i].words);
}

static void refuses_long_texts_and_large_maps(void **state)
{
    char text[8192], name[300], pointer[400];
    size_t used;

    (void)state;
    memset(name, 'n', sizeof name);
    name[257] = '\0';
    snprintf(text, sizeof text, JOB("'name':'%s'"), name);
    refused(text, "/name", "name has 257 characters; at most 256 are allowed");
    name[65] = '\0';
    snprintf(text, sizeof text, JOB("'labels':{'%s':''}"), name);
    snprintf(pointer, sizeof pointer, "/labels/%s", name);
    refused(text, pointer, "a name in labels has 65 characters; it must have 1 to 64");
    refused(JOB("'labels':{'':'x'}"), "/labels/", "has 0 characters");
    used = (size_t)snprintf(text, sizeof text, "{'scan':{'path':'/x'},'labels':{");
    for (int i = 0; i < 65; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s'k%d':''", i ? "," : "", i);
    snprintf(text + used, sizeof text - used, "}}");
    refused(text, "/labels", "labels has 65 entries; at most 64 are allowed");
    used = (size_t)snprintf(text, sizeof text, "{'scan':{'path':'/");
    memset(text + used, 'p', 4001);
    snprintf(text + used + 4001, sizeof text - used - 4001, "'}}");
    refused(text, "/scan/path", "at most 4000");
}

static void counts_characters_and_not_bytes(void **state)
{
    char text[2048] = "{'scan':{'path':'/x'},'name':'";

    (void)state;
    for (int i = 0; i < 256; i++)
        strcat(text, "\xC3\xA9");
    strcat(text, "'}");
    accepted(text);
}

static void refuses_unknown_keys_with_the_nearest_name(void **state)
{
    (void)state;
    refused(STAGE("'interations':5"), "/recon/interations",
            "unknown key 'interations'; the nearest known name is 'iterations'");
    refused(STAGE("'ITERATIONS':5"), "/recon/ITERATIONS", "'iterations'");
    refused(STAGE("'relaxaiton':0.5"), "/recon/relaxaiton", "'relaxation'");
    refused(JOB("'outptu':{}"), "/outptu", "'output'");
    refused(SCAN("'fromat':'cxi'"), "/scan/fromat", "'format'");
    refused(SCAN("'geometry':{'wavelength':1e-10}"), "/scan/geometry/wavelength", "'wavelength_m'");
    refused(JOB("'devices':{'device':['cpu']}"), "/devices/device", "'devices'");
    refused(JOB("'model':{'probe_mode':2}"), "/model/probe_mode", "'probe_modes'");
}

static void says_where_a_misplaced_key_belongs(void **state)
{
    (void)state;
    refused(JOB("'iterations':5"), "/iterations", "unknown key 'iterations'; it belongs in recon");
    refused(STAGE("'probe_modes':2"), "/recon/probe_modes", "it belongs in model");
    refused(SCAN("'energy_kev':8"), "/scan/energy_kev", "it belongs in scan.geometry");
    refused(STAGE("'priority':2"), "/recon/priority", "it belongs at the top of the job");
}

static void lists_the_known_keys_where_none_is_near(void **state)
{
    (void)state;
    refused(JOB("'output':{'zzz':1}"), "/output/zzz",
            "unknown key 'zzz'; known here: path, overwrite");
}

static void refuses_what_is_not_built_yet(void **state)
{
    (void)state;
    refused(JOB("'class':'urgent'"), "/class", "scavenger");
    refused(SCAN("'mapping':{}"), "/scan/mapping", "unknown key 'mapping'");
    refused(SCAN("'preprocess':[]"), "/scan/preprocess", "unknown key");
    refused(SCAN("'selection':{}"), "/scan/selection", "unknown key");
    refused(SCAN("'negatives':'auto'"), "/scan/negatives", "unknown key");
    refused(SCAN("'live':true"), "/scan/live", "unknown key");
}

static void shortens_a_long_unknown_key_in_the_message(void **state)
{
    char text[700] = "{'scan':{'path':'/x'},'", key[500];
    json_t *doc, *errors;
    const char *detail;

    (void)state;
    for (int i = 0; i < 249; i++)
        memcpy(key + 2 * i, "\xC3\xA9", 2);
    key[498] = '\0';
    strcat(strcat(text, key), "':1}");
    doc = document(text);
    errors = xpp_job_check(doc);
    detail = json_string_value(json_object_get(json_array_get(errors, 0), "detail"));
    assert_non_null(strstr(detail, "\xC3\xA9...'"));
    assert_true(strlen(detail) < 400);
    /* The pointer is exact. */
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(errors, 0), "pointer")) + 1, key);
    json_decref(errors);
    json_decref(doc);
}

static void escapes_pointers(void **state)
{
    (void)state;
    refused(JOB("'a/b~c':1"), "/a~1b~0c", "unknown key");
    refused(JOB("'':1"), "/", "unknown key ''");
}

static void refuses_keys_of_another_algorithm(void **state)
{
    (void)state;
    refused(STAGE("'max_shift':2"), "/recon/max_shift",
            "'max_shift' belongs to algorithm 'refine_positions' only");
    refused(REFINE("'iterations':2"), "/recon/iterations",
            "'iterations' belongs to algorithm 'pmace' only");
    refused(REFINE("'report_every':2"), "/recon/report_every", "'pmace' only");
    refused(REFINE("'mode_schedule':[2]"), "/recon/mode_schedule", "'pmace' only");
    accepted(REFINE("'max_shift':2,'batch_size':7"));
}

static void refuses_unknown_algorithms_and_still_judges_the_rest(void **state)
{
    (void)state;
    refused(STAGE("'algorithm':'epie'"), "/recon/algorithm",
            "algorithm is 'epie'; it must be 'pmace' or 'refine_positions'");
    refused(STAGE("'algorithm':5"), "/recon/algorithm",
            "algorithm must be 'pmace' or 'refine_positions'");
    refused(STAGE("'algorithm':'epie','relaxation':2"), "/recon/relaxation", "from 0 to 1");
    refused(STAGE("'algorithm':'epie','relaxatoin':2"), "/recon/relaxatoin", "'relaxation'");
}

static void refuses_members_that_exclude_each_other(void **state)
{
    (void)state;
    refused(SCAN("'geometry':{'energy_kev':8,'wavelength_m':1e-10}"), "/scan/geometry/wavelength_m",
            "wavelength_m cannot stand beside energy_kev: both give the wavelength; give one of "
            "the two");
    refused(STAGE("'fresnel_distance_m':1e-6,'fresnel_radius_pixels':2"),
            "/recon/fresnel_radius_pixels", "cannot stand beside fresnel_distance_m");
    refused(JOB("'devices':{'num_devices':1,'devices':['cpu']}"), "/devices/devices",
            "beside num_devices");
    refused(JOB("'probe':{'path':'/p'},'init_probe':{'path':'/q'}"), "/init_probe",
            "needs no start");
    refused(JOB("'init':{'path':'/p'},'init_object':{'path':'/q'}"), "/init_object",
            "already gives the start object");
    refused(JOB("'init':{'path':'/p'},'init_probe':{'path':'/q'}"), "/init_probe",
            "already gives the start probe");
    accepted(JOB("'init_object':{'path':'/p'},'init_probe':{'path':'/q'}"));
    accepted(JOB("'probe':{'path':'/p'},'init':{'path':'/q'}"));
}

static void refuses_modes_without_a_schedule_that_reaches_them(void **state)
{
    (void)state;
    refused(JOB("'model':{'probe_modes':2}"), "/model/probe_modes",
            "probe_modes is 2 but the probe starts with 1 mode and mode_schedule adds 0; "
            "name 1 iteration in recon.mode_schedule, or give init_probe");
    refused(JOB("'model':{'probe_modes':4},'recon':[{'mode_schedule':[5]},{'mode_schedule':[5]}]"),
            "/model/probe_modes", "adds 2; name 3 iterations");
    accepted(
        JOB("'model':{'probe_modes':3},'recon':[{'mode_schedule':[5]},{'mode_schedule':[5]}]"));
    accepted(JOB("'model':{'probe_modes':2},'recon':{'mode_schedule':[5,6]}"));
    /* How many modes these bring, only their files tell. */
    accepted(JOB("'model':{'probe_modes':2},'probe':{'path':'/p'}"));
    accepted(JOB("'model':{'probe_modes':2},'init':{'path':'/p'}"));
    accepted(JOB("'model':{'probe_modes':2},'init_probe':{'path':'/p'}"));
}

static void refuses_a_schedule_with_a_known_probe(void **state)
{
    (void)state;
    refused(JOB("'probe':{'path':'/p'},'recon':{'mode_schedule':[5]}"), "/recon/mode_schedule",
            "a known probe is held fixed");
    refused(JOB("'probe':{'path':'/p'},'recon':[{},{'mode_schedule':[5]}]"),
            "/recon/1/mode_schedule", "held fixed");
}

static void refuses_a_schedule_past_the_stage_and_duplicates(void **state)
{
    (void)state;
    refused(STAGE("'iterations':10,'mode_schedule':[11]"), "/recon/mode_schedule/0",
            "a mode at iteration 11 of a stage of 10 iterations; name iterations from 1 to 10");
    refused(STAGE("'mode_schedule':[101]"), "/recon/mode_schedule/0",
            "of a stage of 100 iterations");
    accepted(STAGE("'iterations':10,'mode_schedule':[10]"));
    refused(JOB("'recon':[{},{'iterations':9,'mode_schedule':[3,10]}]"), "/recon/1/mode_schedule/1",
            "10 of a stage of 9");
    refused(STAGE("'mode_schedule':[3,4,3]"), "/recon/mode_schedule/2",
            "mode_schedule has 3 at index 0 already");
    refused(STAGE("'mode_schedule':[3,3.0]"), "/recon/mode_schedule/1", "already");
}

static void refuses_bad_device_lists(void **state)
{
    (void)state;
    refused(JOB("'devices':{'devices':['gpu']}"), "/devices/devices/0",
            "it must be a device name such as 'cpu' or 'cuda:0'");
    refused(JOB("'devices':{'devices':['cuda:']}"), "/devices/devices/0", "device name");
    refused(JOB("'devices':{'devices':['cpu ']}"), "/devices/devices/0", "device name");
    refused(JOB("'devices':{'devices':['cuda:1x']}"), "/devices/devices/0", "device name");
    refused(JOB("'devices':{'devices':['cuda:12345']}"), "/devices/devices/0", "device name");
    refused(JOB("'devices':{'devices':['cuda']}"), "/devices/devices/0", "device name");
    refused(JOB("'devices':{'devices':['xcpu']}"), "/devices/devices/0", "device name");
    refused(JOB("'devices':{'devices':['cuda:0','cuda:1','cuda:0']}"), "/devices/devices/2",
            "'cuda:0' stands at index 0 already; only 'cpu' may be repeated");
    refused(JOB("'devices':{'devices':['cpu','cuda:1']}"), "/devices/devices",
            "1 'cpu' and 1 other devices");
    accepted(JOB("'devices':{'devices':['cpu','cpu','cpu'],'cpu_threads':2}"));
    accepted(JOB("'devices':{'devices':['cuda:0','cuda:12']}"));
}

static void refuses_metadata_beyond_the_limit(void **state)
{
    char *blob = malloc(XPP_METADATA_MAX + 100);
    json_t *doc = document(JOB("'priority':1")), *errors;

    (void)state;
    memset(blob, 'm', XPP_METADATA_MAX + 1);
    blob[XPP_METADATA_MAX - 2] = '\0'; /* and two quotes: exactly the limit */
    json_object_set_new(doc, "metadata", json_string(blob));
    assert_null(xpp_job_check(doc));
    blob[XPP_METADATA_MAX - 2] = 'm';
    blob[XPP_METADATA_MAX - 1] = '\0';
    json_object_set_new(doc, "metadata", json_string(blob));
    errors = xpp_job_check(doc);
    assert_int_equal(json_array_size(errors), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(errors, 0), "pointer")),
                        "/metadata");
    assert_non_null(strstr(json_string_value(json_object_get(json_array_get(errors, 0), "detail")),
                           "65537 bytes; at most 65536"));
    json_decref(errors);
    json_decref(doc);
    free(blob);
}

static void reports_every_error_at_once(void **state)
{
    static const char *const pointers[] = {
        "/scan/path",          "/scan/fromat",
        "/priority",           "/recon/0/iterations",
        "/recon/1/relaxation", "/recon/1/mode_schedule/1",
        "/devices/devices/1",  "/output",
        "/model/probe_modes",
    };
    json_t *doc =
        document("{'scan':{'path':'x','fromat':'cxi'},'priority':1000,'model':{'probe_modes':5},"
                 "'recon':[{'iterations':-1},{'relaxation':7,'mode_schedule':[4,4]}],"
                 "'devices':{'devices':['cuda:0','cuda:0']},'output':[]}");
    json_t *errors = xpp_job_check(doc), *error;
    size_t i;

    (void)state;
    assert_int_equal(json_array_size(errors), sizeof pointers / sizeof *pointers);
    for (size_t p = 0; p < sizeof pointers / sizeof *pointers; p++) {
        bool found = false;

        json_array_foreach (errors, i, error) {
            found |= strcmp(json_string_value(json_object_get(error, "pointer")), pointers[p]) == 0;
        }
        if (!found)
            fail_msg("no error at %s", pointers[p]);
    }
    json_decref(errors);
    json_decref(doc);
}

static void counts_errors_past_a_hundred(void **state)
{
    json_t *doc = document("{'scan':{'path':'/x'}}"), *errors;
    char key[16];

    (void)state;
    for (int i = 0; i < 150; i++) {
        snprintf(key, sizeof key, "zzzzzz%d", i);
        json_object_set_new(doc, key, json_null());
    }
    errors = xpp_job_check(doc);
    assert_int_equal(json_array_size(errors), 101);
    assert_string_equal(json_string_value(json_object_get(json_array_get(errors, 100), "detail")),
                        "50 more errors are not listed");
    json_decref(errors);
    json_decref(doc);
}

static void leaves_the_document_as_it_was(void **state)
{
    json_t *doc = document(JOB("'recon':[{'iterations':30.0}]")), *before = json_deep_copy(doc);

    (void)state;
    assert_null(xpp_job_check(doc));
    assert_true(json_equal(doc, before));
    json_decref(before);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_the_smallest_job),
        cmocka_unit_test(accepts_every_bound),
        cmocka_unit_test(accepts_whole_reals_as_integers),
        cmocka_unit_test(accepts_an_empty_schedule_with_a_known_probe),
        cmocka_unit_test(accepts_any_metadata),
        cmocka_unit_test(refuses_what_is_no_object),
        cmocka_unit_test(refuses_missing_members),
        cmocka_unit_test(refuses_paths_that_are_not_absolute),
        cmocka_unit_test(refuses_numbers_out_of_range),
        cmocka_unit_test(refuses_values_of_another_type),
        cmocka_unit_test(refuses_long_texts_and_large_maps),
        cmocka_unit_test(counts_characters_and_not_bytes),
        cmocka_unit_test(refuses_unknown_keys_with_the_nearest_name),
        cmocka_unit_test(says_where_a_misplaced_key_belongs),
        cmocka_unit_test(lists_the_known_keys_where_none_is_near),
        cmocka_unit_test(refuses_what_is_not_built_yet),
        cmocka_unit_test(shortens_a_long_unknown_key_in_the_message),
        cmocka_unit_test(escapes_pointers),
        cmocka_unit_test(refuses_keys_of_another_algorithm),
        cmocka_unit_test(refuses_unknown_algorithms_and_still_judges_the_rest),
        cmocka_unit_test(refuses_members_that_exclude_each_other),
        cmocka_unit_test(refuses_modes_without_a_schedule_that_reaches_them),
        cmocka_unit_test(refuses_a_schedule_with_a_known_probe),
        cmocka_unit_test(refuses_a_schedule_past_the_stage_and_duplicates),
        cmocka_unit_test(refuses_bad_device_lists),
        cmocka_unit_test(refuses_metadata_beyond_the_limit),
        cmocka_unit_test(reports_every_error_at_once),
        cmocka_unit_test(counts_errors_past_a_hundred),
        cmocka_unit_test(leaves_the_document_as_it_was),
    };

    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
