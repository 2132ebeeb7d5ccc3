/* What a request's JSON asks for, as a call of the broker's HTTP API, and the answer's JSON.
 *
 *   {"verb": "show", "id": "01J...", "token": "..."}  ->  GET /v1/jobs/01J...
 *   {"status": 200, "body": {...}}                    <-  the HTTP status and body
 *
 * Knows no socket.  Reentrant. */
#ifndef XPD_ZMQ_VERB_H
#define XPD_ZMQ_VERB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define XPD_CALL_PATH_MAX 1024
#define XPD_TOKEN_MAX 512

typedef enum xpd_answer {
    XPD_ANSWER_JSON,   /* body as it is */
    XPD_ANSWER_EVENTS, /* lines of JSON -> {"events": [...], "more": false} */
    XPD_ANSWER_TEXT    /* text -> {"text": "..."} */
} xpd_answer;

typedef struct xpd_call {
    const char *method; /* static */
    char path[XPD_CALL_PATH_MAX];
    char token[XPD_TOKEN_MAX + 1];
    char idempotency_key[256]; /* "" = none */
    char *body;                /* malloc'd, owned; NULL = none */
    xpd_answer answer;
} xpd_call;

/* Decodes a request.  Returns NULL and fills *out, or returns a problem document (the caller's) and
 * leaves nothing to release.  A request without a token is a problem: the broker would take the
 * bridge's own user for the caller. */
json_t *xpd_call_decode(xpd_call *out, const char *text, size_t size);
void xpd_call_release(xpd_call *call);

/* {"status", "body"} of what the broker answered, as malloc'd text (NULL when memory is exhausted).
 * `cut` says that only the first bytes of the body are there. */
char *xpd_answer_encode(xpd_answer kind, long status, const char *body, size_t size, bool cut);
/* The same for a problem, which is taken. */
char *xpd_answer_problem(json_t *problem);

#endif
