/* The input of a run: frames, positions, object grid and start arrays, validated once. */
#include "problem.h"

#include "backend/util.h"
#include "math/numbers.h"

#include <math.h>

static xpe_status check_field(const xpe_c32 *field, int64_t count, const char *pointer,
                              const char *name, xpe_error *err)
{
    double energy = 0;

    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(field[i].re) || !isfinite(field[i].im))
            return xpe_fail(err, XPE_INVALID, pointer, "the %s is not finite at element %lld", name,
                            (long long)i);
        energy +=
            (double)field[i].re * (double)field[i].re + (double)field[i].im * (double)field[i].im;
    }
    if (!(energy > 0))
        return xpe_fail(err, XPE_INVALID, pointer, "the %s is zero everywhere", name);
    return XPE_OK;
}

static xpe_status check_modes(const xpe_problem_desc *d, xpe_error *err)
{
    int64_t frame = d->scan.n * d->scan.n;
    xpe_status st = XPE_OK;

    if (d->probe_modes < 1 || d->probe_modes > XPE_MODES_MAX)
        return xpe_fail(err, XPE_INVALID, "/model/probe_modes",
                        "%d probe modes; a number from 1 to %d is needed", d->probe_modes,
                        XPE_MODES_MAX);
    if (d->probe && d->probe_count != d->probe_modes)
        return xpe_fail(
            err, XPE_INVALID, "/model/probe_modes",
            "the known probe has %d mode%s but probe_modes is %d; set probe_modes to %d",
            d->probe_count, d->probe_count == 1 ? "" : "s", d->probe_modes, d->probe_count);
    if (d->probe && d->init_probe)
        return xpe_fail(
            err, XPE_INVALID, "/init_probe",
            "a known probe and a start for an estimated one exclude each other; leave one out");
    if (d->init_probe && (d->init_probe_count < 1 || d->init_probe_count > d->probe_modes))
        return xpe_fail(
            err, XPE_INVALID, "/model/probe_modes",
            "the start probe has %d modes but probe_modes is %d; set probe_modes to at least %d",
            d->init_probe_count, d->probe_modes, d->init_probe_count);
    for (int k = 0; d->probe && k < d->probe_count; k++)
        XPE_TRY(check_field(d->probe + k * frame, frame, "/probe", "known probe", err));
    for (int k = 0; d->init_probe && k < d->init_probe_count; k++)
        XPE_TRY(check_field(d->init_probe + k * frame, frame, "/init_probe", "start probe", err));
done:
    return st;
}

xpe_status xpe_problem_create(xpe_problem **out, const xpe_problem_desc *desc, xpe_error *err)
{
    xpe_status st = XPE_OK;
    xpe_problem *p = NULL;
    const xpe_scan *scan = &desc->scan;

    *out = NULL;
    if (scan->num_frames < 1)
        return xpe_fail(err, XPE_INVALID, "/scan/path",
                        "the scan has no frames; at least 1 is needed");
    if (scan->mask && scan->mask_frames != 1 && scan->mask_frames != scan->num_frames)
        return xpe_fail(
            err, XPE_INVALID, "/scan/path",
            "the mask has %lld frames for a scan of %lld; give one for all or one for each",
            (long long)scan->mask_frames, (long long)scan->num_frames);
    if (scan->saturation < 0 || !isfinite(scan->saturation))
        return xpe_fail(err, XPE_INVALID, "/scan/saturation",
                        "the saturation is %g counts; a positive number is needed",
                        scan->saturation);
    XPE_TRY(xpe_new(&p, 1, sizeof *p, err));
    p->desc = *desc;
    XPE_TRY(xpe_new(&p->first, (size_t)scan->num_frames * 2, sizeof *p->first, err));
    XPE_TRY(xpe_grid_derive(&p->grid, p->first, scan, &desc->grid, err));
    XPE_TRY(check_modes(desc, err));
    if (desc->init_object) {
        if (desc->init_object_shape[0] != p->grid.rows ||
            desc->init_object_shape[1] != p->grid.cols) {
            st = xpe_fail(err, XPE_INVALID, "/init_object",
                          "the start object has %lld x %lld pixels but the grid has %lld x %lld; "
                          "set model.object_shape and "
                          "model.object_origin_m to those of the start object",
                          (long long)desc->init_object_shape[0],
                          (long long)desc->init_object_shape[1], (long long)p->grid.rows,
                          (long long)p->grid.cols);
            goto done;
        }
        XPE_TRY(check_field(desc->init_object, p->grid.rows * p->grid.cols, "/init_object",
                            "start object", err));
    }
    *out = p;
    p = NULL;
done:
    xpe_problem_destroy(p);
    return st;
}

void xpe_problem_destroy(xpe_problem *problem)
{
    if (!problem)
        return;
    free(problem->first);
    free(problem);
}

const xpe_grid *xpe_problem_grid(const xpe_problem *problem)
{
    return &problem->grid;
}

const int32_t *xpe_problem_first(const xpe_problem *problem)
{
    return problem->first;
}
