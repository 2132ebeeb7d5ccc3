/* Probe copies: step 4 with the pending steps 5 and 6, the deviations of step 6, and what a
 * scheduled mode needs. See backend/backend.h. */
#include "chunk.h"
#include "fft.h"

static k_copies copies(const xpe_copy_state *c, bool pending)
{
    return (k_copies){.s = xpe_data(c->s),
                      .u = xpe_data(c->u),
                      .d = xpe_data(c->d),
                      .deviation = pending ? xpe_data(c->deviation) : NULL,
                      .two_rho = c->two_rho};
}

/* Fields of the modes and of the copies; rows only where transforms are our own, which do columns
 * when they are needed. */
static bool far_fields(xpe_team *team, int device, const xpe_probe_args *a, k_chunk chunk)
{
    xpe_cuda_device *d = &team->devices[device];
    k_product_args product = {.chunk = chunk,
                              .place = xpe_place(a->first, a->cols),
                              .image = xpe_data(a->image),
                              .probe = xpe_data(a->probe),
                              .field = d->field[0]};
    k_copies_load_args load = {.chunk = chunk,
                               .place = product.place,
                               .copies = copies(&a->copy, a->copy.pending),
                               .image = xpe_data(a->image),
                               .field = d->field[1]};

    if (xpe_cuda_own(team->n))
        return XPE_RUN(team, device, rows_product, &product) &&
               XPE_RUN(team, device, rows_copies, &load);
    return XPE_RUN(team, device, product, &product) && XPE_RUN(team, device, copies_load, &load) &&
           xpe_cuda_fft_run(team, device, d->field[0], a->modes, -1) &&
           xpe_cuda_fft_run(team, device, d->field[1], a->modes, -1);
}

static bool store_copies(xpe_team *team, int device, const xpe_probe_args *a, k_chunk chunk)
{
    k_copies_store_args store = {.chunk = chunk,
                                 .place = xpe_place(a->first, a->cols),
                                 .s = xpe_data(a->copy.s),
                                 .field = team->devices[device].field[1],
                                 .image = xpe_data(a->image),
                                 .factor = a->alpha / (float)team->n,
                                 .one_minus_alpha = a->one_minus_alpha,
                                 .two_rho = a->two_rho,
                                 .sum_r = a->sums->array[XPE_SUM_A],
                                 .sum_s = a->sums->array[XPE_SUM_B],
                                 .s_energy = xpe_data(a->s_energy),
                                 .numbers = xpe_data(a->numbers)};

    for (int k = 0; k < a->modes; k++)
        if (!xpe_clear(team, device, store.s_energy + k * chunk.block, a->batch, &chunk))
            return false;
    return xpe_cuda_own(team->n) ? XPE_RUN(team, device, rows_copies_store, &store)
                                 : XPE_RUN(team, device, copies_store, &store);
}

static void probe_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_probe_args *a = &op->args.probe;
    xpe_cuda_device *d = &team->devices[device];
    k_chunk chunk = xpe_chunk(team, device, a->batch, a->modes, index);
    k_impose_args impose = {chunk, xpe_data(a->y), d->field[0], d->field[1]};

    bool own = xpe_cuda_own(team->n);

    team->transforms += 3 * chunk.count * a->modes;
    /* docs/performance.md */
    team->bytes_moved += (4 + a->modes * (own ? 8 + 24 + 24 + 24 : 8 + 24 + 96 + 24 + 24)) *
                         chunk.count * team->n * team->n;
    if (!far_fields(team, device, a, chunk))
        return;
    if (own ? !XPE_RUN(team, device, columns_impose, &impose)
            : !XPE_RUN(team, device, impose, &impose) ||
                  !xpe_cuda_fft_run(team, device, d->field[1], a->modes, +1))
        return;
    (void)store_copies(team, device, a, chunk);
}

void xpe_cuda_probe_fit(xpe_team *team, int device, const xpe_probe_args *args)
{
    xpe_cuda_op op = {.run = probe_run, .chunks = xpe_chunks(team, device, args->batch, 2)};
    op.args.probe = *args;
    xpe_cuda_enqueue(team, device, &op);
}

static void deviation_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_deviation_args *a = &op->args.deviation;
    k_deviation_args args = {.chunk = xpe_chunk(team, device, a->batch, a->modes, index),
                             .copies = copies(&a->copy, false),
                             .sum = a->sums->array[XPE_SUM_REAL],
                             .numbers = xpe_data(a->numbers)};

    (void)XPE_RUN(team, device, deviation, &args);
    team->bytes_moved += a->modes * 8 * args.chunk.count * team->n * team->n;
}

void xpe_cuda_deviation(xpe_team *team, int device, const xpe_deviation_args *args)
{
    xpe_cuda_op op = {.run = deviation_run, .chunks = xpe_chunks(team, device, args->batch, 1)};
    op.args.deviation = *args;
    xpe_cuda_enqueue(team, device, &op);
}

/* ---------------------------------------------------------------------- scheduled modes */

static void settle_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_settle_args *a = &op->args.settle;
    k_settle_args args = {xpe_chunk(team, device, a->batch, a->modes, index),
                          copies(&a->copy, a->copy.pending), a->scale};

    (void)XPE_RUN(team, device, settle, &args);
}

void xpe_cuda_settle_copies(xpe_team *team, int device, const xpe_settle_args *args)
{
    xpe_cuda_op op = {.run = settle_run, .chunks = xpe_chunks(team, device, args->batch, 1)};
    op.args.settle = *args;
    xpe_cuda_enqueue(team, device, &op);
}

static void fill_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_fill_args *a = &op->args.fill;
    k_fill_args args = {xpe_chunk(team, device, a->batch, 0, index), a->mode, xpe_data(a->s),
                        xpe_data(a->value)};

    (void)XPE_RUN(team, device, fill, &args);
}

void xpe_cuda_fill(xpe_team *team, int device, const xpe_fill_args *args)
{
    xpe_cuda_op op = {.run = fill_run, .chunks = xpe_chunks(team, device, args->batch, 1)};
    op.args.fill = *args;
    xpe_cuda_enqueue(team, device, &op);
}

/* ------------------------------------------------- start probe and residual of step 3 */

static void back_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_back_args *a = &op->args.back;
    xpe_cuda_device *d = &team->devices[device];
    k_chunk chunk = xpe_chunk(team, device, a->batch, a->modes, index);
    k_place place = xpe_place(a->first, a->cols);
    k_product_args product = {.chunk = chunk,
                              .place = place,
                              .image = xpe_data(a->image),
                              .probe = xpe_data(a->probe),
                              .field = d->field[0]};
    k_residual_args residual = {chunk, xpe_data(a->y), d->field[0], xpe_data(a->nonzero)};
    k_back_args back = {.chunk = chunk,
                        .place = place,
                        .field = d->field[0],
                        .image = xpe_data(a->image),
                        .patch_eps = a->patch_eps,
                        .factor = 1.0f / (float)team->n,
                        .sum = a->sums->array[XPE_SUM_A],
                        .unit = a->unit[0]};

    team->transforms += chunk.count * (a->modes + 1);
    if (!xpe_clear(team, device, residual.nonzero, a->batch, &chunk))
        return;
    if (xpe_cuda_own(team->n))
        (void)((!a->modes || XPE_RUN(team, device, rows_product, &product)) &&
               XPE_RUN(team, device, columns_residual, &residual) &&
               XPE_RUN(team, device, rows_back, &back));
    else
        (void)((!a->modes || (XPE_RUN(team, device, product, &product) &&
                              xpe_cuda_fft_run(team, device, d->field[0], a->modes, -1))) &&
               XPE_RUN(team, device, residual, &residual) &&
               xpe_cuda_fft_run(team, device, d->field[0], 1, +1) &&
               XPE_RUN(team, device, back, &back));
}

void xpe_cuda_back(xpe_team *team, int device, const xpe_back_args *args)
{
    xpe_cuda_op op = {.run = back_run, .chunks = xpe_chunks(team, device, args->batch, 1)};
    op.args.back = *args;
    xpe_cuda_enqueue(team, device, &op);
}
