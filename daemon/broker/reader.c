/* See reader.h.
 *
 * Starting a process holds the loop for a moment, milliseconds where the cores are busy, and a
 * hundred submissions at once would start a hundred.  So probes wait for their turn: one is started
 * in a turn of the loop, some run at a time, behind the service itself.  One that takes long waits
 * for its file system rather than for a core and keeps nobody from starting.  A job's own read
 * never waits.
 */
#include "reader.h"

#include "log.h"
#include "people.h"
#include "supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PROBES_MAX 16      /* that count */
#define PROBE_SLOW_MS 3000 /* counts no more */
#define PROBE_NICE 5
#define LOST_MAX 4 /* readers that were killed and do not die */

struct xpd_reading {
    xpd_child child;
    xpd_timer deadline, slow;
    int64_t limit_s;
    xpp_ipc_type type;
    json_t *body; /* until it is sent */
    bool counted, lost;
    xpd_reading_done done; /* NULL = answered or abandoned */
    void *context;
    struct xpd_reading *next; /* that waits for its turn */
};

static void start_waiting(void *context);

static void start_soon(xpd_broker *b)
{
    if (!b->probes_waiting || b->probes >= PROBES_MAX || xpd_timer_armed(&b->probe_start))
        return;
    b->probe_start = (xpd_timer){.fire = start_waiting, .context = b};
    xpd_timer_set(&b->loop, &b->probe_start, 0);
}

/* Its place is free for another. */
static void give_place(xpd_reading *reading)
{
    xpd_broker *b = reading->child.b;

    xpd_timer_cancel(&reading->slow);
    if (!reading->counted)
        return;
    reading->counted = false;
    b->probes--;
    start_soon(b);
}

static void is_slow(void *context)
{
    give_place(context);
}

static void reading_free(xpd_reading *reading)
{
    json_decref(reading->body);
    free(reading);
}

static void answer(xpd_reading *reading, xpp_ipc_message *scan, json_t *problem)
{
    xpd_reading_done done = reading->done;
    reading->done = NULL;
    xpd_timer_cancel(&reading->deadline);
    xpd_child_kill_after(&reading->child, 5000);
    if (done && problem)
        xpd_metrics_reader_failed(&reading->child.b->metrics,
                                  json_string_value(json_object_get(problem, "type")));
    if (done)
        done(reading->context, scan, problem);
    else
        json_decref(problem);
}

static bool good_scan(const xpp_ipc_message *message)
{
    const json_t *arrays = json_object_get(message->body, "arrays");
    return json_is_array(arrays) && json_array_size(arrays) == (size_t)message->fd_count;
}

static bool on_message(xpd_child *child, xpp_ipc_message *message)
{
    xpd_reading *reading = child->context;
    json_t *problem;

    switch (message->type) {
    case XPP_IPC_HELLO:
        return true;
    case XPP_IPC_SCAN:
        if (!good_scan(message))
            return false;
        answer(reading, message, NULL);
        return true;
    case XPP_IPC_REFUSED:
        problem = json_object_get(message->body, "problem");
        if (!json_is_object(problem))
            return false;
        answer(reading, NULL, json_incref(problem));
        return true;
    default:
        return false;
    }
}

static void on_exit_(xpd_child *child, int wait_status)
{
    xpd_reading *reading = child->context;
    char how[128], text[256];

    if (reading->done) {
        xpd_exit_text(how, sizeof how, wait_status);
        snprintf(text, sizeof text,
                 "the reader %s while it looked at the scan; the file may be damaged", how);
        xpd_log(XPD_LOG_WARNING, NULL, "%s", text);
        answer(reading, NULL, xpp_problem(XPP_FAULT_DATASET, text, NULL, NULL));
    }
    if (reading->lost)
        child->b->readers_lost--;
    give_place(reading);
    reading_free(reading);
}

/* Killed; a process that waits for a dead file system does not even die of that, so nobody waits
 * for its end, and only so many may be left like this. */
static void put_away(xpd_reading *reading)
{
    xpd_child_signal(&reading->child, SIGKILL);
    if (!reading->lost)
        reading->child.b->readers_lost++;
    reading->lost = true;
}

static void too_late(void *context)
{
    xpd_reading *reading = context;
    char text[160];

    snprintf(text, sizeof text,
             "the scan could not be read within %lld s; is its file system slow or away?",
             (long long)reading->limit_s);
    xpd_log(XPD_LOG_WARNING, NULL, "%s", text);
    put_away(reading);
    answer(reading, NULL, xpp_problem(XPP_FAULT_DATASET_UNRESPONSIVE, text, NULL, NULL));
}

static bool launch(xpd_reading *reading, xpd_error *err)
{
    xpd_broker *b = reading->child.b;

    if (b->readers_lost >= LOST_MAX)
        return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "",
                        "%d readers wait for file systems that do not answer; no scan is read "
                        "until one of them does",
                        b->readers_lost);
    if (!xpd_child_start(&reading->child, b->config.reader_program, NULL, true, 800, err))
        return false;
    xpd_timer_set(&b->loop, &reading->deadline, reading->limit_s * 1000);
    if (reading->type == XPP_IPC_PROBE) {
        reading->counted = true;
        b->probes++;
        xpd_timer_set(&b->loop, &reading->slow, PROBE_SLOW_MS);
        if (setpriority(PRIO_PROCESS, (id_t)reading->child.pid, PROBE_NICE) != 0)
            xpd_log(XPD_LOG_DEBUG, NULL, "the reader cannot be made nice: %s", strerror(errno));
    }
    if (!xpd_child_send(&reading->child, reading->type, reading->body, NULL, 0))
        xpd_child_signal(&reading->child, SIGKILL); /* its end is the answer */
    json_decref(reading->body);
    reading->body = NULL;
    return true;
}

static void start_waiting(void *context)
{
    xpd_broker *b = context;
    xpd_reading *reading = b->probes_waiting;
    xpd_error err = XPD_ERROR_INIT;

    if (!reading || b->probes >= PROBES_MAX)
        return;
    b->probes_waiting = reading->next;
    if (!launch(reading, &err)) {
        answer(reading, NULL, xpd_problem(&err));
        reading_free(reading);
    }
    start_soon(b);
}

static void wait_for_place(xpd_reading *reading)
{
    xpd_reading **last = &reading->child.b->probes_waiting;
    while (*last)
        last = &(*last)->next;
    *last = reading;
    start_soon(reading->child.b);
}

xpd_reading *xpd_reading_start(xpd_broker *b, xpp_ipc_type type, uid_t uid, json_t *job,
                               const char *output_path, xpd_reading_done done, void *context,
                               xpd_error *err)
{
    xpd_reading *reading = calloc(1, sizeof *reading);

    if (!reading) {
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
        return NULL;
    }
    *reading =
        (xpd_reading){.child = {.b = b,
                                .name = "xptycho-reader",
                                .source.fd = -1,
                                .on_message = on_message,
                                .on_exit = on_exit_,
                                .context = reading},
                      .deadline = {.fire = too_late, .context = reading},
                      .slow = {.fire = is_slow, .context = reading},
                      .limit_s = type == XPP_IPC_PROBE ? b->config.probe_s : b->config.read_s,
                      .type = type,
                      .done = done,
                      .context = context};
    reading->body = json_pack(
        "{s:O, s:o, s:o, s:s?}", "job", job, "roots", xpd_roots_of(&b->config.data_roots, uid),
        "write_roots", xpd_roots_of(&b->config.write_roots, uid), "output_path", output_path);
    if (!reading->body) {
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
    } else if (type == XPP_IPC_PROBE) {
        wait_for_place(reading);
        return reading;
    } else if (launch(reading, err)) {
        return reading;
    }
    reading_free(reading);
    return NULL;
}

void xpd_reading_abandon(xpd_reading *reading)
{
    if (!reading)
        return;
    for (xpd_reading **link = &reading->child.b->probes_waiting; *link; link = &(*link)->next) {
        if (*link == reading) {
            *link = reading->next;
            reading_free(reading);
            return;
        }
    }
    reading->done = NULL;
    xpd_timer_cancel(&reading->deadline);
    put_away(reading);
}
