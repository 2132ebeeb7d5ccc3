/* Frames: counts to amplitudes, and what is reduced over a frame. */
#include "kernel.h"

#include "math/count.h"
#include "math/fit.h"

XPE_HD double count_at(const void *raw, int type, int64_t i)
{
    switch (type) {
#define X(name, text, bytes)                                                                       \
    case XPE_##name:                                                                               \
        return xpe_count_##text(((const text##_t *)raw)[i]);
        typedef float float32_t;
        typedef double float64_t;
        XPE_TYPE_LIST(X)
#undef X
    default:
        return -1.0;
    }
}

XPE_KERNEL(k_amplitude, k_amplitude_args)
{
    XPE_SHARED(double, energy, XPE_BLOCK);
    XPE_SHARED(double, masked, XPE_BLOCK);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, in = s.frame * plane,
                out = (p.chunk.frame + s.frame) * plane;
        XPE_THREADS(t)
        {
            energy[t] = 0;
            masked[t] = 0;
            XPE_PIXELS(i, s, t)
            {
                float y = XPE_MASKED;
                if (!p.mask || !p.mask[(p.mask_per_frame ? in : 0) + i])
                    y = xpe_amplitude(count_at(p.raw, p.type, in + i), p.saturation);
                p.y[out + i] = y;
                energy[t] += y < 0 ? 0.0 : (double)y * (double)y;
                masked[t] += y < 0 ? 1.0 : 0.0;
            }
        }
        XPE_TREE(energy, xpe_plus);
        XPE_TREE(masked, xpe_plus);
        XPE_THREADS(t)
        {
            if (t == 0) {
                p.partial[b] = energy[0];
                p.partial_masked[b] = (int64_t)masked[0];
            }
        }
    }
}
XPE_LAUNCHER(amplitude, XPE_SEGMENT_WORK)

XPE_HD bool leaves(const k_finish_args *a, int64_t f)
{
    int64_t row = a->first[2 * f] + a->row, col = a->first[2 * f + 1] + a->col;
    return row < 0 || col < 0 || row + a->chunk.n > a->rows || col + a->chunk.n > a->cols;
}

XPE_KERNEL(k_finish, k_finish_args)
{
    int64_t parts = xpe_segments(p.chunk.n);

    XPE_BLOCK_LOOP(b, (p.chunk.count + XPE_BLOCK - 1) / XPE_BLOCK)
    {
        XPE_THREADS(t)
        {
            int64_t f = b * XPE_BLOCK + t, masked = 0;
            double sum = 0;
            if (f < p.chunk.count) {
                for (int64_t i = 0; i < parts; i++) {
                    sum += p.partial[f * parts + i];
                    masked += p.partial_masked ? p.partial_masked[f * parts + i] : 0;
                }
                p.out[(p.chunk.frame + f) * p.step] =
                    p.first && leaves(&p, p.chunk.frame + f) ? (double)NAN : sum;
                if (p.out_masked)
                    p.out_masked[p.chunk.frame + f] = masked;
            }
        }
    }
}
XPE_LAUNCHER(finish, (args->chunk.count + XPE_BLOCK - 1) / XPE_BLOCK)

XPE_KERNEL(k_misfit, k_misfit_args)
{
    XPE_SHARED(double, sum, XPE_BLOCK);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, at = s.frame * plane;
        XPE_THREADS(t)
        {
            sum[t] = 0;
            XPE_PIXELS(i, s, t)
            {
                float intensity = 0;
                double m;
                for (int k = 0; k < p.chunk.modes; k++)
                    intensity += xpe_energy(p.field[k * p.chunk.stride + at + i]);
                m = (double)xpe_misfit(p.y[p.chunk.frame * plane + at + i], intensity);
                sum[t] += m * m;
            }
        }
        XPE_TREE(sum, xpe_plus);
        XPE_THREADS(t)
        {
            if (t == 0)
                p.partial[b] = sum[0];
        }
    }
}
XPE_LAUNCHER(misfit, XPE_SEGMENT_WORK)

XPE_KERNEL(k_residual, k_residual_args)
{
    XPE_SHARED(int32_t, most, 1);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_segments(p.chunk.n))
    {
        xpe_segment s = xpe_segment_of(b, p.chunk.n);
        int64_t plane = (int64_t)p.chunk.n * p.chunk.n, at = s.frame * plane;
        XPE_THREADS(t)
        {
            if (t == 0)
                most[0] = 0;
        }
        XPE_THREADS(t)
        {
            XPE_PIXELS(i, s, t)
            {
                float intensity = 0, r;
                for (int k = 0; k < p.chunk.modes; k++)
                    intensity += xpe_energy(p.field[k * p.chunk.stride + at + i]);
                r = xpe_residual(p.y[p.chunk.frame * plane + at + i], intensity);
                /* times the checkerboard, which centres the field that comes of it */
                p.field[at + i] = xpe_c((i / p.chunk.n + i % p.chunk.n) % 2 ? -r : r, 0.0f);
                if (r > 0)
                    XPE_MAX32(most, 0x3f800000); /* 1.0f */
            }
        }
        XPE_THREADS(t)
        {
            if (t == 0)
                XPE_MAX32((int32_t *)(void *)(p.nonzero + p.chunk.frame + s.frame), most[0]);
        }
    }
}
XPE_LAUNCHER(residual, XPE_SEGMENT_WORK)
