/* See supervise.h.  posix_spawn rather than fork: the broker has a second thread.  Children set
 * PR_SET_PDEATHSIG themselves, so none outlives the broker. */
#include "supervise.h"

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MESSAGES_A_TURN 64 /* then others have their turn */
#define LOST_MS 20000      /* after SIGKILL; to give back much memory takes a while, too */
#define LOST_STOPPING_MS 5000
#define LOST_MAX 4

extern char **environ;

static xpd_child *children;
static pid_t lost[LOST_MAX]; /* 0 = a free place */

void xpd_exit_text(char *out, size_t size, int wait_status)
{
    if (WIFSIGNALED(wait_status))
        snprintf(out, size, "was ended by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(out, size, "left with status %d", WEXITSTATUS(wait_status));
}

/* ---------------------------------------------------------------------------------- messages */

static void close_socket(xpd_child *child)
{
    if (child->source.fd < 0)
        return;
    xpd_loop_remove(&child->b->loop, &child->source);
    close(child->source.fd);
    child->source.fd = -1;
}

static void receive(xpd_child *child, int limit)
{
    for (int i = 0; i < limit && child->source.fd >= 0; i++) {
        xpp_ipc_message message;
        xpp_ipc_result result = xpp_ipc_receive(child->source.fd, &message);
        if (result == XPP_IPC_AGAIN)
            return;
        if (result == XPP_IPC_OK) {
            bool good = child->on_message(child, &message);
            xpp_ipc_message_release(&message);
            if (good)
                continue;
        }
        if (result == XPP_IPC_FAILED)
            xpd_log(XPD_LOG_ERROR, NULL, "%s (%d) cannot be heard: %s; it is ended", child->name,
                    (int)child->pid, strerror(errno));
        else if (result != XPP_IPC_CLOSED)
            xpd_log(XPD_LOG_ERROR, NULL,
                    "%s (%d) sent a message that breaks the rules; it is ended", child->name,
                    (int)child->pid);
        if (result != XPP_IPC_CLOSED)
            xpd_child_signal(child, SIGKILL);
        close_socket(child);
        xpd_child_kill_after(child, 5000);
    }
}

static void socket_ready(void *context)
{
    receive(context, MESSAGES_A_TURN);
}

bool xpd_child_send(xpd_child *child, xpp_ipc_type type, const json_t *body, const int *fds,
                    int fd_count)
{
    if (child->source.fd < 0)
        return false;
    xpp_ipc_result result = xpp_ipc_send(child->source.fd, type, body, fds, fd_count);
    if (result != XPP_IPC_OK)
        xpd_log(XPD_LOG_WARNING, NULL, "%s (%d) does not take message '%s': %s", child->name,
                (int)child->pid, xpp_ipc_type_name(type),
                result == XPP_IPC_CLOSED  ? "it is gone"
                : result == XPP_IPC_AGAIN ? "it does not read"
                                          : strerror(errno));
    return result == XPP_IPC_OK;
}

/* ------------------------------------------------------------------------------------- lost */

static void unlink_child(xpd_child *child)
{
    close_socket(child);
    xpd_timer_cancel(&child->kill_timer);
    xpd_timer_cancel(&child->lost_timer);
    *child->link = child->next;
    if (child->next)
        child->next->link = child->link;
    child->pid = 0;
}

static void leave_behind(void *context)
{
    xpd_child *child = context;
    int place = 0;

    while (place < LOST_MAX && lost[place] != 0)
        place++;
    if (place == LOST_MAX) {
        xpd_timer_set(&child->b->loop, &child->lost_timer, LOST_MS);
        return;
    }
    xpd_log(XPD_LOG_ERROR, NULL,
            "%s (%d) was killed and is still there, as it waits for a file system or a device that "
            "does not answer; it is left behind",
            child->name, (int)child->pid);
    lost[place] = child->pid;
    receive(child, INT_MAX);
    unlink_child(child);
    child->on_exit(child, SIGKILL); /* as wait would say it */
}

/* ---------------------------------------------------------------------------------- starting */

static void set_oom_score(pid_t pid, int score)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (dprintf(fd, "%d\n", score) < 0)
        xpd_log(XPD_LOG_DEBUG, NULL, "oom_score_adj of %d cannot be set: %s", (int)pid,
                strerror(errno));
    close(fd);
}

static int spawn(pid_t *pid, const char *path, char *const *arguments, int socket)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;

    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    int code = posix_spawn_file_actions_init(&actions);
    if (code)
        return code;
    code = posix_spawnattr_init(&attributes);
    if (code) {
        posix_spawn_file_actions_destroy(&actions);
        return code;
    }
    if ((code = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)) == 0 &&
        (socket < 0 || (code = posix_spawn_file_actions_adddup2(&actions, socket, 3)) == 0) &&
        (code = posix_spawnattr_setsigmask(&attributes, &none)) == 0 &&
        (code = posix_spawnattr_setsigdefault(&attributes, &defaults)) == 0 &&
        (code = posix_spawnattr_setflags(&attributes,
                                         POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF)) == 0)
        code = posix_spawn(pid, path, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

static void kill_now(void *context)
{
    xpd_child *child = context;
    xpd_log(XPD_LOG_WARNING, NULL, "%s (%d) does not leave; it is killed", child->name,
            (int)child->pid);
    xpd_child_signal(child, SIGKILL);
}

bool xpd_child_start(xpd_child *child, const char *program, const char *const *arguments,
                     bool socket, int oom_score_adj, xpd_error *err)
{
    char path[PATH_MAX], *argv[24];
    int pair[2] = {-1, -1}, count = 0;
    bool ok = false;

    child->source.fd = -1;
    if (program)
        snprintf(path, sizeof path, "%s", program);
    else if (!xpp_program_find(path, sizeof path, child->name))
        return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "program %s: %s", child->name, path);
    argv[count++] = path;
    for (; arguments && *arguments && count < 20; arguments++) {
        union { /* posix_spawn does not write to its arguments, its type only says so */
            const char *in;
            char *out;
        } text = {.in = *arguments};
        argv[count++] = text.out;
    }
    char flag[] = "--socket", three[] = "3";
    if (socket) {
        argv[count++] = flag;
        argv[count++] = three;
        if (xpp_ipc_pair(pair) != 0 || fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0) {
            xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "no socketpair for %s: %s", child->name,
                     strerror(errno));
            goto done;
        }
    }
    argv[count] = NULL;
    cpu_set_t before;
    /* inherited, so that the child never sees other cores than its own */
    bool bound = child->cores && sched_getaffinity(0, sizeof before, &before) == 0 &&
                 sched_setaffinity(0, sizeof *child->cores, child->cores) == 0;
    int code = spawn(&child->pid, path, argv, pair[1]);
    if (bound && sched_setaffinity(0, sizeof before, &before) != 0)
        xpd_log(XPD_LOG_WARNING, NULL, "the cores of this process cannot be set back: %s",
                strerror(errno));
    if (code) {
        child->pid = 0;
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "'%s' cannot be started: %s", path,
                 strerror(code));
        goto done;
    }
    set_oom_score(child->pid, oom_score_adj);
    child->next = children;
    child->link = &children;
    if (child->next)
        child->next->link = &child->next;
    children = child;
    child->kill_timer = (xpd_timer){.fire = kill_now, .context = child};
    child->lost_timer = (xpd_timer){.fire = leave_behind, .context = child};
    if (socket) {
        child->source = (xpd_source){.fd = pair[0], .ready = socket_ready, .context = child};
        pair[0] = -1;
        if (!xpd_loop_add(&child->b->loop, &child->source)) {
            xpd_log(XPD_LOG_ERROR, NULL, "cannot watch %s: %s", child->name, strerror(errno));
            xpd_child_signal(child, SIGKILL);
        }
    }
    xpd_log(XPD_LOG_DEBUG, NULL, "%s (%d) started", child->name, (int)child->pid);
    ok = true;
done:
    for (int i = 0; i < 2; i++) {
        if (pair[i] >= 0)
            close(pair[i]);
    }
    return ok;
}

void xpd_child_signal(xpd_child *child, int signal_number)
{
    if (child->pid <= 0)
        return;
    kill(child->pid, signal_number);
    if (signal_number == SIGKILL && child->may_be_lost && !xpd_timer_armed(&child->lost_timer))
        xpd_timer_set(&child->b->loop, &child->lost_timer,
                      child->b->stopping ? LOST_STOPPING_MS : LOST_MS);
}

void xpd_child_kill_after(xpd_child *child, int64_t delay_ms)
{
    if (child->pid > 0 && !xpd_timer_armed(&child->kill_timer))
        xpd_timer_set(&child->b->loop, &child->kill_timer, delay_ms);
}

void xpd_children_reap(void)
{
    xpd_child *next;

    for (int i = 0; i < LOST_MAX; i++) {
        if (lost[i] == 0 || waitpid(lost[i], NULL, WNOHANG) != lost[i])
            continue;
        xpd_log(XPD_LOG_INFO, NULL, "process %d, which was left behind, has ended", (int)lost[i]);
        lost[i] = 0;
    }
    for (xpd_child *child = children; child; child = next) {
        int status;
        next = child->next;
        if (waitpid(child->pid, &status, WNOHANG) != child->pid)
            continue;
        receive(child, INT_MAX); /* what it said before it went */
        unlink_child(child);
        child->on_exit(child, status);
        next = children; /* the callback may have changed the list */
    }
}
