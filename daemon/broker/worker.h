/* The resident worker: started at once, asked whether it lives, replaced when it died.  What it
 * runs is in run.c.  Loop thread only. */
#ifndef XPD_WORKER_H
#define XPD_WORKER_H

#include "broker.h"
#include "device.h"
#include "supervise.h"

typedef struct xpd_worker {
    xpd_child child;
    bool ready;          /* it said hello */
    xpd_devices devices; /* of the last hello */
    char build[256];
    xpd_timer restart, ping;
    int64_t backoff_ms, started_ms;
    int64_t pings_open; /* sent and not answered */
    int64_t restarts;
} xpd_worker;

bool xpd_worker_create(xpd_broker *b);
void xpd_worker_destroy(xpd_worker *worker); /* after its process ended */
bool xpd_worker_alive(const xpd_worker *worker);
/* Lets it leave; SIGKILL when it has not within delay_ms. */
void xpd_worker_quit(xpd_worker *worker, int64_t delay_ms);

#endif
