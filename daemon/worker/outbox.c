/* The first event after a pause leaves at once, so that a slow job is not delayed; a fast one fills
 * a batch between two messages. */
#include "outbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct xpd_outbox {
    pthread_mutex_t lock; /* waiting, closed, last_s */
    pthread_cond_t room;
    json_t *waiting; /* array, oldest first */
    bool closed;
    double last_s; /* when the last batch left */
    int wake;
};

static void emit(void *context, json_t *event)
{
    xpd_outbox *box = context;
    uint64_t one = 1;

    pthread_mutex_lock(&box->lock);
    while (!box->closed && json_array_size(box->waiting) >= XPD_OUTBOX_ROOM)
        pthread_cond_wait(&box->room, &box->lock);
    if (box->closed)
        json_decref(event);
    else
        json_array_append_new(box->waiting, event);
    pthread_mutex_unlock(&box->lock);
    if (write(box->wake, &one, sizeof one) != sizeof one)
        return; /* the counter is full: the reader is awake already */
}

xpd_outbox *xpd_outbox_create(int wake)
{
    xpd_outbox *box = calloc(1, sizeof *box);

    if (!box)
        return NULL;
    box->waiting = json_array();
    if (!box->waiting) {
        free(box);
        return NULL;
    }
    box->wake = wake;
    box->last_s = -1e9;
    pthread_mutex_init(&box->lock, NULL);
    pthread_cond_init(&box->room, NULL);
    return box;
}

void xpd_outbox_destroy(xpd_outbox *box)
{
    if (!box)
        return;
    pthread_cond_destroy(&box->room);
    pthread_mutex_destroy(&box->lock);
    json_decref(box->waiting);
    free(box);
}

xpd_events xpd_outbox_events(xpd_outbox *box)
{
    return (xpd_events){emit, box};
}

void xpd_outbox_close(xpd_outbox *box)
{
    pthread_mutex_lock(&box->lock);
    box->closed = true;
    pthread_cond_broadcast(&box->room);
    pthread_mutex_unlock(&box->lock);
}

/* Moves the first XPD_OUTBOX_BATCH events; the lock is held. */
static json_t *split(xpd_outbox *box)
{
    size_t size = json_array_size(box->waiting);
    json_t *batch = box->waiting, *rest = json_array();

    if (!rest)
        return NULL;
    if (size > XPD_OUTBOX_BATCH) {
        for (size_t i = XPD_OUTBOX_BATCH; i < size; i++)
            json_array_append(rest, json_array_get(batch, i));
        while (json_array_size(batch) > XPD_OUTBOX_BATCH)
            json_array_remove(batch, json_array_size(batch) - 1);
    }
    box->waiting = rest;
    return batch;
}

json_t *xpd_outbox_take(xpd_outbox *box, double now_s, bool now)
{
    json_t *batch = NULL;

    pthread_mutex_lock(&box->lock);
    if (json_array_size(box->waiting) > 0 &&
        (now || now_s - box->last_s >= XPD_OUTBOX_INTERVAL_S)) {
        batch = split(box);
        box->last_s = now_s;
        pthread_cond_broadcast(&box->room);
    }
    pthread_mutex_unlock(&box->lock);
    return batch;
}

double xpd_outbox_due(xpd_outbox *box, double now_s)
{
    double due = -1.0;

    pthread_mutex_lock(&box->lock);
    if (json_array_size(box->waiting) > 0) {
        due = box->last_s + XPD_OUTBOX_INTERVAL_S - now_s;
        due = due > 0.0 ? due : 0.0;
    }
    pthread_mutex_unlock(&box->lock);
    return due;
}
