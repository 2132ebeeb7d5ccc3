/* See memory.h.  Of a control group's use the file pages that were not touched lately do not count:
 * the kernel drops them before it refuses anything.  The groups above have limits of their own, so
 * the path is walked up to the root. */
#include "memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number behind `name` and one or more of `between` at the start of a line, or `otherwise`. */
static int64_t field(const char *path, const char *name, const char *between, int64_t otherwise)
{
    char line[256];
    size_t length = strlen(name);
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof line, f)) {
        char *end, *at = line + length;
        long long value;

        if (strncmp(line, name, length) != 0 || (length && strspn(at, between) == 0))
            continue;
        at += strspn(at, between);
        value = strtoll(at, &end, 10);
        if (end != at) /* else "max" */
            otherwise = value;
        break;
    }
    if (f)
        (void)fclose(f);
    return otherwise;
}

/* What one version of control groups calls its files. */
typedef struct group_names {
    const char *limit, *use, *idle;
} group_names;

static const group_names unified = {"memory.max", "memory.current", "inactive_file"};
static const group_names old = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};

static int64_t group_field(const char *folder, const char *file, const char *name,
                           int64_t otherwise)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return otherwise;
    return field(path, name, " ", otherwise);
}

static void look_at(const char *folder, const group_names *names, int64_t *limit, int64_t *room)
{
    int64_t most = group_field(folder, names->limit, "", INT64_MAX);
    int64_t used = group_field(folder, names->use, "", 0);
    int64_t left;

    if (most < 0 || most >= INT64_MAX / 2) /* the old kind says "no limit" by a huge number */
        return;
    used -= group_field(folder, "memory.stat", names->idle, 0);
    left = used <= 0 ? most : most > used ? most - used : 0;
    if (most < *limit)
        *limit = most;
    if (left < *room)
        *room = left;
}

/* The group's folder and those above it, up to the root of the hierarchy. */
static void walk_up(const char *root, const char *group, const group_names *names, int64_t *limit,
                    int64_t *room)
{
    char folder[PATH_MAX];
    size_t least = strlen(root);

    if (strstr(group, "..") ||
        snprintf(folder, sizeof folder, "%s%s", root, group) >= (int)sizeof folder)
        return;
    for (;;) {
        char *slash;

        look_at(folder, names, limit, room);
        slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < least)
            return;
        *slash = 0;
    }
}

void xpe_cpu_memory_group(const char *list, const char *root, int64_t *limit, int64_t *room)
{
    char line[PATH_MAX], top[PATH_MAX];
    FILE *f = fopen(list, "re");

    *limit = *room = INT64_MAX;
    while (f && fgets(line, sizeof line, f)) {
        char *kind = strchr(line, ':'), *group = kind ? strchr(kind + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = 0;
        group[strcspn(group, "\n")] = 0;
        if (strcmp(kind + 1, "") == 0) {
            walk_up(root, group, &unified, limit, room);
        } else if (strcmp(kind + 1, "memory") == 0 &&
                   snprintf(top, sizeof top, "%s/memory", root) < (int)sizeof top) {
            walk_up(top, group, &old, limit, room);
        }
    }
    if (f)
        (void)fclose(f);
}

void xpe_cpu_memory(int64_t *bytes_total, int64_t *bytes_free)
{
    int64_t limit, room;

    *bytes_total = field("/proc/meminfo", "MemTotal:", " ", 0) * 1024;
    *bytes_free = field("/proc/meminfo", "MemAvailable:", " ", 0) * 1024;
    xpe_cpu_memory_group("/proc/self/cgroup", "/sys/fs/cgroup", &limit, &room);
    if (limit < *bytes_total)
        *bytes_total = limit;
    if (room < *bytes_free)
        *bytes_free = room;
}
