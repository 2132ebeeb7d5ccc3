/* The object side of the iteration, step by step over the backend (algorithm.md 3, steps 1, 2 and
 * 7).  state.h says how the steps are arranged in trips. */
#include "state.h"

#include "backend/util.h"
#include "math/order.h"

#include <math.h>

/* Iterations after which V_k of a known probe is summed anew from the patches.  It follows from
 * itself in double precision while the patches are rounded, and would slowly leave them
 * (docs/decisions/0001). */
#define RENEW_EVERY 64

/* Frames [first, stop) of a block. */
static void fit_frames(xpe_run *run, int g, int flags, int64_t first, int64_t stop)
{
    const xpe_shard *s = &run->shards[g];
    xpe_fit_args args = {.flags = flags,
                         .modes = run->modes,
                         .batch = {.first = first},
                         .one_minus_alpha = (float)(1 - run->stage.object_data_fit),
                         .two_rho = (float)xpe_two_rho(run),
                         .cols = run->cols,
                         .first = s->first,
                         .y = s->y,
                         .v = s->v,
                         .image = s->image,
                         .z = s->z,
                         .probe = s->probe,
                         .divider = s->divider,
                         .weight = s->weight,
                         .sums = s->sums,
                         .numbers = s->numbers,
                         .misfit = s->misfit,
                         .v_energy = s->v_energy};

    while (xpe_state_next_batch_of(run, s, stop, &args.batch))
        run->backend->fit(run->team, g, &args);
}

/* All frames, those of the rim in the middle: the rows that come from other devices are there when
 * they are needed, and those that other devices need leave while the rest is in work. */
static void fit_around(xpe_run *run, int flags)
{
    for (int g = 0; g < run->plan->count; g++)
        fit_frames(run, g, flags, run->shards[g].above,
                   (run->shards[g].above + run->shards[g].below) / 2);
    xpe_exchange_join(run);
    for (int g = 0; g < run->plan->count; g++) {
        fit_frames(run, g, flags, 0, run->shards[g].above);
        fit_frames(run, g, flags, run->shards[g].below, run->shards[g].frames);
    }
    if (flags & XPE_FIT_PATCH)
        xpe_exchange_early(run, flags, false);
    for (int g = 0; g < run->plan->count; g++)
        fit_frames(run, g, flags, (run->shards[g].above + run->shards[g].below) / 2,
                   run->shards[g].below);
}

xpe_status xpe_pmace_trip(xpe_run *run, int flags, xpe_error *err)
{
    bool around = xpe_exchange_overlaps(run), early = around && (flags & XPE_FIT_PATCH);
    xpe_status st = XPE_OK;

    for (int g = 0; g < run->plan->count; g++) {
        run->backend->sums_clear(run->team, g, run->shards[g].sums);
        if (!around)
            fit_frames(run, g, flags, 0, run->shards[g].frames);
    }
    if (early)
        xpe_exchange_early_clear(run, flags);
    if (around)
        fit_around(run, flags);
    XPE_TRY(xpe_state_wait(run, err));
    if (early)
        xpe_exchange_early(run, flags, true);
    run->gathered = early ? flags : 0;
    if (flags & XPE_FIT_SUM_L)
        run->coverage_good = false;
    run->trip_flags = flags;
    run->sums_wait = flags & XPE_FIT_PATCH;
done:
    return st;
}

/* Integer sums in `from` to doubles in `to`, which may be the same. */
static void unfix(xpe_run *run, int components, size_t from, size_t to)
{
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_unfix_args args = {.modes = run->modes,
                               .components = components,
                               .rows = s->band_rows,
                               .cols = run->cols,
                               .numbers = s->numbers,
                               .sum = xpe_shard_buffer(s, from),
                               .out = xpe_shard_buffer(s, to),
                               .row = s->band_first,
                               .row_energy = components == 1 ? s->cover_energy : NULL};
        run->backend->unfix(run->team, g, &args);
    }
}

/* Step 2 now, alone, and V_k from the patches that it leaves. */
static xpe_status renew_patch_sums(xpe_run *run, xpe_error *err)
{
    xpe_status st;

    XPE_TRY(xpe_pmace_trip(run, XPE_FIT_UPDATE | XPE_FIT_SUM_V, err));
    XPE_TRY(xpe_exchange_sum(run, XPE_SUM_A, err));
    unfix(run, 2, XPE_AT(fix), XPE_AT(v_sum));
    XPE_TRY(xpe_state_order(run, err)); /* the next trip clears what others still read */
done:
    return st;
}

xpe_status xpe_pmace_next(xpe_run *run, int finished, int flags, xpe_error *err)
{
    xpe_status st = XPE_OK;

    flags |= XPE_FIT_PATCH | (run->known ? 0 : XPE_FIT_SUM_V | XPE_FIT_SUM_L);
    if (run->known && finished % RENEW_EVERY == 0)
        XPE_TRY(renew_patch_sums(run, err));
    else
        flags |= XPE_FIT_UPDATE;
    XPE_TRY(xpe_pmace_trip(run, flags, err));
done:
    return st;
}

/* L_k of the modes onto the bands, and its guards: one mean over the whole grid for each mode. */
static xpe_status take_coverage(xpe_run *run, xpe_error *err)
{
    bool early = run->gathered & XPE_FIT_SUM_L;
    xpe_status st = XPE_OK;

    if (!early)
        XPE_TRY(xpe_exchange_sum(run, XPE_SUM_REAL, err));
    unfix(run, 1, early ? XPE_AT(l_sum) : XPE_AT(fix), XPE_AT(l_sum));
    XPE_TRY(xpe_exchange_numbers(run, false, XPE_AT(cover_energy),
                                 (size_t)run->modes * sizeof(double), err));
    xpe_numbers_update(run, XPE_NUMBERS_COVER, run->iteration + 1);
    run->coverage_good = true;
done:
    return st;
}

xpe_status xpe_pmace_coverage(xpe_run *run, xpe_error *err)
{
    xpe_status st = XPE_OK;

    if (run->coverage_good)
        return XPE_OK;
    if (!run->sums_wait)
        XPE_TRY(xpe_pmace_trip(run, XPE_FIT_SUM_L, err));
    XPE_TRY(take_coverage(run, err));
done:
    return st;
}

/* V_k before the first step: every patch is a piece of the start image x, so sum |d_k|^kappa v_j =
 * x L_k.  A known probe never sums V_k at all (it follows from itself), which saves 16 bytes a
 * window pixel. */
static xpe_status start_patch_sums(xpe_run *run, xpe_error *err)
{
    int64_t width = run->cols, rows = xpe_max64(1, (1 << 20) / width); /* about 16 MiB at a time */
    double *l = NULL, *v = NULL;
    xpe_c32 *x = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&l, (size_t)(rows * width), sizeof *l, err));
    XPE_TRY(xpe_new(&v, (size_t)(rows * width) * 2, sizeof *v, err));
    XPE_TRY(xpe_new(&x, (size_t)(rows * width), sizeof *x, err));
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        for (int64_t r = 0; r < s->band_rows; r += rows) {
            int64_t count = xpe_min64(rows, s->band_rows - r) * width;
            for (int k = 0; k < run->modes; k++) {
                size_t at = (size_t)((k * s->band_rows + r) * width);
                run->backend->download(run->team, x, s->band_image[run->slot],
                                       (size_t)(r * width) * sizeof *x, (size_t)count * sizeof *x);
                run->backend->download(run->team, l, s->l_sum, at * sizeof *l,
                                       (size_t)count * sizeof *l);
                XPE_TRY(xpe_state_wait(run, err));
                for (int64_t i = 0; i < count; i++) {
                    v[2 * i] = (double)x[i].re * l[i];
                    v[2 * i + 1] = (double)x[i].im * l[i];
                }
                run->backend->upload(run->team, s->v_sum, at * 2 * sizeof *v, v,
                                     (size_t)count * 2 * sizeof *v);
                XPE_TRY(xpe_state_wait(run, err));
            }
        }
    }
done:
    free(x);
    free(v);
    free(l);
    return st;
}

xpe_status xpe_pmace_begin(xpe_run *run, xpe_error *err)
{
    int flags = XPE_FIT_PATCH;
    xpe_status st = XPE_OK;

    if (run->known) { /* L_k stays, and V_k begins with it */
        XPE_TRY(xpe_pmace_trip(run, XPE_FIT_SUM_L, err));
        XPE_TRY(take_coverage(run, err));
        XPE_TRY(start_patch_sums(run, err));
    } else {
        flags |= XPE_FIT_SUM_V | XPE_FIT_SUM_L;
    }
    XPE_TRY(xpe_pmace_trip(run, flags, err));
done:
    return st;
}

xpe_status xpe_pmace_average(xpe_run *run, int iteration, xpe_error *err)
{
    bool early = run->gathered;
    xpe_status st = XPE_OK;

    if ((run->trip_flags & XPE_FIT_SUM_L) && !run->coverage_good)
        XPE_TRY(take_coverage(run, err));
    if (run->trip_flags & XPE_FIT_SUM_V) {
        if (!early)
            XPE_TRY(xpe_exchange_sum(run, XPE_SUM_B, err));
        unfix(run, 2, early ? XPE_AT(v_sum) : XPE_AT(fix), XPE_AT(v_sum));
    }
    if (!early)
        XPE_TRY(xpe_exchange_sum(run, XPE_SUM_A, err));
    run->gathered = 0;
    run->sums_wait = false;
    run->slot = (run->slot + 1) % (run->lazy ? 3 : 2);
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_average_args args = {.modes = run->modes,
                                 .rows = s->band_rows,
                                 .cols = run->cols,
                                 .two_rho = xpe_two_rho(run),
                                 .numbers = s->numbers,
                                 .w = s->fix,
                                 .v = s->v_sum,
                                 .l = s->l_sum,
                                 .count = s->count,
                                 .z = s->band_z,
                                 .image = s->band_image[run->slot],
                                 .row = s->band_first,
                                 .row_energy = s->row_energy,
                                 .row_max = s->row_max};
        run->backend->average(run->team, g, &args);
    }
    /* before the rows set out, which may take longer */
    XPE_TRY(xpe_numbers_after_average(run, iteration, err));
    XPE_TRY(xpe_exchange_images(
        run, XPE_AT(band_image[0]) + (size_t)run->slot * sizeof(xpe_buffer *), err));
done:
    return st;
}

xpe_status xpe_pmace_data_error(xpe_run *run, bool ahead, double *out, xpe_error *err)
{
    double sum = 0;
    xpe_status st = XPE_OK;

    *out = NAN;
    xpe_state_ask_frames(run, XPE_AT(misfit), sizeof(double));
    xpe_numbers_ask(run, &run->bad_read);
    if (ahead) /* the devices go on while the host waits for the line */
        XPE_TRY(xpe_pmace_average(run, run->iteration + 2, err));
    run->ahead = ahead;
    XPE_TRY(xpe_state_wait(run, err));
    XPE_TRY(xpe_numbers_check(run, run->bad_read, err));
    xpe_state_take_frames(run, run->frame_values, sizeof(double));
    for (int64_t j = 0; j < run->num_frames; j++)
        sum += run->frame_values[j];
    *out = sqrt(sum / run->total_energy);
    if (!isfinite(*out))
        st = xpe_fail(err, XPE_DIVERGED, "",
                      "iteration %d: the data error is no longer a finite number",
                      run->iteration + 1);
done:
    return st;
}
