/* Arrays of other programs into a scan of this one. */
#ifndef XPD_READER_CONVERT_H
#define XPD_READER_CONVERT_H

#include "npz.h"

typedef enum xpd_shifted { XPD_SHIFTED_AUTO, XPD_SHIFTED_YES, XPD_SHIFTED_NO } xpd_shifted;

/* Checks shape and type; frames->data is then [J][n][n] in a pixel type of the engine. */
XPE_MUST_CHECK xpe_status xpd_convert_frames(xpd_entry *frames, xpe_type *type, xpe_error *err);
/* Brings zero frequency to the middle.  AUTO looks where the counts are and refuses when it cannot
 * tell; *moved says what was done. */
XPE_MUST_CHECK xpe_status xpd_convert_zero_frequency(xpd_entry *frames, xpe_type type,
                                                     xpd_shifted shifted, bool *moved,
                                                     xpe_error *err);
/* *out[J][2], malloc'd, still in the archive's unit: (row, column), swapped first, then turned
 * round. */
XPE_MUST_CHECK xpe_status xpd_convert_positions(double **out, xpd_entry *positions,
                                                int64_t num_frames, bool swap, bool flip_rows,
                                                bool flip_columns, xpe_error *err);
/* *out[*modes][n][n], malloc'd. */
XPE_MUST_CHECK xpe_status xpd_convert_probe(xpe_c32 **out, int64_t *modes, xpd_entry *probe,
                                            int64_t n, xpe_error *err);

#endif
