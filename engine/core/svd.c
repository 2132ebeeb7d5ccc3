/* Orthogonalisation of probe modes: one-sided Jacobi on the columns, in double precision
 * (algorithm.md 3, step 3).  Rotations act on pairs of columns until all are orthogonal; what
 * remains is U S. */
#include "host.h"

#include "backend/util.h"

#include <math.h>

#define SWEEPS_MAX 60

static double energy(const xpe_c64 *a, int64_t length)
{
    double sum = 0;
    for (int64_t i = 0; i < length; i++)
        sum += a[i].re * a[i].re + a[i].im * a[i].im;
    return sum;
}

/* <a, b> = sum conj(a) b */
static xpe_c64 inner(const xpe_c64 *a, const xpe_c64 *b, int64_t length)
{
    xpe_c64 sum = {0, 0};
    for (int64_t i = 0; i < length; i++) {
        sum.re += a[i].re * b[i].re + a[i].im * b[i].im;
        sum.im += a[i].re * b[i].im - a[i].im * b[i].re;
    }
    return sum;
}

/* Makes columns a and b orthogonal; false when they already are. */
static bool rotate(xpe_c64 *a, xpe_c64 *b, int64_t length)
{
    double ea = energy(a, length), eb = energy(b, length), size, t, c, s, theta;
    xpe_c64 g = inner(a, b, length);

    size = hypot(g.re, g.im);
    if (!(size > 1e-15 * sqrt(ea) * sqrt(eb)))
        return false;
    theta = (eb - ea) / (2 * size);
    t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(1 + theta * theta));
    c = 1 / sqrt(1 + t * t);
    s = c * t;
    g.re /= size; /* the phase that makes <a, b> real */
    g.im /= size;
    for (int64_t i = 0; i < length; i++) {
        xpe_c64 x = a[i], y = {b[i].re * g.re + b[i].im * g.im, b[i].im * g.re - b[i].re * g.im};
        a[i] = (xpe_c64){c * x.re - s * y.re, c * x.im - s * y.im};
        b[i] = (xpe_c64){s * x.re + c * y.re, s * x.im + c * y.im};
    }
    return true;
}

static void sort_by_energy(xpe_c64 *modes, int count, int64_t length)
{
    for (int i = 0; i < count; i++) {
        int best = i;
        for (int k = i + 1; k < count; k++)
            if (energy(modes + k * length, length) > energy(modes + best * length, length))
                best = k;
        for (int64_t p = 0; best != i && p < length; p++) {
            xpe_c64 swap = modes[i * length + p];
            modes[i * length + p] = modes[best * length + p];
            modes[best * length + p] = swap;
        }
    }
}

xpe_status xpe_orthogonalize(xpe_c64 *modes, int count, int64_t length, xpe_error *err)
{
    for (int sweep = 0; sweep < SWEEPS_MAX; sweep++) {
        bool moved = false;
        for (int i = 0; i < count; i++)
            for (int k = i + 1; k < count; k++)
                moved = rotate(modes + i * length, modes + k * length, length) || moved;
        if (!moved) {
            sort_by_energy(modes, count, length);
            return XPE_OK;
        }
    }
    return xpe_fail(
        err, XPE_DIVERGED, "/recon/orthogonalize_modes",
        "%d probe modes could not be made orthogonal in %d sweeps; they are not finite any more",
        count, SWEEPS_MAX);
}
