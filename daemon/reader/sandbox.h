/* What this process may still do once it opens a user's file. */
#ifndef XPD_READER_SANDBOX_H
#define XPD_READER_SANDBOX_H

#include "io/read/read.h"

/* Ends with the parent; leaves no core; takes at most that much processor time and 8 GiB of
 * addresses. */
void xpd_sandbox_limit(int cpu_seconds);
/* From here on: reading beneath these folders only (NULL = anywhere), writing nowhere.  Does
 * nothing where the kernel has no Landlock; paths are checked all the same.  false where it has,
 * and does not hold (said on stderr): no file of a user may be opened then. */
XPE_MUST_CHECK bool xpd_sandbox_confine(const xpe_roots *roots, const xpe_roots *more);
/* Bytes of memory that can be had now. */
int64_t xpd_memory_available(void);

#endif
