/* `run` where there are GPUs: the job goes to xptycho-worker-cuda. */
#ifndef XPD_WORKER_GPU_H
#define XPD_WORKER_GPU_H

#include <jansson.h>

/* Replaces this process by xptycho-worker-cuda when the job (resolved) is for GPUs: it names them,
 * or names nothing and that program, which is installed beside this one, finds a GPU that it can
 * use. argv is that of the mode; job_at is the place of the job file in it, whose text has been
 * read. Returns when the job stays here. */
void xpd_gpu_hand_over(json_t *job, int argc, char **argv, int job_at);

#endif
