/* The few numbers between the steps of the object side: the largest values, which bound the sums of
 * the next trip, and the guard of divisions by patches.
 *
 * The host reads them after each average and decides, unless the probe is known and the
 * backend can decide itself (`lazy`).  Then largest values go from each device to every other one,
 * each computes the same units, and the host is not asked.  What is not finite is remembered by the
 * devices as the first iteration in which it was, and no average is written any more; the host
 * learns of it with the next data error and goes back to the iteration before it.  A bound is a
 * bound wherever it is computed, so nothing is ever summed again with another unit. */
#include "state.h"

#include "backend/util.h"
#include "math/order.h"

#include <math.h>

static xpe_trip_model model_of(const xpe_run *run)
{
    xpe_trip_model model = {.alpha = run->stage.object_data_fit,
                            .two_rho = xpe_two_rho(run),
                            .frame_norm = run->bounds.frame_norm,
                            .count_max = run->count_max};
    double energy = 0;

    for (int k = 0; k < run->modes; k++)
        energy += run->mode[k].energy;
    if (run->masked)
        model.root_energy = sqrt(energy); /* a masked pixel keeps its field */
    return model;
}

/* From bounds that every device agrees on (algorithm.md 5). */
static bool choose_here(xpe_run *run, int flags)
{
    xpe_trip_model model = model_of(run);
    double v = run->bounds.v + (flags & XPE_FIT_UPDATE ? xpe_two_rho(run) * run->bounds.z : 0);
    bool finite = true;

    for (int k = 0; k < run->modes; k++) {
        const xpe_mode_numbers *m = &run->mode[k];
        finite = finite && isfinite(m->weight_max) && m->weight_max > 0;
        run->unit_real[k] = xpe_unit_make(m->weight_max * XPE_SLACK, run->count_max);
        if (!(flags & (XPE_FIT_PATCH | XPE_FIT_SUM_V)))
            continue;
        finite = finite && isfinite(m->reach) && isfinite(v) && isfinite(model.frame_norm);
        run->unit_a[k] = xpe_trip_unit(&model, m->weight_max, m->reach, v);
        run->unit_b[k] = xpe_unit_make(m->weight_max * v * XPE_SLACK, run->count_max);
    }
    return finite;
}

xpe_status xpe_numbers_choose(xpe_run *run, int flags, xpe_error *err)
{
    xpe_status st = XPE_OK;

    run->trip_decided = run->decided && (flags & XPE_FIT_PATCH) && (flags & XPE_FIT_UPDATE);
    if (run->trip_decided)
        return XPE_OK;
    if (flags & (XPE_FIT_PATCH | XPE_FIT_SUM_V))
        XPE_TRY(xpe_numbers_read(run, err));
    if (!choose_here(run, flags))
        return xpe_fail(err, XPE_DIVERGED, "",
                        "iteration %d: patches or modes are no longer finite", run->iteration + 1);
done:
    return st;
}

static xpe_status decide(xpe_run *run, int iteration, xpe_error *err)
{
    xpe_trip_model model = model_of(run);
    xpe_status st;

    for (int k = 0; k < run->modes; k++) {
        run->weight_max[k] = run->mode[k].weight_max;
        run->reach[k] = run->mode[k].reach;
    }
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_maxima_args args = {g, s->frames, s->band_rows, s->v_energy, s->row_max, s->maxima};
        run->backend->maxima(run->team, g, &args);
    }
    XPE_TRY(xpe_state_order(run, err));
    for (int g = 0; g < run->plan->count; g++)
        for (int h = 0; h < run->plan->count; h++)
            if (g != h)
                run->backend->copy(run->team, run->shards[g].maxima, (size_t)h * 3 * sizeof(double),
                                   run->shards[h].maxima, (size_t)h * 3 * sizeof(double),
                                   3 * sizeof(double));
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_decide_args args = {run->modes, run->plan->count, iteration, model, run->weight_max,
                                run->reach, s->maxima,        s->unit,   s->bad};
        run->backend->decide(run->team, g, &args);
    }
    run->decided = true;
    run->bounds_old = true;
done:
    return st;
}

xpe_status xpe_numbers_average(xpe_run *run, int iteration, xpe_error *err)
{
    if (run->lazy)
        return decide(run, iteration, err);
    run->bounds_old = true;
    return xpe_numbers_read(run, err);
}

/* The guard of divisions by image patches, from all patches of x-bar, and the bounds of v, z and
 * x-bar. */
xpe_status xpe_numbers_read(xpe_run *run, xpe_error *err)
{
    double energy = 0, z = 0, image = 0, *rows = run->host_rows, *most = run->host_rows + run->rows,
           *largest = most + 2 * run->rows;
    xpe_status st = XPE_OK;

    if (!run->bounds_old)
        return XPE_OK;
    xpe_state_ask_rows(run, XPE_AT(row_energy), 0, rows, sizeof(double));
    xpe_state_ask_rows(run, XPE_AT(row_max), 0, most, 2 * sizeof(double));
    xpe_state_ask_max(run, XPE_AT(v_energy), 1, largest);
    xpe_numbers_ask(run, &run->bad_read);
    XPE_TRY(xpe_state_wait(run, err));
    XPE_TRY(xpe_numbers_check(run, run->bad_read, err));
    for (int64_t r = 0; r < run->rows; r++) { /* a NaN gets through */
        energy += rows[r];
        z = xpe_larger(z, most[2 * r]);
        image = xpe_larger(image, most[2 * r + 1]);
    }
    run->patch_eps =
        1e-6 * sqrt(energy / ((double)run->num_frames * (double)run->n * (double)run->n));
    run->bounds.z = sqrt(z);
    run->bounds.image = sqrt(image);
    run->bounds.v = sqrt(xpe_state_take_max(run, 1, largest));
    run->bounds_old = false;
    run->decided = false;
    if (!isfinite(run->bounds.z) || !isfinite(run->bounds.image) || !(run->patch_eps > 0))
        st = xpe_fail(err, XPE_DIVERGED, "", "iteration %d: the object is no longer finite",
                      run->iteration + 1);
done:
    return st;
}

void xpe_numbers_ask(xpe_run *run, int64_t *bad)
{
    *bad = 0;
    if (run->lazy)
        run->backend->download(run->team, bad, run->shards[0].bad, 0, sizeof *bad);
}

int xpe_slot_of(const xpe_run *run, int64_t iteration)
{
    int slots = run->lazy ? 3 : 2, back = (int)(run->iteration - iteration) % slots;

    return (run->shown - back + slots) % slots;
}

xpe_status xpe_numbers_check(xpe_run *run, int64_t bad, xpe_error *err)
{
    if (!bad)
        return XPE_OK;
    run->shown = xpe_slot_of(run, bad - 1);
    run->iteration = (int)bad - 1;
    atomic_store(&run->progress_iteration, run->iteration);
    return xpe_fail(err, XPE_DIVERGED, "", "iteration %lld: the object is no longer finite",
                    (long long)bad);
}
