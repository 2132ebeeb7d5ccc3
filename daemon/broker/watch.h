/* Workers that go wrong without ending: a job that makes no progress, memory that stays between
 * jobs; and the reason when the system killed one.  Looks once a second; loop thread only. */
#ifndef XPD_WATCH_H
#define XPD_WATCH_H

#include "loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xpd_broker;
struct xpd_worker;

/* How fast a job goes, from the moments at which it was seen to move. */
typedef struct xpd_pace {
    int64_t seen_ms;    /* monotonic: it moved */
    int64_t slowest_ms; /* between two iterations of this attempt; 0 = none is known yet */
    bool steady;        /* between two iterations of a stage; else it prepares, or writes */
} xpd_pace;

void xpd_pace_start(xpd_pace *pace, int64_t now_ms);
/* An iteration was told; last = it was the last of its stage. */
void xpd_pace_step(xpd_pace *pace, int64_t now_ms, bool last);
/* Anything else that shows that it moves. */
void xpd_pace_sign(xpd_pace *pace, int64_t now_ms);
/* How long it may stand still: `stall_ms` at least and ten of its slowest iterations; ten times
 * that while it prepares a stage or writes the result, and until an iteration was timed.  0 = for
 * ever. */
int64_t xpd_pace_patience(const xpd_pace *pace, int64_t stall_ms);

typedef struct xpd_watch {
    xpd_timer timer;
    char cgroup_file[4096];    /* that counts processes killed for want of memory; "" = none */
    int64_t oom_kills, oom_ms; /* the count, and when it was last seen to grow; 0 = never */
} xpd_watch;

void xpd_watch_start(struct xpd_broker *b);
void xpd_watch_stop(struct xpd_broker *b);
/* "was ended by signal 9 (Killed), ...": also whether the system wanted its memory, or we ended it.
 */
void xpd_watch_exit_text(char *out, size_t size, struct xpd_worker *worker, int wait_status);
/* Processes that were killed for want of memory, as a file of the kernel counts them; 0 where it
 * does not.  Lines "NAME N"; for vmstat, memory.events and memory.oom_control. */
int64_t xpd_watch_oom_count(const char *path);

#endif
