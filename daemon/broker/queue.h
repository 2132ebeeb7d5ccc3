/* The jobs that wait, and the table of all jobs.  The order of starting is the scheduler's
 * (schedule.h), which dispatch.c asks.  Loop thread only. */
#ifndef XPD_QUEUE_H
#define XPD_QUEUE_H

#include "job.h"

typedef struct xpd_queue {
    xpd_job **items; /* in the order that xpd_dispatch_refresh left; borrowed from the table */
    size_t count, room;
} xpd_queue;

bool xpd_queue_insert(xpd_queue *queue, xpd_job *job); /* false when memory is exhausted */
void xpd_queue_remove(xpd_queue *queue, const xpd_job *job);
size_t xpd_queue_count_user(const xpd_queue *queue, uid_t uid);
void xpd_queue_release(xpd_queue *queue);

/* All jobs, by number ascending; found by id and by idempotency key. */
typedef struct xpd_table {
    xpd_job **items; /* references */
    size_t count, room;
    void *by_id, *by_key; /* search trees */
    int64_t next_number;
} xpd_table;

bool xpd_table_add(xpd_table *table, xpd_job *job); /* takes a reference of its own */
void xpd_table_remove(xpd_table *table, xpd_job *job);
xpd_job *xpd_table_find(const xpd_table *table, const char *id);
xpd_job *xpd_table_find_key(const xpd_table *table, uid_t uid, const char *key);
/* Index of the first job with a number >= number. */
size_t xpd_table_lower(const xpd_table *table, int64_t number);
void xpd_table_release(xpd_table *table);

#endif
