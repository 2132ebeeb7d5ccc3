/* Between the queue and the scheduler: tells it what waits, runs and is free, starts what it
 * chooses, and keeps what it says about the others.  Loop thread only. */
#ifndef XPD_DISPATCH_H
#define XPD_DISPATCH_H

#include "broker.h"

/* Once a turn, before anything looks at how long jobs have waited or run. */
void xpd_clock_follow(xpd_broker *b);
/* Something changed that may let a job start or change the order. */
void xpd_dispatch_due(xpd_broker *b);
/* Once a turn of the loop: starts what can start. */
void xpd_dispatch(xpd_broker *b);
/* Why the job waits, as clients see it (new reference); NULL when it does not. */
json_t *xpd_dispatch_pending(xpd_broker *b, const xpd_job *job);
/* Brings the queue into the order of starting. */
void xpd_dispatch_refresh(xpd_broker *b);
/* Whether the device set takes live jobs alone. */
bool xpd_set_kept_for_live(const xpd_broker *b, int set);
/* What an ended run teaches. */
void xpd_dispatch_learn(xpd_broker *b, const xpd_job *job, int64_t threads, bool whole);
/* What one teaches that goes on. */
void xpd_dispatch_glimpse(xpd_broker *b, const xpd_job *job, int64_t threads, double iteration_s);

#endif
