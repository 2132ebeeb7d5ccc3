/* See guard.h. */
#include "guard.h"

#include "site.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct header_counts {
    int hosts, lengths, encodings, authorizations;
    const char *encoding;
    bool folded, odd;
} header_counts;

/* A carriage return alone is a line's end for some and a character for others; no header needs one,
 * nor any other control character but the tab. */
static bool has_controls(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if ((*c < 0x20 && *c != '\t') || *c == 0x7f)
            return true;
    }
    return false;
}

/* Whether a header goes on in the next line.  The library appends such a line to the *name*, which
 * it moves for that ("Transfer-Encoding: identity", " chunked" becomes Transfer-Encodingchunked):
 * the length of the body that it sees is then another than a proxy's.  What was not moved lies as
 * it came, name, colon, spaces, value. */
static bool is_folded(const char *name, const char *value)
{
    uintptr_t begin = (uintptr_t)name + strlen(name) + 1, at = (uintptr_t)value;
    return value && (at < begin || at - begin > XPP_BODY_MAX);
}

static enum MHD_Result count_header(void *context, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    header_counts *n = context;
    (void)kind;
    n->folded = n->folded || is_folded(name, value);
    n->odd = n->odd || has_controls(name) || (value && has_controls(value));
    if (strcasecmp(name, "Host") == 0)
        n->hosts++;
    else if (strcasecmp(name, "Content-Length") == 0)
        n->lengths++;
    else if (strcasecmp(name, "Authorization") == 0)
        n->authorizations++;
    else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        n->encodings++;
        n->encoding = value;
    }
    return MHD_YES;
}

bool xpd_guard_framing(struct MHD_Connection *c, const char *version, xpd_error *err)
{
    header_counts n = {0, 0, 0, 0, NULL, false, false};
    MHD_get_connection_values(c, MHD_HEADER_KIND, count_header, &n);
    if (n.folded)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "a header goes on in the next line");
    if (n.odd)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "a header has a control character");
    if (n.lengths + n.encodings > 1 || (n.encoding && strcasecmp(n.encoding, "chunked") != 0))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "the length of the body is ambiguous");
    if (n.hosts > 1 || (n.hosts == 0 && strcmp(version, "HTTP/1.0") != 0))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "a request has exactly one Host header");
    if (n.authorizations > 1)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "more than one Authorization header");
    return true;
}

static bool is_json(const char *type)
{
    static const char wanted[] = "application/json";
    size_t n = sizeof wanted - 1;
    return type && strncasecmp(type, wanted, n) == 0 &&
           (!type[n] || type[n] == ';' || type[n] == ' ');
}

bool xpd_request_has_body(const xpd_request *r)
{
    const char *length = xpd_request_header(r, "Content-Length");
    return xpd_request_header(r, "Transfer-Encoding") || (length && strtoull(length, NULL, 10) > 0);
}

static bool check_body(const xpd_request *r, xpd_error *err)
{
    const char *length = xpd_request_header(r, "Content-Length"),
               *type = xpd_request_header(r, "Content-Type");
    if (length && strtoull(length, NULL, 10) > XPP_BODY_MAX)
        return xpd_fail(err, XPP_FAULT_TOO_LARGE, "",
                        "the body has %.20s bytes; at most %d are taken", length, XPP_BODY_MAX);
    if (xpd_request_has_body(r) && !is_json(type))
        return xpd_fail(err, XPP_FAULT_UNSUPPORTED_TYPE, "",
                        "the body has type '%.80s'; send 'Content-Type: application/json'",
                        type ? type : "");
    return true;
}

static bool is_public(const xpd_request *r)
{
    if (r->segment_count == 0)
        return true;
    return r->segment_count == 1 &&
           (strcmp(r->segments[0], "livez") == 0 || strcmp(r->segments[0], "readyz") == 0 ||
            strcmp(r->segments[0], "openapi.json") == 0 || strcmp(r->segments[0], "login") == 0);
}

/* ------------------------------------------------------------------------------------ who asks */

typedef struct cookie_counts {
    const char *name, *value;
    int count;
} cookie_counts;

static enum MHD_Result count_cookie(void *context, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    cookie_counts *n = context;
    (void)kind;
    if (strcmp(name, n->name) == 0) {
        n->value = value;
        n->count++;
    }
    return MHD_YES;
}

/* By the browser's session, where there is one: 1; -1 = it is refused, 0 = there is none. */
static int check_session(xpd_request *r, xpd_error *err)
{
    char name[XPD_COOKIE_NAME_SIZE];
    cookie_counts n = {name, NULL, 0};

    if (!r->tcp)
        return 0; /* a proxy's socket would give every page its rights */
    xpd_site_cookie_name(name, r);
    MHD_get_connection_values(r->connection, MHD_COOKIE_KIND, count_cookie, &n);
    if (n.count == 0 || !n.value || !*n.value)
        return 0;
    if (n.count > 1) { /* one of them was put there by somebody else */
        xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "more than one session cookie; delete them");
        return -1;
    }
    const xpd_session *s =
        xpd_session_find(&r->b->sessions, XPD_SESSION_OPEN, n.value, xpd_now_ms());
    if (!s) {
        xpd_fail(err, XPP_FAULT_UNAUTHENTICATED, "",
                 "the session is over; 'xptycho dashboard' makes a link for a new one");
        return -1;
    }
    return xpd_session_caller(s, r->b->auth, &r->caller, err) && xpd_site_check_cookie(r, err) ? 1
                                                                                               : -1;
}

/* The admin socket is for root and the service's own user, whatever its mode was made. */
static bool check_administrator(xpd_request *r, int fd, xpd_error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (r->health)
        return true;
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        (peer.uid != 0 && peer.uid != geteuid()))
        return xpd_fail(err, XPP_FAULT_FORBIDDEN, "",
                        "only root and the user of the service may use this socket");
    r->caller.uid = peer.uid;
    r->caller.scope = XPD_SCOPE_ADMIN;
    xpd_user_name(r->caller.user, sizeof r->caller.user, peer.uid);
    return true;
}

static bool check_caller(xpd_request *r, xpd_error *err)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info ? info->connect_fd : -1;

    if (r->admin)
        return check_administrator(r, fd, err);
    if (is_public(r))
        return true;
    const char *token = xpd_request_header(r, "Authorization");
    int session = token ? 0 : check_session(r, err);
    if (session != 0)
        return session > 0;
    return xpd_auth_check(r->b->auth, &r->caller, token, r->tcp ? -1 : fd, err);
}

/* What changes something makes work: a reader is started, the state is written. */
static bool check_rate(const xpd_request *r, xpd_error *err)
{
    const xpd_config *config = &r->b->config;

    if (r->admin || is_public(r) || strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0)
        return true;
    int wait = xpd_rate_take(&r->b->rate, r->caller.uid, config->rate, config->burst, xpd_now_ms());
    if (wait == 0)
        return true;
    r->b->metrics.rate_limited++;
    xpd_fail(err, XPP_FAULT_RATE_LIMITED, "",
             "more than %lld requests a second that change something; wait %d s",
             (long long)config->rate, wait);
    err->more = json_pack("{s:i}", "retry_after_s", wait);
    return false;
}

bool xpd_guard_request(xpd_request *r, xpd_error *err)
{
    return (!r->tcp || xpd_site_check(r, err)) && check_caller(r, err) && check_rate(r, err) &&
           check_body(r, err);
}
