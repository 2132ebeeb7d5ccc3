/* The state of a run, for run.c (from the queue to the worker, cancel, watch) and report.c (what
 * the worker says of it). */
#ifndef XPD_RUN_OWN_H
#define XPD_RUN_OWN_H

#include "reader.h"
#include "run.h"
#include "worker.h"

typedef enum xpd_stop_cause {
    XPD_GO_ON,
    XPD_STOP_CANCEL,
    XPD_STOP_DEADLINE,
    XPD_STOP_SHUTDOWN,
    XPD_STOP_YIELD
} xpd_stop_cause;

typedef struct xpd_run xpd_run;
struct xpd_run {
    xpd_broker *b;
    xpd_worker *w;
    xpd_job *job; /* reference */
    xpp_job *decoded;
    json_t *resolved;
    xpd_choice choice;
    xpd_reading *reading; /* not NULL: the reader is at work */
    bool waiting;         /* for the worker, which starts; else that is at work */
    xpp_ipc_message scan; /* owned meanwhile */
    bool repeated;        /* an earlier attempt may have reported iterations */
    bool resumed;         /* not the first attempt: its time says little */
    xpd_stop_cause stop;
    char by[64];
    double limit_s;   /* the most that it may run; 0 = no limit */
    bool class_limit; /* that is its class's */
    xpd_timer deadline, grace, patience;
    xpd_pace pace;
    struct {
        int64_t stage, iter, from_ms, next_ms; /* next_ms: when it is looked at again */
    } speed;                                   /* since its first iteration of this stage */
};

/* The only way out of a run, which is freed. */
void xpd_run_leave(xpd_run *run, xpd_state state, const char *reason, const char *detail);
/* The same for one that was told to stop: by its cause. */
void xpd_run_leave_stopped(xpd_run *run);

#endif
