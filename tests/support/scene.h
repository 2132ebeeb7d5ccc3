/* Frames on a device: the buffers that the operations on frames need, for tests of a backend
 * through backend.h. */
#ifndef XPT_SCENE_H
#define XPT_SCENE_H

#include "bench.h"

#define XPT_SCENE_SIDE 16
#define XPT_SCENE_PLANE (XPT_SCENE_SIDE * XPT_SCENE_SIDE)

/* Everything that fit and probe_fit need for `block` frames of XPT_SCENE_SIDE on a window of rows x
 * cols. */
typedef struct xpt_scene {
    xpt_bench t;
    int64_t block, rows, cols;
    int modes;
    int32_t *first;
    xpe_buffer *first_buffer, *y, *energy, *masked, *v, *image, *z, *probe, *divider, *weight,
        *misfit, *v_energy, *numbers;
    xpe_sums *sums;
    xpe_unit unit[4]; /* as in numbers, whose guard of patches is 1e-6 */
} xpt_scene;

/* Frames in random places, sorted by row; weights 1, all else 0; sums that hold up to 64 a frame.
 */
xpt_scene xpt_scene_create(int threads, int64_t block, int64_t rows, int64_t cols, int modes,
                           uint64_t seed);
void xpt_scene_destroy(xpt_scene *s);
void xpt_scene_put(const xpt_scene *s, xpe_buffer *to, const void *from, size_t bytes);
/* Amplitudes of counts [block][n][n]; a mask of the same size or NULL. */
void xpt_scene_measure(const xpt_scene *s, const float *counts, const uint8_t *mask);
/* One trip over all frames, `batch` at a time, its sums cleared before. */
void xpt_scene_fit(const xpt_scene *s, int flags, float one_minus_alpha, float two_rho,
                   int64_t batch);
/* Sum of a mode over the whole window; freed by the caller. */
int64_t *xpt_scene_gather(const xpt_scene *s, int mode, xpe_sum_array array);

double xpt_checker(int64_t i, int64_t n); /* (-1)^(row + column) of pixel i */
/* A field times the checkerboard and a factor, as probes are held. */
void xpt_hold(xpe_c32 *out, const xpe_c32 *in, int64_t n, double factor);

#endif
