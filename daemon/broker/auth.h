/* Who is asking: a bearer token, else the peer's uid on the unix socket.
 *
 * Tokens are kept as SHA-256 and compared in constant time.  Loop thread only. */
#ifndef XPD_AUTH_H
#define XPD_AUTH_H

#include "fault.h"

#include <stdint.h>
#include <sys/types.h>

typedef struct xpd_caller {
    uid_t uid;
    char user[64]; /* name of the uid, or its number */
} xpd_caller;

typedef struct xpd_auth xpd_auth;

/* System mode: lines `name:user-or-uid:sha256 in hex`, '#' comments; a missing path means no
 * tokens. */
bool xpd_auth_load(xpd_auth **out, const char *path, xpd_error *err);
/* --user: the token in `path` (mode 0600), made when there is no good one. */
bool xpd_auth_user(xpd_auth **out, const char *path, xpd_error *err);
void xpd_auth_destroy(xpd_auth *auth);
/* `authorization` is the header (NULL = none), fd the peer's socket (-1 = TCP).
 * On refusal err holds the fault UNAUTHENTICATED. */
bool xpd_auth_check(const xpd_auth *auth, xpd_caller *out, const char *authorization, int fd,
                    xpd_error *err);
void xpd_user_name(char *out, size_t size, uid_t uid);
/* Lower-case hex SHA-256 of data, 65 bytes. */
void xpd_sha256_hex(char out[65], const void *data, size_t length);

#endif
