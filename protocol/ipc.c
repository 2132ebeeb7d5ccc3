/* Messages between broker, worker and reader over SOCK_SEQPACKET: one packet a message, so a short
 * read cannot happen and a broken one cannot shift the next.
 *
 *     packet       = header, JSON text                    (text up to INLINE_MAX bytes)
 *                  | header                               (longer: in a sealed memfd, the last
 * descriptor) descriptors  = SCM_RIGHTS, those of the message, then the memfd
 *
 * Both ends are this program on this machine, so numbers are in native byte order; the magic number
 * and the version tell two builds apart.  A receiver trusts nothing: everything is checked before
 * use, and every descriptor that arrived is closed on every way out. */
#include "text.h"
#include "xptychod/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x43507458u /* "XtPC" */
#define INLINE_MAX (60 * 1024)
#define MESSAGE_LEVELS 4 /* around a document of the greatest depth that is let in */
#define FLAG_MEMFD 1u
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define RIGHTS_MAX (XPP_IPC_FDS_MAX + 1) /* and the memfd */

typedef struct ipc_header {
    uint32_t magic;
    uint16_t version, type;
    uint32_t length;   /* bytes of the JSON text, wherever it is */
    uint16_t fd_count; /* of the message, the memfd not counted */
    uint16_t flags;
} ipc_header;
_Static_assert(sizeof(ipc_header) == 16, "the header has no padding");

/* Room for the ancillary data, aligned as the kernel wants it. */
typedef union ipc_control {
    char bytes[CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
    struct cmsghdr align;
} ipc_control;

static const char *const type_names[] = {
#define X(name, text) [XPP_IPC_##name] = text,
    XPP_IPC_LIST(X)
#undef X
};

const char *xpp_ipc_type_name(xpp_ipc_type type)
{
    return (unsigned)type < XPP_IPC_TYPES ? type_names[type] : "unknown";
}

int xpp_ipc_pair(int fds[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds);
}

static void close_all(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static xpp_ipc_result result_of_errno(void)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return XPP_IPC_AGAIN;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        return XPP_IPC_CLOSED;
    return XPP_IPC_FAILED;
}

/* ----------------------------------------------------------------------------------------- send */

/* A sealed memfd with the text, or -1 and errno. */
static int memfd_make(const char *text, size_t length)
{
    int fd = memfd_create("xptychod message", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    while (fd >= 0 && length > 0) {
        ssize_t wrote = write(fd, text, length);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            goto failed;
        text += wrote;
        length -= (size_t)wrote;
    }
    if (fd >= 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
failed:
    if (fd >= 0) {
        int reason = errno;

        close(fd);
        errno = reason;
    }
    return -1;
}

static void control_fill(struct msghdr *message, ipc_control *control, const int *fds, int count)
{
    struct cmsghdr *rights;

    if (count == 0)
        return;
    memset(control, 0, sizeof *control);
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    rights = CMSG_FIRSTHDR(message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, (size_t)count * sizeof(int));
}

static xpp_ipc_result send_packet(int socket, ipc_header *header, char *text, const int *fds,
                                  int count)
{
    ipc_control control;
    struct iovec parts[2] = {{header, sizeof *header}, {text, header->length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = header->flags & FLAG_MEMFD ? 1 : 2};
    ssize_t sent;

    control_fill(&message, &control, fds, count);
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? result_of_errno() : XPP_IPC_OK;
}

xpp_ipc_result xpp_ipc_send(int socket, xpp_ipc_type type, const json_t *body, const int *fds,
                            int fd_count)
{
    xpp_ipc_result result = XPP_IPC_FAILED;
    int all[RIGHTS_MAX], memfd = -1;
    char *text = NULL;
    size_t length;
    ipc_header header;

    if ((unsigned)type >= XPP_IPC_TYPES || fd_count < 0 || fd_count > XPP_IPC_FDS_MAX ||
        (body && !json_is_object(body))) {
        errno = EINVAL;
        return XPP_IPC_FAILED;
    }
    text = body ? xpp_dump(body, JSON_COMPACT) : strdup("{}");
    if (!text) {
        errno = ENOMEM;
        return XPP_IPC_FAILED;
    }
    length = strlen(text);
    if (length > XPP_IPC_JSON_MAX) {
        errno = EMSGSIZE;
        goto done;
    }
    header = (ipc_header){
        MAGIC, XPP_IPC_VERSION, (uint16_t)type, (uint32_t)length, (uint16_t)fd_count, 0};
    if (fd_count > 0)
        memcpy(all, fds, (size_t)fd_count * sizeof *fds);
    if (length > INLINE_MAX) {
        memfd = memfd_make(text, length);
        if (memfd < 0)
            goto done;
        all[fd_count++] = memfd;
        header.flags = FLAG_MEMFD;
    }
    result = send_packet(socket, &header, text, all, fd_count);
done:
    if (memfd >= 0)
        close(memfd); /* the packet holds it now; close on a memfd cannot spoil errno */
    free(text);
    return result;
}

/* -------------------------------------------------------------------------------------- receive */

/* Takes every descriptor that came; more than there is room for cannot: the kernel cuts at the size
 * of the control buffer. */
static int control_take(struct msghdr *message, int *fds)
{
    int count = 0;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        size_t arrived;

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
            part->cmsg_len < CMSG_LEN(0))
            continue;
        arrived = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < arrived; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (count < RIGHTS_MAX)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

/* The text of a sealed memfd of exactly `length` bytes; NULL where it is anything else. */
static char *memfd_read(int fd, size_t length)
{
    struct stat status;
    char *text;
    size_t have = 0;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != (off_t)length ||
        (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
        return NULL;
    text = malloc(length);
    while (text && have < length) {
        ssize_t got = pread(fd, text + have, length - have, (off_t)have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(text);
            return NULL;
        }
        have += (size_t)got;
    }
    return text;
}

/* NULL where it breaks a rule, or with *starved where memory is exhausted. */
static json_t *body_parse(const char *text, size_t length, bool *starved)
{
    json_t *problem,
        *body = xpp_parse_within(text, length, XPP_DEPTH_MAX + MESSAGE_LEVELS, &problem);

    *starved = !body && (!problem || json_integer_value(json_object_get(problem, "status")) == 503);
    json_decref(problem);
    if (body && !json_is_object(body)) {
        json_decref(body);
        body = NULL;
    }
    return body;
}

/* What a packet holds, once it and its descriptors are here; false when it breaks a rule, or with
 * *starved. */
static bool packet_decode(xpp_ipc_message *out, const char *packet, size_t size, const int *fds,
                          int count, bool *starved)
{
    ipc_header header;
    char *text = NULL;

    if (size < sizeof header)
        return false;
    memcpy(&header, packet, sizeof header);
    if (header.magic != MAGIC || header.version != XPP_IPC_VERSION ||
        header.type >= XPP_IPC_TYPES || header.fd_count > XPP_IPC_FDS_MAX ||
        (header.flags & ~FLAG_MEMFD) != 0 || header.length > XPP_IPC_JSON_MAX)
        return false;
    if (header.flags & FLAG_MEMFD) {
        if (size != sizeof header || count != header.fd_count + 1)
            return false;
        text = memfd_read(fds[header.fd_count], header.length);
        out->body = text ? body_parse(text, header.length, starved) : NULL;
        free(text);
    } else {
        if (size != sizeof header + header.length || count != header.fd_count)
            return false;
        out->body = body_parse(packet + sizeof header, header.length, starved);
    }
    out->type = (xpp_ipc_type)header.type;
    out->fd_count = header.fd_count;
    return out->body != NULL;
}

xpp_ipc_result xpp_ipc_receive(int socket, xpp_ipc_message *out)
{
    const size_t room = sizeof(ipc_header) + INLINE_MAX;
    xpp_ipc_result result = XPP_IPC_BROKEN;
    int fds[RIGHTS_MAX], count = 0;
    bool starved = false;
    ipc_control control;
    char *packet = malloc(room);
    struct iovec part = {packet, room};
    /* Not the whole union: its padding would let the kernel fit one descriptor too many. */
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(RIGHTS_MAX * sizeof(int))};
    ssize_t got;

    memset(out, 0, sizeof *out);
    for (int i = 0; i < XPP_IPC_FDS_MAX; i++)
        out->fds[i] = -1;
    if (!packet) {
        errno = ENOMEM;
        return XPP_IPC_FAILED;
    }
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        result = result_of_errno();
        goto done;
    }
    count = control_take(&message, fds);
    if (got == 0) {
        result = XPP_IPC_CLOSED;
    } else if (!(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
               packet_decode(out, packet, (size_t)got, fds, count, &starved)) {
        memcpy(out->fds, fds, (size_t)out->fd_count * sizeof *fds);
        memset(fds, 0xFF, (size_t)out->fd_count * sizeof *fds); /* -1: handed over */
        result = XPP_IPC_OK;
    } else if (starved) {
        errno = ENOMEM;
        result = XPP_IPC_FAILED;
    }
done:
    close_all(fds, count);
    if (result != XPP_IPC_OK) {
        json_decref(out->body);
        out->body = NULL;
        out->fd_count = 0;
    }
    free(packet);
    return result;
}

void xpp_ipc_message_release(xpp_ipc_message *message)
{
    close_all(message->fds, message->fd_count);
    json_decref(message->body);
    message->body = NULL;
    message->fd_count = 0;
}
