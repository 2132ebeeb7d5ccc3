/* See reader.h. */
#include "reader.h"

#include "log.h"
#include "people.h"
#include "supervise.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct xpd_reading {
    xpd_child child;
    xpd_timer deadline;
    int64_t limit_s;
    bool late;
    xpd_reading_done done; /* NULL = answered or abandoned */
    void *context;
};

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
        if (reading->late)
            snprintf(text, sizeof text,
                     "the scan could not be read within %lld s; is its file system slow or away?",
                     (long long)reading->limit_s);
        else
            snprintf(text, sizeof text,
                     "the reader %s while it looked at the scan; the file may be damaged", how);
        xpd_log(XPD_LOG_WARNING, NULL, "%s", text);
        answer(reading, NULL, xpp_problem(XPP_FAULT_DATASET, text, NULL, NULL));
    }
    free(reading);
}

static void too_late(void *context)
{
    xpd_reading *reading = context;
    reading->late = true;
    xpd_child_signal(&reading->child, SIGKILL);
}

xpd_reading *xpd_reading_start(xpd_broker *b, xpp_ipc_type type, uid_t uid, json_t *job,
                               const char *output_path, xpd_reading_done done, void *context,
                               xpd_error *err)
{
    xpd_reading *reading = calloc(1, sizeof *reading);
    json_t *body = json_pack("{s:O, s:o, s:o, s:s?}", "job", job, "roots",
                             xpd_roots_of(&b->config.data_roots, uid), "write_roots",
                             xpd_roots_of(&b->config.write_roots, uid), "output_path", output_path);

    if (!reading || !body) {
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
        goto failed;
    }
    reading->child = (xpd_child){.b = b,
                                 .name = "xptycho-reader",
                                 .on_message = on_message,
                                 .on_exit = on_exit_,
                                 .context = reading};
    reading->deadline = (xpd_timer){.fire = too_late, .context = reading};
    reading->limit_s = type == XPP_IPC_PROBE ? b->config.probe_s : b->config.read_s;
    if (!xpd_child_start(&reading->child, b->config.reader_program, NULL, true, 800, err))
        goto failed;
    reading->done = done;
    reading->context = context;
    xpd_timer_set(&b->loop, &reading->deadline, reading->limit_s * 1000);
    if (!xpd_child_send(&reading->child, type, body, NULL, 0))
        xpd_child_signal(&reading->child, SIGKILL); /* its end is the answer */
    json_decref(body);
    return reading;
failed:
    json_decref(body);
    free(reading);
    return NULL;
}

void xpd_reading_abandon(xpd_reading *reading)
{
    if (!reading)
        return;
    reading->done = NULL;
    xpd_timer_cancel(&reading->deadline);
    xpd_child_signal(&reading->child, SIGKILL);
}
