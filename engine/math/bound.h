/* How large a contribution to the sums of a trip can be (algorithm.md 5): from the largest values
 * of before, on the host or on a device, with the same bits. */
#ifndef XPE_BOUND_H
#define XPE_BOUND_H

#include "fixsum.h"

/* What float rounding may add to a bound. */
#define XPE_SLACK 1.001

/* What stays the same during a stage with a known probe. */
typedef struct xpe_trip_model {
    double alpha, two_rho;
    double frame_norm;  /* max_j ||y_j|| */
    double root_energy; /* sqrt(sum_k ||d_k||^2) where pixels are masked, else 0 */
    int64_t count_max;  /* most patches over a pixel */
} xpe_trip_model;

/* Unit of W_k = sum |d_k|^kappa w_j for patches of at most v: w = (1 - alpha) v + alpha times what
 * comes back from fields of at most ||y_j||, or of ||d|| v where a masked pixel keeps its field. */
XPE_HD xpe_unit xpe_trip_unit(const xpe_trip_model *m, double weight_max, double reach, double v)
{
    double field = m->frame_norm + m->root_energy * v;
    double w = (1 - m->alpha) * weight_max * v + m->alpha * reach * field;
    return xpe_unit_make(w * XPE_SLACK, m->count_max);
}

#endif
