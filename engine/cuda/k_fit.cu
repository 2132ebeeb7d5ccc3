/* The trip over the frames: steps 7, 2 and 1, between the transforms. */
#include "pixel.h"

XPE_KERNEL(k_product, k_product_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        int64_t row = p.place.first[2 * f] + p.row, col = p.place.first[2 * f + 1] + p.col;
        bool inside = !p.rows || (row >= 0 && col >= 0 && row + p.chunk.n <= p.rows &&
                                  col + p.chunk.n <= p.place.cols);
        int64_t shift = p.row * p.place.cols + p.col;
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            {
                xpe_c32 x = xpe_c(0.0f, 0.0f);
                if (inside)
                    x = p.image[xpe_place_of(p.place, f, p.chunk.n, i) + shift];
                for (int k = 0; k < p.chunk.modes; k++)
                    p.field[k * p.chunk.stride + s.frame * plane + i] =
                        xpe_mul(p.probe[k * plane + i], x);
            }
        }
    }
}
XPE_LAUNCHER(product, XPE_SEGMENT_WORK)

XPE_KERNEL(k_load, k_load_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            {
                xpe_c32 v = xpe_load_v(&p, f, i);
                if (p.z)
                    p.v[f * plane + i] = v;
                for (int k = 0; p.probe && k < p.chunk.modes; k++)
                    p.field[k * p.chunk.stride + s.frame * plane + i] =
                        xpe_mul(p.probe[k * plane + i], v);
                for (int k = 0; p.sum_v && k < p.chunk.modes; k++)
                    xpe_add_pixel(p.sum_v, k * p.window + xpe_place_of(p.place, f, p.chunk.n, i),
                                  p.weight[k * plane + i], v, &p.numbers->mode[k].unit_v);
            }
        }
    }
}
XPE_LAUNCHER(load, XPE_SEGMENT_WORK)

XPE_KERNEL(k_replace, k_replace_args)
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
                    intensity += xpe_energy(p.field[k * p.chunk.stride + at + i]);
                g = xpe_gain(p.y[p.chunk.frame * plane + at + i], intensity);
                for (int k = 0; k < p.chunk.modes; k++)
                    p.field[k * p.chunk.stride + at + i] =
                        xpe_scale(p.field[k * p.chunk.stride + at + i], g);
            }
        }
    }
}
XPE_LAUNCHER(replace, XPE_SEGMENT_WORK)

XPE_KERNEL(k_store, k_store_args)
{
    XPE_SHARED(int32_t, most, 1);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        XPE_THREADS(t)
        {
            if (t == 0)
                most[0] = 0;
        }
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            {
                xpe_c32 w = xpe_mul(p.field[s.frame * plane + i], p.divider[i]);
                for (int k = 1; k < p.chunk.modes; k++)
                    w = xpe_add(w, xpe_mul(p.field[k * p.chunk.stride + s.frame * plane + i],
                                           p.divider[k * plane + i]));
                XPE_MAX32(most, xpe_store_v(&p, f, i, w));
            }
        }
        XPE_THREADS(t)
        {
            if (t == 0)
                XPE_MAX32((int32_t *)(void *)(p.v_energy + f), most[0]);
        }
    }
}
XPE_LAUNCHER(store, XPE_SEGMENT_WORK)

XPE_KERNEL(k_cover, k_cover_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            {
                int64_t at = xpe_place_of(p.place, f, p.chunk.n, i);
                for (int k = 0; k < p.chunk.modes; k++)
                    XPE_ADD64(p.sum_l + k * p.window + at,
                              xpe_fixed(p.weight[k * plane + i], &p.numbers->mode[k].unit_l));
            }
        }
    }
}
XPE_LAUNCHER(cover, XPE_SEGMENT_WORK)

XPE_KERNEL(k_patch, k_patch_args)
{
    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, f = p.chunk.frame + s.frame;
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            p.v[f * plane + i] = p.image[xpe_place_of(p.place, f, p.chunk.n, i)];
        }
    }
}
XPE_LAUNCHER(patch, XPE_SEGMENT_WORK)
