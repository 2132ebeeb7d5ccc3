/* The rules of a job that no table can express: modes and their schedule, device lists, the size of
 * the metadata. */
#include "check.h"

#include <string.h>

typedef struct stage_view {
    xpp_place at;    /* of the stage */
    xpp_place array; /* `recon`, where at is an item of it */
    const json_t *doc;
    const json_t *schedule; /* NULL where the stage has none */
    json_int_t iterations;  /* 0 where it is not a number in range */
} stage_view;

static const xpp_place top = {NULL, NULL, 0};

static size_t stage_count(const json_t *resolved)
{
    const json_t *recon = json_object_get(resolved, "recon");

    return json_is_array(recon) ? json_array_size(recon) : json_is_object(recon) ? 1 : 0;
}

/* view is filled in place: its members point at each other. */
static void stage_get(stage_view *view, const json_t *resolved, size_t index)
{
    const json_t *recon = json_object_get(resolved, "recon");
    bool many = json_is_array(recon);

    view->array = (xpp_place){&top, "recon", 0};
    view->at = many ? (xpp_place){&view->array, NULL, index} : view->array;
    view->doc = many ? json_array_get(recon, index) : recon;
    view->schedule = json_object_get(view->doc, "mode_schedule");
    view->iterations = json_integer_value(json_object_get(view->doc, "iterations"));
    if (view->iterations < 0)
        view->iterations = 0;
}

static bool is_given(const json_t *resolved, const char *name)
{
    return json_object_get(resolved, name) != NULL;
}

static void check_schedules(xpp_check *check, const json_t *resolved)
{
    bool known_probe = is_given(resolved, "probe");
    stage_view stage;

    for (size_t i = 0; i < stage_count(resolved); i++) {
        stage_get(&stage, resolved, i);
        xpp_place at = {&stage.at, "mode_schedule", 0};

        if (known_probe && json_array_size(stage.schedule) > 0)
            xpp_check_fail(
                check, &at,
                "a known probe is held fixed, so no mode can be added; leave out mode_schedule, "
                "or give the probe as init_probe to estimate it");
        for (size_t j = 0; stage.iterations > 0 && j < json_array_size(stage.schedule); j++) {
            const json_t *entry = json_array_get(stage.schedule, j);

            if (json_is_integer(entry) && json_integer_value(entry) > stage.iterations)
                xpp_check_fail(check, &(xpp_place){&at, NULL, j},
                               "a mode at iteration %" JSON_INTEGER_FORMAT
                               " of a stage of %" JSON_INTEGER_FORMAT
                               " iterations; name iterations from 1 to %" JSON_INTEGER_FORMAT,
                               json_integer_value(entry), stage.iterations, stage.iterations);
        }
    }
}

/* An estimated probe without a start begins with one mode and gains one with each scheduled
 * iteration.  How many modes a start has, only its file tells: that is the engine's check. */
static void check_modes_reached(xpp_check *check, const json_t *resolved)
{
    const xpp_place model = {&top, "model", 0}, at = {&model, "probe_modes", 0};
    json_int_t modes =
        json_integer_value(json_object_get(json_object_get(resolved, "model"), "probe_modes"));
    json_int_t scheduled = 0;
    stage_view stage;

    if (modes < 2 || modes > XPP_MODES_MAX || is_given(resolved, "probe") ||
        is_given(resolved, "init") || is_given(resolved, "init_probe"))
        return;
    for (size_t i = 0; i < stage_count(resolved); i++) {
        stage_get(&stage, resolved, i);
        scheduled += (json_int_t)json_array_size(stage.schedule);
    }
    if (1 + scheduled < modes)
        xpp_check_fail(
            check, &at,
            "probe_modes is %" JSON_INTEGER_FORMAT
            " but the probe starts with 1 mode and mode_schedule adds %" JSON_INTEGER_FORMAT
            "; name %" JSON_INTEGER_FORMAT
            " iteration%s in recon.mode_schedule, or give init_probe",
            modes, scheduled, modes - 1, modes == 2 ? "" : "s");
}

static void check_devices(xpp_check *check, const json_t *resolved)
{
    const xpp_place devices = {&top, "devices", 0}, at = {&devices, "devices", 0};
    const json_t *names = json_object_get(json_object_get(resolved, "devices"), "devices");
    size_t cpus = 0, count = json_array_size(names);

    if (count > XPP_DEVICES_MAX)
        return;
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));

        if (!name)
            return;
        if (strcmp(name, "cpu") == 0) {
            cpus++;
            continue;
        }
        for (size_t j = 0; j < i; j++) {
            const char *other = json_string_value(json_array_get(names, j));

            if (strcmp(name, other) == 0) {
                xpp_check_fail(check, &(xpp_place){&at, NULL, i},
                               "'%.31s' stands at index %zu already; only 'cpu' may be repeated",
                               name, j);
                break;
            }
        }
    }
    if (cpus > 0 && cpus < count)
        xpp_check_fail(check, &at,
                       "%zu 'cpu' and %zu other devices; a job runs on one kind, name only 'cpu' "
                       "or only 'cuda:N'",
                       cpus, count - cpus);
}

static void check_metadata(xpp_check *check, const json_t *resolved)
{
    const json_t *metadata = json_object_get(resolved, "metadata");
    size_t bytes = metadata ? json_dumpb(metadata, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY) : 0;

    if (bytes > XPP_METADATA_MAX)
        xpp_check_fail(check, &(xpp_place){&top, "metadata", 0},
                       "metadata takes %zu bytes; at most %d are carried, keep the rest in a file",
                       bytes, XPP_METADATA_MAX);
}

void xpp_check_rules(xpp_check *check, const json_t *resolved)
{
    check_schedules(check, resolved);
    check_modes_reached(check, resolved);
    check_devices(check, resolved);
    check_metadata(check, resolved);
}
