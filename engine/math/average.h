/* Averages over patches and over probe copies, and what follows from the modes: algorithm.md 1 and
 * 3, one pixel, in double precision. */
#ifndef XPE_AVERAGE_H
#define XPE_AVERAGE_H

#include "relax.h"

#define XPE_COVERAGE_SCALE (1.0 / (1.0 + 1e-6)) /* L_k as used in divisions */

/* w_k L_k / (L_k^2 + eps_k): what an image sum is multiplied by.  l = sum over positions of
 * |d_k|^kappa. */
XPE_HD double xpe_cover_factor(double l, double share, double eps)
{
    double cover = l * XPE_COVERAGE_SCALE;
    return share * cover / (cover * cover + eps);
}

/* The term of mode k in z: (2 W - V) q. */
XPE_HD double xpe_average_z(double w, double v, double q)
{
    return (2 * w - v) * q;
}

/* V after step 2: V - 2 rho W + 2 rho z L. */
XPE_HD double xpe_average_v(double v, double w, double z, double l, double two_rho)
{
    return v + two_rho * (z * l - w);
}

/* u = (2 R - S) / J (step 4). */
XPE_HD float xpe_mode_u(double r, double s, double num_frames)
{
    return (float)((2 * r - s) / num_frames);
}

/* d = (S - 2 rho R) / J + 2 rho u (step 5). */
XPE_HD float xpe_mode_d(double r, double s, double u, double num_frames, double two_rho)
{
    return (float)((s - two_rho * r) / num_frames + two_rho * u);
}

/* m = D / J, 0 replaced by 1e-6 (step 6). */
XPE_HD float xpe_mode_deviation(double sum, double num_frames)
{
    float m = (float)(sum / num_frames);
    return m > 0 ? m : 1e-6f;
}

/* |d|^kappa in float32 from |d|^2; the common exponents need no logarithm. */
XPE_HD float xpe_power(float energy, double kappa)
{
    float size = sqrtf(energy);
    if (kappa == 1.0)
        return size;
    if (kappa == 1.25)
        return size * sqrtf(sqrtf(size));
    if (kappa == 1.5)
        return size * sqrtf(size);
    if (kappa == 2.0)
        return energy;
    return (float)pow((double)size, kappa);
}

/* w_m |d_m| / (|d_m|^2 + eps_m): how far the fit of a pixel reaches. */
XPE_HD double xpe_reach(float energy, double share, double eps)
{
    return share * sqrt((double)energy) / ((double)energy + eps);
}

/* |a|^2 in double. */
XPE_HD double xpe_energy_double(xpe_c32 a)
{
    return (double)a.re * (double)a.re + (double)a.im * (double)a.im;
}

#endif
