/* Events as lines: JSON for programs, the reference program's progress line for people and for the
 * scripts that read it. */
#include "xptychod/protocol.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int xpp_progress_line(char *out, size_t size, int iteration, double data_error, int modes)
{
    return snprintf(out, size, "iteration %4d   data error %.6f   modes %d", iteration,
                    isnan(data_error) ? (double)NAN : data_error /* "nan", never "-nan" */, modes);
}

json_t *xpp_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void xpp_time_text(char *out, int64_t t_ms)
{
    const int64_t latest = INT64_C(253402300799999); /* the last millisecond of the year 9999 */
    struct tm utc;
    time_t seconds;
    char day[sizeof "2026-01-31T09:15:02"];

    t_ms = t_ms < 0 ? 0 : t_ms > latest ? latest : t_ms;
    seconds = (time_t)(t_ms / 1000);
    gmtime_r(&seconds, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, 25, "%s.%03dZ", day, (int)(t_ms % 1000));
}

char *xpp_event_line(int64_t seq, int64_t t_ms, const char *type, const json_t *body)
{
    json_t *event = json_object(), *more = body ? json_deep_copy(body) : NULL;
    char when[25], *text = NULL, *line = NULL;
    size_t length;
    int failed = 0;

    xpp_time_text(when, t_ms);
    failed |= json_object_set_new(event, "seq", json_integer(seq));
    failed |= json_object_set_new(event, "t", json_string(when));
    failed |= json_object_set_new(event, "type", xpp_text(type));
    if (body)
        failed |= !more || json_object_update_missing(event, more);
    if (failed)
        goto done;
    text = xpp_dump(event, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text)
        goto done;
    length = strlen(text);
    line = malloc(length + 2);
    if (line) {
        memcpy(line, text, length);
        memcpy(line + length, "\n", 2);
    }
done:
    free(text);
    json_decref(more);
    json_decref(event);
    return line;
}

/* ------------------------------------------------------------------------------- as plain text */

typedef struct line_writer {
    char *out;
    size_t size, used; /* used: what there would be with room for everything */
} line_writer;

/* Appends text with control characters as spaces: an event is one line. */
static void put(line_writer *writer, const char *text)
{
    for (; *text; text++, writer->used++)
        if (writer->used + 1 < writer->size)
            writer->out[writer->used] = (unsigned char)*text < 0x20 || *text == 0x7F ? ' ' : *text;
}

/* " before TEXT", unless there is no text. */
static void put_member(line_writer *writer, const char *before, const json_t *event,
                       const char *name)
{
    const char *text = json_string_value(json_object_get(event, name));

    if (text && text[0]) {
        put(writer, before);
        put(writer, text);
    }
}

static void put_number(line_writer *writer, const char *before, const json_t *event,
                       const char *name)
{
    const json_t *value = json_object_get(event, name);
    char number[32];

    if (!json_is_integer(value))
        return;
    snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    put(writer, before);
    put(writer, number);
}

static int small_int(const json_t *event, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(event, name));

    return value < 0 ? 0 : value > 999999999 ? 999999999 : (int)value;
}

/* A cut text may end inside a character. */
static void drop_last_character(char *text)
{
    size_t length = strlen(text);

    while (length > 0 && ((unsigned char)text[length - 1] & 0xC0) == 0x80)
        length--;
    text[length > 0 ? length - 1 : 0] = '\0';
}

int xpp_event_text(char *out, size_t size, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *error = json_object_get(event, "data_error");
    line_writer writer = {out, size, 0};

    if (type && strcmp(type, "iter") == 0)
        return xpp_progress_line(out, size, small_int(event, "iter"),
                                 json_is_number(error) ? json_number_value(error) : NAN,
                                 small_int(event, "modes"));
    put(&writer, "# ");
    put(&writer, type ? type : "event");
    put_number(&writer, " stage ", event, "stage");
    put_number(&writer, " iteration ", event, "iter");
    put_number(&writer, " from iteration ", event, "from_iter");
    put_member(&writer, " ", event, "state");
    put_member(&writer, ": ", event, "reason");
    put_member(&writer, ": ", event, "detail");
    put_member(&writer, " ", event, "text");
    if (size > 0) {
        out[writer.used < size ? writer.used : size - 1] = '\0';
        if (writer.used >= size)
            drop_last_character(out);
    }
    return writer.used > INT32_MAX ? INT32_MAX : (int)writer.used;
}
