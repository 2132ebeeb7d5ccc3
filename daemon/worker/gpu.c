/* See gpu.h.  Two programs, since the one is linked with FFTW and the other with cuFFT.  The job's
 * text goes along in a memfd where it came from standard input. */
#include "gpu.h"

#include "xptychod/engine.h"
#include "xptychod/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "xptycho-worker-cuda"

extern char **environ;

/* This program serves the CPU and no GPU. */
static bool is_cpu_worker(void)
{
    xpe_device_info infos[XPP_DEVICES_MAX];
    size_t count = xpe_devices_list(infos, XPP_DEVICES_MAX);
    bool cpu = false, gpu = false;

    for (size_t i = 0; i < count && i < XPP_DEVICES_MAX; i++) {
        cpu = cpu || (strcmp(infos[i].name, "cpu") == 0 && !infos[i].absent[0]);
        gpu = gpu || (strncmp(infos[i].name, "cuda", 4) == 0 && !infos[i].absent[0]);
    }
    return cpu && !gpu;
}

/* `xptycho-worker-cuda devices` leaves with 0 when there is one that can be used. */
static bool finds_a_gpu(const char *path)
{
    char name[] = PROGRAM, mode[] = "devices";
    char *const arguments[] = {name, mode, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1, failed;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int fd = 1; fd < 3 && !failed; fd++)
        failed = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    if (!failed)
        failed = posix_spawn(&pid, path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return false;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A path under which the next program finds the text again; false = there is none. */
static bool keep_text(char *path, size_t size, const json_t *job)
{
    int fd = memfd_create("job", 0); /* stays open across exec */

    snprintf(path, size, "/proc/self/fd/%d", fd);
    return fd >= 0 && json_dumpfd(job, fd, JSON_REAL_PRECISION(17)) == 0;
}

void xpd_gpu_hand_over(json_t *job, int argc, char **argv, int job_at)
{
    const json_t *names = json_object_get(json_object_get(job, "devices"), "devices");
    const char *first = json_string_value(json_array_get(names, 0));
    char path[PATH_MAX], text[64], name[] = PROGRAM, mode[] = "run";
    char **arguments;

    if ((first && strncmp(first, "cuda", 4) != 0) || !is_cpu_worker() ||
        !xpp_program_find(path, sizeof path, PROGRAM) || (!first && !finds_a_gpu(path)))
        return;
    arguments = calloc((size_t)argc + 2, sizeof *arguments);
    if (!arguments)
        return;
    arguments[0] = name;
    arguments[1] = mode; /* argv[0] is what messages begin with */
    memcpy(arguments + 2, argv + 1, (size_t)(argc - 1) * sizeof *arguments);
    if (strcmp(argv[job_at], "-") == 0) {
        if (!keep_text(text, sizeof text, job)) {
            free(arguments);
            return;
        }
        arguments[1 + job_at] = text;
    }
    (void)execv(path, arguments);
    fprintf(stderr, "xptycho run: cannot run '%s': %s; the CPU is used\n", path, strerror(errno));
    free(arguments);
}
