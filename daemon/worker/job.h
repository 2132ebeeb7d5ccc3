/* From a job, a `scan` body and its memfds to what the engine takes. */
#ifndef XPD_JOB_H
#define XPD_JOB_H

#include "io/write/write.h"
#include "xptychod/engine.h"
#include "xptychod/protocol.h"

/* Arrays of a job, mapped read-only; the engine borrows them. */
typedef struct xpd_input {
    struct {
        void *at;
        size_t bytes;
    } maps[XPP_IPC_FDS_MAX];
    int map_count;
    xpe_problem_desc desc; /* of the first stage */
    json_t *scan;          /* the body, owned */
    char scan_name[256];
    char sha256[65];          /* of frames and positions, "" when not said */
    xpe_folder output_folder; /* that the reader judged; inode 0 when not said */
} xpd_input;

/* Maps every array and checks its size against its shape and its seals.  Takes the descriptors
 * over: fds are closed and set to -1.  What is wrong here is a defect of the sender (XPE_INTERNAL),
 * not of the user's data, which the reader has judged.  `job` is borrowed until the input is
 * released. */
XPE_MUST_CHECK xpe_status xpd_input_open(xpd_input *out, const xpp_job *job, const json_t *scan,
                                         int *fds, int fd_count, xpe_error *err);
void xpd_input_release(xpd_input *input);
/* Gives the pages of the mapped arrays back; they come again from the memfd when they are touched.
 * The engine keeps amplitudes of its own, so the counts need not stay in this process's memory. */
void xpd_input_drop_pages(const xpd_input *input);

/* mode_schedule stays borrowed from the job. */
xpe_stage xpd_stage_of(const xpp_stage *stage);

/* The devices of a job. */
typedef struct xpd_devices {
    char name[XPP_DEVICES_MAX][32];
    const char *names[XPP_DEVICES_MAX];
    char model[96]; /* of the first */
    int count;
    int cpu_threads; /* resolved: what `every core` means here; 0 without a CPU device */
} xpd_devices;

/* None named: every CUDA device, else the CPU. */
XPE_MUST_CHECK xpe_status xpd_devices_choose(xpd_devices *out, const xpp_job *job, xpe_error *err);
/* Borrows out. */
xpe_device_list xpd_devices_list(const xpd_devices *devices);

#endif
