/* The broker's error value, and the one place where engine status becomes protocol fault. */
#ifndef XPD_FAULT_H
#define XPD_FAULT_H

#include <stdbool.h>
#include <xptychod/engine.h>
#include <xptychod/protocol.h>

typedef struct xpd_error {
    xpp_fault fault;
    char pointer[96]; /* JSON pointer of the member at fault, "" where none is */
    char text[512];
    json_t *more; /* extension members of the problem, owned; NULL = none */
} xpd_error;

#define XPD_ERROR_INIT                                                                             \
    {                                                                                              \
        XPP_FAULT_NONE, "", "", NULL                                                               \
    }

/* Fills err (may be NULL); returns false always, so that a function can end with it. */
bool xpd_fail(xpd_error *err, xpp_fault fault, const char *pointer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same from an engine error, the memory figures included. */
bool xpd_fail_engine(xpd_error *err, const xpe_error *cause);
/* The problem document of an error; takes err->more. */
json_t *xpd_problem(xpd_error *err);
void xpd_error_release(xpd_error *err);

xpp_fault xpd_fault_from_engine(xpe_status status);
/* The fault of a problem document made by another process, by the suffix of its type. */
xpp_fault xpd_fault_of_problem(const json_t *problem);
/* What a terminal job says about it: "dataset", "output", "no-device-memory", ... */
const char *xpd_reason_of_fault(xpp_fault fault);

#endif
