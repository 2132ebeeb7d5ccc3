/* See assign.h. */
#include "assign.h"

#include "log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t bit_of(int set)
{
    return (uint64_t)1 << set;
}

static bool is_gpu(const char *name)
{
    return strncmp(name, "cuda", 4) == 0;
}

static const char *name_at(const json_t *names, size_t i)
{
    const char *name = json_string_value(json_array_get(names, i));
    return name ? name : "";
}

/* ------------------------------------------------------------------------------------ devices */

static void add(xpd_devices *all, const xpe_device_info *d)
{
    for (int i = 0; i < all->count; i++) {
        if (strcmp(all->items[i].name, d->name) != 0)
            continue;
        if (all->items[i].absent[0]) /* as the one says that can use it */
            all->items[i] = *d;
        return;
    }
    if (all->count < XPP_DEVICES_MAX)
        all->items[all->count++] = *d;
}

static void gather(xpd_devices *all, const xpd_broker *b, uint64_t sets)
{
    memset(all, 0, sizeof *all);
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_devices *own = &b->workers[i]->devices;
        for (int k = 0; (sets & bit_of(i)) && k < own->count; k++)
            add(all, &own->items[k]);
    }
}

const xpd_devices *xpd_workers_devices(const xpd_broker *b)
{
    static xpd_devices all; /* the loop's */
    bool cpu = false, gpus = true;

    gather(&all, b, ~(uint64_t)0);
    for (int i = 0; i < b->worker_count; i++) {
        const xpd_worker *w = b->workers[i];
        cpu = cpu || (!w->gpu && w->devices.known);
        gpus = gpus && (!w->gpu || w->devices.known);
    }
    all.known = cpu && gpus;
    return &all;
}

static bool any_gpu(const xpd_broker *b)
{
    for (int i = 0; i < b->worker_count; i++) {
        if (b->workers[i]->gpu && xpd_set_usable(b, i))
            return true;
    }
    return false;
}

static int usable_gpus(const xpd_broker *b)
{
    int count = 0;
    for (int i = 0; i < b->worker_count; i++)
        count += b->workers[i]->gpu && xpd_set_usable(b, i) ? xpd_set_devices(b, i) : 0;
    return count;
}

/* Memory of the devices of a set that can be used. */
static int64_t bytes_of(const xpd_broker *b, int set)
{
    const xpd_devices *own = &b->workers[set]->devices;
    int64_t bytes = 0;
    for (int i = 0; i < own->count; i++)
        bytes += own->items[i].absent[0] ? 0 : own->items[i].bytes_total;
    return bytes;
}

static uint64_t largest_gpu_set(const xpd_broker *b)
{
    int best = -1;
    for (int i = 0; i < b->worker_count; i++) {
        if (b->workers[i]->gpu && xpd_set_usable(b, i) &&
            (best < 0 || bytes_of(b, i) > bytes_of(b, best)))
            best = i;
    }
    return best < 0 ? 0 : bit_of(best);
}

bool xpd_assign_choose(xpd_choice *out, const xpd_broker *b, const xpp_job *job, uint64_t sets,
                       xpd_error *err)
{
    xpd_devices some;

    if (!sets && job->devices.count == 0 && job->devices.num_devices == 0)
        sets = largest_gpu_set(b);
    if (!sets)
        return xpd_devices_choose(out, xpd_workers_devices(b), job, err);
    gather(&some, b, sets);
    return xpd_devices_choose(out, &some, job, err);
}

/* ------------------------------------------------------------------------------------- places */

static uint64_t cpu_sets(const xpd_broker *b)
{
    uint64_t sets = 0;
    for (int i = 0; i < b->worker_count; i++)
        sets |= b->workers[i]->gpu ? 0 : bit_of(i);
    return sets;
}

static const json_t *named(const xpd_job *job)
{
    return json_object_get(json_object_get(job->head, "devices"), "devices");
}

static int64_t counted(const xpd_job *job)
{
    return json_integer_value(
        json_object_get(json_object_get(job->head, "devices"), "num_devices"));
}

/* The first device of a job that has run, else "". */
static const char *ran_on(const xpd_job *job)
{
    return job->started_ms > 0 ? name_at(job->devices, 0) : "";
}

static bool wants_gpus(const xpd_broker *b, const xpd_job *job)
{
    const json_t *names = named(job);

    if (json_array_size(names) > 0)
        return is_gpu(name_at(names, 0));
    return *ran_on(job) ? is_gpu(ran_on(job)) : any_gpu(b);
}

static int set_with(const xpd_broker *b, const char *name)
{
    for (int i = 0; i < b->worker_count; i++) {
        const xpe_device_info *d =
            b->workers[i]->gpu ? xpd_devices_find(&b->workers[i]->devices, name) : NULL;
        if (d && !d->absent[0])
            return i;
    }
    return -1;
}

static xpd_assign assign_named(const xpd_broker *b, const json_t *names)
{
    xpd_assign place = {0};
    int missing = 0;

    for (size_t i = 0; i < json_array_size(names); i++) {
        int set = set_with(b, name_at(names, i));
        if (set < 0)
            missing++;
        else
            place.sets |= bit_of(set);
    }
    place.need = __builtin_popcountll(place.sets) + missing; /* missing: never enough */
    return place;
}

static const char *model_of(const xpd_broker *b, int set)
{
    const xpd_devices *own = &b->workers[set]->devices;
    for (int i = 0; i < own->count; i++) {
        if (!own->items[i].absent[0])
            return own->items[i].model;
    }
    return "";
}

/* "" = it is not there or cannot be used. */
static const char *model_named(const xpd_broker *b, const char *name)
{
    int set = set_with(b, name);
    return set < 0 ? "" : xpd_devices_find(&b->workers[set]->devices, name)->model;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* So many GPUs, 0 = those of a set: one set where it has enough, else so many sets that any of them
 * have. */
static xpd_assign assign_counted(const xpd_broker *b, const xpd_job *job, int64_t wanted)
{
    const char *before = *ran_on(job) ? model_named(b, ran_on(job)) : "";
    int sizes[XPD_WORKERS_MAX], count = 0, sum = 0;
    uint64_t all = 0, enough = 0;

    for (int i = 0; i < b->worker_count; i++) {
        if (!b->workers[i]->gpu || !xpd_set_usable(b, i) ||
            (*before && strcmp(before, model_of(b, i)) != 0))
            continue;
        sizes[count] = xpd_set_devices(b, i);
        all |= bit_of(i);
        enough |= sizes[count++] >= wanted ? bit_of(i) : 0;
    }
    if (enough || count == 0)
        return (xpd_assign){enough, 1};
    qsort(sizes, (size_t)count, sizeof *sizes, ascending);
    int need = 0;
    while (need < count && sum < wanted)
        sum += sizes[need++];
    return (xpd_assign){all, sum < wanted ? count + 1 : need};
}

xpd_assign xpd_assign_of(const xpd_broker *b, const xpd_job *job)
{
    const json_t *names = named(job);
    xpd_assign place;

    if (!wants_gpus(b, job))
        return (xpd_assign){cpu_sets(b), 1};
    if (json_array_size(names) > 0)
        return assign_named(b, names);
    place = assign_counted(b, job, counted(job));
    uint64_t others = place.sets & ~job->shunned; /* where no worker died with it */
    if (__builtin_popcountll(others) >= place.need)
        place.sets = others;
    return place;
}

void xpd_assign_kind(char *kind, size_t size, int *count, const xpd_broker *b, const xpd_job *job)
{
    const json_t *names = json_array_size(job->devices) > 0 ? job->devices : named(job);
    bool gpus = wants_gpus(b, job);
    int64_t wanted = counted(job);

    if (json_array_size(names) > 0)
        gpus = is_gpu(name_at(names, 0));
    snprintf(kind, size, "%s", gpus ? "cuda" : "cpu");
    *count = (int)json_array_size(names);
    if (*count > 0)
        return;
    xpd_assign place = xpd_assign_of(b, job);
    *count = wanted > 0           ? (int)wanted
             : place.sets && gpus ? xpd_set_devices(b, __builtin_ctzll(place.sets))
                                  : 1;
}

/* ------------------------------------------------------------------------------------ missing */

static const char *why_no_gpu(const xpd_broker *b)
{
    const xpd_devices *all = xpd_workers_devices(b);
    for (int i = 0; i < all->count; i++) {
        if (is_gpu(all->items[i].name) && all->items[i].absent[0])
            return all->items[i].absent;
    }
    return "there is none";
}

void xpd_assign_missing(char *out, size_t size, const xpd_broker *b, const xpd_job *job)
{
    const json_t *names = named(job);
    const xpd_devices *all = xpd_workers_devices(b);
    xpd_assign place = xpd_assign_of(b, job);

    for (size_t i = 0; i < json_array_size(names); i++) {
        const xpe_device_info *d = xpd_devices_find(all, name_at(names, i));
        if (d && !d->absent[0])
            continue;
        snprintf(out, size, "device '%s': %s", name_at(names, i),
                 d ? d->absent : "this machine has it no more");
        return;
    }
    if (wants_gpus(b, job) && *ran_on(job) && place.sets == 0)
        snprintf(out, size,
                 "a GPU like '%s', on which it has run: %s; it goes on on no other kind of device, "
                 "so submit it anew if it is to start over on one",
                 ran_on(job), why_no_gpu(b));
    else if (wants_gpus(b, job) && place.need > __builtin_popcountll(place.sets))
        snprintf(out, size, "%lld GPUs, of which %d can be used now: %s", (long long)counted(job),
                 usable_gpus(b), why_no_gpu(b));
    else
        snprintf(out, size, "a worker: that of its devices is being started");
}
