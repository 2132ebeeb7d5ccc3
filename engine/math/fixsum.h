/* Exactly associative sums: algorithm.md 5.
 *
 * A contribution x is rounded (half to even) to a multiple of a power-of-two unit and becomes a
 * 64-bit integer; integers are added in any order.  The rounding is one addition of double
 * precision: in [2^52, 2^53) units a double's spacing is exactly one unit, so adding 1.5 * 2^52
 * units to x rounds it, and the difference of the bit patterns is the integer.  Needs |x| <= 2^51
 * units. */
#ifndef XPE_FIXSUM_H
#define XPE_FIXSUM_H

#include "hd.h"

#if !defined(__CUDACC__)
#include <math.h>
#include <string.h>
#endif

/* The unit of a pass; the same on every device, thread and batch. */
typedef struct xpe_unit {
    double unit;  /* value of 1 */
    double magic; /* 1.5 * 2^52 * unit */
    int64_t bias; /* bit pattern of magic */
} xpe_unit;

XPE_HD int64_t xpe_fix_bits(double x)
{
    int64_t b;
#if defined(__CUDA_ARCH__)
    b = __double_as_longlong(x);
#else
    memcpy(&b, &x, sizeof b);
#endif
    return b;
}

/* a + b.  Wraps, because while a run diverges values are beyond their bound until that is noticed,
 * and an overflow of signed integers is undefined. */
XPE_HD int64_t xpe_fix_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

XPE_HD int64_t xpe_fix(float x, double magic, int64_t bias)
{
    return xpe_fix_add(xpe_fix_bits((double)x + magic), -bias);
}

XPE_HD double xpe_unfix(int64_t sum, double unit)
{
    return (double)sum * unit;
}

/* Unit for at most `count` contributions of magnitude at most `bound` (> 0, finite): a contribution
 * takes at most 2^50 units and the sum stays below 2^63.  Its rounding error is at most count / 2
 * units. */
XPE_HD xpe_unit xpe_unit_make(double bound, int64_t count)
{
    xpe_unit u;
    int bound_exponent, count_exponent, bits;
    (void)frexp(bound, &bound_exponent);                           /* bound < 2^bound_exponent */
    (void)frexp((double)(count > 1 ? count : 1), &count_exponent); /* count <= 2^count_exponent */
    bits = 62 - count_exponent < 50 ? 62 - count_exponent : 50;
    if (bound_exponent < -900)
        bound_exponent = -900;
    u.unit = ldexp(1.0, bound_exponent - bits);
    u.magic = ldexp(1.5, 52 + bound_exponent - bits);
    u.bias = xpe_fix_bits(u.magic);
    return u;
}

#endif
