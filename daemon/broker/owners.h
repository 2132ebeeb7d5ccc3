/* Whose results are whose when their jobs are forgotten, of those results that do not say so
 * themselves: written by an earlier version, or on a file system that gave them to another user
 * than the service.  Such a result is replaced by its owner's jobs alone, as long as it is the file
 * that was written.  Kept in memory and as notes in the database, for good: whether a file is gone
 * or was moved cannot be found out.  Loop thread only. */
#ifndef XPD_OWNERS_H
#define XPD_OWNERS_H

#include "job.h"

typedef struct xpd_owned {
    int64_t inode, bytes, mtime_ns; /* of the file */
    int64_t uid;
} xpd_owned;

typedef struct xpd_owners {
    xpd_owned *items;
    size_t count, room;
} xpd_owners;

/* Takes a note that was kept; others are left alone. */
void xpd_owners_take(xpd_owners *owners, const xpd_note *note);
/* The note of a job that is about to be forgotten; false = it needs none: there is no result at a
 * path of its own, or it says itself whose it is. */
bool xpd_owners_note(xpd_note *out, const xpd_job *job, int64_t now_ms);
/* Whether the file (members inode, bytes, mtime_ns) is another user's. */
bool xpd_owners_other(const xpd_owners *owners, const json_t *file, uid_t uid);
void xpd_owners_release(xpd_owners *owners);

#endif
