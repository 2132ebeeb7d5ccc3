/* The threads of one team: the calling thread and threads - 1 helpers, which sleep between passes.
 *
 * xpe_pool_run calls `body(arg, part, thread)` for every part in [0, parts) and returns when all
 * are done. Parts are taken in order by whichever thread is free; nothing may depend on which.
 * `thread` is below the number of threads and names the scratch memory to use. */
#ifndef XPE_POOL_H
#define XPE_POOL_H

#include "xptychod/engine.h"

typedef struct xpe_pool xpe_pool;

XPE_MUST_CHECK xpe_status xpe_pool_create(xpe_pool **out, int threads, xpe_error *err);
void xpe_pool_destroy(xpe_pool *pool);
int xpe_pool_threads(const xpe_pool *pool);
void xpe_pool_run(xpe_pool *pool, int parts, void (*body)(void *arg, int part, int thread),
                  void *arg);

#endif
