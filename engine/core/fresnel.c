/* Periodic Fresnel propagation of a probe-sized field (algorithm.md 2), in double precision. */
#include "host.h"

#include "backend/util.h"

#include <math.h>

#define PI 3.14159265358979323846

xpe_status xpe_fresnel(const xpe_backend *backend, xpe_c64 *field, int64_t n, double q,
                       xpe_error *err)
{
    xpe_status st = XPE_OK;
    double scale = 1.0 / ((double)n * (double)n);

    if (q == 0)
        return XPE_OK;
    XPE_TRY(backend->transform(field, n, -1, err));
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            double fy = (double)(r < n / 2 ? r : r - n) / (double)n,
                   fx = (double)(c < n / 2 ? c : c - n) / (double)n;
            double phase = -PI * q * (fx * fx + fy * fy), wr = cos(phase) * scale,
                   wi = sin(phase) * scale;
            xpe_c64 *a = &field[r * n + c], b = *a;
            a->re = b.re * wr - b.im * wi;
            a->im = b.re * wi + b.im * wr;
        }
    XPE_TRY(backend->transform(field, n, +1, err));
done:
    return st;
}
