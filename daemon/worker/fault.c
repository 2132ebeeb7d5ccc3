/* Engine status -> reason of a job, problem document, exit code. */
#include "fault.h"

#include <string.h>

static const struct {
    xpe_status status;
    const char *reason;
    xpp_fault fault;
} table[] = {
    {XPE_OK, "", XPP_FAULT_NONE},
    {XPE_INVALID, "refused", XPP_FAULT_INVALID_JOB},
    /* the CPU's device memory is the host's */
    {XPE_NO_MEMORY, "no-device-memory", XPP_FAULT_NO_DEVICE_MEMORY},
    {XPE_NO_DEVICE_MEMORY, "no-device-memory", XPP_FAULT_NO_DEVICE_MEMORY},
    {XPE_NO_DEVICE, "refused", XPP_FAULT_NO_DEVICE},
    {XPE_DEVICE_LOST, "internal", XPP_FAULT_INTERNAL},
    {XPE_DIVERGED, "diverged", XPP_FAULT_INTERNAL},
    {XPE_CANCELLED, "cancelled", XPP_FAULT_INTERNAL},
    {XPE_BUSY, "dataset-busy", XPP_FAULT_DATASET_BUSY},
    {XPE_CHANGED, "dataset-changed", XPP_FAULT_DATASET_CHANGED},
    {XPE_IO, "output", XPP_FAULT_OUTPUT},
    {XPE_INTERNAL, "internal", XPP_FAULT_INTERNAL},
};

const char *xpd_reason_of(xpe_status status)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == status)
            return table[i].reason;
    return "internal";
}

int xpd_exit_of(const char *state, const char *reason)
{
    static const char *const refusals[] = {"refused", "dataset", "dataset-busy", "dataset-changed",
                                           "no-device-memory"};

    if (strcmp(state, "succeeded") == 0)
        return XPD_EXIT_OK;
    if (strcmp(state, "cancelled") == 0)
        return XPD_EXIT_CANCELLED;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (strcmp(reason, refusals[i]) == 0)
            return XPD_EXIT_REFUSED;
    return XPD_EXIT_FAILED;
}

json_t *xpd_problem_of(const xpe_error *err)
{
    xpp_fault fault = XPP_FAULT_INTERNAL;
    json_t *errors = NULL, *more = NULL;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == err->status)
            fault = table[i].fault;
    if (err->pointer[0]) {
        errors = json_array();
        if (errors)
            xpp_errors_add(errors, err->pointer, "%s", err->text);
    }
    if (err->status == XPE_NO_DEVICE_MEMORY)
        more =
            json_pack("{s:s, s:I, s:I, s:I}", "device", err->device, "required_bytes",
                      (json_int_t)err->bytes_needed, "available_bytes", (json_int_t)err->bytes_free,
                      "shortfall_bytes", (json_int_t)(err->bytes_needed - err->bytes_free));
    return xpp_problem(fault, err->text, errors, more);
}
