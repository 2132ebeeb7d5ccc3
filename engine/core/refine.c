/* Position refinement by exhaustive search over whole-pixel shifts (algorithm.md 3). */
#include "state.h"

#include "backend/util.h"
#include "math/average.h"

#include <math.h>

/* misfits[(2 m + 1)^2] of one frame, row-major shifts, NaN where the grid ends: the first smallest
 * wins. */
static int64_t best_shift(const double *misfits, int64_t count)
{
    int64_t best = count / 2;

    for (int64_t i = count - 1; i >= 0; i--)
        if (misfits[i] <= misfits[best])
            best = i;
    return best;
}

static void search(xpe_run *run, xpe_buffer *const *misfit)
{
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_search_args args = {.modes = run->modes,
                                .max_shift = run->stage.max_shift,
                                .first = s->first,
                                .y = s->y,
                                .image = s->image,
                                .probe = s->probe,
                                .rows = s->window_rows,
                                .cols = run->cols,
                                .misfit = misfit[g]};
        while (xpe_state_next_batch(run, s, &args.batch))
            run->backend->search(run->team, g, &args);
    }
}

static double move_frame(xpe_run *run, int64_t j, const double *misfits)
{
    int64_t side = 2 * run->stage.max_shift + 1, best = best_shift(misfits, side * side);
    double now = sqrt(misfits[side * side / 2]), least = sqrt(misfits[best]);
    const double *given = run->problem->desc.scan.positions + 2 * j;

    run->positions[2 * j] =
        given[0] + (double)(best / side - run->stage.max_shift) * run->problem->grid.pitch_m;
    run->positions[2 * j + 1] =
        given[1] + (double)(best % side - run->stage.max_shift) * run->problem->grid.pitch_m;
    run->gain[j] = now > 0 ? (now - least) / now : 0;
    return misfits[best];
}

/* sum_k w_k |d_k|^kappa of one patch, [n][n] */
static xpe_status patch_weight(xpe_run *run, double *weight, xpe_error *err)
{
    size_t plane = (size_t)(run->n * run->n);
    xpe_c32 *modes = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&modes, plane * (size_t)run->modes, sizeof *modes, err));
    XPE_TRY(xpe_state_get_modes(run, XPE_AT(d), modes, err));
    for (int k = 0; k < run->modes; k++)
        for (size_t i = 0; i < plane; i++) {
            xpe_c32 d = modes[(size_t)k * plane + i];
            weight[i] += run->numbers.mode[k].share *
                         (double)xpe_power(xpe_energy(d), run->stage.probe_weight_exponent);
        }
done:
    free(modes);
    return st;
}

/* The coverage that the object was given with, at the positions of the search's start.  A search
 * has no sums on its devices; this is done on the host, in the order of the frames. */
xpe_status xpe_refine_coverage(xpe_run *run, float *coverage, xpe_error *err)
{
    int64_t n = run->n, cols = run->cols, pixels = run->rows * cols;
    const int32_t *first = xpe_problem_first(run->problem);
    double *weight = NULL, *sum = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&weight, (size_t)(n * n), sizeof *weight, err));
    XPE_TRY(xpe_new(&sum, (size_t)pixels, sizeof *sum, err));
    XPE_TRY(patch_weight(run, weight, err));
    for (int64_t j = 0; j < run->num_frames; j++)
        for (int64_t r = 0; r < n; r++) {
            double *to = sum + (first[2 * j] + r) * cols + first[2 * j + 1];
            for (int64_t c = 0; c < n; c++)
                to[c] += weight[r * n + c];
        }
    for (int64_t i = 0; i < pixels; i++)
        coverage[i] = (float)(sum[i] / (1 + 1e-6));
done:
    free(sum);
    free(weight);
    return st;
}

xpe_status xpe_refine_step(xpe_run *run, xpe_report *report, xpe_error *err)
{
    int64_t side = 2 * run->stage.max_shift + 1, shifts = side * side, at = 0;
    xpe_buffer **misfit = NULL;
    double *values = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&misfit, (size_t)run->plan->count, sizeof *misfit, err));
    XPE_TRY(xpe_new(&values, (size_t)(run->num_frames * shifts), sizeof *values, err));
    for (int g = 0; g < run->plan->count; g++)
        XPE_TRY(run->backend->buffer_create(
            &misfit[g], run->team, g, (size_t)(run->shards[g].frames * shifts) * sizeof(double),
            err));
    search(run, misfit);
    for (int g = 0; g < run->plan->count; g++) {
        run->backend->download(run->team, values + at, misfit[g], 0,
                               (size_t)(run->shards[g].frames * shifts) * sizeof(double));
        at += run->shards[g].frames * shifts;
    }
    XPE_TRY(xpe_state_wait(run, err));
    for (int64_t i = 0; i < run->num_frames; i++)
        run->frame_values[run->plan->order[i]] =
            move_frame(run, run->plan->order[i], values + i * shifts);
    report->data_error = 0;
    for (int64_t j = 0; j < run->num_frames; j++)
        report->data_error += run->frame_values[j];
    report->data_error = sqrt(report->data_error / run->total_energy);
    if (!isfinite(report->data_error))
        st = xpe_fail(err, XPE_DIVERGED, "", "the misfit of the positions is not a finite number");
done:
    for (int g = 0; misfit && g < run->plan->count; g++)
        run->backend->buffer_destroy(misfit[g]);
    free(misfit);
    free(values);
    return st;
}
