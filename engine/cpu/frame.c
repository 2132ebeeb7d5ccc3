/* See frame.h. */
#include "frame.h"

void xpe_rows_to_field(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *rows, xpe_c32 *field,
                       int mode, int64_t row)
{
    int64_t count = xpe_batch_rows(team, row), size = xpe_group_size(team);
    xpe_c32 *to = xpe_group(team, field, mode, 0) + row * XPE_GROUP;
    double begin;

    xpe_clear_tail(team, rows, count);
    begin = xpe_cpu_clock(team);
    xpe_fft_rows(team->fft, rows, -1);
    scratch->seconds_transforms += xpe_cpu_clock(team) - begin;
    for (int64_t g = 0; g < team->groups; g++)
        for (int64_t r = 0; r < count; r++)
            memcpy(to + g * size + r * XPE_GROUP, rows + r * team->stride + g * XPE_GROUP,
                   XPE_GROUP * sizeof *rows);
}

void xpe_rows_from_field(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *rows, xpe_c32 *field,
                         int mode, int64_t row)
{
    int64_t count = xpe_batch_rows(team, row), size = xpe_group_size(team);
    const xpe_c32 *from = xpe_group(team, field, mode, 0) + row * XPE_GROUP;
    double begin;

    for (int64_t g = 0; g < team->groups; g++)
        for (int64_t r = 0; r < count; r++)
            memcpy(rows + r * team->stride + g * XPE_GROUP, from + g * size + r * XPE_GROUP,
                   XPE_GROUP * sizeof *rows);
    xpe_clear_tail(team, rows, count);
    begin = xpe_cpu_clock(team);
    xpe_fft_rows(team->fft, rows, +1);
    scratch->seconds_transforms += xpe_cpu_clock(team) - begin;
}

void xpe_columns(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *group, int sign)
{
    double begin = xpe_cpu_clock(team);

    xpe_fft_columns(team->fft, group, sign);
    scratch->seconds_transforms += xpe_cpu_clock(team) - begin;
}

void xpe_forward_rows(const xpe_team *team, xpe_scratch *scratch, const xpe_c32 *probe, int modes,
                      const xpe_c32 *patch, int64_t cols, xpe_c32 *field)
{
    int64_t n = team->n;

    for (int64_t row = 0; row < n; row += XPE_GROUP)
        for (int k = 0; k < modes; k++) {
            for (int64_t r = 0; r < xpe_batch_rows(team, row); r++)
                team->loops->product(scratch->rows[0] + r * team->stride,
                                     probe + (k * n + row + r) * n, patch + (row + r) * cols, n);
            xpe_rows_to_field(team, scratch, scratch->rows[0], field, k, row);
        }
}

double xpe_frame_misfit(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *field, int modes,
                        const float *y)
{
    double sums[XPE_GROUP] = {0}, total = 0;
    int64_t n = team->n, plane = n * XPE_GROUP;

    for (int64_t g = 0; g < team->groups; g++) {
        for (int k = 0; k < modes; k++) {
            xpe_c32 *group = xpe_group(team, field, k, g);
            xpe_columns(team, scratch, group, -1);
            if (modes > 1)
                team->loops->intensity(scratch->intensity, group, plane, k > 0);
        }
        if (modes > 1)
            team->loops->misfit(sums, scratch->intensity, y + g * plane, n);
        else
            team->loops->misfit_one(sums, xpe_group(team, field, 0, g), y + g * plane, n);
    }
    scratch->transforms += modes;
    for (int c = 0; c < XPE_GROUP; c++)
        total += sums[c];
    return total;
}
