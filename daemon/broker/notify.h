/* Readiness, status and watchdog for the service manager; nothing where there is none. */
#ifndef XPD_NOTIFY_H
#define XPD_NOTIFY_H

#include <stdint.h>

void xpd_notify_ready(const char *status);
void xpd_notify_reloading(void); /* ended by xpd_notify_ready */
void xpd_notify_stopping(void);
/* Called once a second by the loop; pings the watchdog when half of its time has passed and all is
 * well. */
void xpd_notify_alive(int64_t now_ms, int well);

#endif
