/* What a worker says of the job that it runs: progress, the end, its own death. */
#include "run_own.h"

#include "dispatch.h"
#include "life.h"
#include "log.h"
#include "memory.h"
#include "sets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEATHS_MAX 2 /* workers that a job may take with it */
#define RETRY_FIRST_MS                                                                             \
    ((int64_t)2000) /* after a worker that had too little memory; doubled up to 16 times */

static void announce_running(xpd_run *run)
{
    if (run->job->state != XPD_JOB_STARTING)
        return;
    bool cancelled = run->stop == XPD_STOP_CANCEL;
    char detail[sizeof run->job->detail];
    snprintf(detail, sizeof detail, "%s", cancelled ? run->job->detail : "");
    xpd_job_move(run->b, run->job, XPD_JOB_RUNNING, cancelled ? XPD_CANCELLING : "", detail);
    if (run->repeated) {
        json_t *body = json_pack("{s:i}", "from_iter", 0);
        xpd_job_event(run->b, run->job, "resumed", body);
        json_decref(body);
        run->repeated = false;
    }
}

static void take_iter(xpd_job *job, const json_t *event)
{
    const json_t *error = json_object_get(event, "data_error");
    job->progress.known = true;
    job->progress.stage = json_integer_value(json_object_get(event, "stage"));
    job->progress.iter = json_integer_value(json_object_get(event, "iter"));
    job->progress.modes = json_integer_value(json_object_get(event, "modes"));
    if (json_is_number(error) || job->progress.iter <= 1)
        job->progress.data_error = json_is_number(error) ? json_number_value(error) : NAN;
}

static bool ends_stage(const xpp_job *job, const xpd_progress *at)
{
    return at->stage < 0 || at->stage >= job->stage_count ||
           at->iter >= job->stages[at->stage].iterations;
}

#define SPEED_FIRST_MS 1000

/* Iterations after the first one of a stage tell how long the others take: after a second, then
 * each time that twice as much is known. */
static void take_speed(xpd_run *run)
{
    const xpd_progress *at = &run->job->progress;
    int64_t now = xpd_now_ms(), took = now - run->speed.from_ms, done = at->iter - run->speed.iter;

    if (!run->speed.from_ms || at->stage != run->speed.stage || done < 0) {
        run->speed.stage = at->stage;
        run->speed.iter = at->iter;
        run->speed.from_ms = now;
        run->speed.next_ms = now + SPEED_FIRST_MS;
    } else if (now >= run->speed.next_ms && done > 0) {
        run->speed.next_ms = now + took;
        xpd_dispatch_glimpse(run->b, run->job, xpd_worker_threads(run->w, run->job->cpu_threads),
                             (double)took / (1000 * (double)done));
    }
}

static bool take_event(xpd_run *run, json_t *event)
{
    static const char *const types[] = {"iter", "preview", "warning",
                                        "log",  "resumed", "checkpoint"};
    char type[16];
    const char *said = json_string_value(json_object_get(event, "type"));

    if (!said)
        return false;
    snprintf(type, sizeof type, "%s", said);
    if (strcmp(type, "state") == 0) {
        const char *state = json_string_value(json_object_get(event, "state"));
        if (!state || strcmp(state, "running") != 0)
            return false;
        announce_running(run);
        return true;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(type, types[i]) != 0)
            continue;
        if (i == 0) {
            take_iter(run->job, event);
            run->job->retries = 0;
            run->b->metrics.iterations++;
            xpd_pace_step(&run->pace, xpd_now_ms(), ends_stage(run->decoded, &run->job->progress));
            take_speed(run);
        } else if (strcmp(type, "checkpoint") == 0) {
            xpd_pace_sign(&run->pace, xpd_now_ms());
        }
        if (strcmp(type, "resumed") ==
            0) { /* from a checkpoint: the worker knows better from where */
            run->repeated = false;
            announce_running(run);
        }
        json_object_del(event, "type"); /* the broker writes these three */
        json_object_del(event, "seq");
        json_object_del(event, "t");
        xpd_job_event(run->b, run->job, type, event);
        return true;
    }
    return true; /* a type that this version does not know */
}

static bool is_ours(const xpd_worker *w, const json_t *body)
{
    const char *id = json_string_value(json_object_get(body, "id"));
    return id && w->run && !w->run->reading && !w->run->waiting && strcmp(id, w->run->job->id) == 0;
}

bool xpd_run_events(xpd_worker *w, const json_t *body)
{
    const json_t *events = json_object_get(body, "events");

    if (!json_is_array(events))
        return false;
    if (!is_ours(w, body))
        return true; /* of a job that ended meanwhile */
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *event = json_array_get(events, i);
        if (!json_is_object(event) || !take_event(w->run, event))
            return false;
    }
    return true;
}

static const char *known_reason(const char *reason)
{
    static const char *const reasons[] = {"cancelled", "deadline",    "diverged",
                                          "dataset",   "output",      "no-device-memory",
                                          "refused",   "worker-died", "internal"};
    for (size_t i = 0; reason && i < sizeof reasons / sizeof *reasons; i++) {
        if (strcmp(reasons[i], reason) == 0)
            return reasons[i];
    }
    return "internal";
}

/* The worker found less memory than was there when the job was admitted: somebody else took it. The
 * job waits, where it ever fits; *body is its `done`. */
static bool waits_for_memory(xpd_run *run, const json_t *body)
{
    const json_t *problem = json_object_get(body, "problem");
    const char *reason = json_string_value(json_object_get(body, "reason")),
               *detail = json_string_value(json_object_get(body, "detail"));
    int64_t required = json_integer_value(json_object_get(problem, "required_bytes"));
    const xpe_device_info *d = xpd_devices_find(xpd_workers_devices(run->b), run->choice.names[0]);
    xpd_job *job = run->job;
    xpd_room room;

    if (!reason || strcmp(reason, "no-device-memory") != 0 || run->stop != XPD_GO_ON || !d)
        return false;
    xpd_memory_room(run->b, run->decoded, NULL, &room);
    if (required < 1 || required > xpd_room_of(&room, d))
        return false;
    if (required > job->needs.device)
        job->needs.device = required; /* the worker knows what its libraries take */
    int64_t wait_ms = RETRY_FIRST_MS << (job->retries < 4 ? job->retries : 4);
    job->retries++;
    job->retry_ms = xpd_now_ms() + wait_ms;
    xpd_run_leave(run, XPD_JOB_QUEUED, "memory", detail ? detail : "");
    return true;
}

/* The job's worker is lost, and the job is not done.  It is tried on another set where there is
 * one: it may be the device. */
static void try_again(xpd_run *run, const char *what)
{
    char detail[256];

    if (run->stop != XPD_GO_ON) {
        xpd_run_leave_stopped(run);
        return;
    }
    run->job->attempts++;
    run->job->shunned |= run->w->group;
    if (run->job->attempts >= DEATHS_MAX) {
        snprintf(detail, sizeof detail, "%d workers died with this job; the last: %s", DEATHS_MAX,
                 what);
        xpd_run_leave(run, XPD_JOB_FAILED, "poison", detail);
    } else {
        xpd_run_leave(run, XPD_JOB_QUEUED, "worker-died", what);
    }
}

/* Reported by the worker, which leaves. */
static void device_lost(xpd_run *run, const char *device, const char *how)
{
    xpd_worker *w = run->w;

    w->ready = false; /* before the job looks for another place */
    try_again(run, how);
    xpd_sets_lost(w, device, how);
}

void xpd_run_worker_died(xpd_worker *w, const char *how)
{
    xpd_run *run = w->run;
    char what[256];

    if (!run || run->reading || run->waiting)
        return;
    json_t *result = xpd_job_finished_result(run->b, run->job);
    if (result) {
        json_decref(run->job->result);
        run->job->result = result;
        announce_running(run); /* a short job: that event was lost with the worker */
        xpd_run_leave(run, XPD_JOB_SUCCEEDED, "", "");
        return;
    }
    snprintf(what, sizeof what, "the worker %s", how);
    try_again(run, what);
}

bool xpd_run_done(xpd_worker *w, const json_t *body)
{
    const char *word = json_string_value(json_object_get(body, "state")),
               *detail = json_string_value(json_object_get(body, "detail"));
    json_t *result = json_object_get(body, "result");
    xpd_state state;

    if (!word || !xpd_state_find(&state, word) || !xpd_state_terminal(state))
        return false;
    if (!is_ours(w, body))
        return true;
    xpd_run *run = w->run;
    const char *lost = json_string_value(json_object_get(body, "lost"));
    if (lost) {
        device_lost(run, lost, detail ? detail : "its device was lost");
        return true;
    }
    if (state == XPD_JOB_SUCCEEDED && !json_string_value(json_object_get(result, "path")))
        return false;
    if (json_is_object(result)) {
        json_decref(run->job->result);
        run->job->result = json_incref(result);
    }
    if (state == XPD_JOB_SUCCEEDED) {
        announce_running(run);
        xpd_sets_worked(w);
        xpd_run_leave(run, state, "", "");
    } else if (state == XPD_JOB_CANCELLED) {
        if (run->stop == XPD_GO_ON)
            snprintf(run->by, sizeof run->by, "the worker");
        xpd_run_leave_stopped(run);
    } else if (!waits_for_memory(run, body)) {
        xpd_run_leave(run, state, known_reason(json_string_value(json_object_get(body, "reason"))),
                      detail ? detail : "");
    }
    return true;
}
