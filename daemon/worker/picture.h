/* From complex arrays to the bytes of a picture. */
#ifndef XPD_PICTURE_H
#define XPD_PICTURE_H

#include "xptychod/engine.h"

/* A plane of values and what of it may be trusted. */
typedef struct xpd_plane {
    int64_t rows, cols;
    int64_t factor;  /* pixels of the array along a side of one value */
    xpe_c32 *value;  /* [rows][cols] */
    uint8_t *lit;    /* [rows][cols] 1 = lit by the scan: drawn; else drawn in a neutral colour */
    bool blank;      /* what is not lit has no magnitude either: an object, not a probe */
    uint8_t *judged; /* [rows][cols] 1 = counts for the range */
} xpd_plane;

void xpd_plane_release(xpd_plane *plane);

/* Mean over blocks of factor x factor values; blocks at the far edges may be smaller.  Takes
 * coverage for `lit` (at least XPD_PICTURE_LIT of its mean over the scanned rectangle) and the
 * rectangle for `judged`. */
#define XPD_PICTURE_LIT 0.10
#define XPD_PICTURE_BLANK 128 /* grey of an object's magnitude where it is not lit */
bool xpd_plane_of_object(xpd_plane *out, const xpe_c32 *object, const float *coverage, int64_t rows,
                         int64_t cols, const int64_t scanned[4], int64_t side_max);
/* Modes side by side; lit where a mode has at least 2 % of the largest magnitude. */
bool xpd_plane_of_probe(xpd_plane *out, const xpe_c32 *probe, int modes, int64_t n,
                        int64_t side_max);

/* The phase that is common to the judged pixels: that of their sum; 0 where the sum is 0. */
double xpd_plane_common_phase(const xpd_plane *plane);

/* Values of one kind, value[rows * cols]: |v|, or arg(v) less `common`, in (-pi, pi]. */
void xpd_plane_magnitude(float *out, const xpd_plane *plane);
void xpd_plane_phase(float *out, const xpd_plane *plane, double common);

/* Percentiles `low` and `high` (0..100) of the judged, finite values; {0, 0} where there is none.
 */
bool xpd_plane_range(double range[2], const xpd_plane *plane, const float *values, double low,
                     double high);

/* Bytes of the pictures: places in the palette of colour.h for the phase, grey for the magnitude.
 */
void xpd_plane_paint_phase(uint8_t *out, const xpd_plane *plane, const float *phase,
                           const double range[2]);
void xpd_plane_paint_magnitude(uint8_t *out, const xpd_plane *plane, const float *magnitude,
                               const double range[2]);

#endif
