/* Writes the four pictures of a state and the raw numbers beside them.  Runs in the writer thread,
 * on a snapshot that nobody else touches.
 *
 * The object's common phase is taken off, because the data leave it free: without that the colours
 * of one and the same picture would turn from iteration to iteration. */
#include "preview.h"

#include "colour.h"
#include "files.h"
#include "picture.h"
#include "pngfile.h"
#include "xptychod/protocol.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Percentiles that span the colours. */
#define PHASE_LOW 1.0
#define PHASE_HIGH 99.0
#define GREY_LOW 0.5
#define GREY_HIGH 99.5

void xpd_snapshot_release(xpd_snapshot *snapshot)
{
    free(snapshot->object);
    free(snapshot->coverage);
    free(snapshot->probe);
    *snapshot = (xpd_snapshot){0};
}

static void widen(int64_t *low, int64_t *high, int64_t reach, int64_t limit)
{
    if (*high - *low >= 4)
        return;
    *low = *low > reach ? *low - reach : 0;
    *high = *high + reach < limit ? *high + reach : limit;
}

void xpd_scanned_rectangle(int64_t scanned[4], const int32_t *first, int64_t num_frames, int64_t n,
                           int64_t rows, int64_t cols)
{
    scanned[0] = scanned[2] = INT64_MAX;
    scanned[1] = scanned[3] = 0;
    for (int64_t j = 0; j < num_frames; j++)
        for (int axis = 0; axis < 2; axis++) {
            int64_t centre = first[2 * j + axis] + n / 2;

            if (centre < scanned[2 * axis])
                scanned[2 * axis] = centre;
            if (centre + 1 > scanned[2 * axis + 1])
                scanned[2 * axis + 1] = centre + 1;
        }
    widen(&scanned[0], &scanned[1], n / 4, rows);
    widen(&scanned[2], &scanned[3], n / 4, cols);
}

/* One array of the preview: the picture, the numbers, the entry in preview.json. */
typedef struct item {
    const char *name, *title, *unit;
    double percent[2], range[2];
    bool phase, object;
} item;

static xpe_status place(char *path, const char *folder, const char *name, const char *suffix,
                        xpe_error *err)
{
    char file[64];

    snprintf(file, sizeof file, "%s%s", name, suffix);
    if (!xpd_path_join(path, PATH_MAX, folder, file))
        return xpe_fail(err, XPE_IO, "", "cannot write '%s' into '%.200s': the path is too long",
                        file, folder);
    return XPE_OK;
}

static xpe_status write_raw(const item *it, const xpd_plane *plane, const float *values,
                            const char *folder, xpe_error *err)
{
    char path[PATH_MAX];
    xpe_status st = place(path, folder, it->name, ".f32", err);

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the .f32 files are little-endian: this machine needs a swap here"
#endif
    if (st != XPE_OK)
        return st;
    return xpd_file_replace(path, values, (size_t)(plane->rows * plane->cols) * sizeof *values,
                            err);
}

static xpe_status write_png(const item *it, const xpd_plane *plane, const uint8_t *pixels,
                            const xpd_snapshot *s, const char *folder, xpe_error *err)
{
    uint8_t palette[XPD_COLOURS + 1][3], *bytes = NULL;
    char path[PATH_MAX], software[64], low[32], high[32], percent[64], iteration[16], stage[16],
        pixel[32];
    double pixel_m = s->pixel_m * (double)plane->factor;
    const xpd_png_text texts[] = {
        {"Title", it->title},     {"Software", software},   {"Range low", low},
        {"Range high", high},     {"Range unit", it->unit}, {"Range percentiles", percent},
        {"Iteration", iteration}, {"Stage", stage},         {"Pixel (m)", pixel},
    };
    xpd_png picture = {.rows = plane->rows,
                       .cols = plane->cols,
                       .pixels = pixels,
                       .palette = it->phase ? (const uint8_t(*)[3])palette : NULL,
                       .colours = XPD_COLOURS + 1,
                       .pixel_m = pixel_m,
                       .texts = texts,
                       .text_count = (int)(sizeof texts / sizeof *texts)};
    size_t size = 0;
    xpe_status st;

    snprintf(software, sizeof software, "xptychod %s", xpp_version());
    snprintf(low, sizeof low, "%.9g", it->range[0]);
    snprintf(high, sizeof high, "%.9g", it->range[1]);
    snprintf(percent, sizeof percent, "%g %g", it->percent[0], it->percent[1]);
    snprintf(iteration, sizeof iteration, "%d", s->iteration);
    snprintf(stage, sizeof stage, "%d", s->stage);
    snprintf(pixel, sizeof pixel, "%.9g", pixel_m);
    xpd_colour_circle(palette);
    memset(palette[XPD_COLOUR_OUTSIDE], 128, 3);
    st = place(path, folder, it->name, ".png", err);
    if (st == XPE_OK)
        st = xpd_png_encode(&bytes, &size, &picture, err);
    if (st == XPE_OK)
        st = xpd_file_replace(path, bytes, size, err);
    free(bytes);
    return st;
}

/* Values, range, raw file, picture; the entry goes into items. */
static xpe_status write_item(item *it, const xpd_plane *plane, const xpd_snapshot *s,
                             const char *folder, json_t *items, xpe_error *err)
{
    size_t size = (size_t)(plane->rows * plane->cols);
    float *values = malloc(size * sizeof *values);
    uint8_t *pixels = malloc(size);
    xpe_status st = XPE_OK;

    if (!values || !pixels) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "no memory for a preview of %lld x %lld",
                      (long long)plane->rows, (long long)plane->cols);
        goto done;
    }
    if (it->phase)
        xpd_plane_phase(values, plane, xpd_plane_common_phase(plane));
    else
        xpd_plane_magnitude(values, plane);
    if (!xpd_plane_range(it->range, plane, values, it->percent[0], it->percent[1])) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "no memory for the range of a preview");
        goto done;
    }
    if (it->phase)
        xpd_plane_paint_phase(pixels, plane, values, it->range);
    else
        xpd_plane_paint_magnitude(pixels, plane, values, it->range);
    st = write_raw(it, plane, values, folder, err);
    if (st == XPE_OK)
        st = write_png(it, plane, pixels, s, folder, err);
    if (st == XPE_OK)
        json_object_set_new(items, it->name,
                            json_pack("{s:[I,I], s:[o,o]}", "shape", (json_int_t)plane->rows,
                                      (json_int_t)plane->cols, "range", xpp_number(it->range[0]),
                                      xpp_number(it->range[1])));
done:
    free(pixels);
    free(values);
    return st;
}

static xpe_status write_index(const xpd_snapshot *s, const char *folder, json_t *items,
                              xpe_error *err)
{
    json_t *index =
        json_pack("{s:i, s:i, s:O}", "stage", s->stage, "iter", s->iteration, "items", items);
    char path[PATH_MAX], *text = index ? xpp_dump(index, JSON_INDENT(1)) : NULL;
    xpe_status st = place(path, folder, "preview", ".json", err);

    if (st == XPE_OK)
        st = text ? xpd_file_replace(path, text, strlen(text), err)
                  : xpe_fail(err, XPE_NO_MEMORY, "", "no memory for preview.json");
    free(text);
    json_decref(index);
    return st;
}

xpe_status xpd_preview_write(const xpd_snapshot *snapshot, const char *folder, xpe_error *err)
{
    item items[] = {
        {"object_phase", "object, phase", "rad", {PHASE_LOW, PHASE_HIGH}, {0}, true, true},
        {"object_magnitude", "object, magnitude", "1", {GREY_LOW, GREY_HIGH}, {0}, false, true},
        {"probe_phase", "probe modes, phase", "rad", {PHASE_LOW, PHASE_HIGH}, {0}, true, false},
        {"probe_magnitude", "probe modes, magnitude", "1", {0.0, 100.0}, {0}, false, false},
    };
    const xpd_snapshot *s = snapshot;
    xpd_plane object = {0}, probe = {0};
    json_t *index = json_object();
    xpe_status st = XPE_OK;

    if (!index ||
        !xpd_plane_of_object(&object, s->object, s->coverage, s->rows, s->cols, s->scanned,
                             XPD_PREVIEW_SIDE_MAX) ||
        !xpd_plane_of_probe(&probe, s->probe, s->modes, s->n, XPD_PREVIEW_SIDE_MAX))
        st = xpe_fail(err, XPE_NO_MEMORY, "", "no memory for a preview of %lld x %lld",
                      (long long)s->rows, (long long)s->cols);
    for (size_t i = 0; st == XPE_OK && i < sizeof items / sizeof *items; i++)
        st = write_item(&items[i], items[i].object ? &object : &probe, s, folder, index, err);
    if (st == XPE_OK)
        st = write_index(s, folder, index, err);
    xpd_plane_release(&probe);
    xpd_plane_release(&object);
    json_decref(index);
    return st;
}
