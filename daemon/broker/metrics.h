/* Counters and histograms for GET /metrics, in the text form of Prometheus.
 *
 * Labels are taken from closed sets (routes, states, reasons, devices), never from a job, a user or
 * a path, so that the number of series is bounded.  Loop thread only. */
#ifndef XPD_METRICS_H
#define XPD_METRICS_H

#include <stdint.h>

#define XPD_BUCKETS_MAX 16
#define XPD_METRIC_ROUTES_MAX 64
#define XPD_REQUEST_SERIES_MAX 512

typedef struct xpd_histogram {
    const double *bounds; /* upper ends, seconds; ended by 0 */
    int64_t counts[XPD_BUCKETS_MAX + 1];
    double sum;
} xpd_histogram;

/* Why an event stream ended. */
typedef enum xpd_closed {
    XPD_CLOSED_END, /* all was sent */
    XPD_CLOSED_CLIENT,
    XPD_CLOSED_TIMEOUT,
    XPD_CLOSED_LAG,
    XPD_CLOSED_DRAIN,
    XPD_CLOSED_REASONS
} xpd_closed;

/* Why a connection was closed in the middle of something. */
typedef enum xpd_dropped {
    XPD_DROPPED_DEADLINE, /* head, body, or reading of an answer took too long */
    XPD_DROPPED_ROOM,     /* another took its place */
    XPD_DROPPED_REASONS
} xpd_dropped;

/* Why a worker ended and was replaced. */
typedef enum xpd_restart {
    XPD_RESTART_CRASH,  /* a signal of its own */
    XPD_RESTART_KILLED, /* by somebody else, or for a message that breaks the rules */
    XPD_RESTART_OOM,    /* the system was out of memory */
    XPD_RESTART_HANG,   /* no answer, or no progress */
    XPD_RESTART_MEMORY, /* it kept memory between jobs */
    XPD_RESTART_YIELD,  /* its job made room for a live one */
    XPD_RESTART_DRAIN,  /* an administrator drained the service */
    XPD_RESTART_EXIT,   /* it left by itself */
    XPD_RESTART_REASONS
} xpd_restart;

typedef struct xpd_request_series {
    int route; /* index, -1 = none matched */
    const char *method;
    unsigned code;
    int64_t count;
} xpd_request_series;

typedef struct xpd_finished_series {
    char state[16], reason[32];
    int64_t count;
} xpd_finished_series;

typedef struct xpd_metrics {
    int64_t submitted[4]; /* by class */
    int64_t iterations, rate_limited, reloads, reloads_failed;
    xpd_histogram queue_wait, job_run, loop_lag, commit;
    xpd_histogram memory_ratio; /* taken by what was planned; not seconds */
    xpd_histogram route_time[XPD_METRIC_ROUTES_MAX + 1]; /* the last: no route matched */
    xpd_request_series requests[XPD_REQUEST_SERIES_MAX];
    int request_count;
    xpd_finished_series finished[64];
    int finished_count;
    int64_t closed[XPD_CLOSED_REASONS], dropped[XPD_DROPPED_REASONS];
    xpd_finished_series reader_failures[32]; /* state unused */
    int reader_failure_count;
    int64_t restarts[XPD_RESTART_REASONS];
    double device_busy_s[64]; /* by index in the list of devices */
    int64_t busy_ms;          /* when that was last looked at */
} xpd_metrics;

struct xpd_broker;
struct xpd_job;
struct xpd_request;

void xpd_metrics_init(xpd_metrics *m);
void xpd_metrics_commit(void *metrics, double seconds); /* for xpd_store_observe */
void xpd_histogram_add(xpd_histogram *h, double seconds);
/* A job of that state had another before (NULL = it is new). */
void xpd_metrics_job(struct xpd_broker *b, const struct xpd_job *job, const char *before);
void xpd_metrics_request(xpd_metrics *m, int route, const char *method, unsigned code,
                         double seconds);
void xpd_metrics_reader_failed(xpd_metrics *m, const char *type); /* suffix of the problem */
void xpd_metrics_tick(struct xpd_broker *b);                      /* once a second */
/* GET /metrics */
void xpd_get_metrics(struct xpd_request *r);

#endif
