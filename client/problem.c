/* A problem document (RFC 9457) as a sentence for a person: the detail, and a line for each error
 * with its JSON pointer. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <xptychod/client.h>

typedef struct text {
    char *out;
    size_t size, used;
} text;

static void add(text *t, const char *format, ...) XPC_PRINTF(2, 3);
static void add(text *t, const char *format, ...)
{
    va_list args;
    int n;

    if (t->used + 1 >= t->size)
        return;
    va_start(args, format);
    n = vsnprintf(t->out + t->used, t->size - t->used, format, args);
    va_end(args);
    if (n < 0)
        return;
    t->used += (size_t)n;
    if (t->used >= t->size)
        t->used = t->size - 1;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "";
}

static void add_errors(text *t, const json_t *errors)
{
    size_t i, count = json_array_size(errors);

    for (i = 0; i < count; i++) {
        const json_t *error = json_array_get(errors, i);
        const char *pointer = text_of(error, "pointer");

        if (t->used + 200 >= t->size) {
            add(t, "\n  and %zu more", count - i);
            return;
        }
        add(t, "\n  %s: %s", pointer[0] ? pointer : "(the document)", text_of(error, "detail"));
    }
}

void xpc_problem_text(char *out, size_t size, const json_t *problem)
{
    text t = {out, size, 0};
    const json_t *errors = json_object_get(problem, "errors");
    const char *detail = text_of(problem, "detail");

    if (size == 0)
        return;
    out[0] = '\0';
    if (!detail[0])
        detail = text_of(problem, "title");
    if (!detail[0])
        detail = "the daemon gave no reason";
    /* A single error that says the same as the detail is not said twice. */
    if (json_array_size(errors) == 1 &&
        strcmp(detail, text_of(json_array_get(errors, 0), "detail")) == 0) {
        const char *pointer = text_of(json_array_get(errors, 0), "pointer");
        add(&t, "%s%s%s", pointer, pointer[0] ? ": " : "", detail);
    } else {
        add(&t, "%s", detail);
        add_errors(&t, errors);
    }
}
