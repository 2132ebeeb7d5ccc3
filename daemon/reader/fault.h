/* From what the engine's readers say to what the protocol says. */
#ifndef XPD_READER_FAULT_H
#define XPD_READER_FAULT_H

#include "xptychod/engine.h"
#include "xptychod/protocol.h"

xpp_fault xpd_fault_of(const xpe_error *err);
/* Exit codes of docs/architecture.md, section 6. */
int xpd_exit_of(const xpe_error *err);

#endif
