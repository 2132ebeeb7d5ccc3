/* Chunks: the frames of a batch that are in work together.  Included by ops_*.c. */
#ifndef XPE_CUDA_CHUNK_H
#define XPE_CUDA_CHUNK_H

#include "team.h"

/* Chunks of a batch; 0, with the team failed, when there is no work memory for `fields` fields.  A run has it since its
 * amplitudes were sent, and takes none here. */
static inline int64_t xpe_chunks(xpe_team *team, int device, xpe_batch batch, int fields)
{
    int64_t frames;
    xpe_error err;

    if (team->failed)
        return 0;
    if (xpe_cuda_work(team, device, batch.block, fields, &err) != XPE_OK) {
        xpe_cuda_fail(team, err.status, "%s", err.text);
        team->failure = err;
        return 0;
    }
    frames = team->devices[device].frames;
    return (batch.count + frames - 1) / frames;
}

static inline k_chunk xpe_chunk(const xpe_team *team, int device, xpe_batch batch, int modes, int64_t index)
{
    int64_t frames = team->devices[device].frames, left = batch.count - index * frames;

    return (k_chunk){.n = (int)team->n,
                     .modes = modes,
                     .frame = batch.first + index * frames,
                     .count = left < frames ? left : frames,
                     .block = batch.block,
                     .stride = frames * team->n * team->n,
                     .twiddle = team->devices[device].twiddle};
}

static inline k_place xpe_place(const xpe_buffer *first, int64_t cols)
{
    return (k_place){xpe_data(first), cols};
}

static inline void xpe_units(k_unit *out, const xpe_unit *units, int modes)
{
    for (int k = 0; units && k < modes; k++)
        out[k] = (k_unit){units[k].magic, units[k].bias};
}

/* Every kernel of an operation is enqueued unless one before it has failed. */
static inline bool xpe_clear(xpe_team *team, int device, void *at, size_t bytes)
{
    return XPE_CUDA(team, device, cudaMemsetAsync, at, 0, bytes, team->devices[device].stream);
}

#endif
