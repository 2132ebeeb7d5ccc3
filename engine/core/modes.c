/* The consensus modes: what follows from them, and the scheduled addition and orthogonalisation
 * (algorithm.md 1 and 3, step 3). */
#include "host.h"
#include "state.h"

#include "backend/util.h"

#include <math.h>

void xpe_modes_derive(xpe_run *run)
{
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_mode_energy_args args = {run->modes, s->d, s->mode_energy};
        run->backend->mode_energy(run->team, g, &args);
    }
    xpe_numbers_update(run, XPE_NUMBERS_ENERGIES, run->iteration + 1);
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_mode_derive_args args = {.modes = run->modes,
                                     .kappa = run->stage.probe_weight_exponent,
                                     .alpha = run->stage.object_data_fit,
                                     .numbers = s->numbers,
                                     .d = s->d,
                                     .probe = s->probe,
                                     .divider = s->divider,
                                     .weight = s->weight,
                                     .row_max = s->mode_max};
        run->backend->mode_derive(run->team, g, &args);
    }
    xpe_numbers_update(run, XPE_NUMBERS_MODES, run->iteration + 1);
    run->coverage_good = false;
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

static double largest_mode(const xpe_run *run)
{
    double most = 0;

    for (int k = 0; k < run->modes; k++)
        most = fmax(most, run->numbers.mode[k].d_max);
    return most;
}

xpe_status xpe_modes_fill(xpe_run *run, xpe_error *err)
{
    run->numbers.s = largest_mode(run);
    run->numbers.u = 0;
    run->pending = false;
    return fill_copies(run, 0, run->modes, err);
}

static xpe_status residual_exists(xpe_run *run, bool *exists, xpe_error *err)
{
    float *nonzero = (float *)(void *)run->frame_values;
    xpe_status st = xpe_state_get_frames(run, XPE_AT(nonzero), nonzero, sizeof *nonzero, err);

    *exists = false;
    for (int64_t j = 0; st == XPE_OK && j < run->num_frames; j++)
        *exists = *exists || nonzero[j] > 0;
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
        old += run->numbers.mode[k].energy;
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

/* What an iteration that diverges falls back to; its average would keep the new ones. */
static void keep_modes(xpe_run *run)
{
    run->backend->copy(run->team, run->shards[0].d_before, 0, run->shards[0].d, 0,
                       (size_t)(run->modes_before * run->n * run->n) * sizeof(xpe_c32));
    run->modes_kept = true;
}

xpe_status xpe_modes_add(xpe_run *run, bool *added, xpe_error *err)
{
    int64_t plane = run->n * run->n;
    float shrink = (float)(1 / sqrt(1 + run->stage.mode_energy_fraction));
    xpe_c32 *modes = NULL;
    xpe_status st;

    *added = false;
    xpe_exchange_join(run); /* a residual takes whole windows */
    XPE_TRY(xpe_numbers_read(run, err));
    XPE_TRY(xpe_new(&modes, (size_t)(plane * (run->modes + 1)), sizeof *modes, err));
    XPE_TRY(make_mode(run, modes + plane * run->modes, added, err));
    if (!*added)
        goto done;
    XPE_TRY(settle_copies(run, shrink, err));
    XPE_TRY(xpe_state_get_modes(run, XPE_AT(d), modes, err));
    run->modes++;
    for (int64_t i = 0; i < plane * run->modes; i++)
        modes[i] = (xpe_c32){modes[i].re * shrink, modes[i].im * shrink};
    if (run->stage.orthogonalize_modes)
        XPE_TRY(orthogonalize(run, modes, err));
    keep_modes(run);
    XPE_TRY(xpe_state_send_modes(run, modes, err));
    xpe_modes_derive(run);
    XPE_TRY(xpe_numbers_read(run, err));
    if (run->stage.orthogonalize_modes) {
        XPE_TRY(xpe_modes_fill(run, err));
    } else { /* a copy is now at most what it was, or a mode */
        XPE_TRY(fill_copies(run, run->modes - 1, run->modes, err));
        run->numbers.s =
            fmax(run->numbers.s + xpe_two_rho(run) * run->numbers.u, largest_mode(run));
        run->numbers.u = 0;
    }
    XPE_TRY(xpe_numbers_send(run, err));
done:
    free(modes);
    return st;
}
