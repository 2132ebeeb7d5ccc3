/* The two movements between devices (algorithm.md 4): partial sums of windows to the owners of the
 * bands, finished rows of the bands to the windows; only the rows that overlap move. */
#include "state.h"

#include "backend/util.h"

/* Adds what shard h has of the band of shard g to `to`. */
static void gather(xpe_run *run, xpe_sum_array array, size_t to, int g, int h)
{
    size_t row_bytes = (size_t)run->cols * (array == XPE_SUM_REAL ? 1 : 2) * sizeof(int64_t);
    const xpe_shard *owner = &run->shards[g], *peer = &run->shards[h];
    int64_t lo = xpe_max64(owner->band_first, peer->window_first);
    int64_t hi =
        xpe_min64(owner->band_first + owner->band_rows, peer->window_first + peer->window_rows);

    for (int k = 0; lo < hi && k < run->modes; k++)
        run->backend->sums_gather(run->team, xpe_shard_buffer(owner, to), g,
                                  (size_t)(k * owner->band_rows + lo - owner->band_first) *
                                      row_bytes,
                                  peer->sums, k, array, lo - peer->window_first, hi - lo);
}

/* Fills the rows of shard h's window that are in the band of shard g. */
static void fill_window(xpe_run *run, size_t band, size_t window, int h, int g)
{
    size_t row_bytes = (size_t)run->cols * sizeof(xpe_c32);
    const xpe_shard *owner = &run->shards[g], *to = &run->shards[h];
    int64_t lo = xpe_max64(owner->band_first, to->window_first);
    int64_t hi =
        xpe_min64(owner->band_first + owner->band_rows, to->window_first + to->window_rows);

    if (lo < hi)
        run->backend->copy(
            run->team, xpe_shard_buffer(to, window), (size_t)(lo - to->window_first) * row_bytes,
            xpe_shard_buffer(owner, band), (size_t)(lo - owner->band_first) * row_bytes,
            (size_t)(hi - lo) * row_bytes);
}

xpe_status xpe_exchange_sum(xpe_run *run, xpe_sum_array array, xpe_error *err)
{
    xpe_status st = XPE_OK;

    XPE_TRY(xpe_state_order(run, err));
    for (int g = 0; g < run->plan->count; g++) {
        run->backend->zero(run->team, run->shards[g].fix);
        for (int h = 0; h < run->plan->count; h++)
            gather(run, array, XPE_AT(fix), g, h);
    }
done:
    return st;
}

xpe_status xpe_exchange_windows(xpe_run *run, size_t band, size_t window, xpe_error *err)
{
    xpe_status st = XPE_OK;

    XPE_TRY(xpe_state_wait(run, err));
    for (int h = 0; h < run->plan->count; h++)
        for (int g = 0; g < run->plan->count; g++)
            fill_window(run, band, window, h, g);
done:
    return st;
}

/* ---------------------------------------------------------------------- beside the batches */

bool xpe_exchange_overlaps(const xpe_run *run)
{
    return run->backend->beside && run->plan->count > 1;
}

void xpe_exchange_join(xpe_run *run)
{
    if (run->beside)
        run->backend->beside(run->team, false);
    run->beside = false;
}

static void begin_beside(xpe_run *run)
{
    run->backend->beside(run->team, true);
    run->beside = true;
}

/* The arrays of a trip with step 1, and where the core keeps what they are turned into. */
static int sums_of_trip(int flags, xpe_sum_array arrays[3], size_t to[3])
{
    int count = 0;

    if (flags & XPE_FIT_SUM_L) {
        arrays[count] = XPE_SUM_REAL;
        to[count++] = XPE_AT(l_sum);
    }
    if (flags & XPE_FIT_SUM_V) {
        arrays[count] = XPE_SUM_B;
        to[count++] = XPE_AT(v_sum);
    }
    arrays[count] = XPE_SUM_A;
    to[count++] = XPE_AT(fix);
    return count;
}

void xpe_exchange_early_clear(xpe_run *run, int flags)
{
    xpe_sum_array arrays[3];
    size_t to[3];
    int count = sums_of_trip(flags, arrays, to);

    for (int i = 0; i < count; i++)
        for (int g = 0; g < run->plan->count; g++)
            run->backend->zero(run->team, xpe_shard_buffer(&run->shards[g], to[i]));
}

void xpe_exchange_early(xpe_run *run, int flags, bool own)
{
    xpe_sum_array arrays[3];
    size_t to[3];
    int count = sums_of_trip(flags, arrays, to);

    if (own)
        xpe_exchange_join(run);
    else
        begin_beside(run);
    for (int i = 0; i < count; i++)
        for (int g = 0; g < run->plan->count; g++)
            for (int h = 0; h < run->plan->count; h++)
                if (own == (g == h))
                    gather(run, arrays[i], to[i], g, h);
}

xpe_status xpe_exchange_images(xpe_run *run, size_t band, xpe_error *err)
{
    bool beside = xpe_exchange_overlaps(run);
    xpe_status st;

    XPE_TRY(xpe_state_order(run, err));
    for (int g = 0; g < run->plan->count; g++) {
        fill_window(run, XPE_AT(band_z), XPE_AT(z), g, g);
        fill_window(run, band, XPE_AT(image), g, g);
    }
    if (beside)
        begin_beside(run);
    for (int h = 0; h < run->plan->count; h++)
        for (int g = 0; g < run->plan->count; g++)
            if (g != h) {
                fill_window(run, XPE_AT(band_z), XPE_AT(z), h, g);
                fill_window(run, band, XPE_AT(image), h, g);
            }
done:
    return st;
}

/* ------------------------------------------------------------------------------ modes */

xpe_status xpe_exchange_probe_sum(xpe_run *run, xpe_sum_array array, size_t to, int modes,
                                  xpe_error *err)
{
    size_t plane = (size_t)(run->n * run->n) * (array == XPE_SUM_REAL ? 1 : 2) * sizeof(int64_t);
    xpe_buffer *buffer = xpe_shard_buffer(&run->shards[0], to);
    xpe_status st = XPE_OK;

    XPE_TRY(xpe_state_order(run, err));
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
    XPE_TRY(xpe_state_order(run, err));
    for (int g = 1; g < run->plan->count; g++)
        run->backend->copy(run->team, xpe_shard_buffer(&run->shards[g], member), 0,
                           xpe_shard_buffer(&run->shards[0], member), 0, bytes);
done:
    return st;
}

/* --------------------------------------------------------------------------- numbers */

xpe_status xpe_exchange_numbers(xpe_run *run, bool maxima, size_t member, size_t row_bytes,
                                xpe_error *err)
{
    size_t slot = 3 * sizeof(double);
    xpe_status st = XPE_OK;

    if (run->plan->count == 1)
        return XPE_OK;
    XPE_TRY(xpe_state_order(run, err));
    for (int g = 0; g < run->plan->count; g++)
        for (int h = 0; h < run->plan->count; h++) {
            const xpe_shard *to = &run->shards[g], *from = &run->shards[h];
            size_t at = (size_t)from->band_first * row_bytes,
                   bytes = (size_t)from->band_rows * row_bytes;
            if (g == h)
                continue;
            if (maxima)
                run->backend->copy(run->team, to->maxima, (size_t)h * slot, from->maxima,
                                   (size_t)h * slot, slot);
            if (bytes)
                run->backend->copy(run->team, xpe_shard_buffer(to, member), at,
                                   xpe_shard_buffer(from, member), at, bytes);
        }
done:
    return st;
}
