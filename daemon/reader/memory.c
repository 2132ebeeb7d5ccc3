/* Sealed memory files: the receiver may map them without fear of their changing or shrinking. */
#include "memory.h"

#include "io/size.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static xpe_status fail_memory(xpe_error *err, const char *what, int64_t bytes)
{
    const char *why = strerror(errno);
    char size[32];

    return xpe_fail(err, XPE_NO_MEMORY, "", "%s of %s: %s", what,
                    xpe_size_text(size, (double)bytes), why);
}

int xpd_memory_create(const char *name, int64_t bytes, xpe_error *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, bytes) != 0) {
        fail_memory(err, "no memory file can be made", bytes);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

xpe_status xpd_window_map(xpd_window *w, int fd, int64_t offset, int64_t bytes, xpe_error *err)
{
    int64_t page = sysconf(_SC_PAGESIZE), start = offset / page * page;

    w->length = (size_t)(offset - start + bytes);
    w->base = mmap(NULL, w->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)start);
    if (w->base == MAP_FAILED) {
        w->base = NULL;
        return fail_memory(err, "a memory file cannot be mapped: window", bytes);
    }
    w->data = (char *)w->base + (offset - start);
    return XPE_OK;
}

void xpd_window_unmap(xpd_window *w)
{
    if (w->base)
        munmap(w->base, w->length);
    w->base = NULL;
}

xpe_status xpd_memory_seal(int fd, xpe_error *err)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        return xpe_fail(err, XPE_INTERNAL, "", "a memory file cannot be sealed: %s",
                        strerror(errno));
    return XPE_OK;
}

int xpd_memory_copy(const char *name, const void *data, int64_t bytes, xpe_error *err)
{
    int fd = xpd_memory_create(name, bytes, err);
    const char *p = data;

    for (int64_t done = 0; fd >= 0 && done < bytes;) {
        ssize_t n = write(fd, p + done, (size_t)(bytes - done));
        if (n <= 0) {
            fail_memory(err, "a memory file cannot be filled: array", bytes);
            close(fd);
            return -1;
        }
        done += n;
    }
    if (fd >= 0 && xpd_memory_seal(fd, err) != XPE_OK) {
        close(fd);
        return -1;
    }
    return fd;
}
