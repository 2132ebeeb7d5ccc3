/* Probe-sized operations of the CPU backend: averages over the copies, and what follows from the
 * modes. */
#include "team.h"

#include "backend/util.h"
#include "math/average.h"
#include "math/order.h"

#include <math.h>

#define ROWS(count, part, parts)                                                                   \
    int64_t r = (count) * (part) / (parts);                                                        \
    r < (count) * ((part) + 1) / (parts);                                                          \
    r++

static void mode_average_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                              xpe_scratch *scratch)
{
    const xpe_mode_average_args *a = &op->args.mode_average;
    int64_t n = team->n;
    const int64_t *r_sum = xpe_data(a->r), *s_sum = xpe_data(a->s);
    float *u = xpe_data(a->u), *d = xpe_data(a->d); /* re, im apart: both are treated alike */
    float *before = xpe_data(a->before);
    const xpe_numbers *numbers = xpe_data(a->numbers);

    (void)device;
    (void)scratch;
    if (numbers->bad.iteration)
        return;
    for (ROWS(a->modes * n, part, parts)) {
        const xpe_mode_numbers *mode = numbers->mode + r / n;
        double most = 0;
        for (int64_t i = 2 * r * n; i < 2 * (r + 1) * n; i++) {
            double fit = xpe_unfix(r_sum[i], mode->unit_r.unit),
                   copy = xpe_unfix(s_sum[i], mode->unit_s.unit);
            if (before)
                before[i] = d[i];
            u[i] = xpe_mode_u(fit, copy, a->num_frames);
            d[i] = xpe_mode_d(fit, copy, (double)u[i], a->num_frames, a->two_rho);
        }
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            most = xpe_larger(xpe_energy_double(xpe_c(u[2 * i], u[2 * i + 1])), most);
        ((double *)xpe_data(a->row_max))[r] = most;
    }
}

static void mode_deviation_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                                xpe_scratch *scratch)
{
    const xpe_mode_deviation_args *a = &op->args.mode_deviation;
    int64_t n = team->n;
    const int64_t *sum = xpe_data(a->sum);
    float *out = xpe_data(a->deviation);
    const xpe_mode_numbers *mode = xpe_numbers_of(a->numbers);

    (void)device;
    (void)scratch;
    for (ROWS(a->modes * n, part, parts))
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            out[i] =
                xpe_mode_deviation(xpe_unfix(sum[i], mode[r / n].unit_dev.unit), a->num_frames);
}

static void mode_energy_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                             xpe_scratch *scratch)
{
    const xpe_mode_energy_args *a = &op->args.mode_energy;
    int64_t n = team->n;
    const xpe_c32 *d = xpe_data(a->d);

    (void)device;
    (void)scratch;
    for (ROWS(a->modes * n, part, parts)) {
        double energy = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++)
            energy += xpe_energy_double(d[i]);
        ((double *)xpe_data(a->row_energy))[r] = energy;
    }
}

static void mode_derive_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                             xpe_scratch *scratch)
{
    const xpe_mode_derive_args *a = &op->args.mode_derive;
    int64_t n = team->n;
    const xpe_c32 *d = xpe_data(a->d);
    xpe_c32 *probe = xpe_data(a->probe), *divider = xpe_data(a->divider);
    float *weight = xpe_data(a->weight);
    double *row_max = xpe_data(a->row_max);
    const xpe_mode_numbers *mode = xpe_numbers_of(a->numbers);

    (void)device;
    (void)scratch;
    for (ROWS(n, part, parts)) {
        for (int k = 0; k < a->modes; k++)
            for (int c = 0; c < 3; c++)
                row_max[(k * n + r) * 3 + c] = 0;
        for (int64_t i = r * n; i < (r + 1) * n; i++) {
            double reach = 0; /* sum_m w_m |d_m| / (|d_m|^2 + eps_m) */
            for (int k = 0; k < a->modes; k++) {
                int64_t at = k * n * n + i;
                float energy = xpe_energy(d[at]);
                probe[at] = xpe_scale(d[at], 1.0f / (float)n);
                divider[at] = xpe_scale(xpe_divider(d[at], (float)mode[k].d_eps),
                                        (float)(a->alpha * mode[k].share / (double)n));
                weight[at] = xpe_power(energy, a->kappa);
                reach += xpe_reach(energy, mode[k].share, mode[k].d_eps);
            }
            for (int k = 0; k < a->modes; k++) {
                int64_t at = k * n * n + i;
                double *m = row_max + (k * n + r) * 3;
                m[0] = fmax(m[0], (double)xpe_energy(d[at]));
                m[1] = fmax(m[1], (double)weight[at]);
                m[2] = fmax(m[2], (double)weight[at] * reach);
            }
        }
    }
}

#define ENQUEUE(name, rows)                                                                        \
    void xpe_cpu_##name(xpe_team *team, int device, const xpe_##name##_args *args)                 \
    {                                                                                              \
        xpe_op op = {.run = name##_part, .parts = xpe_cpu_lanes(team, rows)};                      \
        op.args.name = *args;                                                                      \
        xpe_cpu_enqueue(team, device, &op);                                                        \
    }
ENQUEUE(mode_average, args->modes * team->n)
ENQUEUE(mode_deviation, args->modes * team->n)
ENQUEUE(mode_energy, args->modes * team->n)
ENQUEUE(mode_derive, team->n)
