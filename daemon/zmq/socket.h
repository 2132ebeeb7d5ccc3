/* What both sockets of the bridge have in common. */
#ifndef XPD_ZMQ_SOCKET_H
#define XPD_ZMQ_SOCKET_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

/* A bound socket of the type with the limits that a socket open to others needs; endpoint gets the
 * address as bound.  NULL on failure, errno set by libzmq.  Belongs to the calling thread. */
void *xpd_socket_open(void *context, int type, const char *address, char *endpoint,
                      size_t endpoint_size);
/* Waits for the socket, stop_fd or a transfer of `multi`, at most timeout_ms.  false on failure.
 * The socket's descriptor tells of changes only: receive until nothing is left before waiting
 * again. */
bool xpd_socket_wait(void *socket, CURLM *multi, int stop_fd, int timeout_ms, bool *stopped);

#endif
