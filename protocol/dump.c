/* JSON as text, whole or not at all.  jansson 2.14 does not look at what came of writing a member's
 * name: where memory is short the text lacks it, and nothing says so.  Here a failure is
 * remembered. */
#include "xptychod/protocol.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct buffer {
    char *text; /* NUL-terminated */
    size_t used, room;
    bool failed;
} buffer;

static int append(const char *bytes, size_t size, void *context)
{
    buffer *b = context;

    if (!b->failed && size >= b->room - b->used) {
        size_t room = 2 * (b->used + size) + 256;
        char *more = realloc(b->text, room);

        b->failed = !more;
        if (more) {
            b->text = more;
            b->room = room;
        }
    }
    if (b->failed)
        return -1;
    memcpy(b->text + b->used, bytes, size);
    b->used += size;
    b->text[b->used] = '\0';
    return 0;
}

char *xpp_dump(const json_t *doc, size_t flags)
{
    buffer b = {0};

    if (doc && json_dump_callback(doc, append, &b, flags) == 0 && !b.failed && b.text)
        return b.text;
    free(b.text);
    return NULL;
}
