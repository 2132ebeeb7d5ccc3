/* The resident workers: started at once, asked whether they live, replaced when they died.  Each is
 * a device set of its own: with several on the CPU each has its share of the cores.  What they run
 * is in run.c.  Loop thread only. */
#ifndef XPD_WORKER_H
#define XPD_WORKER_H

#include "broker.h"
#include "device.h"
#include "supervise.h"

#include <sched.h>

struct xpd_run;

typedef struct xpd_worker {
    xpd_child child;
    int index;           /* in the broker's list; the scheduler's set */
    struct xpd_run *run; /* the job that holds it, or NULL */
    cpu_set_t cores;     /* its share */
    bool ready;          /* it said hello */
    xpd_devices devices; /* of the last hello, their memory of the last answer */
    char build[256];
    xpd_timer restart, ping;
    int64_t backoff_ms, started_ms;
    int64_t pings_open; /* sent and not answered */
    int64_t beat;       /* of the last pong: grows while the engine moves */
    char ended_for[96]; /* why we ended it: "did not answer for 60 s"; "" = we did not */
    bool asked;         /* one of them out of turn */
    int64_t restarts;
} xpd_worker;

bool xpd_workers_create(xpd_broker *b);
void xpd_workers_destroy(xpd_broker *b);     /* after their processes ended */
bool xpd_workers_alive(const xpd_broker *b); /* any */
/* Asks for the memory of its devices now; the answer comes by itself.  It is asked every few
 * seconds anyhow. */
void xpd_worker_ask(xpd_worker *worker);
/* Lets them leave (busy: only those that run a job); SIGKILL when one has not within delay_ms. */
void xpd_worker_quit(xpd_worker *worker, int64_t delay_ms);
void xpd_workers_quit(xpd_broker *b, bool busy, int64_t delay_ms);
void xpd_workers_kill(xpd_broker *b);
int xpd_workers_ready(const xpd_broker *b); /* how many */
/* Of a ready worker, else of one that has said hello, else of none (`known` is false). */
const xpd_devices *xpd_workers_devices(const xpd_broker *b);
/* Those that have the devices of a job, a bit each. */
uint64_t xpd_workers_for(const xpd_broker *b, const xpd_job *job);
/* Threads of a job that wants that many (0 = all) on this worker. */
int64_t xpd_worker_threads(const xpd_worker *worker, int64_t wanted);

#endif
