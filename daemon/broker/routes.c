/* See routes.h.  A job of another user answers as one that does not exist, here, for every route.
 */
#include "routes.h"

#include <stdio.h>
#include <string.h>

const xpd_route xpd_routes[] = {
    {"GET", "/v1/jobs", {"state", "limit", "cursor"}, xpd_get_jobs, false},
    {"POST", "/v1/jobs", {"dry_run", "probe"}, xpd_post_job, false},
    {"GET", "/v1/jobs/{id}", {NULL}, xpd_get_job, false},
    {"PATCH", "/v1/jobs/{id}", {NULL}, xpd_patch_job, false},
    {"DELETE", "/v1/jobs/{id}", {NULL}, xpd_delete_job, false},
    {"GET", "/v1/jobs/{id}/events", {"from", "follow"}, xpd_get_job_events, false},
    {"POST", "/v1/jobs/{id}/cancel", {NULL}, xpd_post_cancel, false},
    {"POST", "/v1/jobs/{id}/hold", {NULL}, xpd_post_hold, false},
    {"POST", "/v1/jobs/{id}/release", {NULL}, xpd_post_release, false},
    {"POST", "/v1/jobs/{id}/rerun", {NULL}, xpd_post_rerun, false},
    {"GET", "/v1/jobs/{id}/log", {"tail"}, xpd_get_log, false},
    {"GET", "/v1/jobs/{id}/result", {NULL}, xpd_get_result, false},
    {"GET", "/v1/jobs/{id}/result/data", {NULL}, xpd_get_result_data, false},
    {"GET", "/v1/jobs/{id}/preview.png", {"what"}, xpd_get_preview_png, false},
    {"GET", "/v1/jobs/{id}/preview.f32", {"what"}, xpd_get_preview_f32, false},
    {"GET", "/v1/events", {"follow"}, xpd_get_events, false},
    {"GET", "/v1/queue", {NULL}, xpd_get_queue, false},
    {"GET", "/v1/devices", {NULL}, xpd_get_devices, false},
    {"GET", "/v1/limits", {NULL}, xpd_get_limits, false},
    {"GET", "/v1/version", {NULL}, xpd_get_version, false},
    {"GET", "/v1/whoami", {NULL}, xpd_get_whoami, false},
    {"GET", "/v1/schema/job", {NULL}, xpd_get_schema, false},
    {"POST", "/v1/session", {NULL}, xpd_post_session, true},
    {"DELETE", "/v1/session", {NULL}, xpd_delete_session, true},
    {"POST", "/v1/session/link", {NULL}, xpd_post_session_link, true},
    {"GET", "/v1/sessions", {NULL}, xpd_get_sessions, false},
    {"DELETE", "/v1/sessions/{session}", {NULL}, xpd_delete_session_by_id, true},
    {"GET", "/login", {"code"}, xpd_get_login, false},
    {"GET", "/", {NULL}, xpd_get_home, false},
    {"GET", "/openapi.json", {NULL}, xpd_get_openapi, false},
    {"GET", "/livez", {NULL}, xpd_get_livez, false},
    {"GET", "/readyz", {NULL}, xpd_get_readyz, false},
    {"GET", "/metrics", {NULL}, xpd_get_metrics, false},
    {"POST", "/admin/drain", {"finish"}, xpd_post_drain, false},
    {"POST", "/admin/undrain", {NULL}, xpd_post_undrain, false},
    {"POST", "/admin/reload", {NULL}, xpd_post_reload, false},
    {"POST", "/admin/dump", {NULL}, xpd_post_dump, false},
    {"POST", "/admin/db-check", {NULL}, xpd_post_db_check, false},
};
const size_t xpd_route_count = sizeof xpd_routes / sizeof *xpd_routes;
_Static_assert(sizeof xpd_routes / sizeof *xpd_routes <= XPD_METRIC_ROUTES_MAX, "metrics");

/* Each listener has its own: jobs here, the administrator's verbs there, health on both. */
static bool is_here(const xpd_route *route, const xpd_request *r)
{
    if (strncmp(route->path, "/admin/", 7) == 0)
        return r->admin && !r->health;
    if (strcmp(route->path, "/metrics") == 0)
        return r->admin;
    return !r->admin || strncmp(route->path, "/v1/", 4) != 0;
}

/* Whoever may read may ask; what changes something needs more. */
static bool check_scope(xpd_request *r, const xpd_route *route)
{
    bool reads = strcmp(route->method, "GET") == 0;
    if (reads || route->for_readers || r->caller.scope >= XPD_SCOPE_SUBMIT)
        return true;
    xpd_reply_fault(r, XPP_FAULT_FORBIDDEN,
                    "the token '%s' may only read; %s needs the scope submit", r->caller.token,
                    r->method);
    return false;
}

/* Whether the request's segments are those of the pattern; *id is the one at {id}, *named the one
 * at {session}. */
static bool matches(const char *pattern, const xpd_request *r, const char **id, const char **named)
{
    int i = 0;
    if (!pattern[1]) /* "/" */
        return r->segment_count == 0;
    while (*pattern == '/') {
        pattern++;
        size_t length = strcspn(pattern, "/");
        if (i == r->segment_count)
            return false;
        if (length == 4 && strncmp(pattern, "{id}", 4) == 0)
            *id = r->segments[i];
        else if (*pattern == '{')
            *named = r->segments[i];
        else if (strlen(r->segments[i]) != length || strncmp(r->segments[i], pattern, length) != 0)
            return false;
        pattern += length;
        i++;
    }
    return i == r->segment_count;
}

static bool check_arguments(xpd_request *r, const xpd_route *route)
{
    for (int i = 0; i < r->argument_count; i++) {
        bool known = false;
        char list[128] = "";
        for (int k = 0; k < 4 && route->arguments[k]; k++) {
            size_t at = strlen(list);
            known = known || strcmp(r->arguments[i].name, route->arguments[k]) == 0;
            snprintf(list + at, sizeof list - at, "%s'%s'", at ? ", " : "", route->arguments[k]);
        }
        if (!known) {
            xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST,
                            "query argument '%.26s' is not known here; this call takes %s",
                            r->arguments[i].name, *list ? list : "none");
            return false;
        }
    }
    return true;
}

static void refuse_method(xpd_request *r, const char *allowed)
{
    char text[128];
    snprintf(text, sizeof text, "this resource knows %s", allowed);
    json_t *problem = xpp_problem(XPP_FAULT_METHOD_NOT_ALLOWED, text, NULL, NULL);
    const char *const headers[][2] = {{MHD_HTTP_HEADER_ALLOW, allowed}, {NULL, NULL}};
    xpd_reply_json_as(r, MHD_HTTP_METHOD_NOT_ALLOWED, problem, "application/problem+json", headers);
}

void xpd_route_methods(char *out, size_t size, const xpd_request *r)
{
    const char *id, *named;

    *out = '\0';
    for (size_t i = 0; i < xpd_route_count; i++) {
        size_t at = strlen(out);
        if (matches(xpd_routes[i].path, r, &id, &named) && is_here(&xpd_routes[i], r))
            snprintf(out + at, size - at, "%s%s%s", at ? ", " : "", xpd_routes[i].method,
                     strcmp(xpd_routes[i].method, "GET") == 0 ? ", HEAD" : "");
    }
    if (*out)
        snprintf(out + strlen(out), size - strlen(out), ", OPTIONS");
}

void xpd_route_request(xpd_request *r)
{
    char allowed[64] = "";
    bool head = strcmp(r->method, "HEAD") == 0; /* the library leaves the body out */

    for (size_t i = 0; i < xpd_route_count; i++) {
        const xpd_route *route = &xpd_routes[i];
        const char *id = NULL, *named = NULL;
        if (!matches(route->path, r, &id, &named) || !is_here(route, r))
            continue;
        if (strcmp(route->method, r->method) != 0 && !(head && strcmp(route->method, "GET") == 0)) {
            size_t at = strlen(allowed);
            snprintf(allowed + at, sizeof allowed - at, "%s%s", at ? ", " : "", route->method);
            continue;
        }
        r->route = (int)i;
        r->named = named;
        if (!check_scope(r, route) || !check_arguments(r, route))
            return;
        if (id) {
            xpd_job *job = xpd_table_find(&r->b->jobs, id);
            if (!job || !xpd_caller_sees(&r->caller, job->uid)) {
                xpd_reply_fault(r, XPP_FAULT_NOT_FOUND, "there is no job '%.26s'", id);
                return;
            }
            r->job = xpd_job_ref(job);
        }
        route->handle(r);
        return;
    }
    if (*allowed)
        refuse_method(r, allowed);
    else
        xpd_reply_fault(r, XPP_FAULT_NOT_FOUND,
                        "there is no such path; GET /openapi.json lists them");
}
