/* What client.c and stream.c share: the client itself. */
#ifndef XPC_PRIVATE_H
#define XPC_PRIVATE_H

#include <curl/curl.h>
#include <xptychod/client.h>

#include "locate.h"

struct xpc_client {
    xpc_place place;
    CURL *curl;      /* of the calls; a stream has its own, so that its callback may make calls */
    json_t *problem; /* of the last call refused, or NULL */
    int timeout_ms, retry_ms;
};

/* Milliseconds of a clock that only moves forward. */
int64_t xpc_now_ms(void);
/* Sleeps; a tick (may be NULL) is asked ten times a second and may end it: then false. */
bool xpc_sleep(int ms, bool (*tick)(void *user), void *user);

#endif
