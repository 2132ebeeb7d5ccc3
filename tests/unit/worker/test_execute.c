/* Whole jobs on the CPU: stages, events, previews, results, and every way to end. */
#include "scene.h"

#include "execute.h"
#include "io/write/write.h"

typedef struct fixture {
    char folder[64], path[96];
    scene *s;
    xpd_work work;
    xpd_control control;
    xpd_writer *writer;
    pthread_mutex_t lock;
    json_t *seen;  /* events in order */
    int cancel_at; /* iteration after which the job is cancelled; 0 = never */
    xpd_events events;
} fixture;

static void on_event(void *context, json_t *event)
{
    fixture *f = context;

    if (f->cancel_at && json_integer_value(json_object_get(event, "iter")) == f->cancel_at &&
        strcmp(json_string_value(json_object_get(event, "type")), "iter") == 0)
        xpd_control_cancel(&f->control, false);
    pthread_mutex_lock(&f->lock);
    json_array_append_new(f->seen, event);
    pthread_mutex_unlock(&f->lock);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    strcpy(f->folder, "/tmp/xptychod-worker-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    snprintf(f->path, sizeof f->path, "%s/result.h5", f->folder);
    f->s = scene_make();
    f->writer = xpd_writer_create();
    f->seen = json_array();
    f->events = (xpd_events){on_event, f};
    pthread_mutex_init(&f->lock, NULL);
    xpd_control_init(&f->control);
    *state = f;
    return f->writer ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", f->folder);
    xpd_work_release(&f->work);
    xpd_writer_destroy(f->writer);
    xpd_control_release(&f->control);
    pthread_mutex_destroy(&f->lock);
    json_decref(f->seen);
    scene_free(f->s);
    free(f);
    return system(command);
}

static void prepare(fixture *f, const char *job, bool known)
{
    int fds[XPP_IPC_FDS_MAX], count;
    json_t *doc = scene_job(job), *message = scene_message(f->s, known, fds, &count);
    xpe_error err = {0};

    f->work.began = xpd_now();
    f->work.job = xpp_job_decode(doc);
    f->work.output_path = strdup(f->path);
    f->work.folder = strdup(f->folder);
    assert_non_null(f->work.job);
    assert_int_equal(xpd_input_open(&f->work.input, f->work.job, message, fds, count, &err),
                     XPE_OK);
    json_decref(message);
    json_decref(doc);
}

static xpd_outcome execute(fixture *f)
{
    xpd_outcome outcome;

    xpd_work_execute(&outcome, &f->work, &f->control, f->writer, &f->events);
    return outcome;
}

static int count_events(const fixture *f, const char *type)
{
    int count = 0;

    for (size_t i = 0; i < json_array_size(f->seen); i++)
        count += strcmp(json_string_value(json_object_get(json_array_get(f->seen, i), "type")),
                        type) == 0;
    return count;
}

static void job_succeeds_with_every_iteration_told_once(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 9}}", true);
    o = execute(f);
    assert_string_equal(o.state, "succeeded");
    assert_string_equal(o.reason, "");
    assert_int_equal(count_events(f, "iter"), 9);
    assert_int_equal(count_events(f, "state"), 1);
    assert_true(count_events(f, "preview") >= 1);
    assert_int_equal(count_events(f, "warning"), 0);
    assert_int_equal(json_integer_value(json_object_get(o.result, "iterations")), 9);
    assert_true(json_number_value(json_object_get(o.result, "data_error")) < 0.2);
    assert_int_equal(strlen(json_string_value(json_object_get(o.result, "sha256"))), 64);
    assert_null(json_object_get(o.result, "partial"));
    assert_int_equal(access(f->path, R_OK), 0);
    xpd_outcome_release(&o);
}

static void last_preview_is_of_the_last_iteration(void **state)
{
    fixture *f = *state;
    char path[96];
    json_t *index;
    xpd_outcome o;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 30}, 'preview_every_s': 0.1}",
            true);
    o = execute(f);
    snprintf(path, sizeof path, "%s/preview.json", f->folder);
    index = json_load_file(path, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(index, "iter")), 30);
    json_decref(index);
    xpd_outcome_release(&o);
}

static void stages_follow_each_other_and_their_errors_are_joined(void **state)
{
    fixture *f = *state;
    xpd_outcome o;
    double first, last;

    prepare(
        f,
        "{'scan': {'path': '/x'}, 'recon': [{'iterations': 6}, {'algorithm': 'refine_positions'},"
        " {'iterations': 4}]}",
        true);
    o = execute(f);
    assert_string_equal(o.state, "succeeded");
    assert_int_equal(json_integer_value(json_object_get(o.result, "iterations")), 11);
    assert_int_equal(count_events(f, "iter"), 11);
    first = last = -1.0;
    for (size_t i = 0; i < json_array_size(f->seen); i++) {
        const json_t *event = json_array_get(f->seen, i);

        if (strcmp(json_string_value(json_object_get(event, "type")), "iter") != 0)
            continue;
        if (json_integer_value(json_object_get(event, "stage")) == 0 &&
            json_integer_value(json_object_get(event, "iter")) == 6)
            first = json_number_value(json_object_get(event, "data_error"));
        if (json_integer_value(json_object_get(event, "stage")) == 2 &&
            json_integer_value(json_object_get(event, "iter")) == 1)
            last = json_number_value(json_object_get(event, "data_error"));
    }
    /* the third stage starts where the first stopped, far below its own first iteration */
    assert_true(first > 0.0 && last > 0.0 && last < 1.3 * first);
    xpd_outcome_release(&o);
}

static void cancelled_job_keeps_its_last_iteration(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    f->cancel_at = 3;
    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 100000}}", true);
    o = execute(f);
    assert_string_equal(o.state, "cancelled");
    assert_string_equal(o.reason, "cancelled");
    assert_true(json_is_true(json_object_get(o.result, "partial")));
    assert_int_equal(json_integer_value(json_object_get(o.result, "iterations")), 3);
    assert_int_equal(access(f->path, R_OK), 0);
    xpd_outcome_release(&o);
}

static void job_cancelled_before_an_iteration_has_no_result(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 100}}", true);
    xpd_control_cancel(&f->control, false);
    o = execute(f);
    assert_string_equal(o.state, "cancelled");
    assert_null(o.result);
    assert_int_equal(access(f->path, F_OK), -1);
    xpd_outcome_release(&o);
}

static void abandoned_job_writes_nothing(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    f->cancel_at = 2;
    f->control.abandoned = true;
    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 1000}}", true);
    o = execute(f);
    assert_null(o.result);
    assert_int_equal(access(f->path, F_OK), -1);
    xpd_outcome_release(&o);
}

static void result_that_cannot_be_written_fails_the_job(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 1}}", true);
    free(f->work.output_path);
    f->work.output_path = strdup("/nonexistent/folder/r.h5");
    o = execute(f);
    assert_string_equal(o.state, "failed");
    assert_string_equal(o.reason, "output");
    assert_non_null(strstr(o.detail, "/nonexistent/folder/r.h5"));
    xpd_outcome_release(&o);
}

static void existing_file_is_not_replaced_unasked(void **state)
{
    fixture *f = *state;
    FILE *file = fopen(f->path, "w");
    xpd_outcome o;

    fclose(file);
    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 1}}", true);
    o = execute(f);
    assert_string_equal(o.reason, "output");
    xpd_outcome_release(&o);
}

static void preview_that_cannot_be_written_is_a_warning(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 2}}", true);
    free(f->work.folder);
    f->work.folder = strdup("/nonexistent/folder");
    o = execute(f);
    assert_string_equal(o.state, "succeeded");
    assert_true(count_events(f, "warning") >= 1);
    xpd_outcome_release(&o);
}

static void refusal_of_the_engine_names_the_member(void **state)
{
    fixture *f = *state;
    xpd_outcome o;
    const json_t *first;

    prepare(f, "{'scan': {'path': '/x'}, 'model': {'object_shape': [40, 40]}}", true);
    o = execute(f);
    assert_string_equal(o.state, "failed");
    assert_string_equal(o.reason, "refused");
    first = json_array_get(json_object_get(o.problem, "errors"), 0);
    assert_memory_equal(json_string_value(json_object_get(first, "pointer")), "/model/object", 13);
    xpd_outcome_release(&o);
}

/* Counts of 1e38 square to infinity in the sums: the run diverges at its first iteration. */
static void job_that_diverges_fails_and_says_so(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    for (size_t i = 0; i < sizeof f->s->frames / sizeof *f->s->frames; i++)
        f->s->frames[i] = i % 3 ? 3e38f : 0.0f;
    for (size_t i = 0; i < sizeof f->s->probe / sizeof *f->s->probe; i++)
        f->s->probe[i] = (xpe_c32){1e-19f, 0.0f};
    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 50}}", true);
    o = execute(f);
    assert_string_equal(o.state, "failed");
    assert_string_equal(o.reason, "diverged");
    assert_null(o.result);
    for (size_t i = 0; i < json_array_size(f->seen); i++) {
        const json_t *event = json_array_get(f->seen, i);

        if (strcmp(json_string_value(json_object_get(event, "type")), "iter") == 0)
            assert_true(json_is_null(json_object_get(event, "data_error")));
    }
    xpd_outcome_release(&o);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(job_succeeds_with_every_iteration_told_once),
        WITH_FIXTURE(last_preview_is_of_the_last_iteration),
        WITH_FIXTURE(stages_follow_each_other_and_their_errors_are_joined),
        WITH_FIXTURE(cancelled_job_keeps_its_last_iteration),
        WITH_FIXTURE(job_cancelled_before_an_iteration_has_no_result),
        WITH_FIXTURE(abandoned_job_writes_nothing),
        WITH_FIXTURE(result_that_cannot_be_written_fails_the_job),
        WITH_FIXTURE(existing_file_is_not_replaced_unasked),
        WITH_FIXTURE(preview_that_cannot_be_written_is_a_warning),
        WITH_FIXTURE(refusal_of_the_engine_names_the_member),
        WITH_FIXTURE(job_that_diverges_fails_and_says_so),
    };

    xpp_init();
    xpe_write_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
