/* See aside.h. */
#include "aside.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define STACK (128 * 1024)

bool xpd_thread_start(void *(*run)(void *), void *context)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* signals are the loop's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&thread, &attributes, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code == 0;
}

typedef struct errand {
    pthread_mutex_t lock;
    pthread_cond_t end;
    void (*work)(void *context);
    void (*drop)(void *context);
    void *context;
    bool over, left; /* under the lock: the work is done; nobody waits for it any more */
} errand;

static void errand_free(errand *e)
{
    pthread_cond_destroy(&e->end);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void *go(void *context)
{
    errand *e = context;

    e->work(e->context); /* may hang */
    pthread_mutex_lock(&e->lock);
    e->over = true;
    bool left = e->left;
    pthread_cond_signal(&e->end);
    pthread_mutex_unlock(&e->lock);
    if (left) {
        e->drop(e->context);
        errand_free(e);
    }
    return NULL;
}

static errand *errand_create(void (*work)(void *), void (*drop)(void *), void *context)
{
    errand *e = calloc(1, sizeof *e);
    pthread_condattr_t clock;

    if (!e)
        return NULL;
    *e = (errand){.work = work, .drop = drop, .context = context};
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&e->end, &clock);
    pthread_condattr_destroy(&clock);
    return e;
}

bool xpd_aside(void (*work)(void *context), void (*drop)(void *context), void *context, int limit_s)
{
    errand *e = errand_create(work, drop, context);
    struct timespec until;
    int code = 0;

    if (!e || !xpd_thread_start(go, e)) {
        if (e)
            errand_free(e);
        drop(context);
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += limit_s;
    pthread_mutex_lock(&e->lock);
    while (!e->over && code == 0)
        code = pthread_cond_timedwait(&e->end, &e->lock, &until);
    bool over = e->over;
    e->left = !over;
    pthread_mutex_unlock(&e->lock);
    if (over)
        errand_free(e);
    return over;
}
