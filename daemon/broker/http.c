/* See http.h.  libmicrohttpd in external epoll mode: no thread of its own, its epoll descriptor is
 * a source of our loop.  What it does not do is done here: one deadline for a whole head, a whole
 * body and the reading of an answer (its own time-out is inactivity only), and where connections
 * are too many, room for a new one or an answer that says so.
 */
#include "http.h"

#include "guard.h"
#include "listen.h"
#include "log.h"
#include "request.h"
#include "routes.h"
#include "site.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_MS 10000
#define BODY_MS 30000
#define YOUNG_MS 500
#define ANSWER_MS 30000 /* to read it, event streams and results apart */
#define IDLE_MS 60000
#define STALLED_S 60u /* without a byte in either direction, by the library */
#define CONNECTION_MEMORY (16 * 1024)
#define SEND_BUFFER (64 * 1024) /* of a socket; a result gets more */
#define ADMIN_CONNECTIONS 32
#define CONNECTIONS_SPARE 64 /* beyond our limit, so that there is somebody to say 503 to */

typedef struct connection {
    struct listener *listener;
    int fd; /* -1 = shut already */
    enum { IDLE, HEAD, BODY, ANSWER } phase;
    bool fresh;   /* no request was seen yet */
    bool known;   /* whose request this is */
    bool bounded; /* the answer is on its way and must be read in time */
    int64_t since_ms;
    struct connection *next, **link;
} connection;

typedef struct listener {
    xpd_http *http;
    struct MHD_Daemon *daemon;
    bool tcp, admin, health;
    int64_t open, limit; /* connections, and how many are served */
    int quiesced;        /* the listening socket after xpd_http_quiesce, -1 = still the daemon's */
    xpd_source source;
} listener;

struct xpd_http {
    xpd_broker *b;
    listener listeners[4];
    int count;
    connection *connections;
    int64_t requests;
    bool own_unix, own_admin; /* made here: removed at the end */
    char address[128], health[128], unix_path[PATH_MAX], admin_path[PATH_MAX];
};

/* ------------------------------------------------------------------------------- connections */

static int64_t limit_of(const listener *l)
{
    int64_t now = l->http->b->config.connections_max; /* a reload may lower it */
    return l->admin || now > l->limit ? l->limit : now;
}

/* The library sees the end and cleans up. */
static void close_early(connection *c, xpd_dropped why)
{
    shutdown(c->fd, SHUT_RDWR);
    c->listener->http->b->metrics.dropped[why]++;
}

/* Makes room: of those that ask nothing, have not yet asked, or take their time to read what
 * anybody may ask, who has done so for longest.  One who comes with a whole request is here for
 * milliseconds, so those who do not, however many they are, make room for each other.  The young
 * are spared while there is somebody to say 503 to: they are about to ask. */
static bool close_oldest(listener *l)
{
    connection *oldest = NULL;
    bool crowded = l->open > limit_of(l) + CONNECTIONS_SPARE / 2;
    int64_t now = xpd_now_ms();

    for (connection *c = l->http->connections; c; c = c->next) {
        if (c->listener == l && c->fd >= 0 && (c->phase != ANSWER || (c->bounded && !c->known)) &&
            (crowded || now - c->since_ms > YOUNG_MS) &&
            (!oldest || c->since_ms <= oldest->since_ms))
            oldest = c;
    }
    if (oldest) {
        close_early(oldest, XPD_DROPPED_ROOM);
        oldest->fd = -1; /* it counts no more */
        l->open--;
    }
    return oldest != NULL;
}

/* Over loopback the kernel would take 4 MB for one who does not read, gigabytes for a thousand of
 * them, and would be the last to see that they do not. */
static void limit_buffer(int fd)
{
    int bytes = SEND_BUFFER;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) != 0)
        xpd_log(XPD_LOG_WARNING, NULL, "the buffer of a connection cannot be limited: %s",
                strerror(errno));
}

static void connection_changed(void *context, struct MHD_Connection *c, void **socket_context,
                               enum MHD_ConnectionNotificationCode code)
{
    listener *l = context;
    connection *conn = *socket_context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        conn = info ? calloc(1, sizeof *conn) : NULL;
        if (!conn)
            return;
        l->open++;
        while (l->open > limit_of(l) && close_oldest(l))
            ;
        conn->listener = l;
        conn->fd = info->connect_fd;
        limit_buffer(conn->fd);
        conn->fresh = true;
        conn->since_ms = xpd_now_ms();
        conn->next = l->http->connections;
        conn->link = &l->http->connections;
        if (conn->next)
            conn->next->link = &conn->next;
        l->http->connections = conn;
        *socket_context = conn;
    } else if (conn) {
        *conn->link = conn->next;
        if (conn->next)
            conn->next->link = conn->link;
        if (conn->fd >= 0)
            l->open--;
        free(conn);
        *socket_context = NULL;
    }
}

static connection *connection_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void set_phase(struct MHD_Connection *c, int phase)
{
    connection *conn = connection_of(c);
    if (conn) {
        conn->phase = phase;
        conn->fresh = conn->bounded = false;
        conn->since_ms = xpd_now_ms();
    }
}

void xpd_http_tick(xpd_http *http)
{
    int64_t now = xpd_now_ms();
    for (connection *conn = http->connections; conn; conn = conn->next) {
        int64_t limit = conn->phase == BODY                  ? BODY_MS
                        : conn->phase == ANSWER              ? ANSWER_MS
                        : conn->phase == HEAD || conn->fresh ? HEAD_MS
                                                             : IDLE_MS + HEAD_MS;
        if ((conn->phase != ANSWER || conn->bounded) && now - conn->since_ms > limit &&
            conn->fd >= 0) {
            close_early(conn, XPD_DROPPED_DEADLINE);
            conn->since_ms = now;
        }
    }
}

/* ---------------------------------------------------------------------------------- requests */

static bool check_room(const listener *l, xpd_error *err)
{
    if (l->open <= limit_of(l))
        return true;
    return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "%lld connections are open; that is the limit",
                    (long long)limit_of(l));
}

static enum MHD_Result no_reply(const xpd_request *r)
{
    xpd_log(XPD_LOG_WARNING, NULL,
            "request %lld: no memory for the answer; its connection is closed",
            (long long)r->number);
    return MHD_NO;
}

static enum MHD_Result send_reply(xpd_request *r)
{
    char number[32];
    if (!r->response)
        return no_reply(r);
    xpd_metrics_request(&r->b->metrics, r->route, r->method, r->status,
                        (double)(xpd_now_ms() - r->began_ms) / 1000);
    snprintf(number, sizeof number, "%lld", (long long)r->number);
    xpd_header(r->response, "X-Request-Id", number);
    xpd_site_headers(r);
    if (r->close)
        xpd_header(r->response, MHD_HTTP_HEADER_CONNECTION, "close");
    r->response = xpd_response_whole(r->response);
    if (!r->response)
        return no_reply(r);
    set_phase(r->connection, ANSWER);
    connection *conn = connection_of(r->connection);
    if (conn)
        conn->bounded = !r->streams && !r->large;
    enum MHD_Result queued = MHD_queue_response(r->connection, r->status, r->response);
    MHD_destroy_response(r->response);
    r->response = NULL;
    return queued;
}

static enum MHD_Result begin(listener *l, struct MHD_Connection *c, const char *url,
                             const char *method, const char *version, void **context)
{
    xpd_request *r = calloc(1, sizeof *r);
    xpd_error err = XPD_ERROR_INIT;

    if (!r)
        return MHD_NO;
    *context = r;
    r->b = l->http->b;
    r->connection = c;
    r->tcp = l->tcp;
    r->admin = l->admin;
    r->health = l->health;
    r->route = -1;
    r->began_ms = xpd_now_ms();
    r->number = ++l->http->requests;
    snprintf(r->method, sizeof r->method, "%s", method);
    set_phase(c, BODY);
    connection *conn = connection_of(c);
    if (conn)
        conn->known = false;
    if (!xpd_guard_framing(c, version, &err)) {
        r->close = true;
        xpd_reply_error(r, &err);
    } else if (!xpd_request_parse(r, url, &err) || !check_room(l, &err)) {
        r->close = true;
        xpd_reply_error(r, &err);
    } else if (strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0) {
        r->close = xpd_request_has_body(r); /* it is not read */
        if (r->tcp && !xpd_site_check(r, &err))
            xpd_reply_error(r, &err);
        else
            xpd_site_options(r);
    } else if (!xpd_guard_request(r, &err)) {
        r->close = xpd_request_has_body(r); /* it is not read */
        xpd_reply_error(r, &err);
    }
    if (conn)
        conn->known = *r->caller.user;
    return r->answered ? send_reply(r) : MHD_YES;
}

static void take_body(xpd_request *r, const char *data, size_t size)
{
    if (r->body_too_large || r->body_length + size > XPP_BODY_MAX) {
        r->body_too_large = true; /* swallowed; an answer in the middle of a body is not possible */
        return;
    }
    if (r->body_length + size + 1 > r->body_room) {
        size_t room = (r->body_length + size + 1) * 2;
        char *more = realloc(r->body, room);
        if (!more) {
            r->body_too_large = true;
            return;
        }
        r->body = more;
        r->body_room = room;
    }
    memcpy(r->body + r->body_length, data, size);
    r->body_length += size;
    r->body[r->body_length] = '\0';
}

static enum MHD_Result handle(void *context, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_size, void **request)
{
    listener *l = context;
    xpd_request *r = *request;

    if (!r)
        return begin(l, c, url, method, version, request);
    if (*data_size) {
        take_body(r, data, *data_size);
        *data_size = 0;
        return MHD_YES;
    }
    if (!r->answered) {
        set_phase(c, ANSWER);
        if (r->body_too_large)
            xpd_reply_fault(r, XPP_FAULT_TOO_LARGE, "the body is longer than %d bytes",
                            XPP_BODY_MAX);
        else
            xpd_route_request(r);
    }
    if (!r->answered && r->waits) {
        r->waits = false;
        r->parked = true;
        r->b->parked++;
        MHD_suspend_connection(c);
        return MHD_YES;
    }
    return send_reply(r);
}

static void count_stream(const xpd_request *r, enum MHD_RequestTerminationCode code)
{
    xpd_closed why = r->lagged                                        ? XPD_CLOSED_LAG
                     : r->b->closing                                  ? XPD_CLOSED_DRAIN
                     : code == MHD_REQUEST_TERMINATED_COMPLETED_OK    ? XPD_CLOSED_END
                     : code == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED ? XPD_CLOSED_TIMEOUT
                                                                      : XPD_CLOSED_CLIENT;
    r->b->metrics.closed[why]++;
    if (why == XPD_CLOSED_TIMEOUT)
        xpd_log(XPD_LOG_INFO, NULL,
                "request %lld: the event stream of %s is closed: nothing was read for %u s",
                (long long)r->number, r->caller.user, STALLED_S);
}

static void completed(void *context, struct MHD_Connection *c, void **request,
                      enum MHD_RequestTerminationCode code)
{
    const xpd_request *r = *request;
    (void)context;
    if (r && r->streams)
        count_stream(r, code);
    xpd_request_free(*request);
    *request = NULL;
    connection *conn = connection_of(c);
    if (conn) {
        conn->phase = IDLE;
        conn->bounded = false;
        conn->since_ms = xpd_now_ms();
    }
}

/* Called when the request line is there: the head's time starts. */
static void *line_seen(void *context, const char *uri, struct MHD_Connection *c)
{
    (void)context;
    (void)uri;
    connection *conn = connection_of(c);
    if (conn && conn->phase == IDLE) {
        conn->phase = HEAD;
        if (!conn->fresh)
            conn->since_ms = xpd_now_ms();
    }
    return NULL;
}

static size_t leave_encoded(void *context, struct MHD_Connection *c, char *text)
{
    (void)context;
    (void)c;
    return strlen(text);
}

/* Where the library finds its own descriptors spoilt it would abort.  The state is on disk, so a
 * plain exit, upon which the service is started again, is all there is to do. */
static void library_gave_up(void *context, const char *file, unsigned line, const char *reason)
{
    (void)context;
    xpd_log(XPD_LOG_ERROR, NULL, "the HTTP library gave up at %s:%u: %s; the service restarts",
            file, line, reason ? reason : "");
    _exit(EXIT_FAILURE);
}

static void library_log(void *context, const char *format, va_list arguments)
{
    char text[512];
    (void)context;
    if (xpd_log_level() < XPD_LOG_DEBUG) /* two lines for every client that hangs up */
        return;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    xpd_log(XPD_LOG_DEBUG, NULL, "http: %s", text);
}

/* --------------------------------------------------------------------------------- listeners */

static void daemon_ready(void *context)
{
    listener *l = context;
    MHD_run(l->daemon);
}

/* health = without the verbs of an administrator */
static bool start(xpd_http *http, int fd, bool tcp, bool admin, bool health, xpd_error *err)
{
    listener *l = &http->listeners[http->count];

    if (fd < 0)
        return false;
    l->http = http;
    l->tcp = tcp;
    l->admin = admin;
    l->health = health;
    l->limit = admin ? ADMIN_CONNECTIONS : http->b->config.connections_max;
    l->quiesced = -1;
    l->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, handle, l,
        MHD_OPTION_EXTERNAL_LOGGER, library_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)l->limit + CONNECTIONS_SPARE,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_CONNECTION_TIMEOUT, STALLED_S, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, leave_encoded, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        connection_changed, l, MHD_OPTION_NOTIFY_COMPLETED, completed, l,
        MHD_OPTION_URI_LOG_CALLBACK, line_seen, l, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        l->daemon ? MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info) {
        close(fd);
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "the HTTP library did not start");
    }
    http->count++;
    l->source = (xpd_source){.fd = info->epoll_fd, .ready = daemon_ready, .context = l};
    if (!xpd_loop_add(&http->b->loop, &l->source))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "cannot watch the HTTP sockets: %s",
                        strerror(errno));
    return true;
}

int64_t xpd_http_descriptors(const xpd_config *config)
{
    int64_t api = config->connections_max + CONNECTIONS_SPARE,
            admin = ADMIN_CONNECTIONS + CONNECTIONS_SPARE;
    return api * (config->port >= 0 ? 2 : 1) + admin * (config->health_port >= 0 ? 2 : 1);
}

bool xpd_http_open(xpd_http **out, xpd_broker *b, xpd_error *err)
{
    xpd_http *http = calloc(1, sizeof *http);

    *out = http;
    if (!http)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    http->b = b;
    MHD_set_panic_func(library_gave_up, NULL);
    xpd_passed passed = xpd_listen_passed();
    http->own_unix = passed.api < 0;
    http->own_admin = passed.admin < 0;
    if (http->own_unix) {
        snprintf(http->unix_path, sizeof http->unix_path, "%s/api.sock", b->config.runtime_dir);
        passed.api = xpd_listen_unix(http->unix_path, (mode_t)b->config.unix_mode, err);
    }
    if (!start(http, passed.api, false, false, false, err))
        return false;
    if (http->own_admin) {
        snprintf(http->admin_path, sizeof http->admin_path, "%s/admin.sock", b->config.runtime_dir);
        passed.admin = xpd_listen_unix(http->admin_path, 0600, err);
    }
    if (!start(http, passed.admin, false, true, false, err))
        return false;
    if (passed.api_tcp < 0 && b->config.port >= 0 &&
        (passed.api_tcp = xpd_listen_tcp(b->config.address, (uint16_t)b->config.port, err)) < 0)
        return false;
    if (!http->own_unix)
        xpd_listen_address(http->unix_path, sizeof http->unix_path, passed.api);
    if (!http->own_admin)
        xpd_listen_address(http->admin_path, sizeof http->admin_path, passed.admin);
    if (passed.api_tcp >= 0) {
        xpd_listen_address(http->address, sizeof http->address, passed.api_tcp);
        if (!start(http, passed.api_tcp, true, false, false, err))
            return false;
    }
    if (b->config.health_port < 0)
        return true;
    int fd = xpd_listen_tcp("127.0.0.1", (uint16_t)b->config.health_port, err);
    if (fd >= 0)
        xpd_listen_address(http->health, sizeof http->health, fd);
    return start(http, fd, true, true, true, err);
}

int xpd_http_before_wait(xpd_http *http)
{
    int least = -1;
    /* Without a thread of its own the library is not woken by a resumed connection, nor does its
     * time-out tell. */
    if (http->b->http_due) {
        http->b->http_due = false;
        for (int i = 0; i < http->count; i++)
            MHD_run(http->listeners[i].daemon);
    }
    for (int i = 0; i < http->count; i++) {
        MHD_UNSIGNED_LONG_LONG wait;
        for (int again = 0;
             again < 2 && MHD_get_timeout(http->listeners[i].daemon, &wait) == MHD_YES; again++) {
            if (wait > 0) {
                int ms = wait > 60000 ? 60000 : (int)wait;
                least = least < 0 || ms < least ? ms : least;
                break;
            }
            MHD_run(http->listeners[i].daemon);
            if (again == 1)
                least = 0;
        }
    }
    return http->b->http_due ? 0 : least;
}

void xpd_http_quiesce(xpd_http *http)
{
    for (int i = 0; i < http->count; i++) {
        if (http->listeners[i].quiesced < 0 && !http->listeners[i].admin)
            http->listeners[i].quiesced = MHD_quiesce_daemon(http->listeners[i].daemon);
    }
}

unsigned xpd_http_connections(const xpd_http *http)
{
    unsigned n = 0;
    for (const connection *c = http->connections; c; c = c->next)
        n += c->phase == BODY || c->phase == ANSWER;
    return n;
}

void xpd_http_close(xpd_http *http)
{
    if (!http)
        return;
    for (int i = 0; i < http->count; i++) {
        xpd_loop_remove(&http->b->loop, &http->listeners[i].source);
        MHD_stop_daemon(http->listeners[i].daemon);
        if (http->listeners[i].quiesced >= 0)
            close(http->listeners[i].quiesced);
    }
    if (http->count > 0 && http->own_unix)
        unlink(http->unix_path);
    if (http->count > 1 && http->own_admin)
        unlink(http->admin_path);
    free(http);
}

unsigned xpd_http_open_connections(const xpd_http *http)
{
    int64_t n = 0;
    for (int i = 0; i < http->count; i++)
        n += http->listeners[i].admin ? 0 : http->listeners[i].open;
    return (unsigned)n;
}

const char *xpd_http_health_address(const xpd_http *http)
{
    return http->health;
}

const char *xpd_http_address(const xpd_http *http)
{
    return http->address;
}

const char *xpd_http_unix_path(const xpd_http *http)
{
    return http->unix_path;
}

const char *xpd_http_admin_path(const xpd_http *http)
{
    return http->admin_path;
}
