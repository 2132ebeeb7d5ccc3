/* See dispatch.h.  Bit i of the scheduler's sets is device set i; a job takes one whole, or several
 * (sets.h). */
#include "dispatch.h"

#include "assign.h"
#include "life.h"
#include "log.h"
#include "memory.h"
#include "people.h"
#include "run.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALE_MS 1000      /* age and estimates move by themselves */
#define CLOCK_JUMP_MS 2000 /* less is adjusted, not set */

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

/* Kind and number of devices, and the threads of a CPU job. */
static void shape_of(xpd_shape *out, const xpd_broker *b, const xpd_job *job, int64_t threads)
{
    char kind[16];
    int count;

    xpd_assign_kind(kind, sizeof kind, &count, b, job);
    *out = (xpd_shape){.frames = job->frames, .side = job->side, .modes = job->modes};
    snprintf(out->kind, sizeof out->kind, "%s %d %lld", kind, count,
             strcmp(kind, "cpu") == 0 ? (long long)threads : 0LL);
}

/* How long it takes at most, from now; 0 = not known. */
static int64_t length_of(const xpd_broker *b, const xpd_job *job, int64_t threads, bool running)
{
    xpd_shape shape;
    double iteration_s, rest_s;

    shape_of(&shape, b, job, threads);
    if (!xpd_history_guess(&b->history, &shape, &iteration_s, &rest_s))
        return 0;
    bool goes_on = running || (job->started_ms > 0 && job->checkpoint);
    double s = iteration_s * (double)iterations_left(job, goes_on) + (running ? 0 : rest_s);
    double ms = s * XPD_LENGTH_FACTOR * 1000;
    return ms < 1 ? 1 : ms > 1e15 ? 0 : (int64_t)ms;
}

void xpd_dispatch_learn(xpd_broker *b, const xpd_job *job, int64_t threads, bool whole)
{
    int64_t now = xpd_wall_ms();
    double total_s = (double)(now - job->started_ms) / 1000;
    xpd_shape shape;
    xpd_note note;

    char kind[16];
    int count;

    xpd_assign_kind(kind, sizeof kind, &count, b, job);
    double devices = strcmp(kind, "cpu") == 0 || count < 1 ? 1 : count;
    xpd_history_charge(&b->history, job->uid, total_s * devices, now, &note);
    if (note.key[0])
        xpd_store_note(b->store, &note);
    double seconds = json_number_value(json_object_get(job->result, "seconds"));
    int64_t done = json_integer_value(json_object_get(job->result, "iterations"));
    if (!whole || done < 1 || done != iterations_all(job) || job->frames < 1)
        return;
    shape_of(&shape, b, job, threads);
    xpd_history_learn(&b->history, &shape, seconds / (double)done,
                      total_s > seconds ? total_s - seconds : 0, now, &note);
    if (note.key[0])
        xpd_store_note(b->store, &note);
}

void xpd_dispatch_glimpse(xpd_broker *b, const xpd_job *job, int64_t threads, double iteration_s)
{
    xpd_shape shape;

    if (job->frames < 1)
        return;
    shape_of(&shape, b, job, threads);
    xpd_history_glimpse(&b->history, &shape, iteration_s, xpd_wall_ms());
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
    list->users[list->count] = (xpd_sched_user){.used_s = xpd_history_used(&b->history, uid, now),
                                                .weight = xpd_weight_of(&b->config, uid)};
    return list->count++;
}

bool xpd_set_kept_for_live(const xpd_broker *b, int set)
{
    const xpd_list *list = &b->config.live_sets;
    for (int i = 0; i < list->count; i++) {
        if (strtol(list->items[i], NULL, 10) == set)
            return true;
    }
    return false;
}

static void add_distances(const xpd_broker *b, xpd_sched *s)
{
    for (int i = 0; i < b->worker_count; i++) {
        for (int k = 0; k < i; k++)
            s->sets[i].far[k] = s->sets[k].far[i] =
                (uint8_t)xpd_devices_far(&b->workers[i]->devices, &b->workers[k]->devices);
    }
}

static void add_running(xpd_broker *b, xpd_sched *s, user_list *users, int64_t now)
{
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_worker *w = xpd_set_leader(b, i);
        const xpd_job *job = xpd_run_job(w);
        bool first = w->index == i; /* of the sets that the job holds */
        s->sets[i] = (xpd_sched_set){.up = xpd_set_up(b, i),
                                     .busy = job != NULL,
                                     .until_ms = XPD_NEVER,
                                     .pool = xpd_memory_pool(b->workers[i]),
                                     .live_only = xpd_set_kept_for_live(b, i)};
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
        s->sets[i].bytes = job->needs.device;
        s->sets[i].host_bytes = first ? job->needs.host : 0;
        s->sets[i].can_yield = xpd_run_yields(w, &s->sets[i].leaving);
        user->running += first;
        user->sets++;
        user->used_s += (double)(spent > 0 ? spent : 0) / 1000;
    }
}

static bool run_scheduler(xpd_broker *b, xpd_sched *s, bool explain)
{
    size_t count = b->queue.count, most = count + XPD_WORKERS_MAX;
    int64_t now = xpd_wall_ms();
    xpd_sched_job *jobs = calloc(count + 1, sizeof *jobs),
                  *scratch = calloc(count + 1, sizeof *jobs);
    xpd_sched_pool pools[XPD_POOLS_MAX];
    user_list users = {calloc(most, sizeof *users.uids), calloc(most, sizeof *users.users), 0};
    bool ok = jobs && scratch && users.uids && users.users;

    if (ok) {
        add_running(b, s, &users, now);
        add_distances(b, s);
        for (size_t i = 0; i < count; i++) {
            xpd_job *job = b->queue.items[i];
            xpd_assign place = xpd_assign_of(b, job);
            jobs[i] = (xpd_sched_job){
                .number = job->number,
                .user = user_index(b, &users, job->uid, now),
                .class = job->class,
                .priority = job->priority,
                .since_ms = job->queued_ms,
                .length_ms =
                    length_of(b, job, xpd_worker_threads(b->workers[0], job->cpu_threads), false),
                .sets = place.sets,
                .need = place.need,
                .bytes = job->needs.device,
                .host_bytes = job->retry_ms > xpd_now_ms() ? XPD_NEVER : job->needs.host,
                .context = job};
        }
        s->now_ms = now;
        s->set_count = b->worker_count;
        s->users = users.users;
        s->user_count = users.count;
        s->jobs = jobs;
        s->job_count = count;
        s->running_max = b->config.running_user_max;
        s->sets_max = b->config.sets_user_max;
        s->pools = pools;
        s->pool_count = xpd_memory_pools(b, pools);
        xpd_sched_run(s, scratch, explain);
    } else {
        free(jobs);
    }
    free(scratch);
    free(users.uids);
    free(users.users);
    return ok;
}

/* Times of jobs are those of the wall clock, since they outlive the service.  When somebody sets
 * it, those of jobs that have not ended follow, or an hour would count as waited or run. */
void xpd_clock_follow(xpd_broker *b)
{
    int64_t clock_ms = xpd_wall_ms() - xpd_now_ms(), jump = clock_ms - b->clock_ms;

    if (b->clock_ms != 0 && (jump > CLOCK_JUMP_MS || jump < -CLOCK_JUMP_MS)) {
        xpd_log(XPD_LOG_WARNING, NULL, "the clock was set %s by %.1f s",
                jump > 0 ? "forward" : "back", (double)(jump > 0 ? jump : -jump) / 1000);
        for (size_t i = 0; i < b->jobs.count; i++) {
            xpd_job *job = b->jobs.items[i];
            if (xpd_state_terminal(job->state))
                continue;
            job->queued_ms += jump;
            job->started_ms += job->started_ms > 0 ? jump : 0;
            xpd_job_changed(b, job);
            xpd_job_persist(b, job);
        }
    }
    b->clock_ms = clock_ms;
}

/* Jobs that waited longer than they may; those that ran once are not given up. */
static void give_up(xpd_broker *b)
{
    int64_t limit_ms = b->config.max_queue_s * 1000, now = xpd_wall_ms();
    char detail[96];

    snprintf(detail, sizeof detail,
             "not started %lld s after its submission, the most that is waited",
             (long long)b->config.max_queue_s);
    for (size_t i = b->queue.count; limit_ms > 0 && i-- > 0;) {
        xpd_job *job = b->queue.items[i];
        if (job->started_ms == 0 && now - job->queued_ms > limit_ms)
            xpd_job_move(b, job, XPD_JOB_FAILED, "deadline", detail); /* takes it out */
    }
}

/* What is free is asked for out of turn while a job waits for it. */
static void ask_for_memory(xpd_broker *b, const xpd_sched *s)
{
    bool waits = false;

    for (size_t i = 0; i < s->job_count && !waits; i++)
        waits =
            s->jobs[i].pending == XPD_PENDING_MEMORY || s->jobs[i].pending == XPD_PENDING_FOREIGN;
    if (!waits || xpd_now_ms() - b->memory_asked_ms < STALE_MS)
        return;
    b->memory_asked_ms = xpd_now_ms();
    for (int i = 0; i < b->worker_count; i++)
        xpd_worker_ask(b->workers[i]);
}

void xpd_dispatch(xpd_broker *b)
{
    xpd_sched_set sets[XPD_SETS_MAX];
    xpd_sched s = {.sets = sets};
    bool useful = false;

    if (b->stopping || !b->ready || b->queue.count == 0 ||
        (!b->dispatch_due && xpd_now_ms() - b->dispatched_ms < STALE_MS))
        return;
    give_up(b);
    for (int i = 0; i < b->worker_count; i++)
        useful = useful || (xpd_set_up(b, i) && !xpd_set_job(b, i));
    for (size_t i = 0; i < b->queue.count && !useful; i++)
        useful = b->queue.items[i]->class == XPD_CLASS_LIVE; /* others may make room for it */
    b->dispatch_due = false;
    b->dispatched_ms = xpd_now_ms();
    if (!useful || !run_scheduler(b, &s, false))
        return;
    for (size_t i = 0; i < s.job_count; i++) {
        if (s.jobs[i].pending == XPD_PENDING_NONE && s.jobs[i].taken)
            xpd_run_start(xpd_sets_join(b, s.jobs[i].taken), s.jobs[i].context);
    }
    ask_for_memory(b, &s);
    free(s.jobs);
    for (uint64_t rest = s.yield; rest; rest &= rest - 1)
        xpd_run_yield(xpd_set_leader(b, __builtin_ctzll(rest)));
}

void xpd_dispatch_refresh(xpd_broker *b)
{
    xpd_sched_set sets[XPD_SETS_MAX];
    xpd_sched s = {.sets = sets};

    if (b->explained && xpd_now_ms() - b->explained_ms < STALE_MS)
        return;
    if (!run_scheduler(b, &s, true)) { /* no memory for it: new ones have their place, no more */
        for (size_t i = 0; i < b->queue.count; i++) {
            if (b->queue.items[i]->waiting.position < 1)
                b->queue.items[i]->waiting.position = (int64_t)i + 1;
        }
        return;
    }
    int64_t *before = calloc((size_t)s.user_count + 1, sizeof *before);
    for (size_t i = 0; i < s.job_count; i++) {
        xpd_job *job = s.jobs[i].context;
        int64_t start = s.jobs[i].start_ms, *own = before ? &before[s.jobs[i].user] : NULL;
        job->waiting =
            (xpd_waiting){(int64_t)i + 1,  s.jobs[i].pending,       start == XPD_NEVER ? 0 : start,
                          s.jobs[i].taken, s.jobs[i].length_ms > 0, own ? (*own)++ : (int64_t)i};
        b->queue.items[i] = job;
    }
    b->explained = true;
    b->explained_ms = xpd_now_ms();
    free(before);
    free(s.jobs);
}

/* ----------------------------------------------------------------------------------- explain */

/* Running jobs on the workers that it waits for: named where they are the same user's. */
static json_t *blockers(const xpd_broker *b, const xpd_job *job, json_int_t *hidden)
{
    json_t *list = json_array();
    xpd_pending why = job->waiting.pending;
    bool own_limit = why == XPD_PENDING_LIMIT || why == XPD_PENDING_SETS;
    uint64_t workers = job->waiting.workers ? job->waiting.workers : xpd_assign_of(b, job).sets;

    *hidden = 0;
    if (why == XPD_PENDING_FOREIGN || why == XPD_PENDING_WORKER)
        return list; /* no job's fault */
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_job *other = xpd_run_job(b->workers[i]);
        bool counts = own_limit || why == XPD_PENDING_MEMORY || (workers & b->workers[i]->group);
        if (!other || !counts)
            continue;
        if (other->uid == job->uid)
            json_array_append_new(list, json_string(other->id));
        else if (!own_limit)
            ++*hidden;
    }
    return list;
}

/* A set is idle that only live jobs may have. */
static bool one_is_kept(const xpd_broker *b, const xpd_job *job)
{
    uint64_t able = xpd_assign_of(b, job).sets;
    for (int i = 0; i < b->worker_count && job->class != XPD_CLASS_LIVE; i++) {
        if ((able >> i & 1) && xpd_set_kept_for_live(b, i) && xpd_set_up(b, i) &&
            !xpd_set_job(b, i))
            return true;
    }
    return false;
}

static void say_order(char *out, size_t size, const xpd_job *job)
{
    int64_t before = job->waiting.position - 1, own = job->waiting.own_before;
    const char *s = before == 1 ? "" : "s";

    if (own == before)
        snprintf(out, size, "%lld job%s before it", (long long)before, s);
    else if (own == 0)
        snprintf(out, size, "%lld job%s of other users before it", (long long)before, s);
    else
        snprintf(out, size, "%lld jobs before it, %lld of them of other users", (long long)before,
                 (long long)(before - own));
}

static bool waits_for_file(const xpd_job *job)
{
    return job->retry_ms > xpd_now_ms() && strcmp(job->reason, "dataset-busy") == 0;
}

static void say_memory(char *out, size_t size, const xpd_broker *b, const xpd_job *job)
{
    char memory[200], bytes[32];
    int64_t strangers;

    xpd_memory_short(b, job, xpd_assign_of(b, job).sets, memory, sizeof memory, &strangers);
    if (job->waiting.pending == XPD_PENDING_MEMORY)
        snprintf(out, size, "%s; jobs that run hold it, and give it back when they end", memory);
    else if (job->retry_ms > xpd_now_ms())
        snprintf(out, size, "more memory than its worker found free; it tries again soon");
    else if (strangers > 0)
        snprintf(out, size, "%s; processes that are not of this service hold %s (%s names them)",
                 memory, xpd_bytes_text(bytes, strangers),
                 strstr(memory, "'cuda:") ? "nvidia-smi" : "top");
    else
        snprintf(out, size, "%s", memory);
}

/* Of a noun: "waits for ...". */
static void sentence(char *out, size_t size, const xpd_broker *b, const xpd_job *job)
{
    if (b->draining || b->stopping) {
        snprintf(out, size, "the end of the drain: an administrator lets no job start for now");
        return;
    }
    if (waits_for_file(job)) {
        snprintf(out, size,
                 "its scan file, which another program is writing; it is looked at "
                 "again and again");
        return;
    }
    switch (job->waiting.pending) {
    case XPD_PENDING_NONE:
        snprintf(out, size, "nothing, it is about to start");
        break;
    case XPD_PENDING_DEVICES:
        snprintf(out, size, "its devices, which run other jobs; it is the next to get them%s",
                 one_is_kept(b, job) ? " (a device set that is free is kept for live jobs)" : "");
        break;
    case XPD_PENDING_ORDER:
        say_order(out, size, job);
        break;
    case XPD_PENDING_RESERVATION:
        snprintf(out, size, "devices or memory that are kept for a job before it%s",
                 job->waiting.length_known ? ", which this one would delay"
                                           : "; how long this one takes is not known yet");
        break;
    case XPD_PENDING_LIMIT:
        snprintf(out, size, "one of %s's jobs to end: %lld run, that is the limit of a user",
                 job->user, (long long)b->config.running_user_max);
        break;
    case XPD_PENDING_SETS:
        snprintf(out, size,
                 "one of %s's jobs to end: together they hold as many device sets as a user may "
                 "have, %lld",
                 job->user, (long long)b->config.sets_user_max);
        break;
    case XPD_PENDING_MEMORY:
    case XPD_PENDING_FOREIGN:
        say_memory(out, size, b, job);
        break;
    case XPD_PENDING_WORKER:
        if (one_is_kept(b, job))
            snprintf(out, size,
                     "a device set that is not kept for live jobs; none has its devices");
        else
            xpd_assign_missing(out, size, b, job);
        break;
    }
}

static const char *reason_of(const xpd_broker *b, const xpd_job *job)
{
    if (b->draining || b->stopping)
        return "drained";
    if (waits_for_file(job))
        return "dataset-busy";
    return job->waiting.pending == XPD_PENDING_NONE ? "starting"
                                                    : xpd_pending_name(job->waiting.pending);
}

json_t *xpd_dispatch_pending(xpd_broker *b, const xpd_job *job)
{
    char text[400], when[32];
    json_int_t hidden;

    if (job->state == XPD_JOB_HELD)
        return json_pack("{s:n, s:s, s:s, s:n, s:[], s:i}", "position", "reason", "held", "detail",
                         "its release, by xptycho release", "estimated_start", "blocked_by",
                         "blocked_by_hidden", 0);
    if (job->state != XPD_JOB_QUEUED)
        return NULL;
    xpd_dispatch_refresh(b);
    sentence(text, sizeof text, b, job);
    bool drained = b->draining || b->stopping;
    bool starts = job->waiting.pending == XPD_PENDING_NONE || drained;
    if (job->waiting.start_ms > 0)
        xpp_time_text(when, job->waiting.start_ms);
    json_t *list = starts ? json_array() : blockers(b, job, &hidden);
    if (starts)
        hidden = 0;
    return json_pack("{s:I, s:s, s:s, s:s?, s:o, s:I}", "position",
                     (json_int_t)job->waiting.position, "reason", reason_of(b, job), "detail", text,
                     "estimated_start", job->waiting.start_ms > 0 && !drained ? when : NULL,
                     "blocked_by", list, "blocked_by_hidden", hidden);
}
