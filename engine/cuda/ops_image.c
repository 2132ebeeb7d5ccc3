/* Operations that need no transform: amplitudes, averages on bands, modes. */
#include "chunk.h"
#include "fft.h"

#include <string.h>

/* ---------------------------------------------------------------------------- amplitudes */

/* Masks that travel with `frames` frames. */
static int64_t masks(const xpe_amplitude_args *a, int64_t frames)
{
    return !a->mask ? 0 : (a->mask_per_frame ? frames : 1);
}

/* Frames that one slab takes, with their masks. */
static int64_t slab_frames(const xpe_team *team, int device, const xpe_amplitude_args *a)
{
    const xpe_cuda_device *d = &team->devices[device];
    int64_t plane = team->n * team->n, frame = plane * (int64_t)xpe_type_size(a->type);
    int64_t room = (int64_t)d->slab_bytes - (a->mask && !a->mask_per_frame ? plane : 0);
    int64_t count = room / (frame + (a->mask && a->mask_per_frame ? plane : 0));

    return count < d->frames ? count : d->frames;
}

/* Gathers frames and masks in the order of the block; frames first, which keeps them aligned. */
static void fill_slab(char *slab, const xpe_team *team, const xpe_amplitude_args *a, k_chunk chunk)
{
    size_t plane = (size_t)(team->n * team->n), frame = plane * xpe_type_size(a->type);
    char *mask = slab + (size_t)chunk.count * frame;

    for (int64_t i = 0; i < chunk.count; i++) {
        size_t j = (size_t)a->order[chunk.frame + i];
        memcpy(slab + (size_t)i * frame, (const char *)a->frames + j * frame, frame);
        if (a->mask && a->mask_per_frame)
            memcpy(mask + (size_t)i * plane, a->mask + j * plane, plane);
    }
    if (a->mask && !a->mask_per_frame)
        memcpy(mask, a->mask, plane);
}

static void amplitudes_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_amplitude_args *a = &op->args.amplitude;
    xpe_cuda_device *d = &team->devices[device];
    int64_t most = slab_frames(team, device, a), left = a->batch.count - index * most;
    k_chunk chunk = {.n = (int)team->n,
                     .frame = a->batch.first + index * most,
                     .count = left < most ? left : most,
                     .block = a->batch.block};
    size_t plane = (size_t)(team->n * team->n),
           frames = (size_t)chunk.count * plane * xpe_type_size(a->type);
    k_amplitude_args amplitude = {.chunk = chunk,
                                  .raw = d->raw,
                                  .type = (int)a->type,
                                  .mask = a->mask ? (const uint8_t *)d->raw + frames : NULL,
                                  .mask_per_frame = a->mask_per_frame,
                                  .saturation = a->saturation,
                                  .y = xpe_data(a->y),
                                  .partial = d->partial,
                                  .partial_masked = d->partial_masked};
    k_finish_args finish = {.chunk = chunk,
                            .partial = d->partial,
                            .partial_masked = d->partial_masked,
                            .out = xpe_data(a->energy),
                            .out_masked = xpe_data(a->masked),
                            .step = 1};
    char *slab = xpe_cuda_slab_take(team, device);

    if (!slab)
        return;
    fill_slab(slab, team, a, chunk);
    if (!XPE_CUDA(team, device, cudaMemcpyAsync, d->raw, slab,
                  frames + (size_t)masks(a, chunk.count) * plane, cudaMemcpyHostToDevice,
                  d->stream))
        return;
    xpe_cuda_slab_sent(team, device);
    if (!team->failed && XPE_RUN(team, device, amplitude, &amplitude))
        (void)XPE_RUN(team, device, finish, &finish);
}

/* The first operation of a run, and the first that knows how many frames a device has: work memory
 * is taken here. */
void xpe_cuda_amplitudes(xpe_team *team, int device, const xpe_amplitude_args *args)
{
    xpe_cuda_op op = {.run = amplitudes_run};
    int64_t frames;

    if (xpe_chunks(team, device, args->batch, 1) < 1)
        return;
    frames = slab_frames(team, device, args);
    op.chunks = (args->batch.count + frames - 1) / frames;
    op.args.amplitude = *args;
    xpe_cuda_enqueue(team, device, &op);
}

/* -------------------------------------------------------------------------------- bands */

static void average_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_average_args *a = &op->args.average;
    k_average_args args = {.modes = a->modes,
                           .rows = a->rows,
                           .cols = a->cols,
                           .two_rho = a->two_rho,
                           .w = xpe_data(a->w),
                           .v = xpe_data(a->v),
                           .l = xpe_data(a->l),
                           .count = xpe_data(a->count),
                           .numbers = xpe_data(a->numbers),
                           .z = xpe_data(a->z),
                           .image = xpe_data(a->image),
                           .row_energy = (double *)xpe_data(a->row_energy) + a->row,
                           .row_max = xpe_data(a->row_max)};

    (void)index;
    (void)XPE_RUN(team, device, average, &args);
}

static void unfix_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_unfix_args *a = &op->args.unfix;
    k_unfix_args args = {.modes = a->modes,
                         .rows = a->rows,
                         .width = a->cols * a->components,
                         .cover = a->components == 1,
                         .sum = xpe_data(a->sum),
                         .out = xpe_data(a->out),
                         .numbers = xpe_data(a->numbers)};

    (void)index;
    if (a->row_energy)
        args.row_energy = (double *)xpe_data(a->row_energy) + a->row * a->modes;
    (void)XPE_RUN(team, device, unfix, &args);
}

/* -------------------------------------------------------------------------------- modes */

static void mode_average_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_mode_average_args *a = &op->args.mode_average;
    k_mode_average_args args = {.modes = a->modes,
                                .n = (int)team->n,
                                .num_frames = a->num_frames,
                                .two_rho = a->two_rho,
                                .r = xpe_data(a->r),
                                .s = xpe_data(a->s),
                                .u = xpe_data(a->u),
                                .d = xpe_data(a->d),
                                .before = xpe_data(a->before),
                                .row_max = xpe_data(a->row_max),
                                .numbers = xpe_data(a->numbers)};

    (void)index;
    (void)XPE_RUN(team, device, mode_average, &args);
}

static void mode_deviation_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_mode_deviation_args *a = &op->args.mode_deviation;
    k_mode_deviation_args args = {.modes = a->modes,
                                  .n = (int)team->n,
                                  .num_frames = a->num_frames,
                                  .sum = xpe_data(a->sum),
                                  .deviation = xpe_data(a->deviation),
                                  .numbers = xpe_data(a->numbers)};

    (void)index;
    (void)XPE_RUN(team, device, mode_deviation, &args);
}

static void mode_energy_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_mode_energy_args *a = &op->args.mode_energy;
    k_mode_energy_args args = {a->modes, (int)team->n, xpe_data(a->d), xpe_data(a->row_energy)};

    (void)index;
    (void)XPE_RUN(team, device, mode_energy, &args);
}

static void mode_derive_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_mode_derive_args *a = &op->args.mode_derive;
    k_mode_derive_args args = {.modes = a->modes,
                               .n = (int)team->n,
                               .kappa = a->kappa,
                               .alpha = a->alpha,
                               .d = xpe_data(a->d),
                               .probe = xpe_data(a->probe),
                               .divider = xpe_data(a->divider),
                               .weight = xpe_data(a->weight),
                               .row_max = xpe_data(a->row_max),
                               .numbers = xpe_data(a->numbers)};

    (void)index;
    (void)XPE_RUN(team, device, mode_derive, &args);
}

#define ENQUEUE(name)                                                                              \
    void xpe_cuda_##name(xpe_team *team, int device, const xpe_##name##_args *args)                \
    {                                                                                              \
        xpe_cuda_op op = {.run = name##_run, .chunks = 1};                                         \
        op.args.name = *args;                                                                      \
        xpe_cuda_enqueue(team, device, &op);                                                       \
    }
ENQUEUE(average)
ENQUEUE(unfix)
ENQUEUE(mode_average)
ENQUEUE(mode_deviation)
ENQUEUE(mode_energy)
ENQUEUE(mode_derive)
