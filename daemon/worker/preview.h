/* Pictures of a running reconstruction, for people and for tools: docs/architecture.md section 3.
 */
#ifndef XPD_PREVIEW_H
#define XPD_PREVIEW_H

#include "xptychod/engine.h"

#define XPD_PREVIEW_SIDE_MAX 2048 /* pixels; larger objects are averaged down */

/* A state of a run, owned by whoever filled it (xpd_snapshot_release). */
typedef struct xpd_snapshot {
    int stage, iteration;
    int64_t rows, cols, n;
    int modes;
    double pixel_m;
    int64_t scanned[4]; /* first row, one past the last, first column, one past the last: patch
                           centres */
    xpe_c32 *object;    /* [rows][cols] */
    float *coverage;    /* [rows][cols] */
    xpe_c32 *probe;     /* [modes][n][n] */
} xpd_snapshot;

void xpd_snapshot_release(xpd_snapshot *snapshot);

/* The rectangle that the patch centres span; a single row or column is widened to the patch. */
void xpd_scanned_rectangle(int64_t scanned[4], const int32_t *first, int64_t num_frames, int64_t n,
                           int64_t rows, int64_t cols);

/* Writes object_phase, object_magnitude, probe_phase, probe_magnitude (.png and .f32 each) into
 * folder, and preview.json after all of them; each beside its name, then renamed. */
XPE_MUST_CHECK xpe_status xpd_preview_write(const xpd_snapshot *snapshot, const char *folder,
                                            xpe_error *err);

#endif
