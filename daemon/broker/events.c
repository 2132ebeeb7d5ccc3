/* See events.h.  One write a line with O_APPEND and no sync: after a crash the log ends with a torn
 * line at worst, which opening cuts off.  An index of every 256th line finds a place in the file.
 */
#include "events.h"

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_STEP 256
#define CHUNK 65536
#define GAP_MAX (1 << 24) /* events lost while the disk was full; a larger number is damage */

typedef struct line {
    int64_t seq;
    char *text;
    size_t length;
} line;

struct xpd_events {
    char *path;
    int fd;          /* -1 = parked */
    int64_t size;    /* bytes of complete lines */
    int64_t last;    /* seq */
    int64_t written; /* last seq that is in the file */
    bool ended, stalled;
    int unread;                /* errno of the read that failed last; 0 = it went well */
    line ring[XPD_EVENT_RING]; /* seq s at s % size */
    int64_t ring_first;        /* lowest seq in memory; > last = none */
    int64_t *index; /* [index_count]: offset of the first line with seq > k * INDEX_STEP */
    size_t index_count, index_room;
};

/* The piece of a file read last, shared by all cursors: neighbours mostly want the same. */
static struct {
    const xpd_events *owner;
    int64_t offset;
    size_t length;
    char bytes[CHUNK];
} chunk;

/* ---------------------------------------------------------------------------------- the file */

static bool take_descriptor(xpd_events *e)
{
    if (e->fd < 0)
        e->fd = open(e->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    return e->fd >= 0;
}

static bool index_add(xpd_events *e, int64_t seq, int64_t offset)
{
    size_t want = (size_t)((seq - 1) / INDEX_STEP) + 1;
    if (want <= e->index_count)
        return true;
    if (want > e->index_room) {
        size_t room = want * 2 + 16;
        int64_t *more = realloc(e->index, room * sizeof *more);
        if (!more)
            return false;
        e->index = more;
        e->index_room = room;
    }
    while (e->index_count < want)
        e->index[e->index_count++] = offset;
    return true;
}

/* seq of a line, 0 when it is not one of ours */
static int64_t line_seq(const char *text, size_t length)
{
    static const char head[] = "{\"seq\":";
    int64_t seq = 0;
    size_t at = sizeof head - 1;

    if (length < sizeof head || memcmp(text, head, at) != 0)
        return 0;
    while (at < length && text[at] == ' ')
        at++;
    for (; at < length && text[at] >= '0' && text[at] <= '9'; at++) {
        if (seq > INT64_MAX / 100)
            return 0;
        seq = seq * 10 + (text[at] - '0');
    }
    return at < length && text[at] == ',' ? seq : 0;
}

static void note_unread(xpd_events *e)
{
    if (!e->unread)
        xpd_log(XPD_LOG_WARNING, NULL, "event log '%s' cannot be read: %s", e->path,
                strerror(errno));
    e->unread = errno;
}

/* The complete line at offset, through the shared chunk; length 0 = none, or e->unread says why it
 * is not known. */
static const char *line_at(xpd_events *e, int64_t offset, size_t *length)
{
    *length = 0;
    for (int round = 0; round < 2; round++) {
        if (chunk.owner == e && offset >= chunk.offset &&
            offset < chunk.offset + (int64_t)chunk.length) {
            size_t at = (size_t)(offset - chunk.offset);
            const char *end = memchr(chunk.bytes + at, '\n', chunk.length - at);
            if (end) {
                *length = (size_t)(end - (chunk.bytes + at)) + 1;
                return chunk.bytes + at;
            }
        }
        if (round == 1)
            break;
        ssize_t got = take_descriptor(e) ? pread(e->fd, chunk.bytes, CHUNK, offset) : -1;
        chunk.owner = e;
        chunk.offset = offset;
        chunk.length = got > 0 ? (size_t)got : 0;
        if (got < 0) {
            note_unread(e);
            break;
        }
        e->unread = 0;
    }
    return NULL;
}

/* false when memory is exhausted: an end that is not seen would be written a second time. */
static bool look_for_end(xpd_events *e, const char *text, size_t length)
{
    json_error_t error;

    e->ended = false;
    if (!memmem(text, length, "\"end\"", 5))
        return true;
    json_t *event = xpp_load(text, length, 0, &error);
    if (!event && json_error_code(&error) == json_error_out_of_memory)
        return false;
    const char *type = json_string_value(json_object_get(event, "type"));
    e->ended = type && strcmp(type, "end") == 0;
    json_decref(event);
    return true;
}

/* Walks the whole file once: counts, indexes, finds where the complete lines end.  What cannot be
 * read is not taken for the end of the file, which is cut there. */
static bool scan(xpd_events *e, xpd_error *err)
{
    size_t length;
    const char *text;

    chunk.owner = NULL;
    while ((text = line_at(e, e->size, &length))) {
        int64_t seq = line_seq(text, length);
        if (seq > e->last && seq - e->last <= GAP_MAX) {
            if (!index_add(e, seq, e->size) || !look_for_end(e, text, length))
                return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
            e->last = seq;
        }
        e->size += (int64_t)length;
    }
    return !e->unread || xpd_fail(err, XPP_FAULT_INTERNAL, "", "event log '%s' cannot be read: %s",
                                  e->path, strerror(e->unread));
}

bool xpd_events_open(xpd_events **out, const char *path, xpd_error *err)
{
    xpd_events *e = calloc(1, sizeof *e);
    struct stat st;
    bool ok = false;

    *out = NULL;
    if (!e || !(e->path = strdup(path))) {
        free(e);
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    }
    e->fd = -1;
    if (!take_descriptor(e) || fstat(e->fd, &st) != 0) {
        xpd_fail(err, XPP_FAULT_INTERNAL, "", "event log '%s' cannot be opened: %s", path,
                 strerror(errno));
        goto done;
    }
    if (!scan(e, err))
        goto done;
    if (e->size < st.st_size && ftruncate(e->fd, e->size) != 0)
        xpd_log(XPD_LOG_WARNING, NULL, "event log '%s': the torn last line stays: %s", path,
                strerror(errno));
    chunk.owner = NULL;
    e->written = e->last;
    e->ring_first = e->last + 1;
    *out = e;
    e = NULL;
    ok = true;
done:
    xpd_events_close(e);
    return ok;
}

void xpd_events_park(xpd_events *e)
{
    if (e->fd >= 0)
        close(e->fd);
    e->fd = -1;
}

void xpd_events_close(xpd_events *e)
{
    if (!e)
        return;
    if (chunk.owner == e)
        chunk.owner = NULL;
    xpd_events_park(e);
    for (int i = 0; i < XPD_EVENT_RING; i++)
        free(e->ring[i].text);
    free(e->index);
    free(e->path);
    free(e);
}

/* --------------------------------------------------------------------------------- appending */

static bool write_line(xpd_events *e, const line *l)
{
    if (!take_descriptor(e) || !index_add(e, l->seq, e->size))
        return false;
    ssize_t done = write(e->fd, l->text, l->length);
    if (done == (ssize_t)l->length) {
        e->size += done;
        return true;
    }
    int reason = done < 0 ? errno : ENOSPC;
    if (done > 0 && ftruncate(e->fd, e->size) != 0)
        xpd_log(XPD_LOG_WARNING, NULL, "event log '%s': a torn line stays: %s", e->path,
                strerror(errno));
    if (!e->stalled)
        xpd_log(XPD_LOG_WARNING, NULL, "event log '%s' cannot be written: %s", e->path,
                strerror(reason));
    return false;
}

static void write_waiting(xpd_events *e)
{
    if (e->written + 1 < e->ring_first)
        e->written = e->ring_first - 1; /* fell out of memory before there was room on the disk */
    while (e->written < e->last) {
        if (!write_line(e, &e->ring[(e->written + 1) % XPD_EVENT_RING])) {
            e->stalled = true;
            return;
        }
        e->written++;
    }
    e->stalled = false;
}

int64_t xpd_events_append(xpd_events *e, int64_t t_ms, const char *type, const json_t *body)
{
    int64_t seq = e->last + 1;
    char *text = xpp_event_line(seq, t_ms, type, body);

    if (text && strlen(text) > XPD_EVENT_MAX) {
        json_t *instead = json_pack("{s:s}", "text", "an event was left out: it was too long");
        free(text);
        text = xpp_event_line(seq, t_ms, "warning", instead);
        json_decref(instead);
    }
    if (!text)
        return 0;
    line *slot = &e->ring[seq % XPD_EVENT_RING];
    free(slot->text);
    *slot = (line){seq, text, strlen(text)};
    e->last = seq;
    if (e->ring_first <= seq - XPD_EVENT_RING)
        e->ring_first = seq - XPD_EVENT_RING + 1;
    e->ended = strcmp(type, "end") == 0;
    write_waiting(e);
    return seq;
}

int64_t xpd_events_last(const xpd_events *e)
{
    return e->last;
}

bool xpd_events_ended(const xpd_events *e)
{
    return e->ended;
}

const char *xpd_events_newest(const xpd_events *e)
{
    return e->ring_first <= e->last ? e->ring[e->last % XPD_EVENT_RING].text : NULL;
}

/* ----------------------------------------------------------------------------------- reading */

static bool next_in_memory(xpd_events *e, xpd_cursor *c, xpd_event *out)
{
    const line *l = &e->ring[c->next % XPD_EVENT_RING];
    out->seq = l->seq;
    out->line = l->text;
    out->length = l->length;
    c->next++;
    c->offset = -1;
    return true;
}

static bool next_in_file(xpd_events *e, xpd_cursor *c, xpd_event *out)
{
    if (c->offset < 0) {
        size_t k = (size_t)((c->next - 1) / INDEX_STEP);
        if (k >= e->index_count)
            return false;
        c->offset = e->index[k];
    }
    while (c->offset < e->size) {
        size_t length;
        const char *text = line_at(e, c->offset, &length);
        if (!text)
            return false;
        c->offset += (int64_t)length;
        int64_t seq = line_seq(text, length);
        if (seq < c->next)
            continue;
        if (seq > c->next) {
            out->gap_from = c->next;
            out->gap_to = seq - 1;
        }
        out->seq = seq;
        out->line = text;
        out->length = length;
        c->next = seq + 1;
        return true;
    }
    return false;
}

bool xpd_events_unread(const xpd_events *e)
{
    return e->unread != 0;
}

bool xpd_events_next(xpd_events *e, xpd_cursor *c, xpd_event *out)
{
    memset(out, 0, sizeof *out);
    if (c->next < 1)
        c->next = 1;
    if (c->next > e->last)
        return false;
    if (c->next >= e->ring_first)
        return next_in_memory(e, c, out);
    int64_t wanted = c->next;
    e->unread = 0;
    if (next_in_file(e, c, out))
        return true;
    if (e->unread || e->ring_first > e->last)
        return false;
    /* neither in the file nor in memory: lost while the disk was full */
    c->next = e->ring_first;
    next_in_memory(e, c, out);
    out->gap_from = wanted;
    out->gap_to = e->ring_first - 1;
    return true;
}
