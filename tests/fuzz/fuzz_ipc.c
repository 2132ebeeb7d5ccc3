/* A packet from a process that may not be what it says.  The first byte of the input is how many
 * descriptors come along, the second whether the last is a sealed memfd with the rest of the input
 * after 16 bytes of header; then the packet.  Every descriptor is closed again. */
#include "fuzz.h"

#include "xptychod/protocol.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER 16
#define FDS_MAX 20

/* A leak moves it. */
static int lowest_free(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    xpp_init();
    return 0;
}

static int sealed(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    FUZZ_CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) ==
               0);
    return fd;
}

static void send_packet(int socket, uint8_t *packet, size_t size, const int *fds, size_t count)
{
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {packet, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count > 0) {
        struct cmsghdr *rights;

        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    }
    FUZZ_CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t packet[8192];
    int ends[2], fds[FDS_MAX], memfd = -1, next_fd = lowest_free();
    xpp_ipc_message message;
    xpp_ipc_result result;
    size_t count, length;

    if (size < 2 || size > sizeof packet)
        return 0;
    count = data[0] % (FDS_MAX + 1);
    length = size - 2;
    memcpy(packet, data + 2, length);
    FUZZ_CHECK(xpp_ipc_pair(ends) == 0);
    for (size_t i = 0; i < count; i++)
        fds[i] = ends[0];
    if ((data[1] & 1) && count > 0 && length >= HEADER) {
        memfd = sealed(packet + HEADER, length - HEADER);
        fds[count - 1] = memfd;
        length = HEADER;
    }
    send_packet(ends[0], packet, length, fds, count);
    result = xpp_ipc_receive(ends[1], &message);
    FUZZ_CHECK(result == XPP_IPC_OK || result == XPP_IPC_BROKEN ||
               (result == XPP_IPC_CLOSED && length == 0));
    if (result == XPP_IPC_OK) {
        FUZZ_CHECK(json_is_object(message.body) && (unsigned)message.type < XPP_IPC_TYPES);
        FUZZ_CHECK((size_t)message.fd_count + (memfd >= 0) == count);
    } else {
        FUZZ_CHECK(message.body == NULL && message.fd_count == 0);
    }
    xpp_ipc_message_release(&message);
    if (memfd >= 0)
        close(memfd);
    close(ends[0]);
    close(ends[1]);
    FUZZ_CHECK(lowest_free() == next_fd);
    return 0;
}
