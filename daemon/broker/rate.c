/* See rate.h. */
#include "rate.h"

/* The user's bucket, else the one that has been idle for longest: its user loses what was missing
 * from a full bucket, which matters only with more active users than buckets. */
static int find(const xpd_rate *rate, uid_t uid)
{
    int oldest = 0;
    for (int i = 0; i < XPD_RATE_USERS; i++) {
        if (rate->buckets[i].used && rate->buckets[i].uid == uid)
            return i;
        if (!rate->buckets[i].used)
            oldest = i;
        else if (rate->buckets[oldest].used && rate->buckets[i].at_ms < rate->buckets[oldest].at_ms)
            oldest = i;
    }
    return oldest;
}

static double left_of(const xpd_rate *rate, int i, uid_t uid, int64_t per_s, int64_t burst,
                      int64_t now_ms)
{
    double most = (double)burst, left = most;
    if (rate->buckets[i].used && rate->buckets[i].uid == uid)
        left = rate->buckets[i].left +
               (double)(now_ms - rate->buckets[i].at_ms) / 1000 * (double)per_s;
    return left > most ? most : left;
}

int64_t xpd_rate_left(const xpd_rate *rate, uid_t uid, int64_t per_s, int64_t burst, int64_t now_ms)
{
    return (int64_t)left_of(rate, find(rate, uid), uid, per_s, burst, now_ms);
}

int xpd_rate_take(xpd_rate *rate, uid_t uid, int64_t per_s, int64_t burst, int64_t now_ms)
{
    if (per_s <= 0)
        return 0;
    int i = find(rate, uid);
    double left = left_of(rate, i, uid, per_s, burst, now_ms);
    bool allowed = left >= 1;
    rate->buckets[i].used = true;
    rate->buckets[i].uid = uid;
    rate->buckets[i].at_ms = now_ms;
    rate->buckets[i].left = allowed ? left - 1 : left;
    if (allowed)
        return 0;
    return 1 + (int)((1 - left) / (double)per_s);
}
