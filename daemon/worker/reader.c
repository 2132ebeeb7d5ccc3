/* See reader.h. */
#include "reader.h"

#include "child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

xpe_status xpd_reader_start(xpd_reader *out, xpe_error *err)
{
    *out = (xpd_reader){.socket = -1};
    return xpd_spawn(&out->pid, &out->socket, "xptycho-reader", err);
}

static xpe_status died(xpd_reader *reader, xpe_error *err)
{
    int status = 0;

    if (waitpid(reader->pid, &status, 0) == reader->pid) {
        reader->pid = 0;
        if (WIFSIGNALED(status))
            return xpe_fail(err, XPE_INTERNAL, "/scan/path",
                            "xptycho-reader died of signal %d while it read the "
                            "file",
                            WTERMSIG(status));
    }
    return xpe_fail(err, XPE_INTERNAL, "/scan/path",
                    "xptycho-reader ended without an answer (exit %d)",
                    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

xpe_status xpd_reader_send(xpd_reader *reader, json_t *body, xpe_error *err)
{
    xpp_ipc_result result =
        body ? xpp_ipc_send(reader->socket, XPP_IPC_READ, body, NULL, 0) : XPP_IPC_FAILED;

    json_decref(body);
    if (result ==
        XPP_IPC_CLOSED) /* it may end before it is asked: the status says more than the socket */
        return died(reader, err);
    if (result != XPP_IPC_OK)
        return xpe_fail(err, XPE_INTERNAL, "", "cannot ask xptycho-reader (pid %d): errno %d",
                        (int)reader->pid, errno);
    return XPE_OK;
}

xpe_status xpd_reader_receive(xpp_ipc_message *out, xpd_reader *reader, int interrupt,
                              xpe_error *err)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = reader->socket, .events = POLLIN},
                                {.fd = interrupt, .events = POLLIN}};
        xpp_ipc_result result;

        if (poll(fds, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            return xpe_fail(err, XPE_INTERNAL, "", "cannot wait for xptycho-reader: errno %d",
                            errno);
        }
        if (fds[1].revents)
            return xpe_fail(err, XPE_CANCELLED, "", "cancelled while the file was read");
        result = xpp_ipc_receive(reader->socket, out);
        if (result == XPP_IPC_AGAIN)
            continue;
        if (result == XPP_IPC_CLOSED)
            return died(reader, err);
        if (result != XPP_IPC_OK)
            return xpe_fail(err, XPE_INTERNAL, "", "a message of xptycho-reader breaks the rules");
        if (out->type == XPP_IPC_SCAN || out->type == XPP_IPC_REFUSED)
            return XPE_OK;
        xpp_ipc_message_release(out); /* hello */
    }
}

void xpd_reader_stop(xpd_reader *reader)
{
    if (reader->socket >= 0)
        close(reader->socket);
    reader->socket = -1;
    if (reader->pid > 0) {
        kill(reader->pid, SIGKILL);
        while (waitpid(reader->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    reader->pid = 0;
}
