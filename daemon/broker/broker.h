/* The broker's whole state.  One thread, the loop, reads and writes all of it; modules take it as
 * their first argument, `b`. */
#ifndef XPD_BROKER_H
#define XPD_BROKER_H

#include "auth.h"
#include "config.h"
#include "history.h"
#include "loop.h"
#include "metrics.h"
#include "owners.h"
#include "queue.h"
#include "rate.h"
#include "session.h"
#include "store.h"
#include "watch.h"

#include <limits.h>

struct xpd_http;
struct xpd_stream;
struct xpd_wait;
struct xpd_submission;
struct xpd_reading;
struct xpd_worker;
struct xpd_run;
struct xpd_bridge;
struct xpd_downloads;

#define XPD_WORKERS_MAX 48

/* State changes of all jobs, for GET /v1/events: the newest lines with their owner. */
#define XPD_FEED_RING 2048
typedef struct xpd_feed_line {
    uid_t uid;
    char *line; /* JSON with newline, `job` included */
} xpd_feed_line;

typedef struct xpd_broker {
    xpd_config config;
    int argc; /* of the command line, which a reload reads again */
    char **argv;
    xpd_metrics metrics;
    xpd_rate rate;
    xpd_loop loop;
    xpd_auth *auth;
    xpd_sessions sessions;

    xpd_store *store;
    xpd_source store_source;
    xpd_timer store_retry;
    xpd_timer prune;
    int64_t trimmed_ms; /* when free memory went back to the system */
    int ballast;        /* descriptor of the file that is given up when the disk is full, or -1 */
    bool ballast_given; /* the disk was full; no new work until the file is there again */
    bool state_full;    /* the last commit found the disk full */
    int64_t state_free; /* bytes, looked up now and then */

    xpd_table jobs;
    xpd_queue queue, held;
    xpd_history history;
    xpd_owners owners;
    int64_t host_total, host_free; /* memory of this machine as a worker said last; 0 = not yet */
    bool dispatch_due;             /* a job may be able to start */
    bool explained; /* the queue is in the order of starting, and each job knows why it waits */
    int64_t dispatched_ms, explained_ms, memory_asked_ms;
    int64_t clock_ms; /* the wall clock less the monotonic one; 0 = not looked at yet */

    struct xpd_http *http;
    bool http_due;  /* a connection was resumed: the library must run before the next wait */
    int64_t parked; /* requests whose answer comes later */
    struct xpd_stream *streams; /* all open event streams */
    xpd_timer stream_timer;
    int64_t stream_round;              /* of waking them */
    struct xpd_wait *waits;            /* long polls */
    xpd_feed_line feed[XPD_FEED_RING]; /* line number k at k % size */
    int64_t feed_next;

    struct xpd_submission *submissions; /* not answered yet */
    bool submissions_stored;            /* some of them are on disk and to be answered */
    struct xpd_reading *probes_waiting; /* for a place among those that run */
    xpd_timer probe_start;
    int probes;                                  /* that run and count */
    int readers_lost;                            /* killed, and not dead yet */
    struct xpd_worker *workers[XPD_WORKERS_MAX]; /* each a device set of its own */
    int worker_count;
    xpd_watch watch;
    struct xpd_bridge *bridge;       /* xptycho-zmq, or NULL */
    struct xpd_downloads *downloads; /* results on their way to clients; NULL = none yet */

    bool ready;             /* state loaded, listening */
    bool addresses_changed; /* ready.json has to be written again */
    bool draining;          /* an administrator wants no new work */
    bool stopping;          /* no new work */
    bool closing;           /* streams and long polls end */
    bool failed;            /* the state cannot be trusted: exit 1 */
    char results_dir[PATH_MAX], jobs_dir[PATH_MAX];
} xpd_broker;

#endif
