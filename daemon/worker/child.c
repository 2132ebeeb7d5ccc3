/* See child.h. */
#include "child.h"

#include "xptychod/protocol.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <unistd.h>

extern char **environ;

static int spawn_program(pid_t *pid, const char *program, const char *name, int socket)
{
    char flag[] = "--socket", number[] = "3", title[64];
    char *const arguments[] = {title, flag, number, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    int failed;

    snprintf(title, sizeof title, "%s", name);
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    /* clears close-on-exec, also of 3 itself */
    failed = posix_spawn_file_actions_adddup2(&actions, socket, 3);
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

xpe_status xpd_spawn(pid_t *pid, int *socket, const char *name, xpe_error *err)
{
    char program[PATH_MAX];
    int fds[2], failed;

    *pid = 0;
    *socket = -1;
    if (!xpp_program_find(program, sizeof program, name))
        return xpe_fail(err, XPE_INTERNAL, "", "%s was not found; looked at %.300s", name, program);
    if (xpp_ipc_pair(fds) != 0)
        return xpe_fail(err, XPE_INTERNAL, "", "cannot make a socket pair: errno %d", errno);
    failed = spawn_program(pid, program, name, fds[1]);
    close(fds[1]);
    if (failed) {
        close(fds[0]);
        *pid = 0;
        return xpe_fail(err, XPE_INTERNAL, "", "cannot start '%.300s': errno %d", program, failed);
    }
    *socket = fds[0];
    return XPE_OK;
}
