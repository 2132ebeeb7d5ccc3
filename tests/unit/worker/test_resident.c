/* The worker as its broker sees it: messages over a socketpair, the worker on a thread of this
 * program. */
#include "scene.h"

#include "io/write/write.h"
#include "resident.h"

#include <poll.h>
#include <pthread.h>

#define ID "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"
#define OTHER "01KG7Q3N6W8Y2M4T6V8X0Z1A3D"

typedef struct fixture {
    char folder[64], path[96];
    scene *s;
    int broker, worker;
    pthread_t thread;
    int code;
    bool joined;
    int event_messages, iterations, last_iteration; /* of what was received */
    double first_message_s, last_message_s;
} fixture;

static void *serve(void *argument)
{
    fixture *f = argument;

    f->code = xpd_resident_main(f->worker, NULL);
    close(f->worker);
    return NULL;
}

static xpp_ipc_message receive(fixture *f)
{
    struct pollfd fd = {.fd = f->broker, .events = POLLIN};
    xpp_ipc_message message;

    assert_int_equal(poll(&fd, 1, 20000), 1);
    assert_int_equal(xpp_ipc_receive(f->broker, &message), XPP_IPC_OK);
    return message;
}

static int begin_worker(fixture *f)
{
    xpp_ipc_message hello;
    int fds[2];

    if (xpp_ipc_pair(fds) != 0)
        return -1;
    f->broker = fds[0];
    f->worker = fds[1];
    if (pthread_create(&f->thread, NULL, serve, f) != 0)
        return -1;
    hello = receive(f);
    assert_int_equal(hello.type, XPP_IPC_HELLO);
    assert_string_equal(json_string_value(json_object_get(hello.body, "program")),
                        "xptycho-worker");
    assert_true(json_array_size(json_object_get(hello.body, "devices")) >= 1);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(hello.body, "devices"), 0), "name")),
                        "cpu");
    xpp_ipc_message_release(&hello);
    return 0;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    strcpy(f->folder, "/tmp/xptychod-worker-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    snprintf(f->path, sizeof f->path, "%s/result.h5", f->folder);
    f->s = scene_make();
    *state = f;
    return begin_worker(f);
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", f->folder);
    if (f->broker >= 0)
        close(f->broker);
    if (!f->joined && pthread_join(f->thread, NULL) != 0)
        return -1;
    scene_free(f->s);
    free(f);
    return system(command);
}

static void join(fixture *f)
{
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    f->joined = true;
}

static void send_json(fixture *f, xpp_ipc_type type, json_t *body)
{
    assert_int_equal(xpp_ipc_send(f->broker, type, body, NULL, 0), XPP_IPC_OK);
    json_decref(body);
}

static void start(fixture *f, const char *job)
{
    int fds[XPP_IPC_FDS_MAX], count;
    json_t *scan = scene_message(f->s, true, fds, &count);
    json_t *body = json_pack("{s:s, s:i, s:o, s:o, s:{s:s, s:b}, s:s}", "id", ID, "attempt", 1,
                             "job", scene_job(job), "scan", scan, "output", "path", f->path,
                             "overwrite", 0, "folder", f->folder);

    assert_int_equal(xpp_ipc_send(f->broker, XPP_IPC_START, body, fds, count), XPP_IPC_OK);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    json_decref(body);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void take_events(fixture *f, const json_t *events)
{
    const json_t *event;
    size_t i;

    f->event_messages++;
    f->last_message_s = now();
    if (f->event_messages == 1)
        f->first_message_s = f->last_message_s;
    json_array_foreach (events, i, event)
        if (strcmp(json_string_value(json_object_get(event, "type")), "iter") == 0) {
            f->iterations++;
            assert_int_equal(json_integer_value(json_object_get(event, "iter")),
                             f->last_iteration + 1);
            f->last_iteration++;
        }
}

/* Events until DONE; the caller releases it.  cancel_at > 0: CANCEL once that many iterations are
 * seen. */
static xpp_ipc_message until_done(fixture *f, int cancel_at)
{
    for (;;) {
        xpp_ipc_message message = receive(f);

        assert_string_equal(json_string_value(json_object_get(message.body, "id")), ID);
        if (message.type == XPP_IPC_DONE)
            return message;
        assert_int_equal(message.type, XPP_IPC_EVENTS);
        take_events(f, json_object_get(message.body, "events"));
        xpp_ipc_message_release(&message);
        if (cancel_at && f->iterations >= cancel_at) {
            send_json(f, XPP_IPC_CANCEL, json_pack("{s:s}", "id", ID));
            cancel_at = 0;
        }
    }
}

static const char *text(const xpp_ipc_message *message, const char *key)
{
    const char *value = json_string_value(json_object_get(message->body, key));

    return value ? value : "(none)";
}

static void ping_is_answered_with_its_t(void **state)
{
    fixture *f = *state;
    xpp_ipc_message pong;
    const json_t *devices, *cpu;

    send_json(f, XPP_IPC_PING, json_pack("{s:i}", "t", 42));
    pong = receive(f);
    assert_int_equal(pong.type, XPP_IPC_PONG);
    assert_int_equal(json_integer_value(json_object_get(pong.body, "t")), 42);
    devices = json_object_get(pong.body, "devices");
    assert_int_equal(json_array_size(devices), 1); /* "cuda" is absent here and has no memory */
    cpu = json_array_get(devices, 0);
    assert_string_equal(json_string_value(json_object_get(cpu, "name")), "cpu");
    assert_true(json_integer_value(json_object_get(cpu, "bytes_free")) > 0);
    assert_true(json_integer_value(json_object_get(cpu, "bytes_total")) >=
                json_integer_value(json_object_get(cpu, "bytes_free")));
    xpp_ipc_message_release(&pong);
}

static void job_runs_and_no_iteration_is_lost(void **state)
{
    fixture *f = *state;
    xpp_ipc_message done;

    start(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 400}}");
    done = until_done(f, 0);
    assert_string_equal(text(&done, "state"), "succeeded");
    assert_int_equal(f->last_iteration, 400);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(done.body, "result"), "iterations")),
        400);
    assert_int_equal(access(f->path, R_OK), 0);
    /* twenty a second, and two that do not wait: the first and the last */
    assert_true(f->event_messages <= 20.0 * (f->last_message_s - f->first_message_s) + 2.0);
    assert_true(f->event_messages < 400);
    xpp_ipc_message_release(&done);
}

static void second_job_runs_in_the_same_worker(void **state)
{
    fixture *f = *state;

    for (int i = 0; i < 2; i++) {
        xpp_ipc_message done;

        f->last_iteration = 0;
        start(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 3}}");
        done = until_done(f, 0);
        assert_string_equal(text(&done, "state"), "succeeded");
        assert_int_equal(f->last_iteration, 3);
        xpp_ipc_message_release(&done);
        assert_int_equal(unlink(f->path), 0);
    }
}

static void cancel_ends_the_job_with_a_partial_result(void **state)
{
    fixture *f = *state;
    xpp_ipc_message done;

    start(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 100000}}");
    send_json(f, XPP_IPC_CANCEL, json_pack("{s:s}", "id", OTHER)); /* not this one */
    done = until_done(f, 5);
    assert_string_equal(text(&done, "state"), "cancelled");
    assert_string_equal(text(&done, "reason"), "cancelled");
    assert_true(json_is_true(json_object_get(json_object_get(done.body, "result"), "partial")));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(done.body, "result"), "iterations")),
        f->last_iteration);
    xpp_ipc_message_release(&done);
}

static void ping_is_answered_while_a_job_runs(void **state)
{
    fixture *f = *state;
    xpp_ipc_message message;

    start(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 100000}}");
    send_json(f, XPP_IPC_PING, json_pack("{s:i}", "t", 7));
    for (message = receive(f); message.type != XPP_IPC_PONG; message = receive(f))
        xpp_ipc_message_release(&message);
    xpp_ipc_message_release(&message);
    send_json(f, XPP_IPC_CANCEL, json_pack("{s:s}", "id", ID));
    for (message = receive(f); message.type != XPP_IPC_DONE; message = receive(f))
        xpp_ipc_message_release(&message);
    xpp_ipc_message_release(&message);
}

static void start_without_arrays_ends_as_failed(void **state)
{
    fixture *f = *state;
    xpp_ipc_message done;

    send_json(f, XPP_IPC_START,
              json_pack("{s:s, s:i, s:o, s:{}, s:{s:s}}", "id", ID, "attempt", 1, "job",
                        scene_job("{'scan': {'path': '/x'}}"), "scan", "output", "path", f->path));
    done = until_done(f, 0);
    assert_string_equal(text(&done, "state"), "failed");
    assert_string_equal(text(&done, "reason"), "internal");
    assert_true(json_is_null(json_object_get(done.body, "result")));
    xpp_ipc_message_release(&done);
    /* and the worker still works */
    start(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 2}}");
    done = until_done(f, 0);
    assert_string_equal(text(&done, "state"), "succeeded");
    xpp_ipc_message_release(&done);
}

static void quit_ends_the_worker_with_zero(void **state)
{
    fixture *f = *state;

    send_json(f, XPP_IPC_QUIT, json_object());
    join(f);
    assert_int_equal(f->code, 0);
}

static bool has_checkpoint(const fixture *f, int slot)
{
    char path[96];

    snprintf(path, sizeof path, "%s/checkpoint.%d", f->folder, slot);
    return access(path, F_OK) == 0;
}

/* Messages until the worker has closed the socket; the last event is copied to `last`. */
static void until_closed(fixture *f, json_t **last)
{
    for (;;) {
        struct pollfd fd = {.fd = f->broker, .events = POLLIN};
        xpp_ipc_message message;
        json_t *events;
        xpp_ipc_result result;

        assert_int_equal(poll(&fd, 1, 20000), 1);
        result = xpp_ipc_receive(f->broker, &message);
        if (result == XPP_IPC_CLOSED)
            return;
        assert_int_equal(result, XPP_IPC_OK);
        assert_int_equal(message.type, XPP_IPC_EVENTS); /* no `done`: the job is not done */
        events = json_object_get(message.body, "events");
        take_events(f, events);
        json_decref(*last);
        *last = json_incref(json_array_get(events, json_array_size(events) - 1));
        xpp_ipc_message_release(&message);
    }
}

static void quit_in_mid_run_keeps_a_checkpoint_from_which_the_next_worker_goes_on(void **state)
{
    fixture *f = *state;
    const char job[] =
        "{'scan': {'path': '/x'}, 'recon': {'iterations': 3000}, 'checkpoint_every_s': 3600}";
    xpp_ipc_message message;
    json_t *last = NULL;
    FILE *log;
    char path[96];
    int left_at;

    start(f, job);
    for (message = receive(f); f->iterations < 5; message = receive(f)) {
        take_events(f, json_object_get(message.body, "events"));
        xpp_ipc_message_release(&message);
    }
    take_events(f, json_object_get(message.body, "events"));
    xpp_ipc_message_release(&message);
    send_json(f, XPP_IPC_QUIT, json_object());
    until_closed(f, &last);
    join(f);
    close(f->broker);
    assert_int_equal(f->code, 0);
    assert_string_equal(json_string_value(json_object_get(last, "type")), "checkpoint");
    left_at = (int)json_integer_value(json_object_get(last, "iter"));
    assert_int_equal(left_at,
                     f->last_iteration); /* every iteration of the checkpoint was told before */
    assert_true(left_at < 3000);
    assert_true(has_checkpoint(f, 0));
    json_decref(last);

    snprintf(path, sizeof path, "%s/events.ndjson", f->folder);
    log = fopen(path, "w");
    fprintf(log, "{\"seq\":1,\"t\":\"\",\"type\":\"iter\",\"stage\":0,\"iter\":%d}\n", left_at);
    fclose(log);
    f->joined = false;
    assert_int_equal(begin_worker(f), 0);
    start(f, job);
    message = until_done(f, 0); /* goes on counting from left_at */
    assert_string_equal(text(&message, "state"), "succeeded");
    assert_int_equal(f->last_iteration, 3000);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(message.body, "result"), "iterations")),
        3000);
    assert_false(has_checkpoint(f, 0));
    xpp_ipc_message_release(&message);
}

static void quit_after_cancel_waits_for_no_checkpoint(void **state)
{
    fixture *f = *state;

    start(f,
          "{'scan': {'path': '/x'}, 'recon': {'iterations': 100000}, 'checkpoint_every_s': 3600}");
    send_json(f, XPP_IPC_CANCEL, json_pack("{s:s}", "id", ID));
    send_json(f, XPP_IPC_QUIT, json_object());
    join(f);
    assert_int_equal(f->code, 0);
    assert_false(has_checkpoint(f, 0));
}

static void closed_socket_ends_a_running_job_without_a_result(void **state)
{
    fixture *f = *state;
    xpp_ipc_message first;

    start(f, "{'scan': {'path': '/x'}, 'recon': {'iterations': 100000}}");
    first = receive(f);
    xpp_ipc_message_release(&first);
    close(f->broker);
    f->broker = -1;
    join(f);
    assert_int_equal(f->code, 0);
    assert_int_equal(access(f->path, F_OK), -1);
}

static void message_that_breaks_the_rules_ends_the_worker(void **state)
{
    fixture *f = *state;

    send_json(f, XPP_IPC_HELLO, json_object());
    join(f);
    assert_int_equal(f->code, 1);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(ping_is_answered_with_its_t),
        WITH_FIXTURE(job_runs_and_no_iteration_is_lost),
        WITH_FIXTURE(second_job_runs_in_the_same_worker),
        WITH_FIXTURE(cancel_ends_the_job_with_a_partial_result),
        WITH_FIXTURE(ping_is_answered_while_a_job_runs),
        WITH_FIXTURE(start_without_arrays_ends_as_failed),
        WITH_FIXTURE(quit_ends_the_worker_with_zero),
        WITH_FIXTURE(quit_in_mid_run_keeps_a_checkpoint_from_which_the_next_worker_goes_on),
        WITH_FIXTURE(quit_after_cancel_waits_for_no_checkpoint),
        WITH_FIXTURE(closed_socket_ends_a_running_job_without_a_result),
        WITH_FIXTURE(message_that_breaks_the_rules_ends_the_worker),
    };

    xpp_init();
    xpe_write_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
