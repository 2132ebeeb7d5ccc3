/* Checkpoints of the job in hand: when one is due, writing it, finding one to go on from, telling
 * of both. */
#ifndef XPD_KEEP_H
#define XPD_KEEP_H

#include "events.h"
#include "result.h"

#include "io/write/checkpoint.h"

struct xpd_work;
struct xpd_devices;

#define XPD_KEEP_SHARE 0.05 /* of the time at most, where the job does not say how often */
#define XPD_KEEP_LEAST_S 30.0

typedef struct xpd_keep {
    const struct xpd_work *work;
    const xpd_events *events;
    const char *folder;           /* NULL = no checkpoints */
    xpe_checkpoint_reader *found; /* owned; what to go on from, or NULL */
    int64_t told; /* iterations of all stages that are in the job's log; of `found` at most */
    /* private */
    xpe_checkpoint head;            /* what this run is */
    xpe_checkpoint_record *records; /* [count] of all stages */
    int64_t count, room;
    int slot;             /* the next to be written */
    double due, saved_at; /* xpd_now() */
    double cost;          /* seconds that the last one took from the iterations */
    double wait_failed;   /* seconds until the next attempt after one that failed */
    double usual;         /* seconds of an iteration that was not held */
    double held;          /* of the last that was */
    bool begun, owed;     /* due is set; the next step does what the held one left */
} xpd_keep;

/* Finds what there is to go on from.  Refuses (XPE_INVALID) where the folder is the caller's own
 * and holds checkpoints of another job. */
XPE_MUST_CHECK xpe_status xpd_keep_open(xpd_keep *keep, const struct xpd_work *work,
                                        const struct xpd_devices *devices, const xpd_events *events,
                                        xpe_error *err);
void xpd_keep_close(xpd_keep *keep);
/* What `found` carries becomes `final`: errors, positions, start of its stage. */
XPE_MUST_CHECK xpe_status xpd_keep_restore(xpd_keep *keep, xpd_final *final, xpe_error *err);
/* The state could not be taken up: begin anew. */
void xpd_keep_forget(xpd_keep *keep);
/* The events `resumed`, and the iterations after it that are in the checkpoint and not in the log.
 */
void xpd_keep_tell(const xpd_keep *keep);
void xpd_keep_retell(const xpd_keep *keep);

/* Of a stage that is about to run on this grid: the first look at the clock. */
void xpd_keep_stage(xpd_keep *keep, const xpe_grid *grid, bool known);
/* Whether the next step is to be held. */
bool xpd_keep_due(const xpd_keep *keep, bool asked);
/* After each iteration; false = no memory. */
bool xpd_keep_note(xpd_keep *keep, const xpe_report *report, bool held);
/* Of a run that is held.  What goes wrong is a warning; true = it is on the disk. */
bool xpd_keep_save(xpd_keep *keep, xpe_run *run, int stage, int iteration, const xpd_final *final);

#endif
