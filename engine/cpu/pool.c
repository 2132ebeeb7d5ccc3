/* See pool.h.  One mutex guards the description of the current pass; parts are handed out by an
 * atomic counter, so that no lock is taken while frames are worked on. */
#include "pool.h"

#include "backend/util.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

typedef struct helper {
    xpe_pool *pool;
    pthread_t thread;
    int index;
} helper;

struct xpe_pool {
    int threads, started;
    helper *helpers; /* [threads], entry 0 unused */
    pthread_mutex_t lock;
    pthread_cond_t go, done;
    /* under lock */
    uint64_t pass;
    bool quit;
    int working; /* helpers that have not finished the pass */
    int parts;
    void (*body)(void *, int, int);
    void *arg;
    atomic_int next;
};

static void take_parts(xpe_pool *pool, int thread)
{
    for (;;) {
        int part = atomic_fetch_add(&pool->next, 1);
        if (part >= pool->parts)
            return;
        pool->body(pool->arg, part, thread);
    }
}

static void *helper_main(void *arg)
{
    helper *h = arg;
    xpe_pool *pool = h->pool;
    uint64_t seen = 0;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->pass == seen && !pool->quit)
            pthread_cond_wait(&pool->go, &pool->lock);
        if (pool->quit)
            break;
        seen = pool->pass;
        pthread_mutex_unlock(&pool->lock);
        take_parts(pool, h->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->working == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

xpe_status xpe_pool_create(xpe_pool **out, int threads, xpe_error *err)
{
    xpe_pool *pool = NULL;
    xpe_status st;
    sigset_t all, old;

    *out = NULL;
    XPE_TRY(xpe_new(&pool, 1, sizeof *pool, err));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->go, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->threads = threads;
    XPE_TRY(xpe_new(&pool->helpers, (size_t)threads, sizeof *pool->helpers, err));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the control thread */
    for (int i = 1; i < threads; i++) {
        int rc;
        pool->helpers[i].pool = pool;
        pool->helpers[i].index = i;
        rc = pthread_create(&pool->helpers[i].thread, NULL, helper_main, &pool->helpers[i]);
        if (rc) {
            st = xpe_fail(err, XPE_NO_MEMORY, "/devices/cpu_threads",
                          "thread %d of %d could not be started (error %d); ask for fewer", i + 1,
                          threads, rc);
            break;
        }
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (st != XPE_OK)
        goto done;
    *out = pool;
    pool = NULL;
done:
    xpe_pool_destroy(pool);
    return st;
}

void xpe_pool_destroy(xpe_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->quit = true;
    pthread_cond_broadcast(&pool->go);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->helpers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->go);
    pthread_mutex_destroy(&pool->lock);
    free(pool->helpers);
    free(pool);
}

int xpe_pool_threads(const xpe_pool *pool)
{
    return pool->threads;
}

void xpe_pool_run(xpe_pool *pool, int parts, void (*body)(void *, int, int), void *arg)
{
    pthread_mutex_lock(&pool->lock);
    pool->parts = parts;
    pool->body = body;
    pool->arg = arg;
    atomic_store(&pool->next, 0);
    if (parts > 1 && pool->started) {
        pool->working = pool->started;
        pool->pass++;
        pthread_cond_broadcast(&pool->go);
    }
    pthread_mutex_unlock(&pool->lock);
    take_parts(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->working > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
