/* See watch.h.
 *
 * A worker that does not answer at all is found by its pings (worker.c).  Here it is the engine
 * that stands still while the control thread answers: after a time by the job's own pace the worker
 * is told to leave and, when it does not, killed.  The job goes on from its checkpoint; a second
 * worker that it takes with it makes it poison. */
#include "watch.h"

#include "log.h"
#include "run.h"
#include "worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 1000
#define PATIENCE 10         /* slowest iterations; and how much more for what is no iteration */
#define OOM_RECENT_MS 10000 /* between the kernel's count and the news of the exit */
#define QUIT_MS 10000

/* ----------------------------------------------------------------------------------------- pace */

void xpd_pace_start(xpd_pace *pace, int64_t now_ms)
{
    *pace = (xpd_pace){.seen_ms = now_ms};
}

void xpd_pace_step(xpd_pace *pace, int64_t now_ms, bool last)
{
    int64_t took = now_ms > pace->seen_ms ? now_ms - pace->seen_ms : 1;

    if (pace->steady && took > pace->slowest_ms)
        pace->slowest_ms = took;
    pace->seen_ms = now_ms;
    pace->steady = !last;
}

void xpd_pace_sign(xpd_pace *pace, int64_t now_ms)
{
    pace->seen_ms = now_ms;
}

int64_t xpd_pace_patience(const xpd_pace *pace, int64_t stall_ms)
{
    int64_t most = PATIENCE * pace->slowest_ms;

    if (stall_ms <= 0)
        return 0;
    if (most < stall_ms)
        most = stall_ms;
    return pace->steady && pace->slowest_ms > 0 ? most : PATIENCE * most;
}

/* ------------------------------------------------------------------------------- out of memory */

/* The value behind `name` in lines "NAME N". */
static int64_t value_of(const char *text, const char *name)
{
    size_t length = strlen(name);

    while (text) {
        if (strncmp(text, name, length) == 0 && text[length] == ' ')
            return strtoll(text + length + 1, NULL, 10);
        text = strchr(text, '\n');
        text += text != NULL;
    }
    return 0;
}

static bool read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t got;

    if (fd < 0)
        return false;
    while (used + 1 < size && (got = read(fd, out + used, size - used - 1)) > 0)
        used += (size_t)got;
    close(fd);
    out[used] = 0;
    return true;
}

int64_t xpd_watch_oom_count(const char *path)
{
    char text[32768];

    return read_text(path, text, sizeof text) ? value_of(text, "oom_kill") : 0;
}

/* This process's own place in the tree of control groups, of the second version or the first. */
static void find_cgroup_file(char *out, size_t size)
{
    char text[4096], *rest = text, *line;

    out[0] = 0;
    if (!read_text("/proc/self/cgroup", text, sizeof text))
        return;
    while ((line = strsep(&rest, "\n"))) {
        char *name = strchr(line, ':'), *place = name ? strchr(name + 1, ':') : NULL;
        if (!place)
            continue;
        *place++ = 0;
        if (strcmp(name + 1, "memory") == 0) {
            snprintf(out, size, "/sys/fs/cgroup/memory%s/memory.oom_control", place);
            return;
        }
        if (name[1] == 0)
            snprintf(out, size, "/sys/fs/cgroup%s/memory.events", place);
    }
}

/* The group counts what its limit did, the system what all of it did; either may be missing. */
static void count_kills(xpd_watch *watch)
{
    int64_t kills = xpd_watch_oom_count("/proc/vmstat");

    if (watch->cgroup_file[0])
        kills += xpd_watch_oom_count(watch->cgroup_file);
    if (kills > watch->oom_kills)
        watch->oom_ms = xpd_now_ms();
    watch->oom_kills = kills;
}

void xpd_watch_exit_text(char *out, size_t size, xpd_worker *w, int wait_status)
{
    xpd_watch *watch = &w->child.b->watch;
    char how[128];

    xpd_exit_text(how, sizeof how, wait_status);
    if (w->ended_for[0]) {
        snprintf(out, size, "%s and was replaced", w->ended_for);
        w->ended_for[0] = 0;
        return;
    }
    if (!WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGKILL) {
        snprintf(out, size, "%s", how);
        return;
    }
    count_kills(watch);
    bool recent = watch->oom_ms > 0 && xpd_now_ms() - watch->oom_ms < OOM_RECENT_MS;
    snprintf(out, size, "%s, %s", how,
             recent ? "as the system was out of memory" : "by somebody else");
}

/* -------------------------------------------------------------------------------------- memory */

static int64_t resident_bytes(pid_t pid)
{
    char path[64], text[128];
    long long all, resident;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    if (!read_text(path, text, sizeof text) || sscanf(text, "%lld %lld", &all, &resident) != 2)
        return 0;
    return (int64_t)resident * sysconf(_SC_PAGESIZE);
}

/* Between jobs a worker holds plans and pools; what grows there is a leak. */
static void look_at_memory(xpd_worker *w)
{
    int64_t limit = w->child.b->config.worker_memory_mib << 20, held;

    if (limit == 0 || !w->ready || w->run)
        return;
    held = resident_bytes(w->child.pid);
    if (held <= limit)
        return;
    snprintf(w->ended_for, sizeof w->ended_for, "held %lld MiB between jobs",
             (long long)(held >> 20));
    xpd_log(XPD_LOG_WARNING, NULL,
            "worker %d (%d) holds %lld MiB between jobs, more than the %lld of worker.memory_mib; "
            "it is replaced",
            w->index, (int)w->child.pid, (long long)(held >> 20), (long long)(limit >> 20));
    w->ready = false; /* no job for it */
    xpd_worker_quit(w, QUIT_MS);
}

/* ---------------------------------------------------------------------------------------- look */

static void look(void *context)
{
    xpd_broker *b = context;

    count_kills(&b->watch);
    for (int i = 0; i < b->worker_count && !b->stopping; i++) {
        xpd_run_look(b->workers[i], xpd_now_ms());
        look_at_memory(b->workers[i]);
    }
    xpd_timer_set(&b->loop, &b->watch.timer, LOOK_MS);
}

void xpd_watch_start(xpd_broker *b)
{
    find_cgroup_file(b->watch.cgroup_file, sizeof b->watch.cgroup_file);
    count_kills(&b->watch);
    b->watch.oom_ms = 0; /* what happened before is not of our workers */
    b->watch.timer = (xpd_timer){.fire = look, .context = b};
    xpd_timer_set(&b->loop, &b->watch.timer, LOOK_MS);
}

void xpd_watch_stop(xpd_broker *b)
{
    xpd_timer_cancel(&b->watch.timer);
}
