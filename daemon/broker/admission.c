/* See admission.h.  Estimates are upper bounds: the plan's account of the devices is the engine's
 * own, a result and a checkpoint are reckoned without compression. */
#include "admission.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)
#define PROCESS_BYTES (16 * MIB) /* of a worker beside arrays */
#define SLAB_BYTES                                                                                 \
    (64 * MIB) /* through which a checkpoint is written; engine/core/checkpoint.c                  \
                */
#define FILE_BYTES                                                                                 \
    (MIB + MIB / 8)           /* of a result beside arrays, as engine/io/write/result.c asks for */
#define HEAD_BYTES (MIB / 64) /* of a checkpoint */
#define CONTEXT_SHARE 0.97    /* of a GPU: the rest is its driver's */
#define LIST_MAX 16

int xpd_scan_array(const json_t *scan, const char *name)
{
    const json_t *arrays = json_object_get(scan, "arrays");
    for (size_t i = 0; i < json_array_size(arrays); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(arrays, i), "name"));
        if (text && strcmp(text, name) == 0)
            return (int)i;
    }
    return -1;
}

const char *xpd_bytes_text(char out[32], int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int i = 0;

    while (value >= 1024 && i < 4) {
        value /= 1024;
        i++;
    }
    snprintf(out, 32, i ? "%.1f %s" : "%.0f %s", value, units[i]);
    return out;
}

json_t *xpd_needs_json(const xpd_needs *needs)
{
    return !needs->known
               ? json_null()
               : json_pack("{s:I, s:I, s:I, s:I}", "device_bytes", (json_int_t)needs->device,
                           "host_bytes", (json_int_t)needs->host, "result_bytes",
                           (json_int_t)needs->result, "checkpoint_bytes",
                           (json_int_t)needs->checkpoints);
}

void xpd_needs_from(xpd_needs *out, const json_t *json)
{
    *out =
        (xpd_needs){.known = json_is_object(json),
                    .device = json_integer_value(json_object_get(json, "device_bytes")),
                    .host = json_integer_value(json_object_get(json, "host_bytes")),
                    .result = json_integer_value(json_object_get(json, "result_bytes")),
                    .checkpoints = json_integer_value(json_object_get(json, "checkpoint_bytes"))};
}

static bool is_cpu(const char *name)
{
    return strncmp(name, "cpu", 3) == 0;
}

int64_t xpd_room_of(const xpd_room *room, const xpe_device_info *device)
{
    return is_cpu(device->name) ? room->host
                                : (int64_t)((double)device->bytes_total * CONTEXT_SHARE);
}

/* -------------------------------------------------------------------------------------- needs */

/* What the plan is made of. */
typedef struct shape {
    const xpp_job *job;
    xpe_scan scan;
    xpe_grid grid;
    int32_t *first; /* [frames][2], owned */
    int64_t bytes;  /* of the frames as they are read */
} shape;

/* Bytes on one device of the plan, all shards that lie there. */
static int64_t bytes_on(const xpe_plan *plan, const xpd_choice *choice, const char *name)
{
    int64_t bytes = 0;
    for (int i = 0; i < plan->count; i++)
        bytes += strcmp(choice->names[i], name) == 0 ? plan->shards[i].bytes : 0;
    return bytes;
}

/* The plan, with what GPUs take beside it because they run ahead of their host
 * (docs/decisions/0006): a third image of the band.  What their transforms take adapts itself to
 * what is left. */
static bool plan_of(xpe_plan **out, const shape *s, int modes, const xpd_choice *choice,
                    xpe_error *cause)
{
    if (xpe_plan_build(out, s->first, s->scan.num_frames, s->scan.n, &s->grid, modes,
                       s->job->probe.path != NULL, choice->count, cause) != XPE_OK)
        return false;
    for (int i = 0; !is_cpu(choice->names[0]) && i < (*out)->count; i++) {
        xpe_plan_shard *shard = &(*out)->shards[i];
        shard->bytes += (shard->band_stop - shard->band_first) * s->grid.cols * 8;
    }
    return true;
}

static void reckon(xpd_needs *out, const shape *s, const xpe_plan *plan, const xpd_choice *choice,
                   int modes)
{
    int64_t frames = s->scan.num_frames, frame = s->scan.n * s->scan.n,
            object = s->grid.rows * s->grid.cols, k = modes;
    bool known = s->job->probe.path != NULL;
    int64_t slab = frames * frame * 8 < SLAB_BYTES ? frames * frame * 8 : SLAB_BYTES;
    /* engine/core/checkpoint.c; positions, errors of every iteration and the header beside it */
    int64_t checkpoint = object * 16 + (known ? object * 24 * k : frame * 20 * k) +
                         frames * frame * 8 * (known ? 1 : 1 + k) + frames * 24 + HEAD_BYTES;

    *out = (xpd_needs){.known = true};
    for (int i = 0; i < plan->count; i++) {
        int64_t bytes = bytes_on(plan, choice, choice->names[i]);
        out->device = bytes > out->device ? bytes : out->device;
    }
    /* the CPU's buffers are rounded up for its loops, which the plan does not know: 7 % were seen
     */
    int64_t rounding = is_cpu(choice->names[0]) ? out->device / 10 : 0;
    /* frames as read; object, coverage and modes of the result and of a picture; the slab */
    out->host = s->bytes + 2 * (object * 12 + frame * 8 * k) + slab + frames * 40 + rounding +
                PROCESS_BYTES;
    /* object, its magnitude and phase, coverage, modes; one mask (one a frame is compressed);
     * positions, refined ones, gains and the frame list; axes */
    out->result = object * 20 + frame * (8 * k + 1) + frames * 64 +
                  (s->grid.rows + s->grid.cols) * 8 + FILE_BYTES;
    out->checkpoints = s->job->checkpoint ? 2 * checkpoint : 0;
}

/* ----------------------------------------------------------------------------------- verdicts */

/* Resources that are short, and what would help. */
typedef struct shortage {
    json_t *resources, *suggestions;
    char text[300], helps[160];
    int64_t required, available; /* of the first */
    char name[32];
} shortage;

static void add_text(char *out, size_t size, const char *between, const char *text)
{
    size_t at = strlen(out);
    snprintf(out + at, size - at, "%s%s", at ? between : "", text);
}

static void add_short(shortage *list, const char *resource, const char *name, int64_t required,
                      int64_t available)
{
    char text[200], a[32], b[32], c[32];
    bool device = strcmp(resource, "device-memory") == 0;

    if (required <= available)
        return;
    snprintf(text, sizeof text,
             device ? "'%s' has %s and %s are needed (short by %s)"
                    : "%s has %s and %s are needed (short by %s)",
             name, xpd_bytes_text(a, available), xpd_bytes_text(b, required),
             xpd_bytes_text(c, required - available));
    add_text(list->text, sizeof list->text, "; ", text);
    if (json_array_size(list->resources) == 0) {
        list->required = required;
        list->available = available;
        snprintf(list->name, sizeof list->name, "%s", name);
    }
    json_array_append_new(list->resources,
                          json_pack("{s:s, s:s, s:I, s:I, s:I}", "resource", resource, "name", name,
                                    "required_bytes", (json_int_t)required, "available_bytes",
                                    (json_int_t)available, "shortfall_bytes",
                                    (json_int_t)(required - available)));
}

static int64_t host_need(const xpd_needs *needs, const xpd_choice *choice)
{
    return needs->host + (choice->count > 0 && is_cpu(choice->names[0]) ? needs->device : 0);
}

/* Appends what is short of memory to the list. */
static void judge(shortage *list, const xpd_needs *needs, const xpe_plan *plan,
                  const xpd_choice *choice, const xpd_devices *devices, const xpd_room *room)
{
    for (int i = 0; i < choice->count && !is_cpu(choice->names[i]); i++) {
        const xpe_device_info *d = xpd_devices_find(devices, choice->names[i]);
        add_short(list, "device-memory", choice->names[i], bytes_on(plan, choice, choice->names[i]),
                  d ? xpd_room_of(room, d) : 0);
    }
    add_short(list, "host-memory", "the memory of this machine", host_need(needs, choice),
              room->host);
}

/* Whether the job would fit with so many modes on these devices. */
static bool fits(const shape *s, const xpd_choice *choice, const xpd_devices *devices,
                 const xpd_room *room, int modes)
{
    xpe_plan *plan = NULL;
    xpd_needs needs;
    shortage list = {.resources = json_array()};
    bool ok = plan_of(&plan, s, modes, choice, NULL);

    if (ok) {
        reckon(&needs, s, plan, choice, modes);
        judge(&list, &needs, plan, choice, devices, room);
        ok = json_array_size(list.resources) == 0;
    }
    xpe_plan_destroy(plan);
    json_decref(list.resources);
    return ok;
}

static void suggest(shortage *list, json_t *change, const char *detail)
{
    add_text(list->helps, sizeof list->helps, ", or with ", detail);
    json_array_append_new(list->suggestions,
                          json_pack("{s:s, s:o}", "detail", detail, "change", change));
}

/* `count` GPUs, those that the job has before others. */
static bool choose_gpus(xpd_choice *out, const xpd_choice *choice, const xpd_devices *devices,
                        int count)
{
    memset(out, 0, sizeof *out);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < devices->count && out->count < count; i++) {
            const xpe_device_info *d = &devices->items[i];
            bool has = false;
            for (int k = 0; k < choice->count; k++)
                has = has || strcmp(choice->names[k], d->name) == 0;
            if (is_cpu(d->name) || d->absent[0] || has != (pass == 0))
                continue;
            snprintf(out->names[out->count++], sizeof out->names[0], "%s", d->name);
        }
    }
    return out->count == count;
}

/* More GPUs, or the other kind of device. */
static void suggest_devices(shortage *list, const shape *s, const xpd_choice *choice,
                            const xpd_devices *devices, const xpd_room *room)
{
    const int modes = s->job->model.probe_modes;
    bool cpu = is_cpu(choice->names[0]);
    xpd_choice other;
    char text[64];

    for (int count = cpu ? 1 : choice->count + 1; choose_gpus(&other, choice, devices, count);
         count++) {
        if (!fits(s, &other, devices, room, modes))
            continue;
        snprintf(text, sizeof text, "%d GPU%s", count, count == 1 ? "" : "s");
        suggest(list, json_pack("{s:{s:o}}", "devices", "devices", xpd_choice_names(&other)), text);
        break;
    }
    const xpe_device_info *host = xpd_devices_find(devices, "cpu");
    if (cpu || !host || host->absent[0])
        return;
    other = (xpd_choice){.names = {"cpu"}, .count = 1};
    if (fits(s, &other, devices, room, modes))
        suggest(list, json_pack("{s:{s:[s]}}", "devices", "devices", "cpu"), "the CPU");
}

/* The most modes with which it fits.  The schedule that adds them is part of the change where it is
 * one stage's. */
static void suggest_modes(shortage *list, const shape *s, const xpd_choice *choice,
                          const xpd_devices *devices, const xpd_room *room)
{
    const xpp_job *job = s->job;
    char text[64];

    for (int modes = job->model.probe_modes - 1; modes >= 1 && !job->probe.path; modes--) {
        if (!fits(s, choice, devices, room, modes))
            continue;
        json_t *change = json_pack("{s:{s:i}}", "model", "probe_modes", modes);
        const json_t *recon = json_object_get(job->doc, "recon");
        int drop = job->model.probe_modes - modes;
        if (job->stage_count == 1 && json_is_object(recon) &&
            job->stages[0].mode_schedule_count >= drop) {
            json_t *schedule = json_array();
            for (int i = 0; i < job->stages[0].mode_schedule_count - drop; i++)
                json_array_append_new(schedule, json_integer(job->stages[0].mode_schedule[i]));
            json_object_set_new(change, "recon", json_pack("{s:o}", "mode_schedule", schedule));
        }
        snprintf(text, sizeof text, "model.probe_modes %d", modes);
        suggest(list, change, text);
        return;
    }
}

static bool refuse(shortage *list, xpd_error *err)
{
    bool helps = json_array_size(list->suggestions) > 0;

    xpd_fail(err, XPP_FAULT_NO_DEVICE_MEMORY, "/devices", "the job never fits here: %s; %s%s",
             list->text, helps ? "it would fit with " : "no change of devices or modes helps: ",
             helps ? list->helps : "fewer or smaller frames are needed");
    err->more =
        json_pack("{s:s, s:I, s:I, s:I, s:O, s:O}", "device", list->name, "required_bytes",
                  (json_int_t)list->required, "available_bytes", (json_int_t)list->available,
                  "shortfall_bytes", (json_int_t)(list->required - list->available), "resources",
                  list->resources, "suggestions", list->suggestions);
    return false;
}

/* ---------------------------------------------------------------------------------- positions */

/* The positions as the reader sealed them; sealed, so that it cannot cut the file under the map. */
static const double *map_positions(int fd, int64_t frames, size_t *bytes, xpd_error *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    *bytes = (size_t)frames * 2 * sizeof(double);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) != 0 ||
        st.st_size < (off_t)*bytes) {
        xpd_fail(err, XPP_FAULT_INTERNAL, "",
                 "the reader's positions are not a sealed array of %lld pairs", (long long)frames);
        return NULL;
    }
    void *map = mmap(NULL, *bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "the positions cannot be mapped: %s",
                 strerror(errno));
        return NULL;
    }
    return map;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Grid and first pixels; the positions are not needed afterwards. */
static bool shape_init(shape *s, const xpp_job *job, const json_t *scan, int positions_fd,
                       xpd_error *err)
{
    xpe_grid_wish wish = {job->model.has_shape ? job->model.object_shape : NULL,
                          job->model.has_origin ? job->model.object_origin_m : NULL};
    xpe_error cause = {0};
    size_t bytes = 0;
    bool ok = false;

    *s = (shape){.job = job, .bytes = json_integer_value(json_object_get(scan, "bytes"))};
    s->scan.num_frames = json_integer_value(json_object_get(scan, "frames"));
    s->scan.n = json_integer_value(json_object_get(scan, "frame_side"));
    s->scan.wavelength_m = number_of(scan, "wavelength_m");
    s->scan.detector_distance_m = number_of(scan, "detector_distance_m");
    s->scan.detector_pitch_m = number_of(scan, "detector_pitch_m");
    if (s->scan.num_frames < 1 || s->scan.num_frames > INT32_MAX || s->scan.n < 1 ||
        s->scan.n > INT32_MAX || s->bytes < 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "",
                        "the reader's answer has %lld frames of side %lld",
                        (long long)s->scan.num_frames, (long long)s->scan.n);
    s->scan.positions = map_positions(positions_fd, s->scan.num_frames, &bytes, err);
    if (!s->scan.positions)
        return false;
    s->first = malloc((size_t)s->scan.num_frames * 2 * sizeof *s->first);
    if (!s->first)
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "no memory for %lld positions",
                 (long long)s->scan.num_frames);
    else if (xpe_grid_derive(&s->grid, s->first, &s->scan, &wish, &cause) != XPE_OK)
        xpd_fail_engine(err, &cause);
    else
        ok = true;
    union {
        const void *in;
        void *out;
    } map = {.in = s->scan.positions};
    munmap(map.out, bytes);
    s->scan.positions = NULL;
    return ok;
}

static json_t *verdict_of(const xpd_choice *choice, const xpe_plan *plan)
{
    json_t *list = json_array();
    for (int i = 0; i < plan->count; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "name", choice->names[i],
                                              "frames", (json_int_t)plan->shards[i].frames,
                                              "bytes_needed", (json_int_t)plan->shards[i].bytes,
                                              "bytes_free", (json_int_t)choice->bytes_free[i]));
    return list;
}

bool xpd_admit(xpd_needs *needs, const xpd_choice *choice, const xpd_devices *devices,
               const xpd_room *room, const xpp_job *job, const json_t *scan, int positions_fd,
               json_t **verdict, xpd_error *err)
{
    shortage list = {.resources = json_array(), .suggestions = json_array()};
    xpe_error cause = {0};
    xpe_plan *plan = NULL;
    bool ok = false;
    shape s;

    *needs = (xpd_needs){0};
    if (!shape_init(&s, job, scan, positions_fd, err))
        goto done;
    if (!plan_of(&plan, &s, job->model.probe_modes, choice, &cause)) {
        xpd_fail_engine(err, &cause);
        goto done;
    }
    reckon(needs, &s, plan, choice, job->model.probe_modes);
    judge(&list, needs, plan, choice, devices, room);
    if (json_array_size(list.resources) > 0) {
        suggest_devices(&list, &s, choice, devices, room);
        suggest_modes(&list, &s, choice, devices, room);
        refuse(&list, err);
        goto done;
    }
    if (verdict)
        *verdict = verdict_of(choice, plan);
    ok = true;
done:
    xpe_plan_destroy(plan);
    json_decref(list.resources);
    json_decref(list.suggestions);
    free(s.first);
    return ok;
}

/* -------------------------------------------------------------------------------------- files */

static bool disk_fail(xpd_error *err, bool never, const char *pointer, const char *what,
                      int64_t required, int64_t there)
{
    char a[32], b[32], c[32];

    xpd_fail(err, never ? XPP_FAULT_NO_DISK : XPP_FAULT_LOW_DISK, pointer,
             "%s takes up to %s, its disk has %s %s (short by %s)%s", what,
             xpd_bytes_text(a, required), xpd_bytes_text(b, there), never ? "in all" : "free now",
             xpd_bytes_text(c, required - there),
             never ? "; it never fits there" : "; try again when there is room");
    err->more =
        json_pack("{s:I, s:I, s:I}", "required_bytes", (json_int_t)required, "available_bytes",
                  (json_int_t)there, "shortfall_bytes", (json_int_t)(required - there));
    if (!never)
        json_object_set_new(err->more, "free_bytes", json_integer(there));
    return false;
}

bool xpd_admit_files(const xpd_needs *needs, const xpd_room *room, const xpp_job *job,
                     xpd_error *err)
{
    const char *where = job->output_path ? "/output/path" : "";
    int64_t checkpoints = needs->checkpoints, result = needs->result;

    for (int now = 0; now < 2; now++) {
        int64_t there = now ? room->result.free : room->result.total,
                kept = now ? room->state.free : room->state.total;
        if (room->one_disk && result + checkpoints > there)
            return disk_fail(err, !now, where, "the result with two checkpoints",
                             result + checkpoints, there);
        if (result > there)
            return disk_fail(err, !now, where, "the result", result, there);
        if (checkpoints > kept)
            return disk_fail(err, !now, "/checkpoint",
                             "two checkpoints (\"checkpoint\": \"off\" does without)", checkpoints,
                             kept);
    }
    return true;
}
