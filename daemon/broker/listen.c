/* See listen.h. */
#include "listen.h"

#include "log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef XPTYCHOD_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

int xpd_listen_unix(const char *path, mode_t mode, xpd_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        xpd_fail(
            err, XPP_FAULT_INTERNAL, "",
            "socket path '%s' has %zu bytes, the system takes %zu; choose a shorter --runtime-dir",
            path, strlen(path), sizeof address.sun_path - 1);
        return -1;
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    unlink(path); /* the lock says that no other broker is there */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    int reason = errno;
    umask(before);
    if (!bound || chmod(path, mode) != 0 || listen(fd, 512) != 0) {
        xpd_fail(err, XPP_FAULT_INTERNAL, "", "cannot listen on '%s': %s", path,
                 strerror(bound ? errno : reason));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

int xpd_listen_tcp(const char *address, uint16_t port, xpd_error *err)
{
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&storage;
    socklen_t length = sizeof storage;
    int one = 1;

    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        length = sizeof *v4;
    } else if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        length = sizeof *v6;
    } else {
        xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "http.address '%s' is not an IPv4 or IPv6 address",
                 address);
        return -1;
    }
    int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, (struct sockaddr *)&storage, length) != 0 || listen(fd, 512) != 0) {
        xpd_fail(err, XPP_FAULT_INTERNAL, "", "cannot listen on %s port %d: %s", address, port,
                 strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

void xpd_listen_address(char *out, size_t size, int fd)
{
    struct sockaddr_storage storage = {0};
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&storage;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&storage;
    const struct sockaddr_un *local = (const struct sockaddr_un *)&storage;
    socklen_t length = sizeof storage;
    char text[INET6_ADDRSTRLEN];

    *out = '\0';
    if (getsockname(fd, (struct sockaddr *)&storage, &length) != 0)
        return;
    if (storage.ss_family == AF_UNIX)
        snprintf(out, size, "%.*s", (int)(sizeof local->sun_path), local->sun_path);
    else if (storage.ss_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text))
        snprintf(out, size, "http://%s:%d", text, ntohs(v4->sin_port));
    else if (storage.ss_family == AF_INET6 &&
             inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text))
        snprintf(out, size, "http://[%s]:%d", text, ntohs(v6->sin6_port));
}

#ifdef XPTYCHOD_HAVE_SYSTEMD
/* A listening stream socket of that kind; anything else would be taken for one by mistake only. */
static bool usable(int fd, bool local)
{
    bool good = local ? sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0
                      : sd_is_socket(fd, AF_INET, SOCK_STREAM, 1) > 0 ||
                            sd_is_socket(fd, AF_INET6, SOCK_STREAM, 1) > 0;
    int flags = fcntl(fd, F_GETFL);
    return good && flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

xpd_passed xpd_listen_passed(void)
{
    xpd_passed passed = {-1, -1, -1};
    char **names = NULL;
    int count = sd_listen_fds_with_names(1, &names);

    for (int i = 0; i < count; i++) {
        int fd = SD_LISTEN_FDS_START + i;
        int *slot = strcmp(names[i], "api") == 0       ? &passed.api
                    : strcmp(names[i], "api-tcp") == 0 ? &passed.api_tcp
                    : strcmp(names[i], "admin") == 0   ? &passed.admin
                                                       : NULL;
        if (slot && *slot < 0 && usable(fd, slot != &passed.api_tcp)) {
            *slot = fd;
        } else {
            xpd_log(XPD_LOG_WARNING, NULL,
                    "socket '%.60s' of the service manager is not used: names are api and admin "
                    "(unix), api-tcp",
                    names[i]);
            close(fd);
        }
        free(names[i]);
    }
    free(names);
    return passed;
}
#else
xpd_passed xpd_listen_passed(void)
{
    return (xpd_passed){-1, -1, -1};
}
#endif
