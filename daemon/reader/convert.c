/* What shapes and orders other programs use, and what is made of them.  Each conversion happens
 * here and nowhere else, so that a sign or a swap cannot be applied twice. */
#include "convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

xpe_status xpd_convert_frames(xpd_entry *f, xpe_type *type, xpe_error *err)
{
    xpd_npy *a = &f->header;
    char shape[128];
    xpe_status st = xpd_npy_normalise(a, &f->data, err);

    if (st != XPE_OK)
        return st;
    xpd_npy_squeeze(a, 3);
    if (!xpd_npy_type(a, type))
        return xpe_fail(err, XPE_INVALID, "",
                        "frames '%.80s' are complex numbers; counts are needed", f->name);
    if (a->rank != 3)
        return xpe_fail(err, XPE_INVALID, "",
                        "frames '%.80s' have shape %s; [frames][n][n] is needed", f->name,
                        xpd_npy_shape(a, shape));
    if (a->shape[1] != a->shape[2] || a->shape[1] % 2 || a->shape[1] > 16384)
        return xpe_fail(
            err, XPE_INVALID, "",
            "frames '%.80s' are %lld x %lld pixels; square frames of an even side up to 16384 "
            "are needed",
            f->name, (long long)a->shape[1], (long long)a->shape[2]);
    return XPE_OK;
}

/* ------------------------------------------------------------------------------ zero frequency */

static double value_at(const void *data, xpe_type type, int64_t i)
{
    switch (type) {
    case XPE_U8:
        return ((const uint8_t *)data)[i];
    case XPE_I8:
        return ((const int8_t *)data)[i];
    case XPE_U16:
        return ((const uint16_t *)data)[i];
    case XPE_I16:
        return ((const int16_t *)data)[i];
    case XPE_U32:
        return ((const uint32_t *)data)[i];
    case XPE_I32:
        return ((const int32_t *)data)[i];
    case XPE_U64:
        return (double)((const uint64_t *)data)[i];
    case XPE_I64:
        return (double)((const int64_t *)data)[i];
    case XPE_F32:
        return (double)((const float *)data)[i];
    case XPE_F64:
        return ((const double *)data)[i];
    }
    return 0;
}

/* +1: all counts at [0][0]; -1: all at [n/2][n/2]; near 0: neither. */
static double corner_weight(const void *data, xpe_type type, int64_t frames, int64_t n)
{
    double *cosine = malloc((size_t)n * sizeof *cosine), sum = 0, weighted = 0;

    for (int64_t i = 0; cosine && i < n; i++)
        cosine[i] = cos(2 * acos(-1.0) * (double)i / (double)n) / 2;
    for (int64_t k = 0; cosine && k < frames * n * n; k++) {
        double v = value_at(data, type, k);
        if (!(v > 0) || !isfinite(v))
            continue;
        sum += v;
        weighted += v * (cosine[k / n % n] + cosine[k % n]);
    }
    free(cosine);
    return sum > 0 ? weighted / sum : 0;
}

/* For an even side the shift is its own inverse: the upper half of the rows changes places with the
 * lower, each row turned by half. */
static void shift_frame(uint8_t *frame, int64_t n, size_t item, uint8_t *row)
{
    size_t half = (size_t)(n / 2) * item, whole = 2 * half;

    for (int64_t r = 0; r < n / 2; r++) {
        uint8_t *a = frame + (size_t)r * whole, *b = frame + (size_t)(r + n / 2) * whole;
        memcpy(row, a, whole);
        memcpy(a, b + half, half);
        memcpy(a + half, b, half);
        memcpy(b, row + half, half);
        memcpy(b + half, row, half);
    }
}

xpe_status xpd_convert_zero_frequency(xpd_entry *f, xpe_type type, xpd_shifted shifted, bool *moved,
                                      xpe_error *err)
{
    int64_t frames = f->header.shape[0], n = f->header.shape[1];
    size_t item = xpe_type_size(type), size = (size_t)(n * n) * item;
    double weight = shifted == XPD_SHIFTED_AUTO ? corner_weight(f->data, type, frames, n) : 0;
    uint8_t *row;

    *moved = shifted == XPD_SHIFTED_YES || (shifted == XPD_SHIFTED_AUTO && weight > 0);
    if (shifted == XPD_SHIFTED_AUTO && fabs(weight) < 0.1)
        return xpe_fail(
            err, XPE_INVALID, "",
            "it cannot be told whether the frames '%.80s' have zero frequency in the corner or "
            "in the middle (balance of counts %.3f, between -0.1 and 0.1); say --shifted yes or "
            "--shifted no",
            f->name, weight);
    if (!*moved)
        return XPE_OK;
    row = malloc((size_t)n * item);
    if (!row)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    for (int64_t j = 0; j < frames; j++)
        shift_frame((uint8_t *)f->data + (size_t)j * size, n, item, row);
    free(row);
    return XPE_OK;
}

/* ---------------------------------------------------------------------------- positions, probe */

xpe_status xpd_convert_positions(double **out, xpd_entry *p, int64_t num_frames, bool swap,
                                 bool flip_rows, bool flip_columns, xpe_error *err)
{
    xpd_npy *a = &p->header;
    xpe_type type;
    char shape[128];
    bool transposed;
    xpe_status st = xpd_npy_normalise(a, &p->data, err);

    *out = NULL;
    if (st != XPE_OK)
        return st;
    xpd_npy_squeeze(a, 2);
    if (!xpd_npy_type(a, &type) || a->rank != 2 || (a->shape[1] != 2 && a->shape[0] != 2))
        return xpe_fail(
            err, XPE_INVALID, "",
            "positions '%.80s' have shape %s; real numbers of shape [%lld][2] are needed", p->name,
            xpd_npy_shape(a, shape), (long long)num_frames);
    transposed = a->shape[1] != 2 || (a->shape[0] == 2 && num_frames != 2);
    if (a->shape[transposed ? 1 : 0] != num_frames)
        return xpe_fail(err, XPE_INVALID, "",
                        "%lld frames but %lld positions; give one position a frame",
                        (long long)num_frames, (long long)a->shape[transposed ? 1 : 0]);
    *out = malloc((size_t)num_frames * 2 * sizeof **out);
    if (!*out)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    for (int64_t j = 0; j < num_frames; j++)
        for (int axis = 0; axis < 2; axis++) {
            int from = swap ? 1 - axis : axis;
            double v = value_at(p->data, type, transposed ? from * num_frames + j : 2 * j + from);
            if (!isfinite(v)) {
                free(*out);
                *out = NULL;
                return xpe_fail(err, XPE_INVALID, "",
                                "the position of frame %lld is %g; every position must be finite",
                                (long long)j, v);
            }
            (*out)[2 * j + axis] = (axis == 0 ? flip_rows : flip_columns) ? -v : v;
        }
    return XPE_OK;
}

static xpe_c32 complex_at(const xpd_entry *e, int64_t i)
{
    xpe_type type;

    if (e->header.kind == 'c' && e->header.item == 8)
        return ((const xpe_c32 *)e->data)[i];
    if (e->header.kind == 'c')
        return (xpe_c32){(float)((const double *)e->data)[2 * i],
                         (float)((const double *)e->data)[2 * i + 1]};
    return (xpe_c32){xpd_npy_type(&e->header, &type) ? (float)value_at(e->data, type, i) : 0, 0};
}

xpe_status xpd_convert_probe(xpe_c32 **out, int64_t *modes, xpd_entry *probe, int64_t n,
                             xpe_error *err)
{
    xpd_npy *a = &probe->header;
    char shape[128];
    int last;
    xpe_status st = xpd_npy_normalise(a, &probe->data, err);

    *out = NULL;
    if (st != XPE_OK)
        return st;
    xpd_npy_squeeze(a, 3);
    last = a->rank - 1;
    if (a->rank < 2 || a->rank > 3 || a->shape[last] != n || a->shape[last - 1] != n)
        return xpe_fail(
            err, XPE_INVALID, "",
            "probe '%.80s' has shape %s; [modes][%lld][%lld] is needed for frames of that size",
            probe->name, xpd_npy_shape(a, shape), (long long)n, (long long)n);
    *modes = a->rank == 3 ? a->shape[0] : 1;
    *out = malloc((size_t)a->count * sizeof **out);
    if (!*out)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    for (int64_t i = 0; i < a->count; i++) {
        (*out)[i] = complex_at(probe, i);
        if (!isfinite((*out)[i].re) || !isfinite((*out)[i].im)) {
            free(*out);
            *out = NULL;
            return xpe_fail(err, XPE_INVALID, "", "probe '%.80s' is not finite at element %lld",
                            probe->name, (long long)i);
        }
    }
    return XPE_OK;
}
