/* The relaxed updates of patches and probe copies: algorithm.md 3, steps 1, 2, 4, 5, 6, one pixel.
 */
#ifndef XPE_RELAX_H
#define XPE_RELAX_H

#include "cplx.h"

#if !defined(__CUDACC__)
#include <math.h>
#endif

/* Stable division factor: a / b = a * xpe_divider(b, eps) with conj(b) / (|b|^2 + eps). */
XPE_HD xpe_c32 xpe_divider(xpe_c32 b, float eps)
{
    float d = 1.0f / (xpe_energy(b) + eps);
    return xpe_c(b.re * d, -(b.im * d));
}

/* v + 2 rho z */
XPE_HD xpe_c32 xpe_advance(xpe_c32 v, xpe_c32 z, float two_rho)
{
    return xpe_c(v.re + two_rho * z.re, v.im + two_rho * z.im);
}

/* v - 2 rho w */
XPE_HD xpe_c32 xpe_retreat(xpe_c32 v, xpe_c32 w, float two_rho)
{
    return xpe_c(v.re - two_rho * w.re, v.im - two_rho * w.im);
}

/* (1 - alpha) v + t, where t already carries its alpha */
XPE_HD xpe_c32 xpe_blend(xpe_c32 v, xpe_c32 t, float one_minus_alpha)
{
    return xpe_c(one_minus_alpha * v.re + t.re, one_minus_alpha * v.im + t.im);
}

/* |s - d| */
XPE_HD float xpe_deviation(xpe_c32 s, xpe_c32 d)
{
    return sqrtf(xpe_energy(xpe_sub(s, d)));
}

/* Step 6: the copy, or the mode where 0.6745 |s - d| / m > 1.5 (strictly). */
XPE_HD xpe_c32 xpe_replace_outlier(xpe_c32 s, xpe_c32 d, float mean_deviation)
{
    float score = 0.6745f * xpe_deviation(s, d) / mean_deviation;
    return score > 1.5f ? d : s;
}

#endif
