/* Where the events of a job go: a socket, a terminal, a test. */
#ifndef XPD_EVENTS_H
#define XPD_EVENTS_H

#include "xptychod/protocol.h"

#include <stdint.h>

/* emit may be called from the engine thread and the writer thread at once. */
typedef struct xpd_events {
    void (*emit)(void *context, json_t *event); /* takes event: {"type", members} */
    void *context;
} xpd_events;

/* Takes event; NULL (no memory for it) is let go. */
void xpd_emit(const xpd_events *events, json_t *event);
/* An event with one member "text": "warning", "log". */
void xpd_emit_text(const xpd_events *events, const char *type, const char *format, ...)
    XPP_PRINTF(3, 4);

/* A sign that the job moves on where it has nothing to tell for long; any thread. */
void xpd_beat(void);
int64_t xpd_beats(void); /* so far */

#endif
