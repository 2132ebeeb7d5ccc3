/* One HTTP exchange through libcurl: a request out, a status and a body in. */
#ifndef XPC_HTTP_H
#define XPC_HTTP_H

#include <curl/curl.h>
#include <xptychod/client.h>

#include "locate.h"

#define XPC_BODY_MAX (64u << 20) /* bytes of an answer that is kept in memory */

typedef struct xpc_buffer {
    char *data; /* [length] and a zero */
    size_t length, room;
} xpc_buffer;

/* false when memory is exhausted or the limit would be passed. */
bool xpc_buffer_add(xpc_buffer *buffer, const char *data, size_t length, size_t limit);
void xpc_buffer_release(xpc_buffer *buffer);

typedef struct xpc_request {
    const char *method; /* "GET", "POST", "PATCH", "DELETE" */
    const char *path;   /* "/v1/jobs?limit=5" */
    const char *accept;
    const json_t *body; /* NULL = none */
    const char *key;    /* Idempotency-Key, or NULL */
    int fd;             /* the body of a 2xx answer goes there; -1 = it is kept */
    int timeout_ms;     /* of the whole exchange; 0 = none, but a stall of 60 s ends it */
    const char *match;  /* If-Match, or NULL */
} xpc_request;

typedef struct xpc_response {
    int status;
    int retry_after_s;
    char type[64]; /* media type, lower case, without parameters */
    xpc_buffer body;
} xpc_response;

/* Sets what every exchange with the place has in common.  *headers is extended and must outlive the
 * handle's use. */
XPC_MUST_CHECK xpc_status xpc_http_prepare(CURL *curl, const xpc_place *place, const char *path,
                                           struct curl_slist **headers, xpc_error *err);
XPC_MUST_CHECK bool xpc_header_add(struct curl_slist **headers, const char *name,
                                   const char *value);
/* What libcurl says went wrong, as an error of this library. */
xpc_status xpc_http_fault(CURL *curl, CURLcode code, const char *detail, const xpc_place *place,
                          xpc_error *err);
/* Media type without parameters, lower case. */
void xpc_media_type(char *out, size_t size, const char *content_type);

/* XPC_OK means that an answer came, whatever its status. */
XPC_MUST_CHECK xpc_status xpc_http_send(CURL *curl, const xpc_place *place,
                                        const xpc_request *request, xpc_response *out,
                                        xpc_error *err);
void xpc_response_release(xpc_response *response);
/* The error for an answer that is not 2xx; *problem is its document or NULL (the caller's). */
xpc_status xpc_response_fault(const xpc_response *response, json_t **problem, xpc_error *err);

#endif
