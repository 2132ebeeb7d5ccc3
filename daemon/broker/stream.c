/* See stream.h.  A stream holds its cursor and at most one encoded line; the library asks for bytes
 * only when its socket takes them, so a slow reader slows nobody.  A line is encoded once for all
 * of its readers.  A suspended connection does not see its client leave: the heartbeat is what
 * finds that out. */
#include "stream.h"

#include "life.h"
#include "log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAKE_MS                                                                                    \
    10 /* events of that time are sent together: each wake-up walks all suspended connections */
#define HEARTBEAT_MS 15000
#define BLOCK 8192
#define WAKE_AT_ONCE                                                                               \
    200           /* streams: what sending to them takes is how long others wait for the loop */
#define SHARED 16 /* lines that are kept encoded: more than a wake-up brings */

typedef enum encoding { TEXT, NDJSON, SSE, ENCODINGS } encoding;

typedef struct buffer {
    char *bytes; /* [room], the first `length` in use */
    size_t length, room;
} buffer;

struct xpd_stream {
    xpd_broker *b;
    xpd_job *job; /* reference; NULL = the feed of all jobs */
    xpd_caller caller;
    xpd_request *request; /* outlives the stream */
    struct MHD_Connection *connection;
    encoding encoding;
    xpd_cursor cursor;
    int64_t feed_next;
    int64_t stop_after; /* follow=0: last seq to send; INT64_MAX = follow */
    buffer rest;        /* encoded and not yet sent, from rest_at on */
    size_t rest_at;
    bool suspended, wake, begun, ended, heartbeat;
    int64_t sent_ms;
    int64_t round; /* of waking in which it was woken last */
    struct xpd_stream *next, **link;
};

struct xpd_wait {
    xpd_request *r;
    xpd_job *job; /* reference */
    int64_t rev;
    xpd_timer timer;
    void (*answer)(xpd_request *r, xpd_job *job);
    struct xpd_wait *next, **link;
};

/* ---------------------------------------------------------------------------------- encoding */

static bool put(buffer *to, const char *text, size_t length)
{
    size_t need = to->length + length;
    if (need > to->room) {
        char *more = realloc(to->bytes, need * 2);
        if (!more)
            return false;
        to->bytes = more;
        to->room = need * 2;
    }
    memcpy(to->bytes + to->length, text, length);
    to->length = need;
    return true;
}

static bool put_text(buffer *to, const char *text)
{
    return put(to, text, strlen(text));
}

static bool put_plain(buffer *to, const json_t *event)
{
    char text[2048];
    const char *id = json_string_value(json_object_get(event, "job"));
    int n = xpp_event_text(text, sizeof text, event);
    if (n < 0)
        return true;
    return (!id || (put_text(to, id) && put_text(to, " "))) && put_text(to, text) &&
           ((*text && text[strlen(text) - 1] == '\n') || put_text(to, "\n"));
}

/* seq 0 = without id: the feed cannot be resumed by a number */
static bool put_event(buffer *to, encoding code, int64_t seq, const char *line, size_t length)
{
    char head[128];
    json_error_t error;
    bool ok;

    json_t *event = xpp_load(line, length, 0, &error);
    if (!event && json_error_code(&error) == json_error_out_of_memory)
        return false;
    const char *type = json_string_value(json_object_get(event, "type"));
    if (code == TEXT) {
        ok = !event || put_plain(to, event);
    } else {
        size_t at = seq ? (size_t)snprintf(head, sizeof head, "id: %lld\n", (long long)seq) : 0;
        snprintf(head + at, sizeof head - at, "event: %.40s\ndata: ", type ? type : "message");
        ok = put_text(to, head) && put(to, line, length) && put_text(to, "\n");
    }
    json_decref(event);
    return ok;
}

/* Loop thread only.  Found again by the line itself, which says seq and time, so that nothing here
 * points at a log that may be gone. */
static struct {
    bool with_id;
    buffer line, text;
} shared[ENCODINGS][SHARED];

/* number: of the line in its log or feed; neighbours in time must not take each other's place. */
static bool encode(xpd_stream *s, int64_t number, int64_t seq, const char *line, size_t length)
{
    if (s->encoding == NDJSON)
        return put(&s->rest, line, length);
    buffer *key = &shared[s->encoding][number % SHARED].line,
           *text = &shared[s->encoding][number % SHARED].text;
    bool *with_id = &shared[s->encoding][number % SHARED].with_id;
    if (key->length != length || *with_id != (seq != 0) || memcmp(key->bytes, line, length) != 0) {
        key->length = text->length = 0;
        *with_id = seq != 0;
        if (!put_event(text, s->encoding, seq, line, length) || !put(key, line, length)) {
            key->length = 0;
            return false;
        }
    }
    return put(&s->rest, text->bytes, text->length);
}

static bool encode_gap(xpd_stream *s, int64_t from, int64_t to)
{
    char text[160];
    const char *form = s->encoding == SSE
                           ? "event: gap\ndata: {\"type\":\"gap\",\"from\":%lld,\"to\":%lld}\n\n"
                       : s->encoding == NDJSON ? "{\"type\":\"gap\",\"from\":%lld,\"to\":%lld}\n"
                                               : "# gap %lld %lld\n";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* one of the three above */
    snprintf(text, sizeof text, form, (long long)from, (long long)to);
#pragma GCC diagnostic pop
    return put_text(&s->rest, text);
}

static bool encode_heartbeat(xpd_stream *s)
{
    return put_text(&s->rest, s->encoding == SSE      ? ": hb\n\n"
                              : s->encoding == NDJSON ? "\n"
                                                      : "# hb\n");
}

/* ----------------------------------------------------------------------------------- sending */

static bool next_of_job(xpd_stream *s)
{
    xpd_event event;
    xpd_events *events = xpd_job_log(s->b, s->job);

    if (!events || s->cursor.next > s->stop_after)
        return false;
    if (!xpd_events_next(events, &s->cursor, &event)) {
        s->ended = xpd_events_unread(events); /* the client asks again from where it is */
        return false;
    }
    if (event.gap_from && !encode_gap(s, event.gap_from, event.gap_to))
        s->ended = true;
    if (!encode(s, event.seq, event.seq, event.line, event.length))
        s->ended = true;
    return true;
}

static bool next_of_feed(xpd_stream *s)
{
    xpd_broker *b = s->b;
    if (s->feed_next < b->feed_next - XPD_FEED_RING)
        s->ended = s->request->lagged = true; /* too slow: it has to ask for the list again */
    while (!s->ended && s->feed_next < b->feed_next) {
        int64_t number = s->feed_next++;
        const xpd_feed_line *line = &b->feed[number % XPD_FEED_RING];
        if (!xpd_caller_sees(&s->caller, line->uid))
            continue;
        if (!line->line) { /* there was no memory for it */
            s->ended = s->request->lagged = true;
            return false;
        }
        if (!encode(s, number, 0, line->line, strlen(line->line)))
            s->ended = true;
        return true;
    }
    return false;
}

/* Whether nothing will follow what has been sent. */
static bool is_over(xpd_stream *s)
{
    if (s->ended || s->b->closing)
        return true;
    if (!s->job)
        return s->stop_after == 0;
    return s->cursor.next > s->stop_after || s->job->removed || !s->job->events ||
           xpd_events_ended(s->job->events) ||
           (s->stop_after != INT64_MAX && s->job->dirty); /* the disk is full: no end for now */
}

static ssize_t fill(void *context, uint64_t position, char *out, size_t room)
{
    xpd_stream *s = context;
    size_t used = 0;
    (void)position;

    if (!s->begun) {
        s->begun = true;
        if (s->encoding == SSE && !put_text(&s->rest, "retry: 3000\n\n"))
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    for (;;) {
        size_t piece = s->rest.length - s->rest_at;
        if (piece > room - used)
            piece = room - used;
        if (piece > 0) {
            memcpy(out + used, s->rest.bytes + s->rest_at, piece);
            s->rest_at += piece;
            used += piece;
        }
        if (s->rest_at < s->rest.length || used == room)
            break;
        s->rest_at = s->rest.length = 0;
        if (s->ended || !(s->job ? next_of_job(s) : next_of_feed(s)))
            break;
    }
    s->wake = false;
    if (used > 0) {
        s->sent_ms = xpd_now_ms();
        return (ssize_t)used;
    }
    if (is_over(s))
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (s->heartbeat) {
        s->heartbeat = false;
        if (!encode_heartbeat(s))
            return MHD_CONTENT_READER_END_WITH_ERROR;
        return fill(s, 0, out, room);
    }
    s->suspended = true;
    MHD_suspend_connection(s->connection);
    return 0; /* only here: nothing to send and suspended */
}

static void resume(xpd_stream *s)
{
    if (!s->suspended)
        return;
    s->suspended = false;
    s->b->http_due = true;
    MHD_resume_connection(s->connection);
}

/* A part of the streams at a time, in rounds: who was woken in this one waits for the next, so that
 * under load the last in the list have their turn, too. */
static void wake_streams(void *context)
{
    xpd_broker *b = context;
    int woken = 0;
    bool again = false;

    for (xpd_stream *s = b->streams; s; s = s->next) {
        if (!s->wake || !s->suspended)
            continue;
        if (s->round == b->stream_round) {
            again = true;
        } else if (woken == WAKE_AT_ONCE) {
            xpd_timer_set(&b->loop, &b->stream_timer, 0);
            return;
        } else {
            s->round = b->stream_round;
            resume(s);
            woken++;
        }
    }
    b->stream_round++;
    if (again)
        xpd_timer_set(&b->loop, &b->stream_timer, WAKE_MS);
}

void xpd_streams_notify(xpd_broker *b, const xpd_job *job)
{
    bool any = false;
    for (xpd_stream *s = b->streams; s; s = s->next) {
        if (s->job == job || !s->job) {
            s->wake = true;
            any = true;
        }
    }
    if (any && !xpd_timer_armed(&b->stream_timer)) {
        b->stream_timer.fire = wake_streams;
        b->stream_timer.context = b;
        xpd_timer_set(&b->loop, &b->stream_timer, WAKE_MS);
    }
}

void xpd_streams_tick(xpd_broker *b)
{
    int64_t now = xpd_now_ms();
    for (xpd_stream *s = b->streams; s; s = s->next) {
        if (s->suspended && now - s->sent_ms >= HEARTBEAT_MS) {
            s->heartbeat = true;
            resume(s);
        }
    }
}

static void stream_free(void *context)
{
    xpd_stream *s = context;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    if (s->job) {
        s->job->readers--;
        xpd_job_log_rest(s->job);
        xpd_job_unref(s->job);
    }
    free(s->rest.bytes);
    free(s);
}

/* ----------------------------------------------------------------------------------- opening */

void xpd_streams_of(const xpd_broker *b, uid_t uid, const xpd_job *job, xpd_stream_counts *out)
{
    *out = (xpd_stream_counts){0, 0, 0};
    for (const xpd_stream *s = b->streams; s; s = s->next) {
        out->all++;
        out->user += s->caller.uid == uid;
        out->job += s->caller.uid == uid && s->job == job;
    }
    for (const xpd_wait *w = b->waits; w; w = w->next) {
        out->all++;
        out->user += w->r->caller.uid == uid;
        out->job += w->r->caller.uid == uid && w->job == job;
    }
}

bool xpd_streams_admit(const xpd_broker *b, uid_t uid, const xpd_job *job, xpd_error *err)
{
    xpd_stream_counts n;
    xpd_streams_of(b, uid, job, &n);
    bool of_job = job && n.job >= b->config.streams_job_max,
         of_user = n.user >= b->config.streams_user_max;

    if (!of_job && !of_user && n.all < b->config.streams_max)
        return true;
    return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "%lld streams are open%s; that is the limit%s",
                    (long long)(of_job    ? n.job
                                : of_user ? n.user
                                          : n.all),
                    of_job    ? " for you on this job"
                    : of_user ? " for you"
                              : "",
                    of_job ? "; close one, or follow all your jobs by GET /v1/events" : "");
}

static bool choose_encoding(xpd_request *r, encoding *out)
{
    const char *accept = xpd_request_header(r, MHD_HTTP_HEADER_ACCEPT);

    if (accept && strcasestr(accept, "text/event-stream") &&
        xpd_request_accepts(r, "text/event-stream"))
        *out = SSE;
    else if (accept && strcasestr(accept, "application/x-ndjson") &&
             xpd_request_accepts(r, "application/x-ndjson"))
        *out = NDJSON;
    else if (xpd_request_accepts(r, "text/plain"))
        *out = TEXT;
    else if (xpd_request_accepts(r, "application/x-ndjson"))
        *out = NDJSON;
    else
        return false;
    return true;
}

/* First seq wanted: Last-Event-ID goes before `from`. */
static bool read_start(xpd_request *r, int64_t *from)
{
    const char *last = xpd_request_header(r, "Last-Event-ID");
    char *end = NULL;

    *from = 1;
    if (!xpd_request_number(r, "from", 1, INT64_MAX / 2, from))
        return false;
    if (last && *last) {
        size_t digits = strspn(last, "0123456789");
        long long seq = strtoll(last, &end, 10);
        if (digits == 0 || digits > 18 || *end) {
            xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST,
                            "Last-Event-ID '%.40s' is not the id of an event", last);
            return false;
        }
        *from = seq + 1;
    }
    return true;
}

static struct MHD_Response *make_response(xpd_stream *s)
{
    static const char *const types[] = {"text/plain; charset=utf-8", "application/x-ndjson",
                                        "text/event-stream"};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, fill, s, stream_free);
    if (response) {
        xpd_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, types[s->encoding]);
        xpd_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
        xpd_header(response, "X-Accel-Buffering", "no");
    }
    return response;
}

void xpd_stream_open(xpd_request *r, xpd_job *job)
{
    xpd_broker *b = r->b;
    encoding code;
    int64_t from = 1, follow = 1;
    xpd_error err = XPD_ERROR_INIT;

    if (!choose_encoding(r, &code)) {
        xpd_reply_fault(r, XPP_FAULT_NOT_ACCEPTABLE,
                        "events come as text/plain, application/x-ndjson or text/event-stream");
        return;
    }
    if (!xpd_request_number(r, "follow", 0, 1, &follow) || (job && !read_start(r, &from)))
        return;
    if (b->stopping || !xpd_streams_admit(b, r->caller.uid, job, &err)) {
        if (b->stopping)
            xpd_fail(&err, XPP_FAULT_DRAINING, "", "the service is stopping");
        xpd_reply_error(r, &err);
        return;
    }
    xpd_events *events = job ? xpd_job_log(b, job) : NULL;
    if (job && !events) {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "the event log cannot be read");
        return;
    }
    if (events && xpd_events_ended(events) && from > xpd_events_last(events)) {
        xpd_job_log_rest(job);
        xpd_reply_empty(r, MHD_HTTP_NO_CONTENT);
        return;
    }
    xpd_stream *s = calloc(1, sizeof *s);
    if (!s) {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
        return;
    }
    s->b = b;
    s->caller = r->caller;
    s->request = r;
    s->connection = r->connection;
    s->encoding = code;
    s->cursor = (xpd_cursor){.next = from, .offset = -1};
    s->feed_next = b->feed_next;
    s->stop_after = follow   ? INT64_MAX
                    : events ? xpd_events_last(events) + job->end_due /* its end is on its way */
                             : 0;
    s->sent_ms = xpd_now_ms();
    s->round = b->stream_round - 1;
    s->next = b->streams;
    s->link = &b->streams;
    if (s->next)
        s->next->link = &s->next;
    b->streams = s;
    if (job) {
        s->job = xpd_job_ref(job);
        job->readers++;
    }
    struct MHD_Response *response = make_response(s);
    if (!response) {
        stream_free(s);
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
        return;
    }
    r->streams = true;
    xpd_reply(r, MHD_HTTP_OK, response);
}

/* -------------------------------------------------------------------------------- long polls */

static void wait_answer(xpd_wait *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    xpd_timer_cancel(&w->timer);
    w->answer(w->r, w->job);
    xpd_job_unref(w->job);
    free(w);
}

static void wait_over(void *context)
{
    wait_answer(context);
}

void xpd_wait_open(xpd_request *r, xpd_job *job, int64_t wait_s,
                   void (*answer)(xpd_request *r, xpd_job *job))
{
    xpd_wait *w = calloc(1, sizeof *w);
    if (!w) {
        answer(r, job);
        return;
    }
    w->r = r;
    w->job = xpd_job_ref(job);
    w->rev = job->end_due ? -1 : job->rev;
    w->answer = answer;
    w->timer = (xpd_timer){.fire = wait_over, .context = w};
    w->next = r->b->waits;
    w->link = &r->b->waits;
    if (w->next)
        w->next->link = &w->next;
    r->b->waits = w;
    xpd_timer_set(&r->b->loop, &w->timer, wait_s * 1000);
    xpd_request_wait(r);
}

void xpd_waits_notify(xpd_broker *b, const xpd_job *job)
{
    xpd_wait *next;
    for (xpd_wait *w = b->waits; w; w = next) {
        next = w->next;
        if (w->job == job && w->rev != job->rev && !job->end_due)
            wait_answer(w);
    }
}

void xpd_streams_end(xpd_broker *b)
{
    while (b->waits)
        wait_answer(b->waits);
    for (xpd_stream *s = b->streams; s; s = s->next)
        resume(s);
}

int64_t xpd_streams_count(const xpd_broker *b)
{
    int64_t n = 0;
    for (const xpd_stream *s = b->streams; s; s = s->next)
        n++;
    for (const xpd_wait *w = b->waits; w; w = w->next)
        n++;
    return n;
}

bool xpd_streams_none(const xpd_broker *b)
{
    return !b->streams && !b->waits;
}
