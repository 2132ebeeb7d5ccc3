/* See fault.h.  Engine and protocol do not know each other; this file knows both. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool xpd_fail(xpd_error *err, xpp_fault fault, const char *pointer, const char *format, ...)
{
    if (err) {
        va_list arguments;
        xpd_error_release(err);
        err->fault = fault;
        snprintf(err->pointer, sizeof err->pointer, "%s", pointer);
        va_start(arguments, format);
        vsnprintf(err->text, sizeof err->text, format, arguments);
        va_end(arguments);
    }
    return false;
}

xpp_fault xpd_fault_from_engine(xpe_status status)
{
    switch (status) {
    case XPE_OK:
        return XPP_FAULT_NONE;
    case XPE_INVALID:
        return XPP_FAULT_INVALID_JOB;
    case XPE_NO_DEVICE_MEMORY:
        return XPP_FAULT_NO_DEVICE_MEMORY;
    case XPE_NO_DEVICE:
        return XPP_FAULT_NO_DEVICE;
    case XPE_IO:
        return XPP_FAULT_DATASET;
    case XPE_BUSY:
        return XPP_FAULT_DATASET_BUSY;
    case XPE_CHANGED:
        return XPP_FAULT_DATASET_CHANGED;
    case XPE_NO_MEMORY:
    case XPE_DEVICE_LOST:
        return XPP_FAULT_UNAVAILABLE;
    case XPE_DIVERGED:
    case XPE_CANCELLED:
    case XPE_INTERNAL:
        break;
    }
    return XPP_FAULT_INTERNAL;
}

bool xpd_fail_engine(xpd_error *err, const xpe_error *cause)
{
    xpd_fail(err, xpd_fault_from_engine(cause->status), cause->pointer, "%s", cause->text);
    if (err && cause->status == XPE_NO_DEVICE_MEMORY) {
        int64_t needed = cause->bytes_needed, available = cause->bytes_free;
        err->more =
            json_pack("{s:I, s:I, s:I, s:[{s:s, s:I, s:I, s:I}]}", "required_bytes",
                      (json_int_t)needed, "available_bytes", (json_int_t)available,
                      "shortfall_bytes", (json_int_t)(needed - available), "devices", "name",
                      cause->device, "required_bytes", (json_int_t)needed, "available_bytes",
                      (json_int_t)available, "shortfall_bytes", (json_int_t)(needed - available));
    }
    return false;
}

json_t *xpd_problem(xpd_error *err)
{
    json_t *errors = NULL;
    json_t *more = err->more;

    err->more = NULL;
    if (err->pointer[0]) {
        errors = json_array();
        xpp_errors_add(errors, err->pointer, "%s", err->text);
    }
    return xpp_problem(err->fault, err->text, errors, more);
}

void xpd_error_release(xpd_error *err)
{
    json_decref(err->more);
    err->more = NULL;
}

xpp_fault xpd_fault_of_problem(const json_t *problem)
{
    const char *type = json_string_value(json_object_get(problem, "type"));
    const char *slash = type ? strrchr(type, '/') : NULL;
    xpp_fault fault = XPP_FAULT_NONE;

    if (type && xpp_fault_find(&fault, slash ? slash + 1 : type) && fault != XPP_FAULT_NONE)
        return fault;
    return XPP_FAULT_DATASET;
}

const char *xpd_reason_of_fault(xpp_fault fault)
{
    switch (fault) {
    case XPP_FAULT_DATASET:
    case XPP_FAULT_DATASET_BUSY:
    case XPP_FAULT_DATASET_CHANGED:
    case XPP_FAULT_DATASET_UNRESPONSIVE:
        return xpp_fault_type(fault); /* a reason each */
    case XPP_FAULT_OUTPUT:
        return "output";
    case XPP_FAULT_NO_DEVICE_MEMORY:
        return "no-device-memory";
    case XPP_FAULT_INVALID_JOB:
    case XPP_FAULT_NO_DEVICE:
        return "refused";
    default:
        return "internal";
    }
}
