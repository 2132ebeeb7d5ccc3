/* Events on their way to the broker: engine and writer thread put them in, the control thread takes
 * them out in batches.  Nothing is dropped: who is too fast waits. */
#ifndef XPD_OUTBOX_H
#define XPD_OUTBOX_H

#include "events.h"

#define XPD_OUTBOX_INTERVAL_S 0.05 /* between messages of events: at most 20 a second */
#define XPD_OUTBOX_ROOM 8192       /* events that may wait */
#define XPD_OUTBOX_BATCH 2000      /* events in one message, far below XPP_IPC_JSON_MAX */

typedef struct xpd_outbox xpd_outbox;

/* wake is an eventfd that is written to when something comes in; borrowed. */
xpd_outbox *xpd_outbox_create(int wake);
void xpd_outbox_destroy(xpd_outbox *outbox);
/* Its emit may be called by any thread and waits while the box is full. */
xpd_events xpd_outbox_events(xpd_outbox *outbox);
/* Ends all waiting; what comes from now on is let go, as there is nobody to read it. */
void xpd_outbox_close(xpd_outbox *outbox);

/* The oldest events, at most XPD_OUTBOX_BATCH, as a new array; NULL when there is none, or when the
 * last batch left less than XPD_OUTBOX_INTERVAL_S ago and `now` is false.  now_s is the caller's
 * clock. */
json_t *xpd_outbox_take(xpd_outbox *outbox, double now_s, bool now);
/* Seconds until a batch may leave: 0 = at once, negative = nothing is waiting. */
double xpd_outbox_due(xpd_outbox *outbox, double now_s);

#endif
