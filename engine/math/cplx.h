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

XPE_HD xpe_c32 xpe_mul(xpe_c32 a, xpe_c32 b)
{
    return xpe_c(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
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
