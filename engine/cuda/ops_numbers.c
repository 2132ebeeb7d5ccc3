/* The numbers between the steps: see math/numbers.h. */
#include "team.h"

static void maxima_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_maxima_args *a = &op->args.maxima;
    k_maxima_args args = {.floats_count = a->floats_count,
                          .doubles_count = a->doubles_count,
                          .floats = xpe_data(a->floats),
                          .doubles = xpe_data(a->doubles),
                          .columns = a->columns,
                          .out = (double *)xpe_data(a->out) + 3 * a->slot};

    (void)index;
    (void)XPE_RUN(team, device, maxima, &args);
}

void xpe_cuda_maxima(xpe_team *team, int device, const xpe_maxima_args *args)
{
    xpe_cuda_op op = {.run = maxima_run, .chunks = 1};
    op.args.maxima = *args;
    xpe_cuda_enqueue(team, device, &op);
}

static void numbers_run(xpe_team *team, int device, const xpe_cuda_op *op, int64_t index)
{
    const xpe_numbers_args *a = &op->args.numbers;
    k_numbers_args args = {.step = (int)a->step,
                           .devices = a->devices,
                           .model = a->model,
                           .iteration = a->iteration,
                           .count = a->count,
                           .maxima = xpe_data(a->maxima),
                           .rows = xpe_data(a->rows),
                           .numbers = xpe_data(a->numbers)};

    (void)index;
    (void)XPE_RUN(team, device, numbers, &args);
}

void xpe_cuda_numbers(xpe_team *team, int device, const xpe_numbers_args *args)
{
    xpe_cuda_op op = {.run = numbers_run, .chunks = 1};
    op.args.numbers = *args;
    xpe_cuda_enqueue(team, device, &op);
}
