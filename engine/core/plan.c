/* The division of a run over devices and the bytes of each (algorithm.md 4).  Pure arithmetic: no
 * device is touched, so that a broker can refuse a job before anything is allocated.
 *
 * Blocks: positions sorted stably by first patch row, cut into parts of nearly equal count.
 * Bands: rows cut at round(g rows / N_g), halves to even.  Windows: the rows a block touches. */
#include "backend/util.h"
#include "math/numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Stable counting sort of the frames by first row. */
static xpe_status sort_by_row(int64_t *order, const int32_t *first, int64_t num_frames,
                              int64_t rows, xpe_error *err)
{
    int64_t *start;
    xpe_status st = xpe_new(&start, (size_t)rows + 1, sizeof *start, err);

    if (st != XPE_OK)
        return st;
    for (int64_t j = 0; j < num_frames; j++)
        start[first[2 * j] + 1]++;
    for (int64_t r = 0; r < rows; r++)
        start[r + 1] += start[r];
    for (int64_t j = 0; j < num_frames; j++)
        order[start[first[2 * j]]++] = j;
    free(start);
    return XPE_OK;
}

/* Device memory of one shard; section 4's table, for the final number of modes. */
static int64_t shard_bytes(const xpe_plan_shard *s, int64_t n, const xpe_grid *grid, int modes,
                           bool known, int shards, bool owner)
{
    int64_t frame = n * n, k = modes, cols = grid->cols;
    int64_t window = (s->window_stop - s->window_first) * cols,
            band = (s->band_stop - s->band_first) * cols;
    int64_t frames = s->frames * (frame * (12 + (known ? 0 : 8 * k)) + 64);
    /* window: two images, sums of W, of V and L too when the probe is estimated */
    int64_t windows = window * (16 + (known ? 16 : 40) * k);
    /* band: gathered sums, running sums, coverage; three images, patch counts */
    int64_t bands = band * (40 * k + 28);
    /* modes, what follows from them, copies' means and sums; their owner gathers the sums and keeps
     * the modes of before */
    int64_t probes =
        frame * k * (known ? 28 : 80) + (owner && !known ? frame * k * 40 : 0) + n * k * 40;
    /* largest values of the band's rows; energies of all rows; the numbers between the steps */
    int64_t numbers = (s->band_stop - s->band_first) * 16 + grid->rows * (8 + 8 * k) + shards * 24 +
                      (int64_t)sizeof(xpe_numbers);
    return frames + windows + bands + probes + numbers;
}

xpe_status xpe_plan_build(xpe_plan **out, const int32_t *first, int64_t num_frames, int64_t n,
                          const xpe_grid *grid, int probe_modes, bool probe_known, int count,
                          xpe_error *err)
{
    xpe_status st = XPE_OK;
    xpe_plan *plan = NULL;
    int64_t at = 0;

    *out = NULL;
    if (count < 1)
        return xpe_fail(err, XPE_INVALID, "/devices",
                        "%d devices were asked for; at least 1 is needed", count);
    if (count > num_frames)
        return xpe_fail(err, XPE_INVALID, "/devices",
                        "%d devices for %lld scan positions; each device needs at least one, so "
                        "ask for at most %lld",
                        count, (long long)num_frames, (long long)num_frames);
    if (count > grid->rows)
        return xpe_fail(err, XPE_INVALID, "/devices",
                        "%d devices for %lld object rows; each device owns at least one row, so "
                        "ask for at most %lld",
                        count, (long long)grid->rows, (long long)grid->rows);
    XPE_TRY(xpe_new(&plan, 1, sizeof *plan, err));
    plan->count = count;
    XPE_TRY(xpe_new(&plan->shards, (size_t)count, sizeof *plan->shards, err));
    XPE_TRY(xpe_new(&plan->order, (size_t)num_frames, sizeof *plan->order, err));
    XPE_TRY(sort_by_row(plan->order, first, num_frames, grid->rows, err));
    for (int g = 0; g < count; g++) {
        xpe_plan_shard *s = &plan->shards[g];
        s->frames = num_frames / count + (g < num_frames % count);
        s->window_first = first[2 * plan->order[at]];
        s->window_stop = first[2 * plan->order[at + s->frames - 1]] + n;
        s->band_first = (int64_t)rint((double)g * (double)grid->rows / count);
        s->band_stop = (int64_t)rint((double)(g + 1) * (double)grid->rows / count);
        s->bytes = shard_bytes(s, n, grid, probe_modes, probe_known, count, g == 0);
        at += s->frames;
    }
    *out = plan;
    plan = NULL;
done:
    xpe_plan_destroy(plan);
    return st;
}

void xpe_plan_destroy(xpe_plan *plan)
{
    if (!plan)
        return;
    free(plan->shards);
    free(plan->order);
    free(plan);
}

static const char *human(char *out, size_t size, int64_t bytes)
{
    double b = (double)bytes;
    if (b >= 1024.0 * 1024 * 1024)
        snprintf(out, size, "%.1f GiB", b / (1024.0 * 1024 * 1024));
    else
        snprintf(out, size, "%.1f MiB", b / (1024.0 * 1024));
    return out;
}

xpe_status xpe_plan_admit(const xpe_plan *plan, const char *const *names, const int64_t *bytes_free,
                          xpe_error *err)
{
    char needed_text[32], free_text[32], short_text[32];

    for (int g = 0; g < plan->count; g++) {
        int64_t needed = 0;
        int shards = 0;
        for (int h = 0; h < plan->count; h++)
            if (strcmp(names[g], names[h]) == 0) {
                needed += plan->shards[h].bytes;
                shards++;
            }
        if (needed <= bytes_free[g])
            continue;
        xpe_fail(err, XPE_NO_DEVICE_MEMORY, "/devices",
                 "cannot place the run on '%s': needs %s for %d shard%s, %s free (short by %s); "
                 "fewer probe modes, smaller "
                 "frames or more devices would fit",
                 names[g], human(needed_text, sizeof needed_text, needed), shards,
                 shards > 1 ? "s" : "", human(free_text, sizeof free_text, bytes_free[g]),
                 human(short_text, sizeof short_text, needed - bytes_free[g]));
        if (err) {
            snprintf(err->device, sizeof err->device, "%s", names[g]);
            err->bytes_needed = needed;
            err->bytes_free = bytes_free[g];
        }
        return XPE_NO_DEVICE_MEMORY;
    }
    return XPE_OK;
}
