/* Exact sums of the CPU backend: a set of integer arrays a lane, each just as high as the lane's
 * frames reach, added where they meet when an owner gathers its rows. */
#include "team.h"

#include "backend/util.h"

#include <string.h>

static size_t array_size(const xpe_sums *sums, const xpe_lane *lane, int components)
{
    return (size_t)(sums->desc.modes * (lane->row_stop - lane->row_first) * sums->desc.cols *
                    components);
}

static xpe_status lane_init(xpe_sums *sums, int index, xpe_error *err)
{
    const xpe_sums_desc *d = &sums->desc;
    xpe_lane *lane = &sums->lanes[index];
    xpe_batch whole = {0, d->block, d->block},
              share = xpe_cpu_share(whole, index, sums->lane_count);
    int64_t least = d->rows, most = 0;
    bool good = true;

    lane->frame_first = share.first;
    lane->frame_stop = share.first + share.count;
    if (d->first) {
        for (int64_t i = lane->frame_first; i < lane->frame_stop; i++) {
            least = xpe_min64(least, d->first[2 * i]);
            most = xpe_max64(most, d->first[2 * i] + d->n);
        }
        lane->row_first = xpe_min64(least, most);
        lane->row_stop = most;
    } else {
        lane->row_stop = d->rows;
    }
    if (d->complex_a)
        good = (lane->a = xpe_cpu_alloc(sums->team, array_size(sums, lane, 2) * sizeof(int64_t))) &&
               good;
    if (d->complex_b)
        good = (lane->b = xpe_cpu_alloc(sums->team, array_size(sums, lane, 2) * sizeof(int64_t))) &&
               good;
    if (d->real)
        good =
            (lane->real = xpe_cpu_alloc(sums->team, array_size(sums, lane, 1) * sizeof(int64_t))) &&
            good;
    if (!good)
        return xpe_fail(err, XPE_NO_MEMORY, "/devices",
                        "host memory is exhausted: %.1f MiB were needed for the sums of %lld "
                        "object rows on 'cpu'",
                        (double)array_size(sums, lane, 5) * 8 / 1048576.0,
                        (long long)(lane->row_stop - lane->row_first));
    return XPE_OK;
}

xpe_status xpe_cpu_sums_create(xpe_sums **out, xpe_team *team, int device,
                               const xpe_sums_desc *desc, xpe_error *err)
{
    xpe_sums *sums = NULL;
    xpe_status st;

    (void)device;
    *out = NULL;
    XPE_TRY(xpe_new(&sums, 1, sizeof *sums, err));
    sums->team = team;
    sums->desc = *desc;
    sums->lane_count = xpe_cpu_lanes(team, desc->block);
    XPE_TRY(xpe_new(&sums->lanes, (size_t)sums->lane_count, sizeof *sums->lanes, err));
    for (int i = 0; i < sums->lane_count; i++)
        XPE_TRY(lane_init(sums, i, err));
    sums->desc.first = NULL; /* was borrowed for the making only */
    *out = sums;
    sums = NULL;
done:
    xpe_cpu_sums_destroy(sums);
    return st;
}

void xpe_cpu_sums_destroy(xpe_sums *sums)
{
    if (!sums)
        return;
    for (int i = 0; sums->lanes && i < sums->lane_count; i++) {
        xpe_lane *lane = &sums->lanes[i];
        xpe_cpu_free(sums->team, lane->a, array_size(sums, lane, 2) * sizeof(int64_t));
        xpe_cpu_free(sums->team, lane->b, array_size(sums, lane, 2) * sizeof(int64_t));
        xpe_cpu_free(sums->team, lane->real, array_size(sums, lane, 1) * sizeof(int64_t));
    }
    free(sums->lanes);
    free(sums);
}

static void clear_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                       xpe_scratch *scratch)
{
    xpe_sums *sums = op->args.clear.sums;
    xpe_lane *lane = &sums->lanes[part];

    (void)team;
    (void)device;
    (void)parts;
    (void)scratch;
    if (lane->a)
        memset(lane->a, 0, array_size(sums, lane, 2) * sizeof(int64_t));
    if (lane->b)
        memset(lane->b, 0, array_size(sums, lane, 2) * sizeof(int64_t));
    if (lane->real)
        memset(lane->real, 0, array_size(sums, lane, 1) * sizeof(int64_t));
}

void xpe_cpu_sums_clear(xpe_team *team, int device, xpe_sums *sums)
{
    xpe_op op = {.run = clear_part, .parts = sums->lane_count};

    op.args.clear.sums = sums;
    xpe_cpu_enqueue(team, device, &op);
}

static void gather_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                        xpe_scratch *scratch)
{
    const xpe_sums *sums = op->args.gather.sums;
    int components = op->args.gather.array == XPE_SUM_REAL ? 1 : 2;
    int64_t width = sums->desc.cols * components;
    int64_t begin = op->args.gather.row + op->args.gather.rows * part / parts;
    int64_t end = op->args.gather.row + op->args.gather.rows * (part + 1) / parts;

    (void)device;
    (void)scratch;
    for (int i = 0; i < sums->lane_count; i++) {
        const xpe_lane *lane = &sums->lanes[i];
        const int64_t *from = op->args.gather.array == XPE_SUM_A   ? lane->a
                              : op->args.gather.array == XPE_SUM_B ? lane->b
                                                                   : xpe_lane_real(lane);
        int64_t lo = xpe_max64(begin, lane->row_first), hi = xpe_min64(end, lane->row_stop);
        if (lo >= hi)
            continue;
        from += (op->args.gather.mode * (lane->row_stop - lane->row_first) + lo - lane->row_first) *
                width;
        team->loops->add_int(op->args.gather.to + (lo - op->args.gather.row) * width, from,
                             (hi - lo) * width);
    }
}

void xpe_cpu_sums_gather(xpe_team *team, xpe_buffer *to, int device, size_t to_offset,
                         const xpe_sums *sums, int mode, xpe_sum_array array, int64_t row,
                         int64_t rows)
{
    xpe_op op = {.run = gather_part, .parts = xpe_cpu_lanes(team, rows)};

    op.args.gather.to = (int64_t *)(void *)((char *)to->data + to_offset);
    op.args.gather.sums = sums;
    op.args.gather.mode = mode;
    op.args.gather.array = array;
    op.args.gather.row = row;
    op.args.gather.rows = rows;
    xpe_cpu_enqueue(team, device, &op);
}
