/* One job from its arrays to its result: the same code in the resident worker and in `run`. */
#ifndef XPD_EXECUTE_H
#define XPD_EXECUTE_H

#include "events.h"
#include "job.h"
#include "writer.h"

#include <pthread.h>

typedef struct xpd_work {
    char id[XPP_JOB_ID_SIZE];
    int attempt;
    double began;    /* xpd_now() when the work on it began, reading included where that is known */
    xpp_job *job;    /* owned */
    xpd_input input; /* owned */
    char *output_path; /* owned */
    bool overwrite;
    bool owned;        /* of a service: the result says whose it is */
    int64_t owner;     /* then: the uid */
    char *folder;      /* of the previews, owned; NULL = none */
    char *checkpoints; /* folder of the checkpoints, owned; NULL = none */
    bool logged;       /* folder has the log of the job's events; it is a job of a service */
} xpd_work;

void xpd_work_release(xpd_work *work);

/* Stops a job from another thread.  Shared by the two threads for as long as both know it. */
typedef struct xpd_control {
    pthread_mutex_t lock; /* all below */
    xpe_run *run;         /* while one exists */
    bool cancelled;
    bool abandoned; /* nobody waits for a result: write none */
    bool save;      /* a checkpoint is asked for */
    bool leave;     /* the job is to end after one */
} xpd_control;

void xpd_control_init(xpd_control *control);
void xpd_control_release(xpd_control *control);
/* Any thread.  Takes effect within an iteration. */
void xpd_control_cancel(xpd_control *control, bool abandon);
bool xpd_control_cancelled(xpd_control *control);
bool xpd_control_abandoned(xpd_control *control);
/* Any thread: a checkpoint at the end of an iteration from now, once; leave: and no further. */
void xpd_control_save(xpd_control *control, bool leave);
/* Ready for the next job; no run exists. */
void xpd_control_reset(xpd_control *control);

/* The end of a job, as in the message `done`. */
typedef struct xpd_outcome {
    const char *state; /* "succeeded", "failed", "cancelled" */
    const char *reason;
    char detail[640];
    bool fatal;    /* a device is lost: this process should be replaced */
    char lost[32]; /* that device, "" where nobody knows which */
    bool left; /* interrupted on request, not ended: it goes on elsewhere, from its checkpoint if
                  `kept` */
    bool kept;
    json_t *result;  /* owned, NULL = none */
    json_t *problem; /* owned: a problem document where the engine refused, else NULL */
} xpd_outcome;

void xpd_outcome_release(xpd_outcome *outcome);

/* Runs all stages on the calling thread; previews and the result go through the writer, whose work
 * is done when this returns. */
void xpd_work_execute(xpd_outcome *out, const xpd_work *work, xpd_control *control,
                      xpd_writer *writer, const xpd_events *events);

double xpd_now(void); /* seconds, monotonic */

#endif
