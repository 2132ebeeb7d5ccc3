/* The trip over the frames: step 7 of an iteration, its step 2, and step 1 of the next, a frame at
 * a time while it is in cache.  See backend/backend.h, xpe_fit_args. */
#include "frame.h"

#include "backend/util.h"

/* The lane's sums of mode k at the row of the window where a patch row lies. */
static int64_t *sum_at(const xpe_sums *sums, const xpe_lane *lane, int64_t *array, int components,
                       int mode, int64_t row, int64_t col)
{
    int64_t rows = lane->row_stop - lane->row_first;
    return array + ((mode * rows + row - lane->row_first) * sums->desc.cols + col) * components;
}

/* v += 2 rho z, products with the modes, row transforms. */
static void load_patch(const xpe_team *team, xpe_scratch *s, const xpe_fit_args *a, xpe_c32 *v,
                       const xpe_c32 *z)
{
    int64_t n = team->n;
    const xpe_c32 *probe = xpe_data(a->probe);

    for (int64_t row = 0; row < n; row += XPE_GROUP)
        for (int k = 0; k < a->modes; k++) {
            for (int64_t r = 0; r < xpe_batch_rows(team, row); r++) {
                xpe_c32 *out = s->rows[0] + r * team->stride, *at = v + (row + r) * n;
                const xpe_c32 *d = probe + (k * n + row + r) * n;
                if (k == 0 && (a->flags & XPE_FIT_UPDATE))
                    team->loops->advance_product(out, at, z + (row + r) * a->cols, d, a->two_rho,
                                                 n);
                else
                    team->loops->product(out, d, at, n);
            }
            xpe_rows_to_field(team, s, s->rows[0], s->field[0], k, row);
        }
}

/* Column transforms, amplitude replacement, column transforms back; a group of columns at a time.
 */
static void replace_amplitudes(const xpe_team *team, xpe_scratch *s, int modes, const float *y)
{
    int64_t plane = team->n * XPE_GROUP;

    for (int64_t g = 0; g < team->groups; g++) {
        if (modes == 1) {
            xpe_c32 *group = xpe_group(team, s->field[0], 0, g);
            xpe_columns(team, s, group, -1);
            team->loops->replace(group, y + g * plane, plane);
            xpe_columns(team, s, group, +1);
            continue;
        }
        for (int k = 0; k < modes; k++) {
            xpe_columns(team, s, xpe_group(team, s->field[0], k, g), -1);
            team->loops->intensity(s->intensity, xpe_group(team, s->field[0], k, g), plane, k > 0);
        }
        team->loops->gain(s->intensity, y + g * plane, plane);
        for (int k = 0; k < modes; k++) {
            team->loops->scale(xpe_group(team, s->field[0], k, g), s->intensity, plane);
            xpe_columns(team, s, xpe_group(team, s->field[0], k, g), +1);
        }
    }
    s->transforms += 2 * modes;
}

/* One row: sums of the patch as it is, the relaxed update, sums of w. */
static int32_t finish_row(const xpe_team *team, xpe_scratch *s, const xpe_fit_args *a,
                          const xpe_lane *lane, xpe_c32 *v, const xpe_c32 *t, int64_t patch_row,
                          int64_t row, int64_t col)
{
    int64_t n = team->n;
    xpe_c32 *w = s->rows[2];
    const float *weight = xpe_data(a->weight);
    int32_t most;

    if (a->flags & XPE_FIT_SUM_V)
        for (int k = 0; k < a->modes; k++)
            team->loops->sum_weighted(sum_at(a->sums, lane, lane->b, 2, k, row, col),
                                      weight + (k * n + patch_row) * n, v,
                                      xpe_numbers_of(a->numbers)[k].unit_v, n);
    most = team->loops->relax(w, v, t, a->one_minus_alpha, a->two_rho, n);
    for (int k = 0; k < a->modes; k++) {
        team->loops->sum_weighted(sum_at(a->sums, lane, lane->a, 2, k, row, col),
                                  weight + (k * n + patch_row) * n, w,
                                  xpe_numbers_of(a->numbers)[k].unit_w, n);
        if (a->flags & XPE_FIT_SUM_L)
            team->loops->sum_real(sum_at(a->sums, lane, lane->real, 1, k, row, col),
                                  weight + (k * n + patch_row) * n,
                                  xpe_numbers_of(a->numbers)[k].unit_l, n);
    }
    return most;
}

/* Row transforms back, division by the modes, update of v, sums.  Returns max |v|^2 as float bits.
 */
static int32_t store_patch(const xpe_team *team, xpe_scratch *s, const xpe_fit_args *a,
                           const xpe_lane *lane, xpe_c32 *v, int64_t window_row, int64_t col)
{
    int64_t n = team->n;
    const xpe_c32 *divider = xpe_data(a->divider);
    int32_t most = 0;

    for (int64_t row = 0; row < n; row += XPE_GROUP) {
        int64_t count = xpe_batch_rows(team, row);
        for (int k = 0; k < a->modes; k++) {
            xpe_rows_from_field(team, s, s->rows[0], s->field[0], k, row);
            for (int64_t r = 0; r < count; r++)
                team->loops->weigh(s->rows[1] + r * team->stride, s->rows[0] + r * team->stride,
                                   divider + (k * n + row + r) * n, n, k > 0);
        }
        for (int64_t r = 0; r < count; r++) {
            int32_t bits =
                finish_row(team, s, a, lane, v + (row + r) * n, s->rows[1] + r * team->stride,
                           row + r, window_row + row + r, col);
            most = bits > most ? bits : most;
        }
    }
    return most;
}

static void fit_frame(const xpe_team *team, xpe_scratch *s, const xpe_fit_args *a,
                      const xpe_lane *lane, int64_t i)
{
    int64_t n = team->n;
    const int32_t *first = (const int32_t *)xpe_data(a->first) + 2 * i;
    const float *y = xpe_frame_y(team, a->y, i);
    int64_t corner = first[0] * a->cols + first[1];
    xpe_c32 *v = (xpe_c32 *)xpe_data(a->v) + i * n * n;
    const xpe_c32 *z = a->flags & XPE_FIT_UPDATE ? (const xpe_c32 *)xpe_data(a->z) + corner : NULL;

    if (a->flags & XPE_FIT_ERROR) {
        xpe_forward_rows(team, s, xpe_data(a->probe), a->modes,
                         (const xpe_c32 *)xpe_data(a->image) + corner, a->cols, s->field[0]);
        ((double *)xpe_data(a->misfit))[i] = xpe_frame_misfit(team, s, s->field[0], a->modes, y);
    }
    if (a->flags & XPE_FIT_PATCH) {
        int32_t bits;
        load_patch(team, s, a, v, z);
        replace_amplitudes(team, s, a->modes, y);
        bits = store_patch(team, s, a, lane, v, first[0], first[1]);
        memcpy((float *)xpe_data(a->v_energy) + i, &bits, sizeof bits);
    } else if (a->flags & XPE_FIT_UPDATE) {
        for (int64_t r = 0; r < n; r++) {
            team->loops->advance(v + r * n, z + r * a->cols, a->two_rho, n);
            for (int k = 0; (a->flags & XPE_FIT_SUM_V) && k < a->modes; k++)
                team->loops->sum_weighted(
                    sum_at(a->sums, lane, lane->a, 2, k, first[0] + r, first[1]),
                    (const float *)xpe_data(a->weight) + (k * n + r) * n, v + r * n,
                    xpe_numbers_of(a->numbers)[k].unit_v, n);
        }
    } else if (a->flags & XPE_FIT_SUM_L) {
        for (int k = 0; k < a->modes; k++)
            for (int64_t r = 0; r < n; r++)
                team->loops->sum_real(
                    sum_at(a->sums, lane, xpe_lane_real(lane), 1, k, first[0] + r, first[1]),
                    (const float *)xpe_data(a->weight) + (k * n + r) * n,
                    xpe_numbers_of(a->numbers)[k].unit_l, n);
    }
}

static void fit_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                     xpe_scratch *scratch)
{
    const xpe_fit_args *a = &op->args.fit;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    int64_t k = a->modes, pixel = 0;

    (void)device;
    for (int64_t i = share.first; i < share.first + share.count; i++)
        fit_frame(team, scratch, a, &a->sums->lanes[part], i);
    /* by design, a pixel: amplitudes and image patch with the modes for the error; patch, z,
     * amplitudes, modes, dividers, weights and sums (read and written) for the fit */
    if (a->flags & XPE_FIT_ERROR)
        pixel += 4 + 8 + 8 * k;
    if (a->flags & XPE_FIT_PATCH)
        pixel += 16 + 8 + 4 + 20 * k + 32 * k + (a->flags & XPE_FIT_SUM_V ? 32 * k : 0) +
                 (a->flags & XPE_FIT_SUM_L ? 16 * k : 0);
    else if (a->flags & XPE_FIT_UPDATE)
        pixel += 16 + 8 + (a->flags & XPE_FIT_SUM_V ? 36 * k : 0);
    xpe_cpu_moved(team, pixel * share.count * team->n * team->n);
}

void xpe_cpu_fit(xpe_team *team, int device, const xpe_fit_args *args)
{
    xpe_op op = {.run = fit_part, .parts = args->sums->lane_count};
    op.args.fit = *args;
    xpe_cpu_enqueue(team, device, &op);
}
