/* See site.h. */
#include "site.h"

#include "routes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ALLOWED_HEADERS                                                                            \
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, If-Range, "            \
    "Last-Event-ID, Prefer, Range"
#define EXPOSED_HEADERS                                                                            \
    "Content-Range, ETag, Idempotency-Replayed, Link, Location, Retry-After, X-Request-Id, "       \
    "X-Xptycho-Iteration, X-Xptycho-Range, X-Xptycho-Shape, X-Xptycho-Stage"

static bool in_list(const xpd_list *list, const char *text, size_t length)
{
    for (int i = 0; i < list->count; i++) {
        if (strlen(list->items[i]) == length && strncasecmp(list->items[i], text, length) == 0)
            return true;
    }
    return false;
}

/* -------------------------------------------------------------------------------------- Host */

/* Bytes of the name in "name:port" or "[address]:port". */
static size_t name_length(const char *host)
{
    size_t length = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    return host[0] == '[' && host[length] ? length + 1 : length;
}

static bool is_local(const xpd_config *config, const char *host)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    size_t length = name_length(host);

    for (size_t i = 0; i < 3; i++) {
        if (strlen(local[i]) == length && strncasecmp(local[i], host, length) == 0)
            return true;
    }
    return length == strlen(config->address) && strncmp(config->address, host, length) == 0;
}

bool xpd_site_is_tls(const xpd_request *r)
{
    const char *host = xpd_request_header(r, "Host");
    return r->tcp && host && !is_local(&r->b->config, host) &&
           in_list(&r->b->config.hosts, host, name_length(host));
}

void xpd_site_cookie_name(char out[XPD_COOKIE_NAME_SIZE], const xpd_request *r)
{
    const char *host = xpd_request_header(r, "Host");
    const char *port = host ? strchr(host + name_length(host), ':') : NULL;
    int digits = port ? (int)strspn(port + 1, "0123456789") : 0;

    if (xpd_site_is_tls(r)) /* a name that browsers take only from this very site, by TLS */
        snprintf(out, XPD_COOKIE_NAME_SIZE, "__Host-xptycho");
    else /* cookies know no ports: so that two daemons on one machine do not end each other's */
        snprintf(out, XPD_COOKIE_NAME_SIZE, "xptycho-%.*s", digits > 5 ? 5 : digits,
                 port ? port + 1 : "");
}

/* ------------------------------------------------------------------------------------ Origin */

/* The rest of an origin after its scheme, or NULL where it is no origin of the web. */
static const char *after_scheme(const char *origin, bool *https)
{
    *https = strncasecmp(origin, "https://", 8) == 0;
    return *https ? origin + 8 : strncasecmp(origin, "http://", 7) == 0 ? origin + 7 : NULL;
}

bool xpd_site_is_own(const xpd_request *r)
{
    const char *origin = xpd_request_header(r, "Origin"), *host = xpd_request_header(r, "Host");
    const xpd_config *config = &r->b->config;
    bool https;
    const char *rest = origin && host ? after_scheme(origin, &https) : NULL;

    if (!rest)
        return false;
    if (strcasecmp(rest, host) == 0)
        return https || is_local(config, host);
    /* a proxy may leave the port out of Host; then the configuration names the origin */
    return in_list(&config->origins, origin, strlen(origin)) &&
           name_length(rest) == name_length(host) &&
           strncasecmp(rest, host, name_length(host)) == 0;
}

static bool is_allowed(const xpd_request *r, const char *origin)
{
    return in_list(&r->b->config.origins, origin, strlen(origin));
}

static bool refuse_origin(const char *origin, xpd_error *err)
{
    return xpd_fail(err, XPP_FAULT_FORBIDDEN, "",
                    "requests of pages from '%.100s' are not allowed; whoever runs the service "
                    "allows them by http.origin",
                    origin);
}

bool xpd_site_check(const xpd_request *r, xpd_error *err)
{
    const char *host = xpd_request_header(r, "Host"), *origin = xpd_request_header(r, "Origin");
    const xpd_config *config = &r->b->config;

    if (host && !is_local(config, host) && !in_list(&config->hosts, host, name_length(host)))
        return xpd_fail(
            err, XPP_FAULT_FORBIDDEN, "",
            "the name '%.100s' in the Host header is not one of this service; see http.host", host);
    if (origin && !is_allowed(r, origin) && !xpd_site_is_own(r))
        return refuse_origin(origin, err);
    return true;
}

bool xpd_site_check_cookie(const xpd_request *r, xpd_error *err)
{
    const char *origin = xpd_request_header(r, "Origin"),
               *from = xpd_request_header(r, "Sec-Fetch-Site");
    bool reads = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;

    if (origin ? !xpd_site_is_own(r) : !reads)
        return xpd_fail(err, XPP_FAULT_FORBIDDEN, "",
                        "a session is for pages of the service itself: the Origin header is %s; "
                        "programs send a token instead",
                        origin ? "that of another site" : "missing");
    if (from && strcmp(from, "same-origin") != 0 && strcmp(from, "none") != 0)
        return xpd_fail(err, XPP_FAULT_FORBIDDEN, "",
                        "a session is for pages of the service itself, not for those of another "
                        "site");
    return true;
}

/* -------------------------------------------------------------------------------------- CORS */

static void allow(struct MHD_Response *response, const char *origin)
{
    xpd_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    xpd_header(response, "Access-Control-Expose-Headers", EXPOSED_HEADERS);
}

void xpd_site_headers(const xpd_request *r)
{
    const char *origin = r->tcp ? xpd_request_header(r, "Origin") : NULL;

    xpd_header(r->response, "X-Content-Type-Options", "nosniff");
    xpd_header(r->response, "Referrer-Policy", "no-referrer");
    if (!r->tcp)
        return;
    xpd_header(r->response, "Cross-Origin-Resource-Policy", "same-origin");
    if (r->b->config.origins.count > 0)
        xpd_header(r->response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
    /* by token only: no Access-Control-Allow-Credentials, so no cookie comes along */
    if (origin && is_allowed(r, origin))
        allow(r->response, origin);
}

void xpd_site_options(xpd_request *r)
{
    const char *origin = xpd_request_header(r, "Origin"),
               *wanted = xpd_request_header(r, "Access-Control-Request-Method");
    char methods[64];

    xpd_route_methods(methods, sizeof methods, r);
    if (!*methods) {
        xpd_reply_fault(r, XPP_FAULT_NOT_FOUND,
                        "there is no such path; GET /openapi.json lists them");
        return;
    }
    struct MHD_Response *response = xpd_response_text("", 0, true, "text/plain");
    xpd_header(response, MHD_HTTP_HEADER_ALLOW, methods);
    if (origin && wanted && is_allowed(r, origin)) {
        xpd_header(response, "Access-Control-Allow-Methods", methods);
        xpd_header(response, "Access-Control-Allow-Headers", ALLOWED_HEADERS);
        xpd_header(response, "Access-Control-Max-Age", "600");
    }
    xpd_reply(r, MHD_HTTP_NO_CONTENT, response);
}
