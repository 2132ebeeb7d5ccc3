/* See metrics.h. */
#include "metrics.h"

#include "http.h"
#include "life.h"
#include "memory.h"
#include "routes.h"
#include "run.h"
#include "sets.h"
#include "stream.h"
#include "worker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double short_times[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                     0.1,   0.25,   0.5,   1,    2.5,   0};
static const double ratios[] = {0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.5, 0};
static const double long_times[] = {0.1, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 0};

void xpd_metrics_init(xpd_metrics *m)
{
    memset(m, 0, sizeof *m);
    m->queue_wait.bounds = m->job_run.bounds = long_times;
    m->loop_lag.bounds = m->commit.bounds = short_times;
    m->memory_ratio.bounds = ratios;
    for (int i = 0; i <= XPD_METRIC_ROUTES_MAX; i++)
        m->route_time[i].bounds = short_times;
}

void xpd_histogram_add(xpd_histogram *h, double seconds)
{
    int i = 0;
    while (h->bounds[i] > 0 && seconds > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += seconds;
}

void xpd_metrics_commit(void *metrics, double seconds)
{
    xpd_metrics *m = metrics;
    xpd_histogram_add(&m->commit, seconds);
}

/* ---------------------------------------------------------------------------------- counting */

/* The last place takes what does not fit: a bound, should a reason ever not be of the closed set.
 */
static void count_series(xpd_finished_series *list, int *count, int room, const char *state,
                         const char *reason)
{
    int i = 0;
    while (i < *count && (strcmp(list[i].state, state) != 0 || strcmp(list[i].reason, reason) != 0))
        i++;
    if (i == *count && *count < room) {
        bool last = *count == room - 1;
        snprintf(list[i].state, sizeof list[i].state, "%s", last ? "" : state);
        snprintf(list[i].reason, sizeof list[i].reason, "%s", last ? "other" : reason);
        (*count)++;
    }
    list[i < room ? i : room - 1].count++;
}

void xpd_metrics_job(xpd_broker *b, const xpd_job *job, const char *before)
{
    xpd_metrics *m = &b->metrics;
    int64_t now = xpd_wall_ms();

    if (!before)
        m->submitted[job->class]++;
    else if (job->state == XPD_JOB_STARTING && now >= job->created_ms)
        xpd_histogram_add(&m->queue_wait, (double)(now - job->created_ms) / 1000);
    if (!xpd_state_terminal(job->state))
        return;
    count_series(m->finished, &m->finished_count, 64, xpd_state_name(job->state), job->reason);
    const json_t *memory = json_object_get(job->result, "memory");
    double planned = json_number_value(json_object_get(memory, "planned_bytes"));
    if (planned > 0)
        xpd_histogram_add(&m->memory_ratio,
                          json_number_value(json_object_get(memory, "peak_bytes")) / planned);
    if (job->started_ms > 0 && now >= job->started_ms)
        xpd_histogram_add(&m->job_run, (double)(now - job->started_ms) / 1000);
}

void xpd_metrics_request(xpd_metrics *m, int route, const char *method, unsigned code,
                         double seconds)
{
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    const char *name = "other";
    int i = 0;

    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strcmp(known[k], method) == 0)
            name = known[k];
    }
    while (i < m->request_count && (m->requests[i].route != route || m->requests[i].code != code ||
                                    strcmp(m->requests[i].method, name) != 0))
        i++;
    if (i == XPD_REQUEST_SERIES_MAX)
        i--;
    else if (i == m->request_count)
        m->requests[m->request_count++] = (xpd_request_series){route, name, code, 0};
    m->requests[i].count++;
    xpd_histogram_add(&m->route_time[route < 0 ? XPD_METRIC_ROUTES_MAX : route], seconds);
}

void xpd_metrics_reader_failed(xpd_metrics *m, const char *type)
{
    xpp_fault fault;
    count_series(m->reader_failures, &m->reader_failure_count, 32, "",
                 type && xpp_fault_find(&fault, type) ? xpp_fault_type(fault) : "other");
}

void xpd_metrics_tick(xpd_broker *b)
{
    xpd_metrics *m = &b->metrics;
    const xpd_devices *devices = xpd_workers_devices(b);
    int64_t now = xpd_now_ms();
    double passed = m->busy_ms ? (double)(now - m->busy_ms) / 1000 : 0;

    m->busy_ms = now;
    for (int i = 0; i < devices->count && i < 64; i++) {
        for (int k = 0; k < b->worker_count; k++) {
            if (xpd_run_uses(b->workers[k], devices->items[i].name))
                m->device_busy_s[i] += passed;
        }
    }
}

/* ------------------------------------------------------------------------------------ writing */

typedef struct page {
    FILE *out;
} page;

static void family(page *p, const char *name, const char *type, const char *help)
{
    fprintf(p->out, "# HELP xptycho_%s %s\n# TYPE xptycho_%s %s\n", name, help, name, type);
}

/* labels: `state="queued",reason=""`, or "" */
static void sample(page *p, const char *name, const char *labels, double value)
{
    fprintf(p->out, "xptycho_%s%s%s%s %.17g\n", name, *labels ? "{" : "", labels,
            *labels ? "}" : "", value);
}

static void single(page *p, const char *name, const char *type, const char *help, double value)
{
    family(p, name, type, help);
    sample(p, name, "", value);
}

/* Text of a label: the worker says names of devices and of its build. */
static const char *label(char *out, size_t size, const char *text)
{
    size_t at = 0;
    for (; *text && at + 3 < size; text++) {
        if (*text == '"' || *text == '\\')
            out[at++] = '\\';
        out[at++] = (unsigned char)*text < 0x20 ? ' ' : *text;
    }
    out[at] = '\0';
    return out;
}

static void histogram(page *p, const char *name, const char *labels, const xpd_histogram *h)
{
    int64_t below = 0;
    const char *comma = *labels ? "," : "";
    int i = 0;

    for (; h->bounds[i] > 0; i++) {
        below += h->counts[i];
        fprintf(p->out, "xptycho_%s_bucket{%s%sle=\"%g\"} %lld\n", name, labels, comma,
                h->bounds[i], (long long)below);
    }
    below += h->counts[i];
    fprintf(p->out, "xptycho_%s_bucket{%s%sle=\"+Inf\"} %lld\n", name, labels, comma,
            (long long)below);
    fprintf(p->out, "xptycho_%s_sum%s%s%s %.17g\n", name, *labels ? "{" : "", labels,
            *labels ? "}" : "", h->sum);
    fprintf(p->out, "xptycho_%s_count%s%s%s %lld\n", name, *labels ? "{" : "", labels,
            *labels ? "}" : "", (long long)below);
}

static void write_jobs(page *p, const xpd_broker *b)
{
    const xpd_metrics *m = &b->metrics;
    int64_t counts[XPD_JOB_STATES] = {0};
    char text[128];

    for (size_t i = 0; i < b->jobs.count; i++)
        counts[b->jobs.items[i]->state]++;
    family(p, "jobs", "gauge", "Jobs that are remembered, by state.");
    for (int s = 0; s < XPD_JOB_STATES; s++) {
        snprintf(text, sizeof text, "state=\"%s\"", xpd_state_name((xpd_state)s));
        sample(p, "jobs", text, (double)counts[s]);
    }
    family(p, "jobs_submitted_total", "counter", "Jobs accepted since the start.");
    for (int i = 0; i < XPD_CLASSES; i++) {
        snprintf(text, sizeof text, "class=\"%s\"", xpd_class_name((xpd_class)i));
        sample(p, "jobs_submitted_total", text, (double)m->submitted[i]);
    }
    family(p, "jobs_finished_total", "counter", "Jobs that ended since the start.");
    for (int i = 0; i < m->finished_count; i++) {
        snprintf(text, sizeof text, "state=\"%s\",reason=\"%s\"", m->finished[i].state,
                 m->finished[i].reason);
        sample(p, "jobs_finished_total", text, (double)m->finished[i].count);
    }
    family(p, "queue_wait_seconds", "histogram", "From submission to each start.");
    histogram(p, "queue_wait_seconds", "", &m->queue_wait);
    family(p, "job_run_seconds", "histogram", "From the last start of a job to its end.");
    histogram(p, "job_run_seconds", "", &m->job_run);
    family(p, "job_memory_ratio", "histogram",
           "Device memory that a job took at most, by what it was admitted for.");
    histogram(p, "job_memory_ratio", "", &m->memory_ratio);
    single(p, "iterations_total", "counter", "Iterations of all jobs since the start.",
           (double)m->iterations);
    family(p, "reader_failures_total", "counter", "Scans that the reader refused or failed on.");
    for (int i = 0; i < m->reader_failure_count; i++) {
        snprintf(text, sizeof text, "reason=\"%s\"", m->reader_failures[i].reason);
        sample(p, "reader_failures_total", text, (double)m->reader_failures[i].count);
    }
}

/* Called gpu as everybody's dashboards do; the processor is one of them, by the name cpu. */
static void write_devices(page *p, const xpd_broker *b)
{
    const xpd_devices *devices = xpd_workers_devices(b);
    char name[96], text[160];

    family(p, "gpu_healthy", "gauge", "Whether jobs can run on the device (cpu included).");
    for (int i = 0; i < devices->count; i++) {
        snprintf(text, sizeof text, "gpu=\"%s\"", label(name, sizeof name, devices->items[i].name));
        sample(p, "gpu_healthy", text, xpd_set_serves(b, devices->items[i].name));
    }
    family(p, "gpu_memory_bytes", "gauge", "Memory of the device, at most some seconds old.");
    for (int i = 0; i < devices->count; i++) {
        const xpe_device_info *d = &devices->items[i];
        snprintf(text, sizeof text, "gpu=\"%s\",kind=\"total\"", label(name, sizeof name, d->name));
        sample(p, "gpu_memory_bytes", text, (double)d->bytes_total);
        snprintf(text, sizeof text, "gpu=\"%s\",kind=\"used\"", name);
        sample(p, "gpu_memory_bytes", text, (double)(d->bytes_total - d->bytes_free));
        snprintf(text, sizeof text, "gpu=\"%s\",kind=\"reserved\"", name);
        sample(p, "gpu_memory_bytes", text, (double)xpd_memory_reserved(b, d->name));
    }
    family(p, "gpu_busy_seconds_total", "counter", "Time during which a job held the device.");
    for (int i = 0; i < devices->count && i < 64; i++) {
        snprintf(text, sizeof text, "gpu=\"%s\"", label(name, sizeof name, devices->items[i].name));
        sample(p, "gpu_busy_seconds_total", text, b->metrics.device_busy_s[i]);
    }
    static const char *const reasons[XPD_RESTART_REASONS] = {
        "crash", "killed", "out-of-memory", "hang", "memory-growth", "preempted", "drain", "exit"};
    family(p, "worker_restarts_total", "counter", "Workers that ended and were replaced.");
    for (int i = 0; i < XPD_RESTART_REASONS; i++) {
        snprintf(text, sizeof text, "reason=\"%s\"", reasons[i]);
        sample(p, "worker_restarts_total", text, (double)b->metrics.restarts[i]);
    }
}

static void write_http(page *p, const xpd_broker *b)
{
    const xpd_metrics *m = &b->metrics;
    static const char *const reasons[] = {"end", "client", "timeout", "lag", "drain"};
    char text[192];

    single(p, "event_subscribers", "gauge", "Open event streams and long polls.",
           (double)xpd_streams_count(b));
    family(p, "stream_closed_total", "counter", "Event streams that ended, by reason.");
    for (int i = 0; i < XPD_CLOSED_REASONS; i++) {
        snprintf(text, sizeof text, "reason=\"%s\"", reasons[i]);
        sample(p, "stream_closed_total", text, (double)m->closed[i]);
    }
    family(p, "http_requests_total", "counter", "Requests that were answered.");
    for (int i = 0; i < m->request_count; i++) {
        const xpd_request_series *s = &m->requests[i];
        snprintf(text, sizeof text, "route=\"%s\",method=\"%s\",code=\"%u\"",
                 s->route < 0 ? "none" : xpd_routes[s->route].path, s->method, s->code);
        sample(p, "http_requests_total", text, (double)s->count);
    }
    family(p, "http_request_seconds", "histogram",
           "From the head of a request to the first byte of its answer.");
    for (size_t i = 0; i <= XPD_METRIC_ROUTES_MAX; i++) {
        bool none = i == XPD_METRIC_ROUTES_MAX;
        int64_t any = 0;
        for (int k = 0; k <= XPD_BUCKETS_MAX; k++)
            any += m->route_time[i].counts[k];
        if (any == 0 || (!none && i >= xpd_route_count))
            continue;
        /* a path may have several methods: they are routes of their own */
        snprintf(text, sizeof text, "route=\"%s\",method=\"%s\"",
                 none ? "none" : xpd_routes[i].path, none ? "" : xpd_routes[i].method);
        histogram(p, "http_request_seconds", text, &m->route_time[i]);
    }
    single(p, "http_connections", "gauge", "Open connections to the api.",
           xpd_http_open_connections(b->http));
    family(p, "http_dropped_total", "counter",
           "Connections closed before their request or answer was whole, or idle, by reason.");
    sample(p, "http_dropped_total", "reason=\"deadline\"",
           (double)m->dropped[XPD_DROPPED_DEADLINE]);
    sample(p, "http_dropped_total", "reason=\"room\"", (double)m->dropped[XPD_DROPPED_ROOM]);
    single(p, "http_rate_limited_total", "counter", "Requests answered 429 by limits.rate.",
           (double)m->rate_limited);
}

static void write_service(page *p, xpd_broker *b)
{
    char version[64], build[300], text[500];

    family(p, "loop_lag_seconds", "histogram",
           "How long the event loop was away from waiting, each time.");
    histogram(p, "loop_lag_seconds", "", &b->metrics.loop_lag);
    family(p, "db_commit_seconds", "histogram", "How long a commit of the state took.");
    histogram(p, "db_commit_seconds", "", &b->metrics.commit);
    single(p, "state_disk_free_bytes", "gauge", "Free space of the disk of the state folder.",
           (double)xpd_disk_free(b));
    single(p, "draining", "gauge", "1 while no new work is taken.", b->draining || b->stopping);
    family(p, "config_reloads_total", "counter", "Reloads of the configuration.");
    sample(p, "config_reloads_total", "outcome=\"done\"", (double)b->metrics.reloads);
    sample(p, "config_reloads_total", "outcome=\"refused\"", (double)b->metrics.reloads_failed);
    family(p, "build_info", "gauge", "What runs; always 1.");
    snprintf(text, sizeof text, "version=\"%s\",commit=\"%s\",build=\"%s\"",
             label(version, sizeof version, xpp_version()), XPTYCHOD_COMMIT,
             label(build, sizeof build, b->workers[0]->build));
    sample(p, "build_info", text, 1);
}

void xpd_get_metrics(xpd_request *r)
{
    char *text = NULL;
    size_t length = 0;
    page p = {open_memstream(&text, &length)};
    struct MHD_Response *response = NULL;

    if (p.out) {
        write_jobs(&p, r->b);
        write_devices(&p, r->b);
        write_http(&p, r->b);
        write_service(&p, r->b);
        if (fclose(p.out) == 0)
            response =
                xpd_response_text(text, length, false, "text/plain; version=0.0.4; charset=utf-8");
    }
    free(text);
    if (response)
        xpd_reply(r, MHD_HTTP_OK, response);
    else
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
}
