/* What kernels share: segments of frames, fixed trees, launchers.  Included by k_*.cu only. */
#ifndef XPE_CUDA_KERNEL_H
#define XPE_CUDA_KERNEL_H

#include "kernels.h"
#include "launch.h"

#include "math/cplx.h"

/* Pixels [begin, end) of a frame of the chunk. */
typedef struct xpe_segment {
    int64_t frame;
    int part, begin, end;
} xpe_segment;

XPE_HD int64_t xpe_segments(int n)
{
    return ((int64_t)n * n + XPE_SEGMENT - 1) / XPE_SEGMENT;
}

XPE_HD xpe_segment xpe_segment_of(int64_t b, int n)
{
    int64_t parts = xpe_segments(n);
    xpe_segment s;
    s.frame = b / parts;
    s.part = (int)(b - s.frame * parts);
    s.begin = s.part * XPE_SEGMENT;
    s.end = n * n - s.begin < XPE_SEGMENT ? n * n : s.begin + XPE_SEGMENT;
    return s;
}

#define XPE_PIXELS(i, segment, t)                                                                  \
    for (int i = (segment).begin + (t); i < (segment).end; i += XPE_BLOCK)

/* Combines the values of all threads into values[0], by the same tree always. */
#define XPE_TREE(values, combine)                                                                  \
    for (int xpe_half = XPE_BLOCK / 2; xpe_half > 0; xpe_half /= 2)                                \
    XPE_THREADS(xpe_t)                                                                             \
    if (xpe_t < xpe_half)(values)[xpe_t] = combine((values)[xpe_t], (values)[xpe_t + xpe_half])

XPE_HD double xpe_plus(double a, double b)
{
    return a + b;
}

/* Pixel i of patch f of the block in an image. */
XPE_HD int64_t xpe_place_of(k_place place, int64_t f, int n, int i)
{
    int row = i / n, col = i - row * n;
    return ((int64_t)place.first[2 * f] + row) * place.cols + place.first[2 * f + 1] + col;
}

/* A segment's pixels that a thread of a group kernel takes: one, the same for all frames of the
 * group. */
typedef struct xpe_group {
    int mode, pixel;    /* first pixel of the block */
    int64_t begin, end; /* frames of the chunk */
} xpe_group;

XPE_HD int64_t xpe_groups(const k_chunk *c, int modes)
{
    return (((int64_t)c->n * c->n + XPE_BLOCK - 1) / XPE_BLOCK) *
           ((c->count + XPE_GROUP - 1) / XPE_GROUP) * modes;
}

XPE_HD xpe_group xpe_group_of(int64_t b, const k_chunk *c)
{
    int64_t tiles = ((int64_t)c->n * c->n + XPE_BLOCK - 1) / XPE_BLOCK,
            runs = (c->count + XPE_GROUP - 1) / XPE_GROUP;
    int64_t run = b / tiles;
    xpe_group g;
    g.pixel = (int)(b - run * tiles) * XPE_BLOCK;
    g.mode = (int)(run / runs);
    g.begin = (run - g.mode * runs) * XPE_GROUP;
    g.end = g.begin + XPE_GROUP < c->count ? g.begin + XPE_GROUP : c->count;
    return g;
}

/* The launcher of kernel k_NAME: `work` blocks, from `args`. */
#define XPE_LAUNCHER(name, work)                                                                   \
    cudaError_t xpe_cuda_k_##name(const k_##name##_args *args, cudaStream_t stream)                \
    {                                                                                              \
        XPE_LAUNCH(k_##name, work, stream, args);                                                  \
        return cudaGetLastError();                                                                 \
    }
#define XPE_SEGMENT_WORK (args->chunk.count * xpe_segments(args->chunk.n))

#endif
