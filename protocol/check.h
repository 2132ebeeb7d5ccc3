/* What the two halves of the job check share: where in the document, and the list of errors.
 * Private to this folder. */
#ifndef XPP_CHECK_H
#define XPP_CHECK_H

#include "xptychod/protocol.h"

/* A place in a document, told from the inside out; lives on the stack of the walk. */
typedef struct xpp_place {
    const struct xpp_place *up; /* NULL: the document itself */
    const char *key;            /* NULL: an item */
    size_t index;
} xpp_place;

typedef struct xpp_check {
    json_t *errors;
    size_t count; /* all of them; only the first XPP_ERRORS_MAX are kept */
} xpp_check;

#define XPP_ERRORS_MAX 100

void xpp_check_fail(xpp_check *check, const xpp_place *at, const char *format, ...)
    XPP_PRINTF(3, 4);
/* What depends on what: the rules that tables cannot express.  resolved is the document with
 * defaults, in which members of a wrong type stand as they came; such members are passed over, the
 * tables have reported them. */
void xpp_check_rules(xpp_check *check, const json_t *resolved);

#endif
