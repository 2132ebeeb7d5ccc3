/* Names of statuses, and the one way to fill an error. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define X(name, label, text) label,
    XPC_STATUS_LIST(X)
#undef X
};

const char *xpc_status_name(xpc_status status)
{
    size_t i = (size_t)status;
    return i < sizeof(names) / sizeof(names[0]) ? names[i] : "unknown";
}

xpc_status xpc_fail(xpc_error *err, xpc_status status, const char *format, ...)
{
    va_list args;

    if (!err)
        return status;
    memset(err, 0, sizeof(*err));
    err->status = status;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return status;
}
