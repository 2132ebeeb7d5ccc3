/* What happens when a job changes: one function moves states, commits them and tells everybody. */
#ifndef XPD_LIFE_H
#define XPD_LIFE_H

#include "broker.h"

/* Moves a job: checks the table of allowed moves, logs, keeps the queue, commits, and appends the
 * events.  A terminal move has `end` instead of `state`, and only when the commit is on disk.
 * false = not allowed (logged). */
bool xpd_job_move(xpd_broker *b, xpd_job *job, xpd_state to, const char *reason,
                  const char *detail);
/* Its priority or labels were changed: wakes who waits for a change; the caller commits. */
void xpd_job_changed(xpd_broker *b, xpd_job *job);
/* A new job that was committed: enters table and queue, first event. */
bool xpd_job_enter(xpd_broker *b, xpd_job *job);
/* Commits the job as it is now. */
void xpd_job_persist(xpd_broker *b, xpd_job *job);
/* The same, and tells when it is on disk with everything that was handed over before. */
void xpd_job_persist_then(xpd_broker *b, xpd_job *job, xpd_store_done then, void *context);
/* Appends an event and wakes its readers. */
void xpd_job_event(xpd_broker *b, xpd_job *job, const char *type, const json_t *body);
/* The log, opened when needed; NULL when it cannot be. */
xpd_events *xpd_job_log(xpd_broker *b, xpd_job *job);
/* Gives memory and descriptor of an idle job's log back. */
void xpd_job_log_rest(xpd_job *job);
/* Takes the job out of the table and its files off the disk; the row is gone already. */
void xpd_job_erase(xpd_broker *b, xpd_job *job);
void xpd_job_path(char *out, size_t size, const xpd_broker *b, const char *id, const char *file);

/* The result of a job whose worker died after the file had got its name, or NULL (the caller's). */
json_t *xpd_job_finished_result(const xpd_broker *b, const xpd_job *job);
/* Deletes the row of a job, and remembers whose its result is. */
void xpd_job_forget(xpd_broker *b, const xpd_job *job, xpd_store_done done, void *context);
/* Bytes that the jobs of a user left in the state folder. */
int64_t xpd_artefacts_of(const xpd_broker *b, uid_t uid);
/* Reads all jobs back after a start; unfinished ones are queued again. */
bool xpd_jobs_load(xpd_broker *b, xpd_error *err);
/* Deletes some of the oldest finished jobs beyond keep_jobs and keep_days. */
void xpd_jobs_prune(xpd_broker *b);
/* Now and then from here on: old jobs are forgotten, the ballast is made again. */
void xpd_state_tend(xpd_broker *b);
void xpd_store_ready(void *broker); /* the store's eventfd */
/* A commit found the disk full: says so once and gives up the ballast; true = there was one. */
bool xpd_state_full(xpd_broker *b, const char *job_id);
/* The database failed: stops the loop, the next start recovers. */
void xpd_state_lost(xpd_broker *b);
int64_t xpd_disk_free(xpd_broker *b); /* bytes of the state folder's disk, measured now */

#endif
