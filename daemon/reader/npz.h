/* NumPy archives (.npz, also compressed once more) by libarchive. */
#ifndef XPD_READER_NPZ_H
#define XPD_READER_NPZ_H

#include "npy.h"

typedef struct xpd_entry {
    char name[128]; /* without ".npy" */
    xpd_npy header;
    void *data;        /* NULL when it was only listed */
    char refusal[256]; /* why it cannot be read, or "" */
} xpd_entry;

typedef struct xpd_archive {
    xpd_entry *entries;
    size_t count;
} xpd_archive;

/* Lists every array; loads those whose names are in `wanted` (NULL-terminated; NULL = none).
 * memory_max bounds all loaded arrays together. */
XPE_MUST_CHECK xpe_status xpd_archive_read(xpd_archive *out, const char *path,
                                           const char *const *wanted, int64_t memory_max,
                                           xpe_error *err);
void xpd_archive_release(xpd_archive *archive);
xpd_entry *xpd_archive_find(const xpd_archive *archive, const char *name);

#endif
