/* The XPUB socket: the events of jobs and beats, each to those who may read the job (wish.h).
 *
 *   [job/ID/] [seq] [type] [JSON]     each event of a job, as in its event log
 *   [job/ID/] [seq] beat   [JSON]     every 2 s while it runs: {"type","id","last_seq","state"}
 *   [state/]  [seq] [type] [JSON]     the `state` and `end` events of all jobs, `job` names which;
 * seq is the job's own
 *
 * A granted subscription is answered by a beat of the job, the first thing that comes; one that is
 * not granted by nothing.  A subscriber that is too slow loses the newest messages without notice:
 * it finds the hole by seq and fetches it with the verb `events`.  Runs on the thread that calls it
 * until stop_fd is readable. */
#ifndef XPD_ZMQ_PROGRESS_H
#define XPD_ZMQ_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct xpd_progress xpd_progress;

/* As xpd_router_open.  token_file (NULL = none: this process's user) holds the token with which
 * events are read; it is read again at every connection. */
xpd_progress *xpd_progress_open(void *context, const char *address, const char *secret,
                                const char *broker, const char *token_file, char *endpoint,
                                size_t endpoint_size);
bool xpd_progress_run(xpd_progress *progress, int stop_fd);
void xpd_progress_close(xpd_progress *progress);

#endif
