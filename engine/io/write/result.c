/* A result file: /sample and /run as the reference program writes them, /entry for viewers of
 * NeXus.
 *
 * /sample/{object, probe}, attributes pixel_pitch and origin.  /run: parameters with their origin,
 * data error, positions used, coverage, and beyond the reference program the job document, frame
 * list, mask, versions and the hash of the scan.  /entry/object is an NXdata whose signal is the
 * phase, reached by `default` from the root, so that a viewer opens on it. */
#include "file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_sample(xpe_file *f, const xpe_result *r)
{
    const hsize_t object[2] = {(hsize_t)r->grid->rows, (hsize_t)r->grid->cols};
    const hsize_t probe[3] = {(hsize_t)r->probe_modes, (hsize_t)r->n, (hsize_t)r->n};

    xpe_put_group(f, "/sample");
    xpe_put_complex(f, "/sample/object", 2, object, r->object);
    xpe_put_complex(f, "/sample/probe", 3, probe, r->probe);
    xpe_attr_doubles(f, "/sample", "pixel_pitch", &r->grid->pitch_m, 0);
    xpe_attr_doubles(f, "/sample", "origin", r->grid->origin_m, 2);
    xpe_attr_text(f, "/sample", "units", "pixel_pitch and origin in m");
    if (r->name && r->name[0])
        xpe_attr_text(f, "/sample", "name", r->name);
}

static void put_parameters(xpe_file *f, const xpe_result *r)
{
    static const char *const columns[] = {"name", "value", "units", "origin"};
    const char **table;

    if (f->failed)
        return;
    table = calloc(4 * (r->parameter_count ? r->parameter_count : 1), sizeof *table);
    if (!table) {
        f->failed = true;
        return;
    }
    for (size_t i = 0; i < r->parameter_count; i++) {
        const xpe_parameter *p = &r->parameters[i];
        const char *row[4] = {p->name, p->value, p->units ? p->units : "",
                              p->origin ? p->origin : ""};
        memcpy(table + 4 * i, row, sizeof row);
    }
    xpe_put_strings(f, "/run/parameters", r->parameter_count, 4, table);
    xpe_attr_texts(f, "/run/parameters", "columns", columns, 4);
    free(table);
}

static void put_run(xpe_file *f, const xpe_result *r)
{
    const hsize_t object[2] = {(hsize_t)r->grid->rows, (hsize_t)r->grid->cols};
    const hsize_t positions[2] = {(hsize_t)r->num_frames, 2}, iterations = (hsize_t)r->iterations;
    const hsize_t frames = (hsize_t)r->num_frames;

    xpe_put_group(f, "/run");
    if (r->coverage)
        xpe_put_array(f, "/run/coverage", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, object, r->coverage,
                      false);
    xpe_put_array(f, "/run/probe_positions", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, positions,
                  r->positions, false);
    xpe_attr_text(f, "/run/probe_positions", "units", "m");
    xpe_attr_text(f, "/run/probe_positions", "order", "row, column");
    xpe_put_array(f, "/run/data_error", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &iterations,
                  r->data_error, false);
    if (r->gain)
        xpe_put_array(f, "/run/position_gain", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &frames,
                      r->gain, false);
    if (r->frame_list)
        xpe_put_array(f, "/run/frame_list", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &frames,
                      r->frame_list, false);
    if (r->mask && r->mask_frames > 0) {
        const hsize_t mask[3] = {(hsize_t)r->mask_frames, (hsize_t)r->n, (hsize_t)r->n};
        bool one = r->mask_frames == 1;
        xpe_put_array(f, "/run/mask", H5T_STD_U8LE, H5T_NATIVE_UINT8, one ? 2 : 3,
                      one ? mask + 1 : mask, r->mask, true);
        xpe_attr_text(f, "/run/mask", "convention", "1 = masked");
    }
    put_parameters(f, r);
    xpe_put_string(f, "/run/job", r->job);
    xpe_attr_int(f, "/run", "iterations", r->iterations);
    xpe_attr_int(f, "/run", "partial", r->partial);
    if (r->owner)
        xpe_attr_int(f, "/run", "owner_uid", *r->owner);
    xpe_attr_text(f, "/run", "program", r->program);
    xpe_attr_text(f, "/run", "build", r->build);
    xpe_attr_text(f, "/run", "devices", r->devices);
    xpe_attr_text(f, "/run", "end_time", r->end_time);
    xpe_attr_text(f, "/run", "scan_path", r->scan_path);
    xpe_attr_text(f, "/run", "scan_sha256", r->scan_sha256);
}

/* The frame list of a run that used all frames in order is written out too: no reader has to guess.
 */
static void put_frame_list(xpe_file *f, const xpe_result *r)
{
    const hsize_t frames = (hsize_t)r->num_frames;
    int64_t *list;

    if (r->frame_list || f->failed)
        return;
    list = malloc((size_t)r->num_frames * sizeof *list);
    for (int64_t j = 0; list && j < r->num_frames; j++)
        list[j] = j;
    if (list)
        xpe_put_array(f, "/run/frame_list", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &frames, list,
                      false);
    free(list);
}

static void put_axis(xpe_file *f, const char *path, const char *name, int64_t count, double origin,
                     double pitch)
{
    const hsize_t size = (hsize_t)count;
    double *values = malloc((size_t)count * sizeof *values);

    if (!values)
        return;
    for (int64_t i = 0; i < count; i++)
        values[i] = origin + (double)i * pitch;
    xpe_put_array(f, path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &size, values, false);
    xpe_attr_text(f, path, "units", "m");
    xpe_attr_text(f, path, "long_name", name);
    free(values);
}

/* Phase and magnitude share one scratch image. */
static void put_nexus(xpe_file *f, const xpe_result *r)
{
    static const char *const axes[] = {"y", "x"}, *const others[] = {"magnitude"};
    const hsize_t object[2] = {(hsize_t)r->grid->rows, (hsize_t)r->grid->cols};
    int64_t count = r->grid->rows * r->grid->cols;
    float *image = malloc((size_t)count * sizeof *image);

    if (!image)
        return; /* an annotation only: the result itself is whole */
    xpe_put_group(f, "/entry");
    xpe_put_group(f, "/entry/object");
    for (int64_t i = 0; i < count; i++)
        image[i] = atan2f(r->object[i].im, r->object[i].re);
    xpe_put_array(f, "/entry/object/phase", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, object, image,
                  false);
    for (int64_t i = 0; i < count; i++)
        image[i] = hypotf(r->object[i].re, r->object[i].im);
    xpe_put_array(f, "/entry/object/magnitude", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, object, image,
                  false);
    free(image);
    put_axis(f, "/entry/object/y", "row position", r->grid->rows, r->grid->origin_m[0],
             r->grid->pitch_m);
    put_axis(f, "/entry/object/x", "column position", r->grid->cols, r->grid->origin_m[1],
             r->grid->pitch_m);
    xpe_attr_text(f, "/entry/object/phase", "units", "rad");
    xpe_attr_text(f, "/entry/object/phase", "long_name", "object phase");
    xpe_attr_text(f, "/entry/object/phase", "interpretation", "image");
    xpe_attr_text(f, "/entry/object/magnitude", "long_name", "object magnitude");
    xpe_attr_text(f, "/entry/object/magnitude", "interpretation", "image");
    xpe_attr_text(f, "/entry/object", "NX_class", "NXdata");
    xpe_attr_text(f, "/entry/object", "signal", "phase");
    xpe_attr_texts(f, "/entry/object", "auxiliary_signals", others, 1);
    xpe_attr_texts(f, "/entry/object", "axes", axes, 2);
    xpe_attr_text(f, "/entry", "NX_class", "NXentry");
    xpe_attr_text(f, "/entry", "default", "object");
    if (r->name && r->name[0])
        xpe_put_string(f, "/entry/title", r->name);
    xpe_put_string(f, "/entry/program_name", r->program);
    xpe_put_string(f, "/entry/end_time", r->end_time);
    xpe_attr_text(f, "/", "NX_class", "NXroot");
    xpe_attr_text(f, "/", "default", "entry");
}

xpe_status xpe_result_write(xpe_written *out, const char *path, bool overwrite, const xpe_result *r,
                            xpe_error *err)
{
    xpe_file f;
    xpe_status st;
    int64_t pixels = r->grid->rows * r->grid->cols, probe = r->probe_modes * r->n * r->n;
    int64_t bytes = 20 * pixels + 8 * probe + 32 * r->num_frames +
                    r->mask_frames * (r->n * r->n + 128) +
                    8 * (r->iterations + r->grid->rows + r->grid->cols) +
                    (int64_t)(r->job ? strlen(r->job) : 0) + (1 << 20);

    memset(out, 0, sizeof *out);
    st = xpe_file_create(&f, path, &r->folder, overwrite, bytes, err);
    if (st != XPE_OK)
        return st;
    f.whole = r->whole;
    f.whole_context = r->whole_context;
    xpe_attr_int(&f, "/", "format_version", 1);
    put_sample(&f, r);
    put_run(&f, r);
    put_frame_list(&f, r);
    put_nexus(&f, r);
    st = xpe_file_finish(&f, out, err);
    xpe_file_release(&f);
    return st;
}
