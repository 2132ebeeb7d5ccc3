/* See dispatch.h.  Every worker is a device set of its own, bit i of the scheduler's sets is worker
 * i, and a job takes one of them whole. */
#include "dispatch.h"

#include "life.h"
#include "log.h"
#include "run.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALE_MS 1000 /* age and estimates move by themselves */

void xpd_dispatch_due(xpd_broker *b)
{
    b->dispatch_due = true;
    b->explained = false;
}

/* ----------------------------------------------------------------------------------- lengths */

static int64_t iterations_left(const xpd_job *job, bool running)
{
    const json_t *list = json_object_get(job->head, "iterations");
    int64_t left = 0;

    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t n = json_integer_value(json_array_get(list, i));
        if (running && job->progress.known && (int64_t)i < job->progress.stage)
            continue;
        if (running && job->progress.known && (int64_t)i == job->progress.stage)
            n = n > job->progress.iter ? n - job->progress.iter : 0;
        left += n;
    }
    return left;
}

static int64_t iterations_all(const xpd_job *job)
{
    return iterations_left(job, false);
}

/* Kind of device from the names that were chosen, and the threads of a CPU job. */
static void shape_of(xpd_shape *out, const xpd_job *job, int64_t threads)
{
    const char *name = json_string_value(json_array_get(job->devices, 0));
    *out = (xpd_shape){.frames = job->frames, .side = job->side, .modes = job->modes};
    snprintf(out->kind, sizeof out->kind, "%.*s %zu %lld", name ? (int)strcspn(name, ":") : 4,
             name ? name : "none", json_array_size(job->devices), (long long)threads);
}

/* How long it takes at most, from now; 0 = not known. */
static int64_t length_of(const xpd_broker *b, const xpd_job *job, int64_t threads, bool running)
{
    xpd_shape shape;
    double iteration_s, rest_s;

    shape_of(&shape, job, threads);
    if (!xpd_history_guess(&b->history, &shape, &iteration_s, &rest_s))
        return 0;
    double s = iteration_s * (double)iterations_left(job, running) + (running ? 0 : rest_s);
    double ms = s * XPD_LENGTH_FACTOR * 1000;
    return ms < 1 ? 1 : ms > 1e15 ? 0 : (int64_t)ms;
}

void xpd_dispatch_learn(xpd_broker *b, const xpd_job *job, int64_t threads, bool whole)
{
    int64_t now = xpd_wall_ms();
    double total_s = (double)(now - job->started_ms) / 1000;
    xpd_shape shape;
    xpd_note note;

    xpd_history_charge(&b->history, job->uid, total_s, now, &note);
    if (note.key[0])
        xpd_store_note(b->store, &note);
    double seconds = json_number_value(json_object_get(job->result, "seconds"));
    int64_t done = json_integer_value(json_object_get(job->result, "iterations"));
    if (!whole || done < 1 || done != iterations_all(job) || job->frames < 1)
        return;
    shape_of(&shape, job, threads);
    xpd_history_learn(&b->history, &shape, seconds / (double)done,
                      total_s > seconds ? total_s - seconds : 0, now, &note);
    if (note.key[0])
        xpd_store_note(b->store, &note);
}

/* --------------------------------------------------------------------------------- scheduler */

typedef struct user_list {
    uid_t *uids;
    xpd_sched_user *users;
    int count;
} user_list;

static int user_index(const xpd_broker *b, user_list *list, uid_t uid, int64_t now)
{
    for (int i = 0; i < list->count; i++) {
        if (list->uids[i] == uid)
            return i;
    }
    list->uids[list->count] = uid;
    list->users[list->count] = (xpd_sched_user){.used_s = xpd_history_used(&b->history, uid, now)};
    return list->count++;
}

static void add_running(xpd_broker *b, xpd_sched *s, user_list *users, int64_t now)
{
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_worker *w = b->workers[i];
        const xpd_job *job = xpd_run_job(w);
        s->sets[i] = (xpd_sched_set){.up = w->ready, .busy = job != NULL, .until_ms = XPD_NEVER};
        if (!job)
            continue;
        int64_t left = length_of(b, job, xpd_worker_threads(w, job->cpu_threads), true);
        int64_t spent = now - job->started_ms;
        xpd_sched_user *user = &users->users[user_index(b, users, job->uid, now)];
        if (left > 0)
            s->sets[i].until_ms = now + left;
        s->sets[i].owner = job->number;
        s->sets[i].class = job->class;
        s->sets[i].from_ms = job->started_ms;
        s->sets[i].can_yield = xpd_run_yields(w, &s->sets[i].leaving);
        user->running++;
        user->used_s += (double)(spent > 0 ? spent : 0) / 1000;
    }
}

static bool run_scheduler(xpd_broker *b, xpd_sched *s, bool explain)
{
    size_t count = b->queue.count, most = count + XPD_WORKERS_MAX;
    int64_t now = xpd_wall_ms();
    xpd_sched_job *jobs = calloc(count + 1, sizeof *jobs),
                  *scratch = calloc(count + 1, sizeof *jobs);
    user_list users = {calloc(most, sizeof *users.uids), calloc(most, sizeof *users.users), 0};
    bool ok = jobs && scratch && users.uids && users.users;

    if (ok) {
        add_running(b, s, &users, now);
        for (size_t i = 0; i < count; i++) {
            xpd_job *job = b->queue.items[i];
            jobs[i] = (xpd_sched_job){
                .number = job->number,
                .user = user_index(b, &users, job->uid, now),
                .class = job->class,
                .priority = job->priority,
                .since_ms = job->queued_ms,
                .length_ms =
                    length_of(b, job, xpd_worker_threads(b->workers[0], job->cpu_threads), false),
                .sets = xpd_workers_for(b, job),
                .need = 1,
                .context = job};
        }
        s->now_ms = now;
        s->set_count = b->worker_count;
        s->users = users.users;
        s->user_count = users.count;
        s->jobs = jobs;
        s->job_count = count;
        s->running_max = b->config.running_user_max;
        xpd_sched_run(s, scratch, explain);
    } else {
        free(jobs);
    }
    free(scratch);
    free(users.uids);
    free(users.users);
    return ok;
}

void xpd_dispatch(xpd_broker *b)
{
    xpd_sched_set sets[XPD_SETS_MAX];
    xpd_sched s = {.sets = sets};
    bool useful = false;

    if (b->stopping || !b->ready || b->queue.count == 0 ||
        (!b->dispatch_due && xpd_now_ms() - b->dispatched_ms < STALE_MS))
        return;
    for (int i = 0; i < b->worker_count; i++)
        useful = useful || (b->workers[i]->ready && !b->workers[i]->run);
    for (size_t i = 0; i < b->queue.count && !useful; i++)
        useful = b->queue.items[i]->class == XPD_CLASS_LIVE; /* others may make room for it */
    b->dispatch_due = false;
    b->dispatched_ms = xpd_now_ms();
    if (!useful || !run_scheduler(b, &s, false))
        return;
    for (size_t i = 0; i < s.job_count; i++) {
        if (s.jobs[i].pending == XPD_PENDING_NONE && s.jobs[i].taken)
            xpd_run_start(b->workers[__builtin_ctzll(s.jobs[i].taken)], s.jobs[i].context);
    }
    free(s.jobs);
    for (uint64_t rest = s.yield; rest; rest &= rest - 1)
        xpd_run_yield(b->workers[__builtin_ctzll(rest)]);
}

void xpd_dispatch_refresh(xpd_broker *b)
{
    xpd_sched_set sets[XPD_SETS_MAX];
    xpd_sched s = {.sets = sets};

    if (b->explained && xpd_now_ms() - b->explained_ms < STALE_MS)
        return;
    if (!run_scheduler(b, &s, true))
        return;
    for (size_t i = 0; i < s.job_count; i++) {
        xpd_job *job = s.jobs[i].context;
        int64_t start = s.jobs[i].start_ms;
        job->waiting = (xpd_waiting){(int64_t)i + 1, s.jobs[i].pending,
                                     start == XPD_NEVER ? 0 : start, s.jobs[i].taken};
        b->queue.items[i] = job;
    }
    b->explained = true;
    b->explained_ms = xpd_now_ms();
    free(s.jobs);
}

/* ----------------------------------------------------------------------------------- explain */

/* Running jobs on the workers that it waits for: named where they are the same user's. */
static json_t *blockers(const xpd_broker *b, const xpd_job *job, json_int_t *hidden)
{
    json_t *list = json_array();
    uint64_t workers = job->waiting.workers ? job->waiting.workers : xpd_workers_for(b, job);

    *hidden = 0;
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_job *other = xpd_run_job(b->workers[i]);
        if (!other || !(workers & ((uint64_t)1 << i)))
            continue;
        if (other->uid == job->uid)
            json_array_append_new(list, json_string(other->id));
        else
            ++*hidden;
    }
    return list;
}

static void sentence(char *out, size_t size, const xpd_broker *b, const xpd_job *job)
{
    int64_t before = job->waiting.position - 1;

    switch (job->waiting.pending) {
    case XPD_PENDING_NONE:
        snprintf(out, size, "nothing, it is about to start");
        break;
    case XPD_PENDING_DEVICES:
        snprintf(out, size, "its devices, which run other jobs; it is the next to get them");
        break;
    case XPD_PENDING_ORDER:
        snprintf(out, size, "%lld job%s before it", (long long)before, before == 1 ? "" : "s");
        break;
    case XPD_PENDING_RESERVATION:
        snprintf(out, size, "devices that are kept for a job before it");
        break;
    case XPD_PENDING_LIMIT:
        snprintf(out, size, "one of %s's jobs to end: %lld run, that is the limit of a user",
                 job->user, (long long)b->config.running_user_max);
        break;
    case XPD_PENDING_SETS:
        snprintf(out, size, "device sets that %s's jobs hold, as many as a user may have",
                 job->user);
        break;
    case XPD_PENDING_MEMORY:
        snprintf(out, size, "memory that other jobs hold");
        break;
    case XPD_PENDING_FOREIGN:
        snprintf(out, size, "memory that is held by processes which are not of this service");
        break;
    case XPD_PENDING_WORKER:
        snprintf(out, size, "the worker, which is starting");
        break;
    }
}

json_t *xpd_dispatch_pending(xpd_broker *b, const xpd_job *job)
{
    char text[128], when[32];
    json_int_t hidden;

    if (job->state == XPD_JOB_HELD)
        return json_pack("{s:n, s:s, s:s, s:n, s:[], s:i}", "position", "reason", "held", "detail",
                         "its release", "estimated_start", "blocked_by", "blocked_by_hidden", 0);
    if (job->state != XPD_JOB_QUEUED)
        return NULL;
    xpd_dispatch_refresh(b);
    sentence(text, sizeof text, b, job);
    bool starts = job->waiting.pending == XPD_PENDING_NONE;
    if (job->waiting.start_ms > 0)
        xpp_time_text(when, job->waiting.start_ms);
    json_t *list = starts ? json_array() : blockers(b, job, &hidden);
    if (starts)
        hidden = 0;
    return json_pack("{s:I, s:s, s:s, s:s?, s:o, s:I}", "position",
                     (json_int_t)job->waiting.position, "reason",
                     starts ? "starting" : xpd_pending_name(job->waiting.pending), "detail", text,
                     "estimated_start", job->waiting.start_ms > 0 ? when : NULL, "blocked_by", list,
                     "blocked_by_hidden", hidden);
}
