/* Documents for the tests, written with ' for ". */
#ifndef TEST_DOCUMENTS_H
#define TEST_DOCUMENTS_H

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "xptychod/protocol.h"

static inline json_t *document(const char *quoted)
{
    char *text = strdup(quoted);
    json_t *doc, *problem;

    for (char *at = text; *at; at++)
        if (*at == '\'')
            *at = '"';
    doc = xpp_parse(text, strlen(text), &problem);
    if (!doc)
        fail_msg("%s: %s", text, json_string_value(json_object_get(problem, "detail")));
    free(text);
    return doc;
}

#endif
