/* Small helpers of whoever has something to tell. */
#include "events.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static _Atomic int64_t beats;

void xpd_beat(void)
{
    atomic_fetch_add_explicit(&beats, 1, memory_order_relaxed);
}

int64_t xpd_beats(void)
{
    return atomic_load_explicit(&beats, memory_order_relaxed);
}

void xpd_emit(const xpd_events *events, json_t *event)
{
    if (event)
        events->emit(events->context, event);
}

void xpd_emit_text(const xpd_events *events, const char *type, const char *format, ...)
{
    char text[600];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    xpd_emit(events, json_pack("{s:s, s:s}", "type", type, "text", text));
}
