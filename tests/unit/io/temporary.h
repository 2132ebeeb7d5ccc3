/* A folder of the test's own, removed with what is in it. */
#ifndef TESTS_IO_TEMPORARY_H
#define TESTS_IO_TEMPORARY_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline char *temporary_make(char *folder, size_t size)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, size, "%s/xptychod-io-XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder);
}

static inline size_t temporary_count(const char *folder)
{
    DIR *d = opendir(folder);
    size_t count = 0;

    while (d && readdir(d))
        count++;
    if (d)
        closedir(d);
    return count - 2; /* . and .. */
}

static inline void temporary_remove(const char *folder)
{
    char path[4096];
    struct dirent *e;
    DIR *d = opendir(folder);

    while (d && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (unlink(path) != 0)
            rmdir(path);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

#endif
