/* Whether a result can be written where a job wants it; asked before the job waits for hours. */
#ifndef XPD_READER_OUTPUT_H
#define XPD_READER_OUTPUT_H

#include "io/read/read.h"

/* Where the path leads.  The broker knows by this, and not by the name, whose result would be
 * replaced: `..`, links and doubled slashes give one file many names.  The worker knows by the
 * folder that it writes where the path led when it was judged. */
typedef struct xpd_output_place {
    int64_t folder_device, folder_inode;
    int64_t disk_total, disk_free; /* bytes; 0 = its file system does not say */
    bool exists;                   /* a result that would be replaced; then: */
    int64_t inode, bytes, mtime_ns;
    int64_t owner; /* as the file says; -1 = it does not, or cannot be believed */
} xpd_output_place;

/* write_roots NULL = the process's own permissions alone.  Nothing is created. */
XPE_MUST_CHECK xpe_status xpd_output_check(xpd_output_place *found, const char *path,
                                           bool overwrite, const xpe_roots *write_roots,
                                           xpe_error *err);

#endif
