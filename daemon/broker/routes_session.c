/* Sessions of browsers: a token becomes a cookie, a one-time link becomes one, and both can be
 * looked at and ended. */
#include "http.h"
#include "log.h"
#include "routes.h"
#include "site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINK_S 60
#define LINK_S_MOST 3600

/* ------------------------------------------------------------------------------------- wishes */

static bool scope_find(xpd_scope *out, const char *name)
{
    for (int i = XPD_SCOPE_READ; name && i <= XPD_SCOPE_ADMIN; i++) {
        if (strcmp(name, xpd_scope_name((xpd_scope)i)) == 0) {
            *out = (xpd_scope)i;
            return true;
        }
    }
    return false;
}

/* What the body asks for: `scope`, and of a link `valid_s`; seconds NULL = it is none. */
static json_t *check_wish(const json_t *body, const xpd_caller *caller, xpd_scope *scope,
                          json_int_t *seconds)
{
    json_t *errors = json_array(), *value;
    void *at = json_object_iter((json_t *)(uintptr_t)body);

    for (; at; at = json_object_iter_next((json_t *)(uintptr_t)body, at)) {
        const char *key = json_object_iter_key(at);
        char pointer[96];
        snprintf(pointer, sizeof pointer, "/%.80s", key);
        value = json_object_iter_value(at);
        if (strcmp(key, "scope") == 0) {
            if (!scope_find(scope, json_string_value(value)))
                xpp_errors_add(errors, pointer, "scope must be read, submit or admin");
            else if (*scope > caller->scope)
                xpp_errors_add(errors, pointer,
                               "scope is %s; the caller has %s and cannot give more",
                               xpd_scope_name(*scope), xpd_scope_name(caller->scope));
        } else if (seconds && strcmp(key, "valid_s") == 0) {
            *seconds = json_integer_value(value);
            if (!json_is_integer(value) || *seconds < 1 || *seconds > LINK_S_MOST)
                xpp_errors_add(errors, pointer, "valid_s must be a whole number from 1 to %d",
                               LINK_S_MOST);
        } else {
            xpp_errors_add(errors, pointer, "unknown key '%.60s'; %s", key,
                           seconds ? "scope and valid_s are known" : "scope is known");
        }
    }
    if (json_array_size(errors) > 0)
        return errors;
    json_decref(errors);
    return NULL;
}

static bool read_wish(xpd_request *r, xpd_scope *scope, json_int_t *seconds)
{
    json_t *problem = NULL, *body = NULL, *errors = NULL;

    if (*r->caller.session) {
        xpd_reply_fault(r, XPP_FAULT_FORBIDDEN,
                        "a session cannot make another; it takes a token, or the unix socket");
        return false;
    }
    if (r->body_length == 0)
        return true;
    body = xpp_parse(r->body, r->body_length, &problem);
    if (!body) {
        xpd_reply_problem(r, problem);
        return false;
    }
    if (!json_is_object(body))
        xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST, "the body is a JSON object");
    else if ((errors = check_wish(body, &r->caller, scope, seconds)))
        xpd_reply_problem(
            r, xpp_problem(XPP_FAULT_INVALID_JOB, "the request is not valid", errors, NULL));
    json_decref(body);
    return !r->answered;
}

/* ------------------------------------------------------------------------------------ answers */

static json_t *scopes_of(xpd_scope scope)
{
    json_t *list = json_array();
    for (int i = XPD_SCOPE_READ; i <= (int)scope; i++)
        json_array_append_new(list, json_string(xpd_scope_name((xpd_scope)i)));
    return list;
}

static json_t *document(const xpd_session *s, const xpd_caller *caller)
{
    int64_t now = xpd_now_ms(), wall = xpd_wall_ms();
    char made[32], expires[32];

    xpp_time_text(made, wall - (now - s->made_ms));
    xpp_time_text(expires, wall + (s->expires_ms - now));
    return json_pack("{s:s, s:s, s:s, s:o, s:s?, s:s, s:s, s:b}", "id", s->id, "kind",
                     s->kind == XPD_SESSION_LINK ? "link" : "session", "user", s->maker.user,
                     "scopes", scopes_of(s->maker.scope), "token",
                     *s->maker.token ? s->maker.token : NULL, "created", made, "expires", expires,
                     "current", caller && strcmp(caller->session, s->id) == 0);
}

/* value "" takes the cookie away */
static void set_cookie(struct MHD_Response *response, const xpd_request *r, const char *value)
{
    char name[XPD_COOKIE_NAME_SIZE], text[256];

    xpd_site_cookie_name(name, r);
    snprintf(text, sizeof text, "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s", name,
             value, *value ? (long long)r->b->config.session_hours * 3600 : 0,
             xpd_site_is_tls(r) ? "; Secure" : "");
    xpd_header(response, MHD_HTTP_HEADER_SET_COOKIE, text);
    xpd_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    explicit_bzero(text, sizeof text);
}

static struct MHD_Response *json_response(json_t *body)
{
    char *text = body ? xpp_dump(body, JSON_COMPACT) : NULL;
    struct MHD_Response *response =
        text ? xpd_response_text(text, strlen(text), false, "application/json") : NULL;
    free(text);
    json_decref(body);
    return response;
}

static xpd_session *open_session(xpd_request *r, const xpd_caller *maker, xpd_scope scope,
                                 char secret[XPD_SECRET_SIZE], xpd_error *err)
{
    int64_t ttl = r->b->config.session_hours * 3600 * 1000;

    if (maker->expires_ms && maker->expires_ms - xpd_wall_ms() < ttl)
        ttl = maker->expires_ms - xpd_wall_ms();
    xpd_session *s = xpd_session_make(&r->b->sessions, XPD_SESSION_OPEN, maker, scope, ttl,
                                      xpd_now_ms(), secret, err);
    if (s)
        xpd_log(XPD_LOG_INFO, NULL, "session %s of %s is opened, scope %s", s->id, s->maker.user,
                xpd_scope_name(s->maker.scope));
    return s;
}

/* ------------------------------------------------------------------------------------- session */

void xpd_post_session(xpd_request *r)
{
    xpd_scope scope = r->caller.scope;
    char secret[XPD_SECRET_SIZE];
    xpd_error err = XPD_ERROR_INIT;

    if (!read_wish(r, &scope, NULL))
        return;
    const xpd_session *s = open_session(r, &r->caller, scope, secret, &err);
    if (!s) {
        xpd_reply_error(r, &err);
        return;
    }
    struct MHD_Response *response = json_response(document(s, NULL));
    set_cookie(response, r, secret);
    explicit_bzero(secret, sizeof secret);
    xpd_reply(r, MHD_HTTP_CREATED, response);
}

void xpd_delete_session(xpd_request *r)
{
    xpd_session *s = *r->caller.session
                         ? xpd_session_by_id(&r->b->sessions, r->caller.session, xpd_now_ms())
                         : NULL;
    if (s) {
        xpd_log(XPD_LOG_INFO, NULL, "session %s of %s is ended", s->id, s->maker.user);
        xpd_session_end(s);
    }
    struct MHD_Response *response = xpd_response_text("", 0, true, "text/plain");
    set_cookie(response, r, "");
    xpd_reply(r, MHD_HTTP_NO_CONTENT, response);
}

/* --------------------------------------------------------------------------------------- links */

static json_t *urls_of(const xpd_request *r, const char *code)
{
    const xpd_config *config = &r->b->config;
    const char *address = xpd_http_address(r->b->http);
    json_t *list = json_array();

    for (int i = 0; i < config->hosts.count; i++)
        json_array_append_new(
            list, json_sprintf("https://%s/login?code=%s", config->hosts.items[i], code));
    if (*address)
        json_array_append_new(list, json_sprintf("%s/login?code=%s", address, code));
    return list;
}

void xpd_post_session_link(xpd_request *r)
{
    xpd_scope scope = XPD_SCOPE_READ;
    json_int_t seconds = LINK_S;
    char secret[XPD_SECRET_SIZE];
    xpd_error err = XPD_ERROR_INIT;

    if (!read_wish(r, &scope, &seconds))
        return;
    const xpd_session *s = xpd_session_make(&r->b->sessions, XPD_SESSION_LINK, &r->caller, scope,
                                            seconds * 1000, xpd_now_ms(), secret, &err);
    if (!s) {
        xpd_reply_error(r, &err);
        return;
    }
    xpd_log(XPD_LOG_INFO, NULL, "link %s of %s is made, scope %s, for %lld s", s->id, s->maker.user,
            xpd_scope_name(s->maker.scope), (long long)seconds);
    json_t *body = document(s, NULL);
    json_object_set_new(body, "path", json_sprintf("/login?code=%s", secret));
    json_object_set_new(body, "urls", urls_of(r, secret));
    explicit_bzero(secret, sizeof secret);
    struct MHD_Response *response = json_response(body);
    xpd_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    xpd_reply(r, MHD_HTTP_CREATED, response);
}

static void refuse_login(xpd_request *r, xpp_fault fault, const char *text)
{
    xpd_reply_fault(r, fault, "%s", text);
}

/* The code is used up before anything else can fail; the cookie is a new secret, whatever the
 * browser had before. */
void xpd_get_login(xpd_request *r)
{
    const char *code = xpd_request_query(r, "code"),
               *from = xpd_request_header(r, "Sec-Fetch-Site");
    char secret[XPD_SECRET_SIZE];
    xpd_error err = XPD_ERROR_INIT;
    xpd_caller maker;

    if (strcmp(r->method, "HEAD") == 0) { /* a program that looks where a link leads */
        xpd_reply_empty(r, MHD_HTTP_NO_CONTENT);
        return;
    }
    if (from && strcmp(from, "none") != 0 && strcmp(from, "same-origin") != 0) {
        refuse_login(r, XPP_FAULT_FORBIDDEN,
                     "the link was followed from a page of another site, which could be somebody "
                     "else's link; copy it into the address bar instead");
        return;
    }
    xpd_session *link =
        code ? xpd_session_find(&r->b->sessions, XPD_SESSION_LINK, code, xpd_now_ms()) : NULL;
    if (!link) {
        refuse_login(r, XPP_FAULT_UNAUTHENTICATED,
                     "the link has been used, is too old or is not complete; 'xptycho dashboard' "
                     "makes a new one");
        return;
    }
    bool good = xpd_session_caller(link, r->b->auth, &maker, &err);
    xpd_log(XPD_LOG_INFO, NULL, "link %s of %s is used", link->id, link->maker.user);
    xpd_session_end(link);
    *maker.session = '\0';
    if (!good || !open_session(r, &maker, maker.scope, secret, &err)) {
        xpd_reply_error(r, &err);
        return;
    }
    struct MHD_Response *response = xpd_response_text("", 0, true, "text/plain");
    xpd_header(response, MHD_HTTP_HEADER_LOCATION, "/");
    set_cookie(response, r, secret);
    explicit_bzero(secret, sizeof secret);
    xpd_reply(r, MHD_HTTP_SEE_OTHER, response);
}

/* Says where things are; it holds nothing, so that a browser may get it before its cookie counts.
 */
void xpd_get_home(xpd_request *r)
{
    static const char page[] =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
        "charset=\"utf-8\"><title>xptycho</title></head>\n"
        "<body><h1>xptycho</h1>\n<p>Documents of this service, as JSON:</p>\n<ul>\n"
        "<li><a href=\"/v1/whoami\">who you are here</a></li>\n"
        "<li><a href=\"/v1/queue\">what runs and what waits</a></li>\n"
        "<li><a href=\"/v1/jobs\">your jobs</a>, each with its events, log, pictures and "
        "result</li>\n"
        "<li><a href=\"/v1/devices\">devices</a></li>\n<li><a href=\"/v1/limits\">limits</a></li>\n"
        "<li><a href=\"/v1/sessions\">your sessions</a></li>\n"
        "<li><a href=\"/openapi.json\">the interface</a></li>\n</ul>\n"
        "<p>Asked who you are? <code>xptycho dashboard</code> prints a link.</p></body></html>\n";
    struct MHD_Response *response =
        xpd_response_text(page, sizeof page - 1, true, "text/html; charset=utf-8");
    xpd_header(response, "Content-Security-Policy",
               "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    xpd_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    xpd_reply(r, MHD_HTTP_OK, response);
}

/* ---------------------------------------------------------------------------------------- list */

void xpd_get_sessions(xpd_request *r)
{
    json_t *list = json_array();
    int64_t now = xpd_now_ms();

    for (int i = 0; i < XPD_SESSIONS_MAX; i++) {
        const xpd_session *s = &r->b->sessions.items[i];
        if (xpd_session_alive(s, now) && xpd_caller_sees(&r->caller, s->maker.uid))
            json_array_append_new(list, document(s, &r->caller));
    }
    xpd_reply_json(r, MHD_HTTP_OK, json_pack("{s:o}", "sessions", list));
}

void xpd_delete_session_by_id(xpd_request *r)
{
    xpd_session *s = xpd_session_by_id(&r->b->sessions, r->named, xpd_now_ms());

    if (!s || !xpd_caller_sees(&r->caller, s->maker.uid)) {
        xpd_reply_fault(r, XPP_FAULT_NOT_FOUND, "there is no session '%.26s'", r->named);
        return;
    }
    xpd_log(XPD_LOG_INFO, NULL, "session %s of %s is ended by %s", s->id, s->maker.user,
            r->caller.user);
    xpd_session_end(s);
    xpd_reply_empty(r, MHD_HTTP_NO_CONTENT);
}
