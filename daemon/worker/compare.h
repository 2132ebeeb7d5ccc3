/* The error between two complex images after what the data leave free is taken off. */
#ifndef XPD_COMPARE_H
#define XPD_COMPARE_H

#include "xptychod/engine.h"

/* A window of an image: rows x cols pixels that begin at v, `stride` pixels from row to row. */
typedef struct xpd_window {
    const xpe_c32 *v;
    int64_t rows, cols, stride;
} xpd_window;

typedef struct xpd_difference {
    double scale[2];   /* c = <image, truth> / ||image||^2 */
    double nrmse;      /* ||c image - truth|| / ||truth|| */
    double ramp[2];    /* radians a pixel along rows and columns, of truth over image */
    double nrmse_ramp; /* the same after that ramp is taken off as well */
} xpd_difference;

/* Windows of one shape.  false where one of them is zero everywhere. */
bool xpd_difference_of(xpd_difference *out, const xpd_window *image, const xpd_window *truth);

#endif
