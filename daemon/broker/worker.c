/* See worker.h. */
#include "worker.h"

#include "log.h"
#include "run.h"
#include "submit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PING_MS 10000
#define PINGS_LOST 6 /* a minute: its control thread does nothing but answer */
#define BACKOFF_FIRST_MS 200
#define BACKOFF_MAX_MS 10000
#define HEALTHY_MS 60000

static void start(void *context);

static bool take_hello(xpd_worker *w, const json_t *body)
{
    const char *build = json_string_value(json_object_get(body, "build"));

    if (w->ready || !xpd_devices_decode(&w->devices, body))
        return false;
    snprintf(w->build, sizeof w->build, "%s", build ? build : "");
    w->ready = true;
    xpd_log(XPD_LOG_INFO, NULL, "the worker (%d) is ready: %s", (int)w->child.pid, w->build);
    xpd_submissions_devices_known(w->child.b);
    return true;
}

static bool on_message(xpd_child *child, xpp_ipc_message *message)
{
    xpd_worker *w = child->context;

    switch (message->type) {
    case XPP_IPC_HELLO:
        return take_hello(w, message->body);
    case XPP_IPC_EVENTS:
        return xpd_run_events(child->b, message->body);
    case XPP_IPC_DONE:
        return xpd_run_done(child->b, message->body);
    case XPP_IPC_PONG:
        w->pings_open = 0;
        return true;
    default:
        return false;
    }
}

static void on_exit_(xpd_child *child, int wait_status)
{
    xpd_worker *w = child->context;
    char how[128];

    xpd_exit_text(how, sizeof how, wait_status);
    w->ready = false;
    w->pings_open = 0;
    xpd_timer_cancel(&w->ping);
    xpd_log(child->b->stopping ? XPD_LOG_INFO : XPD_LOG_WARNING, NULL, "the worker %s", how);
    if (!child->b->stopping) {
        if (xpd_now_ms() - w->started_ms > HEALTHY_MS)
            w->backoff_ms = BACKOFF_FIRST_MS;
        xpd_timer_set(&child->b->loop, &w->restart, w->backoff_ms);
        w->backoff_ms = w->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : w->backoff_ms * 2;
        w->restarts++;
    }
    xpd_run_worker_died(child->b, how);
}

static void ping(void *context)
{
    xpd_worker *w = context;
    json_t *body = json_pack("{s:I}", "t", (json_int_t)xpd_now_ms());

    if (w->pings_open >= PINGS_LOST || !body ||
        !xpd_child_send(&w->child, XPP_IPC_PING, body, NULL, 0)) {
        xpd_log(XPD_LOG_ERROR, NULL, "the worker (%d) does not answer; it is killed",
                (int)w->child.pid);
        xpd_child_signal(&w->child, SIGKILL);
    } else {
        w->pings_open++;
        xpd_timer_set(&w->child.b->loop, &w->ping, PING_MS);
    }
    json_decref(body);
}

static void start(void *context)
{
    xpd_worker *w = context;
    xpd_broker *b = w->child.b;
    xpd_error err = XPD_ERROR_INIT;

    w->started_ms = xpd_now_ms();
    if (xpd_child_start(&w->child, b->config.worker_program, NULL, true, 500, &err)) {
        xpd_timer_set(&b->loop, &w->ping, PING_MS);
        return;
    }
    xpd_log(XPD_LOG_ERROR, NULL, "%s", err.text);
    xpd_timer_set(&b->loop, &w->restart, BACKOFF_MAX_MS);
}

bool xpd_worker_create(xpd_broker *b)
{
    xpd_worker *w = calloc(1, sizeof *w);
    if (!w)
        return false;
    w->child = (xpd_child){.b = b,
                           .name = "xptycho-worker",
                           .source.fd = -1,
                           .on_message = on_message,
                           .on_exit = on_exit_,
                           .context = w};
    w->restart = (xpd_timer){.fire = start, .context = w};
    w->ping = (xpd_timer){.fire = ping, .context = w};
    w->backoff_ms = BACKOFF_FIRST_MS;
    b->worker = w;
    start(w);
    return true;
}

bool xpd_worker_alive(const xpd_worker *worker)
{
    return worker && worker->child.pid > 0;
}

void xpd_worker_quit(xpd_worker *w, int64_t delay_ms)
{
    xpd_timer_cancel(&w->restart);
    xpd_timer_cancel(&w->ping);
    if (w->child.pid <= 0)
        return;
    json_t *body = json_object();
    if (!body || !xpd_child_send(&w->child, XPP_IPC_QUIT, body, NULL, 0))
        xpd_child_signal(&w->child, SIGTERM);
    json_decref(body);
    xpd_child_kill_after(&w->child, delay_ms);
}

void xpd_worker_destroy(xpd_worker *w)
{
    if (!w)
        return;
    xpd_timer_cancel(&w->restart);
    xpd_timer_cancel(&w->ping);
    free(w);
}
