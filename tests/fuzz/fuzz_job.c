/* A job document from outside: whatever the text, it is refused with reasons or it is a job whose
 * resolved form is good too and says the same. */
#include "fuzz.h"

#include "xptychod/protocol.h"

#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    xpp_init();
    return 0;
}

static void check_errors(const json_t *errors)
{
    FUZZ_CHECK(json_array_size(errors) > 0);
    for (size_t i = 0; i < json_array_size(errors); i++) {
        const json_t *error = json_array_get(errors, i);
        const char *pointer = json_string_value(json_object_get(error, "pointer"));

        FUZZ_CHECK(pointer && (pointer[0] == '\0' || pointer[0] == '/'));
        FUZZ_CHECK(json_string_length(json_object_get(error, "detail")) > 0);
    }
}

static void check_job(json_t *doc)
{
    json_t *resolved = xpp_job_resolved(doc), *again = xpp_job_resolved(resolved);
    xpp_job *job = xpp_job_decode(doc);

    FUZZ_CHECK(resolved && again && job);
    FUZZ_CHECK(xpp_job_check(resolved) == NULL);
    FUZZ_CHECK(json_equal(resolved, again));
    FUZZ_CHECK(job->scan.path[0] == '/');
    FUZZ_CHECK(job->stage_count >= 1 && job->stage_count <= XPP_STAGES_MAX);
    FUZZ_CHECK(job->model.probe_modes >= 1 && job->model.probe_modes <= XPP_MODES_MAX);
    FUZZ_CHECK(job->devices.count <= XPP_DEVICES_MAX);
    for (int i = 0; i < job->stage_count; i++) {
        const xpp_stage *stage = &job->stages[i];

        FUZZ_CHECK(stage->iterations >= 1 && stage->report_every >= 1 && stage->algorithm);
        for (int j = 0; j < stage->mode_schedule_count; j++)
            FUZZ_CHECK(stage->mode_schedule[j] >= 1 &&
                       stage->mode_schedule[j] <= stage->iterations);
    }
    xpp_job_free(job);
    json_decref(again);
    json_decref(resolved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *problem, *doc = xpp_parse((const char *)data, size, &problem);

    FUZZ_CHECK((doc == NULL) != (problem == NULL));
    if (doc) {
        json_t *errors = xpp_job_check(doc);

        if (errors)
            check_errors(errors);
        else
            check_job(doc);
        json_decref(errors);
    }
    json_decref(doc);
    json_decref(problem);
    return 0;
}
