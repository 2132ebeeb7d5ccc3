/* The one way to fill an xpc_error. */
#ifndef XPC_FAIL_H
#define XPC_FAIL_H

#include <xptychod/client.h>

/* Fills err (may be NULL) and returns status. */
xpc_status xpc_fail(xpc_error *err, xpc_status status, const char *format, ...) XPC_PRINTF(3, 4);

#define XPC_TRY(call)                                                                              \
    do {                                                                                           \
        st = (call);                                                                               \
        if (st != XPC_OK)                                                                          \
            goto done;                                                                             \
    } while (0)

#endif
