/* A job as the broker holds it: its state, the table of allowed moves, its document and its row.
 *
 * Reference-counted, because streams, long polls and commits outlive the job's place in the table.
 * Loop thread only.  What follows from a move (events, commit, queue) is in life.c. */
#ifndef XPD_JOB_H
#define XPD_JOB_H

#include "admission.h"
#include "events.h"
#include "schedule.h"
#include "store.h"

#include <jansson.h>
#include <sys/types.h>

#define XPD_CANCELLING "cancelling" /* reason of a job that is being stopped on request */

typedef enum xpd_state {
    XPD_JOB_QUEUED,
    XPD_JOB_HELD, /* waits until it is released */
    XPD_JOB_STARTING,
    XPD_JOB_RUNNING,
    XPD_JOB_SUCCEEDED,
    XPD_JOB_FAILED,
    XPD_JOB_CANCELLED,
    XPD_JOB_STATES
} xpd_state;

typedef struct xpd_progress {
    bool known;
    int64_t stage, iter, modes;
    double data_error; /* NaN = not known */
} xpd_progress;

/* What the scheduler said last about a job that waits. */
typedef struct xpd_waiting {
    int64_t position; /* from 1; 0 = not known */
    xpd_pending pending;
    int64_t start_ms; /* wall clock; 0 = not known */
    uint64_t workers; /* those that it waits for, a bit each */
    bool length_known;
    int64_t own_before; /* jobs of the same user before it */
} xpd_waiting;

typedef struct xpd_job {
    int refs;
    int64_t number; /* order of submission */
    char id[XPP_JOB_ID_SIZE];
    int64_t rev;
    uid_t uid;
    char user[64];
    xpd_state state;
    char reason[32], detail[512];
    int priority;
    xpd_class class;
    int64_t created_ms, started_ms, finished_ms;
    int64_t queued_ms;    /* it waits since; a release starts anew, a restart of the service not */
    int64_t frames, side; /* of the scan; 0 = not known yet */
    int64_t modes, cpu_threads; /* as the document says; cpu_threads 0 = all */
    int64_t attempts;           /* workers that died with it */
    char *doc, *resolved;       /* compact JSON; text, since thousands of jobs are held */
    json_t *head;    /* {"name", "labels", "iterations": [of each stage], "output": path or null,
                        "devices": as asked for} */
    json_t *devices; /* names, or NULL */
    json_t *result;  /* or NULL */
    xpd_progress progress;
    json_t *labels; /* changed after submission, or NULL */
    json_t *name;   /* text; the same */
    char *idem_key, *idem_sha;

    xpd_needs needs; /* of memory and disk, as admitted */
    int64_t
        retry_ms;    /* not before: a worker had too little memory after all, or its file is busy */
    int64_t busy_ms; /* its file is being written since; 0 = it is not */
    int retries;
    int64_t folder_device, folder_inode; /* of the named output's folder; 0 = not known */
    int64_t artefact_bytes;              /* that it left in the state folder */

    xpd_waiting waiting;
    xpd_events *events; /* open log, or NULL */
    int readers;        /* streams on the log */
    bool checkpoint;    /* it can go on from where it was stopped */
    int yielded;        /* times that it made room */
    bool active;        /* a reader or worker has it */
    uint64_t shunned;   /* device sets on which a worker died with it, since the service started */
    bool removing;      /* its row is about to be deleted */
    bool removed;       /* out of the table */
    bool dirty;         /* the last commit failed for want of space */
    bool end_due;       /* terminal, and the event `end` waits for the commit */
} xpd_job;

/* Takes doc and resolved as text, decodes head from resolved.  NULL when memory is exhausted. */
xpd_job *xpd_job_create(const json_t *doc, const json_t *resolved);
xpd_job *xpd_job_from_row(const xpd_row *row); /* NULL also when the row makes no sense */
xpd_row *xpd_job_row(const xpd_job *job);
xpd_job *xpd_job_ref(xpd_job *job);
void xpd_job_unref(xpd_job *job); /* NULL is fine */

const char *xpd_state_name(xpd_state state);
bool xpd_state_find(xpd_state *out, const char *name);
bool xpd_state_terminal(xpd_state state);
bool xpd_state_allowed(xpd_state from, xpd_state to);

/* What clients see; takes pending (why it waits; NULL = it does not).  whole adds `job` and
 * `metadata`. */
json_t *xpd_job_document(const xpd_job *job, json_t *pending, bool whole);
/* Replaces the labels; false when memory is exhausted. */
bool xpd_job_set_labels(xpd_job *job, const json_t *labels);
/* Replaces the name, a text; the same. */
bool xpd_job_set_name(xpd_job *job, const json_t *name);
const char *xpd_job_name(const xpd_job *job);
/* Compact text of a document, numbers kept to the last bit. */
char *xpd_json_text(const json_t *doc);

#endif
