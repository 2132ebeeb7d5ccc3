/* The calls: one function a verb of the API.  A call is a request, the check of its status and the
 * answer's document; submit and rerun are tried again with the same key when the connection breaks,
 * because the key makes that safe. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <xptychod/client.h>
#include <xptychod/protocol.h>

#include "fail.h"
#include "http.h"
#include "private.h"

#define TIMEOUT_MS 60000
#define RETRY_MS 30000
#define RETRY_FIRST_MS 250
#define RETRY_MOST_MS 2000

#define JSON_TYPES "application/json, application/problem+json"

int64_t xpc_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool xpc_sleep(int ms, bool (*tick)(void *user), void *user)
{
    int64_t end = xpc_now_ms() + ms;

    for (;;) {
        int64_t left = end - xpc_now_ms();
        struct timespec t = {0, 0};

        if (tick && !tick(user))
            return false;
        if (left <= 0)
            return true;
        t.tv_nsec = (long)(left < 100 ? left : 100) * 1000000;
        (void)nanosleep(&t, NULL);
    }
}

/* ---------------------------------------------------------------------------------- opening */

xpc_status xpc_open(xpc_client **out, const xpc_options *options, xpc_error *err)
{
    xpc_status st = XPC_OK;
    xpc_client *client = calloc(1, sizeof(*client));

    *out = NULL;
    if (!client)
        return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
    XPC_TRY(xpc_place_find(&client->place, options, err));
    client->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS;
    client->retry_ms = options->retry_ms ? options->retry_ms : RETRY_MS;
    client->curl = curl_easy_init();
    if (!client->curl) {
        st = xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
        goto done;
    }
    *out = client;
    client = NULL;
done:
    xpc_close(client);
    return st;
}

void xpc_close(xpc_client *client)
{
    if (!client)
        return;
    if (client->curl)
        curl_easy_cleanup(client->curl);
    json_decref(client->problem);
    xpc_place_release(&client->place);
    free(client);
}

const char *xpc_server(const xpc_client *client)
{
    return client->place.server;
}

const json_t *xpc_problem(const xpc_client *client)
{
    return client->problem;
}

void xpc_key_make(char out[XPC_KEY_SIZE])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[16];
    size_t i, used = 0;

    /* Cannot fail for 16 bytes once the kernel has started up. */
    while (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        continue;
    bytes[6] = (unsigned char)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (unsigned char)((bytes[8] & 0x3f) | 0x80);
    for (i = 0; i < sizeof(bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[used++] = '-';
        out[used++] = hex[bytes[i] >> 4];
        out[used++] = hex[bytes[i] & 15];
    }
    out[used] = '\0';
}

/* ---------------------------------------------------------------------------------- one call */

static void forget_problem(xpc_client *client)
{
    json_decref(client->problem);
    client->problem = NULL;
}

/* Sends and demands a 2xx status. */
static xpc_status exchange(xpc_client *client, const xpc_request *request, xpc_response *response,
                           xpc_error *err)
{
    xpc_status st;

    forget_problem(client);
    st = xpc_http_send(client->curl, &client->place, request, response, err);
    if (st != XPC_OK)
        return st;
    if (response->status < 200 || response->status > 299) {
        st = xpc_response_fault(response, &client->problem, err);
        xpc_response_release(response);
    }
    return st;
}

static xpc_status call(xpc_client *client, const xpc_request *request, json_t **out, xpc_error *err)
{
    xpc_status st = XPC_OK;
    xpc_response response;

    if (out)
        *out = NULL;
    st = exchange(client, request, &response, err);
    if (st != XPC_OK)
        return st;
    if (out) {
        if (response.body.data)
            *out = json_loadb(response.body.data, response.body.length, 0, NULL);
        if (!json_is_object(*out)) {
            json_decref(*out);
            *out = NULL;
            st = xpc_fail(err, XPC_FAULT, "the answer to %s %s is no JSON object", request->method,
                          request->path);
        }
    }
    xpc_response_release(&response);
    return st;
}

static xpc_status get(xpc_client *client, const char *path, json_t **out, xpc_error *err)
{
    xpc_request request = {"GET", path, JSON_TYPES, NULL, NULL, -1, client->timeout_ms, NULL};
    return call(client, &request, out, err);
}

/* A request that creates something, repeated with its key while the connection breaks.  The first
 * attempt that finds nobody at all ends it: then there is no daemon, and nothing was sent. */
static xpc_status create(xpc_client *client, const char *path, const json_t *body, const char *key,
                         json_t **out, xpc_error *err)
{
    char fresh[XPC_KEY_SIZE];
    xpc_request request = {"POST", path, JSON_TYPES, body, key, -1, client->timeout_ms, NULL};
    xpc_error last;
    int64_t end = 0;
    int pause = RETRY_FIRST_MS;

    if (!key) {
        xpc_key_make(fresh);
        request.key = fresh;
    }
    for (;;) {
        xpc_status st = call(client, &request, out, &last);
        bool lost = st == XPC_UNREACHABLE && (last.maybe_done || end != 0);

        if (lost && end == 0)
            end = xpc_now_ms() + client->retry_ms;
        if (!lost || client->retry_ms < 0 || xpc_now_ms() + pause > end) {
            if (err && st != XPC_OK)
                *err = last;
            return st;
        }
        (void)xpc_sleep(pause, NULL, NULL);
        pause = pause * 2 < RETRY_MOST_MS ? pause * 2 : RETRY_MOST_MS;
    }
}

/* "/v1/jobs/ID" + rest; the id is checked, since it becomes part of a path. */
static xpc_status job_path(char *out, size_t size, const char *id, const char *rest, xpc_error *err)
{
    if (!xpp_job_id_valid(id))
        return xpc_fail(err, XPC_INVALID, "'%.60s' is no job id: an id has %d letters and digits",
                        id, XPP_JOB_ID_SIZE - 1);
    (void)snprintf(out, size, "/v1/jobs/%s%s", id, rest);
    return XPC_OK;
}

/* ---------------------------------------------------------------------------------- verbs */

xpc_status xpc_submit(xpc_client *client, const json_t *job, const char *key, json_t **out,
                      xpc_error *err)
{
    return create(client, "/v1/jobs", job, key, out, err);
}

xpc_status xpc_dry_run(xpc_client *client, const json_t *job, json_t **out, xpc_error *err)
{
    xpc_request request = {"POST", "/v1/jobs?dry_run=true", JSON_TYPES, job, NULL,
                           -1,     client->timeout_ms,      NULL};
    return call(client, &request, out, err);
}

static bool plain_word(const char *text)
{
    return text[0] && text[strspn(text, "abcdefghijklmnopqrstuvwxyz_-")] == '\0';
}

xpc_status xpc_list(xpc_client *client, const xpc_list_query *query, json_t **out, xpc_error *err)
{
    char path[2048];
    size_t used;
    char *cursor = NULL;
    int i;

    *out = NULL;
    used =
        (size_t)snprintf(path, sizeof(path), "/v1/jobs?limit=%d", query->limit ? query->limit : 50);
    for (i = 0; i < query->state_count; i++) {
        if (!plain_word(query->states[i]) || used + strlen(query->states[i]) + 8 > 512)
            return xpc_fail(err, XPC_INVALID, "'%.60s' is no state of a job", query->states[i]);
        used += (size_t)snprintf(path + used, sizeof(path) - used, "&state=%s", query->states[i]);
    }
    if (query->cursor) {
        int n;

        cursor = curl_easy_escape(client->curl, query->cursor, 0);
        if (!cursor)
            return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
        n = snprintf(path + used, sizeof(path) - used, "&cursor=%s", cursor);
        curl_free(cursor);
        if (n < 0 || used + (size_t)n >= sizeof(path))
            return xpc_fail(err, XPC_INVALID, "the cursor is too long");
    }
    return get(client, path, out, err);
}

/* A job's own document, or what lies beneath it. */
static xpc_status get_of_job(xpc_client *client, const char *id, const char *rest, json_t **out,
                             xpc_error *err)
{
    char path[128];

    *out = NULL;
    if (job_path(path, sizeof(path), id, rest, err) != XPC_OK)
        return XPC_INVALID;
    return get(client, path, out, err);
}

xpc_status xpc_show(xpc_client *client, const char *id, json_t **out, xpc_error *err)
{
    return get_of_job(client, id, "", out, err);
}

xpc_status xpc_result(xpc_client *client, const char *id, json_t **out, xpc_error *err)
{
    return get_of_job(client, id, "/result", out, err);
}

/* A verb of a job that takes no body and may be repeated. */
static xpc_status post_to_job(xpc_client *client, const char *id, const char *verb, json_t **out,
                              xpc_error *err)
{
    char path[128];
    xpc_request request = {"POST", path, JSON_TYPES, NULL, NULL, -1, client->timeout_ms, NULL};

    *out = NULL;
    if (job_path(path, sizeof(path), id, verb, err) != XPC_OK)
        return XPC_INVALID;
    return call(client, &request, out, err);
}

xpc_status xpc_cancel(xpc_client *client, const char *id, json_t **out, xpc_error *err)
{
    return post_to_job(client, id, "/cancel", out, err);
}

xpc_status xpc_hold(xpc_client *client, const char *id, json_t **out, xpc_error *err)
{
    return post_to_job(client, id, "/hold", out, err);
}

xpc_status xpc_release(xpc_client *client, const char *id, json_t **out, xpc_error *err)
{
    return post_to_job(client, id, "/release", out, err);
}

xpc_status xpc_change(xpc_client *client, const char *id, int64_t rev, const json_t *patch,
                      json_t **out, xpc_error *err)
{
    char path[128], tag[64] = "*";
    xpc_request request = {"PATCH", path, JSON_TYPES, patch, NULL, -1, client->timeout_ms, tag};

    *out = NULL;
    if (job_path(path, sizeof(path), id, "", err) != XPC_OK)
        return XPC_INVALID;
    if (rev > 0)
        (void)snprintf(tag, sizeof(tag), "\"%s-%lld\"", id, (long long)rev);
    return call(client, &request, out, err);
}

xpc_status xpc_delete(xpc_client *client, const char *id, xpc_error *err)
{
    char path[128];
    xpc_request request = {"DELETE", path, JSON_TYPES, NULL, NULL, -1, client->timeout_ms, NULL};

    if (job_path(path, sizeof(path), id, "", err) != XPC_OK)
        return XPC_INVALID;
    return call(client, &request, NULL, err);
}

xpc_status xpc_rerun(xpc_client *client, const char *id, const json_t *changes, const char *key,
                     json_t **out, xpc_error *err)
{
    char path[128];

    *out = NULL;
    if (job_path(path, sizeof(path), id, "/rerun", err) != XPC_OK)
        return XPC_INVALID;
    return create(client, path, changes, key, out, err);
}

xpc_status xpc_queue(xpc_client *client, json_t **out, xpc_error *err)
{
    return get(client, "/v1/queue", out, err);
}

xpc_status xpc_devices(xpc_client *client, json_t **out, xpc_error *err)
{
    return get(client, "/v1/devices", out, err);
}

xpc_status xpc_daemon_version(xpc_client *client, json_t **out, xpc_error *err)
{
    return get(client, "/v1/version", out, err);
}

xpc_status xpc_session_link(xpc_client *client, const json_t *wish, json_t **out, xpc_error *err)
{
    xpc_request request = {"POST", "/v1/session/link", JSON_TYPES, wish, NULL,
                           -1,     client->timeout_ms, NULL};
    return call(client, &request, out, err);
}

xpc_status xpc_sessions(xpc_client *client, json_t **out, xpc_error *err)
{
    return get(client, "/v1/sessions", out, err);
}

xpc_status xpc_session_end(xpc_client *client, const char *id, xpc_error *err)
{
    char path[128];
    xpc_request request = {"DELETE", path, JSON_TYPES, NULL, NULL, -1, client->timeout_ms, NULL};

    if (!xpp_job_id_valid(id))
        return xpc_fail(err, XPC_INVALID, "'%.60s' is no id of a session", id);
    (void)snprintf(path, sizeof(path), "/v1/sessions/%s", id);
    return call(client, &request, NULL, err);
}

xpc_status xpc_admin(xpc_client *client, const char *what, json_t **out, xpc_error *err)
{
    char path[128];
    int n = snprintf(path, sizeof(path), "/admin/%s", what);
    xpc_request request = {"POST", path, JSON_TYPES, NULL, NULL, -1, client->timeout_ms, NULL};

    if (n < 0 || (size_t)n >= sizeof(path))
        return xpc_fail(err, XPC_INVALID, "'%.60s...' is too long", what);
    return call(client, &request, out, err);
}

/* ---------------------------------------------------------------------------------- bytes */

/* Puts the finished file under its name.  Without overwrite a file that came to be there in the
 * meantime stays. */
static xpc_status put(const char *part, const char *path, bool overwrite, xpc_error *err)
{
    int rc = overwrite ? rename(part, path)
                       : renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE);

    /* Some network file systems know no such flag; a hard link refuses an existing name too. */
    if (rc != 0 && !overwrite && (errno == EINVAL || errno == ENOSYS)) {
        rc = link(part, path);
        if (rc == 0)
            (void)unlink(part);
    }
    if (rc == 0)
        return XPC_OK;
    if (errno == EEXIST)
        return xpc_fail(err, XPC_INVALID, "'%s' exists; give another name or ask to overwrite",
                        path);
    return xpc_fail(err, XPC_IO, "cannot rename to '%s': %s", path, strerror(errno));
}

/* GETs into a target. */
static xpc_status fetch(xpc_client *client, const char *request_path, const char *accept,
                        const xpc_target *target, xpc_error *err)
{
    xpc_status st = XPC_OK;
    xpc_request request = {"GET", request_path, accept, NULL, NULL, target->fd, 0, NULL};
    xpc_response response = {0};
    char *part = NULL;
    int fd = -1;

    if (target->path) {
        if (!target->overwrite && access(target->path, F_OK) == 0) {
            st = xpc_fail(err, XPC_INVALID, "'%s' exists; give another name or ask to overwrite",
                          target->path);
            goto done;
        }
        if (asprintf(&part, "%s.%ld.part", target->path, (long)getpid()) < 0) {
            part = NULL;
            st = xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
            goto done;
        }
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) {
            st = xpc_fail(err, XPC_IO, "cannot write '%s': %s", part, strerror(errno));
            free(part);
            part = NULL;
            goto done;
        }
        request.fd = fd;
    }
    XPC_TRY(exchange(client, &request, &response, err));
    if (target->path) {
        if (fsync(fd) != 0 || close(fd) != 0) {
            st = xpc_fail(err, XPC_IO, "cannot write '%s': %s", part, strerror(errno));
            fd = -1;
            goto done;
        }
        fd = -1;
        XPC_TRY(put(part, target->path, target->overwrite, err));
    }
done:
    if (fd >= 0)
        (void)close(fd);
    if (part && st != XPC_OK)
        (void)unlink(part);
    free(part);
    xpc_response_release(&response);
    return st;
}

xpc_status xpc_log(xpc_client *client, const char *id, int tail, const xpc_target *target,
                   xpc_error *err)
{
    char path[128], rest[48] = "/log";

    if (tail > 0)
        (void)snprintf(rest, sizeof(rest), "/log?tail=%d", tail);
    if (job_path(path, sizeof(path), id, rest, err) != XPC_OK)
        return XPC_INVALID;
    return fetch(client, path, "text/plain, application/problem+json", target, err);
}

xpc_status xpc_result_data(xpc_client *client, const char *id, const xpc_target *target,
                           xpc_error *err)
{
    char path[128];

    if (job_path(path, sizeof(path), id, "/result/data", err) != XPC_OK)
        return XPC_INVALID;
    return fetch(client, path, "*/*", target, err);
}

xpc_status xpc_preview(xpc_client *client, const char *id, const char *what,
                       const xpc_target *target, xpc_error *err)
{
    char path[256], rest[128];

    if (!plain_word(what) || strlen(what) > 60)
        return xpc_fail(err, XPC_INVALID, "'%.60s' is no picture; for instance object_phase", what);
    (void)snprintf(rest, sizeof(rest), "/preview.png?what=%s", what);
    if (job_path(path, sizeof(path), id, rest, err) != XPC_OK)
        return XPC_INVALID;
    return fetch(client, path, "image/png, application/problem+json", target, err);
}
