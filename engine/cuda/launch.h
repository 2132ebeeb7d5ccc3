/* The words kernels are written in.  This file gives their CUDA meaning;
 * engine/emu/include/xpe_emu_launch.h gives the same words on the host, where k_*.cu is compiled as
 * C.
 *
 *   XPE_KERNEL(name, args_type) { ... }
 *       a kernel; its one argument, the struct, is called p and is constant
 *   XPE_DEVICE type name(...) { ... }
 *       a function that kernels call and that uses these words; plain arithmetic is XPE_HD
 *       (math/hd.h)
 *   XPE_BLOCK_LOOP(b, count) { ... }
 *       b (int64_t) runs over the work items of this block; a grid may be smaller than count, so
 *       nothing is limited by the size of a grid
 *   XPE_THREADS(t) { ... }
 *       a phase: done by every thread t (int) in [0, XPE_BLOCK), in any order, and a barrier behind
 *       it.  Values that live from one phase to the next are in XPE_SHARED memory.  No break, no
 *       return, no phase inside a phase
 *   XPE_SHARED(type, name, count);
 *       memory of a block, undefined at first
 *   XPE_PRIVATE(type, name, count);
 *       count values of each thread that live from one phase to the next: registers on a GPU, so
 *       they are indexed by constants; XPE_MINE(name, t) is the array of thread t, XPE_OF(name, t,
 *       i) one value of it
 *   XPE_ADD64(int64_t *to, int64_t x)
 *       atomic in the whole device; order-free because integers are
 *   XPE_MAX32(int32_t *to, int32_t x)
 *       the same for a maximum, in device or shared memory
 *   XPE_READ(from)
 *       a number that nothing writes while the kernel runs
 *   XPE_LAUNCH(name, count, stream, args)
 *       enqueues; args points at the struct, which is copied.  The outcome is what cudaGetLastError
 *       says
 *
 * On the host a kernel is a function that is called once a block, and a phase is a loop over
 * threads; that needs no coroutines, costs nothing, and an order of threads drawn anew for each
 * phase shows phases that lack a barrier. */
#ifndef XPE_CUDA_LAUNCH_H
#define XPE_CUDA_LAUNCH_H

#include "api.h"

#define XPE_BLOCK 256          /* threads of a block, always */
#define XPE_GRID_MAX (1 << 20) /* blocks of a grid at most; XPE_BLOCK_LOOP does the rest */

#if defined(__CUDACC__)

#define XPE_KERNEL(name, type)                                                                     \
    static __global__ void __launch_bounds__(XPE_BLOCK) name(const __grid_constant__ type p)
#define XPE_DEVICE static __device__ __forceinline__
#define XPE_BLOCK_LOOP(b, count)                                                                   \
    for (int64_t b = (int64_t)blockIdx.x; b < (count); b += (int64_t)gridDim.x)
#define XPE_THREADS(t)                                                                             \
    for (int t = (int)threadIdx.x, xpe_once = 1; xpe_once; xpe_once = 0, __syncthreads())
#define XPE_SHARED(type, name, count) __shared__ type name[count]
#define XPE_PRIVATE(type, name, count) type name[count]
#define XPE_MINE(name, t) (&(name)[0 * (t)])
#define XPE_UNROLL _Pragma("unroll")
#define XPE_ADD64(to, x) atomicAdd((unsigned long long *)(to), (unsigned long long)(x))
/* Looks first: after the first few pixels of a frame hardly any is a new maximum. */
#define XPE_MAX32(to, x)                                                                           \
    do {                                                                                           \
        int32_t xpe_x = (x);                                                                       \
        if (xpe_x > *(volatile int32_t *)(to))                                                     \
            atomicMax((int32_t *)(to), xpe_x);                                                     \
    } while (0)
#define XPE_READ(from) __ldg(from)
#define XPE_LAUNCH(name, count, stream, args)                                                      \
    do {                                                                                           \
        int64_t xpe_count = (count);                                                               \
        if (xpe_count > 0)                                                                         \
            name<<<(unsigned)(xpe_count < XPE_GRID_MAX ? xpe_count : XPE_GRID_MAX), XPE_BLOCK, 0,  \
                   stream>>>(*(args));                                                             \
    } while (0)

#else
#define XPE_DEVICE static inline
#define XPE_READ(from) (*(from))
#define XPE_PRIVATE(type, name, count) type name[XPE_BLOCK][count]
#define XPE_MINE(name, t) ((name)[t])
#define XPE_UNROLL
#include <xpe_emu_launch.h>
#endif

#define XPE_OF(name, t, i) (XPE_MINE(name, t)[i])

#endif
