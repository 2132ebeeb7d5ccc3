/* Transforms of n = 64, 128, 256 or 512 points inside a kernel: a block of 256 threads holds 2048
 * points, 2048 / n whole lines, eight points a thread.
 *
 * Passes of radix 2 or 4 (what is left over), 8 and 8, in Stockham's order: a thread always reads
 * the points j + r n / 8, r = 0..7, and a pass exchanges them through shared memory, which two
 * buffers make one barrier.  After the last pass a thread again holds the points j + r n / 8, so
 * that a forward transform, something done to every point, and a transform back follow each other
 * in registers.
 *
 * Lines are padded, one point after eight and a few after a line, so that the threads of a
 * half-warp meet different banks both in rows (neighbours differ in j) and in columns (neighbours
 * differ in the line). */
#ifndef XPE_CUDA_TRANSFORM_H
#define XPE_CUDA_TRANSFORM_H

#include "kernel.h"

#define XPE_POINTS 8                      /* of a thread */
#define XPE_TILE (XPE_POINTS * XPE_BLOCK) /* of a block */
#define XPE_TILE_SHARED (XPE_TILE / 8 * 9 + 32)

/* A thread's place: its line of the tile, its first point, and where the line lies in shared
 * memory. */
typedef struct xpe_lane {
    int line, j, base;
} xpe_lane;

XPE_HD int xpe_line_size(int n)
{
    return n / 8 * 9 + (n < 128 ? 1 : n / 128);
}

/* Neighbouring threads along a line: for rows. */
XPE_HD xpe_lane xpe_row_lane(int t, int n)
{
    xpe_lane l;
    l.line = t / (n / XPE_POINTS);
    l.j = t - l.line * (n / XPE_POINTS);
    l.base = l.line * xpe_line_size(n);
    return l;
}

/* Neighbouring threads in neighbouring lines: for columns, which lie side by side in memory. */
XPE_HD xpe_lane xpe_column_lane(int t, int n)
{
    int lines = XPE_TILE / n;
    xpe_lane l;
    l.j = t / lines;
    l.line = t - l.j * lines;
    l.base = l.line * xpe_line_size(n);
    return l;
}

XPE_HD int xpe_padded(int i)
{
    return i + i / 8;
}

/* i times the sign of the transform: +-i x. */
XPE_HD xpe_c32 xpe_turn(xpe_c32 x, float sign)
{
    return xpe_c(-sign * x.im, sign * x.re);
}

XPE_DEVICE void xpe_dft4(xpe_c32 *a, xpe_c32 *b, xpe_c32 *c, xpe_c32 *d, float sign)
{
    xpe_c32 s0 = xpe_add(*a, *c), d0 = xpe_sub(*a, *c), s1 = xpe_add(*b, *d),
            d1 = xpe_turn(xpe_sub(*b, *d), sign);
    *a = xpe_add(s0, s1);
    *b = xpe_add(d0, d1);
    *c = xpe_sub(s0, s1);
    *d = xpe_sub(d0, d1);
}

XPE_DEVICE void xpe_dft8(xpe_c32 *x, float sign)
{
    const float h = 0.70710678118654752f;
    xpe_c32 b1, b2, b3, a;

    xpe_dft4(&x[0], &x[2], &x[4], &x[6], sign);
    xpe_dft4(&x[1], &x[3], &x[5], &x[7], sign);
    b1 = xpe_c(h * (x[3].re - sign * x[3].im), h * (x[3].im + sign * x[3].re));
    b2 = xpe_turn(x[5], sign);
    b3 = xpe_c(-h * (x[7].re + sign * x[7].im), h * (sign * x[7].re - x[7].im));
    /* even parts are in 0, 2, 4, 6; odd ones in 1 and b1, b2, b3 */
    a = x[1];
    x[1] = xpe_add(x[2], b1);
    x[5] = xpe_sub(x[2], b1);
    x[2] = x[4];
    x[4] = xpe_sub(x[0], a);
    x[0] = xpe_add(x[0], a);
    x[3] = xpe_add(x[6], b3);
    x[7] = xpe_sub(x[6], b3);
    x[6] = xpe_sub(x[2], b2);
    x[2] = xpe_add(x[2], b2);
}

XPE_HD xpe_c32 xpe_twiddle(const xpe_c32 *table, int i, float sign)
{
    xpe_c32 w = table[i];
    return xpe_c(w.re, -sign * w.im); /* the table is that of the forward transform, sign -1 */
}

/* One pass of radix 8 behind `s` = the product of the radices before it. */
XPE_DEVICE void xpe_pass8(xpe_c32 *x, int n, int s, int j, float sign, const xpe_c32 *table)
{
    if (s > 1) {
        int step = (j & (s - 1)) * (n / (8 * s));
        xpe_c32 w1 = xpe_twiddle(table, step, sign), w2 = xpe_twiddle(table, 2 * step, sign);
        xpe_c32 w4 = xpe_twiddle(table, 4 * step, sign), w3 = xpe_mul(w1, w2);
        x[1] = xpe_mul(x[1], w1);
        x[2] = xpe_mul(x[2], w2);
        x[3] = xpe_mul(x[3], w3);
        x[4] = xpe_mul(x[4], w4);
        x[5] = xpe_mul(x[5], xpe_mul(w4, w1));
        x[6] = xpe_mul(x[6], xpe_mul(w4, w2));
        x[7] = xpe_mul(x[7], xpe_mul(w4, w3));
    }
    xpe_dft8(x, sign);
}

/* The first pass where n is not a power of 8: two transforms of 4 points, or four of 2. */
XPE_DEVICE void xpe_pass_first(xpe_c32 *x, int radix, float sign)
{
    if (radix == 4) {
        xpe_dft4(&x[0], &x[2], &x[4], &x[6], sign);
        xpe_dft4(&x[1], &x[3], &x[5], &x[7], sign);
    } else {
        XPE_UNROLL
        for (int q = 0; q < 4; q++) {
            xpe_c32 a = x[q];
            x[q] = xpe_add(a, x[q + 4]);
            x[q + 4] = xpe_sub(a, x[q + 4]);
        }
    }
}

/* Where point r of a thread goes after a pass of this radix behind s. */
XPE_HD int xpe_target(int r, int radix, int n, int s, int j)
{
    int q = r & (8 / radix - 1), m = r / (8 / radix), at = j + q * (n / 8);
    return (at & ~(s - 1)) * radix + (at & (s - 1)) + m * s;
}

XPE_DEVICE void xpe_exchange_out(const xpe_c32 *x, xpe_c32 *shared, xpe_lane l, int radix, int n,
                                 int s)
{
    if (radix == 8) { /* spelt out, so that q and m are constants */
        XPE_UNROLL
        for (int r = 0; r < 8; r++)
            shared[l.base + xpe_padded(xpe_target(r, 8, n, s, l.j))] = x[r];
    } else if (radix == 4) {
        XPE_UNROLL
        for (int r = 0; r < 8; r++)
            shared[l.base + xpe_padded(xpe_target(r, 4, n, s, l.j))] = x[r];
    } else {
        XPE_UNROLL
        for (int r = 0; r < 8; r++)
            shared[l.base + xpe_padded(xpe_target(r, 2, n, s, l.j))] = x[r];
    }
}

XPE_DEVICE void xpe_exchange_in(xpe_c32 *x, const xpe_c32 *shared, xpe_lane l, int n)
{
    XPE_UNROLL
    for (int r = 0; r < 8; r++)
        x[r] = shared[l.base + xpe_padded(l.j + r * (n / 8))];
}

XPE_HD int xpe_first_radix(int n)
{
    return n == 128 ? 2 : (n == 256 ? 4 : 8);
}

XPE_HD int xpe_passes(int n)
{
    return n == 64 ? 2 : 3;
}

/* The phases of one transform of all lines of the tile.  x is XPE_PRIVATE with XPE_POINTS points,
 * lane is the function that gives a thread its place, a and b are XPE_SHARED with XPE_TILE_SHARED
 * points. */
#define XPE_TRANSFORM(x, lane, a, b, n, sign, table)                                               \
    for (int xpe_pass = 0, xpe_s = 1; xpe_pass < xpe_passes(n); xpe_pass++) {                      \
        int xpe_radix = xpe_pass ? 8 : xpe_first_radix(n);                                         \
        XPE_THREADS(xpe_t)                                                                         \
        {                                                                                          \
            xpe_lane xpe_l = lane(xpe_t, n);                                                       \
            if (xpe_pass)                                                                          \
                xpe_exchange_in(XPE_MINE(x, xpe_t), xpe_pass & 1 ? a : b, xpe_l, n);               \
            if (xpe_radix == 8)                                                                    \
                xpe_pass8(XPE_MINE(x, xpe_t), n, xpe_s, xpe_l.j, sign, table);                     \
            else                                                                                   \
                xpe_pass_first(XPE_MINE(x, xpe_t), xpe_radix, sign);                               \
            if (xpe_pass + 1 < xpe_passes(n))                                                      \
                xpe_exchange_out(XPE_MINE(x, xpe_t), xpe_pass & 1 ? b : a, xpe_l, xpe_radix, n,    \
                                 xpe_s);                                                           \
        }                                                                                          \
        xpe_s *= xpe_radix;                                                                        \
    }

#endif
