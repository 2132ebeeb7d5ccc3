/* The trip over the frames: step 7 of an iteration, its step 2, and step 1 of the next.  See
 * backend/backend.h, xpe_fit_args; bytes by design are in docs/performance.md. */
#include "chunk.h"
#include "fft.h"

/* Far fields of the product and their misfit, a partial a segment. */
static bool far_misfit(xpe_team *team, int device, const k_product_args *product,
                       const k_misfit_args *misfit)
{
    if (xpe_cuda_own(team->n))
        return XPE_RUN(team, device, rows_product, product) &&
               XPE_RUN(team, device, columns_misfit, misfit);
    return XPE_RUN(team, device, product, product) &&
           xpe_cuda_fft_run(team, device, product->field, product->chunk.modes, -1) &&
           XPE_RUN(team, device, misfit, misfit);
}

static void measure_error(xpe_team *team, int device, const xpe_fit_args *a, k_chunk chunk)
{
    xpe_cuda_device *d = &team->devices[device];
    k_product_args product = {.chunk = chunk,
                              .place = xpe_place(a->first, a->cols),
                              .image = xpe_data(a->image),
                              .probe = xpe_data(a->probe),
                              .field = d->field[0]};
    k_misfit_args misfit = {chunk, xpe_data(a->y), d->field[0], d->partial};
    k_finish_args finish = {
        .chunk = chunk, .partial = d->partial, .out = xpe_data(a->misfit), .step = 1};

    if (far_misfit(team, device, &product, &misfit))
        (void)XPE_RUN(team, device, finish, &finish);
    team->transforms += chunk.count * a->modes;
}

static k_load_args load_args(const xpe_team *team, int device, const xpe_fit_args *a, k_chunk chunk)
{
    return (k_load_args){.chunk = chunk,
                         .place = xpe_place(a->first, a->cols),
                         .v = xpe_data(a->v),
                         .z = a->flags & XPE_FIT_UPDATE ? xpe_data(a->z) : NULL,
                         .probe = a->flags & XPE_FIT_PATCH ? xpe_data(a->probe) : NULL,
                         .two_rho = a->two_rho,
                         .field = team->devices[device].field[0]};
}

static bool store_patches(xpe_team *team, int device, const xpe_fit_args *a, k_chunk chunk)
{
    const xpe_sums *sums = a->sums;
    bool own = xpe_cuda_own(team->n);
    k_store_args store = {.chunk = chunk,
                          .place = xpe_place(a->first, a->cols),
                          .field = team->devices[device].field[0],
                          .divider = xpe_data(a->divider),
                          .weight = xpe_data(a->weight),
                          .v = xpe_data(a->v),
                          .z = own && (a->flags & XPE_FIT_UPDATE) ? xpe_data(a->z) : NULL,
                          .one_minus_alpha = a->one_minus_alpha,
                          .two_rho = a->two_rho,
                          .sum_w = sums->array[XPE_SUM_A],
                          .sum_v = a->flags & XPE_FIT_SUM_V ? sums->array[XPE_SUM_B] : NULL,
                          .sum_l = a->flags & XPE_FIT_SUM_L ? sums->array[XPE_SUM_REAL] : NULL,
                          .window = sums->desc.rows * sums->desc.cols,
                          .v_energy = xpe_data(a->v_energy),
                          .numbers = xpe_data(a->numbers)};

    if (!xpe_clear(team, device, store.v_energy, a->batch, &chunk))
        return false;
    return own ? XPE_RUN(team, device, rows_store, &store) : XPE_RUN(team, device, store, &store);
}

static bool fit_patches(xpe_team *team, int device, const xpe_fit_args *a, k_chunk chunk)
{
    xpe_cuda_device *d = &team->devices[device];
    k_load_args load = load_args(team, device, a, chunk);
    k_replace_args replace = {chunk, xpe_data(a->y), d->field[0]};

    team->transforms += 2 * chunk.count * a->modes;
    if (xpe_cuda_own(team->n))
        return XPE_RUN(team, device, rows_load, &load) &&
               XPE_RUN(team, device, columns_replace, &replace) &&
               store_patches(team, device, a, chunk);
    return XPE_RUN(team, device, load, &load) &&
           xpe_cuda_fft_run(team, device, d->field[0], a->modes, -1) &&
           XPE_RUN(team, device, replace, &replace) &&
           xpe_cuda_fft_run(team, device, d->field[0], a->modes, +1) &&
           store_patches(team, device, a, chunk);
}

/* Step 2 by itself, with the sums of the patches that it leaves. */
static bool update_patches(xpe_team *team, int device, const xpe_fit_args *a, k_chunk chunk)
{
    k_load_args load = load_args(team, device, a, chunk);

    if (a->flags & XPE_FIT_SUM_V) {
        load.weight = xpe_data(a->weight);
        load.sum_v = a->sums->array[XPE_SUM_A];
        load.window = a->sums->desc.rows * a->sums->desc.cols;
        load.numbers = xpe_data(a->numbers);
    }
    return XPE_RUN(team, device, load, &load);
}

static void sum_coverage(xpe_team *team, int device, const xpe_fit_args *a, k_chunk chunk)
{
    k_cover_args cover = {.chunk = chunk,
                          .place = xpe_place(a->first, a->cols),
                          .weight = xpe_data(a->weight),
                          .sum_l = xpe_sum_of(a->sums, XPE_SUM_REAL),
                          .window = a->sums->desc.rows * a->sums->desc.cols,
                          .numbers = xpe_data(a->numbers)};

    (void)XPE_RUN(team, device, cover, &cover);
}

/* Bytes of device memory by design, a pixel of a frame; docs/performance.md tells where they come
 * from. */
static int64_t bytes_a_pixel(const xpe_fit_args *a, bool own)
{
    int64_t k = a->modes, bytes = 0,
            sums = 16 + (a->flags & XPE_FIT_SUM_V ? 16 : 0) + (a->flags & XPE_FIT_SUM_L ? 8 : 0);

    if (a->flags & XPE_FIT_ERROR)
        bytes += 4 + (own ? 16 * k : 8 + 48 * k);
    if (a->flags & XPE_FIT_PATCH)
        bytes += 4 + (own ? 24 + 32 * k : 32 + 96 * k) + sums * k;
    else if (a->flags & XPE_FIT_UPDATE)
        bytes += 16 + (a->flags & XPE_FIT_SUM_V ? 16 * k : 0);
    return bytes;
}

static void fit_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_fit_args *a = &op->args.fit;
    k_chunk chunk = xpe_chunk(team, device, a->batch, a->modes, index);

    if (a->flags & XPE_FIT_ERROR)
        measure_error(team, device, a, chunk);
    if (team->failed)
        return;
    if (a->flags & XPE_FIT_PATCH)
        (void)fit_patches(team, device, a, chunk);
    else if (a->flags & XPE_FIT_UPDATE)
        (void)update_patches(team, device, a, chunk);
    else if (a->flags & XPE_FIT_SUM_L)
        sum_coverage(team, device, a, chunk);
    team->bytes_moved += bytes_a_pixel(a, xpe_cuda_own(team->n)) * chunk.count * team->n * team->n;
}

void xpe_cuda_fit(xpe_team *team, int device, const xpe_fit_args *args)
{
    xpe_cuda_op op = {.run = fit_run, .chunks = xpe_chunks(team, device, args->batch, 1)};
    op.args.fit = *args;
    xpe_cuda_enqueue(team, device, &op);
}

/* The start of v. */
static void patches_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_patch_args *a = &op->args.patch;
    k_patch_args patch = {xpe_chunk(team, device, a->batch, 0, index), xpe_place(a->first, a->cols),
                          xpe_data(a->image), xpe_data(a->v)};

    (void)XPE_RUN(team, device, patch, &patch);
}

void xpe_cuda_patches(xpe_team *team, int device, const xpe_patch_args *args)
{
    xpe_cuda_op op = {.run = patches_run, .chunks = xpe_chunks(team, device, args->batch, 1)};
    op.args.patch = *args;
    xpe_cuda_enqueue(team, device, &op);
}

/* ------------------------------------------------------------------------ position search */

/* One shift of the frames of a chunk; chunk after chunk, shift after shift. */
static void search_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_search_args *a = &op->args.search;
    xpe_cuda_device *d = &team->devices[device];
    int64_t side = 2 * a->max_shift + 1, shift = index % (side * side);
    k_chunk chunk = xpe_chunk(team, device, a->batch, a->modes, index / (side * side));
    k_product_args product = {.chunk = chunk,
                              .place = xpe_place(a->first, a->cols),
                              .row = shift / side - a->max_shift,
                              .col = shift % side - a->max_shift,
                              .rows = a->rows,
                              .image = xpe_data(a->image),
                              .probe = xpe_data(a->probe),
                              .field = d->field[0]};
    k_misfit_args misfit = {chunk, xpe_data(a->y), d->field[0], d->partial};
    k_finish_args finish = {.chunk = chunk,
                            .partial = d->partial,
                            .out = (double *)xpe_data(a->misfit) + shift,
                            .step = side * side,
                            .first = xpe_data(a->first),
                            .row = product.row,
                            .col = product.col,
                            .rows = a->rows,
                            .cols = a->cols};

    if (far_misfit(team, device, &product, &misfit))
        (void)XPE_RUN(team, device, finish, &finish);
    team->transforms += chunk.count * a->modes;
}

void xpe_cuda_search(xpe_team *team, int device, const xpe_search_args *args)
{
    int64_t side = 2 * args->max_shift + 1;
    xpe_cuda_op op = {.run = search_run,
                      .chunks = xpe_chunks(team, device, args->batch, 1) * side * side};
    op.args.search = *args;
    xpe_cuda_enqueue(team, device, &op);
}
