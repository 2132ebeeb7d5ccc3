/* See ballast.h.  It lives as long as the broker: a broker that leaves takes it along. */
#include "ballast.h"

#include "life.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool path_of(const xpd_broker *b, char *out, size_t size)
{
    return snprintf(out, size, "%s/ballast", b->config.state_dir) < (int)size;
}

static int64_t room_for(const xpd_broker *b)
{
    return 2 * (b->config.ballast_mib << 20) + (b->config.low_disk_mib << 20);
}

void xpd_ballast_make(xpd_broker *b)
{
    int64_t size = b->config.ballast_mib << 20;
    char path[PATH_MAX];

    if (size == 0)
        b->ballast_given = false;
    if (b->ballast >= 0 || size == 0 || !path_of(b, path, sizeof path))
        return;
    unlink(path); /* of a broker that was killed */
    if (xpd_disk_free(b) < room_for(b))
        return; /* it would be what fills the disk */
    b->ballast = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int code = b->ballast < 0 ? errno : posix_fallocate(b->ballast, 0, size);
    if (code) {
        xpd_log(XPD_LOG_WARNING, NULL, "'%s' of %lld MiB cannot be made: %s", path,
                (long long)b->config.ballast_mib, strerror(code));
        xpd_ballast_drop(b);
        return;
    }
    b->ballast_given = false;
}

bool xpd_ballast_give(xpd_broker *b)
{
    bool there = b->ballast >= 0;
    b->ballast_given = b->ballast_given || there;
    xpd_ballast_drop(b);
    return there;
}

int64_t xpd_ballast_needed(const xpd_broker *b)
{
    return b->ballast_given ? room_for(b) : b->config.low_disk_mib << 20;
}

void xpd_ballast_drop(xpd_broker *b)
{
    char path[PATH_MAX];

    if (b->ballast < 0)
        return;
    if (ftruncate(b->ballast, 0) != 0)
        xpd_log(XPD_LOG_WARNING, NULL, "the ballast cannot be given up: %s", strerror(errno));
    close(b->ballast);
    b->ballast = -1;
    if (path_of(b, path, sizeof path))
        unlink(path);
}
