/* Token buckets: how fast one user may change things.
 *
 * A fixed number of buckets: a user that was idle long enough has a full one, which needs no
 * memory, so only active users are remembered.  Loop thread only. */
#ifndef XPD_RATE_H
#define XPD_RATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define XPD_RATE_USERS 256

typedef struct xpd_rate {
    struct {
        bool used;
        uid_t uid;
        double left;
        int64_t at_ms;
    } buckets[XPD_RATE_USERS];
} xpd_rate;

/* Takes one from the user's bucket, which holds `burst` and gains `per_s` a second.  0 = allowed,
 * else the seconds to wait. */
int xpd_rate_take(xpd_rate *rate, uid_t uid, int64_t per_s, int64_t burst, int64_t now_ms);
/* What is in the bucket. */
int64_t xpd_rate_left(const xpd_rate *rate, uid_t uid, int64_t per_s, int64_t burst,
                      int64_t now_ms);

#endif
