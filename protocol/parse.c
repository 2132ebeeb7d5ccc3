/* Text from outside becomes a document: depth is limited before jansson recurses (its own limit of
 * 2048 is too deep for a small stack), duplicate keys are refused (jansson lets the last one win),
 * numbers that do not fit and bytes that are not UTF-8 are refused by jansson itself. */
#include "text.h"
#include "xptychod/protocol.h"

#include <stdio.h>
#include <string.h>

/* Deepest nesting of arrays and objects; stops counting past most.  *line and *column (from 1) then
 * say where. */
static int depth_of(const char *text, size_t length, int most, int *line, int *column)
{
    int depth = 0, deepest = 0;
    bool in_text = false;

    *line = 1;
    *column = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];

        ++*column;
        if (c == '\n') {
            ++*line;
            *column = 0;
        }
        if (in_text) {
            if (c == '\\')
                i++; /* whatever follows, it does not end the text */
            else if (c == '"')
                in_text = false;
        } else if (c == '"') {
            in_text = true;
        } else if (c == '[' || c == '{') {
            if (++depth > deepest)
                deepest = depth;
            if (depth > most)
                break;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return deepest;
}

static json_t *malformed(const char *detail, int line, int column)
{
    json_t *where = json_object();

    if (where && line > 0) {
        json_object_set_new(where, "line", json_integer(line));
        json_object_set_new(where, "column", json_integer(column));
    }
    return xpp_problem(XPP_FAULT_MALFORMED_JSON, detail, NULL, where);
}

json_t *xpp_parse_within(const char *text, size_t length, int depth_max, json_t **problem)
{
    json_error_t error;
    json_t *doc;
    int line, column;
    char detail[sizeof error.text + 64];

    *problem = NULL;
    if (length == 0) {
        *problem = malformed("the body is empty; send a JSON object", 0, 0);
        return NULL;
    }
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        *problem = malformed("the body starts with a byte order mark; send plain UTF-8", 1, 1);
        return NULL;
    }
    if (depth_of(text, length, depth_max, &line, &column) > depth_max) {
        snprintf(detail, sizeof detail, "nested deeper than %d levels", depth_max);
        *problem = malformed(detail, line, column);
        return NULL;
    }
    doc = xpp_load(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!doc && json_error_code(&error) == json_error_out_of_memory) {
        *problem = xpp_problem(XPP_FAULT_UNAVAILABLE, "memory is exhausted", NULL, NULL);
    } else if (!doc) {
        snprintf(detail, sizeof detail, "line %d, column %d: %s", error.line, error.column,
                 error.text);
        *problem = malformed(detail, error.line, error.column);
    }
    return doc;
}

json_t *xpp_parse(const char *text, size_t length, json_t **problem)
{
    return xpp_parse_within(text, length, XPP_DEPTH_MAX, problem);
}
