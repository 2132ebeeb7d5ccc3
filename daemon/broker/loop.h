/* The event loop: descriptors, one-shot timers and work at the end of a turn, on one epoll.
 *
 * Everything here runs on the loop thread.  Sources and timers are storage of the caller and must
 * be removed before they go; removing one inside a callback is fine, also for one that is ready in
 * the same turn. */
#ifndef XPD_LOOP_H
#define XPD_LOOP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct xpd_source {
    int fd; /* -1 = not in the loop */
    void (*ready)(void *context);
    void *context;
} xpd_source;

typedef struct xpd_timer {
    int64_t due_ms; /* monotonic; meaningful while armed */
    void (*fire)(void *context);
    void *context;
    struct xpd_timer *next, **link; /* link NULL = not armed */
} xpd_timer;

typedef struct xpd_loop {
    int epoll;
    bool stop;
    xpd_timer *timers; /* by due time */
    int64_t firing_ms; /* up to which time timers fire in this turn */
    xpd_source *ready[64];
    int ready_count;
    /* Called before each wait: may shorten it (milliseconds, -1 = for ever) and do work that is
     * due. */
    int (*before_wait)(void *context);
    /* Called at the end of each turn. */
    void (*after_turn)(void *context);
    /* Called before each wait but the first with how long the loop has been away from waiting: for
     * so long nobody was heard. */
    void (*measured)(void *context, double busy_s);
    void *context;
    int64_t woke_us, lag_max_ms; /* woke_us 0 = has not waited yet */
} xpd_loop;

bool xpd_loop_init(xpd_loop *loop);
void xpd_loop_release(xpd_loop *loop);
bool xpd_loop_add(xpd_loop *loop, xpd_source *source); /* level-triggered, readable */
void xpd_loop_remove(xpd_loop *loop, xpd_source *source);
void xpd_timer_set(xpd_loop *loop, xpd_timer *timer, int64_t delay_ms);
void xpd_timer_cancel(xpd_timer *timer);
bool xpd_timer_armed(const xpd_timer *timer);
void xpd_loop_turn(xpd_loop *loop);
void xpd_loop_run(xpd_loop *loop); /* until loop->stop */

int64_t xpd_now_ms(void);  /* monotonic */
int64_t xpd_wall_ms(void); /* since 1970 */

#endif
