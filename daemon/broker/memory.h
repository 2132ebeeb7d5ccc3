/* The memory and disk room that jobs can have now: what the workers say is free, less what was
 * promised to jobs that run and is not taken yet.  Loop thread only. */
#ifndef XPD_MEMORY_H
#define XPD_MEMORY_H

#include "broker.h"

struct xpd_worker;

/* A worker told what its devices have free. */
void xpd_memory_heard(xpd_broker *b, const xpd_devices *devices);
/* Of the host, for jobs in all; XPD_ROOM_ENDLESS where no worker has said it yet. */
int64_t xpd_memory_host(const xpd_broker *b);
/* Room for a job: memory of the host, and the disks of the state and of the result as the reader
 * found it (`scan`; NULL = only the memory). */
void xpd_memory_room(xpd_broker *b, const xpp_job *job, const json_t *scan, xpd_room *out);
/* Promised to the jobs that run on the device of that name; on the CPU all that they may have of
 * the machine's memory. */
int64_t xpd_memory_reserved(const xpd_broker *b, const char *device);
/* The scheduler's pools: the host's, then one a worker.  Returns how many. */
int xpd_memory_pools(const xpd_broker *b, xpd_sched_pool pools[XPD_POOLS_MAX]);
/* The pool of a worker's devices. */
int xpd_memory_pool(const struct xpd_worker *worker);
/* Whether the job that is about to start on the worker has its memory now: that of its devices, and
 * with `host` that of the host; text says what is short and who has it. */
bool xpd_memory_now(const struct xpd_worker *worker, const xpd_job *job, bool host, char *text,
                    size_t size);
/* The same for a job that waits: what is short on the worker of those where the least is, and how
 * much processes hold that are not of this service. */
void xpd_memory_short(const xpd_broker *b, const xpd_job *job, uint64_t workers, char *text,
                      size_t size, int64_t *strangers);

#endif
