/* xptycho-zmq: started, watched and started again where ZeroMQ addresses are configured.  It holds
 * no state, so its death costs nothing but a reconnection.  Loop thread only. */
#ifndef XPD_BRIDGE_H
#define XPD_BRIDGE_H

#include "supervise.h"

typedef struct xpd_bridge {
    xpd_child child;
    xpd_timer restart;
    int64_t backoff_ms, started_ms;
    char ready_file[PATH_MAX];
    char router[256], pub[256]; /* as bound, from its ready file; "" = not yet */
    char curve_public[64];      /* "" = without CURVE */
} xpd_bridge;

bool xpd_bridge_create(xpd_broker *b); /* fine when nothing is configured */
/* Reads the addresses when the bridge has written them; true when they are known. */
bool xpd_bridge_ready(xpd_bridge *bridge);
bool xpd_bridge_alive(const xpd_bridge *bridge);
void xpd_bridge_quit(xpd_bridge *bridge, int64_t delay_ms);
void xpd_bridge_destroy(xpd_bridge *bridge);

#endif
