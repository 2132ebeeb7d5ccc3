/* The one place of the worker that knows the engine's statuses and the protocol's words. */
#ifndef XPD_WORKER_FAULT_H
#define XPD_WORKER_FAULT_H

#include "xptychod/engine.h"
#include "xptychod/protocol.h"

/* Exit codes, docs/architecture.md section 6. */
enum {
    XPD_EXIT_OK = 0,
    XPD_EXIT_UNEXPECTED = 1,
    XPD_EXIT_USAGE = 2,
    XPD_EXIT_REFUSED = 3,
    XPD_EXIT_FAILED = 4,
    XPD_EXIT_CANCELLED = 5
};

/* Reason of a terminal state, docs/architecture.md section 2. */
const char *xpd_reason_of(xpe_status status);
/* succeeded 0, cancelled 5; failed: 3 where the input was refused before work began, else 4. */
int xpd_exit_of(const char *state, const char *reason);
/* A problem document for an engine's refusal (the caller's; NULL when memory is exhausted). */
json_t *xpd_problem_of(const xpe_error *err);

#endif
