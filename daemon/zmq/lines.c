/* A growing buffer for the line in progress. */
#include "lines.h"

#include <stdlib.h>
#include <string.h>

static bool keep(xpd_lines *l, const char *data, size_t size)
{
    if (l->skipping || l->size + size > XPD_LINE_MAX) {
        l->skipping = true;
        l->size = 0;
        return true;
    }
    if (l->size + size > l->room) {
        size_t room = 2 * (l->size + size);
        char *more = realloc(l->data, room);

        if (!more)
            return false;
        l->data = more;
        l->room = room;
    }
    memcpy(l->data + l->size, data, size);
    l->size += size;
    return true;
}

bool xpd_lines_feed(xpd_lines *l, const char *data, size_t size,
                    void (*line)(void *user, const char *text, size_t size), void *user)
{
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t part = end ? (size_t)(end - data) : size;

        if (!keep(l, data, part))
            return false;
        if (!end)
            return true;
        if (!l->skipping && l->size > 0)
            line(user, l->data, l->size);
        l->skipping = false;
        l->size = 0;
        data += part + 1;
        size -= part + 1;
    }
    return true;
}

void xpd_lines_release(xpd_lines *l)
{
    free(l->data);
    memset(l, 0, sizeof *l);
}
