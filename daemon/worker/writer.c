/* One slot, one thread, one condition variable for both directions. */
#include "writer.h"

#include <pthread.h>
#include <stdlib.h>

struct xpd_writer {
    pthread_t thread;
    pthread_mutex_t lock; /* work, context, busy, leave */
    pthread_cond_t changed;
    void (*work)(void *context);
    void *context;
    bool busy, leave;
};

static void *serve(void *argument)
{
    xpd_writer *writer = argument;

    pthread_mutex_lock(&writer->lock);
    for (;;) {
        if (writer->work) {
            void (*work)(void *) = writer->work;
            void *context = writer->context;

            pthread_mutex_unlock(&writer->lock);
            work(context);
            pthread_mutex_lock(&writer->lock);
            writer->work = NULL;
            writer->busy = false;
            pthread_cond_broadcast(&writer->changed);
        } else if (writer->leave) {
            break;
        } else {
            pthread_cond_wait(&writer->changed, &writer->lock);
        }
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

xpd_writer *xpd_writer_create(void)
{
    xpd_writer *writer = calloc(1, sizeof *writer);

    if (!writer)
        return NULL;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    if (pthread_create(&writer->thread, NULL, serve, writer) != 0) {
        pthread_cond_destroy(&writer->changed);
        pthread_mutex_destroy(&writer->lock);
        free(writer);
        return NULL;
    }
    return writer;
}

void xpd_writer_destroy(xpd_writer *writer)
{
    if (!writer)
        return;
    pthread_mutex_lock(&writer->lock);
    writer->leave = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

bool xpd_writer_post(xpd_writer *writer, void (*work)(void *context), void *context)
{
    bool taken;

    pthread_mutex_lock(&writer->lock);
    taken = !writer->busy;
    if (taken) {
        writer->busy = true;
        writer->work = work;
        writer->context = context;
        pthread_cond_broadcast(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
    return taken;
}

bool xpd_writer_idle(xpd_writer *writer)
{
    bool idle;

    pthread_mutex_lock(&writer->lock);
    idle = !writer->busy;
    pthread_mutex_unlock(&writer->lock);
    return idle;
}

void xpd_writer_wait(xpd_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    while (writer->busy)
        pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}
