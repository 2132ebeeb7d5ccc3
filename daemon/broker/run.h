/* The job that holds a worker: from the queue through reader and worker to its end.  One a worker.
 * Loop thread only. */
#ifndef XPD_RUN_H
#define XPD_RUN_H

#include "broker.h"

#define XPD_YIELDS_MAX 3 /* times that a job makes room for others */

struct xpd_worker;

/* Starts a waiting job on a worker that is free. */
void xpd_run_start(struct xpd_worker *worker, xpd_job *job);
/* Messages of the worker; false when they break the rules. */
bool xpd_run_events(struct xpd_worker *worker, const json_t *body);
bool xpd_run_done(struct xpd_worker *worker, const json_t *body);
/* Once a second: ends a worker whose job stands still. */
void xpd_run_look(struct xpd_worker *worker, int64_t now_ms);
/* Its engine moves, whatever it is at. */
void xpd_run_sign(struct xpd_worker *worker);
void xpd_run_worker_died(struct xpd_worker *worker, const char *how);
void xpd_run_worker_ready(struct xpd_worker *worker); /* it can take a job */

/* Cancels a job in any state; true when it will end or has ended. */
void xpd_job_cancel(xpd_broker *b, xpd_job *job, const char *by);
/* Whether the worker's job may make room; *leaving = it is about to. */
bool xpd_run_yields(const struct xpd_worker *worker, bool *leaving);
/* Its job goes back to the queue, with a checkpoint. */
void xpd_run_yield(struct xpd_worker *worker);
/* The service stops: the job goes back to the queue. */
void xpd_run_shutdown(xpd_broker *b);
int xpd_runs(const xpd_broker *b);                     /* how many */
xpd_job *xpd_run_job(const struct xpd_worker *worker); /* or NULL */
/* Whether the worker's job runs on the device of that name. */
bool xpd_run_uses(const struct xpd_worker *worker, const char *device);

#endif
