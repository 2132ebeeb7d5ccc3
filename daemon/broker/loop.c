/* See loop.h.  Timers use the monotonic clock: a jump of the wall clock fires nothing. */
#include "loop.h"

#include "log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t xpd_now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

int64_t xpd_wall_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

bool xpd_loop_init(xpd_loop *loop)
{
    memset(loop, 0, sizeof *loop);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    return loop->epoll >= 0;
}

void xpd_loop_release(xpd_loop *loop)
{
    if (loop->epoll >= 0)
        close(loop->epoll);
    loop->epoll = -1;
}

bool xpd_loop_add(xpd_loop *loop, xpd_source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, source->fd, &event) == 0;
}

void xpd_loop_remove(xpd_loop *loop, xpd_source *source)
{
    if (source->fd < 0)
        return;
    if (epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL) != 0 && errno != ENOENT)
        xpd_log(XPD_LOG_WARNING, NULL, "cannot take a descriptor out of the loop: %s",
                strerror(errno));
    for (int i = 0; i < loop->ready_count; i++) {
        if (loop->ready[i] == source)
            loop->ready[i] = NULL;
    }
}

void xpd_timer_cancel(xpd_timer *timer)
{
    if (!timer->link)
        return;
    *timer->link = timer->next;
    if (timer->next)
        timer->next->link = timer->link;
    timer->next = NULL;
    timer->link = NULL;
}

bool xpd_timer_armed(const xpd_timer *timer)
{
    return timer->link != NULL;
}

/* A sorted list: there are a handful of timers (children, tick), long polls aside. */
void xpd_timer_set(xpd_loop *loop, xpd_timer *timer, int64_t delay_ms)
{
    xpd_timer_cancel(timer);
    timer->due_ms = xpd_now_ms() + delay_ms;
    if (timer->due_ms <= loop->firing_ms) /* work in pieces: others have their turn between them */
        timer->due_ms = loop->firing_ms + 1;
    xpd_timer **link = &loop->timers;
    while (*link && (*link)->due_ms <= timer->due_ms)
        link = &(*link)->next;
    timer->next = *link;
    timer->link = link;
    if (timer->next)
        timer->next->link = &timer->next;
    *link = timer;
}

static int wait_ms(const xpd_loop *loop, int wish)
{
    if (!loop->timers)
        return wish;
    int64_t left = loop->timers->due_ms - xpd_now_ms();
    if (left < 0)
        left = 0;
    if (left > 60000)
        left = 60000;
    return wish < 0 || left < wish ? (int)left : wish;
}

static void fire_timers(xpd_loop *loop)
{
    loop->firing_ms = xpd_now_ms();
    while (loop->timers && loop->timers->due_ms <= loop->firing_ms) {
        xpd_timer *timer = loop->timers;
        xpd_timer_cancel(timer);
        timer->fire(timer->context);
    }
}

/* From the end of one wait to the next: what is done before a wait is part of it. */
static void measure(xpd_loop *loop)
{
    int64_t busy_us = now_us() - loop->woke_us;

    if (loop->woke_us == 0)
        return;
    if (busy_us / 1000 > loop->lag_max_ms)
        loop->lag_max_ms = busy_us / 1000;
    if (busy_us > 1000000)
        xpd_log(XPD_LOG_WARNING, NULL, "the event loop was busy for %lld ms",
                (long long)(busy_us / 1000));
    if (loop->measured)
        loop->measured(loop->context, (double)busy_us * 1e-6);
}

void xpd_loop_turn(xpd_loop *loop)
{
    struct epoll_event events[64];
    int wish = loop->before_wait ? loop->before_wait(loop->context) : -1;

    measure(loop);
    int count = epoll_wait(loop->epoll, events, 64, wait_ms(loop, wish));
    loop->woke_us = now_us();
    loop->ready_count = count > 0 ? count : 0;
    for (int i = 0; i < loop->ready_count; i++)
        loop->ready[i] = events[i].data.ptr;
    for (int i = 0; i < loop->ready_count; i++) {
        xpd_source *source = loop->ready[i];
        if (source)
            source->ready(source->context);
    }
    loop->ready_count = 0;
    fire_timers(loop);
    if (loop->after_turn)
        loop->after_turn(loop->context);
}

void xpd_loop_run(xpd_loop *loop)
{
    while (!loop->stop)
        xpd_loop_turn(loop);
}
