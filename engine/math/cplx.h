/* Complex arithmetic on pairs of float32, every operation in the order written. */
#ifndef XPE_CPLX_H
#define XPE_CPLX_H

#include "hd.h"

XPE_HD xpe_c32 xpe_c(float re, float im)
{
    xpe_c32 c;
    c.re = re;
    c.im = im;
    return c;
}

XPE_HD xpe_c32 xpe_add(xpe_c32 a, xpe_c32 b)
{
    return xpe_c(a.re + b.re, a.im + b.im);
}

XPE_HD xpe_c32 xpe_sub(xpe_c32 a, xpe_c32 b)
{
    return xpe_c(a.re - b.re, a.im - b.im);
}

/* GCC 12 makes this into fused multiply-adds at the AVX-512 level in spite of -ffp-contract=off and
 * -mno-fma (its vectoriser's add-subtract pattern asks neither); the barrier keeps each product
 * rounded. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#if __GNUC__ >= 12
#define XPE_ROUNDED(x) __builtin_assoc_barrier(x)
#endif
#endif
#ifndef XPE_ROUNDED
#define XPE_ROUNDED(x) (x)
#endif

XPE_HD xpe_c32 xpe_mul(xpe_c32 a, xpe_c32 b)
{
    return xpe_c(XPE_ROUNDED(a.re * b.re) - XPE_ROUNDED(a.im * b.im),
                 XPE_ROUNDED(a.re * b.im) + XPE_ROUNDED(a.im * b.re));
}

XPE_HD xpe_c32 xpe_scale(xpe_c32 a, float s)
{
    return xpe_c(a.re * s, a.im * s);
}

/* |a|^2 */
XPE_HD float xpe_energy(xpe_c32 a)
{
    return a.re * a.re + a.im * a.im;
}

#endif
