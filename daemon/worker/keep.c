/* A checkpoint costs what it takes to write it and the pass over the frames that a held step leaves
 * to the next one; both are measured, and the next one is due when they are at most XPD_KEEP_SHARE
 * of the time between.  The first one is put off by an estimate of what it will take.
 *
 * The log of a job's events and its checkpoints are written by two processes and lost separately: a
 * killed worker takes the events of its last 50 ms with it, a power failure the last lines of the
 * log.  So whoever goes on from a checkpoint looks into the log and tells again what is missing
 * there: the checkpoint has error, modes and seconds of every iteration. */
#include "keep.h"

#include "build.h"
#include "execute.h"
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_BYTES_S 2e8      /* what is expected of a disk before the first checkpoint was timed */
#define LOG_TAIL (256 * 1024) /* bytes of the log in which its last iteration is looked for */

/* ------------------------------------------------------------------------------------ identity */

static void hash_text(struct sha256_ctx *hash, const char *text)
{
    sha256_update(hash, strlen(text) + 1, (const uint8_t *)text);
}

/* The presence of an array is hashed too. */
static void hash_array(struct sha256_ctx *hash, const void *data, int64_t bytes)
{
    int64_t size = data ? bytes : -1;

    sha256_update(hash, sizeof size, (const uint8_t *)&size);
    if (data)
        sha256_update(hash, (size_t)bytes, data);
}

/* The reader has hashed frames and positions; the rest is small. */
static void hash_scan(uint8_t *out, const xpd_input *input)
{
    const xpe_problem_desc *d = &input->desc;
    const xpe_scan *scan = &d->scan;
    const double numbers[] = {scan->wavelength_m, scan->detector_distance_m, scan->detector_pitch_m,
                              scan->saturation};
    int64_t frame = scan->n * scan->n;
    struct sha256_ctx hash;

    sha256_init(&hash);
    hash_text(&hash, input->sha256);
    hash_text(&hash, xpe_type_name(scan->type));
    if (strlen(input->sha256) != 2 * XPE_CHECKPOINT_HASH) {
        hash_array(&hash, scan->frames,
                   scan->num_frames * frame * (int64_t)xpe_type_size(scan->type));
        hash_array(&hash, scan->positions, scan->num_frames * 2 * (int64_t)sizeof *scan->positions);
    }
    sha256_update(&hash, sizeof numbers, (const uint8_t *)numbers);
    hash_array(&hash, scan->mask, scan->mask_frames * frame);
    hash_array(&hash, d->probe, d->probe_count * frame * (int64_t)sizeof *d->probe);
    hash_array(&hash, d->init_probe, d->init_probe_count * frame * (int64_t)sizeof *d->init_probe);
    hash_array(&hash, d->init_object,
               d->init_object_shape[0] * d->init_object_shape[1] * (int64_t)sizeof *d->init_object);
    sha256_digest(&hash, XPE_CHECKPOINT_HASH, out);
}

/* Model and stages decide the bits; devices, names and places do not. */
static bool hash_recon(uint8_t *out, const xpp_job *job)
{
    json_t *resolved = xpp_job_resolved(job->doc);
    json_t *part = json_pack("{s:O?, s:O?}", "model", json_object_get(resolved, "model"), "recon",
                             json_object_get(resolved, "recon"));
    char *text = part ? xpp_dump(part, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    struct sha256_ctx hash;

    if (text) {
        sha256_init(&hash);
        hash_text(&hash, text);
        sha256_digest(&hash, XPE_CHECKPOINT_HASH, out);
    }
    free(text);
    json_decref(part);
    json_decref(resolved);
    return text != NULL;
}

/* "cpu: AMD EPYC, avx2 loops" of "AMD EPYC, 2 threads, avx2 loops": the number of threads decides
 * no bit. */
static void device_text(char *out, size_t size, const xpd_devices *devices)
{
    char model[96], *thread, *comma;

    memcpy(model, devices->model, sizeof model);
    model[sizeof model - 1] = 0;
    thread = strstr(model, " thread");
    if (thread) {
        const char *after = thread + 7 + (thread[7] == 's');

        *thread = 0;
        comma = strrchr(model, ',');
        if (comma)
            memmove(comma, after, strlen(after) + 1);
    }
    snprintf(out, size, "%.*s: %.80s", (int)strcspn(devices->name[0], ":"), devices->name[0],
             model);
}

/* -------------------------------------------------------------------------------- what is told */

static bool iteration_of(const char *line, size_t length, int64_t *stage, int64_t *iteration)
{
    json_t *event;
    const char *type;
    bool found;

    if (!memmem(line, length, "\"iter\"", 6))
        return false;
    event = xpp_load(line, length, 0, NULL);
    type = json_string_value(json_object_get(event, "type"));
    found = type && strcmp(type, "iter") == 0;
    *stage = json_integer_value(json_object_get(event, "stage"));
    *iteration = json_integer_value(json_object_get(event, "iter"));
    json_decref(event);
    return found;
}

/* The last iteration in the log of the job, over all its stages; 0 = none. */
static int64_t told_in_log(const xpd_work *work)
{
    char path[PATH_MAX], *tail = malloc(LOG_TAIL);
    int64_t stage = 0, iteration = 0, told = 0;
    struct stat st;
    ssize_t got = 0;
    int fd = -1;

    if (tail && xpd_path_join(path, sizeof path, work->folder, "events.ndjson"))
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &st) == 0)
        got = pread(fd, tail, LOG_TAIL, st.st_size > LOG_TAIL ? st.st_size - LOG_TAIL : 0);
    for (ssize_t end = got; end > 0;) {
        const char *start = memrchr(tail, '\n', (size_t)end - 1);
        ssize_t from = start ? start - tail + 1 : 0;

        if (iteration_of(tail + from, (size_t)(end - from), &stage, &iteration)) {
            for (int i = 0; i < stage && i < work->job->stage_count; i++)
                told += work->job->stages[i].iterations;
            told += iteration;
            break;
        }
        end = from;
    }
    if (fd >= 0)
        close(fd);
    free(tail);
    return told;
}

/* Stage and iteration of the index-th iteration of the job; both 0 for none. */
static void place_of(const xpp_job *job, int64_t index, int *stage, int *iteration)
{
    int64_t before = 0;

    *stage = 0;
    while (*stage + 1 < job->stage_count && index > before + job->stages[*stage].iterations)
        before += job->stages[(*stage)++].iterations;
    *iteration = (int)(index - before);
}

void xpd_keep_tell(const xpd_keep *keep)
{
    int stage, iteration;

    place_of(keep->work->job, keep->told, &stage, &iteration);
    xpd_emit(keep->events, json_pack("{s:s, s:i, s:i}", "type", "resumed", "from_iter", iteration,
                                     "stage", stage));
}

void xpd_keep_retell(const xpd_keep *keep)
{
    const xpe_checkpoint *c = xpe_checkpoint_head(keep->found);

    for (int64_t i = keep->told; i < c->record_count; i++) {
        const xpe_checkpoint_record *r = &c->records[i];
        int stage, iteration;

        place_of(keep->work->job, i + 1, &stage, &iteration);
        xpd_emit(keep->events,
                 json_pack("{s:s, s:i, s:i, s:o, s:i, s:f}", "type", "iter", "stage", stage, "iter",
                           iteration, "data_error", xpp_number(r->data_error), "modes", r->modes,
                           "seconds", (double)r->seconds));
    }
}

/* ------------------------------------------------------------------------------- begin and end */

static void say(void *arg, const char *text)
{
    const xpd_keep *keep = arg;

    xpd_emit_text(keep->events, "warning", "%s", text);
}

/* A whole checkpoint whose place this job does not have would be a defect of the hash; it is not
 * used. */
static bool placed(const xpd_work *work, const xpe_checkpoint *c)
{
    int stage, iteration;

    place_of(work->job, c->record_count, &stage, &iteration);
    return stage == c->stage && iteration == c->iteration && stage < work->job->stage_count &&
           (stage == 0 || work->input.desc.probe || c->start_probe);
}

xpe_status xpd_keep_open(xpd_keep *keep, const xpd_work *work, const xpd_devices *devices,
                         const xpd_events *events, xpe_error *err)
{
    bool foreign;
    xpe_status st;

    *keep = (xpd_keep){.work = work, .events = events, .folder = work->checkpoints};
    if (!keep->folder)
        return XPE_OK;
    xpd_build_text(keep->head.build, sizeof keep->head.build);
    snprintf(keep->head.job, sizeof keep->head.job, "%s", work->logged ? work->id : "");
    device_text(keep->head.device, sizeof keep->head.device, devices);
    keep->head.num_frames = work->input.desc.scan.num_frames;
    keep->head.n = work->input.desc.scan.n;
    hash_scan(keep->head.scan, &work->input);
    if (!hash_recon(keep->head.recon, work->job))
        return xpe_fail(err, XPE_NO_MEMORY, "", "no host memory for the identity of the job");
    st = xpe_checkpoint_find(&keep->found, keep->folder, &keep->head, &foreign, say, keep, err);
    if (st == XPE_OK && keep->found && !placed(work, xpe_checkpoint_head(keep->found)))
        xpd_keep_forget(keep);
    if (st == XPE_OK && !keep->found && foreign && !work->logged)
        return xpe_fail(
            err, XPE_INVALID, "",
            "'%.200s' holds checkpoints of another job; name another folder, or delete them",
            keep->folder);
    if (keep->found) {
        int64_t all = xpe_checkpoint_head(keep->found)->record_count,
                told = work->logged ? told_in_log(work) : all;

        keep->told = told < all ? told : all;
        keep->slot = 1 - xpe_checkpoint_slot(keep->found);
    }
    return st;
}

void xpd_keep_forget(xpd_keep *keep)
{
    xpe_checkpoint_reader_destroy(keep->found);
    keep->found = NULL;
    keep->count = 0;
    keep->begun = false;
}

void xpd_keep_close(xpd_keep *keep)
{
    xpe_checkpoint_reader_destroy(keep->found);
    free(keep->records);
    *keep = (xpd_keep){0};
}

static bool records_add(xpd_keep *keep, const xpe_checkpoint_record *record)
{
    if (keep->count == keep->room) {
        int64_t room = keep->room ? 2 * keep->room : 256;
        xpe_checkpoint_record *more = realloc(keep->records, (size_t)room * sizeof *more);

        if (!more)
            return false;
        keep->records = more;
        keep->room = room;
    }
    keep->records[keep->count++] = *record;
    return true;
}

static void *copy_of(const void *data, size_t bytes, bool *good)
{
    void *copy = data ? malloc(bytes) : NULL;

    if (copy)
        memcpy(copy, data, bytes);
    *good = *good && (copy || !data);
    return copy;
}

xpe_status xpd_keep_restore(xpd_keep *keep, xpd_final *final, xpe_error *err)
{
    const xpe_checkpoint *c = xpe_checkpoint_head(keep->found);
    size_t frames = (size_t)c->num_frames;
    bool good = true;

    for (int64_t i = 0; i < c->record_count; i++)
        good = good && records_add(keep, &c->records[i]) &&
               xpd_final_add_error(final, c->records[i].data_error);
    final->grid = c->grid;
    final->modes = c->start_modes;
    final->seconds = c->seconds;
    final->positions = copy_of(c->positions, frames * 2 * sizeof *c->positions, &good);
    final->gain = copy_of(c->gain, frames * sizeof *c->gain, &good);
    final->probe = copy_of(c->start_probe,
                           (size_t)(c->start_modes * c->n * c->n) * sizeof *c->start_probe, &good);
    return good ? XPE_OK
                : xpe_fail(err, XPE_NO_MEMORY, "", "no host memory for what a checkpoint carries");
}

/* ------------------------------------------------------------------------------------- saving */

/* The stream of the engine, but for a few numbers. */
static int64_t state_bytes(const xpd_keep *keep, bool known, int64_t modes)
{
    const xpe_checkpoint *h = &keep->head;
    int64_t frame = h->n * h->n, pixels = h->grid.rows * h->grid.cols, c32 = sizeof(xpe_c32);

    if (known)
        return h->num_frames * frame * c32 + pixels * (2 * c32 + 24 * modes) + modes * frame * c32;
    return h->num_frames * frame * c32 * (1 + modes) + pixels * 2 * c32 +
           modes * frame * (2 * c32 + 4);
}

static double interval(const xpd_keep *keep)
{
    double every = keep->work->job->checkpoint_every_s;

    return every >= 0.0 ? every : fmax(XPD_KEEP_LEAST_S, keep->cost / XPD_KEEP_SHARE);
}

void xpd_keep_stage(xpd_keep *keep, const xpe_grid *grid, bool known)
{
    if (!keep->folder)
        return;
    keep->head.grid = *grid;
    if (!keep->begun) {
        keep->cost =
            (double)state_bytes(keep, known, keep->work->job->model.probe_modes) / DISK_BYTES_S;
        keep->due = xpd_now() + interval(keep);
        keep->begun = true;
    }
    keep->usual = 0.0;
    keep->owed = false;
}

bool xpd_keep_due(const xpd_keep *keep, bool asked)
{
    return keep->folder && (asked || xpd_now() >= keep->due);
}

bool xpd_keep_note(xpd_keep *keep, const xpe_report *report, bool held)
{
    const xpe_checkpoint_record record = {report->data_error, (float)report->seconds,
                                          report->modes};

    if (!keep->folder)
        return true;
    if (keep->owed && keep->usual > 0.0) {
        keep->cost += fmax(0.0, keep->held + report->seconds - 2.0 * keep->usual);
        if (keep->wait_failed <= 0.0)
            keep->due = keep->saved_at + interval(keep);
    } else if (!keep->owed && !held) {
        keep->usual =
            keep->usual > 0.0 ? 0.9 * keep->usual + 0.1 * report->seconds : report->seconds;
    }
    keep->owed = held;
    keep->held = report->seconds;
    return records_add(keep, &record);
}

/* A large state takes minutes on a slow disk. */
static xpe_status put(void *writer, const void *data, size_t bytes, xpe_error *err)
{
    xpd_beat();
    return xpe_checkpoint_put(writer, data, bytes, err);
}

static xpe_status write_one(xpd_keep *keep, xpe_run *run, int64_t *bytes, xpe_error *err)
{
    xpe_checkpoint_writer *writer = NULL;
    xpe_status st = xpe_checkpoint_begin(
        &writer, keep->folder, keep->slot, &keep->head,
        state_bytes(keep, keep->work->input.desc.probe != NULL, xpe_run_modes(run)), err);

    if (st == XPE_OK)
        st = xpe_run_save(run, put, writer, err);
    if (st == XPE_OK)
        st = xpe_checkpoint_finish(writer, bytes, err);
    xpe_checkpoint_writer_destroy(writer);
    return st;
}

bool xpd_keep_save(xpd_keep *keep, xpe_run *run, int stage, int iteration, const xpd_final *final)
{
    double began = xpd_now();
    int64_t bytes = 0;
    xpe_error err = {0};
    xpe_status st;

    keep->head.stage = stage;
    keep->head.iteration = iteration;
    keep->head.seconds = final->seconds;
    keep->head.record_count = keep->count;
    keep->head.records = keep->records;
    keep->head.positions = final->positions;
    keep->head.gain = final->gain;
    keep->head.start_probe = stage > 0 && !keep->work->input.desc.probe ? final->probe : NULL;
    keep->head.start_modes = keep->head.start_probe ? final->modes : 0;
    st = write_one(keep, run, &bytes, &err);
    keep->saved_at = xpd_now();
    keep->cost = keep->saved_at - began;
    if (st == XPE_OK) {
        keep->slot = 1 - keep->slot;
        keep->wait_failed = 0.0;
        xpd_emit(keep->events,
                 json_pack("{s:s, s:i, s:i, s:I, s:f}", "type", "checkpoint", "stage", stage,
                           "iter", iteration, "bytes", (json_int_t)bytes, "seconds", keep->cost));
    } else {
        keep->wait_failed = fmax(XPD_KEEP_LEAST_S, fmax(interval(keep), 2.0 * keep->wait_failed));
        xpd_emit_text(keep->events, "warning",
                      "no checkpoint after iteration %d of stage %d, the one before stays: %s",
                      iteration, stage, err.text);
    }
    keep->due = keep->saved_at + (st == XPE_OK ? interval(keep) : keep->wait_failed);
    return st == XPE_OK;
}
