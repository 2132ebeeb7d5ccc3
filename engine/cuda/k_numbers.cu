/* The numbers between the steps, each device for itself: one block, fixed trees over rows, then
 * what math/numbers.h says. */
#include "kernel.h"

XPE_KERNEL(k_maxima, k_maxima_args)
{
    XPE_SHARED(double, most, 3 * XPE_BLOCK);

    XPE_THREADS(t)
    {
        double *m = most + t;
        m[0] = m[XPE_BLOCK] = m[2 * XPE_BLOCK] = 0;
        for (int64_t i = t; p.floats && i < p.floats_count; i += XPE_BLOCK)
            m[0] = xpe_larger((double)p.floats[i], m[0]);
        for (int64_t i = t; p.doubles && i < p.doubles_count; i += XPE_BLOCK)
            for (int c = 0; c < p.columns; c++)
                m[(c + 1) * XPE_BLOCK] =
                    xpe_larger(p.doubles[i * p.columns + c], m[(c + 1) * XPE_BLOCK]);
    }
    XPE_TREE(most, xpe_larger);
    XPE_TREE(most + XPE_BLOCK, xpe_larger);
    XPE_TREE(most + 2 * XPE_BLOCK, xpe_larger);
    XPE_THREADS(t)
    {
        if (t < 3)
            p.out[t] = most[t * XPE_BLOCK];
    }
}
XPE_LAUNCHER(maxima, 1)

/* Where row r of column c of mode k is, by step. */
XPE_DEVICE int64_t row_of(const k_numbers_args *p, int k, int64_t r, int c)
{
    if (p->step == XPE_NUMBERS_COVER)
        return r * p->model.modes + k;
    if (p->step == XPE_NUMBERS_MODES)
        return (k * p->count + r) * 3 + c;
    return k * p->count + r;
}

/* What the devices have told each other: the largest of column c. */
XPE_DEVICE double told(const k_numbers_args *p, int c)
{
    double most = 0;

    for (int g = 0; g < p->devices; g++)
        most = xpe_larger(p->maxima[3 * g + c], most);
    return most;
}

XPE_KERNEL(k_numbers, k_numbers_args)
{
    XPE_SHARED(double, value, XPE_BLOCK);
    XPE_SHARED(double, found, 3 * XPE_MODES_MAX);
    bool largest = p.step == XPE_NUMBERS_MODES;
    int modes = p.step == XPE_NUMBERS_AVERAGE ? 1 : p.model.modes, columns = largest ? 3 : 1;

    for (int b = 0; p.rows && b < modes * columns; b++) {
        XPE_THREADS(t)
        {
            value[t] = 0;
            for (int64_t r = t; r < p.count; r += XPE_BLOCK) {
                double x = p.rows[row_of(&p, b / columns, r, b % columns)];
                value[t] = largest ? xpe_larger(x, value[t]) : value[t] + x;
            }
        }
        if (largest) {
            XPE_TREE(value, xpe_larger);
        } else {
            XPE_TREE(value, xpe_plus);
        }
        XPE_THREADS(t)
        {
            if (t == 0)
                found[b] = value[0];
        }
    }
    XPE_THREADS(t)
    {
        if (t == 0 && p.step == XPE_NUMBERS_AVERAGE)
            xpe_numbers_average(&p.model, p.numbers, p.iteration, told(&p, 0), told(&p, 1),
                                told(&p, 2), p.rows ? found[0] : 0);
        else if (t == 0 && p.step == XPE_NUMBERS_COPIES)
            xpe_numbers_copies(p.numbers, p.iteration, told(&p, 0), told(&p, 1));
        for (int k = 0; t == 0 && k < p.model.modes; k++)
            if (p.step == XPE_NUMBERS_ENERGIES)
                p.numbers->mode[k].energy = found[k];
            else if (p.step == XPE_NUMBERS_COVER)
                xpe_numbers_cover(&p.model, p.numbers, k, found[k]);
            else if (p.step == XPE_NUMBERS_MODES)
                xpe_numbers_mode(p.numbers, p.iteration, k, found[3 * k], found[3 * k + 1],
                                 found[3 * k + 2]);
        if (t == 0 && p.step == XPE_NUMBERS_ENERGIES)
            xpe_numbers_energies(&p.model, p.numbers, p.iteration);
    }
    XPE_THREADS(t)
    {
        if (t < p.model.modes)
            xpe_numbers_unit(&p.model, p.numbers, t);
    }
}
XPE_LAUNCHER(numbers, 1)
