/* The service itself: version, descriptions, health. */
#include "routes.h"
#include "stream.h"
#include "worker.h"

#include <stdio.h>
#include <string.h>

void xpd_get_events(xpd_request *r)
{
    xpd_stream_open(r, NULL);
}

/* ------------------------------------------------------------------------------- descriptions */

void xpd_get_version(xpd_request *r)
{
    xpd_reply_json(r, MHD_HTTP_OK,
                   json_pack("{s:s, s:s, s:s}", "version", xpp_version(), "api", "v1", "build",
                             r->b->workers[0]->build));
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
                   json_pack("{s:s, s:I, s:o, s:s?, s:s?, s:s?}", "user", c->user, "uid",
                             (json_int_t)c->uid, "scopes", scopes, "token",
                             *c->token ? c->token : NULL, "expires", c->expires_ms ? expires : NULL,
                             "session", *c->session ? c->session : NULL));
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
    else if (xpd_workers_ready(b) == 0)
        why_not = "the worker has not started";
    else if (!xpd_devices_usable(xpd_workers_devices(b)))
        why_not = "the worker has no usable device";
    if (why_not)
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "%s", why_not);
    else
        xpd_reply_json(r, MHD_HTTP_OK, json_pack("{s:s}", "status", "ok"));
}
