/* The queue and the devices behind it: order and reasons, limits, hold, release, changes. */
#include "ballast.h"
#include "dispatch.h"
#include "life.h"
#include "log.h"
#include "memory.h"
#include "people.h"
#include "routes.h"
#include "run.h"
#include "sets.h"
#include "stream.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(void *context, xpd_store_result result)
{
    xpd_request *r = context;
    const xpd_job *job = r->job;
    char tag[64];

    if (result == XPD_STORE_FULL) {
        xpd_reply_fault(r, XPP_FAULT_LOW_DISK,
                        "the disk of the state folder is full; the change is kept in memory alone");
        return;
    }
    if (result != XPD_STORE_OK) {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE,
                        "the state cannot be written; the service restarts");
        return;
    }
    snprintf(tag, sizeof tag, "\"%s-%lld\"", job->id, (long long)job->rev);
    const char *const headers[][2] = {{MHD_HTTP_HEADER_ETAG, tag}, {NULL, NULL}};
    xpd_reply_json_as(r, r->status, xpd_job_document(job, xpd_dispatch_pending(r->b, job), true),
                      NULL, headers);
}

void xpd_reply_durable(xpd_request *r, unsigned status)
{
    r->status = status;
    xpd_request_wait(r);
    xpd_job_persist_then(r->b, r->job, answer, r);
}

/* -------------------------------------------------------------------------------------- queue */

static json_t *entry(xpd_broker *b, const xpd_job *job)
{
    json_t *pending = xpd_dispatch_pending(b, job);
    json_t *position = json_object_get(pending, "position");
    const char *detail = json_string_value(json_object_get(pending, "detail"));
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:O?, s:s, s:o}", "id", job->id, "name",
                     xpd_job_name(job), "user", job->user, "class", xpd_class_name(job->class),
                     "priority", job->priority, "state", xpd_state_name(job->state), "position",
                     position, "waits_for", detail ? detail : "", "pending",
                     pending ? pending : json_null());
}

static json_int_t list_jobs(xpd_request *r, const xpd_queue *queue, json_t *list)
{
    json_int_t hidden = 0;
    for (size_t i = 0; i < queue->count; i++) {
        if (xpd_caller_sees(&r->caller, queue->items[i]->uid))
            json_array_append_new(list, entry(r->b, queue->items[i]));
        else
            hidden++;
    }
    return hidden;
}

void xpd_get_queue(xpd_request *r)
{
    xpd_broker *b = r->b;
    json_t *running = json_array(), *queued = json_array(), *held = json_array();
    json_int_t hidden = 0;

    for (int i = 0; i < b->worker_count; i++) {
        const xpd_job *job = xpd_run_job(b->workers[i]);
        if (job && xpd_caller_sees(&r->caller, job->uid))
            json_array_append_new(running, entry(b, job));
        else if (job)
            hidden++;
    }
    xpd_dispatch_refresh(b);
    hidden += list_jobs(r, &b->queue, queued);
    hidden += list_jobs(r, &b->held, held);
    xpd_reply_json(r, MHD_HTTP_OK,
                   json_pack("{s:o, s:o, s:o, s:I}", "running", running, "queued", queued, "held",
                             held, "hidden", hidden));
}

/* ------------------------------------------------------------------------------------ devices */

/* The other GPUs whose memory it accesses itself. */
static json_t *links(const xpe_device_info *d)
{
    json_t *list = json_array();
    char name[32];

    for (int i = 0; i < XPE_PEERS_MAX; i++) {
        snprintf(name, sizeof name, "cuda:%d", i);
        if (d->reach[i] > 0)
            json_array_append_new(list,
                                  json_pack("{s:s, s:i}", "name", name, "rank", (int)d->reach[i]));
    }
    return list;
}

void xpd_get_devices(xpd_request *r)
{
    const xpd_broker *b = r->b;
    json_t *list = json_array();

    for (int i = 0; i < b->worker_count; i++) {
        const xpd_worker *w = b->workers[i], *leader = xpd_set_leader(b, i);
        const xpd_job *job = xpd_run_job(leader);
        for (int k = 0; k < w->devices.count; k++) {
            const xpe_device_info *d = &w->devices.items[k];
            bool ours =
                job && xpd_caller_sees(&r->caller, job->uid) && xpd_run_uses(leader, d->name);
            json_array_append_new(list, json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:i, s:o, s:s?}",
                                                  "name", d->name, "set", i, "model", d->model,
                                                  "absent", d->absent, "bytes_total",
                                                  (json_int_t)d->bytes_total, "bytes_free",
                                                  (json_int_t)d->bytes_free, "threads", d->threads,
                                                  "links", links(d), "job", ours ? job->id : NULL));
        }
    }
    xpd_reply_json(r, MHD_HTTP_OK, json_pack("{s:o}", "devices", list));
}

/* ------------------------------------------------------------------------------------- limits */

static json_t *limit(int64_t most, int64_t current)
{
    return json_pack("{s:o, s:I}", "limit", most > 0 ? json_integer(most) : json_null(), "current",
                     (json_int_t)current);
}

static json_t *or_null(int64_t most)
{
    return most > 0 ? json_integer(most) : json_null();
}

/* What the scheduler goes by. */
static json_t *scheduling(const xpd_broker *b, uid_t uid)
{
    json_t *run = json_object();
    int all = 0, live = 0;

    for (int i = 0; i < XPD_CLASSES; i++)
        json_object_set_new(run, xpd_class_name((xpd_class)i), or_null(b->config.max_run_s[i]));
    for (int i = 0; i < b->worker_count; i++) {
        all += xpd_set_usable(b, i);
        live += xpd_set_usable(b, i) && xpd_set_kept_for_live(b, i);
    }
    return json_pack("{s:f, s:o, s:o, s:I, s:i, s:{s:i, s:i}}", "share",
                     xpd_weight_of(&b->config, uid), "max_run_s", run, "max_queue_s",
                     or_null(b->config.max_queue_s), "min_run_s", (json_int_t)b->config.min_run_s,
                     "preemptions_max", XPD_YIELDS_MAX, "sets", "all", all, "live", live);
}

static json_t *memory(const xpd_broker *b)
{
    xpd_sched_pool pools[XPD_POOLS_MAX];
    int64_t most = xpd_memory_host(b);

    xpd_memory_pools(b, pools);
    return json_pack("{s:o, s:o}", "host_bytes",
                     most == XPD_ROOM_ENDLESS ? json_null() : json_integer(most), "free_bytes",
                     pools[XPD_POOL_HOST].free == XPD_NEVER
                         ? json_null()
                         : json_integer(pools[XPD_POOL_HOST].free));
}

void xpd_get_limits(xpd_request *r)
{
    xpd_broker *b = r->b;
    uid_t uid = r->caller.uid;
    xpd_stream_counts streams;
    int64_t running = 0, waiting = (int64_t)(xpd_queue_count_user(&b->queue, uid) +
                                             xpd_queue_count_user(&b->held, uid));

    for (int i = 0; i < b->worker_count; i++) {
        const xpd_job *job = xpd_run_job(b->workers[i]);
        running += job && job->uid == uid;
        xpd_worker_ask(b->workers[i]); /* who asks again is told the memory of then */
    }
    xpd_streams_of(b, uid, NULL, &streams);
    json_t *rate = limit(b->config.rate, 0);
    json_object_set_new(rate, "burst", json_integer(b->config.burst));
    json_object_set_new(
        rate, "left",
        json_integer(xpd_rate_left(&b->rate, uid, b->config.rate, b->config.burst, xpd_now_ms())));
    json_object_del(rate, "current");
    xpd_reply_json(
        r, MHD_HTTP_OK,
        json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:{s:I, s:I}, s:f, "
                  "s:I, s:I}",
                  "scheduling", scheduling(b, uid), "memory", memory(b), "sets_user",
                  limit(b->config.sets_user_max, running), "artefact_bytes_user",
                  limit(b->config.artefacts_user_mib << 20, xpd_artefacts_of(b, uid)), "class",
                  xpd_class_name(xpd_class_of_caller(&b->config, &r->caller)), "streams_user",
                  limit(b->config.streams_user_max, streams.user), "streams",
                  limit(b->config.streams_max, streams.all), "rate", rate, "streams_job",
                  (json_int_t)b->config.streams_job_max, "queued_user",
                  limit(b->config.queue_user_max, waiting), "queued",
                  limit(b->config.queue_max, (int64_t)(b->queue.count + b->held.count)),
                  "running_user", limit(b->config.running_user_max, running), "disk", "free_bytes",
                  (json_int_t)xpd_disk_free(b), "required_bytes", (json_int_t)xpd_ballast_needed(b),
                  "used_seconds", xpd_history_used(&b->history, uid, xpd_wall_ms()), "body_bytes",
                  (json_int_t)XPP_BODY_MAX, "metadata_bytes", (json_int_t)XPP_METADATA_MAX));
}

/* ------------------------------------------------------------------------------ hold, release */

static void refuse_state(xpd_request *r, const char *detail)
{
    xpd_reply_problem(r, xpp_problem(XPP_FAULT_CONFLICT, detail, NULL,
                                     json_pack("{s:s}", "state", xpd_state_name(r->job->state))));
}

void xpd_post_hold(xpd_request *r)
{
    xpd_job *job = r->job;
    char detail[96];

    if (job->state != XPD_JOB_QUEUED && job->state != XPD_JOB_HELD) {
        refuse_state(r, "only a job that waits can be held; cancel this one instead");
        return;
    }
    snprintf(detail, sizeof detail, "held by %s", r->caller.user);
    if (job->state == XPD_JOB_QUEUED)
        xpd_job_move(r->b, job, XPD_JOB_HELD, "", detail);
    xpd_reply_durable(r, MHD_HTTP_OK);
}

void xpd_post_release(xpd_request *r)
{
    xpd_job *job = r->job;
    char detail[96];

    if (xpd_state_terminal(job->state)) {
        refuse_state(r, "the job has ended; POST .../rerun makes a new one");
        return;
    }
    snprintf(detail, sizeof detail, "released by %s", r->caller.user);
    if (job->state == XPD_JOB_HELD)
        xpd_job_move(r->b, job, XPD_JOB_QUEUED, "", detail);
    xpd_reply_durable(r, MHD_HTTP_OK);
}

/* -------------------------------------------------------------------------------------- patch */

/* The document may only have members of this list, of the types that a job document allows: it is
 * checked as part of one. */
static json_t *check_patch(const json_t *patch)
{
    json_t *errors = json_array(), *whole = json_pack("{s:{s:s}}", "scan", "path", "/x");
    const char *key;
    json_t *value;
    void *at = json_object_iter((json_t *)(uintptr_t)patch);

    for (; at; at = json_object_iter_next((json_t *)(uintptr_t)patch, at)) {
        char pointer[96];
        key = json_object_iter_key(at);
        value = json_object_iter_value(at);
        snprintf(pointer, sizeof pointer, "/%.80s", key);
        if (strcmp(key, "priority") != 0 && strcmp(key, "labels") != 0 &&
            strcmp(key, "class") != 0 && strcmp(key, "name") != 0)
            xpp_errors_add(errors, pointer,
                           "'%.60s' cannot be changed; name, priority, class and labels can", key);
        else if (!json_is_null(value) || strcmp(key, "labels") != 0)
            json_object_set(whole, key, value);
    }
    json_t *wrong = json_array_size(errors) == 0 ? xpp_job_check(whole) : NULL;
    json_decref(whole);
    if (wrong)
        json_array_extend(errors, wrong);
    json_decref(wrong);
    if (json_array_size(errors) > 0)
        return errors;
    json_decref(errors);
    return NULL;
}

/* Labels are merged: null takes one away, and null for all of them takes all. */
static json_t *merged_labels(const xpd_job *job, const json_t *change)
{
    json_t *labels = json_object_get(job->head, "labels");
    json_t *out = json_is_object(labels) ? json_deep_copy(labels) : json_object();
    void *at = json_object_iter((json_t *)(uintptr_t)change);

    if (json_is_null(change))
        json_object_clear(out);
    for (; at; at = json_object_iter_next((json_t *)(uintptr_t)change, at)) {
        if (json_is_null(json_object_iter_value(at)))
            json_object_del(out, json_object_iter_key(at));
        else
            json_object_set(out, json_object_iter_key(at), json_object_iter_value(at));
    }
    return out;
}

static bool if_match(xpd_request *r)
{
    const char *wanted = xpd_request_header(r, MHD_HTTP_HEADER_IF_MATCH);
    char tag[64];

    if (!wanted) {
        xpd_reply_fault(r, XPP_FAULT_PRECONDITION_REQUIRED,
                        "send If-Match with the ETag of the document that the change is made for");
        return false;
    }
    snprintf(tag, sizeof tag, "\"%s-%lld\"", r->job->id, (long long)r->job->rev);
    if (strcmp(wanted, "*") != 0 && !strstr(wanted, tag)) {
        xpd_reply_fault(r, XPP_FAULT_PRECONDITION_FAILED,
                        "the job has changed since: its ETag is %s now; read it again", tag);
        return false;
    }
    return true;
}

/* Made for nothing but the tables: what a label was taken away with is not a label. */
static json_t *without_nulls(const json_t *patch)
{
    json_t *out = json_deep_copy(patch), *labels = json_object_get(out, "labels"), *value;
    const char *key;
    void *next;

    json_object_foreach_safe(labels, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(labels, key);
    }
    return out;
}

/* name NULL = it stays. */
static bool patch_class(xpd_request *r, const char *name)
{
    xpd_job *job = r->job;
    xpd_class class;
    xpd_error err = XPD_ERROR_INIT;

    if (!name || !xpd_class_find(&class, name) || class == job->class)
        return true;
    if (job->state != XPD_JOB_QUEUED && job->state != XPD_JOB_HELD) {
        refuse_state(r, "the class decides when a job starts; this one does not wait any more");
        return false;
    }
    if (!xpd_class_allowed(&r->b->config, &r->caller, class, &err)) {
        xpd_reply_error(r, &err);
        return false;
    }
    job->class = class;
    return true;
}

void xpd_patch_job(xpd_request *r)
{
    xpd_job *job = r->job;
    json_t *problem = NULL, *patch = NULL, *bare = NULL, *labels = NULL, *errors = NULL;

    if (!if_match(r))
        return;
    patch = xpp_parse(r->body ? r->body : "", r->body_length, &problem);
    if (!patch) {
        xpd_reply_problem(r, problem);
        return;
    }
    if (!json_is_object(patch)) {
        xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST,
                        "the body is a merge patch: a JSON object with name, priority, class, "
                        "labels or several of them");
        goto done;
    }
    bare = without_nulls(patch);
    errors = check_patch(bare);
    if (!errors && json_object_get(patch, "labels")) {
        labels = merged_labels(job, json_object_get(patch, "labels"));
        json_t *whole = json_pack("{s:O}", "labels", labels); /* together not too many */
        errors = check_patch(whole);
        json_decref(whole);
    }
    if (errors) {
        xpd_reply_problem(r, xpp_problem(XPP_FAULT_INVALID_JOB, "the change is not valid",
                                         json_incref(errors), NULL));
        goto done;
    }
    json_t *priority = json_object_get(patch, "priority"), *name = json_object_get(patch, "name");
    if (priority && xpd_state_terminal(job->state)) {
        refuse_state(r, "the job has ended; its priority has no meaning any more");
        goto done;
    }
    if (!patch_class(r, json_string_value(json_object_get(patch, "class"))))
        goto done;
    if ((labels && !xpd_job_set_labels(job, labels)) || (name && !xpd_job_set_name(job, name))) {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
        goto done;
    }
    if (priority)
        job->priority = (int)json_integer_value(priority);
    xpd_job_changed(r->b, job);
    xpd_reply_durable(r, MHD_HTTP_OK);
done:
    json_decref(errors);
    json_decref(labels);
    json_decref(bare);
    json_decref(patch);
}
