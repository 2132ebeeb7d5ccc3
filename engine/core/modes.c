/* The consensus modes: what follows from them, and the scheduled addition and orthogonalisation
 * (algorithm.md 1 and 3, step 3). */
#include "host.h"
#include "state.h"

#include "backend/util.h"

#include <math.h>

static xpe_status read_energies(xpe_run *run, xpe_error *err)
{
    xpe_mode_energy_args args = {run->modes, run->shards[0].d, run->shards[0].mode_energy};
    double total = 0;
    xpe_status st;

    run->backend->mode_energy(run->team, 0, &args);
    run->backend->download(run->team, run->host_rows, run->shards[0].mode_energy, 0,
                           (size_t)(run->modes * run->n) * sizeof(double));
    XPE_TRY(xpe_state_wait(run, err));
    for (int k = 0; k < run->modes; k++) {
        double energy = 0;
        for (int64_t r = 0; r < run->n; r++)
            energy += run->host_rows[k * run->n + r];
        run->mode[k].energy = energy;
        total += energy;
    }
    if (!isfinite(total) || !(total > 0))
        return xpe_fail(err, XPE_DIVERGED, "", "iteration %d: the probe is %s", run->iteration + 1,
                        total > 0 || isnan(total) ? "no longer finite" : "zero everywhere");
    for (int k = 0; k < run->modes; k++) {
        run->share[k] = run->mode[k].share = run->mode[k].energy / total;
        run->d_eps[k] = run->mode[k].d_eps =
            1e-6 * sqrt(run->mode[k].energy / ((double)run->n * (double)run->n));
    }
done:
    return st;
}

xpe_status xpe_modes_derive(xpe_run *run, xpe_error *err)
{
    xpe_status st;

    XPE_TRY(read_energies(run, err));
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_mode_derive_args args = {run->modes,
                                     run->stage.probe_weight_exponent,
                                     run->stage.object_data_fit,
                                     run->share,
                                     run->d_eps,
                                     s->d,
                                     s->probe,
                                     s->divider,
                                     s->weight,
                                     s->mode_max};
        run->backend->mode_derive(run->team, g, &args);
    }
    run->backend->download(run->team, run->host_rows, run->shards[0].mode_max, 0,
                           (size_t)(run->modes * run->n) * 3 * sizeof(double));
    XPE_TRY(xpe_state_wait(run, err));
    for (int k = 0; k < run->modes; k++) {
        double most[3] = {0, 0, 0};
        for (int64_t r = 0; r < run->n; r++)
            for (int c = 0; c < 3; c++)
                most[c] = fmax(most[c], run->host_rows[(k * run->n + r) * 3 + c]);
        run->mode[k].d_max = sqrt(most[0]);
        run->mode[k].weight_max = most[1];
        run->mode[k].reach = most[2];
    }
    run->coverage_good = false;
done:
    return st;
}

/* Steps 5 and 6 that still wait, and the common factor of step 3. */
static xpe_status settle_copies(xpe_run *run, float scale, xpe_error *err)
{
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_settle_args args = {
            .modes = run->modes,
            .copy = {s->s, run->pending, s->u, s->d, s->deviation, (float)xpe_two_rho(run)},
            .scale = scale};
        while (xpe_state_next_batch(run, s, &args.batch))
            run->backend->settle(run->team, g, &args);
    }
    run->pending = false;
    return xpe_state_wait(run, err);
}

/* Every position's copies of modes [from, to) become those modes. */
static xpe_status fill_copies(xpe_run *run, int from, int to, xpe_error *err)
{
    for (int g = 0; g < run->plan->count; g++)
        for (int k = from; k < to; k++) {
            const xpe_shard *s = &run->shards[g];
            xpe_fill_args args = {.mode = k, .s = s->s, .value = s->d};
            while (xpe_state_next_batch(run, s, &args.batch))
                run->backend->fill(run->team, g, &args);
        }
    return xpe_state_wait(run, err);
}

xpe_status xpe_modes_fill(xpe_run *run, xpe_error *err)
{
    double most = 0;
    xpe_status st = fill_copies(run, 0, run->modes, err);

    for (int k = 0; k < run->modes; k++)
        most = fmax(most, run->mode[k].d_max);
    run->bounds.s = most;
    run->bounds.u = 0;
    run->pending = false;
    return st;
}

static xpe_status residual_exists(xpe_run *run, bool *exists, xpe_error *err)
{
    double most;
    xpe_status st = xpe_state_get_max(run, XPE_AT(nonzero), 1, &most, err);

    *exists = st == XPE_OK && most > 0;
    return st;
}

/* The new mode, [n][n] with the checkerboard, energy f times that of all the old ones. */
static xpe_status make_mode(xpe_run *run, xpe_c32 *mode, bool *exists, xpe_error *err)
{
    int64_t plane = run->n * run->n;
    xpe_c64 *field = NULL;
    double energy = 0, old = 0, scale;
    xpe_status st;

    *exists = false;
    XPE_TRY(xpe_new(&field, (size_t)plane, sizeof *field, err));
    XPE_TRY(xpe_start_back(run, run->modes, field, err));
    XPE_TRY(residual_exists(run, exists, err));
    if (!*exists)
        goto done;
    XPE_TRY(xpe_fresnel(run->backend, field, run->n, xpe_fresnel_number(run), err));
    for (int64_t i = 0; i < plane; i++)
        energy += field[i].re * field[i].re + field[i].im * field[i].im;
    for (int k = 0; k < run->modes; k++)
        old += run->mode[k].energy;
    scale = sqrt(run->stage.mode_energy_fraction * old / energy);
    if (!isfinite(scale)) {
        *exists = false; /* a residual too small to be told from zero adds nothing */
        goto done;
    }
    for (int64_t i = 0; i < plane; i++)
        mode[i] = (xpe_c32){(float)(field[i].re * scale), (float)(field[i].im * scale)};
    xpe_checkerboard(mode, run->n);
done:
    free(field);
    return st;
}

static xpe_status orthogonalize(xpe_run *run, xpe_c32 *modes, xpe_error *err)
{
    int64_t length = run->n * run->n * run->modes;
    xpe_c64 *wide = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&wide, (size_t)length, sizeof *wide, err));
    for (int64_t i = 0; i < length; i++)
        wide[i] = (xpe_c64){(double)modes[i].re, (double)modes[i].im};
    XPE_TRY(xpe_orthogonalize(wide, run->modes, run->n * run->n, err));
    for (int64_t i = 0; i < length; i++)
        modes[i] = (xpe_c32){(float)wide[i].re, (float)wide[i].im};
done:
    free(wide);
    return st;
}

xpe_status xpe_modes_add(xpe_run *run, bool *added, xpe_error *err)
{
    int64_t plane = run->n * run->n;
    float shrink = (float)(1 / sqrt(1 + run->stage.mode_energy_fraction));
    xpe_c32 *modes = NULL;
    xpe_status st;

    *added = false;
    XPE_TRY(xpe_new(&modes, (size_t)(plane * (run->modes + 1)), sizeof *modes, err));
    XPE_TRY(make_mode(run, modes + plane * run->modes, added, err));
    if (!*added)
        goto done;
    XPE_TRY(settle_copies(run, shrink, err));
    XPE_TRY(xpe_state_get_modes(run, modes, err));
    run->modes++;
    for (int64_t i = 0; i < plane * run->modes; i++)
        modes[i] = (xpe_c32){modes[i].re * shrink, modes[i].im * shrink};
    if (run->stage.orthogonalize_modes)
        XPE_TRY(orthogonalize(run, modes, err));
    XPE_TRY(xpe_state_send_modes(run, modes, err));
    XPE_TRY(xpe_modes_derive(run, err));
    if (run->stage.orthogonalize_modes)
        XPE_TRY(xpe_modes_fill(run, err));
    else
        XPE_TRY(fill_copies(run, run->modes - 1, run->modes, err));
    /* a copy is now at most what it was, or a mode */
    run->bounds.s = run->bounds.s + xpe_two_rho(run) * run->bounds.u;
    for (int k = 0; k < run->modes; k++)
        run->bounds.s = fmax(run->bounds.s, run->mode[k].d_max);
    run->bounds.u = 0;
done:
    free(modes);
    return st;
}
