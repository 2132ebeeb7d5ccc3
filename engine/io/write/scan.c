/* A scan in the own format, as the reference program's newest release reads it: /scan with
 * `frames`, `probe_positions` and the instrument's numbers; the truth of a simulation, if any,
 * under /truth. */
#include "file.h"

#include <string.h>

static hid_t file_type(xpe_type type)
{
    switch (type) {
    case XPE_U8:
        return H5T_STD_U8LE;
    case XPE_I8:
        return H5T_STD_I8LE;
    case XPE_U16:
        return H5T_STD_U16LE;
    case XPE_I16:
        return H5T_STD_I16LE;
    case XPE_U32:
        return H5T_STD_U32LE;
    case XPE_I32:
        return H5T_STD_I32LE;
    case XPE_U64:
        return H5T_STD_U64LE;
    case XPE_I64:
        return H5T_STD_I64LE;
    case XPE_F32:
        return H5T_IEEE_F32LE;
    case XPE_F64:
        return H5T_IEEE_F64LE;
    }
    return H5I_INVALID_HID;
}

static hid_t memory_type(xpe_type type)
{
    return H5Tget_native_type(file_type(type), H5T_DIR_DEFAULT);
}

static void put_scan(xpe_file *f, const xpe_scan_content *c)
{
    const xpe_scan *s = c->scan;
    hsize_t n = (hsize_t)s->n, J = (hsize_t)s->num_frames;
    const hsize_t frames[3] = {J, n, n}, positions[2] = {J, 2};
    hid_t memory = memory_type(s->type);

    xpe_put_group(f, "/scan");
    xpe_put_array(f, "/scan/frames", file_type(s->type), memory, 3, frames, s->frames, true);
    H5Tclose(memory);
    xpe_put_array(f, "/scan/probe_positions", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, positions,
                  s->positions, false);
    xpe_attr_text(f, "/scan/probe_positions", "units", "m");
    xpe_attr_text(f, "/scan/probe_positions", "order", "row, column");
    xpe_attr_doubles(f, "/scan", "wavelength", &s->wavelength_m, 0);
    xpe_attr_doubles(f, "/scan", "det_distance", &s->detector_distance_m, 0);
    xpe_attr_doubles(f, "/scan", "det_pixel_pitch", &s->detector_pitch_m, 0);
    if (s->saturation > 0)
        xpe_attr_doubles(f, "/scan", "saturation", &s->saturation, 0);
    if (c->name && c->name[0])
        xpe_attr_text(f, "/scan", "name", c->name);
    if (c->electrons)
        xpe_attr_text(f, "/scan", "probe_particle", "electron");
    if (c->note && c->note[0])
        xpe_attr_text(f, "/scan", "note", c->note);
    if (s->mask && s->mask_frames > 0) {
        const hsize_t mask[3] = {(hsize_t)s->mask_frames, n, n};
        bool one = s->mask_frames == 1;
        xpe_put_array(f, "/scan/mask", H5T_STD_U8LE, H5T_NATIVE_UINT8, one ? 2 : 3,
                      one ? mask + 1 : mask, s->mask, true);
        xpe_attr_text(f, "/scan/mask", "convention", "1 = masked");
    }
    if (c->probe) {
        const hsize_t probe[3] = {(hsize_t)c->probe_modes, n, n};
        xpe_put_complex(f, "/scan/probe", 3, probe, c->probe);
    }
}

static void put_truth(xpe_file *f, const xpe_scan_content *c)
{
    hsize_t n = (hsize_t)c->scan->n;
    const hsize_t probe[3] = {(hsize_t)c->true_modes, n, n};

    if (!c->true_object && !c->true_probe)
        return;
    xpe_put_group(f, "/truth");
    if (c->true_object && c->true_grid) {
        const hsize_t object[2] = {(hsize_t)c->true_grid->rows, (hsize_t)c->true_grid->cols};
        xpe_put_complex(f, "/truth/object", 2, object, c->true_object);
        xpe_attr_doubles(f, "/truth", "pixel_pitch", &c->true_grid->pitch_m, 0);
        xpe_attr_doubles(f, "/truth", "origin", c->true_grid->origin_m, 2);
    }
    if (c->true_probe)
        xpe_put_complex(f, "/truth/probe", 3, probe, c->true_probe);
}

xpe_status xpe_scan_write(xpe_written *out, const char *path, bool overwrite,
                          const xpe_scan_content *content, xpe_error *err)
{
    const xpe_scan *s = content->scan;
    xpe_file f;
    xpe_status st;
    int64_t frame = s->n * s->n,
            object = content->true_grid ? content->true_grid->rows * content->true_grid->cols : 0;
    int64_t bytes = s->num_frames * (frame * (int64_t)xpe_type_size(s->type) + 128) +
                    s->mask_frames * (frame + 128) +
                    8 * (object + (content->probe_modes + content->true_modes) * frame) + (1 << 20);

    memset(out, 0, sizeof *out);
    st = xpe_file_create(&f, path, NULL, overwrite, bytes, err);
    if (st != XPE_OK)
        return st;
    xpe_attr_int(&f, "/", "format_version", 1);
    put_scan(&f, content);
    put_truth(&f, content);
    st = xpe_file_finish(&f, out, err);
    xpe_file_release(&f);
    return st;
}
