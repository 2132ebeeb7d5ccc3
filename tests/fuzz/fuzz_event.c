/* A line of an event log, and the texts made of it: one line, within its buffer, always UTF-8. */
#include "fuzz.h"

#include "xptychod/protocol.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    xpp_init();
    return 0;
}

static void check_text(const json_t *event, size_t size)
{
    char *text = malloc(size + 1);
    int wanted;
    json_t *valid;

    FUZZ_CHECK(text);
    text[size] = 'x';
    wanted = xpp_event_text(text, size, event);
    FUZZ_CHECK(wanted >= 0 && text[size] == 'x');
    if (size > 0) {
        FUZZ_CHECK(strlen(text) <= (size_t)wanted && !strchr(text, '\n'));
        valid = json_string(text);
        FUZZ_CHECK(valid);
        json_decref(valid);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *problem, *event = xpp_parse((const char *)data, size, &problem);
    char *line;

    json_decref(problem);
    if (!event)
        return 0;
    for (size_t room = 0; room < 64; room = room * 2 + 1)
        check_text(event, room);
    check_text(event, 4096);
    line = xpp_event_line(7, 0, "log", event);
    if (json_is_object(event)) {
        json_t *again = xpp_parse(line, strlen(line), &problem);

        FUZZ_CHECK(json_integer_value(json_object_get(again, "seq")) == 7);
        FUZZ_CHECK(strchr(line, '\n') == line + strlen(line) - 1);
        json_decref(again);
    }
    free(line);
    json_decref(event);
    return 0;
}
