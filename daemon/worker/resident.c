/* Three threads.  The control thread (the caller) owns the socket: it alone receives and sends. The
 * engine thread runs one job at a time.  The writer thread writes previews and results.  Engine and
 * writer speak to the control thread through the outbox and through `done`, and wake it by an
 * eventfd.
 *
 * The socket does not block: a broker that is slow to read fills `queue`, then the outbox, then the
 * engine waits; CANCEL and PING are still read meanwhile.
 *
 * QUIT (or SIGTERM) in the middle of a job lets it go on to the end of an iteration and writes a
 * checkpoint, within KEEP_S; no `done` is sent then, as the job is not done: the broker queues it
 * again.
 *
 * When the socket closes nobody will ask for the result again (the broker starts the job anew), so
 * the run is abandoned: cancelled, and no result is written over what a later attempt may write. */
#include "resident.h"

#include "execute.h"
#include "fault.h"
#include "outbox.h"

#include "io/write/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define KEEP_S 10 /* for the checkpoint of a job that is left; then the process ends without it */
#define LEAVE_S 5 /* for a cancelled iteration to end; then the process ends without it */

typedef struct resident {
    int socket, wake, signals;
    xpd_outbox *outbox;
    xpd_writer *writer;
    xpd_events events;
    pthread_t engine;

    /* shared with the engine thread */
    pthread_mutex_t lock; /* work, done, leave */
    pthread_cond_t changed;
    xpd_work *work; /* in hand; NULL = idle */
    xpd_control control;
    xpd_outcome outcome;
    bool done; /* outcome is set; the control thread sends it and clears both */
    bool leave;

    /* control thread only */
    char id[XPP_JOB_ID_SIZE]; /* of the job in hand, "" = none */
    bool quit;                /* leave now */
    double quit_at; /* xpd_now() at which a job that is being left is left as it is; 0 = none is */
    json_t *queue;  /* array of [type, body]: messages that the socket has not taken yet */
    int exit_code;
    xpe_device_info devices[XPP_DEVICES_MAX]; /* that it serves, said with `hello` */
    size_t device_count;
} resident;

/* --------------------------------------------------------------------------------- sending */

static bool queue_push(resident *r, xpp_ipc_type type, json_t *body)
{
    json_t *entry = body ? json_pack("[i,o]", (int)type, body) : NULL;

    return entry && json_array_append_new(r->queue, entry) == 0;
}

/* Sends what the socket takes; false when the connection is over. */
static bool queue_drain(resident *r)
{
    while (json_array_size(r->queue) > 0) {
        const json_t *entry = json_array_get(r->queue, 0);
        xpp_ipc_type type = (xpp_ipc_type)json_integer_value(json_array_get(entry, 0));
        xpp_ipc_result result = xpp_ipc_send(r->socket, type, json_array_get(entry, 1), NULL, 0);

        if (result == XPP_IPC_AGAIN)
            return true;
        if (result != XPP_IPC_OK)
            return false;
        json_array_remove(r->queue, 0);
    }
    return true;
}

static json_t *done_body(const char *id, const xpd_outcome *o)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:O?, s:O?, s:s?}", "id", id, "state", o->state,
                     "reason", o->reason, "detail", o->detail, "result", o->result, "problem",
                     o->problem, "lost", o->fatal ? o->lost : NULL);
}

static void push_done(resident *r)
{
    xpd_outcome outcome;
    xpd_work *work;
    bool done;

    pthread_mutex_lock(&r->lock);
    done = r->done;
    outcome = r->outcome;
    work = r->work;
    if (done) {
        r->outcome = (xpd_outcome){0};
        r->done = false;
        r->work = NULL;
    }
    pthread_mutex_unlock(&r->lock);
    if (!done)
        return;
    if (!outcome.left)
        queue_push(r, XPP_IPC_DONE, done_body(r->id, &outcome));
    r->id[0] = 0;
    r->quit = r->quit || outcome.fatal; /* after this message; the broker starts another */
    xpd_outcome_release(&outcome);
    xpd_work_release(work);
    free(work);
    malloc_trim(0); /* what a large job leaves free is not kept until the next one */
}

static bool is_done(resident *r)
{
    bool done;

    pthread_mutex_lock(&r->lock);
    done = r->done;
    pthread_mutex_unlock(&r->lock);
    return done;
}

/* Events in batches; after the last of a job, its end. */
static bool flush(resident *r)
{
    bool done =
        is_done(r); /* before the look into the outbox: what was emitted before it is in there */

    while (json_array_size(r->queue) == 0) {
        json_t *batch = xpd_outbox_take(r->outbox, xpd_now(), done);

        if (!batch)
            break;
        queue_push(r, XPP_IPC_EVENTS, json_pack("{s:s, s:o}", "id", r->id, "events", batch));
        if (!queue_drain(r))
            return false;
    }
    if (done && xpd_outbox_due(r->outbox, xpd_now()) < 0.0)
        push_done(r);
    return queue_drain(r);
}

/* Numbers up to the last device that is reached; NULL where none is. */
static json_t *reach_of(const xpe_device_info *d)
{
    size_t count = XPE_PEERS_MAX;

    while (count > 0 && !d->reach[count - 1])
        count--;
    json_t *list = count > 0 ? json_array() : NULL;
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(d->reach[i]));
    return list;
}

static json_t *hello_body(const resident *r)
{
    json_t *devices = json_array();

    for (size_t i = 0; i < r->device_count; i++) {
        const xpe_device_info *d = &r->devices[i];

        json_array_append_new(devices, json_pack("{s:s, s:s, s:s, s:I, s:I, s:i, s:o*}", "name",
                                                 d->name, "model", d->model, "absent", d->absent,
                                                 "bytes_total", (json_int_t)d->bytes_total,
                                                 "bytes_free", (json_int_t)d->bytes_free, "threads",
                                                 d->threads, "reach", reach_of(d)));
    }
    return json_pack("{s:s, s:s, s:s, s:i, s:o}", "program", "xptycho-worker", "version",
                     xpp_version(), "build", xpe_build_identity(), "pid", (int)getpid(), "devices",
                     devices);
}

/* The memory of the devices of now: others use them too. */
static json_t *pong_body(resident *r, json_t *t)
{
    json_t *devices = json_array();

    xpe_devices_memory(r->devices, r->device_count);
    for (size_t i = 0; i < r->device_count; i++) {
        const xpe_device_info *d = &r->devices[i];

        if (!d->absent[0])
            json_array_append_new(devices, json_pack("{s:s, s:I, s:I}", "name", d->name,
                                                     "bytes_total", (json_int_t)d->bytes_total,
                                                     "bytes_free", (json_int_t)d->bytes_free));
    }
    return json_pack("{s:O?, s:o, s:I}", "t", t, "devices", devices, "beat",
                     (json_int_t)xpd_beats());
}

/* ------------------------------------------------------------------------------- receiving */

static char *copy_text(const json_t *value)
{
    return json_is_string(value) ? strdup(json_string_value(value)) : NULL;
}

/* A job that cannot even be begun ends like one that failed. */
static void refuse(resident *r, const char *id, xpe_status st, const char *text)
{
    xpd_outcome outcome = {.state = "failed", .reason = xpd_reason_of(st)};

    snprintf(outcome.detail, sizeof outcome.detail, "%s", text);
    queue_push(r, XPP_IPC_DONE, done_body(id, &outcome));
}

static xpe_status work_read(xpd_work *work, xpp_ipc_message *message, xpe_error *err)
{
    const json_t *body = message->body, *output = json_object_get(body, "output");
    json_t *job = json_object_get(body, "job");
    json_t *errors = xpp_job_check(job);

    if (errors) {
        const json_t *first = json_array_get(errors, 0);

        xpe_fail(err, XPE_INTERNAL, "", "start message: the job is not valid: %s: %s",
                 json_string_value(json_object_get(first, "pointer")),
                 json_string_value(json_object_get(first, "detail")));
        json_decref(errors);
        return XPE_INTERNAL;
    }
    work->began = xpd_now();
    work->attempt = (int)json_integer_value(json_object_get(body, "attempt"));
    work->overwrite = json_is_true(json_object_get(output, "overwrite"));
    work->output_path = copy_text(json_object_get(output, "path"));
    work->owned = json_is_integer(json_object_get(output, "owner"));
    work->owner = json_integer_value(json_object_get(output, "owner"));
    work->folder = copy_text(json_object_get(body, "folder"));
    work->logged = work->folder != NULL;
    if (!work->output_path)
        return xpe_fail(err, XPE_INTERNAL, "", "start message: 'output.path' is missing");
    work->job = xpp_job_decode(job);
    if (!work->job)
        return xpe_fail(err, XPE_NO_MEMORY, "", "no memory for the job");
    if (work->job->checkpoint && work->folder)
        work->checkpoints = strdup(work->folder);
    return xpd_input_open(&work->input, work->job, json_object_get(body, "scan"), message->fds,
                          message->fd_count, err);
}

/* false when the message breaks the rules. */
static bool on_start(resident *r, xpp_ipc_message *message)
{
    const char *id = json_string_value(json_object_get(message->body, "id"));
    xpd_work *work;
    xpe_error err = {0};
    xpe_status st;

    if (!id || !xpp_job_id_valid(id) || r->id[0])
        return false;
    work = calloc(1, sizeof *work);
    st = work ? work_read(work, message, &err) : XPE_NO_MEMORY;
    if (st != XPE_OK) {
        refuse(r, id, st, err.text[0] ? err.text : "no memory for the job");
        if (work)
            xpd_work_release(work);
        free(work);
        return true;
    }
    strncpy(work->id, id, sizeof work->id - 1);
    memcpy(r->id, work->id, sizeof r->id);
    xpd_control_reset(&r->control);
    pthread_mutex_lock(&r->lock);
    r->work = work;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return true;
}

static void on_quit(resident *r)
{
    if (r->id[0] && !xpd_control_cancelled(&r->control)) {
        if (r->quit_at <= 0.0)
            r->quit_at = xpd_now() + KEEP_S;
        xpd_control_save(&r->control, true);
    } else {
        r->quit = true;
    }
}

static bool on_message(resident *r, xpp_ipc_message *message)
{
    const char *id = json_string_value(json_object_get(message->body, "id"));

    switch (message->type) {
    case XPP_IPC_START:
        return on_start(r, message);
    case XPP_IPC_CANCEL:
        /* another id: that job ended while the message was on its way */
        if (id && r->id[0] && strcmp(id, r->id) == 0)
            xpd_control_cancel(&r->control, false);
        return id != NULL;
    case XPP_IPC_PING:
        return queue_push(r, XPP_IPC_PONG, pong_body(r, json_object_get(message->body, "t")));
    case XPP_IPC_QUIT:
        on_quit(r);
        return true;
    default:
        return false;
    }
}

/* Reads until the socket is empty; false when the connection is over. */
static bool receive(resident *r)
{
    while (!r->quit) {
        xpp_ipc_message message;
        xpp_ipc_result result = xpp_ipc_receive(r->socket, &message);
        bool good;

        if (result == XPP_IPC_AGAIN)
            return true;
        if (result == XPP_IPC_CLOSED)
            return false;
        if (result != XPP_IPC_OK) {
            r->exit_code = XPD_EXIT_UNEXPECTED;
            return false;
        }
        good = on_message(r, &message);
        if (!good) {
            fprintf(stderr, "xptycho-worker: a message '%s' breaks the rules, leaving\n",
                    xpp_ipc_type_name(message.type));
            r->exit_code = XPD_EXIT_UNEXPECTED;
        }
        xpp_ipc_message_release(&message);
        if (!good)
            return false;
    }
    return true;
}

static int timeout_ms(resident *r)
{
    double now = xpd_now(), due = xpd_outbox_due(r->outbox, now);

    if (json_array_size(r->queue) > 0)
        due = -1.0; /* a full socket is waited for by POLLOUT */
    if (r->quit_at > 0.0) {
        double left = r->quit_at > now ? r->quit_at - now : 0.0;

        due = due < 0.0 || left < due ? left : due;
    }
    return due < 0.0 ? -1 : (int)(1000.0 * due) + 1;
}

/* A job that was to be left is: its last events are on their way, or its time is over. */
static bool is_left(const resident *r)
{
    return r->quit_at > 0.0 &&
           ((!r->id[0] && json_array_size(r->queue) == 0) || xpd_now() >= r->quit_at);
}

static void serve(resident *r)
{
    bool open = queue_push(r, XPP_IPC_HELLO, hello_body(r)) && queue_drain(r);

    while (open && !r->quit) {
        struct pollfd fds[3] = {{.fd = r->socket, .events = POLLIN},
                                {.fd = r->wake, .events = POLLIN},
                                {.fd = r->signals, .events = POLLIN}};
        struct signalfd_siginfo info;
        uint64_t count;

        if (json_array_size(r->queue) > 0)
            fds[0].events |= POLLOUT;
        if (poll(fds, 3, timeout_ms(r)) < 0 && errno != EINTR)
            break;
        if (fds[1].revents & POLLIN && read(r->wake, &count, sizeof count) < 0 && errno != EAGAIN)
            break;
        if (fds[0].revents & (POLLIN | POLLHUP | POLLERR))
            open = receive(r);
        if (fds[2].revents & POLLIN && read(r->signals, &info, sizeof info) == (ssize_t)sizeof info)
            on_quit(r);
        open = open && flush(r);
        r->quit = r->quit || is_left(r);
    }
}

/* ---------------------------------------------------------------------------------- engine */

static void *engine_main(void *argument)
{
    resident *r = argument;
    uint64_t one = 1;

    for (;;) {
        xpd_outcome outcome;
        const xpd_work *work;

        pthread_mutex_lock(&r->lock);
        while (!r->leave && (!r->work || r->done))
            pthread_cond_wait(&r->changed, &r->lock);
        work = r->leave ? NULL : r->work;
        pthread_mutex_unlock(&r->lock);
        if (!work)
            return NULL;
        xpd_work_execute(&outcome, work, &r->control, r->writer, &r->events);
        /* over and done with; where it is not, or on a lost device, somebody may go on from them */
        if (work->checkpoints && !outcome.left && !outcome.fatal &&
            !xpd_control_abandoned(&r->control))
            xpe_checkpoint_remove(work->checkpoints);
        pthread_mutex_lock(&r->lock);
        r->outcome = outcome;
        r->done = true;
        pthread_mutex_unlock(&r->lock);
        if (write(r->wake, &one, sizeof one) != sizeof one)
            continue; /* the counter is full: the control thread is awake already */
    }
}

static void engine_stop(resident *r)
{
    struct timespec until;

    xpd_outbox_close(r->outbox);
    xpd_control_cancel(&r->control, true);
    pthread_mutex_lock(&r->lock);
    r->leave = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LEAVE_S;
    if (pthread_clockjoin_np(r->engine, NULL, CLOCK_MONOTONIC, &until) != 0)
        _exit(XPD_EXIT_UNEXPECTED);
}

/* Every device, or those of a list with commas between, in this order. */
static bool devices_find(resident *r, const char *list)
{
    char names[XPP_DEVICES_MAX][32];
    const char *at[XPP_DEVICES_MAX];

    if (!list) {
        r->device_count = xpe_devices_list(r->devices, XPP_DEVICES_MAX);
        if (r->device_count > XPP_DEVICES_MAX)
            r->device_count = XPP_DEVICES_MAX;
        xpe_devices_links(r->devices, r->device_count);
        return true;
    }
    while (*list && r->device_count < XPP_DEVICES_MAX) {
        size_t length = strcspn(list, ",");

        if (length == 0 || length >= sizeof names[0])
            return false;
        memcpy(names[r->device_count], list, length);
        names[r->device_count][length] = 0;
        at[r->device_count] = names[r->device_count];
        r->device_count++;
        list += length + (list[length] == ',');
    }
    xpe_devices_look(r->devices, at, r->device_count);
    xpe_devices_links(r->devices, r->device_count);
    return r->device_count > 0 && !*list;
}

static bool resident_init(resident *r, int socket, const char *devices)
{
    int flags = fcntl(socket, F_GETFL);
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    *r = (resident){.socket = socket,
                    .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                    .signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    xpd_control_init(&r->control);
    if (!devices_find(r, devices))
        return false;
    r->queue = json_array();
    r->outbox = r->wake >= 0 ? xpd_outbox_create(r->wake) : NULL;
    r->writer = xpd_writer_create();
    if (!r->queue || !r->outbox || !r->writer || r->signals < 0 || flags < 0 ||
        fcntl(socket, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(socket, F_SETFD, FD_CLOEXEC) != 0)
        return false;
    r->events = xpd_outbox_events(r->outbox);
    return pthread_create(&r->engine, NULL, engine_main, r) == 0;
}

int xpd_resident_main(int socket, const char *devices)
{
    resident r;

    /* the broker's end must be ours: a job that runs on without it would be run twice */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of write */
    signal(SIGINT, SIG_IGN);  /* of a terminal the broker was started on; the broker decides */
    if (!resident_init(&r, socket, devices)) {
        fprintf(stderr, "xptycho-worker: cannot serve descriptor %d with the devices '%s'\n",
                socket, devices ? devices : "all");
        return XPD_EXIT_UNEXPECTED;
    }
    serve(&r);
    engine_stop(&r);
    push_done(&r);
    if (r.work) /* the engine was told to leave before it took it */
        xpd_work_release(r.work);
    free(r.work);
    xpd_writer_destroy(r.writer);
    xpd_outbox_destroy(r.outbox);
    json_decref(r.queue);
    xpd_control_release(&r.control);
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.lock);
    close(r.wake);
    close(r.signals);
    return r.exit_code;
}
