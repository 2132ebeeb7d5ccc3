/* The life of one stage: create, step, read, destroy. */
#include "state.h"

#include "backend/util.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

xpe_stage xpe_stage_default(void)
{
    return (xpe_stage){.algorithm = XPE_PMACE,
                       .iterations = 100,
                       .object_data_fit = 0.6,
                       .probe_data_fit = 0.6,
                       .probe_weight_exponent = 1.25,
                       .relaxation = 0.5,
                       .mode_energy_fraction = 0.05,
                       .report_every = 1,
                       .max_shift = 1};
}

/* -------------------------------------------------------------------------- validation */

static xpe_status check_number(double value, double low, double high, const char *name,
                               xpe_error *err)
{
    char pointer[64];

    if (value >= low && value <= high)
        return XPE_OK;
    snprintf(pointer, sizeof pointer, "/recon/%s", name);
    return xpe_fail(err, XPE_INVALID, pointer, "%s is %g; a number from %g to %g is needed", name,
                    value, low, high);
}

static xpe_status check_schedule(const xpe_stage *s, bool known, xpe_error *err)
{
    if (s->schedule_count && known)
        return xpe_fail(err, XPE_INVALID, "/recon/mode_schedule",
                        "a known probe gets no modes; leave out mode_schedule or the probe");
    for (int i = 0; i < s->schedule_count; i++) {
        if (s->mode_schedule[i] < 1 || s->mode_schedule[i] > s->iterations)
            return xpe_fail(
                err, XPE_INVALID, "/recon/mode_schedule",
                "mode_schedule names iteration %d of a stage of %d; name iterations from 1 to %d",
                s->mode_schedule[i], s->iterations, s->iterations);
        for (int k = 0; k < i; k++)
            if (s->mode_schedule[i] == s->mode_schedule[k])
                return xpe_fail(err, XPE_INVALID, "/recon/mode_schedule",
                                "mode_schedule names iteration %d twice; name it once",
                                s->mode_schedule[i]);
    }
    return XPE_OK;
}

static xpe_status check_stage(const xpe_stage *s, bool known, xpe_error *err)
{
    xpe_status st = XPE_OK;

    XPE_TRY(check_number(s->iterations, 1, 1e9, "iterations", err));
    XPE_TRY(check_number(s->object_data_fit, 0, 1, "object_data_fit", err));
    XPE_TRY(check_number(s->probe_data_fit, 0, 1, "probe_data_fit", err));
    XPE_TRY(check_number(s->probe_weight_exponent, 1, 2, "probe_weight_exponent", err));
    XPE_TRY(check_number(s->relaxation, 0, 1, "relaxation", err));
    XPE_TRY(check_number(s->mode_energy_fraction, 1e-12, 1e6, "mode_energy_fraction", err));
    XPE_TRY(check_number(s->report_every, 1, 1e9, "report_every", err));
    XPE_TRY(check_number((double)s->batch_size, 0, 1e15, "batch_size", err));
    XPE_TRY(check_number(s->max_shift, 1, 64, "max_shift", err));
    XPE_TRY(check_number(s->fresnel_distance_m, -1e6, 1e6, "fresnel_distance_m", err));
    XPE_TRY(check_number(s->fresnel_radius_pixels, 0, 1e6, "fresnel_radius_pixels", err));
    if (s->fresnel_distance_m != 0 && s->fresnel_radius_pixels != 0)
        return xpe_fail(err, XPE_INVALID, "/recon/fresnel_radius_pixels",
                        "fresnel_distance_m and fresnel_radius_pixels say the same thing twice; "
                        "give one of them");
    XPE_TRY(check_schedule(s, known, err));
done:
    return st;
}

/* ------------------------------------------------------------------------------ making */

static xpe_status start_modes(xpe_run *run, xpe_error *err)
{
    int64_t plane = run->n * run->n;
    xpe_c32 *modes = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&modes, (size_t)(plane * run->modes_max), sizeof *modes, err));
    XPE_TRY(xpe_start_modes(run, modes, &run->modes, err));
    for (int k = 0; k < run->modes; k++)
        xpe_checkerboard(modes + k * plane, run->n);
    XPE_TRY(xpe_state_send_modes(run, modes, err));
    xpe_modes_derive(run);
    XPE_TRY(xpe_numbers_read(run, err));
done:
    free(modes);
    return st;
}

static xpe_status start_object(xpe_run *run, xpe_error *err)
{
    const xpe_problem_desc *d = &run->problem->desc;
    double energy = 0, most = 0;
    xpe_c32 *made = NULL;
    const xpe_c32 *object = d->init_object;
    xpe_status st = XPE_OK;

    for (int k = 0; k < run->modes; k++)
        energy += run->numbers.mode[k].energy;
    if (!object) {
        XPE_TRY(xpe_new(&made, (size_t)(run->rows * run->cols), sizeof *made, err));
        XPE_TRY(xpe_start_object(run, energy, made, err));
        object = made;
    }
    for (int64_t i = 0; i < run->rows * run->cols; i++)
        most = fmax(most, (double)object[i].re * (double)object[i].re +
                              (double)object[i].im * (double)object[i].im);
    run->numbers.v = run->numbers.image = sqrt(most);
    XPE_TRY(xpe_state_send_image(run, object, err));
done:
    free(made);
    return st;
}

/* Patches of the start object, copies of the start probe, and how many patches cover each pixel. */
static xpe_status start_copies(xpe_run *run, xpe_error *err)
{
    int32_t *counts = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&counts, (size_t)(run->rows * run->cols), sizeof *counts, err));
    XPE_TRY(xpe_start_counts(run, counts, err));
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_patch_args args = {.cols = run->cols, .first = s->first, .image = s->image, .v = s->v};
        run->backend->upload(run->team, s->count, 0, counts + s->band_first * run->cols,
                             (size_t)(s->band_rows * run->cols) * sizeof *counts);
        while (xpe_state_next_batch(run, s, &args.batch))
            run->backend->patches(run->team, g, &args);
    }
    XPE_TRY(xpe_state_wait(run, err));
    if (!run->known)
        XPE_TRY(xpe_modes_fill(run, err));
    XPE_TRY(xpe_numbers_send(run, err));
done:
    free(counts);
    return st;
}

static xpe_status start_refinement(xpe_run *run, xpe_error *err)
{
    const xpe_problem_desc *d = &run->problem->desc;
    xpe_status st;

    if (!d->init_object || (!d->probe && !d->init_probe))
        return xpe_fail(err, XPE_INVALID, "/recon/algorithm",
                        "refine_positions needs an object and a probe; put it after a pmace stage "
                        "or give init_object and probe");
    XPE_TRY(xpe_new(&run->positions, (size_t)run->num_frames * 2, sizeof *run->positions, err));
    XPE_TRY(xpe_new(&run->gain, (size_t)run->num_frames, sizeof *run->gain, err));
    memcpy(run->positions, d->scan.positions, (size_t)run->num_frames * 2 * sizeof *run->positions);
done:
    return st;
}

xpe_status xpe_run_create(xpe_run **out, const xpe_problem *problem, const xpe_stage *stage,
                          const xpe_device_list *devices, xpe_error *err)
{
    xpe_status st;
    xpe_run *run = NULL;
    bool known = problem->desc.probe || (stage->algorithm == XPE_REFINE_POSITIONS);

    *out = NULL;
    XPE_TRY(check_stage(stage, problem->desc.probe, err));
    XPE_TRY(xpe_new(&run, 1, sizeof *run, err));
    run->problem = problem;
    run->stage = *stage;
    run->n = problem->desc.scan.n;
    run->num_frames = problem->desc.scan.num_frames;
    run->rows = problem->grid.rows;
    run->cols = problem->grid.cols;
    run->known = known;
    run->modes_max = problem->desc.probe_modes;
    atomic_store(&run->progress_error, NAN);
    XPE_TRY(xpe_new(&run->schedule, (size_t)stage->schedule_count, sizeof *run->schedule, err));
    if (stage->schedule_count)
        memcpy(run->schedule, stage->mode_schedule,
               (size_t)stage->schedule_count * sizeof *run->schedule);
    run->stage.mode_schedule = run->schedule;
    if (stage->algorithm == XPE_REFINE_POSITIONS)
        XPE_TRY(start_refinement(run, err));
    XPE_TRY(xpe_state_create(run, devices, err));
    XPE_TRY(start_modes(run, err));
    XPE_TRY(start_object(run, err));
    if (stage->algorithm == XPE_PMACE)
        XPE_TRY(start_copies(run, err));
    *out = run;
    run = NULL;
done:
    xpe_run_destroy(run);
    return st;
}

void xpe_run_destroy(xpe_run *run)
{
    if (!run)
        return;
    xpe_state_destroy(run);
    free(run->schedule);
    free(run->positions);
    free(run->gain);
    free(run);
}

/* ---------------------------------------------------------------------------- stepping */

static double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_scheduled(const xpe_run *run, int iteration)
{
    for (int i = 0; i < run->stage.schedule_count; i++)
        if (run->schedule[i] == iteration)
            return true;
    return false;
}

/* Are the modes of the iteration that went wrong written already? */
static bool modes_written(xpe_bad bad)
{
    return bad.what != XPE_BAD_OBJECT;
}

/* Back to the iteration before the one that diverged; an error here is a second one and replaces
 * the first. */
static xpe_status fall_back(xpe_run *run, xpe_error *err)
{
    size_t bytes;
    xpe_status st = XPE_OK;

    xpe_exchange_join(run);
    run->slot = run->shown;
    run->ended = true;
    run->sums_wait = false;
    if (run->known || !modes_written(run->numbers.bad))
        return xpe_state_wait(run, err);
    run->modes = run->modes_before;
    bytes = (size_t)(run->modes * run->n * run->n) * sizeof(xpe_c32);
    run->backend->copy(run->team, run->shards[0].d, 0, run->shards[0].d_before, 0, bytes);
    XPE_TRY(xpe_exchange_broadcast(run, XPE_AT(d), bytes, err));
    xpe_modes_derive(run);
    XPE_TRY(xpe_state_wait(run, err));
done:
    return st;
}

/* Step 1 of this iteration, where the trip before has not done it already. */
static xpe_status begin_iteration(xpe_run *run, xpe_error *err)
{
    xpe_status st = XPE_OK;

    if (!run->primed)
        st = xpe_pmace_begin(run, err);
    else if (run->due)
        st = xpe_pmace_next(run, run->iteration, 0, err);
    run->primed = true;
    run->due = false;
    return st;
}

/* Whether anything has gone wrong so far. */
static xpe_status look(xpe_run *run, xpe_error *err)
{
    xpe_status st;

    xpe_numbers_ask(run, &run->bad_read);
    XPE_TRY(xpe_state_wait(run, err));
    XPE_TRY(xpe_numbers_check(run, run->bad_read, err));
done:
    return st;
}

/* Step 7, and step 1 of the next iteration in the same trip unless the run is held here or ends. */
static xpe_status end_iteration(xpe_run *run, xpe_report *report, xpe_error *err)
{
    int finished = run->iteration + 1, flags = 0;
    xpe_status st = XPE_OK;

    if (report->last || finished % run->stage.report_every == 0)
        flags |= XPE_FIT_ERROR;
    run->due = !report->last && run->hold;
    run->hold = false;
    if (run->due)
        XPE_TRY(xpe_numbers_read(run, err)); /* they are saved */
    if (!report->last && !run->due)
        XPE_TRY(xpe_pmace_next(run, finished, flags, err));
    else if (flags)
        XPE_TRY(xpe_pmace_trip(run, flags, err));
    if (flags & XPE_FIT_ERROR)
        XPE_TRY(xpe_pmace_data_error(run, run->lazy && !report->last && !run->due,
                                     &report->data_error, err));
    else if (!run->lazy || report->mode_added) /* a mode more would be taken back */
        XPE_TRY(look(run, err));
done:
    return st;
}

/* slot: where its image is. */
static xpe_status iterate(xpe_run *run, xpe_report *report, int *slot, xpe_error *err)
{
    int iteration = run->iteration + 1;
    xpe_status st;

    XPE_TRY(begin_iteration(run, err));
    if (!run->ahead)
        XPE_TRY(xpe_pmace_average(run, iteration, err));
    *slot = run->slot;
    run->ahead = false;
    if (!run->known) {
        if (run->modes < run->modes_max && is_scheduled(run, iteration)) {
            XPE_TRY(xpe_modes_add(run, &report->mode_added, err));
            report->mode_empty = !report->mode_added;
        }
        XPE_TRY(xpe_probe_step(run, err));
    }
    report->last = iteration == run->stage.iterations;
    XPE_TRY(end_iteration(run, report, err));
done:
    return st;
}

xpe_status xpe_run_step(xpe_run *run, xpe_report *report, xpe_error *err)
{
    double begin = clock_now();
    int slot = run->slot;
    xpe_status st;

    memset(report, 0, sizeof *report);
    report->data_error = NAN;
    if (run->ended ||
        run->iteration >=
            (run->stage.algorithm == XPE_REFINE_POSITIONS ? 1 : run->stage.iterations))
        return xpe_fail(err, XPE_INVALID, "", "the stage is over after iteration %d",
                        run->iteration);
    if (atomic_load(&run->cancel))
        return xpe_fail(err, XPE_CANCELLED, "", "stopped after iteration %d", run->iteration);
    if (run->stage.algorithm == XPE_REFINE_POSITIONS) {
        st = xpe_refine_step(run, report, err);
        report->last = true;
    } else {
        run->modes_before = run->modes;
        run->modes_kept = false;
        st = iterate(run, report, &slot, err);
        if (st == XPE_DIVERGED) {
            xpe_error second;
            xpe_status back = fall_back(run, &second);
            if (back != XPE_OK) {
                st = back;
                if (err)
                    *err = second;
            }
        }
    }
    if (st != XPE_OK)
        return st;
    run->shown = slot;
    report->iteration = ++run->iteration;
    report->modes = run->modes;
    report->seconds = clock_now() - begin;
    if (!isnan(report->data_error))
        atomic_store(&run->progress_error, report->data_error);
    atomic_store(&run->progress_iteration, run->iteration);
    return XPE_OK;
}

/* ------------------------------------------------------------------------------ reading */

xpe_status xpe_run_object(xpe_run *run, xpe_c32 *object, xpe_error *err)
{
    int slot;
    xpe_status st = XPE_OK;

    if (run->stage.algorithm == XPE_REFINE_POSITIONS) {
        memcpy(object, run->problem->desc.init_object,
               (size_t)(run->rows * run->cols) * sizeof *object);
        return XPE_OK;
    }
    slot = run->shown;
    if (!run->ended) { /* what went wrong need not have been noticed yet */
        xpe_numbers_ask(run, &run->bad_read);
        XPE_TRY(xpe_state_wait(run, err));
        if (run->bad_read.iteration)
            slot = xpe_slot_of(run, run->bad_read.iteration - 1);
    }
    st = xpe_state_get_rows(run, XPE_AT(band_image[0]) + (size_t)slot * sizeof(xpe_buffer *), 0,
                            object, (size_t)run->cols * sizeof *object, err);
done:
    return st;
}

xpe_status xpe_run_probe(xpe_run *run, xpe_c32 *probe, xpe_error *err)
{
    size_t member = XPE_AT(d);
    xpe_status st = XPE_OK;

    if (!run->ended && !run->known) { /* as with the object */
        xpe_numbers_ask(run, &run->bad_read);
        XPE_TRY(xpe_state_wait(run, err));
        if (run->bad_read.iteration && modes_written(run->bad_read))
            member = XPE_AT(d_before);
    }
    XPE_TRY(xpe_state_get_modes(run, member, probe, err));
    for (int k = 0; k < run->modes; k++)
        xpe_checkerboard(probe + k * run->n * run->n, run->n);
done:
    return st;
}

xpe_status xpe_run_coverage(xpe_run *run, float *coverage, xpe_error *err)
{
    int64_t pixels = run->rows * run->cols;
    double *plane = NULL;
    xpe_status st = XPE_OK;

    if (run->stage.algorithm == XPE_REFINE_POSITIONS)
        return xpe_refine_coverage(run, coverage, err);
    memset(coverage, 0, (size_t)pixels * sizeof *coverage);
    XPE_TRY(xpe_pmace_coverage(run, err));
    XPE_TRY(xpe_numbers_get(run, err));
    XPE_TRY(xpe_new(&plane, (size_t)pixels, sizeof *plane, err));
    for (int k = 0; k < run->modes; k++) {
        XPE_TRY(xpe_state_get_rows(run, XPE_AT(l_sum), (size_t)k, plane,
                                   (size_t)run->cols * sizeof *plane, err));
        for (int64_t i = 0; i < pixels; i++)
            coverage[i] += (float)(run->numbers.mode[k].share * plane[i] / (1 + 1e-6));
    }
done:
    free(plane);
    return st;
}

xpe_status xpe_run_positions(xpe_run *run, double *positions_m, double *gain, xpe_error *err)
{
    if (!run->positions)
        return xpe_fail(err, XPE_INVALID, "",
                        "only a refine_positions stage has refined positions");
    if (positions_m)
        memcpy(positions_m, run->positions, (size_t)run->num_frames * 2 * sizeof *positions_m);
    if (gain)
        memcpy(gain, run->gain, (size_t)run->num_frames * sizeof *gain);
    return XPE_OK;
}

int xpe_run_modes(const xpe_run *run)
{
    return run->modes;
}

void xpe_run_cancel(xpe_run *run)
{
    atomic_store(&run->cancel, true);
}

xpe_progress xpe_run_progress(const xpe_run *run)
{
    return (xpe_progress){atomic_load(&run->progress_iteration), run->stage.iterations,
                          atomic_load(&run->progress_error)};
}

void xpe_run_profile(xpe_run *run, bool on)
{
    run->backend->profile(run->team, on);
}

xpe_run_stats xpe_run_get_stats(const xpe_run *run)
{
    xpe_run_stats stats;

    run->backend->stats(run->team, &stats);
    for (int g = 0; g < run->plan->count; g++)
        stats.bytes_planned += run->plan->shards[g].bytes;
    return stats;
}

const char *xpe_build_identity(void)
{
#ifdef __clang__
    return "xptychod " XPTYCHOD_VERSION ", " __VERSION__; /* names itself */
#else
    return "xptychod " XPTYCHOD_VERSION ", gcc " __VERSION__;
#endif
}
