/* The result file carries what made it: every setting with its origin, the job document, hash of
 * the scan and the build that bit-identity is promised for. */
#include "result.h"

#include "execute.h"
#include "files.h"
#include "job.h"

#include "io/write/write.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void xpd_final_release(xpd_final *final)
{
    free(final->object);
    free(final->coverage);
    free(final->probe);
    free(final->positions);
    free(final->gain);
    free(final->data_error);
    *final = (xpd_final){0};
}

#define TAKE(member)                                                                               \
    do {                                                                                           \
        if (next->member) {                                                                        \
            free(final->member);                                                                   \
            final->member = next->member;                                                          \
            next->member = NULL;                                                                   \
        }                                                                                          \
    } while (0)

void xpd_final_take(xpd_final *final, xpd_final *next)
{
    TAKE(object);
    TAKE(coverage);
    TAKE(probe);
    TAKE(positions);
    TAKE(gain);
}

bool xpd_final_add_error(xpd_final *final, double data_error)
{
    if (final->error_count == final->error_room) {
        int room = final->error_room ? 2 * final->error_room : 256;
        double *more = realloc(final->data_error, (size_t)room * sizeof *more);

        if (!more)
            return false;
        final->data_error = more;
        final->error_room = room;
    }
    final->data_error[final->error_count++] = data_error;
    return true;
}

double xpd_final_last_error(const xpd_final *final)
{
    for (int i = final->error_count - 1; i >= 0; i--)
        if (isfinite(final->data_error[i]))
            return final->data_error[i];
    return NAN;
}

/* ------------------------------------------------------------------------------ parameters */

#define PER_STAGE 16

typedef struct sheet {
    xpe_parameter *rows;
    struct {
        char name[48], value[512];
    } * text;
    size_t count, room;
    int stage; /* whose settings are being added */
} sheet;

static bool sheet_init(sheet *s, int stages)
{
    *s = (sheet){.room = 16 + PER_STAGE * (size_t)stages};
    s->rows = calloc(s->room, sizeof *s->rows);
    s->text = calloc(s->room, sizeof *s->text);
    return s->rows && s->text;
}

static void sheet_release(sheet *s)
{
    free(s->rows);
    free(s->text);
}

/* The first stage has the plain names, which the reference program's viewer knows; later ones are
 * numbered. */
static void add(sheet *s, const char *name, const char *units, const char *origin,
                const char *format, ...) XPE_PRINTF(5, 6);

static void add(sheet *s, const char *name, const char *units, const char *origin,
                const char *format, ...)
{
    va_list arguments;

    if (s->count == s->room)
        return;
    if (s->stage > 0)
        snprintf(s->text[s->count].name, sizeof s->text->name, "%s[%d]", name, s->stage);
    else
        snprintf(s->text[s->count].name, sizeof s->text->name, "%s", name);
    va_start(arguments, format);
    vsnprintf(s->text[s->count].value, sizeof s->text->value, format, arguments);
    va_end(arguments);
    s->rows[s->count] =
        (xpe_parameter){s->text[s->count].name, s->text[s->count].value, units, origin};
    s->count++;
}

/* A document reaches the worker with its defaults written out, so "default" means: has that value.
 */
static const char *origin_of(bool is_default)
{
    return is_default ? "default" : "given";
}

static void add_real(sheet *s, const char *name, double value, double usual)
{
    add(s, name, "", origin_of(fabs(value - usual) <= 0.0), "%.17g", value);
}

static void add_schedule(sheet *s, const xpe_stage *stage)
{
    char text[512] = "(";
    size_t used = 1;

    for (int i = 0; i < stage->schedule_count && used < sizeof text - 16; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, i ? ", %d" : "%d",
                                 stage->mode_schedule[i]);
    snprintf(text + used, sizeof text - used, stage->schedule_count == 1 ? ",)" : ")");
    add(s, "mode_schedule", "", origin_of(stage->schedule_count == 0), "%s", text);
}

static void add_stage(sheet *s, const xpp_stage *given)
{
    xpe_stage stage = xpd_stage_of(given), usual = xpe_stage_default();

    add(s, "algorithm", "", "given", "%s", given->algorithm);
    if (stage.algorithm == XPE_REFINE_POSITIONS) {
        add(s, "max_shift", "pixels", origin_of(stage.max_shift == usual.max_shift), "%d",
            stage.max_shift);
        return;
    }
    add(s, "iterations", "", origin_of(stage.iterations == usual.iterations), "%d",
        stage.iterations);
    add_real(s, "object_data_fit", stage.object_data_fit, usual.object_data_fit);
    add_real(s, "probe_data_fit", stage.probe_data_fit, usual.probe_data_fit);
    add_real(s, "probe_weight_exponent", stage.probe_weight_exponent, usual.probe_weight_exponent);
    add_real(s, "relaxation", stage.relaxation, usual.relaxation);
    add_schedule(s, &stage);
    add_real(s, "mode_energy_fraction", stage.mode_energy_fraction, usual.mode_energy_fraction);
    add(s, "orthogonalize_modes", "", origin_of(!stage.orthogonalize_modes), "%s",
        stage.orthogonalize_modes ? "True" : "False");
    if (fabs(stage.fresnel_distance_m) > 0.0)
        add(s, "fresnel_distance", "m", "given", "%.17g", stage.fresnel_distance_m);
    if (stage.fresnel_radius_pixels > 0.0)
        add(s, "fresnel_radius", "pixels", "given", "%.17g", stage.fresnel_radius_pixels);
    if (stage.batch_size > 0)
        add(s, "batch_size", "frames", "given", "%lld", (long long)stage.batch_size);
    add(s, "report_every", "iterations", origin_of(stage.report_every == usual.report_every), "%d",
        stage.report_every);
}

static void add_all(sheet *s, const xpd_work *work, const xpd_final *final,
                    const xpd_devices *devices)
{
    const xpp_job *job = work->job;
    const xpe_scan *scan = &work->input.desc.scan;
    bool known = work->input.desc.probe != NULL;

    add(s, "probe", "", "given", "%s", known ? "known" : "estimated");
    add(s, "probe_modes", "", origin_of(job->model.probe_modes == 1), "%d", job->model.probe_modes);
    add(s, "wavelength", "m",
        job->scan.energy_kev > 0.0 || job->scan.wavelength_m > 0.0 ? "given" : "file", "%.17g",
        scan->wavelength_m);
    add(s, "detector_distance", "m", job->scan.detector_distance_m > 0.0 ? "given" : "file",
        "%.17g", scan->detector_distance_m);
    add(s, "detector_pitch", "m", job->scan.detector_pitch_m > 0.0 ? "given" : "file", "%.17g",
        scan->detector_pitch_m);
    add(s, "object_pixel", "m", "derived", "%.17g", final->grid.pitch_m);
    add(s, "object_shape", "pixels", job->model.has_shape ? "given" : "derived", "(%lld, %lld)",
        (long long) final->grid.rows, (long long) final->grid.cols);
    add(s, "object_origin", "m", job->model.has_origin ? "given" : "derived", "(%.17g, %.17g)",
        final->grid.origin_m[0], final->grid.origin_m[1]);
    add(s, "num_devices", "", job->devices.count || job->devices.num_devices ? "given" : "default",
        "%d", devices->count);
    add(s, "cpu_threads", "", job->devices.cpu_threads ? "given" : "default", "%d",
        devices->cpu_threads);
    for (int i = 0; i < job->stage_count; i++) {
        s->stage = i;
        add_stage(s, &job->stages[i]);
    }
}

/* ------------------------------------------------------------------------------------ file */

static void join_devices(char *out, size_t size, const xpd_devices *devices)
{
    size_t used = 0;

    out[0] = 0;
    for (int i = 0; i < devices->count && used + 34 < size; i++)
        used += (size_t)snprintf(out + used, size - used, i ? ", %s" : "%s", devices->name[i]);
}

static json_t *describe(const xpd_work *work, const xpd_final *final, const xpd_devices *devices,
                        const xpe_written *written, bool partial)
{
    json_t *names = json_array(), *result;

    for (int i = 0; i < devices->count; i++)
        json_array_append_new(names, json_string(devices->name[i]));
    result = json_pack(
        "{s:s, s:I, s:s, s:I, s:I, s:i, s:o, s:[I,I], s:i, s:f, s:o, s:i, s:f, s:f}", "path",
        work->output_path, "bytes", (json_int_t)written->bytes, "sha256", written->sha256, "inode",
        (json_int_t)written->inode, "mtime_ns", (json_int_t)written->mtime_ns, "iterations",
        final->error_count, "data_error", xpp_number(xpd_final_last_error(final)), "object_shape",
        (json_int_t) final->grid.rows, (json_int_t) final->grid.cols, "probe_modes", final->modes,
        "object_pixel_m", final->grid.pitch_m, "devices", names, "cpu_threads",
        devices->cpu_threads, "seconds", final->seconds, "seconds_total", xpd_now() - work->began);
    json_object_set_new(result, "memory",
                        json_pack("{s:I, s:I}", "planned_bytes", (json_int_t) final->bytes_planned,
                                  "peak_bytes", (json_int_t) final->bytes_peak));
    if (work->owned && written->uid == geteuid()) /* else the reader will not believe the file */
        json_object_set_new(result, "owner", json_integer(work->owner));
    if (partial)
        json_object_set_new(result, "partial", json_true());
    return result;
}

typedef struct announcement {
    const xpd_work *work;
    const xpd_final *final;
    const xpd_devices *devices;
} announcement;

/* FOLDER/done.json, before the file gets its name: should we or the broker be killed between the
 * rename and the commit, the broker knows by inode, size and time that the job had finished. */
static void announce(void *context, const xpe_written *written)
{
    const announcement *a = context;
    char path[4096], *text = NULL;
    xpe_error err = {0};
    json_t *done = json_pack("{s:s, s:i, s:o}", "state", "succeeded", "attempt", a->work->attempt,
                             "result", describe(a->work, a->final, a->devices, written, false));

    text = done ? xpp_dump(done, JSON_COMPACT) : NULL;
    if (!text || !xpd_path_join(path, sizeof path, a->work->folder, "done.json") ||
        xpd_file_replace(path, text, strlen(text), &err) != XPE_OK)
        fprintf(stderr, "xptycho-worker: done.json was not written: %s\n", err.text);
    free(text);
    json_decref(done);
}

xpe_status xpd_result_write(json_t **out, const xpd_work *work, const xpd_final *final,
                            const xpd_devices *devices, bool partial, xpe_error *err)
{
    const xpe_scan *scan = &work->input.desc.scan;
    char program[64], names[XPP_DEVICES_MAX * 34], end_time[32];
    char *job = xpp_dump(work->job->doc, JSON_COMPACT);
    struct timespec now;
    xpe_written written = {0};
    xpe_status st;
    sheet s;

    *out = NULL;
    clock_gettime(CLOCK_REALTIME, &now);
    xpp_time_text(end_time, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    snprintf(program, sizeof program, "xptychod %s", xpp_version());
    join_devices(names, sizeof names, devices);
    if (!sheet_init(&s, work->job->stage_count) || !job) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "no host memory for the description of a result");
        goto done;
    }
    add_all(&s, work, final, devices);
    xpe_result result = {
        .name = work->job->name[0] ? work->job->name : work->input.scan_name,
        .grid = &final->grid,
        .object = final->object,
        .probe = final->probe,
        .probe_modes = final->modes,
        .n = scan->n,
        .coverage = final->coverage,
        .positions = final->positions ? final->positions : scan->positions,
        .gain = final->gain,
        .num_frames = scan->num_frames,
        .mask = scan->mask,
        .mask_frames = scan->mask_frames,
        .data_error = final->data_error,
        .iterations = final->error_count,
        .parameters = s.rows,
        .parameter_count = s.count,
        .job = job,
        .scan_path = work->job->scan.path,
        .scan_sha256 = work->input.sha256[0] ? work->input.sha256 : NULL,
        .program = program,
        .build = xpe_build_identity(),
        .devices = names,
        .end_time = end_time,
        .partial = partial,
        .folder = work->input.output_folder,
        .owner = work->owned ? &work->owner : NULL,
        .whole = partial || !work->folder ? NULL : announce,
        .whole_context = &(announcement){work, final, devices},
    };
    st = xpe_result_write(&written, work->output_path, work->overwrite, &result, err);
    if (st == XPE_OK) {
        *out = describe(work, final, devices, &written, partial);
        if (!*out)
            st = xpe_fail(err, XPE_NO_MEMORY, "", "no host memory for the description of a result");
    }
done:
    sheet_release(&s);
    free(job);
    return st;
}
