/* Bringing a modelled far field to the data: algorithm.md 3, steps 1, 4 and 7, one detector pixel.
 *
 * A negative amplitude y marks a masked pixel, where the data say nothing (section 3, "Masked
 * pixels"). Amplitudes are sqrt(counts); fields are orthonormal transforms in the same units. */
#ifndef XPE_FIT_H
#define XPE_FIT_H

#include "cplx.h"

#if !defined(__CUDACC__)
#include <math.h>
#endif

#define XPE_TINY 1e-6f /* the absolute guard inside the root of the amplitude ratio */

/* g = sqrt(y^2 / (I + 1e-6)); 1 where masked.  intensity = sum_k |G_k|^2. */
XPE_HD float xpe_gain(float y, float intensity)
{
    float g = y / sqrtf(intensity + XPE_TINY);
    return y < 0.0f ? 1.0f : g;
}

/* sqrt(I) - y, the amplitude misfit of step 7 (no guard there); 0 where masked. */
XPE_HD float xpe_misfit(float y, float intensity)
{
    float m = sqrtf(intensity) - y;
    return y < 0.0f ? 0.0f : m;
}

/* Factor that gives field S the magnitude `wanted`, keeping its phase: wanted / |S|, energy =
 * |S|^2.  0 where S is 0: its phase factor is 1 there (arg 0 = 0), so the caller puts `wanted`
 * itself. */
XPE_HD float xpe_phase_scale(float wanted, float energy)
{
    float s = wanted / sqrtf(energy);
    return energy > 0.0f ? s : 0.0f;
}

/* Residual amplitude of step 3: sqrt(max(0, y^2 - I)); 0 where masked. */
XPE_HD float xpe_residual(float y, float intensity)
{
    float r = y * y - intensity;
    return (y < 0.0f || !(r > 0.0f)) ? 0.0f : sqrtf(r);
}

#endif
