/* A job's events as they happen.  The stream is NDJSON: one event a line, an empty line as
 * heartbeat.
 *
 * The last sequence number seen is the cursor.  When the connection breaks, or ends before the
 * event `end`, the stream is asked for again from there (Last-Event-ID), and what was seen already
 * is dropped; so the caller gets each event once whatever happens to the connection or to the
 * daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xptychod/client.h>
#include <xptychod/protocol.h>

#include "fail.h"
#include "http.h"
#include "private.h"

#define LINE_MAX_BYTES (4u << 20)
#define PAUSE_FIRST_MS 250
#define PAUSE_MOST_MS 3000

typedef struct stream {
    const xpc_follow_options *options;
    CURL *curl;
    int64_t last;    /* sequence number of the last event handed on */
    json_t *end;     /* the event `end`, once seen */
    xpc_buffer line; /* the part of a line that came so far; of a problem: the body */
    bool stopped;    /* by the caller */
    bool broken;     /* what came is no event stream */
    bool alive;      /* this connection brought something */
} stream;

/* false ends the transfer. */
static bool take_event(stream *s, const char *text, size_t length)
{
    json_t *event;
    json_int_t seq;
    const char *type;
    bool go_on = true;

    if (length == 0)
        return true; /* heartbeat */
    event = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    seq = json_integer_value(json_object_get(event, "seq"));
    type = json_string_value(json_object_get(event, "type"));
    if (seq < 1 || !type) {
        s->broken = true;
        json_decref(event);
        return false;
    }
    if (seq > s->last && !s->end) {
        s->last = seq;
        if (strcmp(type, "end") == 0)
            s->end = json_incref(event);
        go_on = !s->options->event || s->options->event(s->options->user, event);
        s->stopped = !go_on;
    }
    json_decref(event);
    return go_on;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    stream *s = user;
    size_t length = size * count, used = 0;
    long status = 0;

    (void)curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return xpc_buffer_add(&s->line, data, length, LINE_MAX_BYTES) ? length : 0;
    s->alive = true;
    while (used < length) {
        const char *stop = memchr(data + used, '\n', length - used);
        size_t part = stop ? (size_t)(stop - data) - used : length - used;

        if (!xpc_buffer_add(&s->line, data + used, part, LINE_MAX_BYTES)) {
            s->broken = true;
            return 0;
        }
        used += part;
        if (stop) {
            used++;
            if (!take_event(s, s->line.data, s->line.length))
                return 0;
            s->line.length = 0;
        }
    }
    return length;
}

static int on_tick(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    stream *s = user;

    (void)a, (void)b, (void)c, (void)d;
    if (!s->options->tick || s->options->tick(s->options->user))
        return 0;
    s->stopped = true;
    return 1;
}

typedef enum outcome { FINISHED, LOST, FAILED } outcome;

/* One connection, until it ends. */
static outcome connect_once(xpc_client *client, stream *s, const char *path, xpc_error *err)
{
    outcome out = FAILED;
    struct curl_slist *headers = NULL;
    char detail[CURL_ERROR_SIZE] = "", last[32];
    xpc_response response = {0};
    const char *type = NULL;
    long status = 0;
    CURLcode code;

    s->line.length = 0;
    s->alive = false;
    if (xpc_http_prepare(s->curl, &client->place, path, &headers, err) != XPC_OK)
        goto done;
    (void)snprintf(last, sizeof(last), "%lld", (long long)s->last);
    if (!xpc_header_add(&headers, "Accept", "application/x-ndjson") ||
        (s->last > 0 && !xpc_header_add(&headers, "Last-Event-ID", last))) {
        (void)xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
        goto done;
    }
    (void)curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, detail);
    (void)curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
    (void)curl_easy_setopt(s->curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(s->curl, CURLOPT_XFERINFOFUNCTION, on_tick);
    (void)curl_easy_setopt(s->curl, CURLOPT_XFERINFODATA, s);
    code = curl_easy_perform(s->curl);
    (void)curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(s->curl, CURLINFO_CONTENT_TYPE, &type);
    if (s->stopped) {
        (void)xpc_fail(err, XPC_STOPPED, "stopped");
    } else if (s->broken) {
        (void)xpc_fail(err, XPC_FAULT, "what '%s' sends is no event stream", client->place.server);
    } else if (s->end) {
        out = FINISHED;
    } else if (code != CURLE_OK) {
        out = xpc_http_fault(s->curl, code, detail, &client->place, err) == XPC_UNREACHABLE
                  ? LOST
                  : FAILED;
    } else if (status == 204 || (status == 200 && s->options->once)) {
        out = FINISHED; /* nothing after the last event / all that exists */
    } else if (status == 200) {
        (void)xpc_fail(err, XPC_UNREACHABLE, "the stream of '%s' ended early",
                       client->place.server);
        out = LOST;
    } else {
        response.status = (int)status;
        xpc_media_type(response.type, sizeof(response.type), type);
        response.body = s->line;
        json_decref(client->problem);
        (void)xpc_response_fault(&response, &client->problem, err);
        out = status == 503 ? LOST : FAILED;
    }
done:
    (void)curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, NULL);
    (void)curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(headers);
    return out;
}

xpc_status xpc_follow(xpc_client *client, const char *id, const xpc_follow_options *options,
                      json_t **end, xpc_error *err)
{
    xpc_status st = XPC_OK;
    stream s = {.options = options, .last = options->from > 1 ? options->from - 1 : 0};
    xpc_error why = {0};
    char path[128];
    int64_t give_up = 0;
    bool first = true;
    int pause = PAUSE_FIRST_MS;

    if (end)
        *end = NULL;
    if (!xpp_job_id_valid(id))
        return xpc_fail(err, XPC_INVALID, "'%.60s' is no job id: an id has %d letters and digits",
                        id, XPP_JOB_ID_SIZE - 1);
    (void)snprintf(path, sizeof(path), "/v1/jobs/%s/events%s", id,
                   options->once ? "?follow=0" : "");
    s.curl = curl_easy_init();
    if (!s.curl)
        return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
    for (;;) {
        outcome out = connect_once(client, &s, path, &why);

        if (out == FINISHED)
            break;
        /* Nobody there at the very start is an answer, not an interruption. */
        if (out == FAILED || client->retry_ms < 0 || (first && !s.alive && !why.maybe_done)) {
            st = why.status;
            goto done;
        }
        if (first || s.alive) {
            give_up = xpc_now_ms() + client->retry_ms;
            pause = PAUSE_FIRST_MS;
            if (options->lost)
                options->lost(options->user, why.text);
        }
        first = false;
        if (xpc_now_ms() + pause > give_up) {
            st = why.status;
            goto done;
        }
        if (!xpc_sleep(pause, options->tick, options->user)) {
            st = xpc_fail(&why, XPC_STOPPED, "stopped");
            goto done;
        }
        pause = pause * 2 < PAUSE_MOST_MS ? pause * 2 : PAUSE_MOST_MS;
    }
    if (end) {
        *end = s.end;
        s.end = NULL;
    }
done:
    if (st != XPC_OK && err)
        *err = why;
    json_decref(s.end);
    xpc_buffer_release(&s.line);
    curl_easy_cleanup(s.curl);
    return st;
}
