/* Contiguous loops over rows and column groups, compiled once for each instruction-set level and
 * chosen at run time.
 *
 * The bits are the same at every level: contraction is off (and FMA switched off besides), sqrt and
 * division are IEEE operations, elements are independent, and the few reductions are integers or
 * keep one fixed accumulator a column.  Arrays do not overlap unless a comment says so. */
#ifndef XPE_LOOPS_H
#define XPE_LOOPS_H

#include "math/fixsum.h"

#define XPE_GROUP                                                                                  \
    8 /* columns of a group, rows of a row batch: what the transforms take at a time */

typedef struct xpe_loops {
    const char *name;
    /* out = a b */
    void (*product)(xpe_c32 *out, const xpe_c32 *a, const xpe_c32 *b, int64_t n);
    /* v += 2 rho z; out = d v */
    void (*advance_product)(xpe_c32 *out, xpe_c32 *v, const xpe_c32 *z, const xpe_c32 *d,
                            float two_rho, int64_t n);
    void (*advance)(xpe_c32 *v, const xpe_c32 *z, float two_rho, int64_t n);
    /* intensity = |h|^2, or += */
    void (*intensity)(float *intensity, const xpe_c32 *h, int64_t n, bool add);
    /* h *= gain(y, |h|^2): one mode, whole amplitude replacement */
    void (*replace)(xpe_c32 *h, const float *y, int64_t n);
    /* in place: intensity -> gain(y, intensity) */
    void (*gain)(float *intensity, const float *y, int64_t n);
    void (*scale)(xpe_c32 *h, const float *g, int64_t n);
    /* Step 4: s becomes gain |g| s / |s| */
    void (*impose)(xpe_c32 *s, const xpe_c32 *g, const float *gain, int64_t n);
    /* sums[column of the group] += misfit^2, rows of XPE_GROUP columns */
    void (*misfit)(double *sums, const float *intensity, const float *y, int64_t rows);
    void (*misfit_one)(double *sums, const xpe_c32 *h, const float *y, int64_t rows);
    /* in place: intensity -> residual amplitude; returns whether any is not 0 */
    bool (*residual)(float *intensity, const float *y, int64_t n);
    /* t = a b, or += */
    void (*weigh)(xpe_c32 *t, const xpe_c32 *a, const xpe_c32 *b, int64_t n, bool add);
    /* w = (1 - alpha) v + t; v -= 2 rho w; returns the largest |v|^2 as float bits */
    int32_t (*relax)(xpe_c32 *w, xpe_c32 *v, const xpe_c32 *t, float one_minus_alpha, float two_rho,
                     int64_t n);
    /* sum += fix(weight w), fix(w), fix(weight) */
    void (*sum_weighted)(int64_t *sum, const float *weight, const xpe_c32 *w, xpe_unit unit,
                         int64_t n);
    void (*sum_plain)(int64_t *sum, const xpe_c32 *w, xpe_unit unit, int64_t n);
    void (*sum_real)(int64_t *sum, const float *w, xpe_unit unit, int64_t n);
    /* pending steps 5 and 6: s += 2 rho u; where |s - d| is an outlier s = d */
    void (*copy_state)(xpe_c32 *s, const xpe_c32 *u, const xpe_c32 *d, const float *deviation,
                       float two_rho, int64_t n);
    /* t conj(p) / (|p|^2 + eps) times factor: out = that */
    void (*divide)(xpe_c32 *out, const xpe_c32 *t, const xpe_c32 *p, float eps, float factor,
                   int64_t n);
    /* sum += fix(|s + 2 rho u - d|) */
    void (*sum_deviation)(int64_t *sum, const xpe_c32 *s, const xpe_c32 *u, const xpe_c32 *d,
                          float two_rho, xpe_unit unit, int64_t n);
    void (*add_int)(int64_t *to, const int64_t *from, int64_t n);
    void (*multiply)(xpe_c32 *s, float factor, int64_t n);
} xpe_loops;

const xpe_loops *xpe_loops_best(void);
/* Level i from the plainest, or NULL beyond the last that this processor can run. */
const xpe_loops *xpe_loops_level(int i);

#endif
