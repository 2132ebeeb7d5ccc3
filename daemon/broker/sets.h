/* Device sets.  A set is what one job at a time holds: a share of the CPU, or some GPUs.  Each has
 * a worker, b->workers[i], and is bit i of a mask.
 *
 * Groups: a job that wants more GPUs than a set has takes several sets.  Their workers leave, and
 * the first of them starts anew with the GPUs of all.  The sets stay together until somebody needs
 * them otherwise; then that worker leaves and each set has its own again.  A set whose worker
 * serves others as well, or that another one's worker serves, is led by that worker.
 *
 * Out of service: a set whose worker lost a device three times in a row is drained; one whose GPUs
 * cannot be used, or whose worker cannot even start, is asked again every few minutes.
 *
 * Loop thread only. */
#ifndef XPD_SETS_H
#define XPD_SETS_H

#include "worker.h"

/* Makes the sets and starts their workers. */
bool xpd_sets_create(xpd_broker *b, xpd_error *err);

struct xpd_worker *xpd_set_leader(const xpd_broker *b, int set);
bool xpd_set_up(const xpd_broker *b, int set);      /* a job can start there */
xpd_job *xpd_set_job(const xpd_broker *b, int set); /* that holds it, or NULL */
bool xpd_set_usable(const xpd_broker *b, int set);  /* has a device, even if its worker starts */
int xpd_set_devices(const xpd_broker *b, int set);  /* usable ones */
bool xpd_set_serves(const xpd_broker *b, const char *device); /* one that is up has it */
/* Puts the sets, which are free, under one worker, which is returned; it may have to start. */
struct xpd_worker *xpd_sets_join(xpd_broker *b, uint64_t sets);

/* For worker.c.  hello: false when it breaks the contract. */
bool xpd_sets_hello(struct xpd_worker *worker, const json_t *body);
bool xpd_sets_pong(struct xpd_worker *worker, const json_t *body);
/* Starts and stops workers as the groups want it. */
void xpd_sets_settle(xpd_broker *b);
/* Whether the worker may start: its sets are its own and no process that leaves holds them. */
bool xpd_sets_free(const struct xpd_worker *worker);
/* Its processes end before they say anything. */
void xpd_sets_silent(struct xpd_worker *worker, const char *how);
/* "cuda:0,cuda:2": what a process of the worker is to serve. */
void xpd_sets_list(char *out, size_t size, const struct xpd_worker *worker);

/* A worker lost a device ("" = nobody knows which): its process leaves.  Counts. */
void xpd_sets_lost(struct xpd_worker *worker, const char *device, const char *how);
void xpd_sets_worked(struct xpd_worker *worker); /* a job succeeded there */
/* Sets that were drained are tried again; how many there were. */
int xpd_sets_undrain(xpd_broker *b);

#endif
