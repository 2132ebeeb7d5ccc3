/* See run.h. */
#include "run_own.h"

#include "assign.h"
#include "dispatch.h"
#include "life.h"
#include "log.h"
#include "memory.h"
#include "output.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_WAIT_MS 60000           /* for a worker that starts; then the job waits again */
#define BUSY_FIRST_MS ((int64_t)1000) /* between looks at a scan that is being written */
#define BUSY_MOST_MS ((int64_t)60000)

xpd_job *xpd_run_job(const xpd_worker *w)
{
    return w->run ? w->run->job : NULL;
}

bool xpd_run_uses(const xpd_worker *w, const char *device)
{
    for (int i = 0; w->run && i < w->run->choice.count; i++) {
        if (strcmp(w->run->choice.names[i], device) == 0)
            return true;
    }
    return false;
}

int xpd_runs(const xpd_broker *b)
{
    int count = 0;
    for (int i = 0; i < b->worker_count; i++)
        count += b->workers[i]->run != NULL;
    return count;
}

static xpd_run *run_of(const xpd_broker *b, const xpd_job *job)
{
    for (int i = 0; i < b->worker_count; i++) {
        if (xpd_run_job(b->workers[i]) == job)
            return b->workers[i]->run;
    }
    return NULL;
}

/* --------------------------------------------------------------------------------------- end */

static void run_free(xpd_run *run)
{
    xpd_timer_cancel(&run->deadline);
    xpd_timer_cancel(&run->grace);
    xpd_timer_cancel(&run->patience);
    if (run->waiting)
        xpp_ipc_message_release(&run->scan);
    xpd_reading_abandon(run->reading);
    xpp_job_free(run->decoded);
    json_decref(run->resolved);
    xpd_job_unref(run->job);
    free(run);
}

void xpd_run_leave(xpd_run *run, xpd_state state, const char *reason, const char *detail)
{
    xpd_broker *b = run->b;
    xpd_job *job = run->job;

    run->w->run = NULL;
    xpd_worker_ask(run->w); /* its memory is free again */
    job->active = false;
    xpd_dispatch_learn(b, job, xpd_worker_threads(run->w, job->cpu_threads),
                       state == XPD_JOB_SUCCEEDED && !run->resumed);
    xpd_job_move(b, job, state, reason, detail);
    xpd_job_log_rest(job);
    run_free(run);
    xpd_dispatch_due(b);
    xpd_jobs_prune(b);
    /* the next one starts at the end of the loop's turn: not here, where a queue of bad jobs would
     * nest as deep as it is long */
}

void xpd_run_leave_stopped(xpd_run *run)
{
    char detail[256];

    switch (run->stop) {
    case XPD_STOP_DEADLINE:
        snprintf(detail, sizeof detail, "not finished %.12g s after its start%s%s%s", run->limit_s,
                 run->class_limit ? ", the most that a job of class " : "",
                 run->class_limit ? xpd_class_name(run->job->class) : "",
                 run->class_limit ? " may run here" : "");
        xpd_run_leave(run, XPD_JOB_FAILED, "deadline", detail);
        break;
    case XPD_STOP_SHUTDOWN:
        xpd_run_leave(run, XPD_JOB_QUEUED, "shutdown",
                      run->b->stopping ? "the service stopped while the job ran"
                                       : "the service was drained while the job ran");
        break;
    case XPD_STOP_YIELD:
        run->job->yielded++;
        xpd_run_leave(run, XPD_JOB_QUEUED, "preempted",
                      "it made room for a live job and goes on later");
        break;
    case XPD_STOP_CANCEL:
    case XPD_GO_ON:
        snprintf(detail, sizeof detail, "cancelled by %s", run->by);
        xpd_run_leave(run, XPD_JOB_CANCELLED, "cancelled", detail);
        break;
    }
}

static void leave_error(xpd_run *run, xpd_error *err)
{
    xpd_run_leave(run, XPD_JOB_FAILED, xpd_reason_of_fault(err->fault), err->text);
    xpd_error_release(err);
}

/* ------------------------------------------------------------------------------------- start */

static const char *output_path(const xpd_run *run, char *own, size_t size)
{
    xpd_print(own, size, "%s/%s.h5", run->b->results_dir, run->job->id);
    return run->decoded->output_path ? run->decoded->output_path : own;
}

/* The document for the worker: the devices chosen here, and no more threads than configured. */
static json_t *worker_job(const xpd_run *run)
{
    json_t *job = json_deep_copy(run->resolved), *devices = json_object();
    int64_t limit = run->b->config.worker_cpu_threads, threads = run->decoded->devices.cpu_threads;

    if (limit > 0 && (threads == 0 || threads > limit))
        threads = limit;
    json_object_set_new(devices, "devices", xpd_choice_names(&run->choice));
    if (threads > 0)
        json_object_set_new(devices, "cpu_threads", json_integer(threads));
    json_object_set_new(job, "devices", devices);
    return job;
}

static bool send_start(xpd_run *run, xpp_ipc_message *scan)
{
    char own[PATH_MAX], folder[PATH_MAX];
    const char *path = output_path(run, own, sizeof own);
    bool overwrite = !run->decoded->output_path || run->decoded->output_overwrite;

    xpd_job_path(folder, sizeof folder, run->b, run->job->id, "");
    json_t *body = json_pack("{s:s, s:I, s:o, s:O, s:{s:s, s:b, s:I}, s:s}", "id", run->job->id,
                             "attempt", (json_int_t)run->job->attempts + 1, "job", worker_job(run),
                             "scan", scan->body, "output", "path", path, "overwrite", overwrite,
                             "owner", (json_int_t)run->job->uid, "folder", folder);
    bool sent =
        body && xpd_child_send(&run->w->child, XPP_IPC_START, body, scan->fds, scan->fd_count);
    json_decref(body);
    return sent;
}

/* What it needs may not have been known before, or be another scan's by now. */
static bool admit(xpd_run *run, const xpp_ipc_message *scan, int positions, xpd_error *err)
{
    xpd_room room;

    xpd_memory_room(run->b, run->decoded, scan->body, &room);
    xpd_output_note(run->job, scan->body);
    return xpd_admit(&run->job->needs, &run->choice, xpd_workers_devices(run->b), &room,
                     run->decoded, scan->body, scan->fds[positions], NULL, err);
}

/* The scan is being written: back to the queue, to look again in a while.  Half as often the longer
 * it takes, since each look makes two events. */
static bool waits_for_file(xpd_run *run, const json_t *problem)
{
    const char *detail = json_string_value(json_object_get(problem, "detail"));
    xpd_job *job = run->job;
    bool first = !run->repeated;
    int64_t now = xpd_now_ms(), waited;

    if (xpd_fault_of_problem(problem) != XPP_FAULT_DATASET_BUSY || run->stop != XPD_GO_ON)
        return false;
    if (job->busy_ms == 0)
        job->busy_ms = now;
    waited = now - job->busy_ms;
    if (waited >= run->b->config.dataset_wait_s * 1000)
        return false;
    job->retry_ms = now + (waited / 4 < BUSY_FIRST_MS  ? BUSY_FIRST_MS
                           : waited / 4 > BUSY_MOST_MS ? BUSY_MOST_MS
                                                       : waited / 4);
    xpd_run_leave(run, XPD_JOB_QUEUED, "dataset-busy", detail ? detail : "");
    if (first)
        job->started_ms = 0; /* nothing was done yet that could be repeated */
    return true;
}

/* Whether the memory that it needs is free on all its sets. */
static bool memory_now(const xpd_run *run, bool host, char *text, size_t size)
{
    for (int i = 0; i < run->b->worker_count; i++) {
        if ((run->w->group & ((uint64_t)1 << i)) &&
            !xpd_memory_now(run->b->workers[i], run->job, host && i == run->w->index, text, size))
            return false;
    }
    return true;
}

/* To the worker, which is there. */
static void hand_over(xpd_run *run, xpp_ipc_message *scan)
{
    xpd_error err = XPD_ERROR_INIT;
    bool known = run->job->needs.known; /* the scheduler looked before it started the job */
    int positions = xpd_scan_array(scan->body, "positions");
    char text[256];

    xpd_choice_refresh(&run->choice, xpd_workers_devices(run->b)); /* as asked for at the start */
    if (positions < 0) {
        xpd_run_leave(run, XPD_JOB_FAILED, "internal", "the reader gave no positions");
    } else if (!xpd_output_allowed(run->b, run->job->uid, run->job, run->decoded->output_path,
                                   scan->body, &err) ||
               !admit(run, scan, positions, &err)) {
        leave_error(run, &err);
    } else if (!memory_now(run, !known, text, sizeof text)) {
        xpd_run_leave(run, XPD_JOB_QUEUED, "memory", text);
    } else if (!send_start(run, scan)) {
        xpd_child_signal(&run->w->child, SIGKILL);
        xpd_run_leave(run, XPD_JOB_QUEUED, "", "the worker did not take the job and is replaced");
    } else {
        xpd_pace_start(&run->pace, xpd_now_ms());
    }
}

static void on_scan(void *context, xpp_ipc_message *scan, json_t *problem)
{
    xpd_run *run = context;

    run->reading = NULL;
    if (!problem) {
        run->job->busy_ms = 0;
        run->job->frames = json_integer_value(json_object_get(scan->body, "frames"));
        run->job->side = json_integer_value(json_object_get(scan->body, "frame_side"));
    }
    if (problem && waits_for_file(run, problem)) {
        json_decref(problem);
        return;
    }
    if (problem) {
        const char *detail = json_string_value(json_object_get(problem, "detail"));
        xpd_run_leave(run, XPD_JOB_FAILED, xpd_reason_of_fault(xpd_fault_of_problem(problem)),
                      detail ? detail : "the reader refused the scan");
        json_decref(problem);
        return;
    }
    if (run->w->ready) {
        hand_over(run, scan);
        return;
    }
    run->waiting = true; /* its sets are being grouped, or it was replaced meanwhile */
    run->scan = *scan;
    *scan = (xpp_ipc_message){.type = scan->type};
    xpd_timer_set(&run->b->loop, &run->patience, START_WAIT_MS);
}

void xpd_run_worker_ready(xpd_worker *w)
{
    xpd_run *run = w->run;

    if (!run || !run->waiting)
        return;
    xpp_ipc_message scan = run->scan;
    run->waiting = false;
    xpd_timer_cancel(&run->patience);
    hand_over(run, &scan);
    xpp_ipc_message_release(&scan);
}

static void worker_missing(void *context)
{
    xpd_run_leave(context, XPD_JOB_QUEUED, "", "the worker did not start in time");
}

static void stop_run(xpd_run *run, xpd_stop_cause why)
{
    if (run->stop == XPD_GO_ON)
        run->stop = why;
    if (run->reading || run->waiting) {
        xpd_run_leave_stopped(run);
        return;
    }
    json_t *body = json_pack("{s:s}", "id", run->job->id);
    xpd_child_send(&run->w->child, XPP_IPC_CANCEL, body, NULL, 0);
    json_decref(body);
    if (!xpd_timer_armed(&run->grace))
        xpd_timer_set(&run->b->loop, &run->grace, run->b->config.cancel_grace_s * 1000);
}

static void too_long(void *context)
{
    xpd_run *run = context;

    run->stop = XPD_STOP_DEADLINE; /* also of one that is stopping for another reason */
    stop_run(run, XPD_STOP_DEADLINE);
}

/* The worker did not obey: a gentle signal, then the other one. */
static void grace_over(void *context)
{
    xpd_run *run = context;
    xpd_log(XPD_LOG_WARNING, run->job->id,
            "the worker did not stop the job within %lld s; it is replaced",
            (long long)run->b->config.cancel_grace_s);
    xpd_child_signal(&run->w->child, SIGTERM);
    xpd_child_kill_after(&run->w->child, 5000);
}

static bool begin(xpd_run *run, xpd_error *err)
{
    char own[PATH_MAX];

    run->resolved = xpp_load(run->job->resolved, strlen(run->job->resolved), 0, NULL);
    json_t *errors = run->resolved ? xpp_job_check(run->resolved) : NULL;
    if (errors) { /* accepted by an earlier version */
        const json_t *first = json_array_get(errors, 0);
        const char *pointer = json_string_value(json_object_get(first, "pointer")),
                   *detail = json_string_value(json_object_get(first, "detail"));
        xpd_fail(err, XPP_FAULT_INVALID_JOB, "", "%s: %s", pointer ? pointer : "",
                 detail ? detail : "not valid");
        json_decref(errors);
        return false;
    }
    run->decoded = run->resolved ? xpp_job_decode(run->resolved) : NULL;
    if (!run->decoded)
        return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "no memory for the job");
    if (!xpd_assign_choose(&run->choice, run->b, run->decoded, run->w->group, err))
        return false;
    xpd_worker_ask(run->w);
    json_decref(run->job->devices);
    run->job->devices = xpd_choice_names(&run->choice);
    const char *path = run->decoded->output_path ? output_path(run, own, sizeof own) : NULL;
    run->reading = xpd_reading_start(run->b, XPP_IPC_READ, run->job->uid, run->resolved, path,
                                     on_scan, run, err);
    return run->reading != NULL;
}

static void set_limit(xpd_run *run)
{
    double class_s = (double)run->b->config.max_run_s[run->job->class];

    run->limit_s = run->decoded->deadline_s;
    run->class_limit = class_s > 0 && (run->limit_s <= 0 || class_s < run->limit_s);
    if (run->class_limit)
        run->limit_s = class_s;
}

void xpd_run_start(xpd_worker *w, xpd_job *job)
{
    xpd_broker *b = w->child.b;
    xpd_error err = XPD_ERROR_INIT;
    xpd_run *run = calloc(1, sizeof *run);

    if (!run)
        return;
    run->b = b;
    run->w = w;
    run->job = xpd_job_ref(job);
    run->repeated = run->resumed = job->started_ms > 0;
    run->deadline = (xpd_timer){.fire = too_long, .context = run};
    run->grace = (xpd_timer){.fire = grace_over, .context = run};
    run->patience = (xpd_timer){.fire = worker_missing, .context = run};
    w->run = run;
    job->active = true;
    xpd_job_move(b, job, XPD_JOB_STARTING, "", "");
    if (!begin(run, &err)) {
        leave_error(run, &err);
        return;
    }
    set_limit(run);
    if (run->limit_s > 0)
        xpd_timer_set(&b->loop, &run->deadline, (int64_t)(run->limit_s * 1000));
}

/* ------------------------------------------------------------------------------------- watch */

void xpd_run_sign(xpd_worker *w)
{
    if (w->run)
        xpd_pace_sign(&w->run->pace, xpd_now_ms());
}

void xpd_run_look(xpd_worker *w, int64_t now_ms)
{
    xpd_run *run = w->run;

    if (!run || run->reading || run->waiting || run->stop != XPD_GO_ON || w->ended_for[0])
        return;
    int64_t most = xpd_pace_patience(&run->pace, run->b->config.stall_s * 1000);
    if (most == 0 || now_ms - run->pace.seen_ms < most)
        return;
    snprintf(w->ended_for, sizeof w->ended_for, "made no progress for %lld s",
             (long long)(most / 1000));
    xpd_log(XPD_LOG_ERROR, run->job->id, "worker %d (%d) %s; it is replaced", w->index,
            (int)w->child.pid, w->ended_for);
    /* one that only was slow saves what it has */
    xpd_child_signal(&w->child, SIGTERM);
    xpd_child_kill_after(&w->child, run->b->config.cancel_grace_s * 1000);
}

/* ------------------------------------------------------------------------------------ cancel */

void xpd_job_cancel(xpd_broker *b, xpd_job *job, const char *by)
{
    char detail[128];

    if (xpd_state_terminal(job->state))
        return;
    xpd_run *run = run_of(b, job);
    snprintf(detail, sizeof detail, "cancelled by %s", by);
    if (!run) {
        xpd_job_move(b, job, XPD_JOB_CANCELLED, "cancelled", detail);
        return;
    }
    if (run->stop == XPD_STOP_CANCEL || run->stop == XPD_STOP_DEADLINE)
        return; /* on its way to its end */
    snprintf(run->by, sizeof run->by, "%s", by);
    xpd_log(XPD_LOG_INFO, job->id, "cancel asked for by %s", by);
    /* in the row: the wish outlives this process, should that end first */
    snprintf(job->reason, sizeof job->reason, "%s", XPD_CANCELLING);
    snprintf(job->detail, sizeof job->detail, "%s", detail);
    xpd_job_changed(b, job);
    if (run->stop == XPD_GO_ON)
        stop_run(run, XPD_STOP_CANCEL);
    else
        run->stop = XPD_STOP_CANCEL; /* it was about to wait again: the worker is leaving already */
}

bool xpd_run_yields(const xpd_worker *w, bool *leaving)
{
    const xpd_run *run = w->run;
    *leaving = run && run->stop == XPD_STOP_YIELD;
    return run && run->stop == XPD_GO_ON && run->job->state == XPD_JOB_RUNNING &&
           run->job->checkpoint && run->job->yielded < XPD_YIELDS_MAX &&
           xpd_wall_ms() - run->job->started_ms >= run->b->config.min_run_s * 1000;
}

void xpd_run_yield(xpd_worker *w)
{
    if (!w->run || w->run->stop != XPD_GO_ON)
        return;
    w->run->stop = XPD_STOP_YIELD;
    xpd_log(XPD_LOG_INFO, w->run->job->id, "makes room for a live job");
    /* the worker saves the state and leaves, which ends the run; another takes its place */
    xpd_worker_quit(w, w->child.b->config.drain_s * 1000);
}

void xpd_run_shutdown(xpd_broker *b)
{
    for (int i = 0; i < b->worker_count; i++) {
        xpd_run *run = b->workers[i]->run;
        if (run && run->stop == XPD_GO_ON)
            run->stop = XPD_STOP_SHUTDOWN;
        if (run && (run->reading || run->waiting))
            xpd_run_leave_stopped(run);
        /* else the worker is told to quit; what it says until then counts */
    }
}
