/* What is done to one pixel between the transforms, shared by the kernels that only do that
 * (k_fit.cu, k_probe.cu) and those that transform as well (k_chain.cu).  f is a frame of the block,
 * c the same frame of the chunk, i a pixel. */
#ifndef XPE_CUDA_PIXEL_H
#define XPE_CUDA_PIXEL_H

#include "kernel.h"

#include "math/fit.h"
#include "math/order.h"
#include "math/relax.h"

/* A contribution as an integer.  A unit is read from where the device keeps it; no kernel that
 * adds writes there. */
XPE_DEVICE int64_t xpe_fixed(float x, const xpe_unit *unit)
{
    return xpe_fix(x, XPE_READ(&unit->magic), XPE_READ(&unit->bias));
}

/* ------------------------------------------------------------------------------- patches */

/* v after step 2 of the iteration before, where that is still to be done. */
XPE_DEVICE xpe_c32 xpe_load_v(const k_load_args *p, int64_t f, int i)
{
    int64_t plane = (int64_t)p->chunk.n * p->chunk.n;
    xpe_c32 v = p->v[f * plane + i];
    return p->z ? xpe_advance(v, p->z[xpe_place_of(p->place, f, p->chunk.n, i)], p->two_rho) : v;
}

/* Adds weight times w into a sum of complex pixels. */
XPE_DEVICE void xpe_add_pixel(int64_t *sum, int64_t at, float weight, xpe_c32 w,
                              const xpe_unit *unit)
{
    XPE_ADD64(sum + 2 * at, xpe_fixed(weight * w.re, unit));
    XPE_ADD64(sum + 2 * at + 1, xpe_fixed(weight * w.im, unit));
}

/* Step 1 from t = sum_k w_k t_k on; returns |v|^2 as ordered bits. */
XPE_DEVICE int32_t xpe_store_v(const k_store_args *p, int64_t f, int i, xpe_c32 t)
{
    int64_t plane = (int64_t)p->chunk.n * p->chunk.n, at = xpe_place_of(p->place, f, p->chunk.n, i);
    xpe_c32 v = p->v[f * plane + i], w;

    if (p->z) /* a chain leaves step 2 of the iteration before to this place */
        v = xpe_advance(v, p->z[at], p->two_rho);
    w = xpe_blend(v, t, p->one_minus_alpha);
    for (int k = 0; k < p->chunk.modes; k++) {
        float weight = p->weight[k * plane + i];
        if (p->sum_v)
            xpe_add_pixel(p->sum_v, k * p->window + at, weight, v, &p->numbers->mode[k].unit_v);
        xpe_add_pixel(p->sum_w, k * p->window + at, weight, w, &p->numbers->mode[k].unit_w);
        if (p->sum_l)
            XPE_ADD64(p->sum_l + k * p->window + at,
                      xpe_fixed(weight, &p->numbers->mode[k].unit_l));
    }
    v = xpe_retreat(v, w, p->two_rho);
    p->v[f * plane + i] = v;
    return xpe_order_bits(xpe_energy(v));
}

/* -------------------------------------------------------------------------------- copies */

XPE_DEVICE xpe_c32 xpe_settled(const k_copies *c, xpe_c32 s, int64_t i)
{
    return c->deviation
               ? xpe_replace_outlier(xpe_advance(s, c->u[i], c->two_rho), c->d[i], c->deviation[i])
               : s;
}

/* The copy of mode k, after its pending steps, which are done for good here. */
XPE_DEVICE xpe_c32 xpe_load_copy(const k_copies_load_args *p, int k, int64_t f, int i)
{
    int64_t plane = (int64_t)p->chunk.n * p->chunk.n, at = (k * p->chunk.block + f) * plane + i;
    xpe_c32 copy = xpe_settled(&p->copies, p->copies.s[at], k * plane + i);

    if (p->copies.deviation)
        p->copies.s[at] = copy;
    return copy;
}

/* The copy's field with the amplitude `wanted`; where it is 0 the phase factor is 1, times the
 * checkerboard. */
XPE_DEVICE xpe_c32 xpe_imposed(xpe_c32 s, float wanted, int row, int col)
{
    float energy = xpe_energy(s);

    if (energy > 0)
        return xpe_scale(s, xpe_phase_scale(wanted, energy));
    return xpe_c((row + col) % 2 ? -wanted : wanted, 0.0f);
}

XPE_DEVICE xpe_c32 xpe_divided(xpe_c32 t, xpe_c32 patch, float eps, float factor)
{
    return xpe_mul(t, xpe_scale(xpe_divider(patch, eps), factor));
}

/* Sums of one thread over the frames of a group: of r and of s before the step. */
typedef struct xpe_copy_sums {
    int64_t r_re, r_im, s_re, s_im;
} xpe_copy_sums;

/* Step 4 from the field t of mode k on; returns |s|^2 as ordered bits. */
XPE_DEVICE int32_t xpe_store_copy(const k_copies_store_args *p, int k, int64_t f, int i, xpe_c32 t,
                                  xpe_copy_sums *sums)
{
    int64_t plane = (int64_t)p->chunk.n * p->chunk.n, at = (k * p->chunk.block + f) * plane + i;
    const xpe_unit *unit_r = &p->numbers->mode[k].unit_r, *unit_s = &p->numbers->mode[k].unit_s;
    float eps = (float)XPE_READ(&p->numbers->patch_eps);
    xpe_c32 s = p->s[at],
            r = xpe_divided(t, p->image[xpe_place_of(p->place, f, p->chunk.n, i)], eps, p->factor);

    sums->s_re = xpe_fix_add(sums->s_re, xpe_fixed(s.re, unit_s));
    sums->s_im = xpe_fix_add(sums->s_im, xpe_fixed(s.im, unit_s));
    r = xpe_blend(s, r, p->one_minus_alpha);
    sums->r_re = xpe_fix_add(sums->r_re, xpe_fixed(r.re, unit_r));
    sums->r_im = xpe_fix_add(sums->r_im, xpe_fixed(r.im, unit_r));
    s = xpe_retreat(s, r, p->two_rho);
    p->s[at] = s;
    return xpe_order_bits(xpe_energy(s));
}

XPE_DEVICE void xpe_add_sum(int64_t *sum, int64_t at, int64_t re, int64_t im)
{
    XPE_ADD64(sum + 2 * at, re);
    XPE_ADD64(sum + 2 * at + 1, im);
}

/* The contribution of a frame to a mean of back-transformed fields. */
XPE_DEVICE xpe_c32 xpe_back_value(const k_back_args *p, int64_t f, int i, xpe_c32 t)
{
    if (!p->chunk.modes)
        return xpe_scale(t, p->factor);
    return xpe_divided(t, p->image[xpe_place_of(p->place, f, p->chunk.n, i)], p->patch_eps,
                       p->factor);
}

#endif
