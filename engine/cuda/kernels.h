/* Arguments and launchers of the kernels, shared by k_*.cu and the C files.
 *
 * Work on frames is cut into segments of XPE_SEGMENT pixels of one frame; whatever is reduced over
 * a frame is reduced within a segment by a fixed tree and over its segments in order, so that no
 * number depends on batch, grid or device.  Sums over frames are integers.  Arrays named by `frame`
 * belong to the whole block and are entered at frame `frame`; fields hold just the frames of a
 * chunk, [mode][frame of chunk][n][n], with `stride` pixels from one mode to the next. */
#ifndef XPE_CUDA_KERNELS_H
#define XPE_CUDA_KERNELS_H

#include "api.h"

#include "math/numbers.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XPE_SEGMENT 2048 /* pixels */
#define XPE_GROUP 16     /* frames that one thread adds up before it touches a sum */

/* Frames of a chunk. */
typedef struct k_chunk {
    int n, modes;
    int64_t frame, count; /* of the block */
    int64_t block;
    int64_t stride;         /* of fields */
    const xpe_c32 *twiddle; /* [n] exp(-2 pi i k / n), for transforms of our own */
} k_chunk;

/* Where patches lie. */
typedef struct k_place {
    const int32_t *first; /* [block][2] */
    int64_t cols;
} k_place;

/* Raw frames [count][n][n] and masks [count or 1][n][n] to amplitudes. */
typedef struct k_amplitude_args {
    k_chunk chunk;
    const void *raw;
    int type;
    const uint8_t *mask;
    int mask_per_frame;
    double saturation;
    float *y;
    double *partial;         /* [count][segments] */
    int64_t *partial_masked; /* [count][segments] */
} k_amplitude_args;

/* Segments in order: out[frame] = sum of partial; the counts likewise where there are any. */
typedef struct k_finish_args {
    k_chunk chunk;
    const double *partial;
    const int64_t *partial_masked;
    double *out;
    int64_t *out_masked;
    int64_t step; /* of out, in elements */
    const int32_t
        *first; /* not NULL: NAN where the patch shifted by (row, col) leaves rows x cols */
    int64_t row, col, rows, cols;
} k_finish_args;

/* field_k = d_k times the patch of the image at (row, col) from the frame's own; 0 where that
 * leaves the image. */
typedef struct k_product_args {
    k_chunk chunk;
    k_place place;
    int64_t row, col, rows; /* rows 0: every patch is known to be inside */
    const xpe_c32 *image, *probe;
    xpe_c32 *field;
} k_product_args;

/* v += 2 rho z where z is given; field_k = d_k v; sum of |d_k|^kappa v. */
typedef struct k_load_args {
    k_chunk chunk;
    k_place place;
    xpe_c32 *v;
    const xpe_c32 *z, *probe; /* probe NULL: no field is wanted */
    float two_rho;
    xpe_c32 *field;
    const float *weight;
    int64_t *sum_v; /* [mode][window], or NULL */
    int64_t window; /* pixels */
    const xpe_numbers *numbers;
} k_load_args;

/* Amplitudes of all modes' fields brought to the data, in place. */
typedef struct k_replace_args {
    k_chunk chunk;
    const float *y;
    xpe_c32 *field;
} k_replace_args;

/* Squared misfit, a partial a segment. */
typedef struct k_misfit_args {
    k_chunk chunk;
    const float *y;
    const xpe_c32 *field;
    double *partial;
} k_misfit_args;

/* Division by the modes, update of v, sums. */
typedef struct k_store_args {
    k_chunk chunk;
    k_place place;
    const xpe_c32 *field, *divider;
    const float *weight;
    xpe_c32 *v;
    const xpe_c32 *z; /* not NULL: v += 2 rho z comes first */
    float one_minus_alpha, two_rho;
    int64_t *sum_w, *sum_v, *sum_l; /* [mode][window]; V and L may be NULL */
    int64_t window;                 /* pixels */
    float *v_energy;
    const xpe_numbers *numbers;
} k_store_args;

/* Sum of |d_k|^kappa alone. */
typedef struct k_cover_args {
    k_chunk chunk;
    k_place place;
    const float *weight;
    int64_t *sum_l, window;
    const xpe_numbers *numbers;
} k_cover_args;

/* The pending steps 5 and 6. */
typedef struct k_copies {
    xpe_c32 *s; /* [mode][block][n][n] */
    const xpe_c32 *u, *d;
    const float *deviation; /* NULL: nothing is pending */
    float two_rho;
} k_copies;

/* field_k = s_k p, after the pending steps. */
typedef struct k_copies_load_args {
    k_chunk chunk;
    k_place place;
    k_copies copies;
    const xpe_c32 *image;
    xpe_c32 *field;
} k_copies_load_args;

/* Amplitude of the modes' fields brought to the data, phase of the copies' fields. */
typedef struct k_impose_args {
    k_chunk chunk;
    const float *y;
    const xpe_c32 *modes;
    xpe_c32 *copies;
} k_impose_args;

/* Division by the patch, relaxed update of the copies, sums of r and of s before it. */
typedef struct k_copies_store_args {
    k_chunk chunk;
    k_place place;
    xpe_c32 *s;
    const xpe_c32 *field, *image;
    float factor, one_minus_alpha, two_rho;
    int64_t *sum_r, *sum_s;
    float *s_energy; /* [mode][block] */
    const xpe_numbers *numbers;
} k_copies_store_args;

typedef struct k_deviation_args {
    k_chunk chunk;
    k_copies copies;
    int64_t *sum;
    const xpe_numbers *numbers;
} k_deviation_args;

typedef struct k_settle_args {
    k_chunk chunk;
    k_copies copies;
    float scale;
} k_settle_args;

/* Copies of mode `mode` become it. */
typedef struct k_fill_args {
    k_chunk chunk;
    int mode;
    xpe_c32 *s;
    const xpe_c32 *value;
} k_fill_args;

typedef struct k_patch_args {
    k_chunk chunk;
    k_place place;
    const xpe_c32 *image;
    xpe_c32 *v;
} k_patch_args;

/* Residual amplitudes (chunk.modes 0: the amplitudes) as a centred field, in mode 0 of it. */
typedef struct k_residual_args {
    k_chunk chunk;
    const float *y;
    xpe_c32 *field;
    float *nonzero;
} k_residual_args;

/* Sum over frames of the field, divided by the patch where chunk.modes is not 0. */
typedef struct k_back_args {
    k_chunk chunk;
    k_place place;
    const xpe_c32 *field, *image;
    float patch_eps, factor;
    int64_t *sum;
    xpe_unit unit;
} k_back_args;

typedef struct k_average_args {
    int modes;
    int64_t rows, cols;
    double two_rho;
    const int64_t *w;
    double *v;
    const double *l;
    const int32_t *count;
    const xpe_numbers *numbers;
    xpe_c32 *z, *image;
    double *row_energy, *row_max; /* of the band's rows */
} k_average_args;

/* One block; arrays that are NULL count as zeros. */
typedef struct k_maxima_args {
    int64_t floats_count, doubles_count;
    const float *floats;
    const double *doubles; /* [doubles_count][columns] */
    int columns;
    double *out; /* [3] */
} k_maxima_args;

/* One block. */
typedef struct k_numbers_args {
    int step, devices; /* step: xpe_numbers_step */
    xpe_numbers_model model;
    int64_t iteration, count;
    const double *maxima; /* [devices][3] */
    const double *rows;
    xpe_numbers *numbers;
} k_numbers_args;

typedef struct k_unfix_args {
    int modes;
    int64_t rows, width; /* width: components of a row */
    bool cover;          /* L, whose energies are wanted; else V */
    const int64_t *sum;
    double *out, *row_energy; /* row_energy [rows][modes] */
    const xpe_numbers *numbers;
} k_unfix_args;

typedef struct k_add_args {
    int64_t *to;
    const int64_t *from;
    int64_t count;
} k_add_args;

typedef struct k_mode_average_args {
    int modes, n;
    double num_frames, two_rho;
    const int64_t *r, *s;
    xpe_c32 *u, *d, *before;
    double *row_max;
    const xpe_numbers *numbers;
} k_mode_average_args;

typedef struct k_mode_deviation_args {
    int modes, n;
    double num_frames;
    const int64_t *sum;
    float *deviation;
    const xpe_numbers *numbers;
} k_mode_deviation_args;

typedef struct k_mode_energy_args {
    int modes, n;
    const xpe_c32 *d;
    double *row_energy;
} k_mode_energy_args;

typedef struct k_mode_derive_args {
    int modes, n;
    double kappa, alpha;
    const xpe_c32 *d;
    xpe_c32 *probe, *divider;
    float *weight;
    double *row_max;
    const xpe_numbers *numbers;
} k_mode_derive_args;

/* Writes `value` to *out: the question whether a device runs this build's kernels at all. */
typedef struct k_check_args {
    int32_t *out;
    int32_t value;
} k_check_args;

#define XPE_CUDA_KERNEL_LIST(X)                                                                    \
    X(amplitude)                                                                                   \
    X(finish)                                                                                      \
    X(product) X(load) X(replace) X(misfit) X(store) X(cover) X(copies_load) X(impose)             \
        X(copies_store) X(deviation) X(settle) X(fill) X(patch) X(residual) X(back) X(average)     \
            X(maxima) X(numbers) X(unfix) X(add) X(mode_average) X(mode_deviation) X(mode_energy)  \
                X(mode_derive) X(check)
/* Kernels that transform as well (k_chain.cu), by the arguments of the one that does the rest. */
#define XPE_CUDA_CHAIN_LIST(X)                                                                     \
    X(rows_product, product)                                                                       \
    X(rows_load, load)                                                                             \
    X(rows_copies, copies_load) X(columns_misfit, misfit) X(columns_replace, replace)              \
        X(columns_impose, impose) X(columns_residual, residual) X(rows_store, store)               \
            X(rows_copies_store, copies_store) X(rows_back, back)
#define X(name) cudaError_t xpe_cuda_k_##name(const k_##name##_args *args, cudaStream_t stream);
XPE_CUDA_KERNEL_LIST(X)
#undef X
#define X(name, args_of)                                                                           \
    cudaError_t xpe_cuda_k_##name(const k_##args_of##_args *args, cudaStream_t stream);
XPE_CUDA_CHAIN_LIST(X)
#undef X

#ifdef __cplusplus
}
#endif
#endif
