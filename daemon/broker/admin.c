/* See admin.h. */
#include "admin.h"

#include "http.h"
#include "life.h"
#include "log.h"
#include "notify.h"
#include "people.h"
#include "roots.h"
#include "routes.h"
#include "run.h"
#include "sets.h"
#include "stream.h"
#include "worker.h"

#include <stdio.h>
#include <string.h>

#define DUMP_JOBS 200

/* ------------------------------------------------------------------------------------- reload */

bool xpd_tokens_load(xpd_auth **out, const xpd_config *config, xpd_error *err)
{
    return config->user ? xpd_auth_user(out, config->token_file, err)
                        : xpd_auth_load(out, config->token_file, err);
}

bool xpd_reload(xpd_broker *b, char *rest, size_t size, json_t *warnings, xpd_error *err)
{
    xpd_config fresh;
    xpd_auth *auth = NULL;

    *rest = '\0';
    xpd_notify_reloading();
    bool ok = xpd_config_read(&fresh, b->argc, b->argv, err) == XPD_CONFIG_OK &&
              xpd_roots_apart(&fresh, b->config.state_dir, b->config.runtime_dir, warnings, err) &&
              xpd_tokens_load(&auth, &fresh, err);
    if (ok) {
        xpd_config_exchange(&b->config, &fresh, rest, size);
        xpd_auth_destroy(b->auth);
        b->auth = auth;
        xpd_people_forget();
        xpd_log_set_level((xpd_level)b->config.log_level);
        xpd_log_set_json(b->config.log_json);
        b->metrics.reloads++;
        xpd_log(XPD_LOG_INFO, NULL, "configuration and tokens are read again");
        if (*rest)
            xpd_log(XPD_LOG_WARNING, NULL, "these options change with the next start only: %s",
                    rest);
        xpd_notify_ready("serving");
    } else {
        b->metrics.reloads_failed++;
        xpd_log(XPD_LOG_ERROR, NULL, "reload refused, all stays as it was: %s", err->text);
        xpd_notify_ready("serving; the last reload was refused, see the log");
    }
    xpd_config_release(&fresh);
    return ok;
}

void xpd_post_reload(xpd_request *r)
{
    xpd_error err = XPD_ERROR_INIT;
    json_t *warnings = json_array();
    char rest[512];

    if (!xpd_reload(r->b, rest, sizeof rest, warnings, &err))
        xpd_reply_error(r, &err);
    else
        xpd_reply_json(r, MHD_HTTP_OK,
                       json_pack("{s:s, s:O}", "needs_restart", rest, "warnings", warnings));
    json_decref(warnings);
}

/* -------------------------------------------------------------------------------------- drain */

static int64_t count_active(const xpd_broker *b)
{
    int64_t n = 0;
    for (size_t i = 0; i < b->jobs.count; i++) {
        xpd_state state = b->jobs.items[i]->state;
        n += state == XPD_JOB_STARTING || state == XPD_JOB_RUNNING;
    }
    return n;
}

void xpd_drain(xpd_broker *b, bool finish)
{
    if (!b->draining)
        xpd_log(XPD_LOG_INFO, NULL, "draining: no new work is taken; %s",
                finish ? "what runs is finished" : "what runs goes back to the queue");
    b->draining = true;
    if (finish || b->stopping || xpd_runs(b) == 0)
        return;
    xpd_run_shutdown(b);
    /* a worker that has one still leaves, which ends the run, and is started again */
    xpd_workers_quit(b, true, b->config.drain_s * 1000);
}

void xpd_undrain(xpd_broker *b)
{
    if (b->draining)
        xpd_log(XPD_LOG_INFO, NULL, "new work is taken again");
    b->draining = false;
    if (xpd_sets_undrain(b) > 0)
        xpd_log(XPD_LOG_INFO, NULL, "device sets that were drained are tried again");
}

static void reply_drain(xpd_request *r)
{
    const xpd_broker *b = r->b;
    xpd_reply_json(r, MHD_HTTP_OK,
                   json_pack("{s:b, s:I, s:I}", "draining", b->draining, "running",
                             (json_int_t)count_active(b), "queued", (json_int_t)b->queue.count));
}

void xpd_post_drain(xpd_request *r)
{
    const char *finish = xpd_request_query(r, "finish");
    if (finish && strcmp(finish, "true") != 0 && strcmp(finish, "false") != 0) {
        xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST, "finish is '%.40s'; it must be true or false",
                        finish);
        return;
    }
    xpd_drain(r->b, finish && strcmp(finish, "true") == 0);
    reply_drain(r);
}

void xpd_post_undrain(xpd_request *r)
{
    xpd_undrain(r->b);
    reply_drain(r);
}

/* ----------------------------------------------------------------------------------- db-check */

static void checked(void *context, const char *text)
{
    bool ok = strcmp(text, "ok") == 0;
    if (!ok)
        xpd_log(XPD_LOG_ERROR, NULL, "the state is damaged: %s", text);
    xpd_reply_json(context, MHD_HTTP_OK, json_pack("{s:b, s:o}", "ok", ok, "text", xpp_text(text)));
}

void xpd_post_db_check(xpd_request *r)
{
    xpd_request_wait(r);
    xpd_store_check(r->b->store, checked, r);
}

/* --------------------------------------------------------------------------------------- dump */

int xpd_dump(xpd_broker *b)
{
    int lines = 2 + b->worker_count, shown = 0;
    size_t left = 0;

    xpd_log(XPD_LOG_INFO, NULL,
            "state: %s%s%s, %zu jobs, %zu wait, %lld run, %lld MiB free%s, loop busy for at most "
            "%lld ms",
            b->ready ? "ready" : "starting", b->draining ? ", draining" : "",
            b->stopping ? ", stopping" : "", b->jobs.count, b->queue.count,
            (long long)count_active(b), (long long)(xpd_disk_free(b) >> 20),
            b->state_full ? " (full)" : "", (long long)b->loop.lag_max_ms);
    xpd_log(XPD_LOG_INFO, NULL,
            "state: %u connections, %lld requests wait for an answer, %lld streams and long polls",
            xpd_http_open_connections(b->http), (long long)b->parked,
            (long long)xpd_streams_count(b));
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_worker *w = b->workers[i];
        xpd_log(XPD_LOG_INFO, NULL, "state: worker %d %s, %d devices, %lld restarts",
                (int)w->child.pid, w->ready ? "ready" : "not ready", w->devices.count,
                (long long)w->restarts);
    }
    for (size_t i = 0; i < b->jobs.count; i++) {
        const xpd_job *job = b->jobs.items[i];
        if (xpd_state_terminal(job->state))
            continue;
        if (shown == DUMP_JOBS) {
            left++;
            continue;
        }
        shown++;
        lines++;
        xpd_log(XPD_LOG_INFO, job->id,
                "state: %s, of %s, stage %lld, iteration %lld, %lld attempts",
                xpd_state_name(job->state), job->user, (long long)job->progress.stage,
                (long long)job->progress.iter, (long long)job->attempts);
    }
    if (left > 0) {
        lines++;
        xpd_log(XPD_LOG_INFO, NULL, "state: and %zu jobs more", left);
    }
    return lines;
}

void xpd_post_dump(xpd_request *r)
{
    xpd_reply_json(r, MHD_HTTP_OK, json_pack("{s:i}", "lines", xpd_dump(r->b)));
}
