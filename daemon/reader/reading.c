/* Scan, probe and start arrays of one job.
 *
 * Faults are collected rather than stopping at the first: the output path, the scan and each
 * further array are looked at on their own, and only what builds on something refused is left out.
 * Frames go slab by slab from the file into a memory file, and are counted and hashed while they
 * are in cache. */
#include "reading.h"

#include "fault.h"
#include "memory.h"
#include "output.h"

#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The sum of a frame, of up to 16384 x 16384 pixels, stays within float32. */
#define COUNTS_MAX 1e30

typedef struct work {
    xpd_reading *r;
    xpe_scan_file *file;
    const xpe_scan_info *info;
    xpe_grid grid;
    json_t *arrays, *warnings;
    char sha256[65];
    int64_t probe_modes, init_probe_modes;
    xpd_output_place output;
} work;

static void refuse(xpd_reading *r, const xpe_error *err)
{
    xpp_fault fault = xpd_fault_of(err);

    xpp_errors_add(r->errors, err->pointer, "%s", err->text);
    /* An own failure outweighs the user's, a dataset's outweighs the output's. */
    if (r->fault == XPP_FAULT_NONE || fault == XPP_FAULT_INTERNAL ||
        fault == XPP_FAULT_UNAVAILABLE ||
        (r->fault == XPP_FAULT_OUTPUT && fault == XPP_FAULT_DATASET))
        r->fault = fault;
}

/* Takes fd; -1 is passed on as a failure. */
static bool add_array(work *w, int fd, const char *name, const char *type, const int64_t *shape,
                      int rank)
{
    json_t *dims = json_array();

    if (fd < 0 || w->r->fd_count == XPP_IPC_FDS_MAX) {
        json_decref(dims);
        return false;
    }
    for (int i = 0; i < rank; i++)
        json_array_append_new(dims, json_integer(shape[i]));
    json_array_append_new(w->arrays,
                          json_pack("{s:s, s:s, s:o}", "name", name, "type", type, "shape", dims));
    w->r->fds[w->r->fd_count++] = fd;
    return true;
}

/* ------------------------------------------------------------------------------------- frames */

void xpd_pixel_warnings(json_t *warnings, const xpe_pixel_stats *s, const xpe_scan_info *info)
{
    const struct {
        int64_t count;
        const char *what;
    } kinds[] = {{s->not_finite, "are NaN or infinite"},
                 {s->negative, "are negative, as detectors mark bad pixels"},
                 {s->type_max, "hold the largest value of their type, as detectors mark gaps"},
                 {s->saturated, "are at or above the saturation"}};
    char text[200];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].count) {
            snprintf(text, sizeof text, "%lld of %lld pixels (%.2g %%) %s; they are masked",
                     (long long)kinds[i].count, (long long)s->pixels,
                     100.0 * (double)kinds[i].count / (double)s->pixels, kinds[i].what);
            json_array_append_new(warnings, json_string(text));
        }
    if (s->zero_frames) {
        snprintf(text, sizeof text, "%lld of %lld frames are zero everywhere",
                 (long long)s->zero_frames, (long long)info->num_frames);
        json_array_append_new(warnings, json_string(text));
    }
}

static xpe_status judge_pixels(const work *w, const xpe_pixel_stats *s, xpe_error *err)
{
    int64_t masked = xpe_pixel_stats_masked(s);

    if (s->zero_frames == s->frames)
        return xpe_fail(err, XPE_INVALID, "/scan/path",
                        "scan.path '%.150s': all %lld frames are zero everywhere",
                        w->r->job->scan.path, (long long)s->frames);
    if (2 * masked > s->pixels)
        return xpe_fail(err, XPE_INVALID, "/scan/path",
                        "scan.path '%.150s': %lld of %lld pixels are masked (NaN, negative, "
                        "largest value of the type or saturated), more than half",
                        w->r->job->scan.path, (long long)masked, (long long)s->pixels);
    if (s->max > COUNTS_MAX)
        return xpe_fail(
            err, XPE_INVALID, "/scan/path",
            "scan.path '%.150s': the largest count is %.3g; at most %.0g can be used in "
            "single precision, so divide the frames by a constant, or set "
            "scan.saturation where these pixels are bad",
            w->r->job->scan.path, s->max, COUNTS_MAX);
    return XPE_OK;
}

static xpe_status read_frames(work *w, struct sha256_ctx *hash, xpe_error *err)
{
    const xpe_scan_info *i = w->info;
    const int64_t shape[3] = {i->num_frames, i->n, i->n};
    int64_t frame = i->frames_bytes / i->num_frames;
    xpe_pixel_stats stats = {0};
    xpe_status st = XPE_OK;
    int fd;

    if (i->frames_bytes > w->r->memory_max)
        return xpe_fail(err, XPE_NO_MEMORY, "/scan/path",
                        "scan.path '%.150s': the frames need %.2f GiB of memory, %.2f GiB "
                        "are available",
                        w->r->job->scan.path, (double)i->frames_bytes / 1073741824,
                        (double)w->r->memory_max / 1073741824);
    fd = xpd_memory_create("frames", i->frames_bytes, err);
    if (fd < 0)
        return XPE_NO_MEMORY;
    for (int64_t first = 0; st == XPE_OK && first < i->num_frames; first += i->slab_frames) {
        int64_t count =
            i->num_frames - first < i->slab_frames ? i->num_frames - first : i->slab_frames;
        xpd_window window;
        st = xpd_window_map(&window, fd, first * frame, count * frame, err);
        if (st != XPE_OK)
            break;
        st = xpe_scan_file_frames(w->file, first, count, window.data, err);
        if (st == XPE_OK) {
            sha256_update(hash, (size_t)(count * frame), window.data);
            xpe_pixel_stats_add(&stats, window.data, i->type, count, i->n, i->saturation);
        }
        xpd_window_unmap(&window);
    }
    if (st == XPE_OK)
        st = judge_pixels(w, &stats, err);
    if (st == XPE_OK)
        st = xpd_memory_seal(fd, err);
    if (st != XPE_OK || !add_array(w, fd, "frames", xpe_type_name(i->type), shape, 3))
        close(fd);
    else
        xpd_pixel_warnings(w->warnings, &stats, i);
    return st;
}

static xpe_status read_positions(work *w, struct sha256_ctx *hash, xpe_error *err)
{
    const int64_t shape[2] = {w->info->num_frames, 2};
    int64_t bytes = w->info->num_frames * 16;
    const double *positions = xpe_scan_file_positions(w->file);

    if (hash)
        sha256_update(hash, (size_t)bytes, (const uint8_t *)positions);
    return add_array(w, xpd_memory_copy("positions", positions, bytes, err), "positions", "float64",
                     shape, 2)
               ? XPE_OK
               : XPE_NO_MEMORY;
}

static xpe_status read_mask(work *w, xpe_error *err)
{
    const xpe_scan_info *i = w->info;
    const int64_t shape[3] = {i->mask_frames, i->n, i->n};
    bool one = i->mask_frames == 1;
    int64_t bytes = i->mask_frames * i->n * i->n, masked = 0;
    xpd_window window = {0};
    xpe_status st;
    char text[160];
    int fd;

    if (bytes == 0)
        return XPE_OK;
    fd = xpd_memory_create("mask", bytes, err);
    if (fd < 0)
        return XPE_NO_MEMORY;
    st = xpd_window_map(&window, fd, 0, bytes, err);
    if (st == XPE_OK)
        st = xpe_scan_file_mask(w->file, window.data, err);
    for (int64_t k = 0; st == XPE_OK && k < bytes; k++)
        masked += ((uint8_t *)window.data)[k];
    xpd_window_unmap(&window);
    if (st == XPE_OK)
        st = xpd_memory_seal(fd, err);
    if (st != XPE_OK || !add_array(w, fd, "mask", "uint8", one ? shape + 1 : shape, one ? 2 : 3)) {
        close(fd);
        return st;
    }
    snprintf(text, sizeof text, "the file's mask hides %lld of %lld pixels%s", (long long)masked,
             (long long)bytes, one ? " of every frame" : "");
    json_array_append_new(w->warnings, json_string(text));
    return XPE_OK;
}

static bool read_scan(work *w)
{
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];
    xpe_error err = {0};
    xpe_status st;

    sha256_init(&hash);
    st = w->r->arrays ? read_frames(w, &hash, &err) : XPE_OK;
    if (st == XPE_OK)
        st = read_positions(w, &hash, &err);
    if (st == XPE_OK && w->r->arrays)
        st = read_mask(w, &err);
    if (st == XPE_OK)
        st = xpe_scan_file_unchanged(w->file, &err);
    if (st != XPE_OK) {
        refuse(w->r, &err);
        return false;
    }
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(w->sha256 + 2 * i, 3, "%02x", digest[i]);
    return true;
}

/* ------------------------------------------------------------------------------ further arrays */

static xpe_status judge_probe(const work *w, const xpe_array *a, const char *pointer, bool known,
                              xpe_error *err)
{
    int modes = w->r->job->model.probe_modes;

    if (w->info && a->shape[1] != w->info->n)
        return xpe_fail(
            err, XPE_INVALID, pointer,
            "'%.100s' is a probe of %lld x %lld pixels, but the frames have %lld x %lld",
            a->dataset, (long long)a->shape[1], (long long)a->shape[2], (long long)w->info->n,
            (long long)w->info->n);
    if (known && a->shape[0] != modes)
        return xpe_fail(err, XPE_INVALID, pointer,
                        "'%.100s' has %lld modes, but model.probe_modes is %d; a known probe needs "
                        "all of them",
                        a->dataset, (long long)a->shape[0], modes);
    if (!known && a->shape[0] > modes)
        return xpe_fail(err, XPE_INVALID, pointer,
                        "'%.100s' has %lld modes, but model.probe_modes is only %d", a->dataset,
                        (long long)a->shape[0], modes);
    return XPE_OK;
}

static xpe_status judge_object(const work *w, const xpe_array *a, const char *pointer,
                               xpe_error *err)
{
    if (w->info && (a->shape[1] != w->grid.rows || a->shape[2] != w->grid.cols))
        return xpe_fail(
            err, XPE_INVALID, pointer,
            "'%.100s' is an object of %lld x %lld pixels, but the grid of this scan has "
            "%lld x %lld; set model.object_shape and object_origin_m to those of the object",
            a->dataset, (long long)a->shape[1], (long long)a->shape[2], (long long)w->grid.rows,
            (long long)w->grid.cols);
    return XPE_OK;
}

/* Reads one array where a path is given; name is that of the array handed over. */
static void take_array(work *w, const char *path, const char *dataset, const char *name,
                       const char *pointer)
{
    bool object = strcmp(name, "init_object") == 0, known = strcmp(name, "probe") == 0;
    xpe_array a = {0};
    xpe_error err = {0};
    xpe_status st;
    char text[256];

    if (!path)
        return;
    st = xpe_array_read(&a, path, dataset, object ? XPE_ARRAY_OBJECT : XPE_ARRAY_PROBE,
                        !w->r->arrays, w->r->roots, pointer, &err);
    if (st == XPE_OK)
        st = object ? judge_object(w, &a, pointer, &err) : judge_probe(w, &a, pointer, known, &err);
    if (st == XPE_OK && known)
        w->probe_modes = a.shape[0];
    else if (st == XPE_OK && !object)
        w->init_probe_modes = a.shape[0];
    if (st == XPE_OK && !w->r->arrays && w->info && a.pixel_pitch_m > 0 &&
        fabs(a.pixel_pitch_m / w->grid.pitch_m - 1) > 1e-3) {
        snprintf(text, sizeof text, "%s has pixels of %.6g m, this scan's object pixel is %.6g m",
                 name, a.pixel_pitch_m, w->grid.pitch_m);
        json_array_append_new(w->warnings, json_string(text));
    }
    if (st == XPE_OK && w->r->arrays) {
        int64_t bytes = a.shape[0] * a.shape[1] * a.shape[2] * (int64_t)sizeof(xpe_c32);
        if (!add_array(w, xpd_memory_copy(name, a.data, bytes, &err), name, "complex64",
                       object ? a.shape + 1 : a.shape, object ? 2 : 3))
            st = err.status == XPE_OK ? xpe_fail(&err, XPE_INTERNAL, "", "too many arrays")
                                      : err.status;
    }
    if (st != XPE_OK) {
        if (err.pointer[0] == '\0')
            snprintf(err.pointer, sizeof err.pointer, "%s", pointer);
        refuse(w->r, &err);
    }
    xpe_array_release(&a);
}

static void take_arrays(work *w)
{
    const xpp_job *job = w->r->job;
    bool known = job->probe.path != NULL;

    take_array(w, job->probe.path, job->probe.dataset, "probe", "/probe/path");
    if (job->init_probe.path)
        take_array(w, job->init_probe.path, job->init_probe.dataset, "init_probe",
                   "/init_probe/path");
    else if (job->init_path && !known)
        take_array(w, job->init_path, NULL, "init_probe", "/init/path");
    if (job->init_object.path)
        take_array(w, job->init_object.path, job->init_object.dataset, "init_object",
                   "/init_object/path");
    else if (job->init_path)
        take_array(w, job->init_path, NULL, "init_object", "/init/path");
}

/* ---------------------------------------------------------------------------------------- all */

static bool open_scan(work *w)
{
    const xpp_job *job = w->r->job;
    const xpe_read_options options = {.format = job->scan.format,
                                      .energy_kev = job->scan.energy_kev,
                                      .wavelength_m = job->scan.wavelength_m,
                                      .detector_distance_m = job->scan.detector_distance_m,
                                      .detector_pitch_m = job->scan.detector_pitch_m,
                                      .saturation = job->scan.saturation,
                                      .roots = w->r->roots};
    const xpe_grid_wish wish = {job->model.has_shape ? job->model.object_shape : NULL,
                                job->model.has_origin ? job->model.object_origin_m : NULL};
    xpe_error err = {0};
    xpe_scan scan;
    xpe_status st = xpe_scan_file_open(&w->file, job->scan.path, &options, &err);

    if (st == XPE_OK)
        st = xpe_scan_file_sampling(w->file, &err);
    if (st == XPE_OK) {
        scan = xpe_scan_file_scan(w->file);
        st = xpe_grid_derive(&w->grid, NULL, &scan, &wish, &err);
    }
    if (st != XPE_OK) {
        refuse(w->r, &err);
        return false;
    }
    w->info = xpe_scan_file_info(w->file);
    return true;
}

static json_t *describe(const work *w)
{
    const xpe_scan_info *i = w->info;
    const xpe_file_identity *id = &i->file;
    json_t *file = json_pack("{s:s, s:I, s:I, s:I, s:I}", "path", id->path, "device",
                             (json_int_t)id->device, "inode", (json_int_t)id->inode, "size",
                             (json_int_t)id->bytes, "mtime_ns", (json_int_t)id->mtime_ns);
    json_t *scan;

    if (!file) { /* a path that is not UTF-8 */
        file = json_pack("{s:s, s:I, s:I, s:I, s:I}", "path", w->r->job->scan.path, "device",
                         (json_int_t)id->device, "inode", (json_int_t)id->inode, "size",
                         (json_int_t)id->bytes, "mtime_ns", (json_int_t)id->mtime_ns);
    }
    if (file && w->r->arrays)
        json_object_set_new(file, "sha256", json_string(w->sha256));
    for (size_t k = 0; k < xpe_scan_file_warnings(w->file); k++)
        json_array_insert_new(w->warnings, k, json_string(xpe_scan_file_warning(w->file, k)));
    scan = json_pack(
        "{s:s, s:I, s:I, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:{s:[I,I], s:[f,f]}, s:I, s:I, s:O, "
        "s:O, s:o}",
        "format", i->format, "frames", (json_int_t)i->num_frames, "frame_side", (json_int_t)i->n,
        "type", xpe_type_name(i->type), "bytes", (json_int_t)i->frames_bytes, "wavelength_m",
        i->wavelength_m, "detector_distance_m", i->detector_distance_m, "detector_pitch_m",
        i->detector_pitch_m, "saturation", i->saturation, "object_pixel_m", w->grid.pitch_m, "grid",
        "shape", (json_int_t)w->grid.rows, (json_int_t)w->grid.cols, "origin_m",
        w->grid.origin_m[0], w->grid.origin_m[1], "probe_modes", (json_int_t)w->probe_modes,
        "init_probe_modes", (json_int_t)w->init_probe_modes, "warnings", w->warnings, "arrays",
        w->arrays, "file", file);
    if (scan) {
        json_t *name = json_string(i->name); /* NULL when it is not UTF-8 */
        json_object_set_new(scan, "name", name ? name : json_string(""));
        json_object_set_new(scan, "energy_kev",
                            i->energy_kev > 0 ? json_real(i->energy_kev) : json_null());
        if (w->r->write_roots && w->output.folder_inode)
            json_object_set_new(scan, "output_folder",
                                json_pack("{s:I, s:I}", "device",
                                          (json_int_t)w->output.folder_device, "inode",
                                          (json_int_t)w->output.folder_inode));
        if (w->output.folder_inode)
            json_object_set_new(scan, "output_disk",
                                json_pack("{s:I, s:I, s:I, s:I}", "device",
                                          (json_int_t)w->output.folder_device, "inode",
                                          (json_int_t)w->output.folder_inode, "bytes_total",
                                          (json_int_t)w->output.disk_total, "bytes_free",
                                          (json_int_t)w->output.disk_free));
        if (w->output.exists)
            json_object_set_new(scan, "replaces",
                                json_pack("{s:I, s:I, s:I}", "inode", (json_int_t)w->output.inode,
                                          "bytes", (json_int_t)w->output.bytes, "mtime_ns",
                                          (json_int_t)w->output.mtime_ns));
        if (w->output.exists && w->output.owner >= 0)
            json_object_set_new(json_object_get(scan, "replaces"), "owner",
                                json_integer(w->output.owner));
    }
    return scan;
}

bool xpd_reading_run(xpd_reading *r)
{
    work w = {.r = r, .arrays = json_array(), .warnings = json_array()};
    xpe_error err = {0};

    r->errors = json_array();
    if (r->output_path && xpd_output_check(&w.output, r->output_path, r->job->output_overwrite,
                                           r->write_roots, &err) != XPE_OK)
        refuse(r, &err);
    /* Frames come last but first in the message, so a fault elsewhere saves reading them. */
    if (open_scan(&w)) {
        bool whole = r->arrays;
        r->arrays = false;
        take_arrays(&w);
        r->arrays = whole;
        if (json_array_size(r->errors) == 0 && read_scan(&w) && r->arrays)
            take_arrays(&w);
    } else {
        r->arrays = false;
        take_arrays(&w);
    }
    if (json_array_size(r->errors) == 0) {
        r->scan = describe(&w);
        if (!r->scan) {
            xpe_fail(&err, XPE_INTERNAL, "", "the scan cannot be described");
            refuse(r, &err);
        }
    }
    json_decref(w.arrays);
    json_decref(w.warnings);
    xpe_scan_file_close(w.file);
    return r->scan != NULL;
}

void xpd_reading_release(xpd_reading *r)
{
    for (int i = 0; i < r->fd_count; i++)
        close(r->fds[i]);
    r->fd_count = 0;
    json_decref(r->scan);
    json_decref(r->errors);
    r->scan = r->errors = NULL;
}
