/* What lets one header serve C and CUDA: the decorator of the per-pixel functions.
 *
 * Everything in engine/math takes values and gives a value: no memory of its own, no backend types,
 * and only the common subset of C17 and C++. */
#ifndef XPE_HD_H
#define XPE_HD_H

#include "xptychod/engine.h"

#if defined(__CUDACC__)
#define XPE_HD static __host__ __device__ __forceinline__
#else
#define XPE_HD static inline __attribute__((always_inline))
#endif

#endif
