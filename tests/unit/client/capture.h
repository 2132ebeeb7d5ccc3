/* What is written to stderr during a block, as text: for tests of what a person is told. */
#ifndef XPC_TEST_CAPTURE_H
#define XPC_TEST_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>

typedef struct capture {
    FILE *before;
    char *text; /* valid after capture_end; released by capture_release */
    size_t size;
} capture;

static inline void capture_begin(capture *c)
{
    c->text = NULL;
    c->before = stderr;
    stderr = open_memstream(&c->text, &c->size);
}

static inline const char *capture_end(capture *c)
{
    (void)fclose(stderr);
    stderr = c->before;
    return c->text;
}

static inline void capture_release(capture *c)
{
    free(c->text);
}

#endif
