/* JSON as text and back, whole or not at all.  Where memory is short jansson 2.14 leaves out the
 * name of a member that it writes and a byte of a word that it reads, and says nothing; and who
 * builds a document member by member seldom looks whether each of them is in it.  So every
 * allocation of jansson goes through here, and one that fails is remembered, for its thread, until
 * a text was refused for it or a problem is told. */
#include "text.h"
#include "xptychod/protocol.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static json_malloc_t allocate;
static _Thread_local bool starved; /* an allocation of jansson has failed since the last text */

static void *note(size_t size)
{
    void *block = allocate(size);

    if (!block)
        starved = true;
    return block;
}

void xpp_json_watch(void)
{
    json_malloc_t now;
    json_free_t release;

    json_get_alloc_funcs(&now, &release);
    if (now == note)
        return;
    allocate = now;
    json_set_alloc_funcs(note, release);
}

void xpp_json_told(void)
{
    starved = false;
}

json_t *xpp_load(const char *text, size_t length, size_t flags, json_error_t *error)
{
    json_error_t own;
    bool before = starved;

    starved = false;
    json_t *doc = json_loadb(text, length, flags, error ? error : &own);
    if (starved) {
        json_decref(doc);
        doc = NULL;
        if (error) {
            *error = (json_error_t){.line = -1, .column = -1, .text = "memory is exhausted"};
            error->text[sizeof error->text - 1] = json_error_out_of_memory;
        }
    }
    starved = before;
    return doc;
}

typedef struct buffer {
    char *text; /* NUL-terminated */
    size_t used, room;
    bool failed;
} buffer;

static int append(const char *bytes, size_t size, void *context)
{
    buffer *b = context;

    if (!b->failed && size >= b->room - b->used) {
        size_t room = 2 * (b->used + size) + 256;
        char *more = realloc(b->text, room);

        b->failed = !more;
        if (more) {
            b->text = more;
            b->room = room;
        }
    }
    if (b->failed)
        return -1;
    memcpy(b->text + b->used, bytes, size);
    b->used += size;
    b->text[b->used] = '\0';
    return 0;
}

char *xpp_dump(const json_t *doc, size_t flags)
{
    buffer b = {0};
    bool whole = doc && json_dump_callback(doc, append, &b, flags) == 0 && !b.failed && !starved;

    starved = false;
    if (whole && b.text)
        return b.text;
    free(b.text);
    return NULL;
}
