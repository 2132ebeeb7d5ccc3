/* Order of floats as order of integers, for maxima that are formed atomically. */
#ifndef XPE_ORDER_H
#define XPE_ORDER_H

#include "hd.h"

#if !defined(__CUDACC__)
#include <string.h>
#endif

/* Floats that are not negative are ordered as their bit patterns are, and a NaN comes out on top.
 */
XPE_HD int32_t xpe_order_bits(float x)
{
    int32_t b;
#if defined(__CUDA_ARCH__)
    b = __float_as_int(x);
#else
    memcpy(&b, &x, sizeof b);
#endif
    return b & 0x7fffffff;
}

/* The larger of two, and a NaN if there is one. */
XPE_HD double xpe_larger(double a, double b)
{
    return a > b || a != a ? a : b;
}

#endif
