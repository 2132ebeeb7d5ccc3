/* Sessions of browsers, and the one-time links that open them.
 *
 * A link's code and a session's cookie are 256 random bits of which only the SHA-256 is kept, in
 * memory alone: a restart ends them all.  Both carry the rights of who made them, or fewer, and
 * those of a token end with the token.  Times are of the clock that only moves forward.  Loop
 * thread only. */
#ifndef XPD_SESSION_H
#define XPD_SESSION_H

#include "auth.h"

#define XPD_SESSIONS_MAX 512
#define XPD_SESSIONS_USER 32 /* of each kind and user; one more takes the place of the oldest */
#define XPD_SECRET_SIZE 65   /* hex and the final zero */

typedef enum xpd_session_kind {
    XPD_SESSION_NONE,
    XPD_SESSION_LINK, /* a code that opens a session, once */
    XPD_SESSION_OPEN
} xpd_session_kind;

typedef struct xpd_session {
    xpd_session_kind kind; /* NONE = a free place */
    char id[XPP_JOB_ID_SIZE];
    uint8_t sha[32];
    xpd_caller maker;                    /* who made it, with the scope that it has */
    int64_t number, made_ms, expires_ms; /* number: in the order of making */
} xpd_session;

typedef struct xpd_sessions {
    xpd_session items[XPD_SESSIONS_MAX];
    int64_t made;
} xpd_sessions;

/* The code or cookie goes to secret; NULL and err when there are too many. */
xpd_session *xpd_session_make(xpd_sessions *all, xpd_session_kind kind, const xpd_caller *maker,
                              xpd_scope scope, int64_t ttl_ms, int64_t now_ms,
                              char secret[XPD_SECRET_SIZE], xpd_error *err);
/* NULL where there is none of that kind or it is over.  Every place is compared, so that the time
 * does not say where it matched. */
xpd_session *xpd_session_find(xpd_sessions *all, xpd_session_kind kind, const char *secret,
                              int64_t now_ms);
/* Who is asking with it; false where the token that made it is gone or over. */
bool xpd_session_caller(const xpd_session *session, const xpd_auth *auth, xpd_caller *out,
                        xpd_error *err);
/* By its id; NULL where it is not there or over. */
xpd_session *xpd_session_by_id(xpd_sessions *all, const char *id, int64_t now_ms);
bool xpd_session_alive(const xpd_session *session, int64_t now_ms);
void xpd_session_end(xpd_session *session);

#endif
