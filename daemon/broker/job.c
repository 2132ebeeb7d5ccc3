/* See job.h. */
#include "job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[XPD_JOB_STATES] = {
    "queued", "held", "starting", "running", "succeeded", "failed", "cancelled"};

/* allowed[from][to] */
static const bool allowed[XPD_JOB_STATES][XPD_JOB_STATES] = {
    [XPD_JOB_QUEUED] = {[XPD_JOB_HELD] = true,
                        [XPD_JOB_STARTING] = true,
                        [XPD_JOB_FAILED] = true,
                        [XPD_JOB_CANCELLED] = true},
    [XPD_JOB_HELD] = {[XPD_JOB_QUEUED] = true, [XPD_JOB_CANCELLED] = true},
    [XPD_JOB_STARTING] = {[XPD_JOB_RUNNING] = true,
                          [XPD_JOB_QUEUED] = true,
                          [XPD_JOB_FAILED] = true,
                          [XPD_JOB_CANCELLED] = true},
    [XPD_JOB_RUNNING] = {[XPD_JOB_QUEUED] = true,
                         [XPD_JOB_SUCCEEDED] = true,
                         [XPD_JOB_FAILED] = true,
                         [XPD_JOB_CANCELLED] = true},
};

const char *xpd_state_name(xpd_state state)
{
    return state_names[state];
}

bool xpd_state_find(xpd_state *out, const char *name)
{
    for (int i = 0; i < XPD_JOB_STATES; i++) {
        if (strcmp(state_names[i], name) == 0) {
            *out = (xpd_state)i;
            return true;
        }
    }
    return false;
}

bool xpd_state_terminal(xpd_state state)
{
    return state >= XPD_JOB_SUCCEEDED;
}

bool xpd_state_allowed(xpd_state from, xpd_state to)
{
    return from < XPD_JOB_STATES && to < XPD_JOB_STATES && allowed[from][to];
}

/* ------------------------------------------------------------------------------------ making */

char *xpd_json_text(const json_t *doc)
{
    return xpp_dump(doc, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
}

static json_t *iterations_of(const json_t *resolved)
{
    json_t *list = json_array(), *recon = json_object_get(resolved, "recon");
    size_t count = json_is_array(recon) ? json_array_size(recon) : 1;

    for (size_t i = 0; list && i < count; i++) {
        json_t *stage = json_is_array(recon) ? json_array_get(recon, i) : recon;
        json_int_t n = json_integer_value(json_object_get(stage, "iterations"));
        json_array_append_new(list, json_integer(n > 0 ? n : 1));
    }
    return list;
}

static json_t *head_of(const json_t *resolved)
{
    json_t *labels = json_object_get(resolved, "labels");
    json_t *path = json_object_get(json_object_get(resolved, "output"), "path");
    const char *name = json_string_value(json_object_get(resolved, "name"));

    return json_pack("{s:s, s:O?, s:o, s:O?, s:O?}", "name", name ? name : "", "labels",
                     json_is_object(labels) ? labels : NULL, "iterations", iterations_of(resolved),
                     "output", json_is_string(path) ? path : NULL, "devices",
                     json_object_get(resolved, "devices"));
}

xpd_job *xpd_job_create(const json_t *doc, const json_t *resolved)
{
    xpd_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->refs = 1;
    job->rev = 1;
    job->progress.data_error = NAN;
    job->priority = (int)json_integer_value(json_object_get(resolved, "priority"));
    json_t *modes = json_object_get(json_object_get(resolved, "model"), "probe_modes");
    job->modes = json_is_integer(modes) ? json_integer_value(modes) : 1;
    job->cpu_threads =
        json_integer_value(json_object_get(json_object_get(resolved, "devices"), "cpu_threads"));
    const char *checkpoint = json_string_value(json_object_get(resolved, "checkpoint"));
    job->checkpoint = !checkpoint || strcmp(checkpoint, "off") != 0;
    const char *class = json_string_value(json_object_get(resolved, "class"));
    if (!class || !xpd_class_find(&job->class, class)) /* of a version without classes */
        job->class = XPD_CLASS_NORMAL;
    job->doc = xpd_json_text(doc);
    job->resolved = xpd_json_text(resolved);
    job->head = head_of(resolved);
    if (!job->doc || !job->resolved || !job->head) {
        xpd_job_unref(job);
        return NULL;
    }
    return job;
}

xpd_job *xpd_job_ref(xpd_job *job)
{
    job->refs++;
    return job;
}

void xpd_job_unref(xpd_job *job)
{
    if (!job || --job->refs > 0)
        return;
    xpd_events_close(job->events);
    free(job->doc);
    free(job->resolved);
    json_decref(job->head);
    json_decref(job->devices);
    json_decref(job->result);
    json_decref(job->labels);
    json_decref(job->name);
    free(job->idem_key);
    free(job->idem_sha);
    free(job);
}

bool xpd_job_set_labels(xpd_job *job, const json_t *labels)
{
    json_t *copy = json_deep_copy(labels);
    if (!copy)
        return false;
    json_object_set(job->head, "labels", copy);
    json_decref(job->labels);
    job->labels = copy;
    return true;
}

bool xpd_job_set_name(xpd_job *job, const json_t *name)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)name);
    if (!copy)
        return false;
    json_object_set(job->head, "name", copy);
    json_decref(job->name);
    job->name = copy;
    return true;
}

/* -------------------------------------------------------------------------------------- rows */

static json_t *progress_json(const xpd_job *job)
{
    const xpd_progress *p = &job->progress;
    if (!p->known)
        return json_null();
    json_t *iterations = json_array_get(json_object_get(job->head, "iterations"), (size_t)p->stage);
    return json_pack("{s:I, s:I, s:I, s:o, s:I}", "stage", (json_int_t)p->stage, "iter",
                     (json_int_t)p->iter, "iterations",
                     iterations ? json_integer_value(iterations) : (json_int_t)1, "data_error",
                     xpp_number(p->data_error), "modes", (json_int_t)p->modes);
}

static void progress_from(xpd_progress *p, const json_t *json)
{
    json_t *error = json_object_get(json, "data_error");
    p->known = json_is_object(json);
    p->stage = json_integer_value(json_object_get(json, "stage"));
    p->iter = json_integer_value(json_object_get(json, "iter"));
    p->modes = json_integer_value(json_object_get(json, "modes"));
    p->data_error = json_is_number(error) ? json_number_value(error) : NAN;
}

/* What has no column of its own. */
static char *more_text(const xpd_job *job)
{
    json_t *more =
        json_pack("{s:s, s:i, s:o, s:I, s:I, s:I}", "class", xpd_class_name(job->class), "yielded",
                  job->yielded, "needs", xpd_needs_json(&job->needs), "folder_device",
                  (json_int_t)job->folder_device, "folder_inode", (json_int_t)job->folder_inode,
                  "artefact_bytes", (json_int_t)job->artefact_bytes);
    if (more && job->name)
        json_object_set(more, "name", job->name);
    char *text = more ? xpd_json_text(more) : NULL;
    json_decref(more);
    return text;
}

static void more_from(xpd_job *job, const json_t *more)
{
    const char *class = json_string_value(json_object_get(more, "class"));
    const json_t *name = json_object_get(more, "name");

    if (json_is_string(name))
        xpd_job_set_name(job, name);
    if (class && !xpd_class_find(&job->class, class))
        job->class = XPD_CLASS_NORMAL;
    job->yielded = (int)json_integer_value(json_object_get(more, "yielded"));
    xpd_needs_from(&job->needs, json_object_get(more, "needs"));
    job->folder_device = json_integer_value(json_object_get(more, "folder_device"));
    job->folder_inode = json_integer_value(json_object_get(more, "folder_inode"));
    job->artefact_bytes = json_integer_value(json_object_get(more, "artefact_bytes"));
}

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

xpd_row *xpd_job_row(const xpd_job *job)
{
    xpd_row *row = calloc(1, sizeof *row);
    if (!row)
        return NULL;
    row->number = job->number;
    memcpy(row->id, job->id, sizeof row->id);
    row->rev = job->rev;
    row->uid = (int64_t)job->uid;
    row->user = strdup(job->user);
    snprintf(row->state, sizeof row->state, "%s", xpd_state_name(job->state));
    memcpy(row->reason, job->reason, sizeof row->reason);
    row->detail = strdup(job->detail);
    row->priority = job->priority;
    row->created_ms = job->created_ms;
    row->started_ms = job->started_ms;
    row->finished_ms = job->finished_ms;
    row->attempts = job->attempts;
    row->queued_ms = job->queued_ms;
    row->frames = job->frames;
    row->side = job->side;
    row->labels = job->labels ? xpd_json_text(job->labels) : NULL;
    row->more = more_text(job);
    row->doc = strdup(job->doc);
    row->resolved = strdup(job->resolved);
    row->idem_key = copy_text(job->idem_key);
    row->idem_sha = copy_text(job->idem_sha);
    row->devices = job->devices ? xpd_json_text(job->devices) : NULL;
    row->result = job->result ? xpd_json_text(job->result) : NULL;
    if (job->progress.known) {
        json_t *progress = progress_json(job);
        row->progress = progress ? xpd_json_text(progress) : NULL;
        json_decref(progress);
    }
    if (!row->user || !row->detail || !row->doc || !row->resolved || !row->more ||
        (job->idem_key && !row->idem_key) || (job->idem_sha && !row->idem_sha) ||
        (job->labels && !row->labels) || (job->devices && !row->devices) ||
        (job->result && !row->result)) {
        xpd_row_free(row);
        return NULL;
    }
    return row;
}

static json_t *load_text(const char *text)
{
    return text ? xpp_load(text, strlen(text), JSON_DECODE_ANY, NULL) : NULL;
}

xpd_job *xpd_job_from_row(const xpd_row *row)
{
    json_t *doc = load_text(row->doc), *resolved = load_text(row->resolved),
           *progress = load_text(row->progress);
    xpd_job *job = NULL;
    xpd_state state;

    if (!json_is_object(doc) || !json_is_object(resolved) || !xpd_state_find(&state, row->state) ||
        !xpp_job_id_valid(row->id) || !(job = xpd_job_create(doc, resolved)))
        goto done;
    job->number = row->number;
    memcpy(job->id, row->id, sizeof job->id);
    job->rev = row->rev;
    job->uid = (uid_t)row->uid;
    snprintf(job->user, sizeof job->user, "%s", row->user);
    job->state = state;
    memcpy(job->reason, row->reason, sizeof job->reason);
    snprintf(job->detail, sizeof job->detail, "%s", row->detail);
    job->priority = (int)row->priority;
    job->created_ms = row->created_ms;
    job->started_ms = row->started_ms;
    job->finished_ms = row->finished_ms;
    job->attempts = row->attempts;
    job->queued_ms = row->queued_ms;
    job->frames = row->frames;
    job->side = row->side;
    json_t *labels = load_text(row->labels);
    if (json_is_object(labels))
        xpd_job_set_labels(job, labels);
    json_decref(labels);
    json_t *more = load_text(row->more);
    more_from(job, more);
    json_decref(more);
    job->devices = load_text(row->devices);
    job->result = load_text(row->result);
    if (progress)
        progress_from(&job->progress, progress);
    job->idem_key = copy_text(row->idem_key);
    job->idem_sha = copy_text(row->idem_sha);
done:
    json_decref(doc);
    json_decref(resolved);
    json_decref(progress);
    return job;
}

/* ---------------------------------------------------------------------------------- document */

const char *xpd_job_name(const xpd_job *job)
{
    return json_string_value(json_object_get(job->head, "name"));
}

static json_t *time_json(int64_t t_ms)
{
    char text[32];
    if (t_ms == 0)
        return json_null();
    xpp_time_text(text, t_ms);
    return json_string(text);
}

static json_t *links_json(const char *id)
{
    static const struct {
        const char *name, *rest;
    } links[] = {{"self", ""},          {"events", "/events"},    {"log", "/log"},
                 {"result", "/result"}, {"data", "/result/data"}, {"preview", "/preview.png"},
                 {"cancel", "/cancel"}, {"hold", "/hold"},        {"release", "/release"}};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        json_object_set_new(object, links[i].name,
                            json_sprintf("/v1/jobs/%s%s", id, links[i].rest));
    return object;
}

json_t *xpd_job_document(const xpd_job *job, json_t *pending, bool whole)
{
    json_t *position = json_object_get(pending, "position");
    json_t *labels = json_object_get(job->head, "labels");
    json_t *doc = json_pack(
        "{s:s, s:I, s:s, s:s, s:i, s:s, s:b, s:s, s:s, s:s, s:o, s:o, s:o, s:I, s:o, s:o, s:o, "
        "s:O?, "
        "s:O?, s:o}",
        "id", job->id, "rev", (json_int_t)job->rev, "name", xpd_job_name(job), "class",
        xpd_class_name(job->class), "priority", job->priority, "state", xpd_state_name(job->state),
        "terminal", xpd_state_terminal(job->state), "reason", job->reason, "detail", job->detail,
        "user", job->user, "created", time_json(job->created_ms), "started",
        time_json(job->started_ms), "finished", time_json(job->finished_ms), "attempts",
        (json_int_t)job->attempts, "progress", progress_json(job), "queue_position",
        position ? json_incref(position) : json_null(), "pending", pending ? pending : json_null(),
        "devices", job->devices, "result", job->result, "links", links_json(job->id));

    if (!doc)
        return NULL;
    json_object_set_new(doc, "labels",
                        json_is_object(labels) ? json_incref(labels) : json_object());
    if (whole) {
        json_t *resolved = load_text(job->resolved);
        json_t *metadata = json_object_get(resolved, "metadata");
        if (metadata)
            json_object_set(doc, "metadata", metadata);
        json_object_set_new(doc, "job", resolved);
    }
    return doc;
}
