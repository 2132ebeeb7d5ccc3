/* Transforms of one frame, as rows and as groups of columns, by FFTW plans that never change.
 *
 * A field is held in column groups: [group][row][XPE_GROUP], groups of XPE_GROUP neighbouring
 * columns (the last one padded).  A column transform works on one group in place, contiguous and
 * small enough for the first-level cache; a row transform works on XPE_GROUP rows in a row buffer
 * [XPE_GROUP][stride].
 *
 * Plans are made in estimate mode with wisdom forgotten, so that the same processor always gets the
 * same plan and therefore the same bits; made once a frame side and kept for the life of the
 * process. */
#ifndef XPE_FFT_H
#define XPE_FFT_H

#include "backend/backend.h"
#include "loops.h"

typedef struct xpe_fft xpe_fft;

/* Any thread.  Borrowed: lives as long as the process. */
XPE_MUST_CHECK xpe_status xpe_fft_get(const xpe_fft **out, int64_t n, xpe_error *err);

int64_t xpe_fft_groups(int64_t n); /* column groups of a field */
int64_t xpe_fft_stride(int64_t n); /* of a row buffer, in elements */

/* Unnormalised; sign -1 (forward) or +1. */
void xpe_fft_rows(const xpe_fft *fft, xpe_c32 *rows, int sign);
void xpe_fft_columns(const xpe_fft *fft, xpe_c32 *group, int sign);

/* Whole field in double precision on the host; see backend.h, transform. */
XPE_MUST_CHECK xpe_status xpe_fft_host(xpe_c64 *field, int64_t n, int sign, xpe_error *err);

#endif
