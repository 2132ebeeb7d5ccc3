/* What past runs tell the scheduler: seconds an iteration by the shape of a job, and how much each
 * user has had.  Kept in memory and, as notes, in the database.  Loop thread only. */
#ifndef XPD_HISTORY_H
#define XPD_HISTORY_H

#include "store.h"

#include <sys/types.h>

#define XPD_HALF_LIFE_MS (6.0 * 60 * 60 * 1000) /* of what a user has had */
#define XPD_LENGTH_FACTOR 1.5 /* from what was measured to what is reckoned with */
#define XPD_TIMINGS_MAX 1024

typedef struct xpd_shape {
    char kind[32]; /* of its devices, their number and threads: "cpu 1 2" */
    int64_t frames, side, modes;
} xpd_shape;

typedef struct xpd_timing {
    xpd_shape shape;
    double iteration_s, rest_s; /* an iteration; reading and writing together */
    int64_t count, t_ms;        /* count 0: of a run that has not ended, see xpd_history_glimpse */
} xpd_timing;

typedef struct xpd_account {
    int64_t uid;
    double used_s; /* decayed to t_ms */
    int64_t t_ms;  /* wall clock, so that it survives a restart */
} xpd_account;

typedef struct xpd_history {
    xpd_timing *timings;
    size_t timing_count;
    xpd_account *accounts; /* by uid */
    size_t account_count, account_room;
} xpd_history;

/* Also the callback of xpd_store_notes. */
void xpd_history_take(void *history, const xpd_note *note);
void xpd_history_release(xpd_history *history);

/* A finished run; *note (may be NULL) is to be kept. */
void xpd_history_learn(xpd_history *history, const xpd_shape *shape, double iteration_s,
                       double rest_s, int64_t now_ms, xpd_note *note);
/* What a run tells that has not ended: taken where none of that very shape has, until one does. */
void xpd_history_glimpse(xpd_history *history, const xpd_shape *shape, double iteration_s,
                         int64_t now_ms);
/* Seconds that the iterations take and the rest, without the factor: of the shape itself, else
 * scaled from the nearest one of the same devices.  false = nothing is known. */
bool xpd_history_guess(const xpd_history *history, const xpd_shape *shape, double *iteration_s,
                       double *rest_s);

void xpd_history_charge(xpd_history *history, uid_t uid, double seconds, int64_t now_ms,
                        xpd_note *note);
double xpd_history_used(const xpd_history *history, uid_t uid, int64_t now_ms);

#endif
