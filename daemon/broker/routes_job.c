/* Jobs: submit, list, show, cancel, delete, rerun, log. */
#include "dispatch.h"
#include "life.h"
#include "log.h"
#include "routes.h"
#include "run.h"
#include "stream.h"
#include "submit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_TAIL_MAX (4 << 20) /* bytes looked at for ?tail= */

static void make_tag(char *out, size_t size, const xpd_job *job)
{
    snprintf(out, size, "\"%s-%lld\"", job->id, (long long)job->rev);
}

static void reply_job(xpd_request *r, unsigned status, const xpd_job *job)
{
    char tag[64];
    make_tag(tag, sizeof tag, job);
    const char *const headers[][2] = {{MHD_HTTP_HEADER_ETAG, tag}, {NULL, NULL}};
    xpd_reply_json_as(r, status, xpd_job_document(job, xpd_dispatch_pending(r->b, job), true), NULL,
                      headers);
}

/* ------------------------------------------------------------------------------------- submit */

/* true, false or absent */
static bool read_choice(xpd_request *r, const char *name, const char *no, const char *yes,
                        bool *out)
{
    const char *text = xpd_request_query(r, name);
    if (!text)
        return true;
    if (strcmp(text, yes) != 0 && strcmp(text, no) != 0) {
        xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST,
                        "query argument '%s' is '%.40s'; it must be '%s' or '%s'", name, text, no,
                        yes);
        return false;
    }
    *out = strcmp(text, yes) == 0;
    return true;
}

void xpd_post_job(xpd_request *r)
{
    bool dry_run = false, async = false;
    json_t *problem = NULL;

    if (!read_choice(r, "dry_run", "false", "true", &dry_run) ||
        !read_choice(r, "probe", "sync", "async", &async))
        return;
    json_t *doc = xpp_parse(r->body ? r->body : "", r->body_length, &problem);
    if (!doc) {
        xpd_reply_problem(r, problem);
        return;
    }
    xpd_submit(r, doc, dry_run, !async);
}

void xpd_post_rerun(xpd_request *r)
{
    json_t *problem = NULL, *patch = NULL;

    if (r->body_length > 0 && !(patch = xpp_parse(r->body, r->body_length, &problem))) {
        xpd_reply_problem(r, problem);
        return;
    }
    if (patch && !json_is_object(patch)) {
        json_decref(patch);
        xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST,
                        "the body is a merge patch: a JSON object with the members to change");
        return;
    }
    json_t *doc = xpp_load(r->job->doc, strlen(r->job->doc), 0, NULL);
    json_t *merged = doc && patch ? xpd_merge_patch(doc, patch) : json_incref(doc);
    json_decref(patch);
    json_decref(doc);
    if (!merged) {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
        return;
    }
    xpd_submit(r, merged, false, true);
}

/* --------------------------------------------------------------------------------------- list */

/* One bit a state; 0 = a problem was answered. */
static unsigned wanted_states(xpd_request *r)
{
    unsigned wanted = 0;
    for (int i = 0; i < r->argument_count; i++) {
        xpd_state state;
        if (strcmp(r->arguments[i].name, "state") != 0)
            continue;
        if (!xpd_state_find(&state, r->arguments[i].value)) {
            xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST,
                            "state '%.40s' is not queued, held, starting, running, succeeded, "
                            "failed or cancelled",
                            r->arguments[i].value);
            return 0;
        }
        wanted |= 1u << state;
    }
    return wanted ? wanted : ~0u;
}

void xpd_get_jobs(xpd_request *r)
{
    xpd_broker *b = r->b;
    int64_t limit = 50, below = b->jobs.next_number;
    unsigned states = wanted_states(r);
    char link[512], next[32] = "";

    if (!states || !xpd_request_number(r, "limit", 1, 200, &limit) ||
        !xpd_request_number(r, "cursor", 1, INT64_MAX, &below))
        return;
    json_t *jobs = json_array();
    int64_t last = 0;
    for (size_t i = xpd_table_lower(&b->jobs, below); i-- > 0;) {
        const xpd_job *job = b->jobs.items[i];
        if (!xpd_caller_sees(&r->caller, job->uid) || !(states & (1u << job->state)))
            continue;
        if ((int64_t)json_array_size(jobs) == limit) {
            snprintf(next, sizeof next, "%lld", (long long)last);
            break;
        }
        json_array_append_new(jobs, xpd_job_document(job, xpd_dispatch_pending(b, job), false));
        last = job->number;
    }
    size_t at = (size_t)snprintf(link, sizeof link, "</v1/jobs?limit=%lld&cursor=%s",
                                 (long long)limit, next);
    for (int s = 0; s < XPD_JOB_STATES && states != ~0u; s++) {
        if (states & (1u << s))
            at += (size_t)snprintf(link + at, sizeof link - at, "&state=%s",
                                   xpd_state_name((xpd_state)s));
    }
    snprintf(link + at, sizeof link - at, ">; rel=\"next\"");
    const char *const headers[][2] = {{*next ? MHD_HTTP_HEADER_LINK : NULL, link}, {NULL, NULL}};
    xpd_reply_json_as(r, MHD_HTTP_OK,
                      json_pack("{s:o, s:s?}", "jobs", jobs, "next", *next ? next : NULL), NULL,
                      headers);
}

/* --------------------------------------------------------------------------------------- show */

/* If-None-Match names the job as it is. */
static bool is_current(const xpd_request *r, const xpd_job *job)
{
    const char *wanted = xpd_request_header(r, MHD_HTTP_HEADER_IF_NONE_MATCH);
    char tag[64];
    make_tag(tag, sizeof tag, job);
    return wanted && (strstr(wanted, tag) || strcmp(wanted, "*") == 0);
}

static void show(xpd_request *r, xpd_job *job)
{
    if (!is_current(r, job) || job->removed) {
        reply_job(r, MHD_HTTP_OK, job);
        return;
    }
    char tag[64];
    struct MHD_Response *response = xpd_response_text("", 0, true, "application/json");
    make_tag(tag, sizeof tag, job);
    xpd_header(response, MHD_HTTP_HEADER_ETAG, tag);
    xpd_reply(r, MHD_HTTP_NOT_MODIFIED, response);
}

/* An end is told when it is on the disk, or cannot get there for now. */
#define COMMIT_S 5

/* Seconds of "Prefer: wait=30", at most 60; 0 = do not wait. */
static int64_t preferred_wait(const xpd_request *r)
{
    const char *prefer = xpd_request_header(r, "Prefer");
    const char *wait = prefer ? strcasestr(prefer, "wait=") : NULL;
    int64_t seconds = wait ? strtoll(wait + 5, NULL, 10) : 0;
    return seconds < 0 ? 0 : seconds > 60 ? 60 : seconds;
}

void xpd_get_job(xpd_request *r)
{
    int64_t wait_s = preferred_wait(r);
    xpd_error err = XPD_ERROR_INIT;

    if (r->job->end_due && !r->job->dirty && !r->b->stopping)
        xpd_wait_open(r, r->job, COMMIT_S, show);
    else if (wait_s == 0 || !is_current(r, r->job) || xpd_state_terminal(r->job->state) ||
             r->b->stopping)
        show(r, r->job);
    else if (!xpd_streams_admit(r->b, r->caller.uid, r->job, &err))
        xpd_reply_error(r, &err);
    else
        xpd_wait_open(r, r->job, wait_s, show);
}

void xpd_get_job_events(xpd_request *r)
{
    xpd_stream_open(r, r->job);
}

/* ------------------------------------------------------------------------------ cancel, delete */

void xpd_post_cancel(xpd_request *r)
{
    bool terminal = xpd_state_terminal(r->job->state);
    if (terminal && !r->job->end_due) {
        reply_job(r, MHD_HTTP_OK, r->job);
        return;
    }
    if (!terminal)
        xpd_job_cancel(r->b, r->job, r->caller.user);
    xpd_reply_durable(r, terminal ? MHD_HTTP_OK : MHD_HTTP_ACCEPTED);
}

static void deleted(void *context, xpd_store_result result)
{
    xpd_request *r = context;
    if (result == XPD_STORE_OK) {
        if (!r->job->removed)
            xpd_job_erase(r->b, r->job);
        xpd_reply_empty(r, MHD_HTTP_NO_CONTENT);
    } else if (result == XPD_STORE_FULL) {
        xpd_reply_fault(r, XPP_FAULT_LOW_DISK,
                        "the disk of the state folder is full; the record stays");
    } else {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "the state cannot be written");
        xpd_state_lost(r->b);
    }
}

static void delete_ended(xpd_request *r, xpd_job *job)
{
    if (!xpd_state_terminal(job->state) || job->end_due) {
        xpd_reply_problem(r, xpp_problem(XPP_FAULT_CONFLICT,
                                         "the job is not finished; cancel it first", NULL,
                                         json_pack("{s:s}", "state", xpd_state_name(job->state))));
        return;
    }
    xpd_request_wait(r);
    xpd_job_forget(r->b, job, deleted, r);
}

void xpd_delete_job(xpd_request *r)
{
    if (r->job->end_due && !r->job->dirty)
        xpd_wait_open(r, r->job, COMMIT_S, delete_ended);
    else
        delete_ended(r, r->job);
}

/* ---------------------------------------------------------------------------------------- log */

/* Offset of the last `lines` lines. */
static off_t tail_offset(int fd, off_t size, int64_t lines)
{
    off_t from = size > LOG_TAIL_MAX ? size - LOG_TAIL_MAX : 0, at = from;
    size_t length = (size_t)(size - from);
    char *text = malloc(length + 1);

    if (text && pread(fd, text, length, from) == (ssize_t)length) {
        size_t i = length;
        if (i > 0 && text[i - 1] == '\n')
            i--;
        while (i > 0 && (text[i - 1] != '\n' || --lines > 0))
            i--;
        at = from + (off_t)i;
    }
    free(text);
    return at;
}

void xpd_get_log(xpd_request *r)
{
    char path[PATH_MAX];
    struct stat st;
    int64_t lines = 0;

    if (!xpd_request_number(r, "tail", 1, 100000, &lines))
        return;
    xpd_job_path(path, sizeof path, r->b, r->job->id, "log.txt");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0)
            close(fd);
        xpd_reply(r, MHD_HTTP_OK, xpd_response_text("", 0, true, "text/plain; charset=utf-8"));
        return;
    }
    int64_t first = lines > 0 ? tail_offset(fd, st.st_size, lines) : 0, last = st.st_size - 1;
    int part = lines > 0 ? 0
                         : xpd_read_range(xpd_request_header(r, MHD_HTTP_HEADER_RANGE), st.st_size,
                                          &first, &last);
    if (part < 0) {
        close(fd);
        xpd_reply_beyond(r, st.st_size);
        return;
    }
    struct MHD_Response *response =
        MHD_create_response_from_fd_at_offset64((uint64_t)(last - first + 1), fd, (uint64_t)first);
    if (!response)
        close(fd);
    xpd_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
    xpd_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    xpd_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    if (part > 0) {
        char range[96];
        snprintf(range, sizeof range, "bytes %lld-%lld/%lld", (long long)first, (long long)last,
                 (long long)st.st_size);
        xpd_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, range);
    }
    xpd_reply(r, part > 0 ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response);
}
