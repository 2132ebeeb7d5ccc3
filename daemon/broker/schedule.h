/* The scheduler: which waiting job starts now, on which device sets, and for every other one when
 * it will and why not yet.
 *
 * A pure function of the jobs, the sets, the users and the time: no clock, no memory of its own, no
 * I/O; the same input gives the same answer.  What it is told comes from dispatch.c.
 *
 * Order: class (live, normal, batch, scavenger), then priority, then the user who has used least
 * (decayed, what goes before in the queue included), then order of submission.  A job that waits
 * rises one class an age step, never into live; one that is overdue goes before every priority.  So
 * every wait is bounded.  Both are slow against the turns that users take: a queue in which all
 * wait for hours must not become one of first come, first served.
 *
 * A job takes all its sets at once.  Only the first job that cannot start has a reservation: the
 * sets that it will get first, at the time when they and the memory that it needs are free.  A
 * later job may start before it when it ends by then or leaves those sets and that memory alone
 * (EASY backfill).
 *
 * Sets may be nearer to each other or farther.  Of those that are free at the same time a job takes
 * several that are near, and leaves together what is near; it never waits for that, and where all
 * are as far apart the first of the list are taken.
 *
 * Memory is counted by pools: the host's, which all sets on the CPU share, and one for each set of
 * GPUs.  A job whose memory is held by other jobs waits like one whose devices are busy; one whose
 * memory is held by strangers keeps nobody else up, since nobody knows when they go.
 *
 * Only a live job sends others back to the queue, only those of batch and scavenger that may yield,
 * and only when that is enough for it to start: scavenger first, then those that started last. Sets
 * may be kept for live jobs alone. */
#ifndef XPD_SCHEDULE_H
#define XPD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XPD_SETS_MAX 64
#define XPD_POOLS_MAX (XPD_SETS_MAX + 1)
#define XPD_POOL_HOST 0
#define XPD_AGE_STEP_MS (30 * 60 * 1000)
#define XPD_OVERDUE_MS (12 * 60 * 60 * 1000)
#define XPD_PRIORITY_MAX 100
#define XPD_NEVER INT64_MAX

typedef enum xpd_class {
    XPD_CLASS_LIVE,
    XPD_CLASS_NORMAL,
    XPD_CLASS_BATCH,
    XPD_CLASS_SCAVENGER,
    XPD_CLASSES
} xpd_class;

const char *xpd_class_name(xpd_class class);
bool xpd_class_find(xpd_class *out, const char *name);

/* Why a job waits. */
typedef enum xpd_pending {
    XPD_PENDING_NONE,        /* it starts */
    XPD_PENDING_DEVICES,     /* it is next; its devices are busy */
    XPD_PENDING_ORDER,       /* jobs before it come first */
    XPD_PENDING_RESERVATION, /* devices are free and kept for the one that is next */
    XPD_PENDING_LIMIT,       /* its user runs as many as allowed */
    XPD_PENDING_SETS,        /* its user holds as many device sets as allowed */
    XPD_PENDING_MEMORY,      /* other jobs hold the memory that it needs */
    XPD_PENDING_FOREIGN,     /* so do processes that are not of this service */
    XPD_PENDING_WORKER       /* its devices are not in service at the moment */
} xpd_pending;

const char *xpd_pending_name(xpd_pending pending);

typedef struct xpd_sched_set {
    bool up;                   /* in service */
    bool busy;                 /* held by a job */
    int64_t until_ms;          /* when that job ends, if it is known, else XPD_NEVER */
    int64_t owner;             /* number of that job */
    xpd_class class;           /* its class */
    int64_t from_ms;           /* it runs since */
    bool can_yield;            /* it may be sent back to the queue, and loses nothing by it */
    bool leaving;              /* it has been told to */
    bool live_only;            /* kept for live jobs */
    int pool;                  /* of its memory */
    int64_t bytes;             /* that its job holds there, and will give back */
    int64_t host_bytes;        /* and of the host's; in one set of a job that has several */
    uint8_t far[XPD_SETS_MAX]; /* how far apart it and each of the others are; of no unit, the same
                                  in both directions */
} xpd_sched_set;

typedef struct xpd_sched_pool {
    int64_t free; /* bytes that jobs can have now; XPD_NEVER = as many as they want */
} xpd_sched_pool;

typedef struct xpd_sched_user {
    double used_s; /* decayed; running jobs included.  Changed by the call */
    double weight; /* its share against others; 0 = 1 */
    int64_t running, sets;
    size_t head, end; /* for the call */
    struct xpd_sched_user *next;
} xpd_sched_user;

typedef struct xpd_sched_job {
    int64_t number; /* order of submission, unique */
    int user;       /* index into users */
    xpd_class class;
    int priority;
    int64_t since_ms;   /* it waits since */
    int64_t length_ms;  /* how long it takes at most; 0 = not known */
    uint64_t sets;      /* those that can hold it, a bit each */
    int need;           /* how many of them, all at once */
    int64_t bytes;      /* of the pool of each set; 0 = not known */
    int64_t host_bytes; /* and once of the host's */
    void *context;      /* of the caller */

    xpd_pending pending;
    uint64_t taken;   /* the sets on which it starts, now or at start_ms; 0 = not known */
    int64_t start_ms; /* expected; XPD_NEVER = not known */

    int level, rank; /* class and priority with age */
} xpd_sched_job;

typedef struct xpd_sched {
    int64_t now_ms;
    xpd_sched_set *sets;
    int set_count;               /* at most XPD_SETS_MAX */
    const xpd_sched_pool *pools; /* NULL = memory without end */
    int pool_count;              /* at most XPD_POOLS_MAX */
    xpd_sched_user *users;
    int user_count;
    xpd_sched_job *jobs; /* left in the order of starting: position = index + 1 */
    size_t job_count;
    int64_t running_max; /* jobs of one user at the same time; 0 = no limit */
    int64_t sets_max;    /* sets of one user at the same time; 0 = no limit */

    uint64_t yield; /* answer: sets whose jobs are to go back to the queue for a live one */
} xpd_sched;

/* Decides what starts: pending is XPD_PENDING_NONE and `taken` says where.  With `explain` all
 * members above are filled in, otherwise only those of the jobs that start.  scratch holds
 * job_count jobs. */
void xpd_sched_run(xpd_sched *s, xpd_sched_job *scratch, bool explain);

#endif
