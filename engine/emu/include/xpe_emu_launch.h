/* The words of engine/cuda/launch.h on the host.
 *
 * A kernel is a function called once a block, a phase a loop over the threads.  What a GPU leaves
 * open is drawn at random: how many blocks the grid has (XPE_BLOCK_LOOP does the rest), their
 * order, and the order of the threads, anew for every phase, so that two phases that need a barrier
 * between them show it.  Shared memory starts as NaN. Blocks run one after the other, which makes
 * an atomic addition an addition. */
#ifndef XPE_EMU_LAUNCH_H
#define XPE_EMU_LAUNCH_H

#include "cuda_runtime.h"

#include <stdint.h>

typedef struct xpe_emu_block {
    int64_t index, grid;
    uint32_t random;
} xpe_emu_block;

typedef void xpe_emu_kernel(xpe_emu_block *block, const void *args);

/* Enqueues the kernel with a copy of its arguments. */
void xpe_emu_launch(xpe_emu_kernel *kernel, const char *name, int64_t count, cudaStream_t stream,
                    const void *args, size_t bytes);
/* What fresh memory holds: NaN as float and double, huge as an integer. */
void xpe_emu_spoil(void *data, size_t bytes);

static inline int xpe_emu_draw(xpe_emu_block *block)
{
    block->random = block->random * 1664525u + 1013904223u;
    return (int)(block->random >> 12);
}

/* As two's complement wraps on the device. */
static inline void xpe_emu_add64(int64_t *to, int64_t x)
{
    *to = (int64_t)((uint64_t)*to + (uint64_t)x);
}

static inline void xpe_emu_max32(int32_t *to, int32_t x)
{
    if (x > *to)
        *to = x;
}

#define XPE_KERNEL(name, type)                                                                     \
    static void name(xpe_emu_block *xpe_emu, const type p);                                        \
    static void name##_emu(xpe_emu_block *block, const void *args)                                 \
    {                                                                                              \
        name(block, *(const type *)args);                                                          \
    }                                                                                              \
    static void name(__attribute__((unused)) xpe_emu_block *xpe_emu, const type p)
#define XPE_BLOCK_LOOP(b, count) for (int64_t b = xpe_emu->index; b < (count); b += xpe_emu->grid)
/* An odd step visits every thread because XPE_BLOCK is a power of two. */
#define XPE_THREADS(t)                                                                             \
    for (int t = xpe_emu_draw(xpe_emu) & (XPE_BLOCK - 1),                                          \
             xpe_emu_step = xpe_emu_draw(xpe_emu) | 1, xpe_emu_left = XPE_BLOCK;                   \
         xpe_emu_left > 0; xpe_emu_left--, t = (t + xpe_emu_step) & (XPE_BLOCK - 1))
#define XPE_SHARED(type, name, count)                                                              \
    type name[count];                                                                              \
    xpe_emu_spoil(name, sizeof name)
#define XPE_ADD64(to, x) xpe_emu_add64((to), (x))
#define XPE_MAX32(to, x) xpe_emu_max32((to), (x))
#define XPE_LAUNCH(name, count, stream, args)                                                      \
    xpe_emu_launch(name##_emu, #name, (count), (stream), (args), sizeof *(args))

#endif
