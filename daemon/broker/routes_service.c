/* The service itself: queue, devices, version, descriptions, health. */
#include "routes.h"
#include "run.h"
#include "stream.h"
#include "worker.h"

#include <stdio.h>
#include <string.h>

void xpd_get_events(xpd_request *r)
{
    xpd_stream_open(r, NULL);
}

/* -------------------------------------------------------------------------------------- queue */

static json_t *entry(const xpd_job *job, int64_t position, const char *waits_for)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:o, s:s}", "id", job->id, "name",
                     xpd_job_name(job), "user", job->user, "priority", job->priority, "state",
                     xpd_state_name(job->state), "position",
                     position ? json_integer(position) : json_null(), "waits_for", waits_for);
}

/* What blocks a job is named only where the caller may see it. */
static void why(char *out, size_t size, const xpd_request *r, size_t index)
{
    const xpd_broker *b = r->b;
    const xpd_job *running = xpd_run_job(b);

    if (!b->worker->ready)
        snprintf(out, size, "the worker, which is starting");
    else if (index > 0)
        snprintf(out, size, "%zu job%s before it", index, index == 1 ? "" : "s");
    else if (running && xpd_caller_sees(&r->caller, running->uid))
        snprintf(out, size, "the devices of job %s", running->id);
    else if (running)
        snprintf(out, size, "the devices of another user's job");
    else
        snprintf(out, size, "nothing, it is about to start");
}

void xpd_get_queue(xpd_request *r)
{
    const xpd_broker *b = r->b;
    json_t *running = json_array(), *queued = json_array();
    const xpd_job *job = xpd_run_job(b);
    json_int_t hidden = 0;
    char text[128];

    if (job && xpd_caller_sees(&r->caller, job->uid))
        json_array_append_new(running, entry(job, 0, ""));
    else if (job)
        hidden++;
    for (size_t i = 0; i < b->queue.count; i++) {
        if (!xpd_caller_sees(&r->caller, b->queue.items[i]->uid)) {
            hidden++;
            continue;
        }
        why(text, sizeof text, r, i);
        json_array_append_new(queued, entry(b->queue.items[i], (int64_t)i + 1, text));
    }
    xpd_reply_json(
        r, MHD_HTTP_OK,
        json_pack("{s:o, s:o, s:I}", "running", running, "queued", queued, "hidden", hidden));
}

/* ------------------------------------------------------------------------------------ devices */

void xpd_get_devices(xpd_request *r)
{
    const xpd_devices *devices = &r->b->worker->devices;
    const xpd_job *job = xpd_run_job(r->b);
    json_t *list = json_array();

    for (int i = 0; i < devices->count; i++) {
        const xpe_device_info *d = &devices->items[i];
        bool ours = job && xpd_caller_sees(&r->caller, job->uid) && xpd_run_uses(r->b, d->name);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I, s:i, s:s?}", "name",
                                              d->name, "model", d->model, "absent", d->absent,
                                              "bytes_total", (json_int_t)d->bytes_total,
                                              "bytes_free", (json_int_t)d->bytes_free, "threads",
                                              d->threads, "job", ours ? job->id : NULL));
    }
    xpd_reply_json(r, MHD_HTTP_OK, json_pack("{s:o}", "devices", list));
}

/* ------------------------------------------------------------------------------- descriptions */

void xpd_get_version(xpd_request *r)
{
    xpd_reply_json(r, MHD_HTTP_OK,
                   json_pack("{s:s, s:s, s:s}", "version", xpp_version(), "api", "v1", "build",
                             r->b->worker->build));
}

void xpd_get_whoami(xpd_request *r)
{
    const xpd_caller *c = &r->caller;
    json_t *scopes = json_array();
    char expires[32];

    for (int s = XPD_SCOPE_READ; s <= (int)c->scope; s++)
        json_array_append_new(scopes, json_string(xpd_scope_name((xpd_scope)s)));
    if (c->expires_ms)
        xpp_time_text(expires, c->expires_ms);
    xpd_reply_json(r, MHD_HTTP_OK,
                   json_pack("{s:s, s:I, s:o, s:s?, s:s?}", "user", c->user, "uid",
                             (json_int_t)c->uid, "scopes", scopes, "token",
                             *c->token ? c->token : NULL, "expires",
                             c->expires_ms ? expires : NULL));
}

void xpd_get_schema(xpd_request *r)
{
    const char *text = xpp_schema_job();
    xpd_reply(r, MHD_HTTP_OK,
              xpd_response_text(text, strlen(text), true, "application/schema+json"));
}

void xpd_get_openapi(xpd_request *r)
{
    const char *text = xpp_openapi();
    xpd_reply(r, MHD_HTTP_OK, xpd_response_text(text, strlen(text), true, "application/json"));
}

/* ------------------------------------------------------------------------------------- health */

void xpd_get_livez(xpd_request *r)
{
    xpd_reply_json(r, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}

void xpd_get_readyz(xpd_request *r)
{
    const xpd_broker *b = r->b;
    const char *why_not = NULL;

    if (b->stopping)
        why_not = "the service is stopping";
    else if (b->draining)
        why_not = "the service is drained";
    else if (!b->ready)
        why_not = "the service is starting";
    else if (b->state_full)
        why_not = "the disk of the state folder is full";
    else if (!b->worker->ready)
        why_not = "the worker has not started";
    else if (!xpd_devices_usable(&b->worker->devices))
        why_not = "the worker has no usable device";
    if (why_not)
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "%s", why_not);
    else
        xpd_reply_json(r, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}
