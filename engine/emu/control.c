/* Settings, counters and reports: emu.h. */
#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

xpe_emu_state xpe_emu;

void xpe_emu_die(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fputs("cuda (emulated): ", stderr);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (XPE_EMU_SEED=%llu)\n", (unsigned long long)xpe_emu.seed);
    abort();
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t xpe_emu_random(void)
{
    xpe_emu.random += 0x9e3779b97f4a7c15u;
    return mix(xpe_emu.random);
}

uint64_t xpe_emu_below(uint64_t bound)
{
    return xpe_emu_random() % bound; /* the bias does not matter for an order */
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): under the lock */
    char *end;
    uint64_t value;

    if (!text || !*text)
        return otherwise;
    value = strtoull(text, &end, 10);
    if (*end) {
        fprintf(stderr, "cuda (emulated): %s='%s' is not a number\n", name, text);
        abort();
    }
    return value;
}

static void start(int devices, size_t bytes, uint64_t seed)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    memset(&xpe_emu, 0, sizeof xpe_emu);
    xpe_emu.begun = true;
    xpe_emu.seed =
        seed ? seed
             : mix((uint64_t)now.tv_nsec ^ ((uint64_t)now.tv_sec << 30) ^ (uint64_t)getpid()) %
                       1000000000 +
                   1;
    xpe_emu.random = xpe_emu.seed;
    xpe_emu.device_count = devices;
    for (int i = 0; i < XPE_EMU_DEVICES_MAX; i++) {
        xpe_emu.devices[i].bytes = bytes;
        for (int j = 0; j < XPE_EMU_DEVICES_MAX; j++)
            xpe_emu.devices[i].can_reach[j] = i != j;
    }
    fprintf(stderr, "cuda (emulated): XPE_EMU_SEED=%llu repeats this order of work\n",
            (unsigned long long)xpe_emu.seed);
}

/* How many of the devices CUDA_VISIBLE_DEVICES shows: those before the first that does not exist.
 * They are all alike, so which ones does not matter. */
static uint64_t visible(uint64_t devices)
{
    const char *text =
        getenv("CUDA_VISIBLE_DEVICES"); /* NOLINT(concurrency-mt-unsafe): under the lock */
    uint64_t count = 0;

    if (!text)
        return devices;
    while (*text) {
        char *end;
        uint64_t id = strtoull(text, &end, 10);
        if (end == text || id >= devices)
            break;
        count++;
        text = end + (*end == ',');
    }
    return count;
}

/* XPE_EMU_LOSE=DEVICE:AFTER, as xpe_emu_lose does. */
static void lose_by_setting(void)
{
    const char *text = getenv("XPE_EMU_LOSE"); /* NOLINT(concurrency-mt-unsafe): under the lock */
    char *end = NULL;
    uint64_t device = text ? strtoull(text, &end, 10) : XPE_EMU_DEVICES_MAX;

    if (device >= XPE_EMU_DEVICES_MAX || *end != ':')
        return;
    xpe_emu.devices[device].losing = true;
    xpe_emu.devices[device].work_left = strtoull(end + 1, NULL, 10);
}

/* XPE_EMU_BRIDGES=0-2,1-3: the others have a worse link. */
static void bridges_by_setting(void)
{
    const char *text =
        getenv("XPE_EMU_BRIDGES"); /* NOLINT(concurrency-mt-unsafe): under the lock */

    for (int i = 0; text && *text && i < XPE_EMU_DEVICES_MAX; i++)
        for (int j = 0; j < XPE_EMU_DEVICES_MAX; j++)
            xpe_emu.devices[i].rank[j] = i != j;
    while (text && *text) {
        char *middle, *end;
        uint64_t a = strtoull(text, &middle, 10), b = strtoull(middle + (*middle == '-'), &end, 10);

        if (*middle != '-' || end == middle + 1 || (*end && *end != ',') ||
            a >= XPE_EMU_DEVICES_MAX || b >= XPE_EMU_DEVICES_MAX)
            xpe_emu_die("XPE_EMU_BRIDGES: '%s' is no list of pairs such as 0-2,1-3", text);
        xpe_emu.devices[a].rank[b] = xpe_emu.devices[b].rank[a] = 0;
        text = end + (*end == ',');
    }
}

void xpe_emu_ready(void)
{
    uint64_t devices, mib;

    if (xpe_emu.begun)
        return;
    devices = setting("XPE_EMU_DEVICES", 8);
    mib = setting("XPE_EMU_MIB", 1024);
    devices = visible(devices < XPE_EMU_DEVICES_MAX ? devices : XPE_EMU_DEVICES_MAX);
    start((int)devices, (size_t)mib << 20, setting("XPE_EMU_SEED", 0));
    lose_by_setting();
    bridges_by_setting();
}

static void forget(void)
{
    xpe_emu_queues_forget();
    xpe_emu_comms_forget();
    xpe_emu_plans_forget();
    xpe_emu_memory_forget();
    memset(&xpe_emu.live, 0, sizeof xpe_emu.live);
    for (int i = 0; i < XPE_EMU_DEVICES_MAX; i++) {
        xpe_emu.devices[i].used = 0;
        xpe_emu.devices[i].stream0 = NULL;
    }
}

void xpe_emu_abandon(void)
{
    (void)xpe_emu_enter(NULL);
    forget();
    xpe_emu_leave();
}

void xpe_emu_begin(int devices, size_t bytes_each, uint64_t seed)
{
    if (!xpe_emu_empty())
        xpe_emu_die("xpe_emu_begin while objects are alive");
    (void)xpe_emu_enter("xpe_emu_begin");
    forget();
    start(devices, bytes_each, seed ? seed : setting("XPE_EMU_SEED", 0));
    xpe_emu_leave();
    xpe_emu_fail_never();
}

uint64_t xpe_emu_seed(void)
{
    return xpe_emu.seed;
}

#define WITH_LOCK(...)                                                                             \
    do {                                                                                           \
        (void)xpe_emu_enter(NULL);                                                                 \
        __VA_ARGS__;                                                                               \
        xpe_emu_leave();                                                                           \
    } while (0)

void xpe_emu_device_bytes(int device, size_t bytes)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.devices[device].bytes = bytes);
}

void xpe_emu_peer(int device, int peer, bool can)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.devices[device].can_reach[peer] = can);
}

void xpe_emu_rank(int device, int peer, int rank)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.devices[device].rank[peer] = rank);
}

void xpe_emu_lose(int device, uint64_t after)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.devices[device].losing = true;
              xpe_emu.devices[device].lost = after == 0; xpe_emu.devices[device].work_left = after;
              xpe_emu_idle_reset());
}

void xpe_emu_stall(int device, bool stalled)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.devices[device].stalled = stalled; xpe_emu_idle_reset());
}

void xpe_emu_nccl_error(int rank, int error)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.nccl_error[rank] = error);
}

void xpe_emu_wait_for_ever(bool on)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.wait_for_ever = on);
}

void xpe_emu_nccl_bytes(size_t made, size_t connected)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.nccl_made = made; xpe_emu.nccl_connected = connected);
}

void xpe_emu_slow_nccl(bool on)
{
    WITH_LOCK(xpe_emu_ready(); xpe_emu.slow_nccl = on);
}

xpe_emu_counts xpe_emu_count(void)
{
    xpe_emu_counts counts;

    WITH_LOCK(counts = xpe_emu.counts);
    return counts;
}

xpe_emu_objects xpe_emu_live(void)
{
    xpe_emu_objects live;

    WITH_LOCK(live = xpe_emu.live); /* also before the first call, which is when nothing is alive */
    return live;
}

bool xpe_emu_empty(void)
{
    xpe_emu_objects o = xpe_emu_live();
    bool empty = !(o.buffers | o.pinned | o.streams | o.events | o.plans | o.comms | o.queued);

    if (!empty)
        fprintf(stderr,
                "cuda (emulated): still there: %zu device buffers (%zu bytes), %zu pinned buffers, "
                "%zu streams, %zu events, "
                "%zu plans, %zu communicators, %zu things queued\n",
                o.buffers, o.device_bytes, o.pinned, o.streams, o.events, o.plans, o.comms,
                o.queued);
    return empty;
}
