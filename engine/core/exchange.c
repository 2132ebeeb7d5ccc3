/* The two movements between devices (algorithm.md 4): partial sums of windows to the owners of the
 * bands, finished rows of the bands to the windows; only the rows that overlap move. */
#include "state.h"

#include "backend/util.h"

xpe_status xpe_exchange_sum(xpe_run *run, xpe_sum_array array, xpe_error *err)
{
    size_t row_bytes = (size_t)run->cols * (array == XPE_SUM_REAL ? 1 : 2) * sizeof(int64_t);
    xpe_status st = XPE_OK;

    XPE_TRY(xpe_state_wait(run, err));
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *owner = &run->shards[g];
        int64_t band_stop = owner->band_first + owner->band_rows;
        run->backend->zero(run->team, owner->fix);
        for (int h = 0; h < run->plan->count; h++) {
            const xpe_shard *peer = &run->shards[h];
            int64_t lo = xpe_max64(owner->band_first, peer->window_first);
            int64_t hi = xpe_min64(band_stop, peer->window_first + peer->window_rows);
            for (int k = 0; lo < hi && k < run->modes; k++)
                run->backend->sums_gather(run->team, owner->fix, g,
                                          (size_t)(k * owner->band_rows + lo - owner->band_first) *
                                              row_bytes,
                                          peer->sums, k, array, lo - peer->window_first, hi - lo);
        }
    }
done:
    return st;
}

xpe_status xpe_exchange_windows(xpe_run *run, size_t band, size_t window, xpe_error *err)
{
    size_t row_bytes = (size_t)run->cols * sizeof(xpe_c32);
    xpe_status st = XPE_OK;

    XPE_TRY(xpe_state_wait(run, err));
    for (int h = 0; h < run->plan->count; h++) {
        const xpe_shard *to = &run->shards[h];
        for (int g = 0; g < run->plan->count; g++) {
            const xpe_shard *owner = &run->shards[g];
            int64_t lo = xpe_max64(owner->band_first, to->window_first);
            int64_t hi =
                xpe_min64(owner->band_first + owner->band_rows, to->window_first + to->window_rows);
            if (lo < hi)
                run->backend->copy(
                    run->team, xpe_shard_buffer(to, window),
                    (size_t)(lo - to->window_first) * row_bytes, xpe_shard_buffer(owner, band),
                    (size_t)(lo - owner->band_first) * row_bytes, (size_t)(hi - lo) * row_bytes);
        }
    }
done:
    return st;
}

xpe_status xpe_exchange_probe_sum(xpe_run *run, xpe_sum_array array, size_t to, int modes,
                                  xpe_error *err)
{
    size_t plane = (size_t)(run->n * run->n) * (array == XPE_SUM_REAL ? 1 : 2) * sizeof(int64_t);
    xpe_buffer *buffer = xpe_shard_buffer(&run->shards[0], to);
    xpe_status st = XPE_OK;

    XPE_TRY(xpe_state_wait(run, err));
    run->backend->zero(run->team, buffer);
    for (int h = 0; h < run->plan->count; h++)
        for (int k = 0; k < modes; k++)
            run->backend->sums_gather(run->team, buffer, 0, (size_t)k * plane,
                                      run->shards[h].probe_sums, k, array, 0, run->n);
done:
    return st;
}

xpe_status xpe_exchange_broadcast(xpe_run *run, size_t member, size_t bytes, xpe_error *err)
{
    xpe_status st = XPE_OK;

    if (run->plan->count == 1)
        return XPE_OK;
    XPE_TRY(xpe_state_wait(run, err));
    for (int g = 1; g < run->plan->count; g++)
        run->backend->copy(run->team, xpe_shard_buffer(&run->shards[g], member), 0,
                           xpe_shard_buffer(&run->shards[0], member), 0, bytes);
done:
    return st;
}
