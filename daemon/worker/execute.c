/* The stages of a job in order.  Each is a problem and a run of its own; what one leaves (object,
 * probe, refined positions) is where the next begins, on the grid of the first.  Everything here
 * runs on the engine thread but for the two pieces of work handed to the writer: a preview works on
 * a snapshot and is skipped while the one before is still being written; the result is waited for.
 *
 * When a run ends early, cancelled or diverged, the engine still gives the last good iteration:
 * that is written as a partial result, if there was an iteration at all.
 *
 * A job that has a checkpoint goes on in the middle of its stage; keep.h has the files. */
#include "execute.h"

#include "fault.h"
#include "keep.h"
#include "preview.h"
#include "result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double xpd_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void xpd_work_release(xpd_work *work)
{
    xpd_input_release(&work->input);
    xpp_job_free(work->job);
    free(work->output_path);
    free(work->folder);
    free(work->checkpoints);
    *work = (xpd_work){0};
}

void xpd_outcome_release(xpd_outcome *outcome)
{
    json_decref(outcome->result);
    json_decref(outcome->problem);
    *outcome = (xpd_outcome){0};
}

/* --------------------------------------------------------------------------------- control */

void xpd_control_init(xpd_control *control)
{
    *control = (xpd_control){0};
    pthread_mutex_init(&control->lock, NULL);
}

void xpd_control_release(xpd_control *control)
{
    pthread_mutex_destroy(&control->lock);
}

/* The lock is held across xpe_run_cancel, which is an atomic store: without it the run could be
 * destroyed between the look and the call. */
void xpd_control_cancel(xpd_control *control, bool abandon)
{
    pthread_mutex_lock(&control->lock);
    control->cancelled = true;
    control->abandoned = control->abandoned || abandon;
    if (control->run)
        xpe_run_cancel(control->run);
    pthread_mutex_unlock(&control->lock);
}

bool xpd_control_cancelled(xpd_control *control)
{
    bool cancelled;

    pthread_mutex_lock(&control->lock);
    cancelled = control->cancelled;
    pthread_mutex_unlock(&control->lock);
    return cancelled;
}

bool xpd_control_abandoned(xpd_control *control)
{
    bool abandoned;

    pthread_mutex_lock(&control->lock);
    abandoned = control->abandoned;
    pthread_mutex_unlock(&control->lock);
    return abandoned;
}

void xpd_control_save(xpd_control *control, bool leave)
{
    pthread_mutex_lock(&control->lock);
    control->save = true;
    control->leave = control->leave || leave;
    pthread_mutex_unlock(&control->lock);
}

static void control_wishes(xpd_control *control, bool *save, bool *leave)
{
    pthread_mutex_lock(&control->lock);
    *save = control->save;
    *leave = control->leave;
    pthread_mutex_unlock(&control->lock);
}

static void control_saved(xpd_control *control)
{
    pthread_mutex_lock(&control->lock);
    control->save = false;
    pthread_mutex_unlock(&control->lock);
}

void xpd_control_reset(xpd_control *control)
{
    pthread_mutex_lock(&control->lock);
    control->cancelled = control->abandoned = control->save = control->leave = false;
    pthread_mutex_unlock(&control->lock);
}

static void control_attach(xpd_control *control, xpe_run *run)
{
    pthread_mutex_lock(&control->lock);
    control->run = run;
    if (run && control->cancelled)
        xpe_run_cancel(run);
    pthread_mutex_unlock(&control->lock);
}

/* --------------------------------------------------------------------------------- session */

/* A picture in the making; lives from post to the end of the writer's work. */
typedef struct picture {
    xpd_snapshot snapshot;
    const char *folder;
    const xpd_events *events;
} picture;

typedef struct session {
    const xpd_work *work;
    xpd_control *control;
    xpd_writer *writer;
    const xpd_events *events;
    xpd_devices devices;
    xpe_problem *problem;
    xpe_run *run;
    xpd_keep keep;
    bool announced;     /* the job runs */
    bool not_taken_up;  /* a checkpoint was there and the engine did not take it */
    bool left, kept;    /* see xpd_outcome */
    int stage;          /* in hand */
    int last_iteration; /* of that stage, done */
    double next_preview;
    picture picture;
    xpd_final final; /* what is carried from stage to stage and ends in the result */
} session;

static void session_release(session *s)
{
    control_attach(s->control, NULL);
    xpe_run_destroy(s->run);
    xpe_problem_destroy(s->problem);
    xpd_final_release(&s->final);
    xpd_keep_close(&s->keep);
}

static void *alloc_array(size_t count, size_t size, xpe_status *st, xpe_error *err)
{
    void *array = *st == XPE_OK ? calloc(count ? count : 1, size) : NULL;

    if (*st == XPE_OK && !array)
        *st = xpe_fail(err, XPE_NO_MEMORY, "", "no host memory for %zu bytes of a result",
                       count * size);
    return array;
}

/* -------------------------------------------------------------------------------- previews */

static void picture_write(void *context)
{
    picture *p = context;
    xpe_error err = {0};

    if (xpd_preview_write(&p->snapshot, p->folder, &err) == XPE_OK)
        xpd_emit(p->events, json_pack("{s:s, s:i, s:i}", "type", "preview", "stage",
                                      p->snapshot.stage, "iter", p->snapshot.iteration));
    else
        xpd_emit_text(p->events, "warning", "a preview was not written: %s", err.text);
    xpd_snapshot_release(&p->snapshot);
}

/* The writer is idle, so s->picture is free. */
static xpe_status picture_take(session *s, xpe_error *err)
{
    const xpe_grid *grid = xpe_problem_grid(s->problem);
    const xpe_scan *scan = &s->work->input.desc.scan;
    xpd_snapshot *shot = &s->picture.snapshot;
    size_t size = (size_t)grid->rows * (size_t)grid->cols;
    xpe_status st = XPE_OK;

    *shot = (xpd_snapshot){.stage = s->stage,
                           .iteration = s->last_iteration,
                           .rows = grid->rows,
                           .cols = grid->cols,
                           .n = scan->n,
                           .modes = xpe_run_modes(s->run),
                           .pixel_m = grid->pitch_m};
    shot->object = alloc_array(size, sizeof *shot->object, &st, err);
    shot->coverage = alloc_array(size, sizeof *shot->coverage, &st, err);
    shot->probe = alloc_array((size_t)shot->modes * (size_t)(scan->n * scan->n),
                              sizeof *shot->probe, &st, err);
    xpd_scanned_rectangle(shot->scanned, xpe_problem_first(s->problem), scan->num_frames, scan->n,
                          grid->rows, grid->cols);
    if (st == XPE_OK)
        st = xpe_run_object(s->run, shot->object, err);
    if (st == XPE_OK)
        st = xpe_run_coverage(s->run, shot->coverage, err);
    if (st == XPE_OK)
        st = xpe_run_probe(s->run, shot->probe, err);
    if (st != XPE_OK)
        xpd_snapshot_release(shot);
    return st;
}

/* A picture is never worth a job: what goes wrong is a warning. */
static void picture_post(session *s)
{
    xpe_error err = {0};

    if (picture_take(s, &err) != XPE_OK) {
        xpd_emit_text(s->events, "warning", "a preview was not made: %s", err.text);
        return;
    }
    s->picture.folder = s->work->folder;
    s->picture.events = s->events;
    if (!xpd_writer_post(s->writer, picture_write, &s->picture))
        xpd_snapshot_release(&s->picture.snapshot);
}

static void picture_maybe(session *s)
{
    if (!s->work->folder || xpd_now() < s->next_preview || !xpd_writer_idle(s->writer))
        return;
    picture_post(s);
    s->next_preview = xpd_now() + s->work->job->preview_every_s;
}

/* ---------------------------------------------------------------------------------- stages */

static void note_memory(session *s)
{
    xpe_run_stats stats = xpe_run_get_stats(s->run);

    if (stats.bytes_planned > s->final.bytes_planned)
        s->final.bytes_planned = stats.bytes_planned;
    if (stats.bytes_peak > s->final.bytes_peak)
        s->final.bytes_peak = stats.bytes_peak;
}

/* What the run holds now becomes what the next stage, or the result, takes. */
static xpe_status collect(session *s, bool refined, xpe_error *err)
{
    const xpe_grid *grid = xpe_problem_grid(s->problem);
    const xpe_scan *scan = &s->work->input.desc.scan;
    size_t size = (size_t)grid->rows * (size_t)grid->cols, frames = (size_t)scan->num_frames;
    int modes = xpe_run_modes(s->run);
    xpd_final next = {0};
    xpe_status st = XPE_OK;

    next.object = alloc_array(size, sizeof *next.object, &st, err);
    next.coverage = alloc_array(size, sizeof *next.coverage, &st, err);
    next.probe =
        alloc_array((size_t)modes * (size_t)(scan->n * scan->n), sizeof *next.probe, &st, err);
    if (refined) {
        next.positions = alloc_array(frames, 2 * sizeof *next.positions, &st, err);
        next.gain = alloc_array(frames, sizeof *next.gain, &st, err);
    }
    if (st == XPE_OK)
        st = xpe_run_object(s->run, next.object, err);
    if (st == XPE_OK)
        st = xpe_run_coverage(s->run, next.coverage, err);
    if (st == XPE_OK)
        st = xpe_run_probe(s->run, next.probe, err);
    if (st == XPE_OK && refined)
        st = xpe_run_positions(s->run, next.positions, next.gain, err);
    if (st == XPE_OK) {
        s->final.grid = *grid;
        s->final.modes = modes;
        note_memory(s);
        xpd_final_take(&s->final, &next);
    }
    xpd_final_release(&next);
    return st;
}

/* The engine has amplitudes of its own now. */
static void drop_pages(void *input)
{
    xpd_input_drop_pages(input);
}

/* What the checkpoint has of a later stage is its probe, positions and grid; the object is in the
 * state of the run. */
static xpe_status stage_begin(session *s, const xpe_stage *stage, xpe_error *err)
{
    xpe_problem_desc desc = s->work->input.desc;
    xpe_device_list devices = xpd_devices_list(&s->devices);
    int64_t shape[2] = {s->final.grid.rows, s->final.grid.cols};
    xpe_status st;

    if (s->stage > 0) {
        desc.grid.shape = shape;
        desc.grid.origin_m = s->final.grid.origin_m;
        if (s->final.object) {
            desc.init_object = s->final.object;
            memcpy(desc.init_object_shape, shape, sizeof shape);
        }
        if (!desc.probe) {
            desc.init_probe = s->final.probe;
            desc.init_probe_count = s->final.modes;
        }
        if (s->final.positions)
            desc.scan.positions = s->final.positions;
    }
    desc.frames_read = drop_pages;
    desc.frames_read_arg = (void *)(uintptr_t)&s->work->input; /* read only */
    st = xpe_problem_create(&s->problem, &desc, err);
    if (st == XPE_OK)
        st = xpe_run_create(&s->run, s->problem, stage, &devices, err);
    if (st == XPE_OK)
        control_attach(s->control, s->run);
    return st;
}

static void stage_end(session *s)
{
    control_attach(s->control, NULL);
    xpe_run_destroy(s->run);
    s->run = NULL;
    xpe_problem_destroy(s->problem);
    s->problem = NULL;
}

static void report_emit(session *s, const xpe_report *r)
{
    xpd_emit(s->events,
             json_pack("{s:s, s:i, s:i, s:o, s:i, s:f}", "type", "iter", "stage", s->stage, "iter",
                       r->iteration, "data_error", xpp_number(r->data_error), "modes", r->modes,
                       "seconds", r->seconds));
    if (r->mode_empty)
        xpd_emit_text(s->events, "warning",
                      "stage %d, iteration %d: no mode was added, the residual is zero "
                      "everywhere",
                      s->stage, r->iteration);
}

static void report_diverged(session *s)
{
    xpe_report report = {
        .iteration = s->last_iteration + 1, .data_error = NAN, .modes = xpe_run_modes(s->run)};

    report_emit(s, &report);
}

static xpe_status report_keep(session *s, const xpe_report *report, xpe_error *err)
{
    s->last_iteration = report->iteration;
    s->final.seconds += report->seconds;
    if (!xpd_final_add_error(&s->final, report->data_error) ||
        !xpd_keep_note(&s->keep, report, xpe_run_held(s->run)))
        return xpe_fail(err, XPE_NO_MEMORY, "", "no host memory for the data errors");
    report_emit(s, report);
    return XPE_OK;
}

/* Between two iterations.  Whoever is asked to leave does so also when the checkpoint failed. */
static xpe_status boundary(session *s, bool leave, xpe_error *err)
{
    if (xpe_run_held(s->run)) {
        s->kept = xpd_keep_save(&s->keep, s->run, s->stage, s->last_iteration, &s->final);
        control_saved(s->control);
    }
    if (leave && (xpe_run_held(s->run) || !s->keep.folder)) {
        s->left = true;
        return xpe_fail(err, XPE_CANCELLED, "", "left after iteration %d of stage %d",
                        s->last_iteration, s->stage);
    }
    picture_maybe(s);
    return XPE_OK;
}

/* Steps one run to its end; the iteration that diverged is told, with a data error of null. */
static xpe_status stage_steps(session *s, const xpe_stage *stage, xpe_error *err)
{
    for (;;) {
        xpe_report report = {.data_error = NAN};
        bool save, leave;
        xpe_status st;

        control_wishes(s->control, &save, &leave);
        if (stage->algorithm == XPE_PMACE && xpd_keep_due(&s->keep, save || leave))
            xpe_run_hold(s->run);
        st = xpe_run_step(s->run, &report, err);
        if (st == XPE_DIVERGED)
            report_diverged(s);
        if (st == XPE_OK)
            st = report_keep(s, &report, err);
        if (st != XPE_OK || report.last || report.iteration >= stage->iterations)
            return st;
        st = boundary(s, leave, err);
        if (st != XPE_OK)
            return st;
    }
}

/* The state of the checkpoint into a new run; the first time the job is said to run. */
static xpe_status take_up(session *s, xpe_error *err)
{
    xpe_status st = XPE_OK;

    if (s->keep.found) {
        st = xpe_run_load(s->run, xpe_checkpoint_take, s->keep.found, err);
        s->not_taken_up = st != XPE_OK;
        if (st != XPE_OK)
            return st;
        s->last_iteration = xpe_checkpoint_head(s->keep.found)->iteration;
        xpd_keep_tell(&s->keep);
    }
    if (!s->announced)
        xpd_emit(s->events, json_pack("{s:s, s:s, s:s, s:s}", "type", "state", "state", "running",
                                      "reason", "", "detail", ""));
    s->announced = true;
    if (s->keep.found) {
        xpd_keep_retell(&s->keep);
        xpe_checkpoint_reader_destroy(s->keep.found);
        s->keep.found = NULL;
    }
    return st;
}

static bool leaves_a_state(xpe_status st)
{
    return st == XPE_OK || st == XPE_CANCELLED || st == XPE_DIVERGED;
}

static xpe_status stage_run(session *s, int index, bool last, xpe_error *err)
{
    xpe_stage stage = xpd_stage_of(&s->work->job->stages[index]);
    xpe_status st, kept = XPE_OK;

    s->stage = index;
    s->last_iteration = 0;
    st = stage_begin(s, &stage, err);
    if (st == XPE_OK)
        st = take_up(s, err);
    if (st == XPE_OK) {
        xpd_keep_stage(&s->keep, xpe_problem_grid(s->problem), s->work->input.desc.probe != NULL);
        st = stage_steps(s, &stage, err);
        if (leaves_a_state(st) && s->final.error_count > 0 && !s->left) {
            /* before collect: a search reads the arrays that collect replaces */
            if (s->work->folder && (last || st != XPE_OK)) {
                xpd_writer_wait(s->writer); /* the last picture is never the one that is skipped */
                picture_post(s);
            }
            kept = collect(s, st == XPE_OK && stage.algorithm == XPE_REFINE_POSITIONS,
                           st == XPE_OK ? err : NULL);
        }
    }
    stage_end(s);
    return st != XPE_OK ? st : kept;
}

/* --------------------------------------------------------------------------------- the end */

typedef struct result_task {
    const session *s;
    bool partial;
    json_t *result;
    xpe_status st;
    xpe_error err;
} result_task;

static void result_task_run(void *context)
{
    result_task *t = context;

    t->st =
        xpd_result_write(&t->result, t->s->work, &t->s->final, &t->s->devices, t->partial, &t->err);
}

static xpe_status write_result(session *s, xpd_outcome *out, bool partial, xpe_error *err)
{
    result_task task = {.s = s, .partial = partial};

    xpd_writer_wait(s->writer); /* the last preview */
    xpd_writer_post(s->writer, result_task_run, &task);
    xpd_writer_wait(s->writer);
    out->result = task.result;
    if (task.st != XPE_OK && err)
        *err = task.err;
    return task.st;
}

/* State, reason and detail from how the stages ended; then the result, which may fail too. */
static void finish(session *s, xpd_outcome *out, xpe_status st, xpe_error *err)
{
    bool partial = st != XPE_OK;
    bool wanted = !xpd_control_abandoned(s->control) && !s->left;

    out->state = st == XPE_OK ? "succeeded" : st == XPE_CANCELLED ? "cancelled" : "failed";
    out->reason = xpd_reason_of(st);
    out->fatal = st == XPE_DEVICE_LOST;
    if (out->fatal)
        snprintf(out->lost, sizeof out->lost, "%s",
                 s->devices.count == 1 ? s->devices.name[0] : err->device);
    out->left = s->left;
    out->kept = s->left && s->kept;
    if ((st != XPE_OK && st != XPE_CANCELLED) || s->left)
        snprintf(out->detail, sizeof out->detail, "%s%s%s", err->pointer,
                 err->pointer[0] ? ": " : "", err->text);
    if (leaves_a_state(st) && s->final.object && wanted) {
        xpe_error write_err = {0};

        if (write_result(s, out, partial, &write_err) != XPE_OK) {
            if (st == XPE_OK) {
                out->state = "failed";
                out->reason = write_err.status == XPE_NO_MEMORY ? "internal" : "output";
                snprintf(out->detail, sizeof out->detail, "%s", write_err.text);
            } else {
                xpd_emit_text(s->events, "warning", "the partial result was not written: %s",
                              write_err.text);
            }
        }
    }
    if (st != XPE_OK && st != XPE_CANCELLED && st != XPE_DIVERGED)
        out->problem = xpd_problem_of(err);
}

static xpe_status stages_run(session *s, xpe_error *err)
{
    const xpp_job *job = s->work->job;
    xpe_status st = XPE_OK;
    int first = 0;

    if (s->keep.found) {
        first = xpe_checkpoint_head(s->keep.found)->stage;
        st = xpd_keep_restore(&s->keep, &s->final, err);
    }
    for (int i = first; st == XPE_OK && i < job->stage_count; i++)
        st = stage_run(s, i, i + 1 == job->stage_count, err);
    return st;
}

void xpd_work_execute(xpd_outcome *out, const xpd_work *work, xpd_control *control,
                      xpd_writer *writer, const xpd_events *events)
{
    session s = {.work = work, .control = control, .writer = writer, .events = events};
    xpe_error err = {0};
    xpe_status st;

    *out = (xpd_outcome){0};
    st = xpd_devices_choose(&s.devices, work->job, &err);
    if (st == XPE_OK)
        xpd_emit_text(events, "log", "devices: %d x '%s' (%s)%s", s.devices.count,
                      s.devices.name[0], s.devices.model,
                      work->job->devices.count ? "" : ", chosen by default");
    if (st == XPE_OK)
        st = xpd_keep_open(&s.keep, work, &s.devices, events, &err);
    if (st == XPE_OK)
        st = stages_run(&s, &err);
    if (s.not_taken_up) {
        xpd_emit_text(events, "warning",
                      "the checkpoint could not be taken up, the job begins anew: %s", err.text);
        xpd_final_release(&s.final);
        xpd_keep_forget(&s.keep);
        err = (xpe_error){0};
        st = stages_run(&s, &err);
    }
    if (st != XPE_OK && err.text[0] == 0)
        xpe_fail(&err, st, "", "the engine stopped: %s", xpe_status_name(st));
    finish(&s, out, st, &err);
    xpd_writer_wait(writer);
    session_release(&s);
}
