/* The one place of the reader that knows the status lists of engine and protocol. */
#include "fault.h"

#include <string.h>

xpp_fault xpd_fault_of(const xpe_error *err)
{
    switch (err->status) {
    case XPE_OK:
        return XPP_FAULT_NONE;
    case XPE_INVALID:
    case XPE_IO:
        return strncmp(err->pointer, "/output", 7) == 0 ? XPP_FAULT_OUTPUT : XPP_FAULT_DATASET;
    case XPE_BUSY:
        return XPP_FAULT_DATASET_BUSY;
    case XPE_CHANGED:
        return XPP_FAULT_DATASET_CHANGED;
    case XPE_NO_MEMORY:
        return XPP_FAULT_UNAVAILABLE;
    default:
        return XPP_FAULT_INTERNAL;
    }
}

int xpd_exit_of(const xpe_error *err)
{
    switch (err->status) {
    case XPE_OK:
        return 0;
    case XPE_INVALID:
    case XPE_BUSY:
    case XPE_CHANGED:
        return 3;
    case XPE_IO:
    case XPE_NO_MEMORY:
        return 4;
    default:
        return 1;
    }
}
