/* The sender is another process of this service, but its bytes began in a user's file: every shape
 * is bounded before it is multiplied, every size compared with the memfd's, and a memfd that could
 * still shrink (SIGBUS in the engine) or change is not mapped. */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDE_MAX ((int64_t)1 << 31)
#define BYTES_MAX ((int64_t)1 << 46)

/* One entry of scan.arrays, checked. */
typedef struct entry {
    const char *name, *type;
    int rank;
    int64_t shape[3];
    int64_t bytes;
} entry;

static int64_t type_bytes(const char *type)
{
    xpe_type found;

    if (strcmp(type, "complex64") == 0)
        return 8;
    return xpe_type_find(&found, type) ? (int64_t)xpe_type_size(found) : 0;
}

static xpe_status entry_read(entry *out, const json_t *item, int index, xpe_error *err)
{
    const json_t *shape = json_object_get(item, "shape"), *side;
    size_t k;

    *out = (entry){.name = json_string_value(json_object_get(item, "name")),
                   .type = json_string_value(json_object_get(item, "type"))};
    if (!out->name || !out->type || !json_is_array(shape))
        return xpe_fail(err, XPE_INTERNAL, "",
                        "scan message: entry %d of 'arrays' lacks name, type or shape", index);
    out->bytes = type_bytes(out->type);
    if (out->bytes == 0)
        return xpe_fail(err, XPE_INTERNAL, "",
                        "scan message: array '%.32s' has the unknown type '%.32s'", out->name,
                        out->type);
    out->rank = (int)json_array_size(shape);
    if (json_array_size(shape) < 1 || json_array_size(shape) > 3)
        return xpe_fail(err, XPE_INTERNAL, "",
                        "scan message: array '%.32s' has %zu axes, 1 to 3 are known", out->name,
                        json_array_size(shape));
    json_array_foreach (shape, k, side) {
        int64_t length = json_is_integer(side) ? json_integer_value(side) : 0;

        if (length < 1 || length > SIDE_MAX || out->bytes > BYTES_MAX / length)
            return xpe_fail(err, XPE_INTERNAL, "",
                            "scan message: array '%.32s' has an impossible shape", out->name);
        out->shape[k] = length;
        out->bytes *= length;
    }
    return XPE_OK;
}

static xpe_status entry_map(void **out, xpd_input *input, const entry *e, int fd, xpe_error *err)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    void *at;

    if (seals < 0 || (seals & wanted) != wanted)
        return xpe_fail(err, XPE_INTERNAL, "",
                        "scan message: array '%.32s' is not in a sealed memfd", e->name);
    if (fstat(fd, &st) != 0 || st.st_size != e->bytes)
        return xpe_fail(err, XPE_INTERNAL, "",
                        "scan message: array '%.32s' should take %lld bytes, its memfd "
                        "has %lld",
                        e->name, (long long)e->bytes, (long long)st.st_size);
    /* private: kernels before 6.7 refuse a shared mapping of a write-sealed memfd even for reading
     */
    at = mmap(NULL, (size_t)e->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return xpe_fail(err, XPE_NO_MEMORY, "", "cannot map array '%.32s' of %lld bytes: errno %d",
                        e->name, (long long)e->bytes, errno);
    input->maps[input->map_count].at = at;
    input->maps[input->map_count].bytes = (size_t)e->bytes;
    input->map_count++;
    *out = at;
    return XPE_OK;
}

static bool is(const entry *e, const char *type, int rank)
{
    return strcmp(e->type, type) == 0 && e->rank == rank;
}

/* Puts one array where the engine looks for it; false when type or axes are not those of the
 * contract. */
static bool entry_place(xpe_problem_desc *d, const entry *e, void *at)
{
    xpe_scan *scan = &d->scan;
    const int64_t *s = e->shape;

    if (strcmp(e->name, "frames") == 0) {
        if (e->rank != 3 || !xpe_type_find(&scan->type, e->type) || s[1] != s[2])
            return false;
        scan->frames = at;
        scan->num_frames = s[0];
        scan->n = s[1];
    } else if (strcmp(e->name, "positions") == 0) {
        if (!is(e, "float64", 2) || s[1] != 2)
            return false;
        scan->positions = at;
    } else if (strcmp(e->name, "mask") == 0) {
        if (!(is(e, "uint8", 2) && s[0] == s[1]) && !(is(e, "uint8", 3) && s[1] == s[2]))
            return false;
        scan->mask = at;
        scan->mask_frames = e->rank == 2 ? 1 : s[0];
    } else if (strcmp(e->name, "init_object") == 0) {
        if (!is(e, "complex64", 2))
            return false;
        d->init_object = at;
        d->init_object_shape[0] = s[0];
        d->init_object_shape[1] = s[1];
    } else if (strcmp(e->name, "probe") == 0 || strcmp(e->name, "init_probe") == 0) {
        if (!is(e, "complex64", 3) || s[1] != s[2] || s[0] > XPP_MODES_MAX)
            return false;
        if (e->name[0] == 'p') {
            d->probe = at;
            d->probe_count = (int)s[0];
        } else {
            d->init_probe = at;
            d->init_probe_count = (int)s[0];
        }
    }
    return true;
}

/* What the arrays say of each other; a wrong size here would be read past the end of a mapping. */
static xpe_status sizes_agree(const xpd_input *input, const entry *entries, int count,
                              xpe_error *err)
{
    const xpe_scan *scan = &input->desc.scan;

    if (!scan->frames || !scan->positions)
        return xpe_fail(err, XPE_INTERNAL, "", "scan message: frames or positions are missing");
    for (int i = 0; i < count; i++) {
        const entry *e = &entries[i];
        bool good = true;

        if (strcmp(e->name, "positions") == 0)
            good = e->shape[0] == scan->num_frames;
        else if (strcmp(e->name, "mask") == 0)
            good = e->shape[e->rank - 1] == scan->n &&
                   (e->rank == 2 || e->shape[0] == 1 || e->shape[0] == scan->num_frames);
        else if (strcmp(e->name, "probe") == 0 || strcmp(e->name, "init_probe") == 0)
            good = e->shape[1] == scan->n;
        if (!good)
            return xpe_fail(err, XPE_INTERNAL, "",
                            "scan message: array '%s' does not fit %lld frames of %lld x "
                            "%lld",
                            e->name, (long long)scan->num_frames, (long long)scan->n,
                            (long long)scan->n);
    }
    return XPE_OK;
}

static xpe_status number(double *out, const json_t *scan, const char *key, bool needed,
                         xpe_error *err)
{
    const json_t *value = json_object_get(scan, key);

    *out = json_is_number(value) ? json_number_value(value) : 0.0;
    if (needed && !(*out > 0.0))
        return xpe_fail(err, XPE_INTERNAL, "", "scan message: '%s' is missing or not positive",
                        key);
    return XPE_OK;
}

static void keep_text(char *out, size_t size, const json_t *value)
{
    const char *text = json_string_value(value);

    out[0] = 0;
    if (text) {
        strncpy(out, text, size - 1);
        out[size - 1] = 0;
    }
}

static xpe_status describe(xpd_input *input, const xpp_job *job, xpe_error *err)
{
    xpe_problem_desc *d = &input->desc;
    const json_t *scan = input->scan, *folder = json_object_get(scan, "output_folder");
    xpe_status st = number(&d->scan.wavelength_m, scan, "wavelength_m", true, err);

    if (st == XPE_OK)
        st = number(&d->scan.detector_distance_m, scan, "detector_distance_m", true, err);
    if (st == XPE_OK)
        st = number(&d->scan.detector_pitch_m, scan, "detector_pitch_m", true, err);
    if (st == XPE_OK)
        st = number(&d->scan.saturation, scan, "saturation", false, err);
    d->probe_modes = job->model.probe_modes;
    d->grid.shape = job->model.has_shape ? job->model.object_shape : NULL;
    d->grid.origin_m = job->model.has_origin ? job->model.object_origin_m : NULL;
    keep_text(input->scan_name, sizeof input->scan_name, json_object_get(scan, "name"));
    keep_text(input->sha256, sizeof input->sha256,
              json_object_get(json_object_get(scan, "file"), "sha256"));
    input->output_folder =
        (xpe_folder){(uint64_t)json_integer_value(json_object_get(folder, "device")),
                     (uint64_t)json_integer_value(json_object_get(folder, "inode"))};
    return st;
}

xpe_status xpd_input_open(xpd_input *out, const xpp_job *job, const json_t *scan, int *fds,
                          int fd_count, xpe_error *err)
{
    const json_t *arrays = json_object_get(scan, "arrays"), *item;
    entry entries[XPP_IPC_FDS_MAX];
    xpe_status st = XPE_OK;
    size_t i;

    *out = (xpd_input){.scan = json_deep_copy(scan)};
    if (!out->scan)
        st = xpe_fail(err, XPE_NO_MEMORY, "", "no memory for the scan message");
    else if (json_array_size(arrays) != (size_t)fd_count || fd_count > XPP_IPC_FDS_MAX)
        st = xpe_fail(err, XPE_INTERNAL, "", "scan message: %zu arrays, %d descriptors",
                      json_array_size(arrays), fd_count);
    if (st == XPE_OK)
        json_array_foreach (arrays, i, item) {
            void *at = NULL;

            st = entry_read(&entries[i], item, (int)i, err);
            for (size_t k = 0; st == XPE_OK && k < i; k++)
                if (strcmp(entries[k].name, entries[i].name) == 0)
                    st = xpe_fail(err, XPE_INTERNAL, "", "scan message: array '%.32s' comes twice",
                                  entries[i].name);
            if (st == XPE_OK)
                st = entry_map(&at, out, &entries[i], fds[i], err);
            if (st == XPE_OK && !entry_place(&out->desc, &entries[i], at))
                st = xpe_fail(err, XPE_INTERNAL, "",
                              "scan message: array '%.32s' has a type or axes that it "
                              "may not have",
                              entries[i].name);
            if (st != XPE_OK)
                break;
        }
    if (st == XPE_OK)
        st = sizes_agree(out, entries, fd_count, err);
    if (st == XPE_OK)
        st = describe(out, job, err);
    for (int k = 0; k < fd_count; k++) {
        if (fds[k] >= 0)
            close(fds[k]);
        fds[k] = -1;
    }
    if (st != XPE_OK)
        xpd_input_release(out);
    return st;
}

void xpd_input_release(xpd_input *input)
{
    for (int i = 0; i < input->map_count; i++)
        munmap(input->maps[i].at, input->maps[i].bytes);
    json_decref(input->scan);
    *input = (xpd_input){0};
}

void xpd_input_drop_pages(const xpd_input *input)
{
    for (int i = 0; i < input->map_count; i++)
        madvise(input->maps[i].at, input->maps[i].bytes, MADV_DONTNEED);
}

/* ---------------------------------------------------------------------------------- stages */

xpe_stage xpd_stage_of(const xpp_stage *stage)
{
    xpe_stage out = xpe_stage_default();

    out.batch_size = stage->batch_size;
    if (strcmp(stage->algorithm, "refine_positions") == 0) { /* the other members are not its own */
        out.algorithm = XPE_REFINE_POSITIONS;
        out.iterations = 1;
        out.max_shift = stage->max_shift;
        return out;
    }
    out.algorithm = XPE_PMACE;
    out.iterations = stage->iterations;
    out.object_data_fit = stage->object_data_fit;
    out.probe_data_fit = stage->probe_data_fit;
    out.probe_weight_exponent = stage->probe_weight_exponent;
    out.relaxation = stage->relaxation;
    out.mode_schedule = stage->mode_schedule;
    out.schedule_count = stage->mode_schedule_count;
    out.mode_energy_fraction = stage->mode_energy_fraction;
    out.orthogonalize_modes = stage->orthogonalize_modes;
    out.fresnel_distance_m = stage->fresnel_distance_m;
    out.fresnel_radius_pixels = stage->fresnel_radius_pixels;
    out.report_every = stage->report_every;
    return out;
}

/* --------------------------------------------------------------------------------- devices */

static void device_add(xpd_devices *out, const char *name)
{
    snprintf(out->name[out->count], sizeof out->name[0], "%.31s", name);
    out->count++;
}

static bool is_kind(const char *name, const char *kind)
{
    return strncmp(name, kind, strlen(kind)) == 0;
}

/* Default kind: CUDA where a device of it can be used, else the CPU. */
static xpe_status choose_default(xpd_devices *out, int wanted, const xpe_device_info *infos,
                                 size_t count, xpe_error *err)
{
    const char *kind = "cpu";
    int have = 0;

    for (size_t i = 0; i < count; i++)
        if (is_kind(infos[i].name, "cuda:") && !infos[i].absent[0])
            kind = "cuda:";
    for (size_t i = 0; i < count; i++)
        if (is_kind(infos[i].name, kind) && !infos[i].absent[0]) {
            have++;
            if ((wanted == 0 || out->count < wanted) && out->count < XPP_DEVICES_MAX)
                device_add(out, infos[i].name);
        }
    if (have == 0)
        return xpe_fail(err, XPE_NO_DEVICE, "/devices",
                        "this machine has no device that can be used");
    if (wanted > have)
        return xpe_fail(
            err, XPE_NO_DEVICE, "/devices/num_devices",
            "%d devices are asked for, this machine has "
            "%d ('%s'); name \"cpu\" several times in 'devices' for several shards on the CPU",
            wanted, have, out->name[0]);
    return XPE_OK;
}

/* Model and threads of the first device. */
static void first_one(xpd_devices *out, const xpe_device_info *first, int wanted_threads)
{
    memcpy(out->model, first->model, sizeof out->model);
    if (is_kind(first->name, "cpu"))
        out->cpu_threads = wanted_threads > 0 ? wanted_threads : first->threads;
}

xpe_status xpd_devices_choose(xpd_devices *out, const xpp_job *job, xpe_error *err)
{
    xpe_device_info infos[XPP_DEVICES_MAX];
    size_t count;
    xpe_status st = XPE_OK;

    memset(out, 0, sizeof *out);
    if (job->devices.count > 0) { /* the engine refuses what does not exist; no other is touched */
        for (int i = 0; i < job->devices.count && i < XPP_DEVICES_MAX; i++)
            device_add(out, job->devices.names[i]);
        out->names[0] = out->name[0];
        xpe_devices_look(infos, out->names, 1);
        count = 1;
    } else {
        count = xpe_devices_list(infos, XPP_DEVICES_MAX);
        if (count > XPP_DEVICES_MAX)
            count = XPP_DEVICES_MAX;
        st = choose_default(out, job->devices.num_devices, infos, count, err);
    }
    for (int i = 0; i < out->count; i++)
        out->names[i] = out->name[i];
    for (size_t i = 0; i < count && out->count > 0; i++)
        if (strcmp(infos[i].name, out->name[0]) == 0)
            first_one(out, &infos[i], job->devices.cpu_threads);
    return st;
}

xpe_device_list xpd_devices_list(const xpd_devices *devices)
{
    return (xpe_device_list){devices->names, devices->count, devices->cpu_threads};
}
