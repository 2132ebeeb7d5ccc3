/* Device and pinned memory.
 *
 * A buffer is pages of its own between two guard pages, placed so that it ends within 256 bytes of
 * the guard; what is left beside it holds the pattern of fresh memory and is checked when it is
 * freed.  The pages come from a file of that pattern, mapped privately, so that memory that is
 * never touched costs nothing.  Freed buffers stay unmapped: the addresses of the last FREED_KEPT,
 * or FREED_BYTES, are not given out again.  Under AddressSanitizer device memory is poisoned except
 * while work that names it runs. */
#include "state.h"
#include "xpe_emu_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
#define FREED_KEPT 256
#define FREED_BYTES ((size_t)1 << 30)
#define PIECE ((size_t)4 << 20) /* of the file */
#define PATTERN 0x7ff7a5a5u

static xpe_emu_memory *table; /* by address */
static size_t count, room, freed, freed_bytes;
static uint64_t frees;

void xpe_emu_spoil(void *data, size_t bytes)
{
    static const uint32_t pattern[16] = {PATTERN, PATTERN, PATTERN, PATTERN, PATTERN, PATTERN,
                                         PATTERN, PATTERN, PATTERN, PATTERN, PATTERN, PATTERN,
                                         PATTERN, PATTERN, PATTERN, PATTERN};
    char *to = data;
    size_t done = 0;

    for (; bytes - done >= sizeof pattern; done += sizeof pattern)
        memcpy(to + done, pattern, sizeof pattern);
    memcpy(to + done, pattern, bytes - done);
}

/* Whole pages of zeros are mapped, which costs nothing until they are touched. */
void xpe_emu_zero(void *data, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)data + PAGE - 1) / PAGE * PAGE,
              end = ((uintptr_t)data + bytes) / PAGE * PAGE;

    if (bytes < 64 * PAGE || mmap((void *)begin, end - begin, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        memset(data, 0, bytes);
        return;
    }
    memset(data, 0, begin - (uintptr_t)data);
    memset((void *)end, 0, (uintptr_t)data + bytes - end);
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
    UNPOISON(table[at].map + PAGE, table[at].span - 2 * PAGE);
    (void)munmap(table[at].map, table[at].span);
    count--;
    memmove(table + at, table + at + 1, (count - at) * sizeof *table);
}

void xpe_emu_memory_forget(void)
{
    while (count)
        take_out(count - 1);
    free(table);
    table = NULL;
    room = freed = freed_bytes = 0;
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
        xpe_emu_die("%s on device %d: %s of %zu bytes ends beyond %s, at byte %zu of it", call,
                    device, what, bytes, text, (size_t)((const char *)data - m->data));
}

void xpe_emu_range_open(const void *data, size_t bytes)
{
    UNPOISON(data, bytes);
}

void xpe_emu_range_close(const void *data, size_t bytes)
{
    const xpe_emu_memory *m = holder(data);

    if (m && m->device >= 0)
        POISON(data, bytes);
}

void xpe_emu_pinned_hide(void *data, size_t bytes)
{
    POISON(data, bytes);
}

/* ---------------------------------------------------------------------------------- pages */

/* Memory lies where the lower half of an address has its first bit set: a positive number in an
 * argument struct, followed by four bytes of padding that still hold half of an old address, is
 * then never taken for one.  From 0x7e80_8000_0000 on, which every sanitizer allows and the kernel
 * uses last; elsewhere where that is taken. */
#define FIRST_PLACE (UINT64_C(0x7e8080000000))
#define LAST_PLACE                                                                                 \
    (UINT64_C(0x7e8400000000)) /* what the address sanitizer keeps for so much is 1 GiB */
#define HALF (UINT64_C(1) << 31)

static char *place(size_t span)
{
    static uint64_t next = FIRST_PLACE;

    for (int attempt = 0; attempt < 4096 && span <= HALF; attempt++) {
        void *map;
        if (next % (2 * HALF) + span > 2 * HALF || next % (2 * HALF) < HALF)
            next = (next / (2 * HALF) + 1) * (2 * HALF) + HALF;
        if (next + span > LAST_PLACE)
            next = FIRST_PLACE;
        map = mmap((void *)(uintptr_t)next, span, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
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

/* A file of one piece of the pattern, or -1. */
static int pattern_file(void)
{
    static int file = -1;
    char page[PAGE];

    if (file >= 0)
        return file;
    file = memfd_create("fresh memory", MFD_CLOEXEC);
    xpe_emu_spoil(page, sizeof page);
    for (size_t at = 0; file >= 0 && at < PIECE; at += sizeof page)
        if (write(file, page, sizeof page) != (ssize_t)sizeof page) {
            (void)close(file);
            file = -1;
        }
    return file;
}

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Makes a buffer of the pattern and enters it in the table; false when there is no memory. */
static bool make(xpe_emu_memory *m)
{
    size_t inside = rounded(m->bytes), pages = (inside + PAGE - 1) / PAGE * PAGE;

    m->span = pages + 2 * PAGE;
    m->map = place(m->span);
    if (m->map == MAP_FAILED)
        return false;
    m->data = m->map + m->span - PAGE - inside;
    for (size_t at = 0; at < pages; at += PIECE)
        if (mmap(m->map + PAGE + at, pages - at < PIECE ? pages - at : PIECE,
                 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, pattern_file(), 0) == MAP_FAILED)
            m->span = 0;
    if (m->span == 0 || !insert(*m)) {
        (void)munmap(m->map, pages + 2 * PAGE);
        return false;
    }
    POISON(m->map + PAGE, pages);
    return true;
}

/* The pattern beside a buffer. */
static void check_gaps(const xpe_emu_memory *m)
{
    const char *begin = m->map + PAGE, *end = m->map + m->span - PAGE;
    const uint32_t pattern = PATTERN;
    char text[80];

    UNPOISON(begin, (size_t)(end - begin));
    describe(m, text, sizeof text);
    for (const char *at = begin; at < end; at++) {
        if (at == m->data)
            at += m->bytes;
        if (at < end && *at != ((const char *)&pattern)[(at - begin) % 4])
            xpe_emu_die("something was written %s %s, %td bytes from it",
                        at < m->data ? "before" : "behind", text,
                        at < m->data ? m->data - at : at - (m->data + m->bytes) + 1);
    }
}

/* The buffer that a call gives back, which must be the beginning of one of its kind. */
static xpe_emu_memory *to_be_freed(const char *call, const void *data, bool pinned)
{
    xpe_emu_memory *m = holder(data);
    char text[80];

    if (!m)
        xpe_emu_die("%s: %p was not given out", call, data);
    describe(m, text, sizeof text);
    if (m->freed)
        xpe_emu_die("%s: %s has been freed before", call, text);
    if (m->data != data || pinned != (m->device < 0))
        xpe_emu_die("%s: %p lies in %s, which cannot be freed so", call, data, text);
    return m;
}

static void forget_oldest(void)
{
    size_t oldest = count;

    for (size_t i = 0; i < count; i++)
        if (table[i].freed && (oldest == count || table[i].freed_at < table[oldest].freed_at))
            oldest = i;
    freed--;
    freed_bytes -= table[oldest].span;
    take_out(oldest);
}

static void give_back(xpe_emu_memory *m)
{
    check_gaps(m);
    m->freed = true;
    (void)mmap(m->map, m->span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    POISON(m->map + PAGE, m->span - 2 * PAGE);
    m->freed_at = ++frees;
    freed++;
    freed_bytes += m->span;
    while (freed > FREED_KEPT || freed_bytes > FREED_BYTES)
        forget_oldest();
}

/* -------------------------------------------------------------------------- device memory */

static cudaError_t device_alloc(void **out, size_t bytes)
{
    int id = xpe_emu_current();
    xpe_emu_device *d = &xpe_emu.devices[id];
    xpe_emu_memory m = {.bytes = bytes, .device = id};

    if (d->lost)
        return cudaErrorLaunchFailure;
    if (!bytes)
        return cudaSuccess;
    if (bytes > d->bytes || rounded(bytes) > d->bytes - d->used || !make(&m))
        return cudaErrorMemoryAllocation;
    d->used += rounded(bytes);
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

static cudaError_t device_free(void *data)
{
    xpe_emu_memory *m = to_be_freed("cudaFree", data, false);
    int device = m->device;

    xpe_emu_drain("cudaFree", device);
    xpe_emu.devices[device].used -= rounded(m->bytes);
    xpe_emu.live.buffers--;
    xpe_emu.live.device_bytes -= m->bytes;
    give_back(m);
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
    xpe_emu_memory m = {.bytes = bytes, .device = -1};

    if (!bytes)
        return cudaSuccess;
    if (!make(&m))
        return cudaErrorMemoryAllocation;
    UNPOISON(m.data, bytes);
    xpe_emu.live.pinned++;
    *out = m.data;
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
        give_back(to_be_freed("cudaFreeHost", data, true));
        xpe_emu.live.pinned--;
    }
    xpe_emu_leave();
    return xpe_emu_note(fail ? cudaErrorUnknown : cudaSuccess);
}
