/* A reader of the worker's own, for `run` and `compare`: the same program and messages as under the
 * broker, with the caller's permissions. */
#ifndef XPD_WORKER_READER_H
#define XPD_WORKER_READER_H

#include "xptychod/engine.h"
#include "xptychod/protocol.h"

#include <sys/types.h>

typedef struct xpd_reader {
    pid_t pid;
    int socket;
} xpd_reader;

/* Starts xptycho-reader. */
XPE_MUST_CHECK xpe_status xpd_reader_start(xpd_reader *out, xpe_error *err);
/* Sends one READ; takes body. */
XPE_MUST_CHECK xpe_status xpd_reader_send(xpd_reader *reader, json_t *body, xpe_error *err);
/* Waits for SCAN or REFUSED.  A readable `interrupt` descriptor (-1 = none) ends the wait with
 * XPE_CANCELLED; a reader that dies gives XPE_INTERNAL. */
XPE_MUST_CHECK xpe_status xpd_reader_receive(xpp_ipc_message *out, xpd_reader *reader,
                                             int interrupt, xpe_error *err);
/* Ends it, whatever it does; fine when none was started (pid 0). */
void xpd_reader_stop(xpd_reader *reader);

#endif
