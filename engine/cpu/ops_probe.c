/* Probe copies: step 4 with the pending steps 5 and 6, the deviations of step 6, and what a
 * scheduled mode needs.  See backend/backend.h. */
#include "frame.h"

#include "backend/util.h"

static xpe_c32 *copy_of(const xpe_team *team, const xpe_copy_state *c, int64_t block, int mode,
                        int64_t i)
{
    return (xpe_c32 *)xpe_data(c->s) + (mode * block + i) * team->n * team->n;
}

/* Pending steps on `count` pixels of mode k from pixel `at`. */
static void settle_pixels(const xpe_team *team, const xpe_copy_state *c, xpe_c32 *s, int mode,
                          int64_t at, int64_t count)
{
    int64_t from = mode * team->n * team->n + at;

    if (c->pending)
        team->loops->copy_state(s + at, (const xpe_c32 *)xpe_data(c->u) + from,
                                (const xpe_c32 *)xpe_data(c->d) + from,
                                (const float *)xpe_data(c->deviation) + from, c->two_rho, count);
}

/* ------------------------------------------------------------------------------ step 4 */

/* Fields of d_k p and s_k p, rows transformed. */
static void load_fields(const xpe_team *team, xpe_scratch *s, const xpe_probe_args *a, int64_t i,
                        const xpe_c32 *patch)
{
    int64_t n = team->n;

    xpe_forward_rows(team, s, xpe_data(a->probe), a->modes, patch, a->cols, s->field[0]);
    for (int k = 0; k < a->modes; k++) {
        xpe_c32 *copy = copy_of(team, &a->copy, a->batch.block, k, i);
        for (int64_t row = 0; row < n; row += XPE_GROUP) {
            int64_t count = xpe_batch_rows(team, row);
            settle_pixels(team, &a->copy, copy, k, row * n, count * n);
            for (int64_t r = 0; r < count; r++)
                team->loops->product(s->rows[0] + r * team->stride, copy + (row + r) * n,
                                     patch + (row + r) * a->cols, n);
            xpe_rows_to_field(team, s, s->rows[0], s->field[1], k, row);
        }
    }
}

/* Amplitude of the modes' fields brought to the data, phase of the copies' fields. */
static void impose_amplitudes(const xpe_team *team, xpe_scratch *s, int modes, const float *y)
{
    int64_t plane = team->n * XPE_GROUP;

    for (int64_t g = 0; g < team->groups; g++) {
        for (int k = 0; k < modes; k++) {
            xpe_columns(team, s, xpe_group(team, s->field[0], k, g), -1);
            team->loops->intensity(s->intensity, xpe_group(team, s->field[0], k, g), plane, k > 0);
        }
        team->loops->gain(s->intensity, y + g * plane, plane);
        for (int k = 0; k < modes; k++) {
            xpe_c32 *group = xpe_group(team, s->field[1], k, g);
            xpe_columns(team, s, group, -1);
            team->loops->impose(group, xpe_group(team, s->field[0], k, g), s->intensity, plane);
            xpe_columns(team, s, group, +1);
        }
    }
    s->transforms += 3 * modes;
}

static void store_copy(const xpe_team *team, xpe_scratch *s, const xpe_probe_args *a,
                       const xpe_lane *lane, int mode, int64_t i, const xpe_c32 *patch)
{
    int64_t n = team->n;
    xpe_c32 *copy = copy_of(team, &a->copy, a->batch.block, mode, i);
    xpe_c32 *t = s->rows[1], *fit = s->rows[2];
    const xpe_numbers *numbers = xpe_data(a->numbers);
    float patch_eps = (float)numbers->patch_eps;
    int32_t most = 0;

    for (int64_t row = 0; row < n; row += XPE_GROUP) {
        xpe_rows_from_field(team, s, s->rows[0], s->field[1], mode, row);
        for (int64_t r = 0; r < xpe_batch_rows(team, row); r++) {
            int64_t at = (row + r) * n, sum = 2 * (mode * n * n + at);
            int32_t bits;
            team->loops->divide(t, s->rows[0] + r * team->stride, patch + (row + r) * a->cols,
                                patch_eps, a->alpha / (float)n, n);
            team->loops->sum_plain(lane->b + sum, copy + at, numbers->mode[mode].unit_s, n);
            bits = team->loops->relax(fit, copy + at, t, a->one_minus_alpha, a->two_rho, n);
            team->loops->sum_plain(lane->a + sum, fit, numbers->mode[mode].unit_r, n);
            most = bits > most ? bits : most;
        }
    }
    memcpy((float *)xpe_data(a->s_energy) + mode * a->batch.block + i, &most, sizeof most);
}

static void probe_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                       xpe_scratch *scratch)
{
    const xpe_probe_args *a = &op->args.probe;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);

    (void)device;
    for (int64_t i = share.first; i < share.first + share.count; i++) {
        const int32_t *first = (const int32_t *)xpe_data(a->first) + 2 * i;
        const xpe_c32 *patch = (const xpe_c32 *)xpe_data(a->image) + first[0] * a->cols + first[1];
        load_fields(team, scratch, a, i, patch);
        impose_amplitudes(team, scratch, a->modes, xpe_frame_y(team, a->y, i));
        for (int k = 0; k < a->modes; k++)
            store_copy(team, scratch, a, &a->sums->lanes[part], k, i, patch);
    }
    /* amplitudes and patch twice; modes, pending arrays, the copy three times, sums read and
     * written */
    xpe_cpu_moved(team, (4 + 16 + a->modes * (8 + 20 + 24 + 64)) * share.count * team->n * team->n);
}

void xpe_cpu_probe_fit(xpe_team *team, int device, const xpe_probe_args *args)
{
    xpe_op op = {.run = probe_part, .parts = args->sums->lane_count};
    op.args.probe = *args;
    xpe_cpu_enqueue(team, device, &op);
}

/* ------------------------------------------------------------------------------ step 6 */

static void deviation_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                           xpe_scratch *scratch)
{
    const xpe_deviation_args *a = &op->args.deviation;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    int64_t plane = team->n * team->n;

    (void)device;
    (void)scratch;
    for (int k = 0; k < a->modes; k++)
        for (int64_t i = share.first; i < share.first + share.count; i++)
            team->loops->sum_deviation(a->sums->lanes[part].real + k * plane,
                                       copy_of(team, &a->copy, a->batch.block, k, i),
                                       (const xpe_c32 *)xpe_data(a->copy.u) + k * plane,
                                       (const xpe_c32 *)xpe_data(a->copy.d) + k * plane,
                                       a->copy.two_rho, xpe_numbers_of(a->numbers)[k].unit_dev,
                                       plane);
    xpe_cpu_moved(team, a->modes * (24 + 16) * share.count * plane);
}

void xpe_cpu_deviation(xpe_team *team, int device, const xpe_deviation_args *args)
{
    xpe_op op = {.run = deviation_part, .parts = args->sums->lane_count};
    op.args.deviation = *args;
    xpe_cpu_enqueue(team, device, &op);
}

/* ---------------------------------------------------------------------- scheduled modes */

static void settle_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                        xpe_scratch *scratch)
{
    const xpe_settle_args *a = &op->args.settle;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    int64_t plane = team->n * team->n;

    (void)device;
    (void)scratch;
    for (int k = 0; k < a->modes; k++)
        for (int64_t i = share.first; i < share.first + share.count; i++) {
            xpe_c32 *copy = copy_of(team, &a->copy, a->batch.block, k, i);
            settle_pixels(team, &a->copy, copy, k, 0, plane);
            if (a->scale != 1.0f)
                team->loops->multiply(copy, a->scale, plane);
        }
}

void xpe_cpu_settle(xpe_team *team, int device, const xpe_settle_args *args)
{
    xpe_op op = {.run = settle_part, .parts = xpe_cpu_lanes(team, args->batch.block)};
    op.args.settle = *args;
    xpe_cpu_enqueue(team, device, &op);
}

static void fill_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                      xpe_scratch *scratch)
{
    const xpe_fill_args *a = &op->args.fill;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    int64_t plane = team->n * team->n;

    (void)device;
    (void)scratch;
    for (int64_t i = share.first; i < share.first + share.count; i++)
        memcpy((xpe_c32 *)xpe_data(a->s) + (a->mode * a->batch.block + i) * plane,
               (const xpe_c32 *)xpe_data(a->value) + a->mode * plane,
               (size_t)plane * sizeof(xpe_c32));
}

void xpe_cpu_fill(xpe_team *team, int device, const xpe_fill_args *args)
{
    xpe_op op = {.run = fill_part, .parts = xpe_cpu_lanes(team, args->batch.block)};
    op.args.fill = *args;
    xpe_cpu_enqueue(team, device, &op);
}

/* ------------------------------------------------- start probe and residual of step 3 */

/* The residual (or, without modes, the amplitudes) as a field times the checkerboard that centres
 * it. */
static bool residual_fields(const xpe_team *team, xpe_scratch *s, const xpe_back_args *a,
                            const float *y, const xpe_c32 *patch)
{
    int64_t n = team->n, plane = n * XPE_GROUP;
    bool any = false;

    if (a->modes)
        xpe_forward_rows(team, s, xpe_data(a->probe), a->modes, patch, a->cols, s->field[0]);
    for (int64_t g = 0; g < team->groups; g++) {
        xpe_c32 *out = xpe_group(team, s->field[1], 0, g);
        memset(s->intensity, 0, (size_t)plane * sizeof *s->intensity);
        for (int k = 0; k < a->modes; k++) {
            xpe_columns(team, s, xpe_group(team, s->field[0], k, g), -1);
            team->loops->intensity(s->intensity, xpe_group(team, s->field[0], k, g), plane, k > 0);
        }
        any = team->loops->residual(s->intensity, y + g * plane, plane) || any;
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < XPE_GROUP; c++) {
                float value = s->intensity[r * XPE_GROUP + c];
                out[r * XPE_GROUP + c] = (xpe_c32){(r + c) % 2 ? -value : value, 0.0f};
            }
        xpe_columns(team, s, out, +1);
    }
    s->transforms += a->modes + 1;
    return any;
}

static void back_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                      xpe_scratch *scratch)
{
    const xpe_back_args *a = &op->args.back;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    int64_t n = team->n;
    const xpe_lane *lane = &a->sums->lanes[part];

    (void)device;
    for (int64_t i = share.first; i < share.first + share.count; i++) {
        const int32_t *first = (const int32_t *)xpe_data(a->first) + 2 * i;
        const xpe_c32 *patch =
            a->modes ? (const xpe_c32 *)xpe_data(a->image) + first[0] * a->cols + first[1] : NULL;
        bool any = residual_fields(team, scratch, a, xpe_frame_y(team, a->y, i), patch);
        ((float *)xpe_data(a->nonzero))[i] = any;
        for (int64_t row = 0; row < n; row += XPE_GROUP) {
            xpe_rows_from_field(team, scratch, scratch->rows[0], scratch->field[1], 0, row);
            for (int64_t r = 0; r < xpe_batch_rows(team, row); r++) {
                xpe_c32 *t = scratch->rows[0] + r * team->stride;
                if (a->modes) {
                    team->loops->divide(scratch->rows[1], t, patch + (row + r) * a->cols,
                                        a->patch_eps, 1.0f / (float)n, n);
                    t = scratch->rows[1];
                } else {
                    team->loops->multiply(t, 1.0f / (float)n, n);
                }
                team->loops->sum_plain(lane->a + 2 * (row + r) * n, t, a->unit[0], n);
            }
        }
    }
}

void xpe_cpu_back(xpe_team *team, int device, const xpe_back_args *args)
{
    xpe_op op = {.run = back_part, .parts = args->sums->lane_count};
    op.args.back = *args;
    xpe_cpu_enqueue(team, device, &op);
}
