/* The starting point where the job gives none (algorithm.md 2): probe from the mean amplitude,
 * object from the frames' norms.  Both end in a Gaussian filter, in double precision on the host.
 */
#include "host.h"
#include "state.h"

#include "backend/util.h"

#include <math.h>
#include <string.h>

#define SHRINK (1.0 / (1.0 + 1e-6))

double xpe_fresnel_number(const xpe_run *run)
{
    const xpe_stage *s = &run->stage;
    double pitch = run->problem->grid.pitch_m;

    if (s->fresnel_radius_pixels != 0)
        return s->fresnel_radius_pixels * s->fresnel_radius_pixels;
    return run->problem->desc.scan.wavelength_m * s->fresnel_distance_m / (pitch * pitch);
}

xpe_status xpe_start_back(xpe_run *run, int modes, xpe_c64 *mean, xpe_error *err)
{
    int64_t plane = run->n * run->n;
    double bound = modes ? run->frame_norm / (2 * sqrt(run->numbers.patch_eps)) : run->frame_norm;
    xpe_unit unit = xpe_unit_make(bound * 1.001, run->num_frames);
    int64_t *sum = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&sum, (size_t)plane * 2, sizeof *sum, err));
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        xpe_back_args args = {.modes = modes,
                              .patch_eps = (float)run->numbers.patch_eps,
                              .cols = run->cols,
                              .first = s->first,
                              .y = s->y,
                              .image = s->image,
                              .probe = s->probe,
                              .sums = s->probe_sums,
                              .unit = &unit,
                              .nonzero = s->nonzero};
        run->backend->sums_clear(run->team, g, s->probe_sums);
        while (xpe_state_next_batch(run, s, &args.batch))
            run->backend->back(run->team, g, &args);
    }
    XPE_TRY(xpe_exchange_probe_sum(run, XPE_SUM_A, XPE_AT(probe_fix_r), 1, err));
    run->backend->download(run->team, sum, run->shards[0].probe_fix_r, 0,
                           (size_t)plane * 2 * sizeof *sum);
    XPE_TRY(xpe_state_wait(run, err));
    for (int64_t i = 0; i < plane; i++) {
        double sign = (i / run->n + i % run->n) % 2 ? -1 : 1; /* out of the checkerboard */
        mean[i].re = sign * xpe_unfix(sum[2 * i], unit.unit) / (double)run->num_frames;
        mean[i].im = sign * xpe_unfix(sum[2 * i + 1], unit.unit) / (double)run->num_frames;
    }
done:
    free(sum);
    return st;
}

static xpe_status start_probe(xpe_run *run, xpe_c32 *mode, xpe_error *err)
{
    int64_t plane = run->n * run->n;
    xpe_c64 *field = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&field, (size_t)plane, sizeof *field, err));
    XPE_TRY(xpe_start_back(run, 0, field, err));
    for (int64_t i = 0; i < plane; i++) {
        field[i].re *= SHRINK;
        field[i].im *= SHRINK;
    }
    XPE_TRY(xpe_fresnel(run->backend, field, run->n, xpe_fresnel_number(run), err));
    XPE_TRY(xpe_gauss(&field->re, run->n, run->n, 2, err));
    XPE_TRY(xpe_gauss(&field->im, run->n, run->n, 2, err));
    for (int64_t i = 0; i < plane; i++)
        mode[i] = (xpe_c32){(float)field[i].re, (float)field[i].im};
done:
    free(field);
    return st;
}

xpe_status xpe_start_modes(xpe_run *run, xpe_c32 *modes, int *count, xpe_error *err)
{
    const xpe_problem_desc *d = &run->problem->desc;
    size_t plane = (size_t)(run->n * run->n);

    if (d->probe || d->init_probe) {
        *count = d->probe ? d->probe_count : d->init_probe_count;
        memcpy(modes, d->probe ? d->probe : d->init_probe, (size_t)*count * plane * sizeof *modes);
        return XPE_OK;
    }
    *count = 1;
    return start_probe(run, modes, err);
}

/* -------------------------------------------------------------------------------- object */

/* Adds value to the n x n square at (row, col) of a difference image [rows + 1][cols + 1]. */
static void mark_square(int64_t *image, int64_t width, int64_t row, int64_t col, int64_t n,
                        int64_t value)
{
    image[row * width + col] += value;
    image[row * width + col + n] -= value;
    image[(row + n) * width + col] -= value;
    image[(row + n) * width + col + n] += value;
}

/* Difference image to image: sums along rows, then along columns. */
static void integrate(int64_t *image, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++)
            image[r * width + c] += (c ? image[r * width + c - 1] : 0) +
                                    (r ? image[(r - 1) * width + c] : 0) -
                                    (r && c ? image[(r - 1) * width + c - 1] : 0);
}

xpe_status xpe_start_counts(xpe_run *run, int32_t *counts, xpe_error *err)
{
    int64_t width = run->cols + 1, *image = NULL;
    const int32_t *first = run->problem->first;
    xpe_status st;

    XPE_TRY(xpe_new(&image, (size_t)((run->rows + 1) * width), sizeof *image, err));
    for (int64_t j = 0; j < run->num_frames; j++)
        mark_square(image, width, first[2 * j], first[2 * j + 1], run->n, 1);
    integrate(image, run->rows, width);
    run->count_max = 0;
    for (int64_t r = 0; r < run->rows; r++)
        for (int64_t c = 0; c < run->cols; c++) {
            counts[r * run->cols + c] = (int32_t)image[r * width + c];
            run->count_max = xpe_max64(run->count_max, image[r * width + c]);
        }
done:
    free(image);
    return st;
}

/* The k-th smallest of count values, which are reordered. */
static double select_kth(double *a, int64_t count, int64_t k)
{
    int64_t lo = 0, hi = count - 1;

    while (lo < hi) {
        double pivot = a[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (a[i] < pivot)
                i++;
            while (a[j] > pivot)
                j--;
            if (i <= j) {
                double swap = a[i];
                a[i++] = a[j];
                a[j--] = swap;
            }
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            break;
    }
    return a[k];
}

static xpe_status median(double *out, const double *image, int64_t count, xpe_error *err)
{
    double *copy;
    xpe_status st = xpe_new(&copy, (size_t)count, sizeof *copy, err);

    if (st != XPE_OK)
        return st;
    memcpy(copy, image, (size_t)count * sizeof *copy);
    *out = select_kth(copy, count, count / 2);
    if (count % 2 == 0)
        *out = (*out + select_kth(copy, count, count / 2 - 1)) / 2;
    free(copy);
    return XPE_OK;
}

/* Sums of votes and counts of patches to the average vote of every pixel, in the memory of the
 * votes. */
static double *average_votes(xpe_run *run, int64_t *votes, const int64_t *hits, double unit)
{
    int64_t width = run->cols + 1;
    double *image = (double *)(void *)votes, energy = 0, eps;

    for (int64_t r = 0; r < run->rows; r++)
        for (int64_t c = 0; c < run->cols; c++)
            energy += pow((double)hits[r * width + c] * SHRINK, 2);
    eps = 1e-6 * sqrt(energy / ((double)run->rows * (double)run->cols));
    for (int64_t r = 0; r < run->rows; r++)
        for (int64_t c = 0; c < run->cols; c++) {
            double count = (double)hits[r * width + c] * SHRINK;
            double vote = xpe_unfix(votes[r * width + c], unit) * count / (count * count + eps);
            memcpy(&image[r * run->cols + c], &vote,
                   sizeof vote); /* never ahead of what is still to be read */
        }
    return image;
}

xpe_status xpe_start_object(xpe_run *run, double probe_energy, xpe_c32 *object, xpe_error *err)
{
    int64_t width = run->cols + 1, pixels = run->rows * run->cols;
    int64_t *votes = NULL, *hits = NULL;
    double *image, largest = sqrt(run->frame_norm / sqrt(probe_energy)), middle;
    xpe_unit unit = xpe_unit_make(largest, run->num_frames);
    const int32_t *first = run->problem->first;
    xpe_status st;

    XPE_TRY(xpe_new(&votes, (size_t)((run->rows + 1) * width), sizeof *votes, err));
    XPE_TRY(xpe_new(&hits, (size_t)((run->rows + 1) * width), sizeof *hits, err));
    for (int64_t j = 0; j < run->num_frames; j++) {
        double vote = sqrt(run->norms[j] / sqrt(probe_energy));
        mark_square(votes, width, first[2 * j], first[2 * j + 1], run->n,
                    xpe_fix((float)vote, unit.magic, unit.bias));
        mark_square(hits, width, first[2 * j], first[2 * j + 1], run->n, 1);
    }
    integrate(votes, run->rows, width);
    integrate(hits, run->rows, width);
    image = average_votes(run, votes, hits, unit.unit);
    free(hits);
    hits = NULL;
    XPE_TRY(median(&middle, image, pixels, err));
    for (int64_t i = 0; i < pixels; i++)
        image[i] = fabs(image[i] == 0 ? middle : image[i]);
    XPE_TRY(xpe_gauss(image, run->rows, run->cols, 1, err));
    for (int64_t i = 0; i < pixels; i++)
        object[i] = (xpe_c32){(float)image[i], 0};
done:
    free(hits);
    free(votes);
    return st;
}
