/* The probe side of the iteration (algorithm.md 3, steps 4, 5 and 6).  Steps 5 and 6 stay pending:
 * the copies receive them when step 4 of the next iteration reads them. */
#include "state.h"

#include "backend/util.h"

static xpe_copy_state copy_state(const xpe_run *run, const xpe_shard *s)
{
    return (xpe_copy_state){s->s, run->pending, s->u, s->d, s->deviation, (float)xpe_two_rho(run)};
}

/* Frames [first, stop) of a block. */
static void fit_frames(xpe_run *run, int g, int64_t first, int64_t stop)
{
    const xpe_shard *s = &run->shards[g];
    xpe_probe_args args = {.modes = run->modes,
                           .batch = {.first = first},
                           .copy = copy_state(run, s),
                           .one_minus_alpha = (float)(1 - run->stage.probe_data_fit),
                           .alpha = (float)run->stage.probe_data_fit,
                           .two_rho = (float)xpe_two_rho(run),
                           .cols = run->cols,
                           .first = s->first,
                           .y = s->y,
                           .image = s->image,
                           .probe = s->probe,
                           .sums = s->probe_sums,
                           .numbers = s->numbers,
                           .s_energy = s->s_energy};

    while (xpe_state_next_batch_of(run, s, stop, &args.batch))
        run->backend->probe_fit(run->team, g, &args);
}

/* Step 4.  Frames within the band first: rows of z and x-bar still come in from other devices. */
static void fit_copies(xpe_run *run)
{
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        run->backend->sums_clear(run->team, g, s->probe_sums);
        fit_frames(run, g, s->above, s->below);
    }
    xpe_exchange_join(run);
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        fit_frames(run, g, 0, s->above);
        fit_frames(run, g, s->below, s->frames);
    }
}

/* u_k and the new d_k on their owner, then everywhere, with the largest u and copy. */
static xpe_status average_copies(xpe_run *run, xpe_error *err)
{
    const xpe_shard *owner = &run->shards[0];
    size_t bytes = (size_t)(run->modes * run->n * run->n) * sizeof(xpe_c32);
    xpe_mode_average_args args = {.modes = run->modes,
                                  .num_frames = (double)run->num_frames,
                                  .two_rho = xpe_two_rho(run),
                                  .numbers = owner->numbers,
                                  .r = owner->probe_fix_r,
                                  .s = owner->probe_fix_s,
                                  .u = owner->u,
                                  .d = owner->d,
                                  .before = run->modes_kept ? NULL : owner->d_before,
                                  .row_max = owner->u_max};
    xpe_status st;

    XPE_TRY(xpe_exchange_probe_sum(run, XPE_SUM_A, XPE_AT(probe_fix_r), run->modes, err));
    XPE_TRY(xpe_exchange_probe_sum(run, XPE_SUM_B, XPE_AT(probe_fix_s), run->modes, err));
    run->backend->mode_average(run->team, 0, &args);
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_maxima_args most = {.slot = g,
                                .floats_count = run->modes * s->frames,
                                .doubles_count = run->modes * run->n,
                                .floats = s->s_energy,
                                .doubles = s->u_max,
                                .columns = 1,
                                .out = s->maxima};
        run->backend->maxima(run->team, g, &most);
    }
    XPE_TRY(xpe_exchange_broadcast(run, XPE_AT(u), bytes, err));
    XPE_TRY(xpe_exchange_broadcast(run, XPE_AT(d), bytes, err));
    XPE_TRY(xpe_exchange_numbers(run, true, 0, 0, err));
    xpe_numbers_update(run, XPE_NUMBERS_COPIES, run->iteration + 1);
done:
    return st;
}

static xpe_status measure_deviations(xpe_run *run, xpe_error *err)
{
    const xpe_shard *owner = &run->shards[0];
    size_t bytes = (size_t)(run->modes * run->n * run->n) * sizeof(float);
    xpe_mode_deviation_args args = {run->modes, (double)run->num_frames, owner->numbers,
                                    owner->probe_fix_r, owner->deviation};
    xpe_status st;

    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_deviation_args deviation = {
            .modes = run->modes,
            .copy = {s->s, true, s->u, s->d, NULL, (float)xpe_two_rho(run)},
            .sums = s->probe_sums,
            .numbers = s->numbers};
        run->backend->sums_clear(run->team, g, s->probe_sums);
        while (xpe_state_next_batch(run, s, &deviation.batch))
            run->backend->deviation(run->team, g, &deviation);
    }
    XPE_TRY(xpe_exchange_probe_sum(run, XPE_SUM_REAL, XPE_AT(probe_fix_r), run->modes, err));
    run->backend->mode_deviation(run->team, 0, &args);
    XPE_TRY(xpe_exchange_broadcast(run, XPE_AT(deviation), bytes, err));
done:
    return st;
}

xpe_status xpe_probe_step(xpe_run *run, xpe_error *err)
{
    xpe_status st;

    fit_copies(run);
    XPE_TRY(average_copies(run, err));
    xpe_modes_derive(run);
    XPE_TRY(measure_deviations(run, err));
    run->pending = true;
done:
    return st;
}
