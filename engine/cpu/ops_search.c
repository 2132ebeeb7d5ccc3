/* Position search: the misfit of every frame for every whole-pixel shift (algorithm.md 3, "Position
 * refinement"). */
#include "frame.h"

#include <math.h>

static void search_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                        xpe_scratch *scratch)
{
    const xpe_search_args *a = &op->args.search;
    xpe_batch share = xpe_cpu_share(a->batch, part, parts);
    int64_t side = 2 * a->max_shift + 1, n = team->n;

    (void)device;
    for (int64_t i = share.first; i < share.first + share.count; i++) {
        const int32_t *first = (const int32_t *)xpe_data(a->first) + 2 * i;
        for (int64_t shift = 0; shift < side * side; shift++) {
            int64_t row = first[0] + shift / side - a->max_shift,
                    col = first[1] + shift % side - a->max_shift;
            double misfit = NAN;
            if (row >= 0 && col >= 0 && row + n <= a->rows && col + n <= a->cols) {
                xpe_forward_rows(team, scratch, xpe_data(a->probe), a->modes,
                                 (const xpe_c32 *)xpe_data(a->image) + row * a->cols + col, a->cols,
                                 scratch->field[0]);
                misfit = xpe_frame_misfit(team, scratch, scratch->field[0], a->modes,
                                          xpe_frame_y(team, a->y, i));
            }
            ((double *)xpe_data(a->misfit))[i * side * side + shift] = misfit;
        }
    }
}

void xpe_cpu_search(xpe_team *team, int device, const xpe_search_args *args)
{
    xpe_op op = {.run = search_part, .parts = xpe_cpu_lanes(team, args->batch.block)};
    op.args.search = *args;
    xpe_cpu_enqueue(team, device, &op);
}
