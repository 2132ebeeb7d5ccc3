/* The probe side of the iteration (algorithm.md 3, steps 4, 5 and 6).  Steps 5 and 6 stay pending:
 * the copies receive them when step 4 of the next iteration reads them. */
#include "state.h"

#include "backend/util.h"
#include "math/order.h"

#include <math.h>

#define SLACK 1.001

/* Bound of a copy as step 4 sees it: after the pending update, or replaced by a mode. */
static double copy_bound(const xpe_run *run)
{
    double bound = run->bounds.s + (run->pending ? xpe_two_rho(run) * run->bounds.u : 0);

    for (int k = 0; k < run->modes; k++)
        bound = fmax(bound, run->mode[k].d_max);
    return bound;
}

static bool choose_units(xpe_run *run)
{
    double alpha = run->stage.probe_data_fit, copy = copy_bound(run), energy = 0,
           field = run->bounds.frame_norm, fit;

    for (int k = 0; k < run->modes; k++)
        energy += run->mode[k].energy;
    if (run->masked)
        field += sqrt(energy) * run->bounds.image;
    fit = (1 - alpha) * copy +
          alpha * field / (2 * sqrt(run->patch_eps)); /* |p| / (|p|^2 + eps) at most */
    for (int k = 0; k < run->modes; k++) {
        run->unit_a[k] = xpe_unit_make(fit * SLACK, run->num_frames);
        run->unit_b[k] = xpe_unit_make(copy * SLACK, run->num_frames);
    }
    return isfinite(fit) && isfinite(copy);
}

static xpe_copy_state copy_state(const xpe_run *run, const xpe_shard *s)
{
    return (xpe_copy_state){s->s, run->pending, s->u, s->d, s->deviation, (float)xpe_two_rho(run)};
}

/* Where the host gets them, behind the rows of u. */
static double *s_energy_at(const xpe_run *run)
{
    return run->host_rows + run->modes * run->n;
}

static xpe_status fit_copies(xpe_run *run, xpe_error *err)
{
    if (!choose_units(run))
        return xpe_fail(err, XPE_DIVERGED, "", "iteration %d: probe copies are no longer finite",
                        run->iteration + 1);
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_probe_args args = {.modes = run->modes,
                               .copy = copy_state(run, s),
                               .one_minus_alpha = (float)(1 - run->stage.probe_data_fit),
                               .alpha = (float)run->stage.probe_data_fit,
                               .two_rho = (float)xpe_two_rho(run),
                               .patch_eps = (float)run->patch_eps,
                               .cols = run->cols,
                               .first = s->first,
                               .y = s->y,
                               .image = s->image,
                               .probe = s->probe,
                               .sums = s->probe_sums,
                               .unit_r = run->unit_a,
                               .unit_s = run->unit_b,
                               .s_energy = s->s_energy};
        run->backend->sums_clear(run->team, g, s->probe_sums);
        while (xpe_state_next_batch(run, s, &args.batch))
            run->backend->probe_fit(run->team, g, &args);
    }
    xpe_state_ask_max(run, XPE_AT(s_energy), run->modes, s_energy_at(run));
    return XPE_OK;
}

/* u_k and the new d_k on their owner, then everywhere. */
static xpe_status average_copies(xpe_run *run, xpe_error *err)
{
    const xpe_shard *owner = &run->shards[0];
    size_t bytes = (size_t)(run->modes * run->n * run->n) * sizeof(xpe_c32);
    xpe_mode_average_args args = {
        run->modes,         (double)run->num_frames, xpe_two_rho(run), run->unit_a, run->unit_b,
        owner->probe_fix_r, owner->probe_fix_s,      owner->u,         owner->d,    owner->u_max};
    double most = 0;
    xpe_status st;

    XPE_TRY(xpe_exchange_probe_sum(run, XPE_SUM_A, XPE_AT(probe_fix_r), run->modes, err));
    XPE_TRY(xpe_exchange_probe_sum(run, XPE_SUM_B, XPE_AT(probe_fix_s), run->modes, err));
    run->backend->mode_average(run->team, 0, &args);
    run->backend->download(run->team, run->host_rows, owner->u_max, 0,
                           (size_t)(run->modes * run->n) * sizeof(double));
    XPE_TRY(xpe_state_wait(run, err));
    run->bounds.s = sqrt(xpe_state_take_max(run, run->modes, s_energy_at(run)));
    for (int64_t r = 0; r < run->modes * run->n; r++)
        most = xpe_larger(most, run->host_rows[r]);
    run->bounds.u = sqrt(most);
    XPE_TRY(xpe_exchange_broadcast(run, XPE_AT(u), bytes, err));
    XPE_TRY(xpe_exchange_broadcast(run, XPE_AT(d), bytes, err));
done:
    return st;
}

static xpe_status measure_deviations(xpe_run *run, xpe_error *err)
{
    const xpe_shard *owner = &run->shards[0];
    double copy = run->bounds.s + xpe_two_rho(run) * run->bounds.u;
    size_t bytes = (size_t)(run->modes * run->n * run->n) * sizeof(float);
    xpe_mode_deviation_args args = {run->modes, (double)run->num_frames, run->unit_real,
                                    owner->probe_fix_r, owner->deviation};
    xpe_status st;

    for (int k = 0; k < run->modes; k++) {
        double bound = (copy + run->mode[k].d_max) * SLACK;
        if (!isfinite(bound))
            return xpe_fail(err, XPE_DIVERGED, "",
                            "iteration %d: probe copies are no longer finite", run->iteration + 1);
        run->unit_real[k] = xpe_unit_make(bound, run->num_frames);
    }
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_deviation_args deviation = {
            .modes = run->modes,
            .copy = {s->s, true, s->u, s->d, NULL, (float)xpe_two_rho(run)},
            .sums = s->probe_sums,
            .unit = run->unit_real};
        run->backend->sums_clear(run->team, g, s->probe_sums);
        while (xpe_state_next_batch(run, s, &deviation.batch))
            run->backend->deviation(run->team, g, &deviation);
    }
    XPE_TRY(xpe_exchange_probe_sum(run, XPE_SUM_REAL, XPE_AT(probe_fix_r), run->modes, err));
    run->backend->mode_deviation(run->team, 0, &args);
    XPE_TRY(xpe_exchange_broadcast(run, XPE_AT(deviation), bytes, err));
    st = xpe_state_wait(run, err);
done:
    return st;
}

xpe_status xpe_probe_step(xpe_run *run, xpe_error *err)
{
    xpe_status st;

    XPE_TRY(fit_copies(run, err));
    XPE_TRY(average_copies(run, err));
    XPE_TRY(xpe_modes_derive(run, err));
    XPE_TRY(measure_deviations(run, err));
    run->pending = true;
done:
    return st;
}
