/* Problem documents (RFC 9457) and the list of everything that can be wrong with a request. */
#include "text.h"
#include "xptychod/protocol.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_PREFIX "urn:xptychod:problem:"

typedef struct fault_row {
    int status;
    const char *type, *title;
} fault_row;

static const fault_row rows[] = {
#define X(name, status, suffix, title) [XPP_FAULT_##name] = {status, suffix, title},
    XPP_FAULT_LIST(X)
#undef X
};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

/* A number that is no fault comes from a defect; it is told as one. */
static const fault_row *row_of(xpp_fault fault)
{
    return (size_t)fault < ROW_COUNT ? &rows[fault] : &rows[XPP_FAULT_INTERNAL];
}

int xpp_fault_status(xpp_fault fault)
{
    return row_of(fault)->status;
}

const char *xpp_fault_type(xpp_fault fault)
{
    return row_of(fault)->type;
}

bool xpp_fault_find(xpp_fault *out, const char *suffix)
{
    if (strncmp(suffix, TYPE_PREFIX, sizeof TYPE_PREFIX - 1) == 0)
        suffix += sizeof TYPE_PREFIX - 1;
    for (size_t i = XPP_FAULT_NONE + 1; i < ROW_COUNT; i++)
        if (strcmp(rows[i].type, suffix) == 0) {
            *out = (xpp_fault)i;
            return true;
        }
    return false;
}

json_t *xpp_problem(xpp_fault fault, const char *detail, json_t *errors, json_t *more)
{
    const fault_row *row = row_of(fault);
    char type[128];
    int failed = 0;

    xpp_json_told(); /* by this */
    json_t *problem = json_object();
    snprintf(type, sizeof type, "%s%s", TYPE_PREFIX, row->type);
    failed |= json_object_set_new(problem, "type", json_string(type));
    failed |= json_object_set_new(problem, "title", json_string(row->title));
    failed |= json_object_set_new(problem, "status", json_integer(row->status));
    failed |= json_object_set_new(problem, "detail", xpp_text(detail ? detail : ""));
    if (errors)
        failed |= json_object_set(problem, "errors", errors);
    if (more)
        failed |= json_object_update_missing(problem, more);
    json_decref(errors);
    json_decref(more);
    if (failed) {
        json_decref(problem);
        return NULL;
    }
    return problem;
}

void xpp_errors_add(json_t *errors, const char *pointer, const char *format, ...)
{
    char *detail = NULL;
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(&detail, format, arguments) < 0)
        detail = NULL;
    va_end(arguments);

    /* Without memory for the sentence the error must still be seen. */
    json_t *error = json_object();
    json_object_set_new(error, "pointer", xpp_text(pointer));
    json_object_set_new(error, "detail", xpp_text(detail ? detail : "not valid"));
    json_array_append_new(errors, error);
    free(detail);
}
