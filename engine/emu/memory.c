/* Device and pinned memory.
 *
 * A device buffer is pages of its own between two guard pages, placed so that it ends within 256 bytes of the guard;
 * what is left beside it holds a pattern that is checked when it is freed.  Freed buffers stay unmapped: their
 * addresses are not given out again for the next FREED_KEPT frees.  Under AddressSanitizer a buffer is poisoned
 * except while work of a device that reaches it runs.  Pinned memory is from the heap. */
#include "state.h"
#include "xpe_emu_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(data, bytes) ASAN_POISON_MEMORY_REGION((data), (bytes))
#define UNPOISON(data, bytes) ASAN_UNPOISON_MEMORY_REGION((data), (bytes))
#else
#define POISON(data, bytes) ((void)(data), (void)(bytes))
#define UNPOISON(data, bytes) ((void)(data), (void)(bytes))
#endif

#define PAGE ((size_t)4096)
#define ALIGNMENT ((size_t)256)
#define FREED_KEPT 1024
#define PATTERN 0x7ff7a5a5u

static xpe_emu_memory *table; /* by address */
static size_t count, room, freed;
static int open_device = -1;

void xpe_emu_spoil(void *data, size_t bytes)
{
    const uint32_t pattern = PATTERN;
    char *to = data;
    size_t done = bytes < sizeof pattern ? bytes : sizeof pattern;

    memcpy(to, &pattern, done);
    while (done < bytes) {
        size_t step = done < bytes - done ? done : bytes - done;
        memcpy(to + done, to, step);
        done += step;
    }
}

/* ---------------------------------------------------------------------------------- table */

/* Index of the first entry beyond the address. */
static size_t beyond(const void *address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)table[middle].data <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static xpe_emu_memory *holder(const void *address)
{
    size_t at = beyond(address);
    xpe_emu_memory *m = at ? &table[at - 1] : NULL;

    return m && (uintptr_t)address < (uintptr_t)m->data + m->bytes ? m : NULL;
}

const xpe_emu_memory *xpe_emu_find(const void *address)
{
    return holder(address);
}

static bool insert(xpe_emu_memory m)
{
    size_t at;

    if (count == room) {
        size_t more = room ? 2 * room : 64;
        xpe_emu_memory *grown = realloc(table, more * sizeof *table);
        if (!grown)
            return false;
        table = grown;
        room = more;
    }
    at = beyond(m.data);
    memmove(table + at + 1, table + at, (count - at) * sizeof *table);
    table[at] = m;
    count++;
    return true;
}

static void take_out(size_t at)
{
    if (table[at].map) {
        UNPOISON(table[at].map + PAGE, table[at].span - 2 * PAGE);
        (void)munmap(table[at].map, table[at].span);
    } else {
        UNPOISON(table[at].data, table[at].bytes);
        free(table[at].data);
    }
    count--;
    memmove(table + at, table + at + 1, (count - at) * sizeof *table);
}

void xpe_emu_memory_forget(void)
{
    while (count)
        take_out(count - 1);
    free(table);
    table = NULL;
    room = freed = 0;
}

/* ----------------------------------------------------------------------------- checks */

static void describe(const xpe_emu_memory *m, char *text, size_t size)
{
    if (m->device < 0)
        (void)snprintf(text, size, "pinned memory of %zu bytes", m->bytes);
    else
        (void)snprintf(text, size, "memory of %zu bytes of device %d", m->bytes, m->device);
}

void xpe_emu_check(const char *call, const char *what, const void *data, size_t bytes, int device)
{
    const xpe_emu_memory *m = holder(data);
    char text[80];

    if (!bytes)
        return;
    if (!m)
        xpe_emu_die("%s on device %d: %s (%p) is no memory of a device", call, device, what, data);
    describe(m, text, sizeof text);
    if (m->freed)
        xpe_emu_die("%s on device %d: %s lies in %s that has been freed", call, device, what, text);
    if (m->device != device)
        xpe_emu_die("%s on device %d: %s lies in %s", call, device, what, text);
    if (bytes > m->bytes - (size_t)((const char *)data - m->data))
        xpe_emu_die("%s on device %d: %s of %zu bytes ends beyond %s, at byte %zu of it", call, device, what, bytes, text,
                    (size_t)((const char *)data - m->data));
}

static bool reaches(int device, const xpe_emu_memory *m)
{
    return device >= 0 && m->device >= 0 && !m->freed &&
           (m->device == device || xpe_emu.devices[device].reaches[m->device]);
}

void xpe_emu_open(int device)
{
    if (device == open_device)
        return;
#ifdef EMU_ASAN
    for (size_t i = 0; i < count; i++) {
        bool before = reaches(open_device, &table[i]), after = reaches(device, &table[i]);
        if (before && !after)
            POISON(table[i].data, table[i].bytes);
        if (after && !before)
            UNPOISON(table[i].data, table[i].bytes);
    }
#endif
    open_device = device;
}

void xpe_emu_range_open(const void *data, size_t bytes)
{
    UNPOISON(data, bytes);
}

void xpe_emu_range_close(const void *data, size_t bytes)
{
    const xpe_emu_memory *m = holder(data);

    if (m && m->device >= 0 && !reaches(open_device, m))
        POISON(data, bytes);
}

void xpe_emu_pinned_hide(void *data, size_t bytes)
{
    POISON(data, bytes);
}

/* -------------------------------------------------------------------------- device memory */

/* Device memory lies where the lower half of an address has its first bit set: a positive number in an argument
 * struct, followed by four bytes of padding that still hold half of an old address, is then never taken for one.
 * From 0x7e80_8000_0000 on, which every sanitizer allows and the kernel uses last; elsewhere where that is taken. */
#define FIRST_PLACE (UINT64_C(0x7e8080000000))
#define LAST_PLACE (UINT64_C(0x7ef000000000))
#define HALF (UINT64_C(1) << 31)

static char *map_pages(size_t span)
{
    static uint64_t next = FIRST_PLACE;

    for (int attempt = 0; attempt < 4096 && span <= HALF; attempt++) {
        void *map;
        if (next % (2 * HALF) + span > 2 * HALF || next % (2 * HALF) < HALF)
            next = (next / (2 * HALF) + 1) * (2 * HALF) + HALF;
        if (next + span > LAST_PLACE)
            next = FIRST_PLACE;
        map = mmap((void *)(uintptr_t)next, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (map == (void *)(uintptr_t)next) {
            next += span;
            return map;
        }
        if (map != MAP_FAILED) /* a kernel that does not know the flag */
            (void)munmap(map, span);
        next += (uint64_t)1 << 20;
    }
    return mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static cudaError_t device_alloc(void **out, size_t bytes)
{
    int id = xpe_emu_current();
    xpe_emu_device *d = &xpe_emu.devices[id];
    size_t inside = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, span = (inside + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
    xpe_emu_memory m = {.span = span, .bytes = bytes, .device = id};

    if (d->lost)
        return cudaErrorLaunchFailure;
    if (!bytes)
        return cudaSuccess;
    if (bytes > d->bytes || inside > d->bytes - d->used)
        return cudaErrorMemoryAllocation;
    m.map = map_pages(span);
    if (m.map == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    m.data = m.map + span - PAGE - inside;
    if (mprotect(m.map + PAGE, span - 2 * PAGE, PROT_READ | PROT_WRITE) != 0 || !insert(m)) {
        (void)munmap(m.map, span);
        return cudaErrorMemoryAllocation;
    }
    UNPOISON(m.map + PAGE, span - 2 * PAGE);
    xpe_emu_spoil(m.map + PAGE, span - 2 * PAGE);
    POISON(m.map + PAGE, span - 2 * PAGE);
    d->used += inside;
    if (d->used > xpe_emu.counts.bytes_peak[id])
        xpe_emu.counts.bytes_peak[id] = d->used;
    xpe_emu.live.buffers++;
    xpe_emu.live.device_bytes += bytes;
    *out = m.data;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    cudaError_t rc = cudaErrorMemoryAllocation;

    *out = NULL;
    if (!xpe_emu_enter("cudaMalloc"))
        rc = xpe_emu.device_count ? device_alloc(out, bytes) : cudaErrorNoDevice;
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

/* The pattern beside a buffer; both gaps are whole words apart from the bytes next to the end. */
static void check_gaps(const xpe_emu_memory *m)
{
    const char *begin = m->map + PAGE, *end = m->map + m->span - PAGE;
    char text[80];

    UNPOISON(begin, (size_t)(end - begin));
    describe(m, text, sizeof text);
    for (const char *at = begin; at < end; at++) {
        const uint32_t pattern = PATTERN;
        if (at == m->data)
            at += m->bytes;
        if (at < end && *at != ((const char *)&pattern)[(at - begin) % 4])
            xpe_emu_die("something was written %s %s, %td bytes from it", at < m->data ? "before" : "behind", text,
                        at < m->data ? m->data - at : at - (m->data + m->bytes) + 1);
    }
}

static xpe_emu_memory *to_be_freed(const char *call, const void *data, bool pinned)
{
    xpe_emu_memory *m = holder(data);
    char text[80];

    if (!m)
        xpe_emu_die("%s: %p was not given out, or was freed before", call, data);
    describe(m, text, sizeof text);
    if (m->freed)
        xpe_emu_die("%s: %s has been freed before", call, text);
    if (m->data != data || pinned != (m->device < 0))
        xpe_emu_die("%s: %p lies in %s, which cannot be freed so", call, data, text);
    return m;
}

static void keep_few_freed(void)
{
    for (size_t i = 0; freed > FREED_KEPT && i < count;)
        if (table[i].freed) {
            take_out(i);
            freed--;
        } else {
            i++;
        }
}

static cudaError_t device_free(void *data)
{
    xpe_emu_memory *m = to_be_freed("cudaFree", data, false);
    int device = m->device;
    size_t inside = (m->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    xpe_emu_drain("cudaFree", device);
    xpe_emu_open(-1);
    check_gaps(m);
    m->freed = true;
    (void)madvise(m->map, m->span, MADV_DONTNEED);
    (void)mprotect(m->map, m->span, PROT_NONE);
    POISON(m->map + PAGE, m->span - 2 * PAGE);
    xpe_emu.devices[device].used -= inside;
    xpe_emu.live.buffers--;
    xpe_emu.live.device_bytes -= m->bytes;
    freed++;
    keep_few_freed();
    return xpe_emu.devices[device].lost ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaFree(void *data)
{
    bool fail = xpe_emu_enter("cudaFree");
    cudaError_t rc = data ? device_free(data) : cudaSuccess;

    xpe_emu_leave();
    return xpe_emu_note(fail ? cudaErrorUnknown : rc);
}

/* -------------------------------------------------------------------------- pinned memory */

static cudaError_t pinned_alloc(void **out, size_t bytes)
{
    void *data = NULL;

    if (!bytes)
        return cudaSuccess;
    if (posix_memalign(&data, ALIGNMENT, bytes) != 0)
        return cudaErrorMemoryAllocation;
    if (!insert((xpe_emu_memory){.data = data, .bytes = bytes, .device = -1})) {
        free(data);
        return cudaErrorMemoryAllocation;
    }
    xpe_emu_spoil(data, bytes);
    xpe_emu.live.pinned++;
    *out = data;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    cudaError_t rc = cudaErrorMemoryAllocation;

    *out = NULL;
    if (!xpe_emu_enter("cudaMallocHost"))
        rc = pinned_alloc(out, bytes);
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaFreeHost(void *data)
{
    bool fail = xpe_emu_enter("cudaFreeHost");

    if (data) {
        xpe_emu_memory *m = to_be_freed("cudaFreeHost", data, true);
        take_out((size_t)(m - table));
        xpe_emu.live.pinned--;
    }
    xpe_emu_leave();
    return xpe_emu_note(fail ? cudaErrorUnknown : cudaSuccess);
}
