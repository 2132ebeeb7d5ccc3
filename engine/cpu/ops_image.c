/* Operations of the CPU backend that need no transform: amplitudes, patches, and the averages on
 * bands. */
#include "team.h"

#include "backend/util.h"
#include "math/average.h"
#include "math/count.h"
#include "math/order.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------------------- amplitudes */

typedef float float32_t;
typedef double float64_t;
#define X(name, text, bytes)                                                                       \
    static double read_##text(const void *p, int64_t i)                                            \
    {                                                                                              \
        return xpe_count_##text(((const text##_t *)p)[i]);                                         \
    }
XPE_TYPE_LIST(X)
#undef X

static double (*const readers[])(const void *, int64_t) = {
#define X(name, text, bytes) read_##text,
    XPE_TYPE_LIST(X)
#undef X
};

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
                float value = XPE_MASKED; /* padding counts as masked */
                if (c < n) {
                    if (!mask || !mask[r * n + c])
                        value = xpe_amplitude(readers[a->type](in, r * n + c), a->saturation);
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
    const xpe_numbers *numbers = xpe_data(a->numbers);
    const xpe_mode_numbers *mode = numbers->mode;

    (void)team;
    (void)device;
    (void)scratch;
    if (numbers->bad.iteration)
        return;
    for (int64_t r = a->rows * part / parts; r < a->rows * (part + 1) / parts; r++) {
        double energy = 0, z_max = 0, x_max = 0;
        for (int64_t i = r * a->cols; i < (r + 1) * a->cols; i++) {
            double re = 0, im = 0, x;
            for (int k = 0; k < a->modes; k++) {
                int64_t at = k * plane + i;
                double q = xpe_cover_factor(l[at], mode[k].share, mode[k].cover_eps);
                re += xpe_average_z(xpe_unfix(w[2 * at], mode[k].unit_w.unit), v[2 * at], q);
                im +=
                    xpe_average_z(xpe_unfix(w[2 * at + 1], mode[k].unit_w.unit), v[2 * at + 1], q);
            }
            z[i] = (xpe_c32){(float)re, (float)im}; /* what the patches will really receive */
            re = im = 0;
            for (int k = 0; k < a->modes; k++) {
                int64_t at = k * plane + i;
                double q = xpe_cover_factor(l[at], mode[k].share, mode[k].cover_eps);
                v[2 * at] = xpe_average_v(v[2 * at], xpe_unfix(w[2 * at], mode[k].unit_w.unit),
                                          (double)z[i].re, l[at], a->two_rho);
                v[2 * at + 1] =
                    xpe_average_v(v[2 * at + 1], xpe_unfix(w[2 * at + 1], mode[k].unit_w.unit),
                                  (double)z[i].im, l[at], a->two_rho);
                re += v[2 * at] * q;
                im += v[2 * at + 1] * q;
            }
            image[i] = (xpe_c32){(float)re, (float)im};
            x = xpe_energy_double(image[i]);
            energy += count[i] * x;
            x_max = count[i] ? xpe_larger(x, x_max) : x_max;
            z_max = count[i] ? xpe_larger(xpe_energy_double(z[i]), z_max) : z_max;
        }
        ((double *)xpe_data(a->row_energy))[a->row + r] = energy;
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
    const xpe_mode_numbers *mode = xpe_numbers_of(a->numbers);

    (void)team;
    (void)device;
    (void)scratch;
    for (int64_t r = a->rows * part / parts; r < a->rows * (part + 1) / parts; r++)
        for (int k = 0; k < a->modes; k++) {
            int64_t at = (k * a->rows + r) * width;
            double energy = 0,
                   unit = a->components == 1 ? mode[k].unit_l.unit : mode[k].unit_v.unit;
            for (int64_t i = at; i < at + width; i++) {
                double cover;
                out[i] = xpe_unfix(sum[i], unit);
                cover = out[i] * XPE_COVERAGE_SCALE;
                energy += cover * cover;
            }
            if (a->row_energy)
                ((double *)xpe_data(a->row_energy))[(a->row + r) * a->modes + k] = energy;
        }
}

void xpe_cpu_unfix(xpe_team *team, int device, const xpe_unfix_args *args)
{
    xpe_op op = {.run = unfix_part, .parts = xpe_cpu_lanes(team, args->rows)};
    op.args.unfix = *args;
    xpe_cpu_enqueue(team, device, &op);
}
