/* What a job leaves, and its file. */
#ifndef XPD_RESULT_H
#define XPD_RESULT_H

#include "xptychod/engine.h"
#include "xptychod/protocol.h"

struct xpd_work;
struct xpd_devices;

/* State after the stages run so far; arrays are owned. */
typedef struct xpd_final {
    xpe_grid grid;
    int modes;
    xpe_c32 *object;    /* [rows][cols] */
    float *coverage;    /* [rows][cols] */
    xpe_c32 *probe;     /* [modes][n][n] */
    double *positions;  /* [J][2] refined, or NULL: as given */
    double *gain;       /* [J] of the last refinement, or NULL */
    double *data_error; /* [error_count] of all stages; NaN where it was not computed */
    int error_count, error_room;
    double seconds; /* of all iterations */
    /* of the devices' memory: reckoned with, and taken; of the stage with most */
    int64_t bytes_planned, bytes_peak;
} xpd_final;

void xpd_final_release(xpd_final *final);
/* Arrays of `next` replace those of `final`; where next has none the old ones stay, so refined
 * positions outlive the stage that found them. */
void xpd_final_take(xpd_final *final, xpd_final *next);
bool xpd_final_add_error(xpd_final *final, double data_error);
double xpd_final_last_error(const xpd_final *final); /* the last one computed; NaN = none */

/* Writes the result file and describes it as docs/architecture.md's `result`; *out is the caller's.
 */
XPE_MUST_CHECK xpe_status xpd_result_write(json_t **out, const struct xpd_work *work,
                                           const xpd_final *final,
                                           const struct xpd_devices *devices, bool partial,
                                           xpe_error *err);

#endif
