/* `bench --residency`: what keeping a worker saves. */
#ifndef XPD_RESIDENCY_H
#define XPD_RESIDENCY_H

#include "xptychod/engine.h"

#include <stdbool.h>

/* Times `rounds` cold and as many warm starts of a tiny job and prints the medians. */
XPE_MUST_CHECK xpe_status xpd_residency_bench(int rounds, bool json, xpe_error *err);

#endif
