/* JSON as text and back, whole or not at all.  Where memory is short jansson 2.14 leaves out the
 * name of a member that it writes, and says nothing; and who builds a document member by member
 * seldom looks whether each of them is in it.  So every allocation of jansson goes through here,
 * and one that fails is remembered, for its thread, until a text was refused for it or a problem is
 * told.
 *
 * When jansson reads, it goes on without the byte for which its buffer could not grow, and past the
 * end of the buffer where that was the closing quotation mark.  So no allocation fails while it
 * reads: there is a reserve, and the text ends for it a few bytes later. */
#include "text.h"
#include "xptychod/protocol.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RESERVE (64 << 10)
#define PORTION 64 /* bytes that are read at once */

typedef struct input {
    const char *text;
    size_t left;
} input;

static json_malloc_t allocate;
static json_free_t release;
static _Thread_local bool starved;     /* an allocation of jansson has failed since the last text */
static _Thread_local jmp_buf *reading; /* NULL while nothing is read */
static _Thread_local struct {
    alignas(max_align_t) char bytes[RESERVE];
    size_t used;
} reserve;

static void *take(size_t size)
{
    void *block = allocate(size);

    if (block)
        return block;
    starved = true;
    if (!reading)
        return NULL;
    size = (size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    if (size > RESERVE - reserve.used)
        longjmp(*reading, 1); /* a very long word: what was read of the text before it is lost */
    block = reserve.bytes + reserve.used;
    reserve.used += size;
    return block;
}

static void give(void *block)
{
    uintptr_t at = (uintptr_t)block, first = (uintptr_t)reserve.bytes;

    if (at < first || at >= first + RESERVE)
        release(block);
}

void xpp_json_watch(void)
{
    json_malloc_t now;
    json_free_t now_free;

    json_get_alloc_funcs(&now, &now_free);
    if (now == take)
        return;
    allocate = now;
    release = now_free;
    json_set_alloc_funcs(take, give);
}

void xpp_json_told(void)
{
    starved = false;
}

static size_t feed(void *out, size_t size, void *context)
{
    input *in = context;
    size_t piece = starved ? 0 : in->left < PORTION ? in->left : PORTION;

    if (piece > size)
        piece = size;
    memcpy(out, in->text, piece);
    in->text += piece;
    in->left -= piece;
    return piece;
}

json_t *xpp_load(const char *text, size_t length, size_t flags, json_error_t *error)
{
    input in = {text, length};
    json_t *volatile doc = NULL;
    volatile bool before = starved;
    json_error_t own;
    jmp_buf back;

    starved = false;
    reading = &back;
    if (setjmp(back) == 0)
        doc = json_load_callback(feed, &in, flags, error ? error : &own);
    reading = NULL;
    if (starved) {
        json_decref(doc);
        doc = NULL;
        if (error) {
            *error = (json_error_t){.line = -1, .column = -1, .text = "memory is exhausted"};
            error->text[sizeof error->text - 1] = json_error_out_of_memory;
        }
    }
    reserve.used = 0;
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
