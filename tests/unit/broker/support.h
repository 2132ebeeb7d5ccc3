/* What the broker's tests share: a private folder and a small job. */
#ifndef TEST_BROKER_SUPPORT_H
#define TEST_BROKER_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "job.h"

static inline int folder_make(void **state)
{
    char *path = strdup("/tmp/xptychod-test-XXXXXX");
    if (!path || !mkdtemp(path))
        return -1;
    *state = path;
    return 0;
}

static inline int folder_remove(void **state)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    int code = system(command);
    free(*state);
    return code;
}

static inline void path_in(char *out, size_t size, const void *folder, const char *name)
{
    snprintf(out, size, "%s/%s", (const char *)folder, name);
}

static inline void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static inline xpd_job *small_job(int64_t number, int priority)
{
    json_t *doc =
        json_pack("{s:s, s:i, s:{s:s}, s:{s:i}, s:{s:s}}", "name", "small", "priority", priority,
                  "scan", "path", "/s.h5", "recon", "iterations", 7, "metadata", "scan", "A");
    xpd_job *job = xpd_job_create(doc, doc);
    json_decref(doc);
    assert_non_null(job);
    job->number = number;
    snprintf(job->user, sizeof job->user, "ada");
    job->uid = 1000;
    job->created_ms = 1769850901900;
    xpp_job_id_make(job->id);
    return job;
}

#endif
