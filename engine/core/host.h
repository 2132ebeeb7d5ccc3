/* Small exact steps done once on the host in double precision: filter, Fresnel step, SVD, start
 * object. Fields are [n][n] complex128, in true units (no checkerboard), zero frequency of nothing
 * folded. */
#ifndef XPE_HOST_H
#define XPE_HOST_H

#include "backend/backend.h"

/* Gaussian filter, sigma 1 pixel, 9 taps, kernel normalised, boundary "d c b a | a b c d | d c b
 * a"; in place; stride in doubles between neighbours of a row (1 real, 2 for one part of a complex
 * image). */
XPE_MUST_CHECK xpe_status xpe_gauss(double *image, int64_t rows, int64_t cols, int stride,
                                    xpe_error *err);

/* exp(-i pi q (fx^2 + fy^2)) on the uncentred transform, q = lambda z / dx^2, f in cycles a pixel.
 * The transform is the backend's. */
XPE_MUST_CHECK xpe_status xpe_fresnel(const xpe_backend *backend, xpe_c64 *field, int64_t n,
                                      double q, xpe_error *err);

/* Columns [k][length] become mutually orthogonal, strongest first: U S of the SVD (one-sided
 * Jacobi). */
XPE_MUST_CHECK xpe_status xpe_orthogonalize(xpe_c64 *modes, int count, int64_t length,
                                            xpe_error *err);

#endif
