/* Event streams (a cursor and an encoding each) and long polls.  Loop thread only. */
#ifndef XPD_STREAM_H
#define XPD_STREAM_H

#include "broker.h"
#include "request.h"

typedef struct xpd_stream xpd_stream;
typedef struct xpd_wait xpd_wait;

/* New events of the job (or, job NULL, only the feed of all jobs): wakes readers within 10 ms. */
void xpd_streams_notify(xpd_broker *b, const xpd_job *job);
/* Heartbeats and expired long polls; once a second. */
void xpd_streams_tick(xpd_broker *b);
/* Lets every stream and long poll end; b->closing must be set. */
void xpd_streams_end(xpd_broker *b);
bool xpd_streams_none(const xpd_broker *b);
int64_t xpd_streams_count(const xpd_broker *b); /* long polls included */
typedef struct xpd_stream_counts {
    int64_t all, user, job; /* of everybody, of the user, of the user on the job */
} xpd_stream_counts;
void xpd_streams_of(const xpd_broker *b, uid_t uid, const xpd_job *job, xpd_stream_counts *out);
/* Whether the user may open one more on the job (NULL = on all); else err is UNAVAILABLE. */
bool xpd_streams_admit(const xpd_broker *b, uid_t uid, const xpd_job *job, xpd_error *err);

/* GET /v1/jobs/{id}/events and GET /v1/events; job NULL for the latter. */
void xpd_stream_open(xpd_request *r, xpd_job *job);

/* Suspends the request until the job's rev is no longer `rev` or wait_s have passed, then calls
 * answer. */
void xpd_wait_open(xpd_request *r, xpd_job *job, int64_t wait_s,
                   void (*answer)(xpd_request *r, xpd_job *job));
void xpd_waits_notify(xpd_broker *b, const xpd_job *job);

#endif
