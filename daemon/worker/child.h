/* Starting a program of this package with one end of a socket pair as its descriptor 3. */
#ifndef XPD_WORKER_CHILD_H
#define XPD_WORKER_CHILD_H

#include "xptychod/engine.h"

#include <sys/types.h>

/* Starts `name --socket 3` in a process group of its own, so that a Ctrl-C reaches this program
 * only. posix_spawn and never fork: this process has threads and HDF5.  *socket is this side's end;
 * the caller closes it and waits for pid. */
XPE_MUST_CHECK xpe_status xpd_spawn(pid_t *pid, int *socket, const char *name, xpe_error *err);

#endif
