/* Limits and Landlock.  HDF5 1.10.8 parses whatever the file says and has known faults, so the
 * process that runs it can read the data folders and hand over arrays, and nothing else.
 *
 * Called by libc's syscall(): Debian 12's libc has no wrappers for Landlock. */
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* their shadow memory needs terabytes of addresses */
#else
#define SANITIZED 0
#endif

static void limit(__rlimit_resource_t resource, rlim_t value)
{
    struct rlimit now;

    if (getrlimit(resource, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max < value)
        value = now.rlim_max;
    setrlimit(resource, &(struct rlimit){value, value});
}

void xpd_sandbox_limit(int cpu_seconds)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, (rlim_t)cpu_seconds);
    if (!SANITIZED)
        limit(RLIMIT_AS, (rlim_t)8 << 30);
}

static bool allow(int ruleset, const char *folder)
{
    struct landlock_path_beneath_attr rule = {
        .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
        .parent_fd = open(folder, O_PATH | O_CLOEXEC),
    };
    bool good;

    if (rule.parent_fd < 0)
        return true; /* nothing there, nothing to allow */
    good = syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    close(rule.parent_fd);
    return good;
}

bool xpd_sandbox_confine(const xpe_roots *roots, const xpe_roots *more)
{
    /* Every right of the first version: what is not allowed below is then denied. */
    struct landlock_ruleset_attr attr = {.handled_access_fs =
                                             (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    bool good = true;

    if (ruleset < 0 && (errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM))
        return true; /* not in this kernel, switched off at its start, or filtered by a container */
    if (ruleset < 0) {
        fprintf(stderr, "xptycho-reader: no Landlock ruleset: %s\n", strerror(errno));
        return false;
    }
    if (!roots)
        good = allow(ruleset, "/");
    for (size_t i = 0; good && roots && i < roots->count; i++)
        good = allow(ruleset, roots->folders[i]);
    for (size_t i = 0; good && roots && more && i < more->count; i++)
        good = allow(ruleset, more->folders[i]);
    good = good && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
    if (!good)
        fprintf(stderr, "xptycho-reader: Landlock does not hold: %s\n", strerror(errno));
    close(ruleset);
    return good;
}

int64_t xpd_memory_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    long long kib = -1;
    struct sysinfo info;

    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1)
            kib = -1;
    if (f)
        fclose(f);
    if (kib < 0 && sysinfo(&info) == 0)
        kib = (long long)((info.freeram + info.bufferram) * info.mem_unit / 1024);
    return kib < 0 ? INT64_MAX : kib * 1024;
}
