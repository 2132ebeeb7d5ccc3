/* Who is asking, and what for: a bearer token, else the peer's uid on the unix socket.
 *
 * Tokens are kept as SHA-256 and compared in constant time.  Loop thread only. */
#ifndef XPD_AUTH_H
#define XPD_AUTH_H

#include "fault.h"
#include "schedule.h"

#include <stdint.h>
#include <sys/types.h>

/* Each holds those before it: who may submit may read. */
typedef enum xpd_scope {
    XPD_SCOPE_NONE,
    XPD_SCOPE_READ,   /* see one's own jobs */
    XPD_SCOPE_SUBMIT, /* and make, change, cancel and delete them */
    XPD_SCOPE_ADMIN   /* and do all this with everybody's */
} xpd_scope;

typedef struct xpd_caller {
    uid_t uid;
    char user[64]; /* name of the uid, or its number */
    xpd_scope scope;
    char token[64];                /* name of the token, "" = the peer of the unix socket */
    int64_t expires_ms;            /* 0 = never */
    xpd_class class_most;          /* the highest class that the token is for; see people.h */
    uint8_t token_sha[32];         /* where token is not "" */
    char session[XPP_JOB_ID_SIZE]; /* id of the browser's session, "" = none */
} xpd_caller;

typedef struct xpd_auth xpd_auth;

/* System mode: lines `name:user-or-uid:sha256 in hex[:scopes[:expiry]]`, '#' comments; path NULL
 * means no tokens.  Scopes are read, submit, admin with commas between (default submit), and among
 * them may be class=live|normal|batch|scavenger, the highest class of the token's jobs; the expiry
 * is a day or a second of UTC, 2027-01-31 or 2027-01-31T18:00:00Z. */
bool xpd_auth_load(xpd_auth **out, const char *path, xpd_error *err);
/* --user: the token in `path` (mode 0600), made when there is no good one. */
bool xpd_auth_user(xpd_auth **out, const char *path, xpd_error *err);
void xpd_auth_destroy(xpd_auth *auth);
/* `authorization` is the header (NULL = none), fd the peer's socket (-1 = TCP).
 * On refusal err holds the fault UNAUTHENTICATED. */
bool xpd_auth_check(const xpd_auth *auth, xpd_caller *out, const char *authorization, int fd,
                    xpd_error *err);
/* Who was let in by a token before has what is left of its rights; false, UNAUTHENTICATED, where
 * the token is gone or over. */
bool xpd_auth_renew(const xpd_auth *auth, xpd_caller *caller, xpd_error *err);
/* Whether the caller may see and do with jobs of that user what its scope allows. */
bool xpd_caller_sees(const xpd_caller *caller, uid_t owner);
const char *xpd_scope_name(xpd_scope scope);
void xpd_user_name(char *out, size_t size, uid_t uid);
bool xpd_user_find(uid_t *out, const char *user); /* by name or number */
/* Lower-case hex SHA-256 of data, 65 bytes. */
void xpd_sha256_hex(char out[65], const void *data, size_t length);

#endif
