/* The validated input of a run, as the core's other files see it. */
#ifndef XPE_PROBLEM_H
#define XPE_PROBLEM_H

#include "xptychod/engine.h"

struct xpe_problem {
    xpe_problem_desc desc;
    xpe_grid grid;
    int32_t *first; /* [J][2] */
};

#endif
