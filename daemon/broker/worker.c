/* See worker.h. */
#include "worker.h"

#include "dispatch.h"
#include "log.h"
#include "run.h"
#include "sets.h"
#include "submit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PING_MS 5000
#define PINGS_LOST 12 /* a minute: its control thread does nothing but answer */
#define BACKOFF_FIRST_MS 200
#define BACKOFF_MAX_MS 4000 /* back within 5 s also after a row of crashes */
#define HEALTHY_MS 60000
#define REST_MS 300000 /* until GPUs that cannot be used are looked at again */
#define MUTE_MAX 3

static const char *name_of(bool gpu)
{
    return gpu ? "xptycho-worker-cuda" : "xptycho-worker";
}

static bool is_cpu(const xpe_device_info *d)
{
    return strncmp(d->name, "cpu", 3) == 0;
}

/* The first word of a process: what its sets have. */
static bool take_hello(xpd_worker *w, const json_t *body)
{
    const char *build = json_string_value(json_object_get(body, "build"));
    xpd_broker *b = w->child.b;

    if (w->heard || !xpd_sets_hello(w, body))
        return false;
    w->heard = true;
    w->mute = 0;
    snprintf(w->build, sizeof w->build, "%s", build ? build : "");
    w->ready = !w->leaving && w->serves == w->group;
    w->rested = w->rested && !w->ready;
    if (w->ready)
        xpd_log(XPD_LOG_INFO, NULL, "worker %d (%d) is ready: %s", w->index, (int)w->child.pid,
                w->build);
    xpd_dispatch_due(b);
    xpd_submissions_devices_known(b);
    if (w->ready)
        xpd_run_worker_ready(w);
    xpd_sets_settle(b);
    return true;
}

/* What takes long between two iterations, a large checkpoint above all, is no standstill. */
static void take_beat(xpd_worker *w, const json_t *pong)
{
    int64_t beat = json_integer_value(json_object_get(pong, "beat"));

    if (beat != w->beat)
        xpd_run_sign(w);
    w->beat = beat;
}

static bool on_message(xpd_child *child, xpp_ipc_message *message)
{
    xpd_worker *w = child->context;

    switch (message->type) {
    case XPP_IPC_HELLO:
        return take_hello(w, message->body);
    case XPP_IPC_EVENTS:
        return xpd_run_events(w, message->body);
    case XPP_IPC_DONE:
        return xpd_run_done(w, message->body);
    case XPP_IPC_PONG:
        w->pings_open = 0;
        take_beat(w, message->body);
        w->asked = false;
        return xpd_sets_pong(w, message->body);
    default:
        return false;
    }
}

/* Ended by itself: it is started again, later each time. */
static void back_off(xpd_worker *w)
{
    if (xpd_now_ms() - w->started_ms > HEALTHY_MS)
        w->backoff_ms = BACKOFF_FIRST_MS;
    xpd_timer_set(&w->child.b->loop, &w->restart, w->backoff_ms);
    w->backoff_ms = w->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : w->backoff_ms * 2;
    w->restarts++;
}

static void rest(xpd_worker *w)
{
    w->resting = false;
    w->backoff_ms = BACKOFF_FIRST_MS;
    xpd_timer_set(&w->child.b->loop, &w->restart, REST_MS);
}

static xpd_restart why_restarted(const xpd_worker *w, bool yields, const char *replaced,
                                 const char *how, int wait_status)
{
    if (yields)
        return XPD_RESTART_YIELD;
    if (*replaced)
        return strstr(replaced, "MiB") ? XPD_RESTART_MEMORY : XPD_RESTART_HANG;
    if (w->child.b->draining)
        return XPD_RESTART_DRAIN;
    if (!WIFSIGNALED(wait_status))
        return XPD_RESTART_EXIT;
    if (WTERMSIG(wait_status) != SIGKILL)
        return XPD_RESTART_CRASH;
    return strstr(how, "out of memory") ? XPD_RESTART_OOM : XPD_RESTART_KILLED;
}

static void on_exit_(xpd_child *child, int wait_status)
{
    xpd_worker *w = child->context;
    xpd_broker *b = child->b;
    bool told = w->leaving;
    bool yields = false;
    char how[192], replaced[sizeof w->ended_for];

    snprintf(replaced, sizeof replaced, "%s", w->ended_for);
    xpd_run_yields(w, &yields);
    xpd_watch_exit_text(how, sizeof how, w, wait_status);
    w->mute += !w->heard && !told;
    w->ready = w->heard = w->asked = w->leaving = false;
    w->serves = 0;
    w->pings_open = w->beat = 0;
    xpd_timer_cancel(&w->ping);
    xpd_log(b->stopping || told ? XPD_LOG_INFO : XPD_LOG_WARNING, NULL, "worker %d %s", w->index,
            how);
    if (w->gpu && w->mute >= MUTE_MAX) {
        xpd_sets_silent(w, how);
        w->resting = true;
        w->mute = 0;
    }
    if (!b->stopping && !told)
        b->metrics.restarts[why_restarted(w, yields, replaced, how, wait_status)]++;
    if (!b->stopping && w->resting)
        rest(w);
    else if (!b->stopping && !told)
        back_off(w);
    xpd_run_worker_died(w, how);
    xpd_sets_settle(b);
    xpd_dispatch_due(b);
}

static bool send_ping(xpd_worker *w)
{
    json_t *body = json_pack("{s:I}", "t", (json_int_t)xpd_now_ms());
    bool sent = body && xpd_child_send(&w->child, XPP_IPC_PING, body, NULL, 0);

    json_decref(body);
    return sent;
}

void xpd_worker_ask(xpd_worker *w)
{
    if (w->ready && !w->asked)
        w->asked = send_ping(w);
}

static void ping(void *context)
{
    xpd_worker *w = context;

    if (w->pings_open >= PINGS_LOST)
        snprintf(w->ended_for, sizeof w->ended_for, "did not answer for %d s",
                 PING_MS / 1000 * PINGS_LOST);
    if (w->pings_open >= PINGS_LOST || !send_ping(w)) {
        xpd_log(XPD_LOG_ERROR, NULL, "worker %d (%d) does not answer; it is killed", w->index,
                (int)w->child.pid);
        xpd_child_signal(&w->child, SIGKILL);
    } else {
        w->pings_open++;
        xpd_timer_set(&w->child.b->loop, &w->ping, PING_MS);
    }
}

static void start(void *context)
{
    xpd_worker *w = context;
    xpd_broker *b = w->child.b;
    xpd_error err = XPD_ERROR_INIT;
    char list[1024];
    const char *const arguments[] = {"--devices", list, NULL};
    const char *program = w->gpu ? b->config.cuda_program : b->config.worker_program;

    if (b->stopping || !xpd_sets_free(w))
        return;
    xpd_sets_list(list, sizeof list, w);
    w->started_ms = xpd_now_ms();
    if (xpd_child_start(&w->child, program, *list ? arguments : NULL, true, 500, &err)) {
        w->serves = w->group;
        xpd_timer_set(&b->loop, &w->ping, PING_MS);
        return;
    }
    xpd_log(XPD_LOG_ERROR, NULL, "%s", err.text);
    xpd_timer_set(&b->loop, &w->restart, BACKOFF_MAX_MS);
    if (w->gpu && ++w->mute >= MUTE_MAX) {
        xpd_sets_silent(w, "cannot be started");
        xpd_timer_set(&b->loop, &w->restart, REST_MS);
    }
}

void xpd_worker_start(xpd_worker *w)
{
    if (w->child.pid <= 0 && !xpd_timer_armed(&w->restart))
        start(w);
}

/* ----------------------------------------------------------------------------------- all */

xpd_worker *xpd_worker_add(xpd_broker *b, bool gpu)
{
    xpd_worker *w = b->worker_count < XPD_WORKERS_MAX ? calloc(1, sizeof *w) : NULL;

    if (!w)
        return NULL;
    w->child = (xpd_child){.b = b,
                           .name = name_of(gpu),
                           .source.fd = -1,
                           .on_message = on_message,
                           .on_exit = on_exit_,
                           .context = w,
                           .may_be_lost = true};
    w->restart = (xpd_timer){.fire = start, .context = w};
    w->ping = (xpd_timer){.fire = ping, .context = w};
    w->backoff_ms = BACKOFF_FIRST_MS;
    w->gpu = gpu;
    w->index = b->worker_count;
    w->group = (uint64_t)1 << w->index;
    b->workers[b->worker_count++] = w;
    return w;
}

/* The cores that this process may use, in equal parts; more workers than cores share them. */
static void share_cores(xpd_broker *b)
{
    cpu_set_t all;
    size_t cores[CPU_SETSIZE], count = 0, parts = (size_t)b->worker_count;

    if (parts < 2 || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all))
            cores[count++] = i;
    }
    for (size_t i = 0; i < parts && count > 0; i++) {
        xpd_worker *w = b->workers[i];
        size_t from = count * i / parts, to = count * (i + 1) / parts;
        CPU_ZERO(&w->cores);
        if (from == to)
            CPU_SET(cores[i % count], &w->cores);
        for (size_t k = from; k < to; k++)
            CPU_SET(cores[k], &w->cores);
        w->child.cores = &w->cores;
    }
}

bool xpd_workers_create(xpd_broker *b, xpd_error *err)
{
    int64_t wanted = b->config.cpu_workers > 0 ? b->config.cpu_workers : 1;

    for (int64_t i = 0; i < wanted; i++) {
        if (!xpd_worker_add(b, false))
            return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    }
    share_cores(b);
    if (!xpd_sets_create(b, err))
        return false;
    xpd_sets_settle(b);
    return true;
}

bool xpd_workers_alive(const xpd_broker *b)
{
    for (int i = 0; i < b->worker_count; i++) {
        if (b->workers[i]->child.pid > 0)
            return true;
    }
    return false;
}

int xpd_workers_ready(const xpd_broker *b)
{
    int count = 0;
    for (int i = 0; i < b->worker_count; i++)
        count += b->workers[i]->ready;
    return count;
}

int64_t xpd_worker_threads(const xpd_worker *w, int64_t wanted)
{
    int64_t most = 1, limit = w->child.b->config.worker_cpu_threads;
    for (int i = 0; i < w->devices.count; i++) {
        if (is_cpu(&w->devices.items[i]) && w->devices.items[i].threads > most)
            most = w->devices.items[i].threads;
    }
    if (limit > 0 && limit < most)
        most = limit;
    return wanted > 0 && wanted < most ? wanted : most;
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

void xpd_workers_quit(xpd_broker *b, bool busy, int64_t delay_ms)
{
    for (int i = 0; i < b->worker_count; i++) {
        if (!busy || b->workers[i]->run)
            xpd_worker_quit(b->workers[i], delay_ms);
    }
}

void xpd_workers_kill(xpd_broker *b)
{
    for (int i = 0; i < b->worker_count; i++)
        xpd_child_signal(&b->workers[i]->child, SIGKILL);
}

void xpd_workers_destroy(xpd_broker *b)
{
    for (int i = 0; i < b->worker_count; i++) {
        xpd_timer_cancel(&b->workers[i]->restart);
        xpd_timer_cancel(&b->workers[i]->ping);
        xpd_timer_cancel(&b->workers[i]->child.kill_timer);
        xpd_timer_cancel(&b->workers[i]->child.lost_timer);
        free(b->workers[i]);
    }
    b->worker_count = 0;
}
