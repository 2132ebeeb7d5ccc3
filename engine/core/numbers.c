/* The few numbers between the steps (math/numbers.h): where they are brought up to date, sent and
 * read.
 *
 * They live on the devices.  Largest values and energies of rows go from each device to every other
 * one, each computes the same numbers and units from them, and the host is not asked; a sum over
 * rows is a sum over all rows of the grid, so that it does not depend on the bands.  Where the
 * backend can go on without the host (`lazy`), the host reads nothing between two reported lines.
 *
 * What is not finite is remembered by the devices as the first iteration in which it was, and no
 * average and no mode is written any more; the host learns of it with the next data error (without
 * `lazy`, with every iteration) and goes back to the iteration before it.  A bound is a bound
 * wherever it is computed, so nothing is ever summed again with another unit. */
#include "state.h"

#include "backend/util.h"

xpe_numbers_model xpe_numbers_model_of(const xpe_run *run)
{
    return (xpe_numbers_model){.modes = run->modes,
                               .known = run->known,
                               .masked = run->masked,
                               .object_data_fit = run->stage.object_data_fit,
                               .probe_data_fit = run->stage.probe_data_fit,
                               .two_rho = xpe_two_rho(run),
                               .frame_norm = run->frame_norm,
                               .pixels = (double)run->n * (double)run->n,
                               .cover_pixels = (double)run->rows * (double)run->cols,
                               .num_frames = run->num_frames,
                               .count_max = run->count_max};
}

/* What a step is made of on this device. */
static xpe_numbers_args args_of(const xpe_run *run, const xpe_shard *s, xpe_numbers_step step,
                                int iteration)
{
    xpe_numbers_args args = {.step = step,
                             .model = xpe_numbers_model_of(run),
                             .iteration = iteration,
                             .devices = run->plan->count,
                             .maxima = s->maxima,
                             .count = run->n,
                             .numbers = s->numbers};

    if (step == XPE_NUMBERS_AVERAGE)
        args.rows = run->known ? NULL : s->row_energy;
    else if (step == XPE_NUMBERS_ENERGIES)
        args.rows = s->mode_energy;
    else if (step == XPE_NUMBERS_MODES)
        args.rows = s->mode_max;
    else if (step == XPE_NUMBERS_COVER)
        args.rows = s->cover_energy;
    if (step == XPE_NUMBERS_AVERAGE || step == XPE_NUMBERS_COVER)
        args.count = run->rows;
    return args;
}

void xpe_numbers_update(xpe_run *run, xpe_numbers_step step, int iteration)
{
    for (int g = 0; g < run->plan->count; g++) {
        xpe_numbers_args args = args_of(run, &run->shards[g], step, iteration);
        run->backend->numbers(run->team, g, &args);
    }
}

xpe_status xpe_numbers_after_average(xpe_run *run, int iteration, xpe_error *err)
{
    xpe_status st;

    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_maxima_args args = {.slot = g,
                                .floats_count = s->frames,
                                .doubles_count = s->band_rows,
                                .floats = s->v_energy,
                                .doubles = s->row_max,
                                .columns = 2,
                                .out = s->maxima};
        run->backend->maxima(run->team, g, &args);
    }
    XPE_TRY(
        xpe_exchange_numbers(run, true, XPE_AT(row_energy), run->known ? 0 : sizeof(double), err));
    xpe_numbers_update(run, XPE_NUMBERS_AVERAGE, iteration);
done:
    return st;
}

xpe_status xpe_numbers_get(xpe_run *run, xpe_error *err)
{
    run->backend->download(run->team, &run->numbers, run->shards[0].numbers, 0,
                           sizeof run->numbers);
    return xpe_state_wait(run, err);
}

xpe_status xpe_numbers_read(xpe_run *run, xpe_error *err)
{
    xpe_status st = xpe_numbers_get(run, err);

    return st == XPE_OK ? xpe_numbers_check(run, run->numbers.bad, err) : st;
}

xpe_status xpe_numbers_send(xpe_run *run, xpe_error *err)
{
    xpe_numbers_model model = xpe_numbers_model_of(run);

    for (int k = 0; k < run->modes; k++)
        xpe_numbers_unit(&model, &run->numbers, k);
    for (int g = 0; g < run->plan->count; g++)
        run->backend->upload(run->team, run->shards[g].numbers, 0, &run->numbers,
                             sizeof run->numbers);
    return xpe_state_wait(run, err);
}

void xpe_numbers_ask(xpe_run *run, xpe_bad *bad)
{
    *bad = (xpe_bad){0, 0};
    run->backend->download(run->team, bad, run->shards[0].numbers, offsetof(xpe_numbers, bad),
                           sizeof *bad);
}

int xpe_slot_of(const xpe_run *run, int64_t iteration)
{
    int slots = run->lazy ? 3 : 2, back = (int)(run->iteration - iteration) % slots;

    return (run->shown - back + slots) % slots;
}

static const char *bad_text(int64_t what)
{
    switch (what) {
    case XPE_BAD_COPIES:
        return "probe copies are no longer finite";
    case XPE_BAD_PROBE:
        return "the probe is no longer finite";
    case XPE_BAD_PROBE_ZERO:
        return "the probe is zero everywhere";
    case XPE_BAD_MODES:
        return "patches or modes are no longer finite";
    default:
        return "the object is no longer finite";
    }
}

xpe_status xpe_numbers_check(xpe_run *run, xpe_bad bad, xpe_error *err)
{
    if (!bad.iteration)
        return XPE_OK;
    run->numbers.bad = bad;
    run->shown = xpe_slot_of(run, bad.iteration - 1);
    run->iteration = (int)bad.iteration - 1;
    atomic_store(&run->progress_iteration, run->iteration);
    return xpe_fail(err, XPE_DIVERGED, "", "iteration %lld: %s", (long long)bad.iteration,
                    bad_text(bad.what));
}
