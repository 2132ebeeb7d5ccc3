/* posix_spawn and never fork: this process has threads and HDF5. */
#include "reader.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int spawn(pid_t *pid, const char *program, int socket)
{
    char name[] = "xptycho-reader", flag[] = "--socket", number[] = "3";
    char *const arguments[] = {name, flag, number, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    int failed;

    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    failed = posix_spawn_file_actions_adddup2(&actions, socket,
                                              3); /* clears close-on-exec, also of 3 itself */
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    if (!failed)
        failed = posix_spawn(pid, program, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

xpe_status xpd_reader_start(xpd_reader *out, xpe_error *err)
{
    char program[PATH_MAX];
    int fds[2], failed;

    *out = (xpd_reader){.socket = -1};
    if (!xpp_program_find(program, sizeof program, "xptycho-reader"))
        return xpe_fail(err, XPE_INTERNAL, "", "xptycho-reader was not found; looked at %.300s",
                        program);
    if (xpp_ipc_pair(fds) != 0)
        return xpe_fail(err, XPE_INTERNAL, "", "cannot make a socket pair: errno %d", errno);
    failed = spawn(&out->pid, program, fds[1]);
    close(fds[1]);
    if (failed) {
        close(fds[0]);
        out->pid = 0;
        return xpe_fail(err, XPE_INTERNAL, "", "cannot start '%.300s': errno %d", program, failed);
    }
    out->socket = fds[0];
    return XPE_OK;
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
    if (result == XPP_IPC_CLOSED) /* it may end before it is asked: the status says more than the socket */
        return died(reader, err);
    if (result != XPP_IPC_OK)
        return xpe_fail(err, XPE_INTERNAL, "",
                        "cannot ask xptycho-reader (pid %d): errno %d", (int)reader->pid, errno);
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
