/* Status names, the one way to fill an error, and the table of stored pixel types. */
#include "xptychod/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[] = {[XPE_OK] = "ok",
                                           [XPE_INVALID] = "invalid",
                                           [XPE_NO_MEMORY] = "no-memory",
                                           [XPE_NO_DEVICE_MEMORY] = "no-device-memory",
                                           [XPE_NO_DEVICE] = "no-device",
                                           [XPE_DEVICE_LOST] = "device-lost",
                                           [XPE_DIVERGED] = "diverged",
                                           [XPE_CANCELLED] = "cancelled",
                                           [XPE_BUSY] = "busy",
                                           [XPE_CHANGED] = "changed",
                                           [XPE_IO] = "io",
                                           [XPE_INTERNAL] = "internal"};

const char *xpe_status_name(xpe_status status)
{
    size_t i = (size_t)status;
    return i < sizeof status_names / sizeof *status_names ? status_names[i] : "unknown";
}

xpe_status xpe_fail(xpe_error *err, xpe_status status, const char *pointer, const char *format, ...)
{
    if (err) {
        va_list args;
        memset(err, 0, sizeof *err);
        err->status = status;
        snprintf(err->pointer, sizeof err->pointer, "%s", pointer ? pointer : "");
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}

static const struct {
    const char *name;
    size_t size;
} types[] = {
#define X(name, text, bytes) {#text, bytes},
    XPE_TYPE_LIST(X)
#undef X
};

size_t xpe_type_size(xpe_type type)
{
    return types[type].size;
}

const char *xpe_type_name(xpe_type type)
{
    return types[type].name;
}

bool xpe_type_find(xpe_type *out, const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            *out = (xpe_type)i;
            return true;
        }
    return false;
}
