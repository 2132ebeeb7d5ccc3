/* What became of the tasks of a batch: the file `exit` of each, and Slurm's word where there is
 * none.  Slurm is asked rarely and about all at once; a job that it does not know is gone. */
#include "cmd_slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A shared file system may show the last file of a job later than Slurm its end. */
#define GRACE_MS 5000
#define TAIL_MAX 65536

extern char **environ;

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------------------------ files */

bool slurm_task_init(slurm_task *task, const char *folder, int index)
{
    int n;

    memset(task, 0, sizeof(*task));
    task->exit = -1;
    task->phase = SLURM_WAITS; /* until Slurm says otherwise */
    n = index < 0 ? snprintf(task->folder, sizeof(task->folder), "%s", folder)
                  : snprintf(task->folder, sizeof(task->folder), "%s/%d", folder, index);
    return n >= 0 && n < (int)sizeof(task->folder);
}

static int exit_of(const char *folder)
{
    char path[PATH_MAX + 8];
    FILE *file;
    int code = -1;

    (void)snprintf(path, sizeof(path), "%s/exit", folder);
    file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &code) != 1 || code < 0 || code > CLI_UNREACHABLE)
        code = CLI_UNEXPECTED;
    (void)fclose(file);
    return code;
}

json_t *slurm_last_end(const char *folder)
{
    char path[PATH_MAX + 16], *text = malloc(TAIL_MAX + 1), *line;
    json_t *end = NULL;
    struct stat st;
    ssize_t length = 0;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/events.ndjson", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (text && fd >= 0 && fstat(fd, &st) == 0)
        length = pread(fd, text, TAIL_MAX, st.st_size > TAIL_MAX ? st.st_size - TAIL_MAX : 0);
    if (text && length > 0) {
        text[length] = '\0';
        while (length > 0 && text[length - 1] == '\n')
            text[--length] = '\0';
        line = strrchr(text, '\n');
        end = json_loads(line ? line + 1 : text, 0, NULL);
    }
    if (fd >= 0)
        close(fd);
    free(text);
    if (end && strcmp(cli_member(end, "type"), "end") != 0) {
        json_decref(end);
        end = NULL;
    }
    return end;
}

/* ------------------------------------------------------------------------------------ Slurm */

/* Both streams of a command as text (malloc'd, NULL where it could not be run). */
static char *ask(const char *const *argv, bool *good)
{
    posix_spawn_file_actions_t actions;
    int out = memfd_create("slurm", MFD_CLOEXEC), status = 0;
    char *text = NULL;
    struct stat st;
    pid_t pid;

    *good = false;
    if (out < 0)
        return NULL;
    if (posix_spawn_file_actions_init(&actions) != 0)
        goto closed;
    /* posix_spawn takes pointers to characters that it does not write to. */
    if (posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO) == 0 &&
        posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO) == 0 &&
        posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ) == 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        *good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (fstat(out, &st) == 0 && st.st_size < (64 << 20) &&
            (text = malloc((size_t)st.st_size + 1))) {
            ssize_t length = pread(out, text, (size_t)st.st_size, 0);
            text[length > 0 ? length : 0] = '\0';
        }
    }
    (void)posix_spawn_file_actions_destroy(&actions);
closed:
    close(out);
    return text;
}

static slurm_phase phase_of(const char *state)
{
    static const char *const over[] = {"COMPLETED", "FAILED",    "CANCELLED", "TIMEOUT",
                                       "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
                                       "OUT_OF_ME", "REVOKED"};
    static const char *const waits[] = {"PENDING", "CONFIGURING", "REQUEUE", "SPECIAL_EXIT"};
    size_t i;

    for (i = 0; i < sizeof(over) / sizeof(over[0]); i++)
        if (strncmp(state, over[i], strlen(over[i])) == 0)
            return SLURM_OVER;
    for (i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
        if (strncmp(state, waits[i], strlen(waits[i])) == 0)
            return SLURM_WAITS;
    return SLURM_RUNS; /* running, completing, suspended, or a word of a later version */
}

/* "17|RUNNING" or "17_4|RUNNING"; the first word about a task counts. */
static void read_lines(slurm_poll *p, char *text)
{
    size_t length = strlen(p->id);
    char *rest = NULL, *line;

    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *bar = strchr(line, '|'), *end = line + length;
        long index = 0;

        if (!bar || strncmp(line, p->id, length) != 0)
            continue;
        if (p->array && *end == '_')
            index = strtol(end + 1, &end, 10);
        else if (p->array)
            continue;
        if (end != bar || index < 0 || index >= p->count || p->tasks[index].phase != SLURM_UNKNOWN)
            continue;
        (void)snprintf(p->tasks[index].state, sizeof(p->tasks[index].state), "%.*s",
                       (int)strcspn(bar + 1, " |"), bar + 1);
        p->tasks[index].phase = phase_of(p->tasks[index].state);
    }
}

static void ask_slurm(slurm_poll *p)
{
    const char *const squeue[] = {"squeue",         "--noheader", "--array", "--states=all",
                                  "--format=%i|%T", "--jobs",     p->id,     NULL};
    const char *const sacct[] = {
        "sacct",  "--noheader", "--parsable2", "--allocations", "--format=JobID,State",
        "--jobs", p->id,        NULL};
    bool good, unknown, missing = false;
    char *text = ask(squeue, &good);
    int i;

    /* An id that is no longer known is an error of squeue where it is the only one asked for. */
    unknown = text && !good && strstr(text, "Invalid job id");
    if (!good && !unknown) {
        cli_warn("squeue does not answer: %.200s; asking again in %d s",
                 text && text[0] ? text : "it cannot be run", SLURM_POLL_S);
        free(text);
        return; /* nothing was learnt */
    }
    for (i = 0; i < p->count; i++)
        p->tasks[i].phase = SLURM_UNKNOWN;
    if (good)
        read_lines(p, text);
    free(text);
    for (i = 0; i < p->count; i++)
        missing = missing || (p->tasks[i].exit < 0 && p->tasks[i].phase == SLURM_UNKNOWN);
    if (missing && (text = ask(sacct, &good)) != NULL) {
        if (good) /* where there is no accounting, nothing more is known */
            read_lines(p, text);
        free(text);
    }
}

/* ------------------------------------------------------------------------------------ a look */

static void conclude(slurm_task *t, int64_t now)
{
    if (t->phase != SLURM_UNKNOWN && t->phase != SLURM_OVER) {
        t->gone_ms = 0;
        return;
    }
    if (t->gone_ms == 0)
        t->gone_ms = now;
    if (now - t->gone_ms < GRACE_MS)
        return;
    t->exit = strncmp(t->state, "CANCELLED", 9) == 0 && t->phase == SLURM_OVER ? CLI_CANCELLED
                                                                               : CLI_FAILED;
    if (t->phase == SLURM_UNKNOWN)
        cli_warn("Slurm does not know the job any more, and no run left its exit code in '%s'",
                 t->folder);
    else
        cli_warn("Slurm ended the job in '%s': %s", t->folder, t->state);
}

bool slurm_look(slurm_poll *p)
{
    int64_t now = now_ms();
    bool over = true;
    int i;

    for (i = 0; i < p->count; i++) {
        if (p->tasks[i].exit < 0)
            p->tasks[i].exit = exit_of(p->tasks[i].folder);
        over = over && p->tasks[i].exit >= 0;
    }
    if (over)
        return true;
    if (now >= p->next_ms) {
        ask_slurm(p);
        p->next_ms = now_ms() + SLURM_POLL_S * 1000;
    }
    over = true;
    for (i = 0; i < p->count; i++) {
        if (p->tasks[i].exit < 0)
            conclude(&p->tasks[i], now);
        over = over && p->tasks[i].exit >= 0;
    }
    return over;
}
