/* One request to the reader: what a job wants out of its files, examined or read whole. */
#ifndef XPD_READER_READING_H
#define XPD_READER_READING_H

#include "io/read/read.h"
#include "xptychod/protocol.h"

typedef struct xpd_reading {
    /* in */
    const xpp_job *job;
    const xpe_roots *roots, *write_roots; /* NULL = own permissions */
    const char *output_path;              /* NULL = not to be checked */
    bool arrays;                          /* read frames, not headers only */
    int64_t memory_max;                   /* bytes that may be handed over */
    /* out */
    json_t *scan; /* the body of `scan`, or NULL when refused */
    int fds[XPP_IPC_FDS_MAX];
    int fd_count;
    json_t *errors; /* [{pointer, detail}] */
    xpp_fault fault;
} xpd_reading;

/* True when `scan` is there, false when `errors` says why not (each fault of each file).  The
 * caller sets `in` and zeroes the rest. */
bool xpd_reading_run(xpd_reading *r);
void xpd_reading_release(xpd_reading *r);

/* Sentences about what pixels hold; the caller frees nothing, they are added to `warnings`. */
void xpd_pixel_warnings(json_t *warnings, const xpe_pixel_stats *s, const xpe_scan_info *info);

#endif
