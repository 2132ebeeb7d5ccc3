/* The numbers between the steps on the CPU: rows in order, then what math/numbers.h says. */
#include "team.h"

#include "backend/util.h"

static void maxima_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                        xpe_scratch *scratch)
{
    const xpe_maxima_args *a = &op->args.maxima;
    const float *floats = xpe_data(a->floats);
    const double *doubles = xpe_data(a->doubles);
    double *out = (double *)xpe_data(a->out) + 3 * a->slot;

    (void)team;
    (void)device;
    (void)part;
    (void)parts;
    (void)scratch;
    out[0] = out[1] = out[2] = 0;
    for (int64_t i = 0; floats && i < a->floats_count; i++)
        out[0] = xpe_larger((double)floats[i], out[0]);
    for (int64_t i = 0; doubles && i < a->doubles_count * a->columns; i++)
        out[1 + i % a->columns] = xpe_larger(doubles[i], out[1 + i % a->columns]);
}

void xpe_cpu_maxima(xpe_team *team, int device, const xpe_maxima_args *args)
{
    xpe_op op = {.run = maxima_part, .parts = 1};
    op.args.maxima = *args;
    xpe_cpu_enqueue(team, device, &op);
}

static double sum_of(const double *rows, int64_t count, int64_t step)
{
    double sum = 0;

    for (int64_t r = 0; r < count; r++)
        sum += rows[r * step];
    return sum;
}

static double largest_of(const double *rows, int64_t count, int64_t step)
{
    double most = 0;

    for (int64_t r = 0; r < count; r++)
        most = xpe_larger(rows[r * step], most);
    return most;
}

static void take_modes(const xpe_numbers_args *a, xpe_numbers *n)
{
    const double *rows = xpe_data(a->rows);
    int64_t count = a->count;

    for (int k = 0; k < a->model.modes; k++) {
        const double *of = rows + k * count;
        if (a->step == XPE_NUMBERS_ENERGIES)
            n->mode[k].energy = sum_of(of, count, 1);
        else if (a->step == XPE_NUMBERS_COVER)
            xpe_numbers_cover(&a->model, n, k, sum_of(rows + k, count, a->model.modes));
        else
            xpe_numbers_mode(n, a->iteration, k, largest_of(rows + 3 * k * count, count, 3),
                             largest_of(rows + 3 * k * count + 1, count, 3),
                             largest_of(rows + 3 * k * count + 2, count, 3));
    }
    if (a->step == XPE_NUMBERS_ENERGIES)
        xpe_numbers_energies(&a->model, n, a->iteration);
}

static void numbers_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                         xpe_scratch *scratch)
{
    const xpe_numbers_args *a = &op->args.numbers;
    xpe_numbers *n = xpe_data(a->numbers);
    const double *maxima = xpe_data(a->maxima), *rows = xpe_data(a->rows);

    (void)team;
    (void)device;
    (void)part;
    (void)parts;
    (void)scratch;
    if (a->step == XPE_NUMBERS_AVERAGE)
        xpe_numbers_average(&a->model, n, a->iteration, largest_of(maxima, a->devices, 3),
                            largest_of(maxima + 1, a->devices, 3),
                            largest_of(maxima + 2, a->devices, 3),
                            rows ? sum_of(rows, a->count, 1) : 0);
    else if (a->step == XPE_NUMBERS_COPIES)
        xpe_numbers_copies(n, a->iteration, largest_of(maxima, a->devices, 3),
                           largest_of(maxima + 1, a->devices, 3));
    else
        take_modes(a, n);
    for (int k = 0; k < a->model.modes; k++)
        xpe_numbers_unit(&a->model, n, k);
}

void xpe_cpu_numbers(xpe_team *team, int device, const xpe_numbers_args *args)
{
    xpe_op op = {.run = numbers_part, .parts = 1};
    op.args.numbers = *args;
    xpe_cpu_enqueue(team, device, &op);
}
