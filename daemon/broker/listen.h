/* Listening sockets: made here, or handed over by the service manager. */
#ifndef XPD_LISTEN_H
#define XPD_LISTEN_H

#include "fault.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descriptors by their FileDescriptorName; -1 = not handed over. */
typedef struct xpd_passed {
    int api, api_tcp, admin; /* "api", "api-tcp", "admin" */
} xpd_passed;

/* Takes them once; one of another name or kind is closed, and the log says so. */
xpd_passed xpd_listen_passed(void);
/* -1 and err where it cannot be. */
int xpd_listen_unix(const char *path, mode_t mode, xpd_error *err);
int xpd_listen_tcp(const char *address, uint16_t port, xpd_error *err); /* port 0 = a free one */
/* Where a socket listens: a path, or "http://127.0.0.1:8270"; "" where it cannot be told. */
void xpd_listen_address(char *out, size_t size, int fd);

#endif
