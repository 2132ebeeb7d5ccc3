/* Chunks: the frames of a batch that are in work together.  Included by ops_*.c. */
#ifndef XPE_CUDA_CHUNK_H
#define XPE_CUDA_CHUNK_H

#include "team.h"

/* Chunks of a batch; 0, with the team failed, when there is no work memory for `fields` fields.  A
 * run has it since its amplitudes were sent, and takes none here. */
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

static inline k_chunk xpe_chunk(const xpe_team *team, int device, xpe_batch batch, int modes,
                                int64_t index)
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

/* Zeroes the numbers of a batch's frames, [block] floats, before its first chunk. */
static inline bool xpe_clear(xpe_team *team, int device, float *values, xpe_batch batch,
                             const k_chunk *chunk)
{
    if (chunk->frame != batch.first)
        return true;
    return XPE_CUDA(team, device, cudaMemsetAsync, values + batch.first, 0,
                    (size_t)batch.count * sizeof *values, team->devices[device].stream);
}

#endif
