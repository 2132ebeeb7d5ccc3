/* The one interface between the iteration (engine/core) and what computes it (engine/cpu,
 * engine/cuda).
 *
 * A team is the devices of one run.  Work is enqueued on a device, runs in the order of that
 * device's queue, and is done after xpe_wait; different devices run side by side.  Copies between
 * devices are enqueued on the destination, and core waits before it makes one.  Buffers are handles
 * of one device, zeroed when made; no address is seen outside the backend's folder but the host
 * memory passed in.
 *
 * Core calls through the table; every entry is required.  Arguments of an operation are one struct
 * with named fields; the struct is copied when the operation is enqueued, host arrays it points at
 * must live until the next wait.
 *
 * Probe-like arrays (modes, copies, their sums) are held times the checkerboard (-1)^(row +
 * column): the FFT shift of the detector is thereby folded into them and nothing is ever moved for
 * it. Amplitudes lie in whatever order the backend likes; xpe_op_amplitudes makes them. */
#ifndef XPE_BACKEND_H
#define XPE_BACKEND_H

#include "math/numbers.h"
#include "xptychod/engine.h"

typedef struct xpe_c64 {
    double re, im;
} xpe_c64;

typedef struct xpe_team xpe_team;
typedef struct xpe_buffer xpe_buffer; /* plain memory of one device */
typedef struct xpe_sums xpe_sums;     /* exact sums over patches: one image-sized set a device */

/* Frames [first, first + count) of a device's block. */
typedef struct xpe_batch {
    int64_t first, count;
    int64_t block; /* frames of the whole block */
} xpe_batch;

/* Counts to amplitudes: y = sqrt(max(counts, 0)), -1 where masked (algorithm.md 3, "Masked
 * pixels"). */
typedef struct xpe_amplitude_args {
    const void *frames; /* host, [J][n][n] of type */
    xpe_type type;
    const uint8_t *mask; /* host, or NULL */
    bool mask_per_frame;
    double saturation;    /* 0 = none */
    const int64_t *order; /* host, [block] original frame numbers */
    xpe_buffer *y;        /* [block][n][n] float, the backend's order */
    xpe_buffer *energy;   /* [block] double: sum of y^2 over unmasked pixels */
    xpe_buffer *masked;   /* [block] int64: masked pixels */
    xpe_batch batch;
} xpe_amplitude_args;

/* What the image sums of a pass are made of, and whether the iteration before is finished first. */
enum {
    XPE_FIT_ERROR = 1,  /* step 7 with image and modes */
    XPE_FIT_UPDATE = 2, /* step 2: v += 2 rho z */
    XPE_FIT_PATCH = 4,  /* step 1 */
    XPE_FIT_SUM_V = 8,  /* also sum |d_k|^kappa v_j before step 1; without step 1: in W's place */
    XPE_FIT_SUM_L = 16  /* also sum |d_k|^kappa; alone: nothing else is touched */
};

/* One trip over the frames: step 7 of an iteration, its step 2, and step 1 of the next. */
typedef struct xpe_fit_args {
    int flags, modes;
    xpe_batch batch;
    float one_minus_alpha, two_rho;
    int64_t cols;            /* of the object grid */
    const xpe_buffer *first; /* [block][2] int32, relative to the window */
    const xpe_buffer *y;
    xpe_buffer *v;             /* [block][n][n] */
    const xpe_buffer *image;   /* [window rows][cols]: x-bar, for XPE_FIT_ERROR */
    const xpe_buffer *z;       /* [window rows][cols], for XPE_FIT_UPDATE */
    const xpe_buffer *probe;   /* [modes][n][n]: d_k / n */
    const xpe_buffer *divider; /* [modes][n][n]: alpha w_k conj(d_k) / (n (|d_k|^2 + eps_k)) */
    const xpe_buffer *weight;  /* [modes][n][n] float: |d_k|^kappa */
    xpe_sums *sums;            /* W = sum weight w; V; L, a set a mode */
    const xpe_buffer *numbers; /* xpe_numbers: the sums' units */
    xpe_buffer *misfit;        /* [block] double: sum over pixels of the squared misfit */
    xpe_buffer *v_energy;      /* [block] float: max |v|^2 after the trip */
} xpe_fit_args;

/* What happens to a probe copy as it is read: s <- s + 2 rho u (step 5), then outliers (step 6). */
typedef struct xpe_copy_state {
    xpe_buffer *s;               /* [modes][block][n][n] */
    bool pending;                /* false: taken as it is */
    const xpe_buffer *u;         /* [modes][n][n] */
    const xpe_buffer *d;         /* [modes][n][n] */
    const xpe_buffer *deviation; /* [modes][n][n] float: m_k, zeros already replaced */
    float two_rho;
} xpe_copy_state;

/* Step 4, with the pending steps 5 and 6 of the iteration before. */
typedef struct xpe_probe_args {
    int modes;
    xpe_batch batch;
    xpe_copy_state copy;
    float one_minus_alpha, alpha, two_rho;
    int64_t cols;
    const xpe_buffer *first, *y, *image, *probe; /* as in xpe_fit_args */
    xpe_sums *sums;            /* R = sum r, S = sum s before the step, a set a mode */
    const xpe_buffer *numbers; /* xpe_numbers: the sums' units, the guard of patches */
    xpe_buffer *s_energy;      /* [modes][block] float: max |s|^2 after the step */
} xpe_probe_args;

/* Step 6: sums of |s - d| with the pending step 5. */
typedef struct xpe_deviation_args {
    int modes;
    xpe_batch batch;
    xpe_copy_state copy;       /* copy.d = the new modes */
    xpe_sums *sums;            /* D = sum |s - d| */
    const xpe_buffer *numbers; /* xpe_numbers: the sums' units */
} xpe_deviation_args;

/* Does the pending steps 5 and 6 now, then multiplies by `scale`. */
typedef struct xpe_settle_args {
    int modes;
    xpe_batch batch;
    xpe_copy_state copy;
    float scale;
} xpe_settle_args;

/* Every position's copy of a mode becomes that mode. */
typedef struct xpe_fill_args {
    int mode;
    xpe_batch batch;
    xpe_buffer *s;
    const xpe_buffer *value; /* [modes][n][n]; mode `mode` of it is taken */
} xpe_fill_args;

/* The start of v: patches of the image. */
typedef struct xpe_patch_args {
    xpe_batch batch;
    int64_t cols;
    const xpe_buffer *first, *image;
    xpe_buffer *v;
} xpe_patch_args;

/* Sum over frames of F*(y) (start probe, modes = 0) or of F*(R) / p (step 3). */
typedef struct xpe_back_args {
    int modes; /* 0: amplitudes themselves, no division */
    xpe_batch batch;
    float patch_eps;
    int64_t cols;
    const xpe_buffer *first, *y, *image, *probe;
    xpe_sums *sums;       /* one set, the array called R */
    const xpe_unit *unit; /* host, [1] */
    xpe_buffer *nonzero;  /* [block] float: 1 where the residual is not zero everywhere */
} xpe_back_args;

/* Position search: squared misfit of every frame for every shift; NaN where it leaves the grid. */
typedef struct xpe_search_args {
    int modes, max_shift;
    xpe_batch batch;
    const xpe_buffer *first, *y, *image, *probe;
    int64_t rows, cols; /* of the window */
    xpe_buffer *misfit; /* [block][(2 m + 1)^2] double, row-major shifts */
} xpe_search_args;

/* Averages on a band (algorithm.md 3, steps 1 and 2), in double precision:
 *   z   = sum_k w_k S_k L_k / (L_k^2 + eps_k),      S_k = 2 W_k - V_k
 *   V_k <- V_k - 2 rho W_k + 2 rho z Lsum_k         the image sum of step 2
 *   x   = sum_k w_k V_k L_k / (L_k^2 + eps_k)
 * V_k is the sum of |d_k|^kappa v_j; while the modes stay the same it follows from itself. */
typedef struct xpe_average_args {
    int modes;
    int64_t rows, cols;
    double two_rho;
    const xpe_buffer *numbers; /* xpe_numbers: w_k, guards of L_k, units; where something is bad,
                                  v, z and image stay as they are */
    const xpe_buffer *w;       /* [modes][rows][cols][2] int64 */
    xpe_buffer *v;             /* [modes][rows][cols][2] double */
    const xpe_buffer *l;       /* [modes][rows][cols] double: the sum itself */
    const xpe_buffer *count;   /* [rows][cols] int32: patches over the pixel */
    xpe_buffer *z, *image;     /* [rows][cols] */
    int64_t row;               /* of the grid, where the band begins */
    xpe_buffer *row_energy;    /* [row + rows] double: sum of count |x|^2; from `row` on */
    xpe_buffer *row_max;       /* [rows][2] double: max |z|^2 and max |x|^2 */
} xpe_average_args;

/* Integer sums to double: L (row energies of L / (1 + 1e-6) beside it) or V. */
typedef struct xpe_unfix_args {
    int modes, components; /* 1: L; 2: V */
    int64_t rows, cols;
    const xpe_buffer *numbers; /* xpe_numbers: the sums' units */
    const xpe_buffer *sum;     /* [modes][rows][cols][components] int64 */
    xpe_buffer *out;           /* the same in double */
    int64_t row;               /* as in xpe_average_args */
    xpe_buffer *row_energy;    /* [row + rows][modes] double, or NULL; from `row` on */
} xpe_unfix_args;

/* Step 4's and 5's averages, on the owner of the modes:
 *   u = (2 R - S) / J,   d = (S - 2 rho R) / J + 2 rho u */
typedef struct xpe_mode_average_args {
    int modes;
    double num_frames, two_rho;
    const xpe_buffer *numbers; /* xpe_numbers: units; where something is bad, nothing is written */
    const xpe_buffer *r, *s;   /* [modes][n][n][2] int64 */
    xpe_buffer *u, *d;         /* [modes][n][n] */
    xpe_buffer *before;        /* [modes][n][n]: gets d as it was; or NULL */
    xpe_buffer *row_max;       /* [modes][n] double: max |u|^2 */
} xpe_mode_average_args;

/* m_k = D / J, zeros replaced by 1e-6 (step 6). */
typedef struct xpe_mode_deviation_args {
    int modes;
    double num_frames;
    const xpe_buffer *numbers; /* xpe_numbers: the sums' units */
    const xpe_buffer *sum;     /* [modes][n][n] int64 */
    xpe_buffer *deviation;     /* [modes][n][n] float */
} xpe_mode_deviation_args;

/* Energies of the modes, by rows. */
typedef struct xpe_mode_energy_args {
    int modes;
    const xpe_buffer *d;
    xpe_buffer *row_energy; /* [modes][n] double: sum of |d|^2 */
} xpe_mode_energy_args;

/* What follows from the modes, and the largest values that bound the sums of a pass. */
typedef struct xpe_mode_derive_args {
    int modes;
    double kappa, alpha;
    const xpe_buffer *numbers; /* xpe_numbers: w_k and the guards of d_k */
    const xpe_buffer *d;
    xpe_buffer *probe, *divider, *weight; /* as in xpe_fit_args */
    /* [modes][n][3] double: max |d_k|^2, max |d_k|^kappa, max |d_k|^kappa sum_m w_m |d_m| /
     * (|d_m|^2 + eps_m) */
    xpe_buffer *row_max;
} xpe_mode_derive_args;

/* The largest values on a device; a NaN comes through.  Of arrays that are NULL 0. */
typedef struct xpe_maxima_args {
    int slot; /* of the device in `out` */
    int64_t floats_count, doubles_count;
    const xpe_buffer *floats;  /* [floats_count] */
    const xpe_buffer *doubles; /* [doubles_count][columns] */
    int columns;               /* 1 or 2 */
    xpe_buffer *out;           /* [devices][3] double: of the floats, of the columns */
} xpe_maxima_args;

/* On every device by itself, from the same numbers. */
typedef struct xpe_numbers_args {
    xpe_numbers_step step;
    xpe_numbers_model model;
    int64_t iteration; /* from 1 */
    int devices;
    const xpe_buffer *maxima; /* [devices][3] double */
    int64_t count;
    const xpe_buffer *rows; /* double, as the step says; NULL for an average with a known probe */
    xpe_buffer *numbers;
} xpe_numbers_args;

/* Which of the arrays of a set of sums. */
typedef enum xpe_sum_array { XPE_SUM_A, XPE_SUM_B, XPE_SUM_REAL } xpe_sum_array; /* W/R, V/S, L/D */

typedef struct xpe_sums_desc {
    int modes;
    /* Which arrays exist.  Without `real`, sums of XPE_FIT_SUM_L alone lie in the place of W. */
    bool complex_a, complex_b, real;
    int64_t rows, cols;   /* of the window, or n, n for probe sums */
    const int32_t *first; /* host, [block][2] relative to the window, or NULL for probe sums */
    int64_t block, n;
} xpe_sums_desc;

/* What a run takes on a device beside its buffers and sums. */
typedef struct xpe_work {
    int64_t bytes;
    int64_t frames; /* in work together, for `set_chunk` */
} xpe_work;

typedef struct xpe_backend {
    const char *name;
    size_t (*list)(xpe_device_info *out, size_t max);
    /* One device by name, without a touch of the others.  Optional: NULL means that `list` is
     * cheap. */
    void (*look)(xpe_device_info *out, const char *name);
    /* Brings the bytes of a device that can be used up to date; any thread, cheap. */
    void (*memory)(xpe_device_info *device);
    /* Fills in `reach` of a device that can be used.  Optional: NULL means that nobody knows. */
    void (*links)(xpe_device_info *device);
    int64_t (*amplitude_bytes)(int64_t n); /* of one frame in the backend's order */
    /* Memory that a run takes on the named device beside its buffers and sums, for a block of so
     * many frames; alone: the only device of the run; room: what is left there for it, which
     * decides how many frames are in work together where that changes no bit (at least one, whether
     * it fits or not).  Optional: NULL means none that is worth counting. */
    xpe_status (*work_bytes)(xpe_work *out, const char *device, int64_t n, int modes,
                             int64_t frames, bool known, bool alone, int64_t room, xpe_error *err);
    /* Before the first operation.  With work_bytes. */
    void (*set_chunk)(xpe_team *team, int device, int64_t frames);
    /* Also makes what takes device memory and outlives the runs on these devices, so that it is
     * gone when the caller looks at what is free. */
    xpe_status (*open)(xpe_team **out, const xpe_device_list *devices, int64_t n, int modes,
                       xpe_error *err);
    void (*close)(xpe_team *team);
    xpe_status (*wait)(xpe_team *team, xpe_error *err);
    /* Unnormalised 2-D transform of a host field [n][n], in place, double precision, done on
     * return. */
    xpe_status (*transform)(xpe_c64 *field, int64_t n, int sign, xpe_error *err);

    xpe_status (*buffer_create)(xpe_buffer **out, xpe_team *team, int device, size_t bytes,
                                xpe_error *err);
    void (*buffer_destroy)(xpe_buffer *buffer);
    void (*upload)(xpe_team *team, xpe_buffer *to, size_t offset, const void *from, size_t bytes);
    void (*download)(xpe_team *team, void *to, const xpe_buffer *from, size_t offset, size_t bytes);
    void (*copy)(xpe_team *team, xpe_buffer *to, size_t to_offset, const xpe_buffer *from,
                 size_t from_offset, size_t bytes);

    /* While on, copies and gathers between devices may run beside what is enqueued behind them,
     * also across a wait: nothing of that touches what they read or write, and they see what was
     * enqueued before it was turned on.  Off: what is enqueued from here on comes behind them.
     * Optional: NULL means that transfers are always in order. */
    void (*beside)(xpe_team *team, bool on);

    xpe_status (*sums_create)(xpe_sums **out, xpe_team *team, int device, const xpe_sums_desc *desc,
                              xpe_error *err);
    void (*sums_destroy)(xpe_sums *sums);
    void (*sums_clear)(xpe_team *team, int device, xpe_sums *sums);
    /* Adds rows [row, row + rows) of the window's sum to `to` (int64), which starts at to_row. */
    void (*sums_gather)(xpe_team *team, xpe_buffer *to, int device, size_t to_offset,
                        const xpe_sums *sums, int mode, xpe_sum_array array, int64_t row,
                        int64_t rows);
    void (*zero)(xpe_team *team, xpe_buffer *buffer);

    void (*amplitudes)(xpe_team *team, int device, const xpe_amplitude_args *args);
    void (*fit)(xpe_team *team, int device, const xpe_fit_args *args);
    void (*probe_fit)(xpe_team *team, int device, const xpe_probe_args *args);
    void (*deviation)(xpe_team *team, int device, const xpe_deviation_args *args);
    void (*settle)(xpe_team *team, int device, const xpe_settle_args *args);
    void (*fill)(xpe_team *team, int device, const xpe_fill_args *args);
    void (*patches)(xpe_team *team, int device, const xpe_patch_args *args);
    void (*back)(xpe_team *team, int device, const xpe_back_args *args);
    void (*search)(xpe_team *team, int device, const xpe_search_args *args);
    void (*average)(xpe_team *team, int device, const xpe_average_args *args);
    void (*unfix)(xpe_team *team, int device, const xpe_unfix_args *args);
    void (*mode_average)(xpe_team *team, int device, const xpe_mode_average_args *args);
    void (*mode_deviation)(xpe_team *team, int device, const xpe_mode_deviation_args *args);
    void (*mode_energy)(xpe_team *team, int device, const xpe_mode_energy_args *args);
    void (*mode_derive)(xpe_team *team, int device, const xpe_mode_derive_args *args);

    void (*maxima)(xpe_team *team, int device, const xpe_maxima_args *args);
    void (*numbers)(xpe_team *team, int device, const xpe_numbers_args *args);

    /* As `wait`, but what was asked for by `download` may still be on its way.  Optional: without
     * it the host reads after every iteration whether it went well, with it only when it reads a
     * data error. */
    xpe_status (*order)(xpe_team *team, xpe_error *err);

    void (*profile)(xpe_team *team, bool on);
    void (*stats)(const xpe_team *team, xpe_run_stats *out);
} xpe_backend;

/* The backend that serves the device names, all of one kind, or a refusal that says why there is
 * none. */
XPE_MUST_CHECK xpe_status xpe_backend_find(const xpe_backend **out, const xpe_device_list *devices,
                                           xpe_error *err);

#endif
