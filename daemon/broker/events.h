/* A job's events: an append-only file of JSON lines with the newest lines in memory, and cursors.
 *
 * A subscriber is a cursor (the next seq it wants), nothing else: no queue a subscriber exists, so
 * a slow one costs nothing.  Lines that left memory are read back from the file.  `seq` counts from
 * 1 without holes.  When the disk is full, lines stay in memory and are written later; what must be
 * dropped then is seen by readers as a gap.
 *
 * Loop thread only.  A line handed out is valid until the next call. */
#ifndef XPD_EVENTS_H
#define XPD_EVENTS_H

#include "fault.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define XPD_EVENT_MAX 61440 /* bytes of a line */
#define XPD_EVENT_RING 1024 /* lines in memory */

typedef struct xpd_events xpd_events;

typedef struct xpd_cursor {
    int64_t next;   /* seq wanted */
    int64_t offset; /* where it is in the file; -1 = not known */
} xpd_cursor;

typedef struct xpd_event {
    int64_t seq;
    const char *line; /* JSON with newline */
    size_t length;
    int64_t gap_from, gap_to; /* lines lost before this one; 0 = none */
} xpd_event;

/* Opens the log at path (made when absent): cuts off a torn last line and counts what is there. */
bool xpd_events_open(xpd_events **out, const char *path, xpd_error *err);
void xpd_events_close(xpd_events *events);
/* Gives the descriptor back; it is taken again when needed. */
void xpd_events_park(xpd_events *events);
/* Adds an event; returns its seq, 0 when memory is exhausted. */
int64_t xpd_events_append(xpd_events *events, int64_t t_ms, const char *type, const json_t *body);
int64_t xpd_events_last(const xpd_events *events);
bool xpd_events_ended(const xpd_events *events); /* the last event is `end` */
/* The line that was appended last (NULL when none is in memory). */
const char *xpd_events_newest(const xpd_events *events);
/* Next line for the cursor, which moves on.  false = nothing more now, or it cannot be read. */
bool xpd_events_next(xpd_events *events, xpd_cursor *cursor, xpd_event *out);
/* The last call of xpd_events_next failed to read the file (logged); a later one may succeed. */
bool xpd_events_unread(const xpd_events *events);

#endif
