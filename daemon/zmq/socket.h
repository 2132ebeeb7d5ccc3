/* What both sockets of the bridge have in common. */
#ifndef XPD_ZMQ_SOCKET_H
#define XPD_ZMQ_SOCKET_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

/* A bound socket of the type with the limits that a socket open to others needs; endpoint gets the
 * address as bound.  Whoever connects is shown to the ZAP handler, which must be there already;
 * with a secret (Z85; NULL = none) a tcp:// socket speaks CURVE and nothing else.  NULL on failure,
 * errno set by libzmq.  Belongs to the calling thread. */
void *xpd_socket_open(void *context, int type, const char *address, const char *secret,
                      char *endpoint, size_t endpoint_size);
/* Waits for the socket, stop_fd or a transfer of `multi`, at most timeout_ms.  false on failure.
 * The socket's descriptor tells of changes only: receive until nothing is left before waiting
 * again. */
bool xpd_socket_wait(void *socket, CURLM *multi, int stop_fd, int timeout_ms, bool *stopped);

#endif
