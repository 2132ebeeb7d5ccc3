/* Where the daemon is and which token it wants; rules in xptychod/client.h. */
#ifndef XPC_LOCATE_H
#define XPC_LOCATE_H

#include <xptychod/client.h>

typedef struct xpc_place {
    char server[640]; /* "unix:/path" or "http://127.0.0.1:8270" */
    char socket[108]; /* path of a unix socket; "" for TCP */
    char base[512];   /* what a URL starts with: "http://localhost" for a socket */
    char *token;      /* or NULL; owned */
    char found[640];  /* how it was found: "the ready file '/run/user/1000/xptycho/ready.json'" */
} xpc_place;

XPC_MUST_CHECK xpc_status xpc_place_find(xpc_place *out, const xpc_options *options,
                                         xpc_error *err);
void xpc_place_release(xpc_place *place);

#endif
