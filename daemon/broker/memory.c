/* See memory.h.  What a job was promised and its process does not hold yet is not free for others:
 * pages are taken one by one as an array is written, long after the job started. */
#include "memory.h"

#include "life.h"
#include "run.h"
#include "worker.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB ((int64_t)1 << 20)

static bool is_cpu(const xpe_device_info *d)
{
    return strncmp(d->name, "cpu", 3) == 0;
}

void xpd_memory_heard(xpd_broker *b, const xpd_devices *devices)
{
    for (int i = 0; i < devices->count; i++) {
        if (!is_cpu(&devices->items[i]))
            continue;
        b->host_total = devices->items[i].bytes_total;
        b->host_free = devices->items[i].bytes_free;
    }
}

int64_t xpd_memory_host(const xpd_broker *b)
{
    int64_t limit = b->config.memory_mib * MIB;

    if (b->host_total <= 0)
        return limit > 0 ? limit : XPD_ROOM_ENDLESS;
    /* some of it is the system's */
    return limit > 0 && limit < b->host_total ? limit : b->host_total / 100 * 95;
}

int xpd_memory_pool(const xpd_worker *w)
{
    for (int i = 0; i < w->devices.count; i++) {
        if (!is_cpu(&w->devices.items[i]) && !w->devices.items[i].absent[0])
            return 1 + w->index;
    }
    return XPD_POOL_HOST;
}

/* ------------------------------------------------------------------------------------- ledger */

/* What the process holds in memory, shared memory that it looked at included. */
static int64_t resident(pid_t pid)
{
    char path[64];
    long long pages = 0;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%*d %lld", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Of the host's memory. */
static int64_t host_need(const xpd_worker *w, const xpd_job *job)
{
    return job->needs.host + (xpd_memory_pool(w) == XPD_POOL_HOST ? job->needs.device : 0);
}

/* Promised to jobs that run, and how much of it is taken. */
static void promised(const xpd_broker *b, int64_t *bytes, int64_t *taken)
{
    *bytes = *taken = 0;
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_worker *w = b->workers[i];
        const xpd_job *job = xpd_run_job(w);
        if (!job || !job->needs.known)
            continue;
        int64_t own = host_need(w, job), held = resident(w->child.pid);
        *bytes += own;
        *taken += held < own ? held : own;
    }
}

int64_t xpd_memory_reserved(const xpd_broker *b, const char *device)
{
    bool cpu = strncmp(device, "cpu", 3) == 0;
    int64_t bytes = 0;

    for (int i = 0; i < b->worker_count; i++) {
        const xpd_worker *w = b->workers[i];
        const xpd_job *job = xpd_run_job(w);
        if (job && cpu)
            bytes += host_need(w, job);
        else if (job && xpd_run_uses(w, device))
            bytes += job->needs.device;
    }
    return bytes;
}

static int64_t host_free(const xpd_broker *b, int64_t *strangers)
{
    int64_t total = xpd_memory_host(b), bytes, taken;

    *strangers = 0;
    if (total == XPD_ROOM_ENDLESS)
        return XPD_NEVER;
    promised(b, &bytes, &taken);
    int64_t by_limit = total - bytes,
            by_system = b->host_total > 0 ? b->host_free - (bytes - taken) : by_limit;
    if (by_system < by_limit)
        *strangers = by_limit - by_system;
    int64_t least = by_limit < by_system ? by_limit : by_system;
    return least > 0 ? least : 0;
}

/* The least of the worker's GPUs. */
static int64_t device_free(const xpd_worker *w, const xpe_device_info **which)
{
    int64_t least = XPD_NEVER;

    *which = NULL;
    for (int i = 0; i < w->devices.count; i++) {
        const xpe_device_info *d = &w->devices.items[i];
        if (is_cpu(d) || d->absent[0] || d->bytes_free >= least)
            continue;
        least = d->bytes_free;
        *which = d;
    }
    return least;
}

int xpd_memory_pools(const xpd_broker *b, xpd_sched_pool pools[XPD_POOLS_MAX])
{
    const xpe_device_info *device;
    int64_t strangers;

    pools[XPD_POOL_HOST].free = host_free(b, &strangers);
    for (int i = 0; i < b->worker_count; i++)
        pools[1 + i].free = device_free(b->workers[i], &device);
    return 1 + b->worker_count;
}

/* ------------------------------------------------------------------------------------- reasons */

typedef struct shortage {
    char text[200];
    int64_t strangers; /* bytes that processes hold which are not of this service */
} shortage;

static void say(shortage *out, const char *where, int64_t need, int64_t free)
{
    char a[32], b[32];
    snprintf(out->text, sizeof out->text, "%s: %s needed, %s free", where, xpd_bytes_text(a, need),
             xpd_bytes_text(b, free));
}

/* What is missing for the job on the worker, of the host's memory and of the devices'; 0 = nothing.
 */
static int64_t missing_of_host(const xpd_worker *w, const xpd_job *job, shortage *out)
{
    const xpd_broker *b = w->child.b;
    int64_t free = host_free(b, &out->strangers), need = host_need(w, job);

    if (free == XPD_NEVER)
        return 0;
    if (xpd_run_job(w) == job && job->needs.known)
        free += need; /* it is counted among those that run already */
    if (need <= free)
        return 0;
    say(out, "memory of this machine", need, free);
    return need - free;
}

static int64_t missing_of_devices(const xpd_worker *w, const xpd_job *job, shortage *out)
{
    const xpe_device_info *d;
    int64_t free = device_free(w, &d);
    char where[64];

    if (xpd_memory_pool(w) == XPD_POOL_HOST || free == XPD_NEVER || job->needs.device <= free)
        return 0;
    snprintf(where, sizeof where, "memory of '%s'", d->name);
    const xpd_job *other = xpd_run_job(w);
    out->strangers = d->bytes_total - free - (other && other != job ? other->needs.device : 0);
    say(out, where, job->needs.device, free);
    return job->needs.device - free;
}

bool xpd_memory_now(const xpd_worker *w, const xpd_job *job, bool host, char *text, size_t size)
{
    shortage found = {.strangers = 0};
    bool enough =
        (!host || missing_of_host(w, job, &found) == 0) && missing_of_devices(w, job, &found) == 0;

    snprintf(text, size, "%s", found.text);
    return enough;
}

void xpd_memory_short(const xpd_broker *b, const xpd_job *job, uint64_t workers, char *text,
                      size_t size, int64_t *strangers)
{
    int64_t least = INT64_MAX;
    shortage found = {.strangers = 0};

    *strangers = 0;
    snprintf(text, size, "memory");
    for (int i = 0; i < b->worker_count; i++) {
        if (!(workers >> i & 1))
            continue;
        int64_t bytes = missing_of_host(b->workers[i], job, &found);
        if (bytes == 0)
            bytes = missing_of_devices(b->workers[i], job, &found);
        if (bytes > 0 && bytes < least) {
            least = bytes;
            *strangers = found.strangers;
            snprintf(text, size, "%s", found.text);
        }
    }
}

/* ---------------------------------------------------------------------------------------- room */

void xpd_memory_room(xpd_broker *b, const xpp_job *job, const json_t *scan, xpd_room *out)
{
    const json_t *at = json_object_get(scan, "output_disk");
    struct statvfs fs;
    struct stat st;

    *out = (xpd_room){.host = xpd_memory_host(b),
                      .result = {XPD_ROOM_ENDLESS, XPD_ROOM_ENDLESS},
                      .state = {XPD_ROOM_ENDLESS, XPD_ROOM_ENDLESS}};
    if (!scan)
        return;
    if (statvfs(b->config.state_dir, &fs) == 0) {
        int64_t kept = b->config.low_disk_mib * MIB;
        out->state.total = (int64_t)(fs.f_blocks * fs.f_frsize);
        out->state.free = (int64_t)(fs.f_bavail * fs.f_frsize) - kept;
        out->state.free = out->state.free > 0 ? out->state.free : 0;
    }
    out->one_disk = !job->output_path;
    if (json_integer_value(json_object_get(at, "bytes_total")) > 0) {
        out->result.total = json_integer_value(json_object_get(at, "bytes_total"));
        out->result.free = json_integer_value(json_object_get(at, "bytes_free"));
        out->one_disk = stat(b->config.state_dir, &st) == 0 &&
                        (json_int_t)st.st_dev == json_integer_value(json_object_get(at, "device"));
    }
    if (out->one_disk)
        out->result = out->state;
}
