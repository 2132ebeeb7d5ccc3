/* Whether a result can be written where a job wants it; asked before the job waits for hours. */
#ifndef XPD_READER_OUTPUT_H
#define XPD_READER_OUTPUT_H

#include "io/read/read.h"

/* write_roots NULL = the process's own permissions alone.  Nothing is created. */
XPE_MUST_CHECK xpe_status xpd_output_check(const char *path, bool overwrite,
                                           const xpe_roots *write_roots, xpe_error *err);

#endif
