/* Small helpers of the engine, beside what core and backends share: the error jump, checked sizes,
 * heap memory. */
#ifndef XPE_UTIL_H
#define XPE_UTIL_H

#include "xptychod/engine.h"

#include <stdlib.h>

/* Needs a local `xpe_status st` and a label `done`. */
#define XPE_TRY(call)                                                                              \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != XPE_OK)                                                                          \
            goto done;                                                                             \
    } while (0)

/* Zeroed memory for count items, or a failure that says how much was asked for. */
static inline xpe_status xpe_new(void *out, size_t count, size_t size, xpe_error *err)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    *(void **)out = p;
    if (!p)
        return xpe_fail(err, XPE_NO_MEMORY, "",
                        "host memory is exhausted: %.1f MiB more were needed",
                        (double)count * (double)size / 1048576.0);
    return XPE_OK;
}

static inline int64_t xpe_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t xpe_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
