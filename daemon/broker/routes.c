/* See routes.h.  A job of another user answers as one that does not exist, here, for every route.
 */
#include "routes.h"

#include <stdio.h>
#include <string.h>

const xpd_route xpd_routes[] = {
    {"GET", "/v1/jobs", {"state", "limit", "cursor"}, xpd_get_jobs},
    {"POST", "/v1/jobs", {"dry_run", "probe"}, xpd_post_job},
    {"GET", "/v1/jobs/{id}", {NULL}, xpd_get_job},
    {"PATCH", "/v1/jobs/{id}", {NULL}, xpd_patch_job},
    {"DELETE", "/v1/jobs/{id}", {NULL}, xpd_delete_job},
    {"GET", "/v1/jobs/{id}/events", {"from", "follow"}, xpd_get_job_events},
    {"POST", "/v1/jobs/{id}/cancel", {NULL}, xpd_post_cancel},
    {"POST", "/v1/jobs/{id}/hold", {NULL}, xpd_post_hold},
    {"POST", "/v1/jobs/{id}/release", {NULL}, xpd_post_release},
    {"POST", "/v1/jobs/{id}/rerun", {NULL}, xpd_post_rerun},
    {"GET", "/v1/jobs/{id}/log", {"tail"}, xpd_get_log},
    {"GET", "/v1/jobs/{id}/result", {NULL}, xpd_get_result},
    {"GET", "/v1/jobs/{id}/result/data", {NULL}, xpd_get_result_data},
    {"GET", "/v1/jobs/{id}/preview.png", {"what"}, xpd_get_preview_png},
    {"GET", "/v1/jobs/{id}/preview.f32", {"what"}, xpd_get_preview_f32},
    {"GET", "/v1/events", {"follow"}, xpd_get_events},
    {"GET", "/v1/queue", {NULL}, xpd_get_queue},
    {"GET", "/v1/devices", {NULL}, xpd_get_devices},
    {"GET", "/v1/limits", {NULL}, xpd_get_limits},
    {"GET", "/v1/version", {NULL}, xpd_get_version},
    {"GET", "/v1/whoami", {NULL}, xpd_get_whoami},
    {"GET", "/v1/schema/job", {NULL}, xpd_get_schema},
    {"GET", "/openapi.json", {NULL}, xpd_get_openapi},
    {"GET", "/livez", {NULL}, xpd_get_livez},
    {"GET", "/readyz", {NULL}, xpd_get_readyz},
    {"GET", "/metrics", {NULL}, xpd_get_metrics},
    {"POST", "/admin/drain", {"finish"}, xpd_post_drain},
    {"POST", "/admin/undrain", {NULL}, xpd_post_undrain},
    {"POST", "/admin/reload", {NULL}, xpd_post_reload},
    {"POST", "/admin/dump", {NULL}, xpd_post_dump},
    {"POST", "/admin/db-check", {NULL}, xpd_post_db_check},
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
    if (reads || r->caller.scope >= XPD_SCOPE_SUBMIT)
        return true;
    xpd_reply_fault(r, XPP_FAULT_FORBIDDEN,
                    "the token '%s' may only read; %s needs the scope submit", r->caller.token,
                    r->method);
    return false;
}

/* Whether the request's segments are those of the pattern; *id is the one at {id}. */
static bool matches(const char *pattern, const xpd_request *r, const char **id)
{
    int i = 0;
    while (*pattern == '/') {
        pattern++;
        size_t length = strcspn(pattern, "/");
        if (i == r->segment_count)
            return false;
        if (length == 4 && strncmp(pattern, "{id}", 4) == 0)
            *id = r->segments[i];
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
                            "query argument '%.60s' is not known here; this call takes %s",
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

void xpd_route_request(xpd_request *r)
{
    char allowed[64] = "";
    bool head = strcmp(r->method, "HEAD") == 0; /* the library leaves the body out */

    for (size_t i = 0; i < xpd_route_count; i++) {
        const xpd_route *route = &xpd_routes[i];
        const char *id = NULL;
        if (!matches(route->path, r, &id) || !is_here(route, r))
            continue;
        if (strcmp(route->method, r->method) != 0 && !(head && strcmp(route->method, "GET") == 0)) {
            size_t at = strlen(allowed);
            snprintf(allowed + at, sizeof allowed - at, "%s%s", at ? ", " : "", route->method);
            continue;
        }
        r->route = (int)i;
        if (!check_scope(r, route) || !check_arguments(r, route))
            return;
        if (id) {
            xpd_job *job = xpd_table_find(&r->b->jobs, id);
            if (!job || !xpd_caller_sees(&r->caller, job->uid)) {
                xpd_reply_fault(r, XPP_FAULT_NOT_FOUND, "there is no job '%.40s'", id);
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
