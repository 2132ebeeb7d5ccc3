/* The devices of this node as the worker said them, and the choice for a job.  Pure; loop thread
 * only. */
#ifndef XPD_DEVICE_H
#define XPD_DEVICE_H

#include "fault.h"

typedef struct xpd_devices {
    bool known; /* a worker has said hello */
    xpe_device_info items[XPP_DEVICES_MAX];
    int count;
} xpd_devices;

/* From the body of `hello`; false when it breaks the contract. */
bool xpd_devices_decode(xpd_devices *out, const json_t *hello);
/* Memory of now, from the body of `pong`: [{name, bytes_total, bytes_free}]; a device that it does
 * not name stays as it was.  false when it breaks the contract. */
bool xpd_devices_update(xpd_devices *devices, const json_t *pong);
const xpe_device_info *xpd_devices_find(const xpd_devices *devices, const char *name); /* or NULL */
bool xpd_devices_usable(const xpd_devices *devices); /* at least one */
/* How far apart the two that are farthest are, one of each list, of those that can be used: 1 =
 * over the best kind of link, ..., XPD_FAR = not linked, or nobody knows. */
#define XPD_FAR (XPE_REACH_MAX + 1)
int xpd_devices_far(const xpd_devices *a, const xpd_devices *b);

/* Names for a job: its own list, or m CUDA GPUs, or, where it says nothing, every CUDA GPU, else
 * the CPU.  `num_devices` counts CUDA GPUs; without any it may only be 1, which is then the CPU. */
typedef struct xpd_choice {
    char names[XPP_DEVICES_MAX][32];
    int64_t bytes_free[XPP_DEVICES_MAX];
    int count;
} xpd_choice;
bool xpd_devices_choose(xpd_choice *out, const xpd_devices *devices, const xpp_job *job,
                        xpd_error *err);
json_t *xpd_choice_names(const xpd_choice *choice);
/* The free bytes of the chosen devices as they are said now. */
void xpd_choice_refresh(xpd_choice *choice, const xpd_devices *devices);

#endif
