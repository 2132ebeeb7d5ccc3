/* Previews are replaced every few seconds and may be lost with the machine, so they are renamed but
 * not synced; results, which must last, are written by engine/io/write. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool xpd_path_join(char *out, size_t size, const char *folder, const char *name)
{
    int length = snprintf(out, size, "%s/%s", folder, name);

    return length > 0 && (size_t)length < size;
}

bool xpd_path_absolute(char *out, size_t size, const char *path)
{
    char here[PATH_MAX];

    if (path[0] == '/')
        return snprintf(out, size, "%s", path) < (int)size;
    return getcwd(here, sizeof here) && xpd_path_join(out, size, here, path);
}

static const char *reason(char *out, size_t size)
{
    return strerror_r(errno, out, size);
}

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, bytes, size);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        bytes += done;
        size -= (size_t)done;
    }
    return true;
}

xpe_status xpd_file_replace(const char *path, const void *bytes, size_t size, xpe_error *err)
{
    char beside[PATH_MAX], text[96];
    int fd;

    if (snprintf(beside, sizeof beside, "%s.tmp", path) >= (int)sizeof beside)
        return xpe_fail(err, XPE_IO, "", "cannot write '%.200s': the path is too long", path);
    fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return xpe_fail(err, XPE_IO, "", "cannot create '%.200s': %s", beside,
                        reason(text, sizeof text));
    if (!write_all(fd, bytes, size)) {
        xpe_fail(err, XPE_IO, "", "cannot write '%.200s': %s", beside, reason(text, sizeof text));
        close(fd);
        unlink(beside);
        return XPE_IO;
    }
    if (close(fd) != 0 || rename(beside, path) != 0) {
        xpe_fail(err, XPE_IO, "", "cannot finish '%.200s': %s", path, reason(text, sizeof text));
        unlink(beside);
        return XPE_IO;
    }
    return XPE_OK;
}

xpe_status xpd_file_read(char **out, size_t *size, const char *path, size_t max, xpe_error *err)
{
    char text[96], *buffer = NULL;
    size_t room = 0, used = 0;
    bool standard = strcmp(path, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    xpe_status st = XPE_OK;

    *out = NULL;
    if (fd < 0)
        return xpe_fail(err, XPE_IO, "", "cannot open '%.200s': %s", path,
                        reason(text, sizeof text));
    for (;;) {
        ssize_t got;

        if (used + 1 >= room) {
            char *more = realloc(buffer, room = room ? 2 * room : 65536);

            if (!more) {
                st = xpe_fail(err, XPE_NO_MEMORY, "", "'%.200s': no memory for %zu bytes", path,
                              room);
                break;
            }
            buffer = more;
        }
        got = read(fd, buffer + used, room - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            st = xpe_fail(err, XPE_IO, "", "cannot read '%.200s': %s", path,
                          reason(text, sizeof text));
        if (got <= 0)
            break;
        used += (size_t)got;
        if (used > max) {
            st = xpe_fail(err, XPE_INVALID, "",
                          "'%.200s' is longer than %zu bytes, the most a job may have", path, max);
            break;
        }
    }
    if (!standard)
        close(fd);
    if (st == XPE_OK) {
        buffer[used] = 0;
        *out = buffer;
        *size = used;
        buffer = NULL;
    }
    free(buffer);
    return st;
}
