/* A scan file, judged: shapes, counts, positions, geometry and mask of what a format found.  The
 * rules are those of algorithm.md; every refusal names the numbers and the job member that would
 * help. */
#include "format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES ((int64_t)32 << 20)
#define SLAB_BYTES_MAX ((int64_t)1 << 30) /* where chunks are deep */

struct xpe_scan_file {
    xpe_h5 h;
    xpe_facts facts;
    xpe_scan_info info;
    xpe_notes notes;
    xpe_dset frames, mask;
    double *positions; /* [J][2] */
};

static xpe_status check_frames(xpe_scan_file *f, xpe_error *err)
{
    xpe_status st = XPE_OK;
    xpe_dset *d = &f->frames;
    xpe_scan_info *info = &f->info;
    char shape[96];
    int64_t rows, cols, frame_bytes, chunk;

    if (f->facts.frames[0] == '\0')
        return xpe_h5_fail(&f->h, err,
                           strcmp(f->facts.format, "cxi") == 0
                               ? "no frames: neither /entry_1/data_1/data nor "
                                 "/entry_1/instrument_1/detector_1/data is there"
                               : "no frames: there is no dataset /scan/frames");
    XPE_TRY(xpe_dset_open(d, &f->h, f->facts.frames, err));
    if (d->class != XPE_H5_NUMBER)
        return xpe_h5_fail(&f->h, err,
                           "frames '%s' are %s; counts must be integers or floats of 8 to 64 bits",
                           d->path, d->type_text);
    if (d->rank != 3)
        return xpe_h5_fail(&f->h, err, "frames '%s' have shape %s; [frames][n][n] is needed",
                           d->path, xpe_dset_shape(d, shape));
    rows = (int64_t)d->dims[1];
    cols = (int64_t)d->dims[2];
    info->num_frames = (int64_t)d->dims[0];
    info->type = d->type;
    if (rows != cols)
        return xpe_h5_fail(
            &f->h, err,
            "frames are %lld x %lld pixels; square frames of an even side are needed, so crop "
            "them to %lld",
            (long long)rows, (long long)cols, (long long)((rows < cols ? rows : cols) & ~1LL));
    if (rows % 2 || rows < 2)
        return xpe_h5_fail(
            &f->h, err,
            "frames are %lld x %lld pixels; an even side is needed, so crop or pad them to "
            "%lld",
            (long long)rows, (long long)rows, (long long)(rows < 2 ? 2 : rows - 1));
    if (rows > 16384)
        return xpe_h5_fail(&f->h, err,
                           "frames are %lld x %lld pixels; at most 16384 x 16384 can be used",
                           (long long)rows, (long long)rows);
    info->n = rows;
    info->frames_bytes = d->count * (int64_t)xpe_type_size(d->type);
    frame_bytes = info->frames_bytes / info->num_frames;
    chunk = d->chunk[0] ? (int64_t)d->chunk[0] : 1;
    info->slab_frames = SLAB_BYTES / frame_bytes / chunk * chunk;
    if (info->slab_frames < chunk)
        info->slab_frames = chunk;
    if (info->slab_frames > SLAB_BYTES_MAX / frame_bytes)
        info->slab_frames = SLAB_BYTES_MAX / frame_bytes > 1 ? SLAB_BYTES_MAX / frame_bytes : 1;
    if (info->slab_frames > info->num_frames)
        info->slab_frames = info->num_frames;
done:
    return st;
}

/* ------------------------------------------------------------------------------- positions */

/* Which axis of the dataset counts positions: the first, but [3][J] is seen in CXI files. */
static xpe_status positions_layout(const xpe_scan_file *f, const xpe_dset *d, bool *transposed,
                                   xpe_error *err)
{
    const xpe_facts *facts = &f->facts;
    hsize_t low = (hsize_t)facts->position_columns_min, high = (hsize_t)facts->position_columns_max;
    int64_t frames = f->info.num_frames;
    char shape[96];

    *transposed = false;
    if (d->class != XPE_H5_NUMBER || d->rank != 2)
        return xpe_h5_fail(
            &f->h, err, "positions '%s' are %s of shape %s; numbers of shape [%lld][%d] are needed",
            d->path, d->type_text, xpe_dset_shape(d, shape), (long long)frames,
            facts->position_columns_max);
    if (d->dims[1] >= low && d->dims[1] <= high && (int64_t)d->dims[0] == frames)
        return XPE_OK;
    if (high == 3 && d->dims[0] >= low && d->dims[0] <= high && (int64_t)d->dims[1] == frames) {
        *transposed = true;
        return XPE_OK;
    }
    if (d->dims[1] >= low && d->dims[1] <= high)
        return xpe_h5_fail(&f->h, err, "%lld frames but %llu positions; give one position a frame",
                           (long long)frames, (unsigned long long)d->dims[0]);
    return xpe_h5_fail(&f->h, err, "positions '%s' have shape %s; [%lld][%d] is needed", d->path,
                       xpe_dset_shape(d, shape), (long long)frames, facts->position_columns_max);
}

static xpe_status read_positions(xpe_scan_file *f, xpe_error *err)
{
    xpe_status st = XPE_OK;
    const xpe_facts *facts = &f->facts;
    xpe_dset d = {.id = -1};
    double *raw = NULL;
    int64_t J = f->info.num_frames;
    int64_t columns;
    bool transposed;

    if (facts->positions[0] == '\0')
        return xpe_h5_fail(
            &f->h, err, "no scan positions: looked for %s; without them this is not ptychography",
            facts->where_positions);
    XPE_TRY(xpe_dset_open(&d, &f->h, facts->positions, err));
    XPE_TRY(positions_layout(f, &d, &transposed, err));
    columns = (int64_t)d.dims[transposed ? 0 : 1];
    raw = calloc((size_t)d.count, sizeof *raw);
    f->positions = calloc((size_t)J, 2 * sizeof *f->positions);
    if (!raw || !f->positions) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: %lld positions",
                      (long long)J);
        goto done;
    }
    XPE_TRY(xpe_dset_read(&d, &f->h, 0, (int64_t)d.dims[0], H5T_NATIVE_DOUBLE, raw, err));
    for (int64_t j = 0; j < J; j++) {
        double t[3] = {0, 0, 0};
        for (int64_t c = 0; c < columns; c++)
            t[c] = raw[transposed ? c * J + j : j * columns + c] * facts->position_scale;
        for (int axis = 0; axis < 2; axis++) {
            double value = 0;
            for (int c = 0; c < (columns < 3 ? 2 : 3); c++)
                value += facts->axes[axis][c] == 0 ? 0 : facts->axes[axis][c] * t[c];
            f->positions[2 * j + axis] = value;
        }
        if (!isfinite(f->positions[2 * j]) || !isfinite(f->positions[2 * j + 1])) {
            st = xpe_h5_fail(
                &f->h, err, "the position of frame %lld is (%g, %g); every position must be finite",
                (long long)j, f->positions[2 * j], f->positions[2 * j + 1]);
            goto done;
        }
    }
done:
    free(raw);
    xpe_dset_close(&d);
    return st;
}

/* -------------------------------------------------------------------------------- geometry */

static xpe_status check_length(const xpe_h5 *h, const char *name, const char *member, double value,
                               xpe_error *err)
{
    if (value > 0 && isfinite(value))
        return XPE_OK;
    return xpe_h5_fail(
        h, err, "the %s in the file is %g m; a positive length is needed, give scan.geometry.%s",
        name, value, member);
}

static void append(char *text, size_t size, const char *separator, const char *prefix,
                   const char *word)
{
    size_t used = strlen(text);

    snprintf(text + used, size - used, "%s%s%s", used ? separator : "", prefix, word);
}

/* All that is missing in one sentence; where it was looked for comes last, being the longest. */
static xpe_status missing_geometry(const xpe_scan_file *f, xpe_error *err)
{
    const xpe_facts *facts = &f->facts;
    const xpe_scan_info *info = &f->info;
    const struct {
        double value;
        const char *name, *where, *member;
    } needed[] = {
        {info->wavelength_m, "wavelength", facts->where_wavelength, "wavelength_m or energy_kev"},
        {info->detector_distance_m, "detector distance", facts->where_distance,
         "detector_distance_m"},
        {info->detector_pitch_m, "detector pitch", facts->where_pitch, "detector_pitch_m"}};
    char names[80] = "", members[128] = "", places[400] = "";

    for (size_t i = 0; i < 3; i++) {
        if (needed[i].value != 0)
            continue;
        append(names, sizeof names, " and no ", "", needed[i].name);
        append(members, sizeof members, " and ", "scan.geometry.", needed[i].member);
        append(places, sizeof places, "; ", "", needed[i].where);
    }
    if (names[0] == '\0')
        return XPE_OK;
    xpe_h5_fail(&f->h, err, "the file states no %s; give %s (looked for %s)", names, members,
                places);
    if (err)
        snprintf(err->pointer, sizeof err->pointer, "/scan/geometry");
    return XPE_INVALID;
}

static xpe_status settle_geometry(xpe_scan_file *f, const xpe_read_options *o, xpe_error *err)
{
    xpe_status st = XPE_OK;
    const xpe_facts *facts = &f->facts;
    xpe_scan_info *info = &f->info;
    double pitch[2] = {facts->pitch_m[0] > 0 ? facts->pitch_m[0] : facts->pitch_m[1],
                       facts->pitch_m[1] > 0 ? facts->pitch_m[1] : facts->pitch_m[0]};
    bool square = fabs(pitch[0] - pitch[1]) <= 1e-4 * fabs(pitch[0]);

    info->electrons = facts->electrons;
    info->wavelength_m = o->wavelength_m > 0 ? o->wavelength_m
                         : o->energy_kev > 0 ? xpe_wavelength(o->energy_kev, facts->electrons)
                         : facts->wavelength_m != 0 ? facts->wavelength_m
                         : facts->energy_kev != 0
                             ? xpe_wavelength(facts->energy_kev, facts->electrons)
                             : 0;
    info->energy_kev =
        facts->electrons || info->wavelength_m <= 0 ? 0 : xpe_wavelength(info->wavelength_m, false);
    info->detector_distance_m =
        o->detector_distance_m > 0 ? o->detector_distance_m : facts->distance_m;
    info->detector_pitch_m = o->detector_pitch_m > 0 ? o->detector_pitch_m : square ? pitch[0] : 0;
    info->saturation = o->saturation > 0       ? o->saturation
                       : facts->saturation > 0 ? facts->saturation
                                               : 0;
    if (!square && o->detector_pitch_m > 0)
        xpe_notes_add(&f->notes,
                      "the file states detector pixels of %g m by %g m; %g m was used for both, as "
                      "the job says",
                      pitch[0], pitch[1], o->detector_pitch_m);
    if (!square && o->detector_pitch_m <= 0)
        return xpe_h5_fail(
            &f->h, err,
            "detector pixels are %g m by %g m (rows, columns); square pixels are needed", pitch[0],
            pitch[1]);
    XPE_TRY(missing_geometry(f, err));
    XPE_TRY(check_length(&f->h, "wavelength", "wavelength_m", info->wavelength_m, err));
    XPE_TRY(check_length(&f->h, "detector distance", "detector_distance_m",
                         info->detector_distance_m, err));
    XPE_TRY(check_length(&f->h, "detector pitch", "detector_pitch_m", info->detector_pitch_m, err));
done:
    return st;
}

/* ------------------------------------------------------------------------------------ mask */

static xpe_status check_mask(xpe_scan_file *f, xpe_error *err)
{
    xpe_status st = XPE_OK;
    xpe_dset *d = &f->mask;
    hsize_t n = (hsize_t)f->info.n, J = (hsize_t)f->info.num_frames;
    char shape[96];

    if (f->facts.mask[0] == '\0')
        return XPE_OK;
    XPE_TRY(xpe_dset_open(d, &f->h, f->facts.mask, err));
    if (d->class != XPE_H5_NUMBER || d->is_float)
        return xpe_h5_fail(&f->h, err, "mask '%s' is %s; integers are needed", d->path,
                           d->type_text);
    if (d->rank == 2 && d->dims[0] == n && d->dims[1] == n)
        f->info.mask_frames = 1;
    else if (d->rank == 3 && d->dims[0] == J && d->dims[1] == n && d->dims[2] == n)
        f->info.mask_frames = f->info.num_frames;
    else
        return xpe_h5_fail(
            &f->h, err, "mask '%s' has shape %s; [%llu][%llu] or [%llu][%llu][%llu] is needed",
            d->path, xpe_dset_shape(d, shape), (unsigned long long)n, (unsigned long long)n,
            (unsigned long long)J, (unsigned long long)n, (unsigned long long)n);
done:
    return st;
}

/* Flags of a few rows or frames into 0 and 1; returns how many are 1. */
static int64_t flags_to_mask(uint8_t *out, const uint64_t *flags, int64_t count, bool is_flags)
{
    int64_t masked = 0;

    for (int64_t i = 0; i < count; i++) {
        out[i] = (is_flags ? flags[i] & ~(uint64_t)4096 : flags[i]) != 0;
        masked += out[i];
    }
    return masked;
}

xpe_status xpe_scan_file_mask(xpe_scan_file *f, uint8_t *out, xpe_error *err)
{
    xpe_status st = XPE_OK;
    xpe_dset *d = &f->mask;
    int64_t total = f->info.mask_frames * f->info.n * f->info.n, masked = 0;
    int64_t row = total ? d->count / (int64_t)d->dims[0] : 0; /* elements along the slowest axis */
    int64_t slab = total ? (int64_t)(4 << 20) / 8 / row : 0;
    uint64_t *flags = NULL;

    if (total == 0)
        return XPE_OK;
    slab = slab < 1 ? 1 : slab;
    flags = malloc((size_t)(slab * row) * sizeof *flags);
    if (!flags) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: the mask");
        goto done;
    }
    for (int64_t first = 0; first < (int64_t)d->dims[0]; first += slab) {
        int64_t count = (int64_t)d->dims[0] - first < slab ? (int64_t)d->dims[0] - first : slab;
        /* negative flags (-1 = bad) must not be cut to 0, so they are read signed */
        XPE_TRY(xpe_dset_read(d, &f->h, first, count,
                              d->type == XPE_U64 ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64, flags,
                              err));
        masked += flags_to_mask(out + first * row, flags, count * row, f->facts.mask_is_flags);
    }
    if (2 * masked > total)
        st = xpe_h5_fail(
            &f->h, err,
            "mask '%s' hides %lld of %lld pixels, more than half; %s means masked, so it may have "
            "the opposite meaning",
            d->path, (long long)masked, (long long)total, f->facts.mask_is_flags ? "not 0" : "1");
done:
    free(flags);
    return st;
}

/* ------------------------------------------------------------------------------------ life */

static xpe_status open_all(xpe_scan_file *f, const char *path, const xpe_read_options *o,
                           xpe_error *err)
{
    xpe_status st = XPE_OK;

    XPE_TRY(xpe_h5_open(&f->h, path, o->roots, "/scan/path", err));
    f->info.file = f->h.identity;
    XPE_TRY(xpe_format_find(&f->facts, &f->h, o->format, &f->notes, err));
    snprintf(f->info.format, sizeof f->info.format, "%s", f->facts.format);
    snprintf(f->info.name, sizeof f->info.name, "%s", f->facts.name);
    XPE_TRY(check_frames(f, err));
    XPE_TRY(read_positions(f, err));
    XPE_TRY(settle_geometry(f, o, err));
    XPE_TRY(check_mask(f, err));
done:
    return st;
}

xpe_status xpe_scan_file_open(xpe_scan_file **out, const char *path,
                              const xpe_read_options *options, xpe_error *err)
{
    static const xpe_read_options nothing = {.format = "auto"};
    xpe_status st;
    xpe_scan_file *f = calloc(1, sizeof *f);

    *out = NULL;
    options = options ? options : &nothing;
    if (!f)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    f->h.fd = -1;
    f->h.file = f->h.lapl = f->frames.id = f->mask.id = -1;
    st = open_all(f, path, options, err);
    if (options->seen)
        *options->seen = f->info;
    if (st == XPE_OK) {
        *out = f;
        f = NULL;
    }
    xpe_scan_file_close(f);
    return st;
}

void xpe_scan_file_close(xpe_scan_file *f)
{
    if (!f)
        return;
    xpe_dset_close(&f->mask);
    xpe_dset_close(&f->frames);
    xpe_h5_close(&f->h);
    xpe_notes_release(&f->notes);
    free(f->positions);
    free(f);
}

const xpe_scan_info *xpe_scan_file_info(const xpe_scan_file *f)
{
    return &f->info;
}

const double *xpe_scan_file_positions(const xpe_scan_file *f)
{
    return f->positions;
}

xpe_scan xpe_scan_file_scan(const xpe_scan_file *f)
{
    const xpe_scan_info *i = &f->info;

    return (xpe_scan){.num_frames = i->num_frames,
                      .n = i->n,
                      .type = i->type,
                      .saturation = i->saturation,
                      .positions = f->positions,
                      .wavelength_m = i->wavelength_m,
                      .detector_distance_m = i->detector_distance_m,
                      .detector_pitch_m = i->detector_pitch_m};
}

xpe_status xpe_scan_file_frames(xpe_scan_file *f, int64_t first, int64_t count, void *out,
                                xpe_error *err)
{
    return xpe_dset_read(&f->frames, &f->h, first, count, xpe_h5_memory_type(f->info.type), out,
                         err);
}

xpe_status xpe_scan_file_unchanged(const xpe_scan_file *f, xpe_error *err)
{
    return xpe_h5_unchanged(&f->h, err);
}

/* In the far field a probe fills at most half of the window n dx, and neighbours must overlap
 * within it.  A format that is not far-field by definition is refused beyond that: near-field scans
 * are stored in the same way, and a picture made of them would be wrong. */
xpe_status xpe_scan_file_sampling(xpe_scan_file *f, xpe_error *err)
{
    const xpe_scan_info *i = &f->info;
    double window = i->wavelength_m * i->detector_distance_m / i->detector_pitch_m;
    double step = xpe_position_step(f->positions, i->num_frames);

    if (step <= window / 2)
        return XPE_OK;
    if (f->facts.far_field_stated) {
        xpe_notes_add(&f->notes,
                      "neighbouring positions are %.4g m apart, more than half of the %.4g m that "
                      "a frame of %lld "
                      "pixels spans; patches hardly overlap, so check positions and geometry",
                      step, window, (long long)i->n);
        return XPE_OK;
    }
    return xpe_h5_fail(
        &f->h, err,
        "neighbouring positions are %.4g m apart, but in the far field a frame of %lld pixels "
        "spans only %.4g m of the object and a probe at most half of it; this is near-field data "
        "(not supported), or positions or geometry are in other units",
        step, (long long)i->n, window);
}

size_t xpe_scan_file_warnings(const xpe_scan_file *f)
{
    return f->notes.count;
}

const char *xpe_scan_file_warning(const xpe_scan_file *f, size_t index)
{
    return index < f->notes.count ? f->notes.items[index] : "";
}
