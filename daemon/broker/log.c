/* See log.h. */
#include "log.h"

#include <xptychod/protocol.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef XPTYCHOD_HAVE_SYSTEMD
#include <systemd/sd-journal.h>
#endif

/* A reload may change them while the store's thread logs. */
static _Atomic int current = XPD_LOG_INFO;
static atomic_bool as_json;

void xpd_log_set_level(xpd_level level)
{
    current = (int)level;
}

void xpd_log_set_json(bool json)
{
    as_json = json;
}

xpd_level xpd_log_level(void)
{
    return (xpd_level)current;
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
        /* U+0080 to U+009F are control characters, too */
        bool high = *p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f,
             second = p > (const unsigned char *)text && p[-1] == 0xc2 && *p >= 0x80 && *p <= 0x9f;
        if (*p >= 0x20 && *p != 0x7f && !high && !second) {
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

static const char *const words[] = {"error", "warning", "info", "debug"};

#ifdef XPTYCHOD_HAVE_SYSTEMD
/* Whether standard error is the journal's: the service manager names device and inode of what it
 * gave, and a shell in between may have replaced it. */
static bool to_journal(void)
{
    const char *named = getenv("JOURNAL_STREAM");
    struct stat st;
    char text[64];

    if (!named || fstat(STDERR_FILENO, &st) != 0)
        return false;
    snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return strcmp(text, named) == 0;
}

static bool send_to_journal(xpd_level level, const char *job, const char *message)
{
    static const int priorities[] = {3, 4, 6, 7};

    if (!to_journal())
        return false;
    if (job)
        return sd_journal_send("MESSAGE=job %s: %s", job, message, "PRIORITY=%d", priorities[level],
                               "XPTYCHO_JOB=%s", job, NULL) == 0;
    return sd_journal_send("MESSAGE=%s", message, "PRIORITY=%d", priorities[level], NULL) == 0;
}
#else
static bool send_to_journal(xpd_level level, const char *job, const char *message)
{
    (void)level;
    (void)job;
    (void)message;
    return false;
}
#endif

static void write_line(const char *line, size_t length)
{
    /* A log that cannot be written (full disk, closed pipe) must not stop the service. */
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written;
}

static bool write_json(const char *stamp, xpd_level level, const char *job, const char *message)
{
    json_t *record = json_pack("{s:s, s:s, s:o}", "t", stamp, "level", words[level], "message",
                               xpp_text(message));
    if (record && job)
        json_object_set_new(record, "job", xpp_text(job));
    char *text = record ? xpp_dump(record, JSON_COMPACT) : NULL, *line = NULL;
    json_decref(record);
    int length = text ? asprintf(&line, "%s\n", text) : -1;
    free(text);
    if (length < 0)
        return false;
    write_line(line, (size_t)length);
    free(line);
    return true;
}

void xpd_log(xpd_level level, const char *job, const char *format, ...)
{
    if ((int)level > current)
        return;

    char message[1024], safe[2400], line[2600], stamp[32];
    struct timespec now;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    xpd_text_escape(safe, sizeof safe, message);
    clock_gettime(CLOCK_REALTIME, &now);
    xpp_time_text(stamp, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);

    if (send_to_journal(level, job, safe) || (as_json && write_json(stamp, level, job, safe)))
        return;
    int length = snprintf(line, sizeof line, "%s %s: %s%s%s%s\n", stamp, words[level],
                          job ? "job " : "", job ? job : "", job ? ": " : "", safe);
    write_line(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}
