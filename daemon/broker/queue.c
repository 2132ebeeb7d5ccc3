/* See queue.h.  Search trees are the C library's. */
#include "queue.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

static bool grow(xpd_job ***items, size_t *room, size_t count)
{
    if (count < *room)
        return true;
    size_t more = *room ? *room * 2 : 64;
    xpd_job **bigger = realloc(*items, more * sizeof **items);
    if (!bigger)
        return false;
    *items = bigger;
    *room = more;
    return true;
}

static void insert_at(xpd_job **items, size_t *count, size_t at, xpd_job *job)
{
    memmove(items + at + 1, items + at, (*count - at) * sizeof *items);
    items[at] = job;
    (*count)++;
}

static void remove_at(xpd_job **items, size_t *count, size_t at)
{
    (*count)--;
    memmove(items + at, items + at + 1, (*count - at) * sizeof *items);
}

/* ------------------------------------------------------------------------------------- queue */

bool xpd_queue_insert(xpd_queue *queue, xpd_job *job)
{
    if (!grow(&queue->items, &queue->room, queue->count))
        return false;
    queue->items[queue->count++] = job;
    return true;
}

void xpd_queue_remove(xpd_queue *queue, const xpd_job *job)
{
    for (size_t i = 0; i < queue->count; i++) {
        if (queue->items[i] == job) {
            remove_at(queue->items, &queue->count, i);
            return;
        }
    }
}

size_t xpd_queue_count_user(const xpd_queue *queue, uid_t uid)
{
    size_t n = 0;
    for (size_t i = 0; i < queue->count; i++)
        n += queue->items[i]->uid == uid;
    return n;
}

void xpd_queue_release(xpd_queue *queue)
{
    free(queue->items);
    memset(queue, 0, sizeof *queue);
}

/* ------------------------------------------------------------------------------------- table */

static int compare_id(const void *a, const void *b)
{
    return strcmp(((const xpd_job *)a)->id, ((const xpd_job *)b)->id);
}

static int compare_key(const void *a, const void *b)
{
    const xpd_job *x = a, *y = b;
    if (x->uid != y->uid)
        return x->uid < y->uid ? -1 : 1;
    return strcmp(x->idem_key, y->idem_key);
}

bool xpd_table_add(xpd_table *table, xpd_job *job)
{
    if (!grow(&table->items, &table->room, table->count) ||
        !tsearch(job, &table->by_id, compare_id))
        return false;
    if (job->idem_key && !tsearch(job, &table->by_key, compare_key)) {
        tdelete(job, &table->by_id, compare_id);
        return false;
    }
    insert_at(table->items, &table->count, xpd_table_lower(table, job->number), xpd_job_ref(job));
    if (job->number >= table->next_number)
        table->next_number = job->number + 1;
    return true;
}

void xpd_table_remove(xpd_table *table, xpd_job *job)
{
    size_t at = xpd_table_lower(table, job->number);
    if (at >= table->count || table->items[at] != job)
        return;
    tdelete(job, &table->by_id, compare_id);
    if (job->idem_key)
        tdelete(job, &table->by_key, compare_key);
    remove_at(table->items, &table->count, at);
    job->removed = true;
    xpd_job_unref(job);
}

xpd_job *xpd_table_find(const xpd_table *table, const char *id)
{
    xpd_job key;
    if (strlen(id) != XPP_JOB_ID_SIZE - 1)
        return NULL;
    memcpy(key.id, id, XPP_JOB_ID_SIZE);
    xpd_job **found = tfind(&key, &table->by_id, compare_id);
    return found ? *found : NULL;
}

xpd_job *xpd_table_find_key(const xpd_table *table, uid_t uid, const char *key_text)
{
    char *copy = strdup(key_text);
    xpd_job key = {.uid = uid, .idem_key = copy};
    xpd_job **found = copy ? tfind(&key, &table->by_key, compare_key) : NULL;
    free(copy);
    return found ? *found : NULL;
}

size_t xpd_table_lower(const xpd_table *table, int64_t number)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->items[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void keep(void *item)
{
    (void)item; /* the items are the jobs, released below */
}

void xpd_table_release(xpd_table *table)
{
    tdestroy(table->by_id, keep);
    tdestroy(table->by_key, keep);
    for (size_t i = 0; i < table->count; i++)
        xpd_job_unref(table->items[i]);
    free(table->items);
    memset(table, 0, sizeof *table);
}
