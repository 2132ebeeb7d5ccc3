/* Whether a result can be written where a job wants it; asked before the job waits for hours. */
#ifndef XPD_READER_OUTPUT_H
#define XPD_READER_OUTPUT_H

#include "io/read/read.h"

/* The result that would be replaced.  The broker knows whose it is; it knows it by this and not by
 * its name, since `..`, links and doubled slashes give one file many names. */
typedef struct xpd_output_file {
    bool exists;
    int64_t inode, bytes, mtime_ns;
} xpd_output_file;

/* write_roots NULL = the process's own permissions alone.  Nothing is created. */
XPE_MUST_CHECK xpe_status xpd_output_check(xpd_output_file *found, const char *path, bool overwrite,
                                           const xpe_roots *write_roots, xpe_error *err);

#endif
