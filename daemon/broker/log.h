/* Levelled log of the broker: one record a call, with the job it is about: to the journal where
 * standard error is one, else a line of text or JSON on standard error.
 *
 * Text from outside (names, paths, messages of children) may stand in a line: control characters
 * are written as \xNN, so a user cannot forge a line.  Tokens and request bodies are never logged.
 * Any thread; a line leaves in one write. */
#ifndef XPD_LOG_H
#define XPD_LOG_H

#include <stdbool.h>
#include <stddef.h>

typedef enum xpd_level { XPD_LOG_ERROR, XPD_LOG_WARNING, XPD_LOG_INFO, XPD_LOG_DEBUG } xpd_level;

void xpd_log_set_level(xpd_level level);
void xpd_log_set_json(bool json);
xpd_level xpd_log_level(void);
/* job may be NULL. */
void xpd_log(xpd_level level, const char *job, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* snprintf; true when nothing was cut off. */
bool xpd_print(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Copies text with control characters and invalid bytes escaped; always terminated. */
void xpd_text_escape(char *out, size_t size, const char *text);

#endif
