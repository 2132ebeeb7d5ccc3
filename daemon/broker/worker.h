/* The resident workers: started at once, asked whether they live, replaced when they died.  Each
 * has a device set of its own (sets.h): with several on the CPU each has its share of the cores;
 * GPUs have xptycho-worker-cuda.  What they run is in run.c.  Loop thread only. */
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
    bool gpu;            /* its program is xptycho-worker-cuda */
    struct xpd_run *run; /* the job that holds it, or NULL; of sets in a group, their leader's */
    cpu_set_t cores;     /* its share */
    bool ready;          /* it said hello and is not about to leave */
    bool heard;          /* this process said hello */
    xpd_devices devices; /* of its set: as said last, their memory of the last answer */
    char build[256];
    xpd_timer restart, ping;
    int64_t backoff_ms, started_ms;
    int64_t pings_open; /* sent and not answered */
    int64_t beat;       /* of the last pong: grows while the engine moves */
    char ended_for[96]; /* why we ended it: "did not answer for 60 s"; "" = we did not */
    bool asked;         /* one of them out of turn */
    int64_t restarts;

    /* sets.c */
    uint64_t group;  /* the sets that its process is to serve; 0 = another one's serves this set */
    uint64_t serves; /* those that its process was started for; 0 = none runs */
    bool scout;      /* nobody has said yet which GPUs there are: its process looks at all */
    bool leaving; /* told to leave, since its sets are grouped anew or nothing of them is usable */
    bool resting; /* not to be started for a while */
    bool rested;  /* the log has said why */
    int mute;     /* processes in a row that ended without a word */
    int strikes;  /* devices lost in a row */
    bool drained; /* too many: not started until somebody says so */
} xpd_worker;

bool xpd_workers_create(xpd_broker *b, xpd_error *err);
void xpd_workers_destroy(xpd_broker *b);     /* after their processes ended */
bool xpd_workers_alive(const xpd_broker *b); /* any */
/* For sets.c: one more, not started; NULL when there is no room. */
xpd_worker *xpd_worker_add(xpd_broker *b, bool gpu);
/* For sets.c: starts its process, if its sets are free. */
void xpd_worker_start(xpd_worker *worker);
/* Asks for the memory of its devices now; the answer comes by itself.  It is asked every few
 * seconds anyhow. */
void xpd_worker_ask(xpd_worker *worker);
/* Lets them leave (busy: only those that run a job); SIGKILL when one has not within delay_ms. */
void xpd_worker_quit(xpd_worker *worker, int64_t delay_ms);
void xpd_workers_quit(xpd_broker *b, bool busy, int64_t delay_ms);
void xpd_workers_kill(xpd_broker *b);
int xpd_workers_ready(const xpd_broker *b); /* how many */
/* Every device of the node, once each; `known` when every kind has been asked.  In assign.c. */
const xpd_devices *xpd_workers_devices(const xpd_broker *b);
/* Threads of a job that wants that many (0 = all) on this worker. */
int64_t xpd_worker_threads(const xpd_worker *worker, int64_t wanted);

#endif
