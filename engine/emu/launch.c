/* Kernels, copies and memsets: what is checked when they are enqueued, and what they do when they
 * run. */
#include "state.h"
#include "xpe_emu_launch.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* -------------------------------------------------------------------------------- kernels */

typedef struct kernel_work {
    xpe_emu_kernel *kernel;
    const char *name;
    int64_t count;
    size_t bytes;
    _Alignas(max_align_t) char args[];
} kernel_work;

/* Whether the address belongs to the host's own memory: where heaps, stacks and libraries lie, and
 * mapped.  Only every second one is looked at, see memory.c, map_pages. */
static bool is_of_host(uintptr_t address)
{
    unsigned char present;

    return (address & UINT64_C(0x80000000)) && address >= UINT64_C(0x5500) << 32 &&
           address < UINT64_C(1) << 47 &&
           mincore((void *)(address & ~(uintptr_t)4095), 1, &present) == 0;
}

/* The i-th word of the arguments as an address. */
static void *word(const char *args, size_t i)
{
    void *p;

    memcpy(&p, args + i * sizeof p, sizeof p);
    return p;
}

/* Every pointer among the arguments must be one the device can follow. */
static void check_args(const char *name, int device, const char *args, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(void *); i++) {
        const xpe_emu_memory *m = xpe_emu_find(word(args, i));
        size_t at = i * sizeof(void *);

        if (m && m->freed)
            xpe_emu_die("kernel %s on device %d: its arguments, at byte %zu, point at memory of "
                        "device %d that has been freed",
                        name, device, at, m->device);
        if (m && m->device >= 0 && m->device != device &&
            !xpe_emu.devices[device].reaches[m->device])
            xpe_emu_die("kernel %s on device %d: its arguments, at byte %zu, point at memory of "
                        "device %d, to which it has no "
                        "access",
                        name, device, at, m->device);
        if (!m && is_of_host((uintptr_t)word(args, i)))
            xpe_emu_die("kernel %s on device %d: its arguments, at byte %zu, point at memory of "
                        "the host that is not pinned",
                        name, device, at);
    }
}

/* A kernel has the buffers that its arguments point at, and no other. */
static void access_args(const kernel_work *w, void (*access)(const void *data, size_t bytes))
{
    for (size_t i = 0; i < w->bytes / sizeof(void *); i++) {
        const xpe_emu_memory *m = xpe_emu_find(word(w->args, i));
        if (m)
            access(m->data, m->bytes);
    }
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

static void kernel_run(int device, void *args)
{
    static const int64_t grids[] = {1, 3, 64, 1 << 20};
    kernel_work *w = args;
    int64_t most = grids[xpe_emu_below(4)], grid = w->count < most ? w->count : most, stride = 1,
            first;
    xpe_emu_block block = {.grid = grid, .random = (uint32_t)xpe_emu_random()};

    check_args(w->name, device, w->args, w->bytes);
    xpe_emu.counts.kernels++;
    do
        stride = 1 + (int64_t)xpe_emu_below((uint64_t)grid);
    while (common_divisor(stride, grid) != 1);
    first = (int64_t)xpe_emu_below((uint64_t)grid);
    access_args(w, xpe_emu_range_open);
    for (int64_t i = 0; i < grid; i++) {
        block.index = (first + i * stride) % grid;
        w->kernel(&block, w->args);
    }
    access_args(w, xpe_emu_range_close);
}

void xpe_emu_launch(xpe_emu_kernel *kernel, const char *name, int64_t count, cudaStream_t stream,
                    const void *args, size_t bytes)
{
    _Alignas(max_align_t) char memory[sizeof(kernel_work) + 8192];
    kernel_work *w = (kernel_work *)(void *)memory;
    cudaError_t rc = cudaErrorLaunchFailure;

    if (count <= 0)
        return;
    if (bytes > 4096) /* the limit that holds for every architecture */
        xpe_emu_die("kernel %s: %zu bytes of arguments, 4096 are allowed", name, bytes);
    if (!xpe_emu_enter(name)) {
        struct CUstream_st *s = xpe_emu_stream(name, stream);
        if (s->device != xpe_emu_current())
            rc = cudaErrorInvalidResourceHandle;
        else if (!xpe_emu.devices[s->device].lost)
            rc = cudaSuccess;
        if (rc == cudaSuccess) {
            check_args(name, s->device, args, bytes);
            *w = (kernel_work){.kernel = kernel, .name = name, .count = count, .bytes = bytes};
            memcpy(w->args, args, bytes);
            xpe_emu_enqueue(s, name, kernel_run, w, sizeof *w + bytes);
        }
    }
    xpe_emu_leave();
    (void)xpe_emu_note(rc);
}

/* --------------------------------------------------------------------------------- copies */

/* One side of a copy: device memory, or pinned (device -1), or pageable memory that the emulation
 * has copied. */
typedef struct copy_work {
    const char *call;
    char *to;
    const char *from; /* NULL: the bytes behind this struct */
    int to_device, from_device;
    size_t bytes;
    uint64_t *counter;
} copy_work;

static void copy_check(const copy_work *w)
{
    xpe_emu_check(w->call, "the destination", w->to, w->bytes, w->to_device);
    if (w->from)
        xpe_emu_check(w->call, "the source", w->from, w->bytes, w->from_device);
}

static void copy_run(int device, void *args)
{
    copy_work *w = args;
    const char *from = w->from ? w->from : (const char *)(w + 1);

    (void)device;
    copy_check(w);
    xpe_emu_range_open(w->to, w->bytes);
    xpe_emu_range_open(from, w->bytes);
    memmove(w->to, from, w->bytes);
    xpe_emu_range_close(w->to, w->bytes);
    xpe_emu_range_close(from, w->bytes);
    *w->counter += w->bytes;
}

static bool is_pinned(const void *data)
{
    const xpe_emu_memory *m = xpe_emu_find(data);

    return m && m->device < 0;
}

/* From pageable memory: staged at once, as documented; to it: the call returns when the copy is
 * done. */
static void copy_from_pageable(struct CUstream_st *s, copy_work w)
{
    static _Alignas(max_align_t) char small[sizeof(copy_work) + 65536];
    size_t room = sizeof small - sizeof w, bytes = w.bytes;
    const char *from = w.from;
    copy_work *piece = (copy_work *)(void *)small;

    xpe_emu.counts.pageable++;
    for (size_t at = 0; at < bytes; at += piece->bytes) {
        *piece = w;
        piece->from = NULL;
        piece->to = w.to + at;
        piece->bytes = bytes - at < room ? bytes - at : room;
        memcpy(piece + 1, from + at, piece->bytes);
        xpe_emu_enqueue(s, w.call, copy_run, piece, sizeof *piece + piece->bytes);
    }
}

static void copy_to_pageable(struct CUstream_st *s, copy_work w)
{
    xpe_emu.counts.pageable++;
    xpe_emu_drain_stream(w.call, s);
    xpe_emu_check(w.call, "the source", w.from, w.bytes, w.from_device);
    xpe_emu_range_open(w.from, w.bytes);
    memcpy(w.to, w.from, w.bytes);
    xpe_emu_range_close(w.from, w.bytes);
    *w.counter += w.bytes;
}

static void copy_enqueue(struct CUstream_st *s, copy_work w)
{
    copy_check(&w);
    if (w.to_device < 0)
        xpe_emu_pinned_hide(w.to, w.bytes);
    xpe_emu_enqueue(s, w.call, copy_run, &w, sizeof w);
}

static void copy(struct CUstream_st *s, void *to, const void *from, size_t bytes,
                 enum cudaMemcpyKind kind)
{
    static uint64_t uncounted;
    copy_work w = {.call = "cudaMemcpyAsync",
                   .to = to,
                   .from = from,
                   .to_device = s->device,
                   .from_device = s->device,
                   .bytes = bytes,
                   .counter = &uncounted};

    switch (kind) {
    case cudaMemcpyHostToDevice:
        w.counter = &xpe_emu.counts.bytes_up;
        w.from_device = -1;
        xpe_emu_check(w.call, "the destination", to, bytes, s->device);
        if (!is_pinned(from))
            copy_from_pageable(s, w);
        else
            copy_enqueue(s, w);
        return;
    case cudaMemcpyDeviceToHost:
        w.counter = &xpe_emu.counts.bytes_down;
        w.to_device = -1;
        if (!is_pinned(to))
            copy_to_pageable(s, w);
        else
            copy_enqueue(s, w);
        return;
    case cudaMemcpyDeviceToDevice:
        copy_enqueue(s, w);
        return;
    case cudaMemcpyHostToHost:
        break;
    }
    xpe_emu_die("cudaMemcpyAsync: kind %d is not emulated", (int)kind);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t rc = cudaErrorUnknown;

    if (!xpe_emu_enter("cudaMemcpyAsync")) {
        struct CUstream_st *s = xpe_emu_stream("cudaMemcpyAsync", stream);
        rc = xpe_emu.devices[s->device].lost ? cudaErrorLaunchFailure : cudaSuccess;
        if (rc == cudaSuccess && bytes)
            copy(s, to, from, bytes, kind);
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    cudaError_t rc = cudaErrorUnknown;

    if (!xpe_emu_enter("cudaMemcpyPeerAsync")) {
        struct CUstream_st *s = xpe_emu_stream("cudaMemcpyPeerAsync", stream);
        if (to_device < 0 || from_device < 0 || to_device >= xpe_emu.device_count ||
            from_device >= xpe_emu.device_count)
            rc = cudaErrorInvalidDevice;
        else if (xpe_emu.devices[to_device].lost || xpe_emu.devices[from_device].lost)
            rc = cudaErrorLaunchFailure;
        else
            rc = cudaSuccess;
        if (rc == cudaSuccess && s->device != to_device && s->device != from_device)
            xpe_emu_die("cudaMemcpyPeerAsync from device %d to %d on a stream of device %d",
                        from_device, to_device, s->device);
        if (rc == cudaSuccess && bytes)
            copy_enqueue(
                s, (copy_work){.call = "cudaMemcpyPeerAsync",
                               .to = to,
                               .from = from,
                               .to_device = to_device,
                               .from_device = from_device,
                               .bytes = bytes,
                               .counter = &xpe_emu.counts.bytes_peer[from_device][to_device]});
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

/* -------------------------------------------------------------------------------- memsets */

typedef struct set_work {
    void *to;
    int value;
    size_t bytes;
} set_work;

static void set_run(int device, void *args)
{
    const set_work *w = args;

    xpe_emu_check("cudaMemsetAsync", "the destination", w->to, w->bytes, device);
    xpe_emu_range_open(w->to, w->bytes);
    if (w->value)
        memset(w->to, w->value, w->bytes);
    else
        xpe_emu_zero(w->to, w->bytes);
    xpe_emu_range_close(w->to, w->bytes);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    cudaError_t rc = cudaErrorUnknown;

    if (!xpe_emu_enter("cudaMemsetAsync")) {
        struct CUstream_st *s = xpe_emu_stream("cudaMemsetAsync", stream);
        set_work w = {to, value, bytes};
        rc = xpe_emu.devices[s->device].lost ? cudaErrorLaunchFailure : cudaSuccess;
        if (rc == cudaSuccess && bytes) {
            xpe_emu_check("cudaMemsetAsync", "the destination", to, bytes, s->device);
            xpe_emu_enqueue(s, "cudaMemsetAsync", set_run, &w, sizeof w);
        }
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}
