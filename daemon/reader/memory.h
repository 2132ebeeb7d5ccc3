/* Arrays in memory files that are sealed before another process sees them. */
#ifndef XPD_READER_MEMORY_H
#define XPD_READER_MEMORY_H

#include "xptychod/engine.h"

/* A memory file of that size, or -1 with err set. */
int xpd_memory_create(const char *name, int64_t bytes, xpe_error *err);
/* The same with these contents, sealed. */
int xpd_memory_copy(const char *name, const void *data, int64_t bytes, xpe_error *err);
/* Part of it, writable; unmap before sealing. */
typedef struct xpd_window {
    void *base;
    size_t length;
    void *data; /* at the offset asked for */
} xpd_window;
XPE_MUST_CHECK xpe_status xpd_window_map(xpd_window *w, int fd, int64_t offset, int64_t bytes,
                                         xpe_error *err);
void xpd_window_unmap(xpd_window *w);
/* No more changes of size or contents. */
XPE_MUST_CHECK xpe_status xpd_memory_seal(int fd, xpe_error *err);

#endif
