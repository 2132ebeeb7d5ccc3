/* PMACE once more, straight from docs/algorithm.md: complex128, one device, plain sums in scan
 * order, no thought of speed.  The engine's tests compare with it, and each of the mistakes of
 * section 7 can be switched on, so that a test can show that it would notice the engine making it.
 *
 * Two modes at most can be orthogonalised (closed form of the 2 x 2 case). */
#ifndef XPT_ORACLE_H
#define XPT_ORACLE_H

#include "synthetic.h"

#include <complex.h>

typedef double _Complex xpt_c;

/* Orthonormal 2-D transform with zero frequency at n/2 on both sides, as a matrix product. */
typedef struct xpt_dft xpt_dft;
xpt_dft *xpt_dft_create(int64_t n);
void xpt_dft_run(const xpt_dft *dft, xpt_c *field, int sign); /* in place; -1 = F, +1 = F* */
void xpt_dft_destroy(xpt_dft *dft);

/* One mistake of section 7 each. */
typedef enum xpt_trap {
    XPT_RIGHT,
    XPT_GUARD_SQUARE,        /* 1: eps = 1e-6 mean |b|^2 */
    XPT_GUARD_NONE,          /* 1: no eps */
    XPT_GAIN_RELATIVE,       /* 2: 1e-6 of the mean intensity instead of 1e-6 */
    XPT_GAIN_OUTSIDE,        /* 2: y / (sqrt(I) + 1e-6) */
    XPT_ERROR_GUARDED,       /* 2: sqrt(I + 1e-6) in step 7 */
    XPT_SHRINK_NONE,         /* 3: no 1 / (1 + 1e-6) anywhere */
    XPT_COVER_GUARD_BAND,    /* 4: the coverage guard of two bands */
    XPT_PATCH_GUARD_BLOCK,   /* 4: the patch guard of two blocks */
    XPT_MODE_GUARD_SHARED,   /* 4: one d guard for all modes */
    XPT_AMPLITUDE_OF_COPY,   /* 5 */
    XPT_PHASE_OF_MODE,       /* 5 */
    XPT_MODES_IN_TURN,       /* 6: each mode with those already fitted */
    XPT_PATCHES_OF_Z,        /* 6 */
    XPT_PATCHES_OF_V,        /* 6 */
    XPT_MEAN_AFTER_OUTLIERS, /* 7 */
    XPT_OUTLIERS_KEPT,       /* 7 */
    XPT_OUTLIERS_FROM_ONE,   /* 7: score > 1 */
    XPT_SCHEDULE_FROM_ZERO,  /* 8 */
    XPT_ERROR_OF_OLD_MODES,  /* 8 */
    XPT_ADD_AFTER_PROBE,     /* 8 */
    XPT_COVER_NEVER_RENEWED, /* 8: w_k and L_k of the start */
    XPT_ENERGY_UNSCALED,     /* 9: no division by sqrt(1 + f) */
    XPT_COPIES_UNSCALED,     /* 9: ... of the copies */
    XPT_SHARE_OF_NORMS,      /* 9: w_k from |d|, not |d|^2 */
    XPT_FRESNEL_PLUS,        /* 10 */
    XPT_FRESNEL_SHIFTED,     /* 10: frequencies of a centred transform */
    XPT_NORM_FIRST_MODE,     /* 11 */
    XPT_MEDIAN_COVERED,      /* 11: zeros left out of the median */
    XPT_ZEROS_STAY,          /* 11 */
    XPT_SMOOTH_FIRST,        /* 11 */
    XPT_GAUSS_ZERO,          /* 12: zeros beyond the edge */
    XPT_GAUSS_SHORT,         /* 12: 7 taps */
    XPT_GAUSS_BEFORE_FRESNEL /* 12 */
} xpt_trap;

typedef struct xpt_oracle {
    int64_t n, rows, cols;
    int modes, iterations;
    xpt_c *object, *probe, *start_object, *start_probe; /* start_probe: [start_modes][n][n] */
    int start_modes;
    double *coverage, *errors;
} xpt_oracle;

/* Runs the stage on a case whose grid is stated.  Counts must be float32. */
xpt_oracle *xpt_oracle_run(const xpt_case *c, const xpe_stage *stage, xpt_trap trap);
void xpt_oracle_destroy(xpt_oracle *o);

double xpt_square(xpt_c a); /* |a|^2 */
double xpt_energy(const xpt_c *a, int64_t count);
/* ||a - b|| / ||b||, without and with the best complex scale for a. */
double xpt_distance(const xpe_c32 *a, const xpt_c *b, int64_t count);
double xpt_distance_scaled(const xpe_c32 *a, const xpt_c *b, int64_t count);

#endif
