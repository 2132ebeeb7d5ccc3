/* Chains: kernels that transform and do what comes before, between or behind the transforms while
 * the points are in registers.  Three kernels make a fit: rows with the product, columns there and
 * back with the amplitudes, rows with the sums.  A field is written and read once between two of
 * them, which is all the traffic that transforms cost.
 *
 * A block works on 2048 points: whole rows or whole columns of one frame (transform.h).
 * docs/performance.md counts the bytes. */
#include "pixel.h"
#include "transform.h"

/* The tile of a block: which frame of the chunk, which rows or columns of it from `first` on. */
typedef struct xpe_tile {
    int64_t c;
    int first;
} xpe_tile;

XPE_HD int64_t xpe_tiles(int n)
{
    return (int64_t)n * n / XPE_TILE;
}

XPE_HD xpe_tile xpe_tile_of(int64_t b, int n)
{
    int64_t tiles = xpe_tiles(n);
    xpe_tile tile;
    tile.c = b / tiles;
    tile.first = (int)(b - tile.c * tiles) * (XPE_TILE / n);
    return tile;
}

/* Pixel of point r of a thread, in rows and in columns. */
XPE_HD int xpe_row_pixel(xpe_tile tile, xpe_lane l, int n, int r)
{
    return (tile.first + l.line) * n + l.j + r * (n / XPE_POINTS);
}

XPE_HD int xpe_column_pixel(xpe_tile tile, xpe_lane l, int n, int r)
{
    return (l.j + r * (n / XPE_POINTS)) * n + tile.first + l.line;
}

#define XPE_TILE_WORK (args->chunk.count * xpe_tiles(args->chunk.n))
#define CHAIN_LAUNCHER(name, args_of)                                                              \
    cudaError_t xpe_cuda_k_##name(const k_##args_of##_args *args, cudaStream_t stream)             \
    {                                                                                              \
        XPE_LAUNCH(k_##name, XPE_TILE_WORK, stream, args);                                         \
        return cudaGetLastError();                                                                 \
    }
/* What every chain declares. */
#define CHAIN_MEMORY                                                                               \
    XPE_SHARED(xpe_c32, even, XPE_TILE_SHARED);                                                    \
    XPE_SHARED(xpe_c32, odd, XPE_TILE_SHARED);                                                     \
    const int n = p.chunk.n;                                                                       \
    const int64_t plane = (int64_t)n * n
#define POINTS(r) XPE_UNROLL for (int r = 0; r < XPE_POINTS; r++)
#define FORWARD (-1.0f)
#define BACK 1.0f

/* ------------------------------------------------------------------------- rows, forward */

XPE_KERNEL(k_rows_product, k_product_args)
{
    CHAIN_MEMORY;
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(xpe_c32, patch, XPE_POINTS);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        int64_t f = p.chunk.frame + tile.c, row = p.place.first[2 * f] + p.row,
                col = p.place.first[2 * f + 1] + p.col;
        bool inside =
            !p.rows || (row >= 0 && col >= 0 && row + n <= p.rows && col + n <= p.place.cols);
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_row_lane(t, n);
            POINTS(r)
            {
                XPE_OF(patch, t, r) = xpe_c(0.0f, 0.0f);
                if (inside)
                    XPE_OF(patch, t, r) = p.image[(row + tile.first + l.line) * p.place.cols + col +
                                                  l.j + r * (n / XPE_POINTS)];
            }
        }
        for (int k = 0; k < p.chunk.modes; k++) {
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                XPE_OF(x, t, r) =
                    xpe_mul(p.probe[k * plane + xpe_row_pixel(tile, l, n, r)], XPE_OF(patch, t, r));
            }
            XPE_TRANSFORM(x, xpe_row_lane, even, odd, n, FORWARD, p.chunk.twiddle)
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                p.field[k * p.chunk.stride + tile.c * plane + xpe_row_pixel(tile, l, n, r)] =
                    XPE_OF(x, t, r);
            }
        }
    }
}
CHAIN_LAUNCHER(rows_product, product)

/* v stays as it is: k_rows_store does step 2 of the iteration before once more, and for good. */
XPE_KERNEL(k_rows_load, k_load_args)
{
    CHAIN_MEMORY;
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(xpe_c32, v, XPE_POINTS);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_row_lane(t, n);
            POINTS(r)
            XPE_OF(v, t, r) = xpe_load_v(&p, p.chunk.frame + tile.c, xpe_row_pixel(tile, l, n, r));
        }
        for (int k = 0; k < p.chunk.modes; k++) {
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                XPE_OF(x, t, r) =
                    xpe_mul(p.probe[k * plane + xpe_row_pixel(tile, l, n, r)], XPE_OF(v, t, r));
            }
            XPE_TRANSFORM(x, xpe_row_lane, even, odd, n, FORWARD, p.chunk.twiddle)
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                p.field[k * p.chunk.stride + tile.c * plane + xpe_row_pixel(tile, l, n, r)] =
                    XPE_OF(x, t, r);
            }
        }
    }
}
CHAIN_LAUNCHER(rows_load, load)

XPE_KERNEL(k_rows_copies, k_copies_load_args)
{
    CHAIN_MEMORY;
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        int64_t f = p.chunk.frame + tile.c;
        for (int k = 0; k < p.chunk.modes; k++) {
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                {
                    int i = xpe_row_pixel(tile, l, n, r);
                    XPE_OF(x, t, r) = xpe_mul(xpe_load_copy(&p, k, f, i),
                                              p.image[xpe_place_of(p.place, f, n, i)]);
                }
            }
            XPE_TRANSFORM(x, xpe_row_lane, even, odd, n, FORWARD, p.chunk.twiddle)
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                p.field[k * p.chunk.stride + tile.c * plane + xpe_row_pixel(tile, l, n, r)] =
                    XPE_OF(x, t, r);
            }
        }
    }
}
CHAIN_LAUNCHER(rows_copies, copies_load)

/* ------------------------------------------------------------------------------- columns */

/* Phases that bring mode k of a field, columns transformed, into x. */
#define COLUMNS_OF(x, field, k)                                                                    \
    XPE_THREADS(t)                                                                                 \
    {                                                                                              \
        xpe_lane l = xpe_column_lane(t, n);                                                        \
        POINTS(r)                                                                                  \
        XPE_OF(x, t, r) =                                                                          \
            (field)[(k)*p.chunk.stride + tile.c * plane + xpe_column_pixel(tile, l, n, r)];        \
    }                                                                                              \
    XPE_TRANSFORM(x, xpe_column_lane, even, odd, n, FORWARD, p.chunk.twiddle)

/* ... and that bring x back into it. */
#define COLUMNS_BACK(x, field, k)                                                                  \
    XPE_TRANSFORM(x, xpe_column_lane, even, odd, n, BACK, p.chunk.twiddle)                         \
    XPE_THREADS(t)                                                                                 \
    {                                                                                              \
        xpe_lane l = xpe_column_lane(t, n);                                                        \
        POINTS(r)                                                                                  \
        (field)[(k)*p.chunk.stride + tile.c * plane + xpe_column_pixel(tile, l, n, r)] =           \
            XPE_OF(x, t, r);                                                                       \
    }

/* Phases that sum |field_k|^2 over the modes into intensity; x is left with the last mode. */
#define COLUMNS_INTENSITY(x, intensity, field)                                                     \
    XPE_THREADS(t)                                                                                 \
    {                                                                                              \
        POINTS(r) XPE_OF(intensity, t, r) = 0;                                                     \
    }                                                                                              \
    for (int k = 0; k < p.chunk.modes; k++) {                                                      \
        COLUMNS_OF(x, field, k)                                                                    \
        XPE_THREADS(t)                                                                             \
        {                                                                                          \
            POINTS(r) XPE_OF(intensity, t, r) += xpe_energy(XPE_OF(x, t, r));                      \
        }                                                                                          \
    }

XPE_KERNEL(k_columns_misfit, k_misfit_args)
{
    CHAIN_MEMORY;
    XPE_SHARED(double, sum, XPE_BLOCK);
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(float, intensity, XPE_POINTS);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        const float *y = p.y + (p.chunk.frame + tile.c) * plane;
        COLUMNS_INTENSITY(x, intensity, p.field)
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_column_lane(t, n);
            sum[t] = 0;
            POINTS(r)
            {
                double m =
                    (double)xpe_misfit(y[xpe_column_pixel(tile, l, n, r)], XPE_OF(intensity, t, r));
                sum[t] += m * m;
            }
        }
        XPE_TREE(sum, xpe_plus);
        XPE_THREADS(t)
        {
            if (t == 0)
                p.partial[b] = sum[0];
        }
    }
}
CHAIN_LAUNCHER(columns_misfit, misfit)

/* With more than one mode every column is transformed twice: keeping all modes would take more
 * registers or shared memory than a block has, and transforms cost less here than a field written
 * and read again. */
XPE_KERNEL(k_columns_replace, k_replace_args)
{
    CHAIN_MEMORY;
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(float, g, XPE_POINTS); /* intensity, then gain */

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        const float *y = p.y + (p.chunk.frame + tile.c) * plane;
        COLUMNS_INTENSITY(x, g, p.field)
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_column_lane(t, n);
            POINTS(r)
            XPE_OF(g, t, r) = xpe_gain(y[xpe_column_pixel(tile, l, n, r)], XPE_OF(g, t, r));
        }
        for (int k = 0; k < p.chunk.modes; k++) {
            if (p.chunk.modes > 1) {
                COLUMNS_OF(x, p.field, k)
            }
            XPE_THREADS(t)
            {
                POINTS(r)
                XPE_OF(x, t, r) = xpe_scale(XPE_OF(x, t, r), XPE_OF(g, t, r));
            }
            COLUMNS_BACK(x, p.field, k)
        }
    }
}
CHAIN_LAUNCHER(columns_replace, replace)

XPE_KERNEL(k_columns_impose, k_impose_args)
{
    CHAIN_MEMORY;
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(float, g, XPE_POINTS);      /* intensity, then gain */
    XPE_PRIVATE(float, wanted, XPE_POINTS); /* amplitude of a mode */

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        const float *y = p.y + (p.chunk.frame + tile.c) * plane;
        COLUMNS_INTENSITY(x, g, p.modes)
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_column_lane(t, n);
            POINTS(r)
            XPE_OF(g, t, r) = xpe_gain(y[xpe_column_pixel(tile, l, n, r)], XPE_OF(g, t, r));
        }
        for (int k = 0; k < p.chunk.modes; k++) {
            if (p.chunk.modes > 1) {
                COLUMNS_OF(x, p.modes, k)
            }
            XPE_THREADS(t)
            {
                POINTS(r)
                XPE_OF(wanted, t, r) = XPE_OF(g, t, r) * sqrtf(xpe_energy(XPE_OF(x, t, r)));
            }
            COLUMNS_OF(x, p.copies, k)
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_column_lane(t, n);
                POINTS(r)
                XPE_OF(x, t, r) = xpe_imposed(XPE_OF(x, t, r), XPE_OF(wanted, t, r),
                                              l.j + r * (n / XPE_POINTS), tile.first + l.line);
            }
            COLUMNS_BACK(x, p.copies, k)
        }
    }
}
CHAIN_LAUNCHER(columns_impose, impose)

XPE_KERNEL(k_columns_residual, k_residual_args)
{
    CHAIN_MEMORY;
    XPE_SHARED(int32_t, most, 1);
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(float, intensity, XPE_POINTS);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        const float *y = p.y + (p.chunk.frame + tile.c) * plane;
        XPE_THREADS(t)
        {
            if (t == 0)
                most[0] = 0;
        }
        COLUMNS_INTENSITY(x, intensity, p.field)
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_column_lane(t, n);
            POINTS(r)
            {
                float value =
                    xpe_residual(y[xpe_column_pixel(tile, l, n, r)], XPE_OF(intensity, t, r));
                int row = l.j + r * (n / XPE_POINTS), col = tile.first + l.line;
                XPE_OF(x, t, r) = xpe_c((row + col) % 2 ? -value : value, 0.0f);
                if (value > 0)
                    XPE_MAX32(most, 0x3f800000); /* 1.0f */
            }
        }
        COLUMNS_BACK(x, p.field, 0)
        XPE_THREADS(t)
        {
            if (t == 0)
                XPE_MAX32((int32_t *)(void *)(p.nonzero + p.chunk.frame + tile.c), most[0]);
        }
    }
}
CHAIN_LAUNCHER(columns_residual, residual)

/* ---------------------------------------------------------------------------- rows, back */

/* Phases that bring mode k of frame c of a field, rows transformed back, into x. */
#define ROWS_OF(x, field, k, c)                                                                    \
    XPE_THREADS(t)                                                                                 \
    {                                                                                              \
        xpe_lane l = xpe_row_lane(t, n);                                                           \
        POINTS(r)                                                                                  \
        XPE_OF(x, t, r) = (field)[(k)*p.chunk.stride + (c)*plane + xpe_row_pixel(tile, l, n, r)];  \
    }                                                                                              \
    XPE_TRANSFORM(x, xpe_row_lane, even, odd, n, BACK, p.chunk.twiddle)

XPE_KERNEL(k_rows_store, k_store_args)
{
    CHAIN_MEMORY;
    XPE_SHARED(int32_t, most, 1);
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(xpe_c32, sum, XPE_POINTS);

    XPE_BLOCK_LOOP(b, p.chunk.count * xpe_tiles(n))
    {
        xpe_tile tile = xpe_tile_of(b, n);
        XPE_THREADS(t)
        {
            if (t == 0)
                most[0] = 0;
        }
        for (int k = 0; k < p.chunk.modes; k++) {
            ROWS_OF(x, p.field, k, tile.c)
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                {
                    xpe_c32 w = xpe_mul(XPE_OF(x, t, r),
                                        p.divider[k * plane + xpe_row_pixel(tile, l, n, r)]);
                    XPE_OF(sum, t, r) = k ? xpe_add(XPE_OF(sum, t, r), w) : w;
                }
            }
        }
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_row_lane(t, n);
            POINTS(r)
            XPE_MAX32(most, xpe_store_v(&p, p.chunk.frame + tile.c, xpe_row_pixel(tile, l, n, r),
                                        XPE_OF(sum, t, r)));
        }
        XPE_THREADS(t)
        {
            if (t == 0)
                XPE_MAX32((int32_t *)(void *)(p.v_energy + p.chunk.frame + tile.c), most[0]);
        }
    }
}
CHAIN_LAUNCHER(rows_store, store)

/* Sums of probe-sized arrays: a block takes its rows of all frames of a group, one after the other,
 * and adds up in registers (see k_probe.cu). */
XPE_HD int64_t xpe_runs(const k_chunk *c)
{
    return (c->count + XPE_GROUP - 1) / XPE_GROUP;
}

/* Frames [begin, end) of the chunk, and the tile of the block in `tile.first`. */
XPE_HD xpe_group xpe_tile_group(int64_t b, const k_chunk *c)
{
    int64_t tiles = xpe_tiles(c->n), runs = xpe_runs(c), run = b / tiles;
    xpe_group g;
    g.pixel = (int)(b - run * tiles) * (XPE_TILE / c->n); /* first row */
    g.mode = (int)(run / runs);
    g.begin = (run - g.mode * runs) * XPE_GROUP;
    g.end = g.begin + XPE_GROUP < c->count ? g.begin + XPE_GROUP : c->count;
    return g;
}

XPE_KERNEL(k_rows_copies_store, k_copies_store_args)
{
    CHAIN_MEMORY;
    XPE_SHARED(int32_t, most, XPE_GROUP);
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(xpe_copy_sums, sums, XPE_POINTS);

    XPE_BLOCK_LOOP(b, xpe_tiles(n) * xpe_runs(&p.chunk) * p.chunk.modes)
    {
        xpe_group g = xpe_tile_group(b, &p.chunk);
        xpe_tile tile = {0, g.pixel};
        XPE_THREADS(t)
        {
            if (t < XPE_GROUP)
                most[t] = 0;
            POINTS(r)
            XPE_OF(sums, t, r).r_re = XPE_OF(sums, t, r).r_im = XPE_OF(sums, t, r).s_re =
                XPE_OF(sums, t, r).s_im = 0;
        }
        for (int64_t c = g.begin; c < g.end; c++) {
            ROWS_OF(x, p.field, g.mode, c)
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                XPE_MAX32(most + (c - g.begin),
                          xpe_store_copy(&p, g.mode, p.chunk.frame + c,
                                         xpe_row_pixel(tile, l, n, r), XPE_OF(x, t, r),
                                         &XPE_OF(sums, t, r)));
            }
        }
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_row_lane(t, n);
            POINTS(r)
            {
                int64_t at = g.mode * plane + xpe_row_pixel(tile, l, n, r);
                xpe_add_sum(p.sum_s, at, XPE_OF(sums, t, r).s_re, XPE_OF(sums, t, r).s_im);
                xpe_add_sum(p.sum_r, at, XPE_OF(sums, t, r).r_re, XPE_OF(sums, t, r).r_im);
            }
            if (t < g.end - g.begin)
                XPE_MAX32((int32_t *)(void *)(p.s_energy + g.mode * p.chunk.block + p.chunk.frame +
                                              g.begin + t),
                          most[t]);
        }
    }
}

cudaError_t xpe_cuda_k_rows_copies_store(const k_copies_store_args *args, cudaStream_t stream)
{
    XPE_LAUNCH(k_rows_copies_store,
               xpe_tiles(args->chunk.n) * xpe_runs(&args->chunk) * args->chunk.modes, stream, args);
    return cudaGetLastError();
}

XPE_KERNEL(k_rows_back, k_back_args)
{
    CHAIN_MEMORY;
    XPE_PRIVATE(xpe_c32, x, XPE_POINTS);
    XPE_PRIVATE(int64_t, re, XPE_POINTS);
    XPE_PRIVATE(int64_t, im, XPE_POINTS);

    XPE_BLOCK_LOOP(b, xpe_tiles(n) * xpe_runs(&p.chunk))
    {
        xpe_group g = xpe_tile_group(b, &p.chunk);
        xpe_tile tile = {0, g.pixel};
        XPE_THREADS(t)
        {
            POINTS(r) XPE_OF(re, t, r) = XPE_OF(im, t, r) = 0;
        }
        for (int64_t c = g.begin; c < g.end; c++) {
            ROWS_OF(x, p.field, 0, c)
            XPE_THREADS(t)
            {
                xpe_lane l = xpe_row_lane(t, n);
                POINTS(r)
                {
                    xpe_c32 w = xpe_back_value(&p, p.chunk.frame + c, xpe_row_pixel(tile, l, n, r),
                                               XPE_OF(x, t, r));
                    XPE_OF(re, t, r) =
                        xpe_fix_add(XPE_OF(re, t, r), xpe_fix(w.re, p.unit.magic, p.unit.bias));
                    XPE_OF(im, t, r) =
                        xpe_fix_add(XPE_OF(im, t, r), xpe_fix(w.im, p.unit.magic, p.unit.bias));
                }
            }
        }
        XPE_THREADS(t)
        {
            xpe_lane l = xpe_row_lane(t, n);
            POINTS(r)
            xpe_add_sum(p.sum, xpe_row_pixel(tile, l, n, r), XPE_OF(re, t, r), XPE_OF(im, t, r));
        }
    }
}

cudaError_t xpe_cuda_k_rows_back(const k_back_args *args, cudaStream_t stream)
{
    XPE_LAUNCH(k_rows_back, xpe_tiles(args->chunk.n) * xpe_runs(&args->chunk), stream, args);
    return cudaGetLastError();
}
