/* See notify.h. */
#include "notify.h"

#ifdef XPTYCHOD_HAVE_SYSTEMD

#include <systemd/sd-daemon.h>
#include <time.h>

void xpd_notify_ready(const char *status)
{
    sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void xpd_notify_reloading(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld",
               (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

void xpd_notify_stopping(void)
{
    sd_notify(0, "STOPPING=1");
}

void xpd_notify_alive(int64_t now_ms, int well)
{
    static int64_t last_ms;
    uint64_t limit_us = 0;

    if (!well || sd_watchdog_enabled(0, &limit_us) <= 0)
        return;
    if (now_ms - last_ms >= (int64_t)(limit_us / 2000)) {
        sd_notify(0, "WATCHDOG=1");
        last_ms = now_ms;
    }
}

#else

void xpd_notify_ready(const char *status)
{
    (void)status;
}

void xpd_notify_reloading(void)
{
}

void xpd_notify_stopping(void)
{
}

void xpd_notify_alive(int64_t now_ms, int well)
{
    (void)now_ms;
    (void)well;
}

#endif
