/* A job document with its defaults written out, and as a struct. */
#include "xptychod/protocol.h"

#include "table_find.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- defaults */

static json_t *resolve(const xpp_rule *rule, json_t *value);

static json_t *resolve_items(const xpp_rule *items, json_t *array)
{
    json_t *out = json_array(), *item;
    size_t i;

    json_array_foreach (array, i, item) {
        if (json_array_append_new(out, resolve(items, item)) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

/* Members in the order of the table, so that equal jobs have equal text; what the table does not
 * know, a document that is still to be refused, comes last. */
static json_t *resolve_object(const xpp_table *table, json_t *object)
{
    json_t *out = json_object(), *member;
    const char *key;
    int failed = out == NULL;

    for (size_t i = 0; i < table->rule_count && !failed; i++) {
        const xpp_rule *rule = &table->rules[i];
        json_t *given = json_object_get(object, rule->name);

        if (given) {
            failed = json_object_set_new(out, rule->name, resolve(rule, given));
        } else if (rule->fallback) {
            json_t *fallback = json_loads(rule->fallback, JSON_DECODE_ANY, NULL);

            failed = !fallback || json_object_set_new(out, rule->name, resolve(rule, fallback));
            json_decref(fallback);
        }
    }
    json_object_foreach (object, key, member) {
        if (!failed && !json_object_get(out, key))
            failed = json_object_set(out, key, member);
    }
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* A new reference to value with its defaults; a value of a kind that the rule does not want stays
 * as it is. */
static json_t *resolve(const xpp_rule *rule, json_t *value)
{
    const xpp_table *table;

    switch (rule->kind) {
    case XPP_KIND_OBJECT:
    case XPP_KIND_ONE_OF:
        table = json_is_object(value) ? xpp_rule_table(rule, value) : NULL;
        return table ? resolve_object(table, value) : json_incref(value);
    case XPP_KIND_ARRAY:
        return json_is_array(value) ? resolve_items(rule->items, value) : json_incref(value);
    case XPP_KIND_ONE_OR_MORE:
        return json_is_array(value) ? resolve_items(rule->items, value)
                                    : resolve(rule->items, value);
    case XPP_KIND_INTEGER: { /* 30.0 is the integer 30, as in JSON Schema */
        double number = json_real_value(value);

        if (json_is_real(value) && floor(number) == number && fabs(number) <= 0x1p53)
            return json_integer((json_int_t)number);
        return json_incref(value);
    }
    case XPP_KIND_TEXT:
    case XPP_KIND_NUMBER:
    case XPP_KIND_BOOLEAN:
    case XPP_KIND_MAP:
    case XPP_KIND_ANY:
        break;
    }
    return json_incref(value);
}

json_t *xpp_job_resolved(const json_t *doc)
{
    json_t *copy = json_deep_copy(doc), *out = copy ? resolve(&xpp_job_rule, copy) : NULL;

    json_decref(copy);
    return out;
}

/* ------------------------------------------------------------------------------------- struct */

/* The job and the resolved document that its texts stand in. */
typedef struct job_holder {
    xpp_job job; /* first: a pointer to it is a pointer to the holder */
    json_t *resolved;
} job_holder;

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static double number_of(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

/* Ranges have been checked: every integer of a job fits an int. */
static int int_of(const json_t *object, const char *name)
{
    return (int)json_integer_value(json_object_get(object, name));
}

static bool bool_of(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

static xpp_array_ref ref_of(const json_t *doc, const char *name)
{
    const json_t *ref = json_object_get(doc, name);

    return (xpp_array_ref){text_of(ref, "path"), text_of(ref, "dataset")};
}

static int decode_schedule(xpp_stage *stage, const json_t *schedule)
{
    size_t count = json_array_size(schedule);

    if (count == 0)
        return 0;
    stage->mode_schedule = calloc(count, sizeof *stage->mode_schedule);
    if (!stage->mode_schedule)
        return -1;
    for (size_t i = 0; i < count; i++)
        stage->mode_schedule[i] = (int)json_integer_value(json_array_get(schedule, i));
    stage->mode_schedule_count = (int)count;
    return 0;
}

static int decode_stage(xpp_stage *stage, const json_t *doc)
{
    stage->algorithm = text_of(doc, "algorithm");
    /* A search for positions is one step. */
    stage->iterations = json_object_get(doc, "iterations") ? int_of(doc, "iterations") : 1;
    stage->object_data_fit = number_of(doc, "object_data_fit");
    stage->probe_data_fit = number_of(doc, "probe_data_fit");
    stage->probe_weight_exponent = number_of(doc, "probe_weight_exponent");
    stage->relaxation = number_of(doc, "relaxation");
    stage->mode_energy_fraction = number_of(doc, "mode_energy_fraction");
    stage->orthogonalize_modes = bool_of(doc, "orthogonalize_modes");
    stage->fresnel_distance_m = number_of(doc, "fresnel_distance_m");
    stage->fresnel_radius_pixels = number_of(doc, "fresnel_radius_pixels");
    stage->batch_size = json_integer_value(json_object_get(doc, "batch_size"));
    stage->report_every = json_object_get(doc, "report_every") ? int_of(doc, "report_every") : 1;
    stage->max_shift = int_of(doc, "max_shift");
    return decode_schedule(stage, json_object_get(doc, "mode_schedule"));
}

static int decode_stages(xpp_job *job, const json_t *recon)
{
    size_t count = json_is_array(recon) ? json_array_size(recon) : 1;

    job->stages = calloc(count, sizeof *job->stages);
    if (!job->stages)
        return -1;
    for (size_t i = 0; i < count; i++) {
        job->stage_count++; /* before the decode, so that xpp_job_free sees a half-made stage */
        if (decode_stage(&job->stages[i],
                         json_is_array(recon) ? json_array_get(recon, i) : recon) != 0)
            return -1;
    }
    return 0;
}

static int decode_devices(xpp_job *job, const json_t *devices)
{
    const json_t *names = json_object_get(devices, "devices");
    size_t count = json_array_size(names);

    job->devices.num_devices = int_of(devices, "num_devices");
    job->devices.cpu_threads = int_of(devices, "cpu_threads");
    if (count == 0)
        return 0;
    job->devices.names = calloc(count, sizeof *job->devices.names);
    if (!job->devices.names)
        return -1;
    for (size_t i = 0; i < count; i++) {
        job->devices.names[i] = strdup(json_string_value(json_array_get(names, i)));
        if (!job->devices.names[i])
            return -1;
        job->devices.count++;
    }
    return 0;
}

static void decode_scan(xpp_job *job, const json_t *scan)
{
    const json_t *geometry = json_object_get(scan, "geometry");

    job->scan.path = text_of(scan, "path");
    job->scan.format = text_of(scan, "format");
    job->scan.saturation = number_of(scan, "saturation");
    job->scan.energy_kev = number_of(geometry, "energy_kev");
    job->scan.wavelength_m = number_of(geometry, "wavelength_m");
    job->scan.detector_distance_m = number_of(geometry, "detector_distance_m");
    job->scan.detector_pitch_m = number_of(geometry, "detector_pitch_m");
}

static void decode_model(xpp_job *job, const json_t *model)
{
    const json_t *shape = json_object_get(model, "object_shape"),
                 *origin = json_object_get(model, "object_origin_m");

    job->model.probe_modes = int_of(model, "probe_modes");
    job->model.has_shape = shape != NULL;
    job->model.has_origin = origin != NULL;
    for (size_t i = 0; i < 2; i++) {
        job->model.object_shape[i] = json_integer_value(json_array_get(shape, i));
        job->model.object_origin_m[i] = json_number_value(json_array_get(origin, i));
    }
}

xpp_job *xpp_job_decode(json_t *doc)
{
    job_holder *holder = calloc(1, sizeof *holder);
    xpp_job *job;
    const json_t *resolved, *output;

    if (!holder)
        return NULL;
    job = &holder->job;
    resolved = holder->resolved = xpp_job_resolved(doc);
    if (!resolved)
        goto failed;
    job->doc = json_incref(doc);
    job->name = text_of(resolved, "name");
    job->priority = int_of(resolved, "priority");
    decode_scan(job, json_object_get(resolved, "scan"));
    decode_model(job, json_object_get(resolved, "model"));
    job->probe = ref_of(resolved, "probe");
    job->init_object = ref_of(resolved, "init_object");
    job->init_probe = ref_of(resolved, "init_probe");
    job->init_path = ref_of(resolved, "init").path;
    job->preview_every_s = number_of(resolved, "preview_every_s");
    job->deadline_s = number_of(resolved, "deadline_s");
    job->checkpoint = strcmp(text_of(resolved, "checkpoint"), "off") != 0;
    job->checkpoint_every_s = json_object_get(resolved, "checkpoint_every_s")
                                  ? number_of(resolved, "checkpoint_every_s")
                                  : -1.0;
    output = json_object_get(resolved, "output");
    job->output_path = text_of(output, "path");
    job->output_overwrite = bool_of(output, "overwrite");
    if (decode_stages(job, json_object_get(resolved, "recon")) != 0 ||
        decode_devices(job, json_object_get(resolved, "devices")) != 0)
        goto failed;
    return job;
failed:
    xpp_job_free(job);
    return NULL;
}

void xpp_job_free(xpp_job *job)
{
    job_holder *holder = (job_holder *)job;

    if (!job)
        return;
    for (int i = 0; i < job->stage_count; i++)
        free(job->stages[i].mode_schedule);
    free(job->stages);
    for (int i = 0; i < job->devices.count; i++)
        free(job->devices.names[i]);
    free(job->devices.names);
    json_decref(job->doc);
    json_decref(holder->resolved);
    free(holder);
}

const char *xpp_schema_job(void)
{
    return xpp_schema_job_text;
}

const char *xpp_openapi(void)
{
    return xpp_openapi_text;
}
