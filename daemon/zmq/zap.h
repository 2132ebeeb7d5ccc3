/* Who may connect (ZAP, RFC 27 of ZeroMQ): a thread that libzmq asks about each new connection.
 *
 *   ipc://  everybody who may open the socket; known by the uid that the kernel tells
 *   tcp://  with CURVE: whose public key is in the list, known by the user named there;
 *           without (loopback only): everybody, known to nobody
 *
 * A socket asks only where its ZAP domain is not empty; xpd_zap_domain names the two. */
#ifndef XPD_ZMQ_ZAP_H
#define XPD_ZMQ_ZAP_H

#include <stdbool.h>
#include <stddef.h>

#define XPD_ZAP_IPC "xptycho.ipc"
#define XPD_ZAP_TCP "xptycho.tcp"

typedef struct xpd_zap xpd_zap;

/* Before any socket of the context is bound.  keys_file (NULL = no CURVE) is read anew at each
 * connection, so a change counts at once; it must outlive the handler.  NULL with errno. */
xpd_zap *xpd_zap_start(void *context, const char *keys_file);
/* After every other socket of the context is closed; shuts the context down. */
void xpd_zap_stop(xpd_zap *zap);

/* The user of a public key (Z85, 40 characters) in a list: lines `KEY USER`; a line that does
 * not begin with a key is a comment.  false: not in it, or the list cannot be read.  Reentrant. */
bool xpd_keys_find(const char *file, const char *key, char *user, size_t user_size);
/* "uid:1000" from the address that libzmq gives for a peer on ipc://; false: none in it. */
bool xpd_zap_uid(const char *address, char *out, size_t out_size);

#endif
