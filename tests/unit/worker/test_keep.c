/* Jobs that are left and taken up: what they compute, what they tell, and when they keep a
 * checkpoint. */
#include "scene.h"

#include "execute.h"
#include "io/write/write.h"
#include "keep.h"

#include <sys/stat.h>

#define ID "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"

enum act { NOTHING, SAVE, LEAVE };

typedef struct fixture {
    char folder[64], path[96], log[96];
    scene *s;
    xpd_work work;
    xpd_control control;
    xpd_writer *writer;
    pthread_mutex_t lock;
    json_t *seen; /* events in order */
    enum act act; /* after iteration act_at of stage act_stage */
    int act_stage, act_at;
    xpd_events events;
} fixture;

static bool is(const json_t *event, const char *type)
{
    return strcmp(json_string_value(json_object_get(event, "type")), type) == 0;
}

static int member(const json_t *event, const char *name)
{
    return (int)json_integer_value(json_object_get(event, name));
}

static void on_event(void *context, json_t *event)
{
    fixture *f = context;

    if (f->act != NOTHING && is(event, "iter") && member(event, "stage") == f->act_stage &&
        member(event, "iter") == f->act_at)
        xpd_control_save(&f->control, f->act == LEAVE);
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
    snprintf(f->log, sizeof f->log, "%s/events.ndjson", f->folder);
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

/* The job of a service, with its log and checkpoints in the folder. */
static void prepare(fixture *f, const char *job, bool known)
{
    int fds[XPP_IPC_FDS_MAX], count;
    json_t *doc = scene_job(job), *message = scene_message(f->s, known, fds, &count);
    xpe_error err = {0};

    xpd_work_release(&f->work);
    xpd_control_reset(&f->control);
    json_array_clear(f->seen);
    f->act = NOTHING;
    strcpy(f->work.id, ID);
    f->work.began = xpd_now();
    f->work.job = xpp_job_decode(doc);
    f->work.output_path = strdup(f->path);
    f->work.overwrite = true;
    f->work.folder = strdup(f->folder);
    f->work.checkpoints = strdup(f->folder);
    f->work.logged = true;
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

static void succeed(fixture *f)
{
    xpd_outcome o = execute(f);

    if (strcmp(o.state, "succeeded") != 0)
        fail_msg("%s: %s", o.reason, o.detail);
    assert_false(o.left);
    xpd_outcome_release(&o);
}

static void leave(fixture *f, int stage, int iteration)
{
    xpd_outcome o;

    f->act = LEAVE;
    f->act_stage = stage;
    f->act_at = iteration;
    o = execute(f);
    assert_true(o.left);
    assert_true(o.kept);
    assert_string_equal(o.state, "cancelled");
    assert_null(o.result);
    xpd_outcome_release(&o);
}

/* The iterations told, as a new array of {stage, iter, data_error, modes}; also the log of a
 * service. */
static json_t *told(const fixture *f)
{
    json_t *out = json_array(), *event;
    size_t i;

    json_array_foreach (f->seen, i, event)
        if (is(event, "iter"))
            json_array_append_new(out, json_pack("{s:O, s:O, s:O, s:O}", "stage",
                                                 json_object_get(event, "stage"), "iter",
                                                 json_object_get(event, "iter"), "data_error",
                                                 json_object_get(event, "data_error"), "modes",
                                                 json_object_get(event, "modes")));
    return out;
}

static const json_t *first_of(const fixture *f, const char *type)
{
    const json_t *event;
    size_t i;

    json_array_foreach (f->seen, i, event)
        if (is(event, type))
            return event;
    return NULL;
}

static int count_of(const fixture *f, const char *type)
{
    const json_t *event;
    int count = 0;
    size_t i;

    json_array_foreach (f->seen, i, event)
        count += is(event, type);
    return count;
}

/* The first `lines` events into the log, as a broker writes them, and a torn one. */
static void write_log(const fixture *f, size_t lines)
{
    FILE *file = fopen(f->log, "w");

    for (size_t i = 0; i < lines && i < json_array_size(f->seen); i++) {
        const json_t *event = json_array_get(f->seen, i);
        char *line = xpp_event_line((int64_t)i + 1, 0,
                                    json_string_value(json_object_get(event, "type")), event);

        fputs(line, file);
        free(line);
    }
    fputs("{\"seq\":999,\"type\":\"iter\",\"stage\":0,\"it", file);
    fclose(file);
}

static size_t lines_until(const fixture *f, int stage, int iteration)
{
    const json_t *event;
    size_t i;

    json_array_foreach (f->seen, i, event)
        if (is(event, "iter") && member(event, "stage") == stage &&
            member(event, "iter") == iteration)
            return i + 1;
    return 0;
}

static const char stages[] = "{'scan': {'path': '/x'}, 'model': {'probe_modes': 2}, "
                             "'checkpoint_every_s': 3600, 'recon': [{'iterations': 6, "
                             "'mode_schedule': [3]}, {'algorithm': 'refine_positions'}, "
                             "{'iterations': 7, 'report_every': 2}]}";

static void job_that_was_left_tells_the_rest_with_equal_values(void **state)
{
    fixture *f = *state;
    const int places[][2] = {{0, 1}, {0, 2}, {0, 4}, {2, 1}, {2, 4}};
    json_t *all, *before, *after;

    prepare(f, stages, false);
    succeed(f);
    all = told(f);
    assert_int_equal(json_array_size(all), 14);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const json_t *resumed;

        prepare(f, stages, false);
        leave(f, places[i][0], places[i][1]);
        before = told(f);
        write_log(f, json_array_size(f->seen));
        prepare(f, stages, false);
        succeed(f);
        after = told(f);
        resumed = first_of(f, "resumed");
        assert_non_null(resumed);
        /* one more iteration than when it was asked: the one that was held */
        assert_int_equal(member(resumed, "stage"), places[i][0]);
        assert_int_equal(member(resumed, "from_iter"), places[i][1] + 1);
        assert_int_equal(count_of(f, "warning"), 0);
        json_array_extend(before, after);
        assert_true(json_equal(all, before));
        json_decref(before);
        json_decref(after);
        xpe_checkpoint_remove(f->folder);
    }
    json_decref(all);
}

static void iterations_that_the_log_lost_are_told_again(void **state)
{
    fixture *f = *state;
    const int last[][3] = {
        {0, 3, 3}, {0, 6, 6}, {1, 1, 7}, {2, 1, 8}, {-1, 0, 0}}; /* stage, iteration, index */
    json_t *all;

    prepare(f, stages, false);
    succeed(f);
    all = told(f);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        json_t *after, *rest = json_array();

        prepare(f, stages, false);
        leave(f, 2, 3);
        write_log(f, lines_until(f, last[i][0], last[i][1]));
        if (last[i][0] < 0)
            assert_int_equal(unlink(f->log), 0);
        prepare(f, stages, false);
        succeed(f);
        after = told(f);
        assert_int_equal(member(first_of(f, "resumed"), "stage"), last[i][0] < 0 ? 0 : last[i][0]);
        assert_int_equal(member(first_of(f, "resumed"), "from_iter"), last[i][1]);
        for (size_t k = (size_t)last[i][2]; k < json_array_size(all); k++)
            json_array_append(rest, json_array_get(all, k));
        assert_true(json_equal(rest, after));
        json_decref(rest);
        json_decref(after);
        xpe_checkpoint_remove(f->folder);
    }
    json_decref(all);
}

/* A killed worker's log is ahead of its last checkpoint. */
static void log_that_is_ahead_goes_back_to_the_checkpoint(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, stages, false);
    f->act = SAVE;
    f->act_at = 2;
    f->act_stage = 0;
    o = execute(f);
    xpd_outcome_release(&o);
    assert_int_equal(count_of(f, "checkpoint"), 1);
    write_log(f, lines_until(f, 0, 5));
    prepare(f, stages, false);
    succeed(f);
    assert_int_equal(member(first_of(f, "resumed"), "from_iter"), 3);
    assert_int_equal(member(first_of(f, "iter"), "iter"), 4);
}

static void resumed_comes_before_running_and_what_is_told_again(void **state)
{
    fixture *f = *state;
    size_t i, at = 0;
    const json_t *event;
    const char *order[] = {"resumed", "state", "iter"};

    prepare(f, stages, false);
    leave(f, 0, 3);
    unlink(f->log);
    prepare(f, stages, false);
    succeed(f);
    json_array_foreach (f->seen, i, event)
        if (at < 3 && is(event, order[at]))
            at++;
        else if (at < 3)
            assert_true(is(event, "log"));
    assert_int_equal(at, 3);
    assert_int_equal(count_of(f, "state"), 1);
}

static void checkpoint_asked_for_is_one(void **state)
{
    fixture *f = *state;
    const json_t *event;
    struct stat s;
    char path[96];

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 9}, 'checkpoint_every_s': 3600}",
            true);
    f->act = SAVE;
    f->act_at = 4;
    succeed(f);
    assert_int_equal(count_of(f, "checkpoint"), 1);
    event = first_of(f, "checkpoint");
    assert_int_equal(member(event, "iter"), 5);
    assert_int_equal(member(event, "stage"), 0);
    assert_true(json_number_value(json_object_get(event, "seconds")) >= 0.0);
    snprintf(path, sizeof path, "%s/checkpoint.0", f->folder);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_size, member(event, "bytes"));
}

static void every_iteration_but_the_last_is_kept_with_zero_seconds(void **state)
{
    fixture *f = *state;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 9}, 'checkpoint_every_s': 0}",
            true);
    succeed(f);
    assert_int_equal(count_of(f, "checkpoint"), 8);
}

static void short_job_keeps_none_by_itself(void **state)
{
    fixture *f = *state;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 9}}", true);
    succeed(f);
    assert_int_equal(count_of(f, "checkpoint"), 0);
}

static void job_without_checkpoints_leaves_at_once(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 100000}}", true);
    free(f->work.checkpoints);
    f->work.checkpoints = NULL;
    f->act = LEAVE;
    f->act_at = 2;
    o = execute(f);
    assert_true(o.left);
    assert_false(o.kept);
    assert_int_equal(access(f->path, F_OK), -1);
    xpd_outcome_release(&o);
}

/* One warning, then a pause: a full disk is not asked after every iteration. */
static void checkpoint_that_cannot_be_written_is_a_warning(void **state)
{
    fixture *f = *state;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 9}, 'checkpoint_every_s': 0}",
            true);
    free(f->work.checkpoints);
    f->work.checkpoints = strdup("/nonexistent/folder");
    succeed(f);
    assert_int_equal(count_of(f, "checkpoint"), 0);
    assert_int_equal(count_of(f, "warning"), 1);
    assert_non_null(
        strstr(json_string_value(json_object_get(first_of(f, "warning"), "text")), "errno 2"));
}

static void whoever_must_leave_does_so_without_a_checkpoint_too(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 100000}}", true);
    free(f->work.checkpoints);
    f->work.checkpoints = strdup("/nonexistent/folder");
    f->act = LEAVE;
    f->act_at = 2;
    o = execute(f);
    assert_true(o.left);
    assert_false(o.kept);
    xpd_outcome_release(&o);
}

/* Right name and hash, but no state of a run inside. */
static void state_that_the_engine_refuses_begins_the_job_anew(void **state)
{
    fixture *f = *state;
    xpe_checkpoint_record record = {0.5, 1.0f, 1};
    xpe_checkpoint_writer *w;
    xpd_devices devices;
    xpd_keep keep;
    int64_t bytes;
    xpe_error err = {0};

    prepare(f, stages, false);
    assert_int_equal(xpd_devices_choose(&devices, f->work.job, &err), XPE_OK);
    assert_int_equal(xpd_keep_open(&keep, &f->work, &devices, &f->events, &err), XPE_OK);
    keep.head.iteration = 1;
    keep.head.record_count = 1;
    keep.head.records = &record;
    keep.head.grid = (xpe_grid){4, 4, {0, 0}, 1};
    assert_int_equal(xpe_checkpoint_begin(&w, f->folder, 0, &keep.head, 1000, &err), XPE_OK);
    assert_int_equal(xpe_checkpoint_put(w, f->s->frames, 1000, &err), XPE_OK);
    assert_int_equal(xpe_checkpoint_finish(w, &bytes, &err), XPE_OK);
    xpe_checkpoint_writer_destroy(w);
    xpd_keep_close(&keep);
    succeed(f);
    assert_null(first_of(f, "resumed"));
    assert_int_equal(count_of(f, "iter"), 14);
    assert_non_null(
        strstr(json_string_value(json_object_get(first_of(f, "warning"), "text")), "begins anew"));
}

static void job_cancelled_as_it_is_taken_up_keeps_the_iterations_before(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, stages, false);
    leave(f, 2, 3);
    prepare(f, stages, false);
    xpd_control_cancel(&f->control, false);
    o = execute(f);
    assert_string_equal(o.state, "cancelled");
    assert_int_equal(member(o.result, "iterations"), 11);
    assert_int_equal(member(o.result, "probe_modes"), 2);
    assert_true(json_is_true(json_object_get(o.result, "partial")));
    xpd_outcome_release(&o);
}

static void other_job_other_data_or_other_settings_begin_anew(void **state)
{
    fixture *f = *state;
    xpd_outcome o;

    prepare(f, stages, false);
    leave(f, 0, 3);
    prepare(f, stages, false);
    f->work.id[25]++;
    succeed(f);
    assert_null(first_of(f, "resumed"));
    prepare(f, stages, false);
    f->work.input.sha256[0]++;
    succeed(f);
    assert_null(first_of(f, "resumed"));
    /* in a folder that a person named, that is refused instead */
    prepare(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 9}}", false);
    f->work.logged = false;
    o = execute(f);
    assert_string_equal(o.state, "failed");
    assert_string_equal(o.reason, "refused");
    assert_non_null(strstr(o.detail, "checkpoints of another job"));
    xpd_outcome_release(&o);
    /* devices, names and places are no other job */
    prepare(f,
            "{'scan': {'path': '/x'}, 'name': 'n', 'model': {'probe_modes': 2}, 'devices': "
            "{'devices': ['cpu', 'cpu'], 'cpu_threads': 1}, "
            "'preview_every_s': 7, 'recon': [{'iterations': 6, 'mode_schedule': [3]}, "
            "{'algorithm': 'refine_positions'}, {'iterations': 7, "
            "'report_every': 2}]}",
            false);
    succeed(f);
    assert_non_null(first_of(f, "resumed"));
}

/* --------------------------------------------------------------------------------------- when */

static void checkpoints_take_a_twentieth_of_the_time_at_most(void **state)
{
    fixture *f = *state;
    xpd_keep keep = {.work = &f->work,
                     .folder = "/x",
                     .saved_at = xpd_now(),
                     .usual = 2.0,
                     .cost = 4.0,
                     .begun = true};
    xpe_report report = {.iteration = 1, .seconds = 2.5};

    prepare(f, "{'scan': {'path': '/x'}}", true);
    /* 4 s of writing, and of the held step and the one after 1.5 s more than two others take */
    assert_true(xpd_keep_note(&keep, &report, true));
    report.seconds = 3.0;
    assert_true(xpd_keep_note(&keep, &report, false));
    assert_close(keep.cost, 5.5, 1e-9);
    assert_close(keep.due - keep.saved_at, 110.0, 1e-6);
    assert_false(xpd_keep_due(&keep, false));
    assert_true(xpd_keep_due(&keep, true));
    keep.due = xpd_now();
    assert_true(xpd_keep_due(&keep, false));
    free(keep.records);
}

static void cheap_checkpoints_are_thirty_seconds_apart(void **state)
{
    fixture *f = *state;
    xpd_keep keep = {.work = &f->work,
                     .folder = "/x",
                     .saved_at = 1000.0,
                     .usual = 2.0,
                     .cost = 0.1,
                     .begun = true,
                     .owed = true,
                     .held = 2.0};
    xpe_report report = {.iteration = 1, .seconds = 2.0};

    prepare(f, "{'scan': {'path': '/x'}}", true);
    assert_true(xpd_keep_note(&keep, &report, false));
    assert_close(keep.due, 1030.0, 1e-6);
    free(keep.records);
}

static void first_checkpoint_of_a_large_run_is_put_off(void **state)
{
    fixture *f = *state;
    xpe_grid large = {20000, 20000, {0, 0}, 1};
    xpd_keep keep = {.work = &f->work, .folder = "/x"};
    double now = xpd_now();

    prepare(f, "{'scan': {'path': '/x'}}", true);
    keep.head.num_frames = 10000;
    keep.head.n = 256;
    xpd_keep_stage(&keep, &large, true);
    assert_true(keep.due - now > 1000.0);
    /* a job that says how often is obeyed */
    prepare(f, "{'scan': {'path': '/x'}, 'checkpoint_every_s': 12}", true);
    keep.begun = false;
    now = xpd_now();
    xpd_keep_stage(&keep, &large, true);
    assert_close(keep.due - now, 12.0, 1.0);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(job_that_was_left_tells_the_rest_with_equal_values),
        WITH_FIXTURE(iterations_that_the_log_lost_are_told_again),
        WITH_FIXTURE(log_that_is_ahead_goes_back_to_the_checkpoint),
        WITH_FIXTURE(resumed_comes_before_running_and_what_is_told_again),
        WITH_FIXTURE(checkpoint_asked_for_is_one),
        WITH_FIXTURE(every_iteration_but_the_last_is_kept_with_zero_seconds),
        WITH_FIXTURE(short_job_keeps_none_by_itself),
        WITH_FIXTURE(job_without_checkpoints_leaves_at_once),
        WITH_FIXTURE(checkpoint_that_cannot_be_written_is_a_warning),
        WITH_FIXTURE(whoever_must_leave_does_so_without_a_checkpoint_too),
        WITH_FIXTURE(state_that_the_engine_refuses_begins_the_job_anew),
        WITH_FIXTURE(job_cancelled_as_it_is_taken_up_keeps_the_iterations_before),
        WITH_FIXTURE(other_job_other_data_or_other_settings_begin_anew),
        WITH_FIXTURE(checkpoints_take_a_twentieth_of_the_time_at_most),
        WITH_FIXTURE(cheap_checkpoints_are_thirty_seconds_apart),
        WITH_FIXTURE(first_checkpoint_of_a_large_run_is_put_off),
    };

    xpp_init();
    xpe_write_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
