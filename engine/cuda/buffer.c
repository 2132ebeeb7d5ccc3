/* Device and pinned memory: buffers, work memory, sending and reading. */
#include "team.h"

#include "fft.h"

#include "backend/util.h"

#include <stdio.h>
#include <string.h>

#define MIB 1048576.0

/* ---------------------------------------------------------------------------- device memory */

static xpe_status no_memory(xpe_team *team, int device, size_t bytes, xpe_error *err)
{
    const char *name = team->devices[device].name;
    size_t bytes_free = 0, bytes_total = 0;

    (void)cudaGetLastError();
    if (cudaMemGetInfo(&bytes_free, &bytes_total) != cudaSuccess)
        (void)cudaGetLastError();
    (void)xpe_fail(err, XPE_NO_DEVICE_MEMORY, "/devices",
                   "device '%s' has no %.1f MiB more: the run has %.1f MiB on its devices, %.1f of "
                   "%.1f MiB are free; fewer "
                   "probe modes, smaller frames or more devices would fit",
                   name, (double)bytes / MIB, (double)team->bytes_now / MIB,
                   (double)bytes_free / MIB, (double)bytes_total / MIB);
    if (err) {
        snprintf(err->device, sizeof err->device, "%s", name);
        err->bytes_needed = (int64_t)bytes;
        err->bytes_free = (int64_t)bytes_free;
    }
    return XPE_NO_DEVICE_MEMORY;
}

xpe_status xpe_cuda_alloc(void *out, xpe_team *team, int device, size_t bytes, xpe_error *err)
{
    void *data = NULL;
    cudaError_t rc;

    *(void **)out = NULL;
    if (!xpe_cuda_use(team, device))
        goto failed;
    rc = cudaMalloc(&data, bytes ? bytes : 1);
    if (rc == cudaErrorMemoryAllocation)
        return no_memory(team, device, bytes, err);
    if (!xpe_cuda_ok(team, device, "cudaMalloc", rc))
        goto failed;
    team->devices[device].busy = true;
    team->devices[device].ends_arrived = false;
    if (!XPE_CUDA(team, device, cudaMemsetAsync, data, 0, bytes ? bytes : 1,
                  team->devices[device].stream)) {
        (void)cudaFree(data);
        goto failed;
    }
    team->bytes_now += (int64_t)bytes;
    team->bytes_peak = xpe_max64(team->bytes_peak, team->bytes_now);
    *(void **)out = data;
    return XPE_OK;
failed:
    if (err)
        *err = team->failure;
    return team->failure.status;
}

void xpe_cuda_free(xpe_team *team, int device, void *data, size_t bytes)
{
    if (!data)
        return;
    xpe_cuda_settle(team);
    if (team->hung) /* would block for ever: given up with the device */
        return;
    (void)cudaSetDevice(team->devices[device].id);
    (void)cudaFree(data);
    team->bytes_now -= (int64_t)bytes;
}

xpe_status xpe_cuda_buffer_create(xpe_buffer **out, xpe_team *team, int device, size_t bytes,
                                  xpe_error *err)
{
    xpe_buffer *buffer = NULL;
    xpe_status st;

    *out = NULL;
    XPE_TRY(xpe_new(&buffer, 1, sizeof *buffer, err));
    buffer->team = team;
    buffer->device = device;
    buffer->bytes = bytes;
    XPE_TRY(xpe_cuda_alloc(&buffer->data, team, device, bytes, err));
    *out = buffer;
    buffer = NULL;
done:
    xpe_cuda_buffer_destroy(buffer);
    return st;
}

void xpe_cuda_buffer_destroy(xpe_buffer *buffer)
{
    if (!buffer)
        return;
    xpe_cuda_free(buffer->team, buffer->device, buffer->data, buffer->bytes);
    free(buffer);
}

/* ------------------------------------------------------------------------------------ sums */

static size_t sum_bytes(const xpe_sums_desc *d, int array)
{
    return (size_t)(d->modes * d->rows * d->cols * (array == XPE_SUM_REAL ? 1 : 2)) *
           sizeof(int64_t);
}

xpe_status xpe_cuda_sums_create(xpe_sums **out, xpe_team *team, int device,
                                const xpe_sums_desc *desc, xpe_error *err)
{
    const bool wanted[3] = {desc->complex_a, desc->complex_b, desc->real};
    xpe_sums *sums = NULL;
    xpe_status st;

    *out = NULL;
    XPE_TRY(xpe_new(&sums, 1, sizeof *sums, err));
    sums->team = team;
    sums->device = device;
    sums->desc = *desc;
    sums->desc.first = NULL; /* borrowed, and not needed: one window serves all frames */
    for (int i = 0; i < 3; i++)
        if (wanted[i])
            XPE_TRY(xpe_cuda_alloc(&sums->array[i], team, device, sum_bytes(desc, i), err));
    /* sums of probe-sized arrays are wanted where the probe is estimated: step 4 has two fields in
     * work */
    XPE_TRY(xpe_cuda_work(team, device, desc->block, desc->first ? 1 : 2, err));
    *out = sums;
    sums = NULL;
done:
    xpe_cuda_sums_destroy(sums);
    return st;
}

void xpe_cuda_sums_destroy(xpe_sums *sums)
{
    if (!sums)
        return;
    for (int i = 0; i < 3; i++)
        xpe_cuda_free(sums->team, sums->device, sums->array[i], sum_bytes(&sums->desc, i));
    free(sums);
}

static void zero_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    void *at = op->args.zero.at[index];

    if (at)
        (void)XPE_CUDA(team, device, cudaMemsetAsync, at, 0, op->args.zero.bytes[index],
                       team->devices[device].stream);
}

void xpe_cuda_sums_clear(xpe_team *team, int device, xpe_sums *sums)
{
    xpe_cuda_op op = {.run = zero_run, .chunks = 3};

    for (int i = 0; i < 3; i++) {
        op.args.zero.at[i] = sums->array[i];
        op.args.zero.bytes[i] = sum_bytes(&sums->desc, i);
    }
    xpe_cuda_enqueue(team, device, &op);
}

void xpe_cuda_zero(xpe_team *team, xpe_buffer *buffer)
{
    xpe_cuda_op op = {.run = zero_run, .chunks = 1};

    op.args.zero.at[0] = buffer->data;
    op.args.zero.bytes[0] = buffer->bytes;
    xpe_cuda_enqueue(team, buffer->device, &op);
}

/* ----------------------------------------------------------------------------- work memory */

/* Enough to fill a device (XPE_FIELD_PIXELS), by a rule of the frame side alone. */
int64_t xpe_cuda_frames(int64_t n)
{
    int64_t frames = XPE_FIELD_PIXELS / (n * n),
            most = xpe_cuda_own(n) ? XPE_FIELD_PIXELS : XPE_PLAN_FRAMES;

    return frames < 1 ? 1 : (frames < most ? frames : most);
}

/* Frames that fields have room for.  Our own transforms work on those that exist, and on fewer
 * where memory is short, since a frame's bits are its own.  cuFFT's plans always have the same
 * number: it may treat another one by other kernels, and bits would depend on what is free. */
static int64_t field_frames(int64_t n, int64_t block, int64_t frame_bytes, int64_t room)
{
    int64_t frames = xpe_cuda_frames(n);

    if (!xpe_cuda_own(n))
        return frames;
    return xpe_max64(1, xpe_min64(xpe_min64(frames, block), room / frame_bytes));
}

xpe_status xpe_cuda_work(xpe_team *team, int device, int64_t block, int fields, xpe_error *err)
{
    xpe_cuda_device *d = &team->devices[device];
    size_t parts, field;
    xpe_status st = XPE_OK;

    if (!d->frames)
        d->frames = field_frames(team->n, block, 1, INT64_MAX);
    field = (size_t)(team->modes * d->frames * team->n * team->n) * sizeof(xpe_c32);
    parts = (size_t)(d->frames * xpe_cuda_segments(team->n)) * 8;
    for (int i = 0; i < fields; i++)
        if (!d->field[i])
            XPE_TRY(xpe_cuda_alloc(&d->field[i], team, device, field, err));
    if (!d->partial)
        XPE_TRY(xpe_cuda_alloc(&d->partial, team, device, parts, err));
    if (!d->partial_masked)
        XPE_TRY(xpe_cuda_alloc(&d->partial_masked, team, device, parts, err));
    if (!d->raw)
        XPE_TRY(xpe_cuda_alloc(&d->raw, team, device, d->slab_bytes, err));
    if (!d->stage && team->device_count > 1)
        XPE_TRY(xpe_cuda_alloc(&d->stage, team, device, XPE_STAGE_BYTES, err));
    if (!d->fft_area && !xpe_cuda_own(team->n)) {
        XPE_TRY(xpe_cuda_fft_area(&d->fft_bytes, d->id, team->n, err));
        XPE_TRY(xpe_cuda_alloc(&d->fft_area, team, device, d->fft_bytes, err));
    }
    if (!d->twiddle && xpe_cuda_own(team->n)) {
        XPE_TRY(xpe_cuda_alloc(&d->twiddle, team, device, (size_t)team->n * sizeof(xpe_c32), err));
        if (!xpe_cuda_fft_send_twiddle(team, device)) {
            if (err)
                *err = team->failure;
            st = team->failure.status;
        }
    }
done:
    return st;
}

xpe_status xpe_cuda_work_bytes(xpe_work *out, const char *name, int64_t n, int modes,
                               int64_t frames, bool known, bool alone, int64_t room, xpe_error *err)
{
    int64_t frame =
        n * n * (int64_t)sizeof(xpe_c32) * modes * (known ? 1 : 2) + xpe_cuda_segments(n) * 16;
    int64_t rest = (int64_t)xpe_cuda_slab_bytes(n) + (alone ? 0 : (int64_t)XPE_STAGE_BYTES);
    size_t area = 0;
    xpe_status st = XPE_OK;

    if (xpe_cuda_own(n))
        rest += n * (int64_t)sizeof(xpe_c32);
    else
        st = xpe_cuda_fft_area(&area, xpe_cuda_number(name), n, err);
    rest += (int64_t)area;
    out->frames = field_frames(n, frames, frame, room - rest);
    out->bytes = out->frames * frame + rest;
    return st;
}

void xpe_cuda_set_chunk(xpe_team *team, int device, int64_t frames)
{
    team->devices[device].frames = frames;
}

/* --------------------------------------------------------------------------------- sending */

size_t xpe_cuda_slab_bytes(int64_t n)
{
    size_t frame = (size_t)(n * n) * 9; /* one frame of doubles and its mask */

    return frame > XPE_SLAB_BYTES ? frame : XPE_SLAB_BYTES;
}

char *xpe_cuda_slab_take(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    if (d->slab_sending[d->slab_next] && !xpe_cuda_await(team, device, d->slab_sent[d->slab_next]))
        return NULL;
    d->slab_sending[d->slab_next] = false;
    return d->slab[d->slab_next];
}

void xpe_cuda_slab_sent(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    if (!XPE_CUDA(team, device, cudaEventRecord, d->slab_sent[d->slab_next], d->stream))
        return;
    d->slab_sending[d->slab_next] = true;
    d->slab_next = !d->slab_next;
}

static void upload_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    xpe_cuda_device *d = &team->devices[device];
    size_t at = (size_t)index * d->slab_bytes, left = op->args.copy.bytes - at,
           bytes = left < d->slab_bytes ? left : d->slab_bytes;
    char *slab = xpe_cuda_slab_take(team, device);

    if (!slab)
        return;
    memcpy(slab, op->args.copy.host + at, bytes);
    if (XPE_CUDA(team, device, cudaMemcpyAsync, op->args.copy.device + at, slab, bytes,
                 cudaMemcpyHostToDevice, d->stream))
        xpe_cuda_slab_sent(team, device);
}

void xpe_cuda_upload(xpe_team *team, xpe_buffer *to, size_t offset, const void *from, size_t bytes)
{
    size_t slab = team->devices[to->device].slab_bytes;
    xpe_cuda_op op = {.run = upload_run, .chunks = (int64_t)((bytes + slab - 1) / slab)};

    op.args.copy.device = to->data + offset;
    op.args.copy.host = from;
    op.args.copy.bytes = bytes;
    xpe_cuda_enqueue(team, to->device, &op);
}

/* --------------------------------------------------------------------------------- reading */

static bool note_arrival(xpe_team *team, xpe_cuda_device *d, char *to, size_t bytes)
{
    if (d->arrival_count == d->arrival_room) {
        int room = d->arrival_room ? 2 * d->arrival_room : 16;
        xpe_arrival *arrivals = realloc(d->arrivals, (size_t)room * sizeof *arrivals);
        if (!arrivals) {
            xpe_cuda_fail(team, XPE_NO_MEMORY,
                          "host memory is exhausted while data was read from '%s'", d->name);
            return false;
        }
        d->arrivals = arrivals;
        d->arrival_room = room;
    }
    d->arrivals[d->arrival_count++] = (xpe_arrival){to, d->down_used, bytes};
    d->down_used += (bytes + 15) / 16 * 16;
    return true;
}

void xpe_cuda_deliver(xpe_cuda_device *d)
{
    for (int i = 0; i < d->arrival_count; i++)
        memcpy(d->arrivals[i].to, d->down + d->arrivals[i].at, d->arrivals[i].bytes);
    d->arrival_count = 0;
    d->down_used = 0;
}

static void download_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    xpe_cuda_device *d = &team->devices[device];
    size_t at = (size_t)index * XPE_DOWN_BYTES, left = op->args.copy.bytes - at,
           bytes = left < XPE_DOWN_BYTES ? left : XPE_DOWN_BYTES;

    if (d->down_used + bytes > XPE_DOWN_BYTES && !xpe_cuda_finish(team, device))
        return;
    if (XPE_CUDA(team, device, cudaMemcpyAsync, d->down + d->down_used, op->args.copy.device + at,
                 bytes, cudaMemcpyDeviceToHost, d->stream) &&
        note_arrival(team, d, op->args.copy.host_to + at, bytes))
        d->ends_arrived = XPE_CUDA(team, device, cudaEventRecord, d->arrived, d->stream);
}

void xpe_cuda_download(xpe_team *team, void *to, const xpe_buffer *from, size_t offset,
                       size_t bytes)
{
    xpe_cuda_op op = {.run = download_run,
                      .chunks = (int64_t)((bytes + XPE_DOWN_BYTES - 1) / XPE_DOWN_BYTES)};

    op.args.copy.device = from->data + offset;
    op.args.copy.host_to = to;
    op.args.copy.bytes = bytes;
    xpe_cuda_enqueue(team, from->device, &op);
}
