/* What `workers.cuda` says: the sets of GPUs.  Pure. */
#ifndef XPD_GPUSET_H
#define XPD_GPUSET_H

#include "fault.h"

#define XPD_GPU_SETS_MAX 32

typedef struct xpd_gpu_sets {
    bool automatic; /* one set a GPU, as many as the worker finds; else those below */
    int count;      /* of sets */
    struct {
        char names[XPP_DEVICES_MAX][16];
        int count;
    } sets[XPD_GPU_SETS_MAX];
} xpd_gpu_sets;

/* "auto", "none" or sets with blanks between, each devices with + between:
 * "cuda:0+cuda:1 cuda:2".  A device is in one set only. */
bool xpd_gpu_sets_parse(xpd_gpu_sets *out, const char *text, xpd_error *err);

#endif
