/* The ROUTER socket: each request becomes one HTTP call of the broker with the caller's token.
 * Runs on the thread that calls it, with many calls in flight, until stop_fd is readable. */
#ifndef XPD_ZMQ_ROUTER_H
#define XPD_ZMQ_ROUTER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct xpd_router xpd_router;

/* Binds `address`; writes the address as bound to endpoint.  NULL on failure, with errno of libzmq.
 * secret: as xpd_socket_open.  Borrows context and broker (path of the unix socket) until closed.
 */
xpd_router *xpd_router_open(void *context, const char *address, const char *secret,
                            const char *broker, char *endpoint, size_t endpoint_size);
/* Same thread as open.  false when the event loop itself failed. */
bool xpd_router_run(xpd_router *router, int stop_fd);
void xpd_router_close(xpd_router *router);

#endif
