/* One loop: transfers forward, finished ones answered, new messages taken while there is room.
 *
 * The number of calls in flight is bounded; beyond it messages wait in libzmq, whose high-water
 * mark then holds back the senders.  Every part of a message is read before anything is decided, so
 * a malformed one never shifts the next. */
#include "router.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "frame.h"
#include "http.h"
#include "socket.h"
#include "verb.h"

#include "xptychod/protocol.h"

#define IN_FLIGHT_MAX 64
#define ROUND_MAX 64 /* messages before the transfers get their turn */
#define ANSWER_MAX (4u << 20)
#define CALL_TIMEOUT_S 90 /* a submission waits for the reader, 30 s */
#define WAIT_MS 1000
#define IDENTITY_MAX 255 /* libzmq's own limit */

typedef struct reply_to {
    char identity[IDENTITY_MAX];
    size_t identity_size;
    bool delimiter;
    char request[XPD_FRAME_REQUEST_MAX];
    size_t request_size;
} reply_to;

typedef struct exchange {
    reply_to to;
    xpd_call call;
    xpd_http http;
    char *text; /* the broker's answer so far */
    size_t size, room;
    bool cut;
} exchange;

struct xpd_router {
    void *socket;
    CURLM *multi;
    const char *broker;
    int in_flight;
    exchange *open[IN_FLIGHT_MAX];
};

/* ------------------------------------------------------------------------------ answers out */

/* A peer that is gone (EHOSTUNREACH) or does not read (EAGAIN) loses its answer; that is its own
 * affair, and asking again is harmless. */
static void send_answer(xpd_router *r, const reply_to *to, const char *json)
{
    const int more = ZMQ_DONTWAIT | ZMQ_SNDMORE;

    if (!json || zmq_send(r->socket, to->identity, to->identity_size, more) < 0 ||
        (to->delimiter && zmq_send(r->socket, "", 0, more) < 0) ||
        zmq_send(r->socket, XPD_FRAME_MAGIC, strlen(XPD_FRAME_MAGIC), more) < 0 ||
        zmq_send(r->socket, to->request, to->request_size, more) < 0 ||
        zmq_send(r->socket, json, strlen(json), ZMQ_DONTWAIT) < 0)
        fprintf(stderr, "answer not delivered: %s\n",
                json ? zmq_strerror(zmq_errno()) : "memory is exhausted");
}

static void send_problem(xpd_router *r, const reply_to *to, json_t *problem)
{
    char *json = xpd_answer_problem(problem);

    send_answer(r, to, json);
    free(json);
}

/* -------------------------------------------------------------------------------- exchanges */

static bool on_data(void *user, const char *data, size_t size)
{
    exchange *x = user;

    if (x->size + size > ANSWER_MAX) {
        x->cut = true;
        return false;
    }
    if (x->size + size > x->room) {
        size_t room = x->room ? x->room : 4096;
        char *text;

        while (room < x->size + size)
            room *= 2;
        text = realloc(x->text, room);
        if (!text)
            return false;
        x->text = text;
        x->room = room;
    }
    memcpy(x->text + x->size, data, size);
    x->size += size;
    return true;
}

static void exchange_free(xpd_router *r, exchange *x)
{
    if (!x)
        return;
    xpd_http_close(&x->http, r->multi);
    xpd_call_release(&x->call);
    free(x->text);
    free(x);
}

/* Takes the call. */
static void exchange_start(xpd_router *r, const reply_to *to, xpd_call *call)
{
    static const char *const accepts[] = {[XPD_ANSWER_JSON] = "application/json",
                                          [XPD_ANSWER_EVENTS] = "application/x-ndjson",
                                          [XPD_ANSWER_TEXT] = "text/plain"};
    exchange *x = calloc(1, sizeof *x);
    bool started = false;

    if (x) {
        x->to = *to;
        x->call = *call;
        started = xpd_http_open(&x->http, r->multi,
                                &(xpd_http_request){.socket = r->broker,
                                                    .method = x->call.method,
                                                    .path = x->call.path,
                                                    .token = x->call.token,
                                                    .accept = accepts[x->call.answer],
                                                    .idempotency_key = x->call.idempotency_key,
                                                    .body = x->call.body,
                                                    .timeout_s = CALL_TIMEOUT_S},
                                on_data, x);
    } else {
        xpd_call_release(call);
    }
    if (started) {
        r->open[r->in_flight++] = x;
    } else {
        send_problem(r, to, xpp_problem(XPP_FAULT_UNAVAILABLE, "memory is exhausted", NULL, NULL));
        exchange_free(r, x);
    }
}

static void exchange_finish(xpd_router *r, exchange *x, CURLcode code)
{
    if (code == CURLE_OK || x->cut) {
        char *json = xpd_answer_encode(x->call.answer, xpd_http_status(&x->http),
                                       x->text ? x->text : "", x->size, x->cut);

        send_answer(r, &x->to, json);
        free(json);
    } else {
        char detail[CURL_ERROR_SIZE + 80];

        snprintf(detail, sizeof detail, "the broker does not answer: %s",
                 x->http.error[0] ? x->http.error : curl_easy_strerror(code));
        send_problem(r, &x->to, xpp_problem(XPP_FAULT_UNAVAILABLE, detail, NULL, NULL));
    }
    for (int i = 0; i < r->in_flight; i++)
        if (r->open[i] == x)
            r->open[i] = r->open[--r->in_flight];
    exchange_free(r, x);
}

/* ------------------------------------------------------------------------------- messages in */

/* Reads every part of one message; keeps the first XPD_FRAME_PARTS_MAX.  Returns how many it had, 0
 * when there is none. */
static size_t receive(void *socket, zmq_msg_t kept[XPD_FRAME_PARTS_MAX], int flags)
{
    size_t count = 0;
    int more = 1;

    for (size_t i = 0; i < XPD_FRAME_PARTS_MAX; i++)
        zmq_msg_init(&kept[i]);
    while (more) {
        zmq_msg_t extra;
        zmq_msg_t *part = count < XPD_FRAME_PARTS_MAX ? &kept[count] : &extra;

        if (part == &extra)
            zmq_msg_init(&extra);
        if (zmq_msg_recv(part, socket, count ? 0 : flags) < 0)
            return 0; /* of a message in progress every part is there already */
        more = zmq_msg_more(part);
        if (part == &extra)
            zmq_msg_close(&extra);
        count++;
    }
    return count;
}

static void handle(xpd_router *r, const xpd_slice *parts, size_t count)
{
    reply_to to = {0};
    xpd_frame frame;
    xpd_call call;
    const char *fault = xpd_frame_parse(&frame, parts, count);
    json_t *problem;

    if (parts[0].size > sizeof to.identity)
        return;
    memcpy(to.identity, parts[0].data, to.identity_size = parts[0].size);
    to.delimiter = frame.delimiter;
    if (frame.request.size > 0)
        memcpy(to.request, frame.request.data, to.request_size = frame.request.size);
    if (fault)
        problem = xpp_problem(XPP_FAULT_BAD_REQUEST, fault, NULL, NULL);
    else
        problem = xpd_call_decode(&call, frame.json.data, frame.json.size);
    if (problem)
        send_problem(r, &to, problem);
    else
        exchange_start(r, &to, &call);
}

static bool receive_one(xpd_router *r)
{
    zmq_msg_t kept[XPD_FRAME_PARTS_MAX];
    xpd_slice parts[XPD_FRAME_PARTS_MAX];
    size_t count = receive(r->socket, kept, ZMQ_DONTWAIT);

    for (size_t i = 0; i < XPD_FRAME_PARTS_MAX; i++)
        parts[i] = (xpd_slice){zmq_msg_data(&kept[i]), zmq_msg_size(&kept[i])};
    if (count > 0)
        handle(r, parts, count);
    for (size_t i = 0; i < XPD_FRAME_PARTS_MAX; i++)
        zmq_msg_close(&kept[i]);
    return count > 0;
}

/* --------------------------------------------------------------------------------- the loop */

xpd_router *xpd_router_open(void *context, const char *address, const char *secret,
                            const char *broker, char *endpoint, size_t endpoint_size)
{
    xpd_router *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->broker = broker;
    r->multi = curl_multi_init();
    r->socket = r->multi
                    ? xpd_socket_open(context, ZMQ_ROUTER, address, secret, endpoint, endpoint_size)
                    : NULL;
    if (!r->socket) {
        int failed = errno;

        xpd_router_close(r);
        errno = failed;
        return NULL;
    }
    return r;
}

bool xpd_router_run(xpd_router *r, int stop_fd)
{
    bool stopped = false;

    while (!stopped) {
        CURLMsg *message;
        int running, left, taken;

        if (curl_multi_perform(r->multi, &running) != CURLM_OK)
            return false;
        while ((message = curl_multi_info_read(r->multi, &left)) != NULL) {
            exchange *x = NULL;

            if (message->msg != CURLMSG_DONE)
                continue;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&x);
            exchange_finish(r, x, message->data.result);
        }
        for (taken = 0; taken < ROUND_MAX && r->in_flight < IN_FLIGHT_MAX; taken++)
            if (!receive_one(r))
                break;
        /* New transfers want a first push, and a socket that was not emptied tells of no change. */
        if (!xpd_socket_wait(r->socket, r->multi, stop_fd, taken > 0 ? 0 : WAIT_MS, &stopped))
            return false;
    }
    return true;
}

void xpd_router_close(xpd_router *r)
{
    if (!r)
        return;
    while (r->in_flight > 0)
        exchange_free(r, r->open[--r->in_flight]);
    if (r->multi)
        curl_multi_cleanup(r->multi);
    if (r->socket)
        zmq_close(r->socket);
    free(r);
}
