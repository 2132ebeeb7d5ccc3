/* See log.h.  Under systemd a line starts with the syslog level in angle brackets, which the
 * journal takes as the priority; elsewhere with the time. */
#include "log.h"

#include <xptychod/protocol.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static xpd_level current = XPD_LOG_INFO;

void xpd_log_set_level(xpd_level level)
{
    current = level;
}

xpd_level xpd_log_level(void)
{
    return current;
}

bool xpd_print(char *out, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(out, size, format, arguments);
    va_end(arguments);
    return n >= 0 && (size_t)n < size;
}

void xpd_text_escape(char *out, size_t size, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p >= 0x20 && *p != 0x7f) {
            if (at + 2 > size)
                break;
            out[at++] = (char)*p;
        } else {
            if (at + 5 > size)
                break;
            out[at++] = '\\';
            out[at++] = 'x';
            out[at++] = digits[*p >> 4];
            out[at++] = digits[*p & 15];
        }
    }
    out[at] = '\0';
}

static size_t prefix(char *out, size_t size, xpd_level level, const char *job)
{
    static const char *const words[] = {"error", "warning", "info", "debug"};
    static const int priorities[] = {3, 4, 6, 7};
    char stamp[32] = "";
    int n;

    if (getenv("JOURNAL_STREAM")) {
        n = snprintf(out, size, "<%d>", priorities[level]);
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        xpp_time_text(stamp, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
        n = snprintf(out, size, "%s %s: ", stamp, words[level]);
    }
    size_t at = (size_t)n;
    if (job) {
        n = snprintf(out + at, size - at, "job %s: ", job);
        at += (size_t)n;
    }
    return at;
}

void xpd_log(xpd_level level, const char *job, const char *format, ...)
{
    if (level > current)
        return;

    char message[1024], line[2400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);

    size_t at = prefix(line, sizeof line, level, job);
    xpd_text_escape(line + at, sizeof line - at - 1, message);
    at = strlen(line);
    line[at++] = '\n';
    /* A log that cannot be written (full disk, closed pipe) must not stop the service. */
    ssize_t written = write(STDERR_FILENO, line, at);
    (void)written;
}
