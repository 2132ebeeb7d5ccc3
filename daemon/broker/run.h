/* The job that holds the worker: from the queue through reader and worker to its end.  One at a
 * time. Loop thread only. */
#ifndef XPD_RUN_H
#define XPD_RUN_H

#include "broker.h"

/* Starts the head of the queue when the worker is free. */
void xpd_run_next(xpd_broker *b);
/* Messages of the worker; false when they break the rules. */
bool xpd_run_events(xpd_broker *b, const json_t *body);
bool xpd_run_done(xpd_broker *b, const json_t *body);
void xpd_run_worker_died(xpd_broker *b, const char *how);

/* Cancels a job in any state; true when it will end or has ended. */
void xpd_job_cancel(xpd_broker *b, xpd_job *job, const char *by);
/* The service stops: the job goes back to the queue. */
void xpd_run_shutdown(xpd_broker *b);
xpd_job *xpd_run_job(const xpd_broker *b); /* or NULL */
/* Whether the job runs on the device of that name. */
bool xpd_run_uses(const xpd_broker *b, const char *device);

#endif
