/* Probe copies: steps 4, 5 and 6, between the transforms; sums over positions of probe-sized
 * arrays.
 *
 * All frames of a block add to the same n x n sums.  A thread therefore takes one pixel of a group
 * of frames and adds up in registers, which leaves one atomic addition in XPE_GROUP. */
#include "pixel.h"

XPE_KERNEL(k_copies_load, k_copies_load_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            {
                xpe_c32 x = p.image[xpe_place_of(p.place, f, p.chunk.n, i)];
                for (int k = 0; k < p.chunk.modes; k++)
                    p.field[k * p.chunk.stride + s.frame * plane + i] =
                        xpe_mul(xpe_load_copy(&p, k, f, i), x);
            }
        }
    }
}
XPE_LAUNCHER(copies_load, XPE_SEGMENT_WORK)

XPE_KERNEL(k_impose, k_impose_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, at = s.frame * plane;
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            {
                float intensity = 0, g;
                for (int k = 0; k < p.chunk.modes; k++)
                    intensity += xpe_energy(p.modes[k * p.chunk.stride + at + i]);
                g = xpe_gain(p.y[p.chunk.frame * plane + at + i], intensity);
                for (int k = 0; k < p.chunk.modes; k++) {
                    int64_t j = k * p.chunk.stride + at + i;
                    p.copies[j] = xpe_imposed(p.copies[j], g * sqrtf(xpe_energy(p.modes[j])),
                                              i / p.chunk.n, i % p.chunk.n);
                }
            }
        }
    }
}
XPE_LAUNCHER(impose, XPE_SEGMENT_WORK)

XPE_KERNEL(k_copies_store, k_copies_store_args)
{
    XPE_SHARED(int32_t, most, XPE_GROUP);

    XPE_BLOCK_LOOP(b, xpe_groups(&p.chunk, p.chunk.modes))
    {
        xpe_group g = xpe_group_of(b, &p.chunk);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n;
        XPE_THREADS(t)
        {
            if (t < XPE_GROUP)
                most[t] = 0;
        }
        XPE_THREADS(t)
        {
            int i = g.pixel + t;
            xpe_copy_sums sums = {0, 0, 0, 0};
            for (int64_t c = g.begin; i < plane && c < g.end; c++)
                XPE_MAX32(most + (c - g.begin),
                          xpe_store_copy(&p, g.mode, p.chunk.frame + c, i,
                                         p.field[g.mode * p.chunk.stride + c * plane + i], &sums));
            if (i < plane) {
                xpe_add_sum(p.sum_s, g.mode * plane + i, sums.s_re, sums.s_im);
                xpe_add_sum(p.sum_r, g.mode * plane + i, sums.r_re, sums.r_im);
            }
        }
        XPE_THREADS(t)
        {
            if (t < g.end - g.begin)
                XPE_MAX32((int32_t *)(void *)(p.s_energy + g.mode * p.chunk.block + p.chunk.frame +
                                              g.begin + t),
                          most[t]);
        }
    }
}
XPE_LAUNCHER(copies_store, xpe_groups(&args->chunk, args->chunk.modes))

XPE_KERNEL(k_deviation, k_deviation_args)
{
    XPE_BLOCK_LOOP(b, xpe_groups(&p.chunk, p.chunk.modes))
    {
        xpe_group g = xpe_group_of(b, &p.chunk);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n;
        const xpe_unit *unit = &p.numbers->mode[g.mode].unit_dev;
        XPE_THREADS(t)
        {
            int64_t i = g.pixel + t, sum = 0;
            if (i < plane) {
                int64_t at = g.mode * plane + i;
                for (int64_t c = g.begin; c < g.end; c++) {
                    xpe_c32 s =
                        p.copies.s[(g.mode * p.chunk.block + p.chunk.frame + c) * plane + i];
                    float x = xpe_deviation(xpe_advance(s, p.copies.u[at], p.copies.two_rho),
                                            p.copies.d[at]);
                    sum = xpe_fix_add(sum, xpe_fixed(x, unit));
                }
                XPE_ADD64(p.sum + at, sum);
            }
        }
    }
}
XPE_LAUNCHER(deviation, xpe_groups(&args->chunk, args->chunk.modes))

XPE_KERNEL(k_settle, k_settle_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        XPE_THREADS(t)
        {
            for (int k = 0; k < p.chunk.modes; k++)
                XPE_PIXELS(i, s, t)
                {
                    int64_t at = (k * p.chunk.block + f) * plane + i;
                    p.copies.s[at] =
                        xpe_scale(xpe_settled(&p.copies, p.copies.s[at], k * plane + i), p.scale);
                }
        }
    }
}
XPE_LAUNCHER(settle, XPE_SEGMENT_WORK)

XPE_KERNEL(k_fill, k_fill_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            p.s[(p.mode * p.chunk.block + f) * plane + i] = p.value[p.mode * plane + i];
        }
    }
}
XPE_LAUNCHER(fill, XPE_SEGMENT_WORK)

XPE_KERNEL(k_back, k_back_args)
{
    XPE_BLOCK_LOOP(b, xpe_groups(&p.chunk, 1))
    {
        xpe_group g = xpe_group_of(b, &p.chunk);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n;
        XPE_THREADS(t)
        {
            int i = g.pixel + t;
            int64_t re = 0, im = 0;
            for (int64_t c = g.begin; i < plane && c < g.end; c++) {
                xpe_c32 w = xpe_back_value(&p, p.chunk.frame + c, i, p.field[c * plane + i]);
                re = xpe_fix_add(re, xpe_fix(w.re, p.unit.magic, p.unit.bias));
                im = xpe_fix_add(im, xpe_fix(w.im, p.unit.magic, p.unit.bias));
            }
            if (i < plane)
                xpe_add_sum(p.sum, i, re, im);
        }
    }
}
XPE_LAUNCHER(back, xpe_groups(&args->chunk, 1))
