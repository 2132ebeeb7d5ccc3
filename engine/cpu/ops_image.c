/* Operations of the CPU backend that need no transform: amplitudes, patches, and the averages on
 * bands. */
#include "team.h"

#include "backend/util.h"

#include <math.h>
#include <string.h>

#define COVERAGE_SCALE (1.0 / (1.0 + 1e-6)) /* algorithm.md 1: L_k as used in divisions */

/* ---------------------------------------------------------------------------- amplitudes */

/* The stored count i as a double, NaN where the type's own conventions mask it: its largest value,
 * and negative values of the signed types. */
#define READ_UNSIGNED(type, largest)                                                               \
    static double read_##type(const void *p, int64_t i)                                            \
    {                                                                                              \
        type##_t c = ((const type##_t *)p)[i];                                                     \
        return c == (largest) ? NAN : (double)c;                                                   \
    }
#define READ_SIGNED(type, largest)                                                                 \
    static double read_##type(const void *p, int64_t i)                                            \
    {                                                                                              \
        type##_t c = ((const type##_t *)p)[i];                                                     \
        return c == (largest) || c < 0 ? NAN : (double)c;                                          \
    }
READ_UNSIGNED(uint8, UINT8_MAX)
READ_UNSIGNED(uint16, UINT16_MAX)
READ_UNSIGNED(uint32, UINT32_MAX)
READ_UNSIGNED(uint64, UINT64_MAX)
READ_SIGNED(int8, INT8_MAX)
READ_SIGNED(int16, INT16_MAX)
READ_SIGNED(int32, INT32_MAX)
READ_SIGNED(int64, INT64_MAX)

static double read_float32(const void *p, int64_t i)
{
    return (double)((const float *)p)[i];
}

static double read_float64(const void *p, int64_t i)
{
    return ((const double *)p)[i];
}

static double (*const readers[])(const void *, int64_t) = {
#define X(name, text, bytes) read_##text,
    XPE_TYPE_LIST(X)
#undef X
};

static float amplitude(double count, double saturation)
{
    if (!isfinite(count) || (saturation > 0 && count >= saturation))
        return -1.0f;
    return count > 0 ? (float)sqrt(count) : 0.0f;
}

static void amplitudes_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                            xpe_scratch *scratch)
{
    const xpe_amplitude_args *a = &op->args.amplitude;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    int64_t n = team->n, groups = team->groups, frame = groups * XPE_GROUP * n;

    (void)device;
    (void)scratch;
    for (int64_t i = share.first; i < share.first + share.count; i++) {
        int64_t j = a->order[i], masked = 0;
        const char *in = (const char *)a->frames + (size_t)(j * n * n) * xpe_type_size(a->type);
        const uint8_t *mask = a->mask ? a->mask + (a->mask_per_frame ? j * n * n : 0) : NULL;
        float *y = (float *)xpe_data(a->y) + i * frame;
        double energy = 0;
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < groups * XPE_GROUP; c++) {
                float value = -1.0f; /* padding counts as masked */
                if (c < n) {
                    if (!mask || !mask[r * n + c])
                        value = amplitude(readers[a->type](in, r * n + c), a->saturation);
                    masked += value < 0;
                    energy += value < 0 ? 0.0 : (double)value * (double)value;
                }
                y[(c / XPE_GROUP * n + r) * XPE_GROUP + c % XPE_GROUP] = value;
            }
        ((double *)xpe_data(a->energy))[i] = energy;
        ((int64_t *)xpe_data(a->masked))[i] = masked;
    }
}

void xpe_cpu_amplitudes(xpe_team *team, int device, const xpe_amplitude_args *args)
{
    xpe_op op = {.run = amplitudes_part, .parts = xpe_cpu_lanes(team, args->batch.block)};
    op.args.amplitude = *args;
    xpe_cpu_enqueue(team, device, &op);
}

/* ------------------------------------------------------------------------------- patches */

static void patches_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                         xpe_scratch *scratch)
{
    const xpe_patch_args *a = &op->args.patch;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    const int32_t *first = xpe_data(a->first);
    const xpe_c32 *image = xpe_data(a->image);
    int64_t n = team->n;

    (void)device;
    (void)scratch;
    for (int64_t i = share.first; i < share.first + share.count; i++)
        for (int64_t r = 0; r < n; r++)
            memcpy((xpe_c32 *)xpe_data(a->v) + (i * n + r) * n,
                   image + (first[2 * i] + r) * a->cols + first[2 * i + 1],
                   (size_t)n * sizeof *image);
}

void xpe_cpu_patches(xpe_team *team, int device, const xpe_patch_args *args)
{
    xpe_op op = {.run = patches_part, .parts = xpe_cpu_lanes(team, args->batch.block)};
    op.args.patch = *args;
    xpe_cpu_enqueue(team, device, &op);
}

/* -------------------------------------------------------------------------------- bands */

static void average_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                         xpe_scratch *scratch)
{
    const xpe_average_args *a = &op->args.average;
    int64_t plane = a->rows * a->cols;
    const int64_t *w = xpe_data(a->w);
    const int32_t *count = xpe_data(a->count);
    const double *l = xpe_data(a->l);
    double *v = xpe_data(a->v);
    xpe_c32 *z = xpe_data(a->z), *image = xpe_data(a->image);

    (void)team;
    (void)device;
    (void)scratch;
    for (int64_t r = a->rows * part / parts; r < a->rows * (part + 1) / parts; r++) {
        double energy = 0, z_max = 0, x_max = 0;
        for (int64_t i = r * a->cols; i < (r + 1) * a->cols; i++) {
            double zr = 0, zi = 0, xr = 0, xi = 0;
            for (int k = 0; k < a->modes; k++) {
                int64_t at = k * plane + i;
                double cover = l[at] * COVERAGE_SCALE,
                       q = a->share[k] * cover / (cover * cover + a->eps[k]);
                zr += (2 * (double)w[2 * at] * a->unit_w[k].unit - v[2 * at]) * q;
                zi += (2 * (double)w[2 * at + 1] * a->unit_w[k].unit - v[2 * at + 1]) * q;
            }
            z[i] = (xpe_c32){(float)zr, (float)zi};
            zr = (double)z[i].re; /* what the patches will really receive */
            zi = (double)z[i].im;
            for (int k = 0; k < a->modes; k++) {
                int64_t at = k * plane + i;
                double cover = l[at] * COVERAGE_SCALE,
                       q = a->share[k] * cover / (cover * cover + a->eps[k]);
                v[2 * at] += a->two_rho * (zr * l[at] - (double)w[2 * at] * a->unit_w[k].unit);
                v[2 * at + 1] +=
                    a->two_rho * (zi * l[at] - (double)w[2 * at + 1] * a->unit_w[k].unit);
                xr += v[2 * at] * q;
                xi += v[2 * at + 1] * q;
            }
            image[i] = (xpe_c32){(float)xr, (float)xi};
            xr = (double)image[i].re * (double)image[i].re +
                 (double)image[i].im * (double)image[i].im;
            energy += count[i] * xr;
            x_max = count[i] && !(xr <= x_max) ? xr : x_max; /* a NaN gets through */
            zr = zr * zr + zi * zi;
            z_max = count[i] && !(zr <= z_max) ? zr : z_max;
        }
        ((double *)xpe_data(a->row_energy))[r] = energy;
        ((double *)xpe_data(a->row_max))[2 * r] = z_max;
        ((double *)xpe_data(a->row_max))[2 * r + 1] = x_max;
    }
}

void xpe_cpu_average(xpe_team *team, int device, const xpe_average_args *args)
{
    xpe_op op = {.run = average_part, .parts = xpe_cpu_lanes(team, args->rows)};
    op.args.average = *args;
    xpe_cpu_enqueue(team, device, &op);
}

static void unfix_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                       xpe_scratch *scratch)
{
    const xpe_unfix_args *a = &op->args.unfix;
    int64_t width = a->cols * a->components;
    const int64_t *sum = xpe_data(a->sum);
    double *out = xpe_data(a->out);

    (void)team;
    (void)device;
    (void)scratch;
    for (int64_t r = a->rows * part / parts; r < a->rows * (part + 1) / parts; r++)
        for (int k = 0; k < a->modes; k++) {
            int64_t at = (k * a->rows + r) * width;
            double energy = 0;
            for (int64_t i = at; i < at + width; i++) {
                double cover;
                out[i] = xpe_unfix(sum[i], a->unit[k].unit);
                cover = out[i] * COVERAGE_SCALE;
                energy += cover * cover;
            }
            if (a->row_energy)
                ((double *)xpe_data(a->row_energy))[k * a->rows + r] = energy;
        }
}

void xpe_cpu_unfix(xpe_team *team, int device, const xpe_unfix_args *args)
{
    xpe_op op = {.run = unfix_part, .parts = xpe_cpu_lanes(team, args->rows)};
    op.args.unfix = *args;
    xpe_cpu_enqueue(team, device, &op);
}
