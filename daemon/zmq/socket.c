/* The options that a socket open to others needs: without MANDATORY an answer to a peer that is
 * gone vanishes in silence, without MAXMSGSIZE a message may be of any size, with LINGER the
 * process would wait at its end for peers that do not read. */
#include "socket.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <zmq.h>

#include "zap.h"

#include "xptychod/protocol.h"

#define WATERMARK 1000
#define HANDSHAKE_MS 5000
#define HEARTBEAT_MS 10000
#define HEARTBEAT_TIMEOUT_MS 30000
#define BUFFER (256 << 10) /* of the kernel for one peer; left alone it grows to megabytes */

static bool set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/* With an empty ZAP domain everybody would be let in unasked. */
static bool secure(void *socket, const char *address, const char *secret)
{
    bool ipc = strncmp(address, "ipc://", 6) == 0;
    const char *domain = ipc ? XPD_ZAP_IPC : XPD_ZAP_TCP;

    return zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, domain, strlen(domain)) == 0 &&
           (ipc || !secret ||
            (set_int(socket, ZMQ_CURVE_SERVER, 1) &&
             zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret, strlen(secret) + 1) == 0));
}

/* What libzmq does with a subscription is said by this program, each time. */
static bool set_publisher(void *socket)
{
    return set_int(socket, ZMQ_XPUB_MANUAL, 1) &&
           zmq_setsockopt(socket, ZMQ_XPUB_WELCOME_MSG, "welcome", 7) == 0;
}

void *xpd_socket_open(void *context, int type, const char *address, const char *secret,
                      char *endpoint, size_t endpoint_size)
{
    void *socket = zmq_socket(context, type);
    const int64_t largest = XPP_BODY_MAX;

    if (!socket)
        return NULL;
    if ((type != ZMQ_ROUTER || set_int(socket, ZMQ_ROUTER_MANDATORY, 1)) &&
        zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0 &&
        set_int(socket, ZMQ_SNDHWM, WATERMARK) && set_int(socket, ZMQ_RCVHWM, WATERMARK) &&
        set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) && set_int(socket, ZMQ_LINGER, 0) &&
        set_int(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) &&
        set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS) &&
        set_int(socket, ZMQ_TCP_KEEPALIVE, 1) && set_int(socket, ZMQ_SNDBUF, BUFFER) &&
        (type != ZMQ_XPUB || set_publisher(socket)) && secure(socket, address, secret) &&
        zmq_bind(socket, address) == 0 &&
        zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &endpoint_size) == 0)
        return socket;
    {
        int failed = zmq_errno();

        zmq_close(socket);
        errno = failed;
    }
    return NULL;
}

bool xpd_socket_wait(void *socket, CURLM *multi, int stop_fd, int timeout_ms, bool *stopped)
{
    struct curl_waitfd extra[2] = {{.events = CURL_WAIT_POLLIN}, {.events = CURL_WAIT_POLLIN}};
    int fd = -1;
    size_t size = sizeof fd;

    if (zmq_getsockopt(socket, ZMQ_FD, &fd, &size) != 0)
        return false;
    extra[0].fd = fd;
    extra[1].fd = stop_fd;
    if (curl_multi_poll(multi, extra, 2, timeout_ms, NULL) != CURLM_OK)
        return false;
    *stopped = extra[1].revents != 0;
    return true;
}
