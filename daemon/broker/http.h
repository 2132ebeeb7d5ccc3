/* The listeners: api on a unix socket and on TCP, admin (health and the verbs of an administrator)
 * on a second unix socket, health alone on a second port; limits, deadlines, guards.  Bytes only;
 * what a request means is in routes.c.  Loop thread only. */
#ifndef XPD_HTTP_H
#define XPD_HTTP_H

#include "broker.h"

typedef struct xpd_http xpd_http;

/* Opens the sockets and starts serving. */
bool xpd_http_open(xpd_http **out, xpd_broker *b, xpd_error *err);
/* Milliseconds until the library wants to run (-1 = not before a socket is ready); runs what is
 * due. */
int xpd_http_before_wait(xpd_http *http);
/* Closes connections that were too slow; once a second. */
void xpd_http_tick(xpd_http *http);
/* No new connections. */
void xpd_http_quiesce(xpd_http *http);
unsigned xpd_http_connections(const xpd_http *http); /* with a request on its way */
unsigned xpd_http_open_connections(const xpd_http *http);
/* No connection may be suspended any more. */
/* Descriptors that the listeners take when every connection that they accept is there. */
int64_t xpd_http_descriptors(const xpd_config *config);
void xpd_http_close(xpd_http *http);

/* Addresses for ready.json; "" where there is none. */
const char *xpd_http_address(const xpd_http *http);
const char *xpd_http_unix_path(const xpd_http *http);
const char *xpd_http_admin_path(const xpd_http *http);
const char *xpd_http_health_address(const xpd_http *http);

#endif
