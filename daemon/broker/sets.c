/* See sets.h.  The state is two masks of each worker: `group`, what its process is to serve, and
 * `serves`, what the running one does.  Whatever changes a group calls xpd_sets_settle, which tells
 * processes to leave where the two differ and starts those whose sets are free; it is called again
 * when a process has ended.  Only sets that no job holds change their group. */
#include "sets.h"

#include "dispatch.h"
#include "gpuset.h"
#include "log.h"
#include "memory.h"
#include "run.h"
#include "submit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define STRIKES_MAX 3
#define LEAVE_MS 10000 /* for an idle worker to end; a context takes a GPU a second */

static uint64_t bit_of(int set)
{
    return (uint64_t)1 << set;
}

static bool is_gpu(const xpe_device_info *d)
{
    return strncmp(d->name, "cuda", 4) == 0;
}

/* ------------------------------------------------------------------------------------ looking */

xpd_worker *xpd_set_leader(const xpd_broker *b, int set)
{
    for (int i = 0; i < b->worker_count; i++) {
        if (b->workers[i]->group & bit_of(set))
            return b->workers[i];
    }
    return b->workers[set]; /* not reached: every set is in one group */
}

int xpd_set_devices(const xpd_broker *b, int set)
{
    const xpd_worker *w = b->workers[set];
    int count = 0;

    for (int i = 0; i < w->devices.count; i++)
        count += !w->devices.items[i].absent[0];
    return count;
}

bool xpd_set_usable(const xpd_broker *b, int set)
{
    return xpd_set_devices(b, set) > 0 && !b->workers[set]->drained;
}

bool xpd_set_up(const xpd_broker *b, int set)
{
    return xpd_set_leader(b, set)->ready && xpd_set_usable(b, set);
}

bool xpd_set_serves(const xpd_broker *b, const char *device)
{
    for (int i = 0; i < b->worker_count; i++) {
        const xpe_device_info *d = xpd_devices_find(&b->workers[i]->devices, device);
        if (d && !d->absent[0] && xpd_set_up(b, i))
            return true;
    }
    return false;
}

xpd_job *xpd_set_job(const xpd_broker *b, int set)
{
    return xpd_run_job(xpd_set_leader(b, set));
}

static bool served(const xpd_broker *b, uint64_t sets)
{
    for (int i = 0; i < b->worker_count; i++) {
        if (b->workers[i]->serves & sets)
            return true;
    }
    return false;
}

bool xpd_sets_free(const xpd_worker *w)
{
    return w->group && !w->drained && w->child.pid <= 0 && !served(w->child.b, w->group);
}

void xpd_sets_list(char *out, size_t size, const xpd_worker *w)
{
    const xpd_broker *b = w->child.b;
    size_t at = 0;

    *out = '\0';
    for (int i = 0; i < b->worker_count && w->gpu && !w->scout; i++) {
        const xpd_devices *devices = &b->workers[i]->devices;
        for (int k = 0; (w->group & bit_of(i)) && k < devices->count && at < size; k++)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? "," : "",
                                   devices->items[k].name);
    }
}

/* ----------------------------------------------------------------------------------- grouping */

static void leave(xpd_worker *w)
{
    w->leaving = true;
    w->ready = false;
    xpd_worker_quit(w, LEAVE_MS);
}

void xpd_sets_settle(xpd_broker *b)
{
    if (b->stopping)
        return;
    for (int i = 0; i < b->worker_count; i++) {
        xpd_worker *w = b->workers[i];
        if (w->child.pid > 0 && w->serves != w->group && !w->leaving)
            leave(w);
    }
    for (int i = 0; i < b->worker_count; i++) {
        if (xpd_sets_free(b->workers[i]))
            xpd_worker_start(b->workers[i]);
    }
}

static void part(xpd_broker *b, uint64_t sets)
{
    for (int i = 0; i < b->worker_count; i++) {
        if (sets & bit_of(i))
            b->workers[i]->group = bit_of(i);
    }
}

xpd_worker *xpd_sets_join(xpd_broker *b, uint64_t sets)
{
    xpd_worker *first = b->workers[__builtin_ctzll(sets)];
    uint64_t touched = sets;

    if (first->group == sets)
        return first;
    for (int i = 0; i < b->worker_count; i++) {
        if (b->workers[i]->group & sets)
            touched |= b->workers[i]->group;
    }
    part(b, touched);
    for (int i = 0; i < b->worker_count; i++) {
        if (sets & bit_of(i))
            b->workers[i]->group = 0;
    }
    first->group = sets;
    xpd_log(XPD_LOG_INFO, NULL, "worker %d gets %d device set%s", first->index,
            __builtin_popcountll(sets), sets & (sets - 1) ? "s" : "");
    xpd_sets_settle(b);
    return first;
}

/* -------------------------------------------------------------------------------- what is said */

static void keep_kind(xpd_devices *devices, bool gpu)
{
    int count = 0;

    for (int i = 0; i < devices->count; i++) {
        if (is_gpu(&devices->items[i]) == gpu)
            devices->items[count++] = devices->items[i];
    }
    devices->count = count;
}

static bool has_gpu_sets(const xpd_broker *b)
{
    return b->worker_count > 0 && b->workers[b->worker_count - 1]->gpu;
}

/* Nothing of its sets can be used: it leaves and is asked again later. */
static void rest(xpd_worker *w)
{
    for (int i = 0; i < w->devices.count; i++)
        xpd_log(w->rested ? XPD_LOG_DEBUG : XPD_LOG_WARNING, NULL,
                "worker %d: %s cannot be used: %s", w->index, w->devices.items[i].name,
                w->devices.items[i].absent);
    w->resting = w->rested = true;
    leave(w);
}

/* What `auto` means is known now: a set for each GPU that can be used. */
static void scouted(xpd_worker *w, xpd_devices *found)
{
    xpd_broker *b = w->child.b;
    xpd_worker *next = w;
    uint64_t sets = 0;

    w->devices = (xpd_devices){.known = true};
    for (int i = 0; i < found->count; i++) {
        const xpe_device_info *d = &found->items[i];
        if (!d->absent[0] && next)
            next = sets ? xpd_worker_add(b, true) : w;
        else if (d->absent[0])
            w->devices.items[w->devices.count++] = *d;
        if (d->absent[0] || !next)
            continue;
        next->devices.known = true;
        next->devices.items[next->devices.count++] = *d;
        sets |= bit_of(next->index);
    }
    if (!next)
        xpd_log(XPD_LOG_WARNING, NULL, "there are more GPUs than this service can use");
    w->scout = !sets;
    w->serves = sets ? sets : w->group; /* its process holds them all: it gives way to theirs */
}

bool xpd_sets_hello(xpd_worker *w, const json_t *body)
{
    xpd_broker *b = w->child.b;
    xpd_devices found;

    if (!xpd_devices_decode(&found, body))
        return false;
    if (!w->gpu) {
        xpd_memory_heard(b, &found);
        if (has_gpu_sets(b))
            keep_kind(&found, false);
        for (int i = 0; i < found.count && strcmp(b->config.cuda_sets, "none") == 0; i++) {
            if (is_gpu(&found.items[i]))
                snprintf(found.items[i].absent, sizeof found.items[i].absent,
                         "workers.cuda is none");
        }
        w->devices = found;
        return true;
    }
    keep_kind(&found, true);
    if (w->scout)
        scouted(w, &found);
    bool usable = false;
    for (int i = 0; i < b->worker_count; i++) {
        xpd_devices *own = &b->workers[i]->devices;
        for (int k = 0; (w->serves & bit_of(i)) && k < own->count; k++) {
            const xpe_device_info *d = xpd_devices_find(&found, own->items[k].name);
            if (d)
                own->items[k] = *d;
            own->known = true;
            usable = usable || !own->items[k].absent[0];
        }
    }
    if (!usable)
        rest(w);
    return true;
}

bool xpd_sets_pong(xpd_worker *w, const json_t *body)
{
    xpd_broker *b = w->child.b;

    for (int i = 0; i < b->worker_count; i++) {
        xpd_devices *devices = &b->workers[i]->devices;
        if (!(w->serves & bit_of(i)))
            continue;
        if (!xpd_devices_update(devices, body))
            return false;
        if (!w->gpu)
            xpd_memory_heard(b, devices);
    }
    return true;
}

static void set_absent(xpd_devices *devices, const char *why)
{
    if (devices->count == 0) /* a scout's */
        snprintf(devices->items[devices->count++].name, sizeof devices->items[0].name, "cuda");
    for (int i = 0; i < devices->count; i++)
        snprintf(devices->items[i].absent, sizeof devices->items[i].absent, "%s", why);
    devices->known = true;
}

void xpd_sets_silent(xpd_worker *w, const char *how)
{
    xpd_broker *b = w->child.b;
    char why[sizeof w->devices.items[0].absent];

    snprintf(why, sizeof why, "%s %.100s", w->child.name, how);
    xpd_log(XPD_LOG_ERROR, NULL, "%s, and that without a word; its GPUs are out of service", why);
    for (int i = 0; i < b->worker_count; i++) {
        if (w->group & bit_of(i))
            set_absent(&b->workers[i]->devices, why);
    }
    xpd_submissions_devices_known(b);
}

/* ---------------------------------------------------------------------------------- draining */

static bool has_device(const xpd_worker *w, const char *name)
{
    return xpd_devices_find(&w->devices, name) != NULL;
}

static void drain(xpd_worker *w, const char *how)
{
    char why[sizeof w->devices.items[0].absent];

    snprintf(why, sizeof why, "drained after %d failures in a row: %.100s", STRIKES_MAX, how);
    xpd_log(XPD_LOG_ERROR, NULL, "device set %d is %s", w->index, why);
    w->drained = true;
    for (int i = 0; i < w->devices.count; i++) {
        if (!w->devices.items[i].absent[0])
            snprintf(w->devices.items[i].absent, sizeof w->devices.items[i].absent, "%s", why);
    }
}

void xpd_sets_lost(xpd_worker *w, const char *device, const char *how)
{
    xpd_broker *b = w->child.b;
    uint64_t sets = w->group, struck = 0, drained = 0;

    for (int i = 0; i < b->worker_count; i++) {
        if ((sets & bit_of(i)) && has_device(b->workers[i], device))
            struck |= bit_of(i);
    }
    for (int i = 0; i < b->worker_count; i++) {
        if (!((struck ? struck : sets) & bit_of(i)) || ++b->workers[i]->strikes < STRIKES_MAX)
            continue;
        drain(b->workers[i], how);
        drained |= bit_of(i);
    }
    w->ready = false; /* it leaves by itself */
    xpd_child_kill_after(&w->child, LEAVE_MS);
    if (drained)
        part(b, sets);
}

void xpd_sets_worked(xpd_worker *w)
{
    xpd_broker *b = w->child.b;

    for (int i = 0; i < b->worker_count; i++) {
        if (w->group & bit_of(i))
            b->workers[i]->strikes = 0;
    }
}

int xpd_sets_undrain(xpd_broker *b)
{
    int count = 0;

    for (int i = 0; i < b->worker_count; i++) {
        xpd_worker *w = b->workers[i];
        if (!w->drained)
            continue;
        w->drained = false;
        w->strikes = 0;
        count++;
    }
    xpd_sets_settle(b);
    return count;
}

/* ------------------------------------------------------------------------------------- making */

/* Whether there is such a program. */
static bool installed(const xpd_broker *b)
{
    char path[PATH_MAX];
    return b->config.cuda_program || xpp_program_find(path, sizeof path, "xptycho-worker-cuda");
}

bool xpd_sets_create(xpd_broker *b, xpd_error *err)
{
    xpd_gpu_sets sets;

    if (!xpd_gpu_sets_parse(&sets, b->config.cuda_sets, err))
        return false;
    if (sets.automatic && !installed(b))
        return true;
    int count = sets.automatic ? 1 : sets.count;
    for (int i = 0; i < count; i++) {
        xpd_worker *w = xpd_worker_add(b, true);
        if (!w)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                            "workers.cuda: %d sets beside %lld on the CPU are more than %d", count,
                            (long long)b->config.cpu_workers, XPD_WORKERS_MAX);
        w->scout = sets.automatic;
        for (int k = 0; !w->scout && k < sets.sets[i].count; k++) {
            xpe_device_info *d = &w->devices.items[w->devices.count++];
            snprintf(d->name, sizeof d->name, "%s", sets.sets[i].names[k]);
            snprintf(d->absent, sizeof d->absent, "its worker has not started yet");
        }
    }
    return true;
}
