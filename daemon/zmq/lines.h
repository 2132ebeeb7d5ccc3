/* Cuts a stream of bytes into lines.  A line longer than the limit is left out, whole. */
#ifndef XPD_ZMQ_LINES_H
#define XPD_ZMQ_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define XPD_LINE_MAX (1u << 20)

typedef struct xpd_lines {
    char *data; /* the line in progress */
    size_t size, room;
    bool skipping;
} xpd_lines; /* all zero = empty */

/* Calls `line` for each complete line that is not empty (without its newline).  false when memory
 * is exhausted. */
bool xpd_lines_feed(xpd_lines *lines, const char *data, size_t size,
                    void (*line)(void *user, const char *text, size_t size), void *user);
void xpd_lines_release(xpd_lines *lines);

#endif
