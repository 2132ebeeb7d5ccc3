/* Three kinds of transfer on one loop:
 *
 *   all     GET /v1/events, for as long as the broker lives; tells which jobs exist and move
 *   list    GET /v1/jobs, once after `all` has begun: the jobs that were there before
 *   job     GET /v1/jobs/ID/events from the event after the last one published; followed while the
 *           job runs, read once when it waits or has ended, so that a long queue costs no streams
 *
 * A job is forgotten when its `end` has been published.  After a restart of the bridge the events
 * of running jobs are published from their first again; subscribers drop what they have by its seq.
 */
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#include "http.h"
#include "lines.h"
#include "socket.h"
#include "verb.h"
#include "wish.h"

#include "xptychod/protocol.h"

#define BEAT_MS 2000
#define RETRY_MS 1000
#define STREAMS_MAX 64
#define WISHES_MAX 32 /* answered before events get their turn; each may ask the broker */
#define LIST_MAX (8u << 20)
#define LIST_PATH "/v1/jobs?limit=200&state=queued&state=starting&state=running"

typedef struct transfer {
    xpd_http http;
    bool open;
    xpd_lines lines;
} transfer;

typedef struct job {
    xpd_progress *progress;
    char id[XPP_JOB_ID_SIZE];
    char state[16];
    int64_t last_seq;
    char *token; /* of a subscriber, where the bridge itself may not see the job; else NULL */
    bool wanted; /* the log may hold more than was published */
    bool ended;  /* `end` was published */
    bool listed; /* seen by the list in progress */
    int64_t retry_ms;
    transfer transfer;
} job;

struct xpd_progress {
    void *socket;
    CURLM *multi;
    const char *broker, *token_file;
    char token[XPD_TOKEN_MAX + 1];
    transfer all, list;
    bool all_began;
    char *list_text;
    size_t list_size;
    char list_path[XPD_CALL_PATH_MAX];
    int64_t retry_ms, beat_ms; /* not before */
    job **jobs;
    size_t count, room;
    int streams;
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool is_running(const char *state)
{
    return strcmp(state, "starting") == 0 || strcmp(state, "running") == 0;
}

static bool is_waiting(const char *state)
{
    return strcmp(state, "queued") == 0;
}

/* ------------------------------------------------------------------------------- publishing */

/* XPUB never blocks: what a subscriber has no room for is dropped there. */
static void publish(xpd_progress *p, const char *topic, int64_t seq, const char *type,
                    const char *json, size_t size)
{
    char number[24];

    snprintf(number, sizeof number, "%" PRId64, seq);
    if (zmq_send(p->socket, topic, strlen(topic), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(p->socket, number, strlen(number), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(p->socket, type, strlen(type), ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0 ||
        zmq_send(p->socket, json, size, ZMQ_DONTWAIT) < 0)
        fprintf(stderr, "event not published: %s\n", zmq_strerror(zmq_errno()));
}

static void publish_job(job *j, int64_t seq, const char *type, const char *json, size_t size)
{
    char topic[8 + XPP_JOB_ID_SIZE];

    snprintf(topic, sizeof topic, "job/%s/", j->id);
    publish(j->progress, topic, seq, type, json, size);
}

static void publish_beat(job *j)
{
    char json[160];

    snprintf(json, sizeof json,
             "{\"type\":\"beat\",\"id\":\"%s\",\"last_seq\":%" PRId64 ",\"state\":\"%s\"}", j->id,
             j->last_seq, j->state);
    publish_job(j, j->last_seq, "beat", json, strlen(json));
}

static void publish_beats(xpd_progress *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (is_running(p->jobs[i]->state))
            publish_beat(p->jobs[i]);
}

/* ------------------------------------------------------------------------------ tracked jobs */

static job *job_find(xpd_progress *p, const char *id)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->jobs[i]->id, id) == 0)
            return p->jobs[i];
    return NULL;
}

static job *job_add(xpd_progress *p, const char *id)
{
    job *j;

    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 16;
        job **jobs = realloc(p->jobs, room * sizeof(job *));

        if (!jobs)
            return NULL;
        p->jobs = jobs;
        p->room = room;
    }
    j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->progress = p;
    snprintf(j->id, sizeof j->id, "%s", id);
    p->jobs[p->count++] = j;
    return j;
}

/* The broker says that the job is in this state.  An unknown job that has ended already is none of
 * the bridge's: its events were published, or nobody could have waited for them. */
static void job_seen(xpd_progress *p, const char *id, const char *state)
{
    job *j;

    if (!id || !state || !xpp_job_id_valid(id))
        return;
    j = job_find(p, id);
    if (!j && (is_running(state) || is_waiting(state)))
        j = job_add(p, id);
    if (!j)
        return;
    snprintf(j->state, sizeof j->state, "%s", state);
    j->wanted = true;
    j->listed = true;
    j->retry_ms = 0;
}

static void job_remove(xpd_progress *p, size_t at)
{
    job *j = p->jobs[at];

    if (j->transfer.open) {
        xpd_http_close(&j->transfer.http, p->multi);
        p->streams--;
    }
    xpd_lines_release(&j->transfer.lines);
    free(j->token);
    free(j);
    p->jobs[at] = p->jobs[--p->count];
}

static void on_job_line(void *user, const char *text, size_t size)
{
    job *j = user;
    json_t *event = xpp_load(text, size, 0, NULL);
    const char *type = json_string_value(json_object_get(event, "type"));
    const char *state = json_string_value(json_object_get(event, "state"));
    int64_t seq = json_integer_value(json_object_get(event, "seq"));

    if (type && seq > j->last_seq) {
        j->last_seq = seq;
        if (state)
            snprintf(j->state, sizeof j->state, "%s", state);
        j->ended = j->ended || strcmp(type, "end") == 0;
        publish_job(j, seq, type, text, size);
    }
    json_decref(event);
}

static bool on_job_data(void *user, const char *data, size_t size)
{
    job *j = user;

    return xpd_lines_feed(&j->transfer.lines, data, size, on_job_line, j);
}

/* -------------------------------------------------------------------------------- transfers */

static void read_token(xpd_progress *p)
{
    FILE *file = p->token_file ? fopen(p->token_file, "re") : NULL;

    p->token[0] = '\0';
    if (!file) {
        if (p->token_file)
            fprintf(stderr, "token file '%s': %s\n", p->token_file, strerror(errno));
        return;
    }
    if (fgets(p->token, sizeof p->token, file))
        p->token[strcspn(p->token, "\r\n")] = '\0';
    fclose(file);
}

static bool transfer_open(xpd_progress *p, transfer *t, const char *path, const char *token,
                          const char *accept, bool stream, xpd_http_sink sink, void *user)
{
    t->lines.size = 0;
    t->lines.skipping = false;
    t->open = xpd_http_open(&t->http, p->multi,
                            &(xpd_http_request){.socket = p->broker,
                                                .method = "GET",
                                                .path = path,
                                                .token = token,
                                                .accept = accept,
                                                .timeout_s = stream ? 0 : 30},
                            sink, user);
    return t->open;
}

static void job_open(job *j)
{
    xpd_progress *p = j->progress;
    char path[160];
    bool follow = is_running(j->state) || j->token; /* nobody else tells when it starts */

    snprintf(path, sizeof path, "/v1/jobs/%s/events?from=%" PRId64 "&follow=%d", j->id,
             j->last_seq + 1, follow);
    j->wanted = false;
    if (transfer_open(p, &j->transfer, path, j->token ? j->token : p->token, "application/x-ndjson",
                      follow, on_job_data, j))
        p->streams++;
}

/* The stream is over: the job has ended, the broker went away, or what was asked for is all there.
 */
static void job_finish(job *j, CURLcode code)
{
    long status = xpd_http_status(&j->transfer.http);

    xpd_http_close(&j->transfer.http, j->progress->multi);
    j->transfer.open = false;
    j->progress->streams--;
    if (status == 404 || status == 204 || (status == 401 && j->token))
        j->ended = true; /* deleted, or nothing is left to read for ever */
    if (!j->ended && (code != CURLE_OK || status != 200 || !is_waiting(j->state))) {
        j->wanted = true;
        j->retry_ms = now_ms() + RETRY_MS;
    }
}

static void on_all_line(void *user, const char *text, size_t size)
{
    xpd_progress *p = user;
    json_t *event = xpp_load(text, size, 0, NULL);
    const char *type = json_string_value(json_object_get(event, "type"));

    if (type) {
        publish(p, "state/", json_integer_value(json_object_get(event, "seq")), type, text, size);
        job_seen(p, json_string_value(json_object_get(event, "job")),
                 json_string_value(json_object_get(event, "state")));
    }
    json_decref(event);
}

static bool on_all_data(void *user, const char *data, size_t size)
{
    xpd_progress *p = user;

    return xpd_lines_feed(&p->all.lines, data, size, on_all_line, p);
}

static bool on_list_data(void *user, const char *data, size_t size)
{
    xpd_progress *p = user;
    char *text =
        p->list_size + size <= LIST_MAX ? realloc(p->list_text, p->list_size + size) : NULL;

    if (!text)
        return false;
    memcpy(text + p->list_size, data, size);
    p->list_text = text;
    p->list_size += size;
    return true;
}

static void list_open(xpd_progress *p)
{
    p->list_size = 0;
    transfer_open(p, &p->list, p->list_path, p->token, "application/json", false, on_list_data, p);
}

static void list_begin(xpd_progress *p)
{
    for (size_t i = 0; i < p->count; i++)
        p->jobs[i]->listed = false;
    snprintf(p->list_path, sizeof p->list_path, "%s", LIST_PATH);
    list_open(p);
}

/* One page; after the last one, a tracked job that no page named has ended. */
static void list_finish(xpd_progress *p, CURLcode code)
{
    bool good = code == CURLE_OK && xpd_http_status(&p->list.http) == 200;
    json_t *page = good ? xpp_load(p->list_text ? p->list_text : "", p->list_size, 0, NULL) : NULL;
    const char *next = json_string_value(json_object_get(page, "next"));
    size_t i;
    json_t *item;

    xpd_http_close(&p->list.http, p->multi);
    p->list.open = false;
    json_array_foreach (json_object_get(page, "jobs"), i, item)
        job_seen(p, json_string_value(json_object_get(item, "id")),
                 json_string_value(json_object_get(item, "state")));
    if (next) {
        char *cursor = curl_easy_escape(NULL, next, 0);

        snprintf(p->list_path, sizeof p->list_path, "%s&cursor=%.600s", LIST_PATH,
                 cursor ? cursor : "");
        curl_free(cursor);
        list_open(p);
    } else if (page) {
        for (i = 0; i < p->count; i++)
            if (!p->jobs[i]->listed && !p->jobs[i]->token)
                p->jobs[i]->wanted = true;
    } else {
        p->all_began = false; /* once more */
        p->retry_ms = now_ms() + RETRY_MS;
    }
    json_decref(page);
}

static void all_finish(xpd_progress *p, CURLcode code)
{
    fprintf(stderr, "the broker's event stream ended: HTTP status %ld, %s\n",
            xpd_http_status(&p->all.http), curl_easy_strerror(code));
    xpd_http_close(&p->all.http, p->multi);
    p->all.open = false;
    p->retry_ms = now_ms() + RETRY_MS;
}

static void finish(xpd_progress *p, CURLMsg *message)
{
    if (message->easy_handle == p->all.http.easy) {
        all_finish(p, message->data.result);
    } else if (message->easy_handle == p->list.http.easy) {
        list_finish(p, message->data.result);
    } else {
        char *user = NULL;

        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
        job_finish((job *)(void *)user, message->data.result);
    }
}

/* Opens what should be open by now. */
static void advance(xpd_progress *p)
{
    int64_t now = now_ms();

    if (!p->all.open && now >= p->retry_ms) {
        read_token(p);
        p->all_began = false;
        transfer_open(p, &p->all, "/v1/events", p->token, "application/x-ndjson", true, on_all_data,
                      p);
    }
    if (p->all.open && !p->all_began && !p->list.open && now >= p->retry_ms &&
        xpd_http_status(&p->all.http) == 200) {
        p->all_began = true;
        list_begin(p);
    }
    for (size_t i = p->count; i-- > 0;) {
        job *j = p->jobs[i];

        if (j->ended && !j->transfer.open)
            job_remove(p, i);
        else if (j->wanted && !j->transfer.open && p->streams < STREAMS_MAX && now >= j->retry_ms)
            job_open(j);
    }
    if (now >= p->beat_ms) {
        publish_beats(p);
        p->beat_ms = now + BEAT_MS;
    }
}

/* ---------------------------------------------------------------------------- subscriptions */

/* Whoever has an admin's token may see the state of every job. */
static bool sees_all(const xpd_progress *p, const char *token)
{
    json_t *caller = xpd_http_fetch(p->broker, "/v1/whoami", token);
    const json_t *scopes = json_object_get(caller, "scopes");
    bool found = false;

    for (size_t i = 0; i < json_array_size(scopes) && !found; i++) {
        const char *scope = json_string_value(json_array_get(scopes, i));

        found = scope && strcmp(scope, "admin") == 0;
    }
    json_decref(caller);
    return found;
}

/* The job's document where the subscriber may read it, else NULL.  With a token the broker decides
 * and the bridge has no say; without one the peer's user is compared with the job's. */
static json_t *readable_job(const xpd_progress *p, const xpd_wish *wish, const xpd_peer *peer)
{
    bool by_token = wish->token[0] != '\0';
    char path[64 + XPP_JOB_ID_SIZE];
    json_t *doc;

    if (!by_token && !peer->known)
        return NULL;
    snprintf(path, sizeof path, "/v1/jobs/%s", wish->id);
    doc = xpd_http_fetch(p->broker, path, by_token ? wish->token : p->token);
    if (!by_token && !xpd_peer_may_read(peer, doc)) {
        json_decref(doc);
        doc = NULL;
    }
    return doc;
}

/* The proof of a subscription, and what tells a hole at once.  A job that has ended is not tracked:
 * its beat has no last_seq, and its events are in the log. */
static void greet(xpd_progress *p, const xpd_wish *wish, const json_t *doc)
{
    const char *state = json_string_value(json_object_get(doc, "state"));
    job *j = job_find(p, wish->id);
    char json[160];

    if (!j && state && (is_running(state) || is_waiting(state)) &&
        (j = job_add(p, wish->id)) != NULL) {
        snprintf(j->state, sizeof j->state, "%s", state);
        j->wanted = true;
        /* The broker's stream of all jobs may or may not have it: with its reader's token it comes.
         */
        j->token = wish->token[0] ? strdup(wish->token) : NULL;
    }
    if (j) {
        publish_beat(j);
        return;
    }
    snprintf(json, sizeof json, "{\"type\":\"beat\",\"id\":\"%s\",\"state\":\"%.15s\"}", wish->id,
             state ? state : "");
    publish(p, wish->topic, 0, "beat", json, strlen(json));
}

/* The option acts on the connection whose message was received last, so each wish is granted or
 * not before the next one is looked at. */
static void answer_wish(xpd_progress *p, const xpd_wish *wish, const xpd_peer *peer)
{
    size_t size = strlen(wish->topic);
    json_t *doc = NULL;

    if (!wish->on) {
        zmq_setsockopt(p->socket, ZMQ_UNSUBSCRIBE, wish->topic, size);
    } else if (!wish->id[0]) {
        if (wish->token[0] ? sees_all(p, wish->token) : peer->sees_all)
            zmq_setsockopt(p->socket, ZMQ_SUBSCRIBE, wish->topic, size);
    } else if ((doc = readable_job(p, wish, peer)) != NULL) {
        zmq_setsockopt(p->socket, ZMQ_SUBSCRIBE, wish->topic, size);
        greet(p, wish, doc);
    }
    json_decref(doc);
}

/* true: there may be more. */
static bool receive_wishes(xpd_progress *p)
{
    int taken;

    for (taken = 0; taken < WISHES_MAX; taken++) {
        zmq_msg_t message;
        xpd_wish wish;
        xpd_peer peer;

        zmq_msg_init(&message);
        if (zmq_msg_recv(&message, p->socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&message);
            break;
        }
        if (xpd_wish_parse(&wish, zmq_msg_data(&message), zmq_msg_size(&message))) {
            xpd_peer_decode(&peer, zmq_msg_gets(&message, "User-Id"));
            answer_wish(p, &wish, &peer);
        }
        zmq_msg_close(&message);
    }
    return taken == WISHES_MAX;
}

/* -------------------------------------------------------------------------------- interface */

xpd_progress *xpd_progress_open(void *context, const char *address, const char *secret,
                                const char *broker, const char *token_file, char *endpoint,
                                size_t endpoint_size)
{
    xpd_progress *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->broker = broker;
    p->token_file = token_file;
    p->multi = curl_multi_init();
    p->socket = p->multi
                    ? xpd_socket_open(context, ZMQ_XPUB, address, secret, endpoint, endpoint_size)
                    : NULL;
    if (!p->socket) {
        int failed = errno;

        xpd_progress_close(p);
        errno = failed;
        return NULL;
    }
    return p;
}

bool xpd_progress_run(xpd_progress *p, int stop_fd)
{
    bool stopped = false;

    while (!stopped) {
        CURLMsg *message;
        bool more;
        int left;

        advance(p);
        if (curl_multi_perform(p->multi, &left) != CURLM_OK)
            return false;
        while ((message = curl_multi_info_read(p->multi, &left)) != NULL)
            if (message->msg == CURLMSG_DONE)
                finish(p, message);
        more = receive_wishes(p);
        if (!xpd_socket_wait(p->socket, p->multi, stop_fd, more ? 0 : 200, &stopped))
            return false;
    }
    return true;
}

void xpd_progress_close(xpd_progress *p)
{
    if (!p)
        return;
    while (p->count > 0)
        job_remove(p, p->count - 1);
    free(p->jobs);
    if (p->all.open)
        xpd_http_close(&p->all.http, p->multi);
    if (p->list.open)
        xpd_http_close(&p->list.http, p->multi);
    xpd_lines_release(&p->all.lines);
    xpd_lines_release(&p->list.lines);
    free(p->list_text);
    if (p->multi)
        curl_multi_cleanup(p->multi);
    if (p->socket)
        zmq_close(p->socket);
    free(p);
}
