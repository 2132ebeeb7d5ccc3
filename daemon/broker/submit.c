/* See submit.h.  The steps wait for others (worker, reader, store), so a submission is a small
 * state machine; its request is suspended meanwhile and may have lost its client, which changes
 * nothing. */
#include "submit.h"

#include "assign.h"
#include "ballast.h"
#include "dispatch.h"
#include "life.h"
#include "log.h"
#include "memory.h"
#include "output.h"
#include "people.h"
#include "reader.h"
#include "sets.h"
#include "worker.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_WAIT_MS 15000 /* for the first worker after the start of the service */

typedef struct xpd_submission {
    xpd_broker *b;
    xpd_request *r;
    json_t *doc, *resolved;
    xpp_job *decoded;
    bool dry_run, probe;
    enum { WAIT_DEVICES, WAIT_READER, WAIT_STORE, STORED } step;
    xpd_timer patience;
    xpd_choice choice;
    xpd_reading *reading;
    json_t *scan, *verdict;
    xpd_needs needs;
    xpd_job *job;
    char key[256], sha[65]; /* idempotency; key "" = none */
    struct xpd_submission *next, **link;
} xpd_submission;

/* ------------------------------------------------------------------------------------ answers */

static void submission_free(xpd_submission *s)
{
    if (s->link) {
        *s->link = s->next;
        if (s->next)
            s->next->link = s->link;
    }
    xpd_timer_cancel(&s->patience);
    xpd_reading_abandon(s->reading);
    xpp_job_free(s->decoded);
    json_decref(s->doc);
    json_decref(s->resolved);
    json_decref(s->scan);
    json_decref(s->verdict);
    xpd_job_unref(s->job);
    free(s);
}

static void finish_problem(xpd_submission *s, json_t *problem)
{
    xpd_reply_problem(s->r, problem);
    submission_free(s);
}

static void finish_error(xpd_submission *s, xpd_error *err)
{
    finish_problem(s, xpd_problem(err));
}

static void reply_created(xpd_request *r, const xpd_job *job, bool replayed)
{
    char location[64], tag[64];
    snprintf(location, sizeof location, "/v1/jobs/%s", job->id);
    snprintf(tag, sizeof tag, "\"%s-%lld\"", job->id, (long long)job->rev);
    const char *const headers[][2] = {{MHD_HTTP_HEADER_LOCATION, location},
                                      {MHD_HTTP_HEADER_ETAG, tag},
                                      {replayed ? "Idempotency-Replayed" : NULL, "true"},
                                      {NULL, NULL}};
    xpd_reply_json_as(r, MHD_HTTP_CREATED,
                      xpd_job_document(job, xpd_dispatch_pending(r->b, job), true), NULL, headers);
}

/* ------------------------------------------------------------------------------------ commit */

static void committed(void *context, xpd_store_result result)
{
    xpd_submission *s = context;
    xpd_broker *b = s->b;
    xpd_error err = XPD_ERROR_INIT;

    if (result == XPD_STORE_OK && xpd_job_enter(s->b, s->job)) {
        s->step = STORED;
        b->submissions_stored = true;
        return;
    }
    if (result == XPD_STORE_FULL) {
        xpd_state_full(b, NULL);
        int64_t available = xpd_disk_free(b), need = xpd_ballast_needed(b);
        xpd_fail(&err, XPP_FAULT_LOW_DISK, "",
                 "the disk of the state folder is full; nothing was stored");
        err.more = json_pack("{s:I, s:I}", "free_bytes", (json_int_t)available, "required_bytes",
                             (json_int_t)need);
    } else if (result == XPD_STORE_OK) {
        xpd_fail(&err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
    } else {
        xpd_fail(&err, XPP_FAULT_UNAVAILABLE, "",
                 "the state cannot be written; the service restarts");
    }
    finish_error(s, &err);
    if (result == XPD_STORE_FATAL)
        xpd_state_lost(b);
}

void xpd_submissions_answer(xpd_broker *b)
{
    xpd_submission *next;

    if (!b->submissions_stored)
        return;
    b->submissions_stored = false;
    for (xpd_submission *s = b->submissions; s; s = next) {
        next = s->next;
        if (s->step != STORED)
            continue;
        reply_created(s->r, s->job, false);
        submission_free(s);
    }
}

static void store(xpd_submission *s)
{
    xpd_job *job = xpd_job_create(s->doc, s->resolved);
    xpd_error err = XPD_ERROR_INIT;

    if (!job ||
        (s->key[0] && (!(job->idem_key = strdup(s->key)) || !(job->idem_sha = strdup(s->sha))))) {
        xpd_job_unref(job);
        xpd_fail(&err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
        finish_error(s, &err);
        return;
    }
    xpp_job_id_make(job->id);
    job->number = s->b->jobs.next_number++;
    job->uid = s->r->caller.uid;
    snprintf(job->user, sizeof job->user, "%s", s->r->caller.user);
    job->created_ms = job->queued_ms = xpd_wall_ms();
    job->frames = json_integer_value(json_object_get(s->scan, "frames"));
    job->side = json_integer_value(json_object_get(s->scan, "frame_side"));
    /* which GPUs it gets is known when it starts, unless it names them */
    if (s->choice.count > 0 &&
        (s->decoded->devices.count > 0 || strncmp(s->choice.names[0], "cpu", 3) == 0))
        job->devices = xpd_choice_names(&s->choice);
    job->needs = s->needs;
    xpd_output_note(job, s->scan);
    s->job = job;
    s->step = WAIT_STORE;
    xpd_store_put(s->b->store, xpd_job_row(job), committed, s);
}

static void verdict(xpd_submission *s)
{
    json_t *scan = s->scan ? json_deep_copy(s->scan) : json_null();
    json_object_del(scan, "arrays");
    json_object_del(scan, "file");
    json_object_del(scan, "output_folder");
    json_object_del(scan, "output_disk");
    json_object_del(scan, "replaces");
    xpd_reply_json(s->r, MHD_HTTP_OK,
                   json_pack("{s:b, s:O, s:o, s:o, s:o}", "admitted", 1, "job", s->resolved, "scan",
                             scan, "devices", s->verdict ? json_incref(s->verdict) : json_array(),
                             "needs", xpd_needs_json(&s->needs)));
    submission_free(s);
}

/* ------------------------------------------------------------------------------------- steps */

static void admitted(xpd_submission *s)
{
    if (s->dry_run)
        verdict(s);
    else
        store(s);
}

/* Those that are on their way to the disk are not in the table yet. */
static bool output_free(const xpd_submission *s, const json_t *scan, xpd_error *err)
{
    const char *path = s->decoded->output_path;

    for (const xpd_submission *o = s->b->submissions; path && o; o = o->next) {
        if (o != s && o->scan && !o->dry_run && o->decoded->output_path &&
            xpd_output_same(path, scan, o->decoded->output_path, o->scan))
            return xpd_fail(err, XPP_FAULT_OUTPUT, "/output/path",
                            "output.path '%s' is the output of a job that is being submitted; "
                            "choose another",
                            path);
    }
    return xpd_output_allowed(s->b, s->r->caller.uid, NULL, path, scan, err);
}

static bool fits(xpd_submission *s, const xpp_ipc_message *scan, int positions, xpd_error *err)
{
    xpd_room room;

    xpd_memory_room(s->b, s->decoded, scan->body, &room);
    return xpd_admit(&s->needs, &s->choice, xpd_workers_devices(s->b), &room, s->decoded,
                     scan->body, scan->fds[positions], &s->verdict, err) &&
           xpd_admit_files(&s->needs, &room, s->decoded, err);
}

static void on_scan(void *context, xpp_ipc_message *scan, json_t *problem)
{
    xpd_submission *s = context;
    xpd_error err = XPD_ERROR_INIT;

    s->reading = NULL;
    if (problem && !s->dry_run && xpd_fault_of_problem(problem) == XPP_FAULT_DATASET_BUSY) {
        json_decref(problem); /* looked at when it starts; until it is written the job waits */
        admitted(s);
        return;
    }
    if (problem) {
        finish_problem(s, problem);
        return;
    }
    int positions = xpd_scan_array(scan->body, "positions");
    if (positions < 0) {
        xpd_fail(&err, XPP_FAULT_INTERNAL, "", "the reader gave no positions");
        finish_error(s, &err);
    } else if (!output_free(s, scan->body, &err) || !fits(s, scan, positions, &err)) {
        finish_error(s, &err);
    } else {
        s->scan = json_incref(scan->body);
        admitted(s);
    }
}

static xpd_class class_of(const xpd_submission *s)
{
    const char *name = json_string_value(json_object_get(s->resolved, "class"));
    xpd_class class = XPD_CLASS_NORMAL;
    return name && xpd_class_find(&class, name) ? class : XPD_CLASS_NORMAL;
}

static bool has_set(const xpd_submission *s, xpd_error *err)
{
    bool any = class_of(s) == XPD_CLASS_LIVE;
    int kept = 0;

    for (int i = 0; i < s->b->worker_count; i++) {
        bool gone = s->b->workers[i]->devices.known && !xpd_set_devices(s->b, i);
        any = any || (!gone && !xpd_set_kept_for_live(s->b, i));
        kept += !gone;
    }
    return any ||
           xpd_fail(err, XPP_FAULT_NO_DEVICE, "/class",
                    "all %d device sets are kept for live jobs, which this one is not", kept);
}

static void look(xpd_submission *s)
{
    xpd_error err = XPD_ERROR_INIT;

    xpd_timer_cancel(&s->patience);
    for (int i = 0; i < s->b->worker_count; i++)
        xpd_worker_ask(
            s->b->workers[i]); /* the memory of now, by the time that the reader is back */
    if (!xpd_assign_choose(&s->choice, s->b, s->decoded, 0, &err)) {
        finish_error(s, &err);
        return;
    }
    if (!has_set(s, &err)) {
        finish_error(s, &err);
        return;
    }
    if (!s->probe) {
        admitted(s);
        return;
    }
    s->step = WAIT_READER;
    s->reading = xpd_reading_start(s->b, XPP_IPC_PROBE, s->r->caller.uid, s->resolved,
                                   s->decoded->output_path, on_scan, s, &err);
    if (!s->reading)
        finish_error(s, &err);
}

static void no_devices(void *context)
{
    xpd_submission *s = context;
    xpd_error err = XPD_ERROR_INIT;
    xpd_fail(&err, XPP_FAULT_UNAVAILABLE, "", "the worker has not started yet; try again");
    finish_error(s, &err);
}

void xpd_submissions_devices_known(xpd_broker *b)
{
    xpd_submission *next;
    if (!xpd_workers_devices(b)->known)
        return;
    for (xpd_submission *s = b->submissions; s; s = next) {
        next = s->next;
        if (s->step == WAIT_DEVICES)
            look(s);
    }
}

void xpd_submissions_end(xpd_broker *b)
{
    xpd_submission *next;
    for (xpd_submission *s = b->submissions; s; s = next) {
        xpd_error err = XPD_ERROR_INIT;
        next = s->next;
        if (s->step == WAIT_STORE || s->step == STORED)
            continue; /* answered within a moment */
        xpd_fail(&err, XPP_FAULT_DRAINING, "", "the service is stopping");
        finish_error(s, &err);
    }
}

/* ------------------------------------------------------------------------------------ checks */

/* Files that the user's jobs left in the state folder. */
static bool check_artefacts(const xpd_broker *b, const xpd_caller *caller, xpd_error *err)
{
    int64_t limit = b->config.artefacts_user_mib << 20,
            mine = limit > 0 ? xpd_artefacts_of(b, caller->uid) : 0;

    if (limit == 0 || mine < limit)
        return true;
    xpd_fail(err, XPP_FAULT_LOW_DISK, "",
             "your jobs left %lld MiB in the service's folder, the limit is %lld MiB; delete some "
             "that are finished, or name an output.path so that results are not kept there",
             (long long)(mine >> 20), (long long)b->config.artefacts_user_mib);
    err->more = json_pack("{s:I, s:I, s:s}", "limit", (json_int_t)limit, "current",
                          (json_int_t)mine, "scope", "user");
    return false;
}

static bool check_room(xpd_broker *b, const xpd_caller *caller, xpd_error *err)
{
    if (b->ballast_given)
        xpd_ballast_make(b); /* at once where there is room again */
    int64_t need = xpd_ballast_needed(b), available = xpd_disk_free(b);

    if (b->stopping || b->draining)
        return xpd_fail(err, XPP_FAULT_DRAINING, "",
                        b->stopping ? "the service is stopping"
                                    : "the service is drained and takes no new jobs");
    if (available < need || b->ballast_given || b->state_full) {
        xpd_fail(err, XPP_FAULT_LOW_DISK, "",
                 "the state folder has %lld MiB free; %lld MiB are kept for running jobs",
                 (long long)(available >> 20), (long long)(need >> 20));
        err->more = json_pack("{s:I, s:I}", "free_bytes", (json_int_t)available, "required_bytes",
                              (json_int_t)need);
        return false;
    }
    int64_t mine = (int64_t)(xpd_queue_count_user(&b->queue, caller->uid) +
                             xpd_queue_count_user(&b->held, caller->uid));
    int64_t all = (int64_t)(b->queue.count + b->held.count);
    for (const xpd_submission *s = b->submissions; s; s = s->next) { /* on their way to it */
        bool counts = !s->dry_run && s->step != STORED;
        mine += counts && s->r->caller.uid == caller->uid;
        all += counts;
    }
    bool own = mine >= b->config.queue_user_max;
    if (own || all >= b->config.queue_max) {
        int64_t limit = own ? b->config.queue_user_max : b->config.queue_max;
        xpd_fail(err, XPP_FAULT_QUEUE_FULL, "", "%lld jobs wait%s; that is the limit%s",
                 (long long)(own ? mine : all), own ? " for you, held ones included" : "",
                 own ? "; cancel one, or try again when one has started"
                     : "; try again when one has started");
        err->more = json_pack("{s:I, s:I, s:s}", "limit", (json_int_t)limit, "current",
                              (json_int_t)(own ? mine : all), "scope", own ? "user" : "service");
        return false;
    }
    return true;
}

static bool read_key(xpd_submission *s, xpd_error *err)
{
    const char *key = xpd_request_header(s->r, "Idempotency-Key");
    size_t length = key ? strlen(key) : 0;

    if (!key)
        return true;
    if (length >= 2 && key[0] == '"' && key[length - 1] == '"') {
        key++;
        length -= 2;
    }
    bool good = length >= 1 && length < sizeof s->key;
    for (size_t i = 0; good && i < length; i++)
        good = key[i] > 0x20 && key[i] < 0x7f;
    if (!good)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "Idempotency-Key must be 1 to 255 visible ASCII characters");
    memcpy(s->key, key, length);
    char *canonical = xpp_dump(s->doc, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!canonical)
        return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
    xpd_sha256_hex(s->sha, canonical, strlen(canonical));
    free(canonical);
    return true;
}

/* true when the key was used before: the request is answered. */
static bool replay(xpd_submission *s)
{
    const xpd_job *job =
        s->key[0] ? xpd_table_find_key(&s->b->jobs, s->r->caller.uid, s->key) : NULL;

    if (job && strcmp(job->idem_sha, s->sha) == 0) {
        reply_created(s->r, job, true);
        return true;
    }
    if (job) {
        xpd_reply_problem(
            s->r, xpp_problem(XPP_FAULT_IDEMPOTENCY,
                              "this Idempotency-Key was used with another document; use a new one",
                              NULL, json_pack("{s:s}", "job", job->id)));
        return true;
    }
    for (const xpd_submission *other = s->b->submissions; s->key[0] && other; other = other->next) {
        if (other != s && other->r->caller.uid == s->r->caller.uid &&
            strcmp(other->key, s->key) == 0) {
            xpd_reply_fault(
                s->r, XPP_FAULT_CONFLICT,
                "a submission with this Idempotency-Key is being handled; ask again in a moment");
            return true;
        }
    }
    return false;
}

static bool check_document(xpd_submission *s)
{
    json_t *errors = xpp_job_check(s->doc);
    char detail[64];

    if (errors) {
        size_t n = json_array_size(errors);
        snprintf(detail, sizeof detail, "%zu error%s in the job document", n, n == 1 ? "" : "s");
        xpd_reply_problem(s->r, xpp_problem(XPP_FAULT_INVALID_JOB, detail, errors, NULL));
        return false;
    }
    s->resolved = xpp_job_resolved(s->doc);
    s->decoded = s->resolved ? xpp_job_decode(s->resolved) : NULL;
    if (!s->decoded)
        xpd_reply_fault(s->r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
    return s->decoded != NULL;
}

void xpd_submit(xpd_request *r, json_t *doc, bool dry_run, bool probe)
{
    xpd_broker *b = r->b;
    xpd_submission *s = calloc(1, sizeof *s);
    xpd_error err = XPD_ERROR_INIT;

    if (!s) {
        json_decref(doc);
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
        return;
    }
    s->b = b;
    s->r = r;
    s->doc = doc;
    s->dry_run = dry_run;
    s->probe = probe;
    s->patience = (xpd_timer){.fire = no_devices, .context = s};
    if (!read_key(s, &err)) {
        finish_error(s, &err);
        return;
    }
    if ((!dry_run && replay(s)) || !check_document(s)) {
        submission_free(s);
        return;
    }
    if (!xpd_class_allowed(&b->config, &r->caller, class_of(s), &err) ||
        !xpd_output_free(b, r->caller.uid, s->decoded->output_path, &err) ||
        (!dry_run && (!check_artefacts(b, &r->caller, &err) || !check_room(b, &r->caller, &err)))) {
        finish_error(s, &err);
        return;
    }
    s->next = b->submissions;
    s->link = &b->submissions;
    if (s->next)
        s->next->link = &s->next;
    b->submissions = s;
    xpd_request_wait(r);
    if (xpd_workers_devices(b)->known) {
        look(s);
    } else {
        s->step = WAIT_DEVICES;
        xpd_timer_set(&b->loop, &s->patience, DEVICES_WAIT_MS);
    }
}

/* --------------------------------------------------------------------------------- merge patch */

json_t *xpd_merge_patch(const json_t *target, const json_t *patch)
{
    const char *key;
    json_t *value;

    if (!json_is_object(patch))
        return json_deep_copy(patch);
    json_t *out = json_is_object(target) ? json_deep_copy(target) : json_object();
    void *at = json_object_iter((json_t *)(uintptr_t)patch);
    for (; at && out; at = json_object_iter_next((json_t *)(uintptr_t)patch, at)) {
        key = json_object_iter_key(at);
        value = json_object_iter_value(at);
        if (json_is_null(value)) {
            json_object_del(out, key);
            continue;
        }
        json_t *merged = xpd_merge_patch(json_object_get(out, key), value);
        if (!merged || json_object_set_new(out, key, merged) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
