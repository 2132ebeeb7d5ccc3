/* Where the patches lie: object pixel, object grid, first pixel of every patch (algorithm.md 1). */
#include "backend/util.h"

#include <math.h>
#include <stdio.h>

#define SIDE_MAX 2147483647.0
#define PIXELS_MAX 1099511627776.0 /* 2^40 */

double xpe_pixel_pitch(double wavelength_m, double distance_m, double detector_pitch_m, int64_t n)
{
    return wavelength_m * distance_m / ((double)n * detector_pitch_m);
}

static xpe_status check_scan(const xpe_scan *scan, xpe_error *err)
{
    const struct {
        double value;
        const char *pointer, *name;
    } lengths[] = {
        {scan->wavelength_m, "/scan/geometry/wavelength_m", "wavelength"},
        {scan->detector_distance_m, "/scan/geometry/detector_distance_m", "detector distance"},
        {scan->detector_pitch_m, "/scan/geometry/detector_pitch_m", "detector pitch"}};

    if (scan->num_frames < 1)
        return xpe_fail(err, XPE_INVALID, "/scan/path",
                        "the scan has no frames; at least 1 is needed");
    if (scan->num_frames > INT32_MAX)
        return xpe_fail(err, XPE_INVALID, "/scan/path",
                        "the scan has %lld frames; at most %d can be used",
                        (long long)scan->num_frames, INT32_MAX);
    if (scan->n < 2 || scan->n % 2 || scan->n > 16384)
        return xpe_fail(err, XPE_INVALID, "/scan/path",
                        "frames are %lld pixels wide; an even side from 2 to 16384 is needed, so "
                        "crop or pad them to %lld",
                        (long long)scan->n,
                        (long long)(scan->n < 2       ? 2
                                    : scan->n > 16384 ? 16384
                                                      : scan->n - 1));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (!(lengths[i].value > 0) || !isfinite(lengths[i].value))
            return xpe_fail(err, XPE_INVALID, lengths[i].pointer,
                            "the %s is %g m; a positive length is needed", lengths[i].name,
                            lengths[i].value);
    for (int64_t j = 0; j < scan->num_frames; j++)
        if (!isfinite(scan->positions[2 * j]) || !isfinite(scan->positions[2 * j + 1]))
            return xpe_fail(
                err, XPE_INVALID, "/scan/path",
                "the position of frame %lld is (%g, %g) m; every position must be finite",
                (long long)j, scan->positions[2 * j], scan->positions[2 * j + 1]);
    return XPE_OK;
}

/* The origin: stated, or from the stated shape, or such that the smallest first pixel is 0. */
static void derive_origin(xpe_grid *grid, const xpe_scan *scan, const xpe_grid_wish *wish)
{
    double half = (double)(scan->n / 2);

    for (int axis = 0; axis < 2; axis++) {
        if (wish->origin_m) {
            grid->origin_m[axis] = wish->origin_m[axis];
        } else if (wish->shape) {
            grid->origin_m[axis] = -(double)(wish->shape[axis] / 2) * grid->pitch_m;
        } else {
            double least = INFINITY;
            for (int64_t j = 0; j < scan->num_frames; j++)
                least = fmin(least, rint(scan->positions[2 * j + axis] / grid->pitch_m) - half);
            grid->origin_m[axis] = least * grid->pitch_m;
        }
    }
}

/* rint rounds halves to even, as the reference programs do. */
static double first_pixel(const xpe_grid *grid, const xpe_scan *scan, int64_t j, int axis)
{
    return rint((scan->positions[2 * j + axis] - grid->origin_m[axis]) / grid->pitch_m) -
           (double)(scan->n / 2);
}

static xpe_status check_wish(const xpe_grid_wish *wish, xpe_error *err)
{
    for (int axis = 0; axis < 2; axis++) {
        if (wish->shape && wish->shape[axis] < 1)
            return xpe_fail(err, XPE_INVALID, "/model/object_shape",
                            "the object has %lld %s; at least 1 is needed",
                            (long long)wish->shape[axis], axis ? "columns" : "rows");
        if (wish->origin_m && !isfinite(wish->origin_m[axis]))
            return xpe_fail(err, XPE_INVALID, "/model/object_origin_m",
                            "the object's origin must be finite");
    }
    return XPE_OK;
}

static xpe_status check_size(double rows, double cols, const xpe_scan *scan, double pitch,
                             xpe_error *err)
{
    if (rows <= SIDE_MAX && cols <= SIDE_MAX && rows * cols <= PIXELS_MAX)
        return XPE_OK;
    return xpe_fail(err, XPE_INVALID, "/scan/path",
                    "the positions span %.6g x %.6g object pixels of %.4g nm for frames of %lld; "
                    "at most 2^40 pixels "
                    "are possible, so check the units of the positions (metres are expected)",
                    rows, cols, pitch * 1e9, (long long)scan->n);
}

xpe_status xpe_grid_derive(xpe_grid *grid, int32_t *first, const xpe_scan *scan,
                           const xpe_grid_wish *wish, xpe_error *err)
{
    static const xpe_grid_wish nothing = {NULL, NULL};
    xpe_status st;
    double size[2];

    wish = wish ? wish : &nothing;
    XPE_TRY(check_scan(scan, err));
    XPE_TRY(check_wish(wish, err));
    grid->pitch_m = xpe_pixel_pitch(scan->wavelength_m, scan->detector_distance_m,
                                    scan->detector_pitch_m, scan->n);
    if (!(grid->pitch_m > 0) || !isfinite(grid->pitch_m))
        return xpe_fail(err, XPE_INVALID, "/scan/geometry",
                        "the object pixel wavelength x distance / (n x pitch) is %g m",
                        grid->pitch_m);
    derive_origin(grid, scan, wish);
    for (int axis = 0; axis < 2; axis++) {
        double most = -INFINITY;
        for (int64_t j = 0; j < scan->num_frames; j++)
            most = fmax(most, first_pixel(grid, scan, j, axis));
        size[axis] = wish->shape ? (double)wish->shape[axis] : most + (double)scan->n;
    }
    if (size[0] >= 1 && size[1] >= 1)
        XPE_TRY(check_size(size[0], size[1], scan, grid->pitch_m, err));
    for (int64_t j = 0; j < scan->num_frames; j++) {
        double row = first_pixel(grid, scan, j, 0), col = first_pixel(grid, scan, j, 1),
               n = (double)scan->n;
        if (row < 0 || col < 0 || row + n > size[0] || col + n > size[1])
            return xpe_fail(
                err, XPE_INVALID, wish->shape ? "/model/object_shape" : "/model/object_origin_m",
                "frame %lld covers object rows %.0f to %.0f and columns %.0f to %.0f, but the grid "
                "has rows 0 to "
                "%.0f and columns 0 to %.0f; leave out object_shape and object_origin_m to have "
                "them derived",
                (long long)j, row, row + n - 1, col, col + n - 1, size[0] - 1, size[1] - 1);
        if (first) {
            first[2 * j] = (int32_t)row;
            first[2 * j + 1] = (int32_t)col;
        }
    }
    grid->rows = (int64_t)size[0];
    grid->cols = (int64_t)size[1];
done:
    return st;
}
