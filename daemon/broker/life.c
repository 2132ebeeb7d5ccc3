/* See life.h.  Order of a finish: result file, commit, `end` event.  A crash between commit and
 * event is repaired when the log is opened next; a crash between result and commit is found at
 * start by the worker's done.json. */
#include "life.h"

#include "ballast.h"
#include "dispatch.h"
#include "download.h"
#include "log.h"
#include "lost.h"
#include "stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOG_TEXT_MAX (16 << 20) /* bytes of a job's log.txt */
#define PRUNE_AT_ONCE 32
#define TEND_MS 5000
#define TRIM_MS 60000
#define RETRY_MS 2000
#define STATE_LEAST (256 << 10) /* bytes: room for a few commits */

void xpd_job_path(char *out, size_t size, const xpd_broker *b, const char *id, const char *file)
{
    xpd_print(out, size, "%s/%s%s%s", b->jobs_dir, id, *file ? "/" : "", file);
}

int64_t xpd_disk_free(xpd_broker *b)
{
    struct statvfs fs;
    if (statvfs(b->config.state_dir, &fs) == 0)
        b->state_free = (int64_t)(fs.f_bavail * fs.f_frsize);
    return b->state_free;
}

/* ------------------------------------------------------------------------------------ events */

static json_t *state_body(const xpd_job *job)
{
    return json_pack("{s:s, s:s, s:s}", "state", xpd_state_name(job->state), "reason", job->reason,
                     "detail", job->detail);
}

static json_t *end_body(const xpd_job *job)
{
    return json_pack("{s:s, s:s, s:s, s:O?}", "state", xpd_state_name(job->state), "reason",
                     job->reason, "detail", job->detail, "result", job->result);
}

/* A terminal job whose log has no `end` was overtaken by a crash. */
static void repair_end(xpd_job *job, xpd_events *events)
{
    if (!xpd_state_terminal(job->state) || job->end_due || xpd_events_ended(events))
        return;
    json_t *end = end_body(job);
    xpd_events_append(events, job->finished_ms, "end", end);
    json_decref(end);
}

xpd_events *xpd_job_log(xpd_broker *b, xpd_job *job)
{
    char path[PATH_MAX];
    xpd_error err = XPD_ERROR_INIT;

    if (job->events)
        return job->events;
    xpd_job_path(path, sizeof path, b, job->id, "");
    if (!job->removed && mkdir(path, 0750) != 0 && errno != EEXIST)
        xpd_log(XPD_LOG_WARNING, job->id, "folder '%s' cannot be made: %s", path, strerror(errno));
    xpd_job_path(path, sizeof path, b, job->id, "events.ndjson");
    if (!xpd_events_open(&job->events, path, &err)) {
        xpd_log(XPD_LOG_WARNING, job->id, "%s", err.text);
        return NULL;
    }
    repair_end(job, job->events);
    return job->events;
}

void xpd_job_log_rest(xpd_job *job)
{
    if (job->active || job->readers > 0 || job->end_due)
        return;
    xpd_events_close(job->events);
    job->events = NULL;
}

/* A line that there is no memory for is NULL: its readers are sent away to ask again. */
static void feed_add(xpd_broker *b, const xpd_job *job, const char *line)
{
    xpd_feed_line *slot = &b->feed[b->feed_next % XPD_FEED_RING];
    json_t *event = xpp_load(line, strlen(line), 0, NULL);
    bool named = json_object_set_new(event, "job", json_string(job->id)) == 0;
    char *text = named ? xpp_dump(event, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    char *whole = NULL;

    json_decref(event);
    if (!text || asprintf(&whole, "%s\n", text) < 0) {
        xpd_log(XPD_LOG_WARNING, job->id, "the feed lacks an event: memory is exhausted");
        whole = NULL;
    }
    free(text);
    free(slot->line);
    slot->line = whole;
    slot->uid = job->uid;
    b->feed_next++;
}

/* The job's log.txt: what a person wants to read afterwards. */
static void log_text(xpd_broker *b, const xpd_job *job, const char *type, const json_t *body,
                     int64_t now)
{
    char path[PATH_MAX], stamp[32], text[1024], safe[2048];
    struct stat st;
    const char *said = json_string_value(json_object_get(body, "text"));

    if (strcmp(type, "state") == 0 || strcmp(type, "end") == 0)
        snprintf(text, sizeof text, "%s%s%s%s%s", xpd_state_name(job->state),
                 *job->reason ? ", " : "", job->reason, *job->detail ? ": " : "", job->detail);
    else if (said)
        snprintf(text, sizeof text, "%s%s", strcmp(type, "warning") == 0 ? "warning: " : "", said);
    else
        return;
    xpd_job_path(path, sizeof path, b, job->id, "log.txt");
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return;
    xpp_time_text(stamp, now);
    xpd_text_escape(safe, sizeof safe, text);
    if (fstat(fd, &st) == 0 && st.st_size < LOG_TEXT_MAX && dprintf(fd, "%s %s\n", stamp, safe) < 0)
        xpd_log(XPD_LOG_WARNING, job->id, "log.txt cannot be written: %s", strerror(errno));
    close(fd);
}

static int64_t artefact_bytes(const xpd_broker *b, const xpd_job *job);

static bool event_add(xpd_broker *b, xpd_job *job, const char *type, const json_t *body)
{
    xpd_events *events = xpd_job_log(b, job);
    int64_t now = xpd_wall_ms();
    if (!events)
        return false;
    if (!body || !xpd_events_append(events, now, type, body)) {
        xpd_log(XPD_LOG_WARNING, job->id, "no event '%s': memory is exhausted", type);
        return false;
    }
    if (strcmp(type, "state") == 0 || strcmp(type, "end") == 0)
        feed_add(b, job, xpd_events_newest(events));
    if (strcmp(type, "iter") != 0 && strcmp(type, "preview") != 0)
        log_text(b, job, type, body, now);
    xpd_streams_notify(b, job);
    return true;
}

void xpd_job_event(xpd_broker *b, xpd_job *job, const char *type, const json_t *body)
{
    event_add(b, job, type, body);
    xpd_job_log_rest(job);
}

static void state_event(xpd_broker *b, xpd_job *job)
{
    json_t *body = state_body(job);
    event_add(b, job, "state", body);
    json_decref(body);
}

/* The worker removes them when it ends a job; here are those of jobs that ended without one. */
static void drop_checkpoints(const xpd_broker *b, const xpd_job *job)
{
    static const char *const names[] = {"checkpoint.0", "checkpoint.1", "checkpoint.0.tmp",
                                        "checkpoint.1.tmp"};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        xpd_job_path(path, sizeof path, b, job->id, names[i]);
        if (unlink(path) != 0 && errno != ENOENT)
            xpd_log(XPD_LOG_WARNING, job->id, "'%s' cannot be deleted: %s", path, strerror(errno));
    }
}

static void retry_later(xpd_broker *b, int64_t delay_ms);

static void end_events(xpd_broker *b, xpd_job *job)
{
    drop_checkpoints(b, job);
    json_t *end = end_body(job);
    bool told = event_add(b, job, "end", end);
    json_decref(end);
    if (!told && job->events) { /* who follows it waits for that; a log that is opened later repairs
                                   itself */
        job->dirty = true;
        retry_later(b, RETRY_MS);
        return;
    }
    job->end_due = false;
    xpd_job_log_rest(job);
    xpd_waits_notify(b, job);
}

/* ------------------------------------------------------------------------------------ commit */

typedef struct commit {
    xpd_broker *b;
    xpd_job *job;
    xpd_store_done then; /* or NULL */
    void *context;
    bool again; /* tried a second time, in the room that the ballast left */
    bool ends;  /* what is written says that the job has ended */
} commit;

static void retry_commits(void *context)
{
    xpd_broker *b = context;
    int tried = 0;
    for (size_t i = 0; i < b->jobs.count; i++) {
        xpd_job *job = b->jobs.items[i];
        if (job->dirty && tried++ < 256) {
            job->dirty = false;
            xpd_job_persist(b, job);
        }
    }
}

static void retry_later(xpd_broker *b, int64_t delay_ms)
{
    b->store_retry.fire = retry_commits;
    b->store_retry.context = b;
    if (!xpd_timer_armed(&b->store_retry))
        xpd_timer_set(&b->loop, &b->store_retry, delay_ms);
}

bool xpd_state_full(xpd_broker *b, const char *job_id)
{
    if (!b->state_full)
        xpd_log(XPD_LOG_ERROR, job_id,
                "the disk of '%s' is full; changes of jobs are kept in memory and tried again",
                b->config.state_dir);
    b->state_full = true;
    return xpd_ballast_give(b);
}

/* Where no change waits to be tried again, room on the disk is all there is to go by. */
static void look_for_room(xpd_broker *b)
{
    for (size_t i = 0; i < b->jobs.count; i++) {
        if (b->jobs.items[i]->dirty)
            return;
    }
    b->state_full = xpd_disk_free(b) < xpd_ballast_needed(b) || b->state_free < STATE_LEAST;
}

static void committed(void *context, xpd_store_result result)
{
    commit *c = context;
    xpd_broker *b = c->b;

    if (result == XPD_STORE_OK) {
        b->state_full = false;
        if (c->ends && c->job->end_due && !c->job->dirty) /* an earlier move does not count */
            end_events(b, c->job);
    } else if (result == XPD_STORE_FULL) {
        bool had_ballast = xpd_state_full(b, c->job->id);
        if (c->then && !c->again && b->ballast_given) { /* somebody waits for the answer */
            c->again = true;
            c->ends = c->job->end_due;
            xpd_store_put(b->store, xpd_job_row(c->job), committed, c);
            return;
        }
        c->job->dirty = true;
        retry_later(b, had_ballast ? 0 : RETRY_MS); /* at once where the ballast made room */
    } else {
        xpd_state_lost(b);
    }
    if (c->then)
        c->then(c->context, result);
    xpd_job_unref(c->job);
    free(c);
}

void xpd_state_lost(xpd_broker *b)
{
    if (!b->failed)
        xpd_log(XPD_LOG_ERROR, NULL,
                "the state cannot be trusted any more; stopping, the next start recovers from the "
                "disk");
    b->failed = true;
    b->loop.stop = true;
}

void xpd_job_persist_then(xpd_broker *b, xpd_job *job, xpd_store_done then, void *context)
{
    commit *c = malloc(sizeof *c);
    if (!c) {
        job->dirty = true;
        retry_later(b, RETRY_MS);
        if (then)
            then(context, XPD_STORE_FULL);
        return;
    }
    *c = (commit){b, xpd_job_ref(job), then, context, false, job->end_due};
    xpd_store_put(b->store, xpd_job_row(job), committed, c);
}

void xpd_job_persist(xpd_broker *b, xpd_job *job)
{
    xpd_job_persist_then(b, job, NULL, NULL);
}

void xpd_store_ready(void *broker)
{
    xpd_broker *b = broker;
    xpd_store_collect(b->store);
}

/* ------------------------------------------------------------------------------------- moves */

bool xpd_job_move(xpd_broker *b, xpd_job *job, xpd_state to, const char *reason, const char *detail)
{
    xpd_state from = job->state;

    if (!xpd_state_allowed(from, to)) {
        xpd_log(XPD_LOG_ERROR, job->id, "a move from %s to %s is not allowed", xpd_state_name(from),
                xpd_state_name(to));
        return false;
    }
    if (from == XPD_JOB_QUEUED)
        xpd_queue_remove(&b->queue, job);
    if (from == XPD_JOB_HELD) {
        xpd_queue_remove(&b->held, job);
        job->queued_ms = xpd_wall_ms();
    }
    job->state = to;
    job->rev++;
    snprintf(job->reason, sizeof job->reason, "%s", reason);
    snprintf(job->detail, sizeof job->detail, "%s", detail);
    if (to == XPD_JOB_STARTING) {
        job->started_ms = xpd_wall_ms();
        job->progress.known = false;
    }
    if (xpd_state_terminal(to)) {
        job->finished_ms = xpd_wall_ms();
        job->artefact_bytes = artefact_bytes(b, job);
    }
    if ((to == XPD_JOB_QUEUED && !xpd_queue_insert(&b->queue, job)) ||
        (to == XPD_JOB_HELD && !xpd_queue_insert(&b->held, job)))
        xpd_log(XPD_LOG_ERROR, job->id,
                "memory is exhausted; the job waits for the next start of the service");
    xpd_dispatch_due(b);
    xpd_log(XPD_LOG_INFO, job->id, "%s -> %s%s%s%s%s", xpd_state_name(from), xpd_state_name(to),
            *reason ? ", " : "", reason, *detail ? ": " : "", detail);

    xpd_metrics_job(b, job, xpd_state_name(from));
    if (xpd_state_terminal(to)) {
        job->end_due = true;
    } else {
        state_event(b, job);
        xpd_job_log_rest(job);
    }
    xpd_job_persist(b, job);
    xpd_waits_notify(b, job);
    return true;
}

void xpd_job_changed(xpd_broker *b, xpd_job *job)
{
    job->rev++;
    xpd_dispatch_due(b);
    xpd_waits_notify(b, job);
}

bool xpd_job_enter(xpd_broker *b, xpd_job *job)
{
    if (!xpd_table_add(&b->jobs, job))
        return false;
    if (!xpd_queue_insert(&b->queue, job)) {
        xpd_table_remove(&b->jobs, job);
        return false;
    }
    xpd_dispatch_due(b);
    xpd_log(XPD_LOG_INFO, job->id, "submitted by %s: '%s'", job->user, xpd_job_name(job));
    xpd_metrics_job(b, job, NULL);
    state_event(b, job);
    xpd_job_log_rest(job);
    return true;
}

/* ----------------------------------------------------------------------------------- erasing */

/* What the job leaves in the state folder. */
static int64_t artefact_bytes(const xpd_broker *b, const xpd_job *job)
{
    char path[PATH_MAX];
    struct dirent *entry;
    struct stat st;
    int64_t bytes = 0;

    xpd_job_path(path, sizeof path, b, job->id, "");
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        bool goes = strncmp(entry->d_name, "checkpoint.", 11) == 0;
        if (!goes && fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            bytes += (int64_t)st.st_size;
    }
    if (folder)
        closedir(folder);
    if (xpd_print(path, sizeof path, "%s/%s.h5", b->results_dir, job->id) && lstat(path, &st) == 0)
        bytes += (int64_t)st.st_size;
    return bytes;
}

int64_t xpd_artefacts_of(const xpd_broker *b, uid_t uid)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < b->jobs.count; i++)
        bytes += b->jobs.items[i]->uid == uid ? b->jobs.items[i]->artefact_bytes : 0;
    return bytes;
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    if (!folder)
        return;
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            xpd_log(XPD_LOG_WARNING, NULL, "'%s/%s' cannot be deleted: %s", path, entry->d_name,
                    strerror(errno));
    }
    closedir(folder);
    if (rmdir(path) != 0)
        xpd_log(XPD_LOG_WARNING, NULL, "folder '%s' cannot be deleted: %s", path, strerror(errno));
}

void xpd_job_erase(xpd_broker *b, xpd_job *job)
{
    char path[PATH_MAX];

    xpd_table_remove(&b->jobs, xpd_job_ref(job));
    xpd_job_path(path, sizeof path, b, job->id, "");
    remove_folder(path);
    /* a result at a path that the job named is the user's */
    if (xpd_print(path, sizeof path, "%s/%s.h5", b->results_dir, job->id) && unlink(path) != 0 &&
        errno != ENOENT)
        xpd_log(XPD_LOG_WARNING, job->id, "'%s' cannot be deleted: %s", path, strerror(errno));
    xpd_streams_notify(b, job);
    xpd_job_unref(job);
}

typedef struct pruned {
    xpd_broker *b;
    xpd_job *job;
} pruned;

static void prune_done(void *context, xpd_store_result result)
{
    pruned *p = context;
    if (result == XPD_STORE_OK && !p->job->removed)
        xpd_job_erase(p->b, p->job);
    p->job->removing = false;
    xpd_job_unref(p->job);
    free(p);
}

void xpd_job_forget(xpd_broker *b, const xpd_job *job, xpd_store_done done, void *context)
{
    xpd_note note;
    bool left = xpd_owners_note(&note, job, xpd_wall_ms());

    if (left)
        xpd_owners_take(&b->owners, &note);
    xpd_store_delete(b->store, job->id, left ? &note : NULL, done, context);
}

static bool forget(xpd_broker *b, xpd_job *job, const char *why)
{
    pruned *p = malloc(sizeof *p);
    if (!p)
        return false;
    *p = (pruned){b, xpd_job_ref(job)};
    job->removing = true;
    xpd_log(XPD_LOG_INFO, job->id, "forgotten: %s", why);
    xpd_job_forget(b, job, prune_done, p);
    return true;
}

/* The oldest first, and few at a time: files are deleted on this thread. */
void xpd_jobs_prune(xpd_broker *b)
{
    int64_t excess = (int64_t)b->jobs.count - b->config.keep_jobs;
    int64_t old_ms = xpd_wall_ms() - b->config.keep_days * 24 * 3600 * 1000;
    int left = PRUNE_AT_ONCE;

    for (size_t i = 0; i < b->jobs.count && left > 0; i++) {
        xpd_job *job = b->jobs.items[i];
        bool old = b->config.keep_days > 0 && job->finished_ms < old_ms;
        if (job->removing) {
            excess--;
            continue;
        }
        if (!xpd_state_terminal(job->state) || job->end_due || job->dirty || (!old && excess <= 0))
            continue;
        char why[96];
        snprintf(why, sizeof why,
                 old ? "it ended more than %lld days ago" : "more than %lld jobs are kept",
                 (long long)(old ? b->config.keep_days : b->config.keep_jobs));
        if (!forget(b, job, why))
            return;
        excess--;
        left--;
    }
}

/* Jobs come and go in many sizes, and what they leave free lies between what stays: without this
 * the heap was twice what was in use after an hour, and still grew. */
static void trim(xpd_broker *b)
{
    int64_t now = xpd_now_ms();

    if (now - b->trimmed_ms < TRIM_MS)
        return;
    b->trimmed_ms = now;
    malloc_trim(0);
}

static void tend(void *context)
{
    xpd_broker *b = context;
    if (!b->stopping)
        xpd_jobs_prune(b);
    if (b->state_full)
        look_for_room(b);
    if (!b->stopping && !b->state_full)
        xpd_ballast_make(b);
    trim(b);
    xpd_timer_set(&b->loop, &b->prune, TEND_MS);
}

void xpd_state_tend(xpd_broker *b)
{
    b->prune = (xpd_timer){.fire = tend, .context = b};
    xpd_timer_set(&b->loop, &b->prune, TEND_MS);
}

/* ----------------------------------------------------------------------------------- loading */

static bool take_row(void *context, xpd_row *row)
{
    xpd_broker *b = context;
    xpd_job *job = xpd_job_from_row(row);
    bool ok = true;

    if (!job)
        xpd_log(XPD_LOG_ERROR, row->id, "its row in the state makes no sense; it is left out");
    else
        ok = xpd_table_add(&b->jobs, job);
    xpd_job_unref(job);
    xpd_row_free(row);
    return ok;
}

/* The worker leaves what `done` will say in the job's folder before the file gets its name.  When
 * the named file is still that file, the job had finished and only the word of it was lost. */
json_t *xpd_job_finished_result(const xpd_broker *b, const xpd_job *job)
{
    char path[PATH_MAX];
    json_t *result = NULL;

    xpd_job_path(path, sizeof path, b, job->id, "done.json");
    json_t *done = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    const char *said = json_string_value(json_object_get(done, "state"));
    json_t *found = json_object_get(done, "result");
    if (said && strcmp(said, "succeeded") == 0 && xpd_result_is_there(found))
        result = json_incref(found);
    json_decref(done);
    return result;
}

static void resume_job(xpd_broker *b, xpd_job *job)
{
    json_t *result = xpd_job_finished_result(b, job);

    if (result) {
        json_decref(job->result);
        job->result = result;
        if (job->state == XPD_JOB_STARTING) /* a short job: the worker's word of it was lost */
            xpd_job_move(b, job, XPD_JOB_RUNNING, "", "");
        xpd_job_move(b, job, XPD_JOB_SUCCEEDED, "", "");
    } else if (strcmp(job->reason, XPD_CANCELLING) == 0) {
        char detail[sizeof job->detail];
        snprintf(detail, sizeof detail, "%s", job->detail);
        xpd_job_move(b, job, XPD_JOB_CANCELLED, "cancelled", detail);
    } else {
        xpd_job_move(b, job, XPD_JOB_QUEUED, "broker-restart",
                     "the service was restarted while the job ran");
    }
}

static void take_note(void *context, const xpd_note *note)
{
    xpd_broker *b = context;
    xpd_history_take(&b->history, note);
    xpd_owners_take(&b->owners, note);
}

bool xpd_jobs_load(xpd_broker *b, xpd_error *err)
{
    b->jobs.next_number = 1;
    if (!xpd_store_load(b->store, take_row, b, err) || !xpd_lost_look(b, err) ||
        !xpd_store_notes(b->store, take_note, b, err) || !xpd_store_start(b->store, err))
        return false;
    for (size_t i = 0; i < b->jobs.count; i++) {
        xpd_job *job = b->jobs.items[i];
        if ((job->state == XPD_JOB_QUEUED && !xpd_queue_insert(&b->queue, job)) ||
            (job->state == XPD_JOB_HELD && !xpd_queue_insert(&b->held, job)))
            return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
        if (job->state == XPD_JOB_STARTING || job->state == XPD_JOB_RUNNING)
            resume_job(b, job);
    }
    return true;
}
