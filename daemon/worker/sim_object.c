/* Procedural objects.  Each fills a map of thickness between 0 and about 1; the transmittance is
 * exp(-(absorption + i) phase_max thickness), so phase and magnitude show the same structure, as
 * they do in a specimen of one material.
 *
 * Numbers below are pixels of the object: the smallest lines are 3 pixels wide, so that a good
 * reconstruction shows them and a poor one does not. */
#include "sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct map {
    float *v;   /* [rows][cols] thickness */
    uint8_t *m; /* [rows][cols] the layer being drawn: crossings within a layer are not thicker */
    int64_t rows, cols;
    xpd_random random;
} map;

static const struct {
    const char *name;
    xpd_sim_material material;
} kinds[] = {
    /* copper wires a micrometre high near 9 keV; gold; dried cells with a heavy stain */
    [XPD_SIM_CHIP] = {"chip", {1.1, 0.10}},
    [XPD_SIM_STAR] = {"star", {0.9, 0.12}},
    [XPD_SIM_CELLS] = {"cells", {1.0, 0.05}},
};

bool xpd_sim_object_find(xpd_sim_object_kind *out, const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            *out = (xpd_sim_object_kind)i;
            return true;
        }
    return false;
}

const char *xpd_sim_object_name(xpd_sim_object_kind kind)
{
    return kinds[kind].name;
}

xpd_sim_material xpd_sim_object_material(xpd_sim_object_kind kind)
{
    return kinds[kind].material;
}

/* ------------------------------------------------------------------------------------ chip */

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void rect(map *p, int64_t row, int64_t col, int64_t height, int64_t width)
{
    int64_t r0 = clamp(row, 0, p->rows), r1 = clamp(row + height, 0, p->rows);
    int64_t c0 = clamp(col, 0, p->cols), c1 = clamp(col + width, 0, p->cols);

    for (int64_t r = r0; r < r1; r++)
        memset(p->m + r * p->cols + c0, 1, (size_t)(c1 - c0));
}

static void layer_end(map *p, float thickness)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        p->v[i] += thickness * (float)p->m[i];
    memset(p->m, 0, (size_t)(p->rows * p->cols));
}

/* Broken wires on parallel tracks; `across` turns them by 90 degrees. */
static void tracks(map *p, int64_t r0, int64_t c0, int64_t height, int64_t width, bool across,
                   int64_t pitch, int64_t line, int64_t length, double density)
{
    int64_t lanes = (across ? width : height) / pitch, run = across ? height : width;

    for (int64_t k = 0; k < lanes; k++)
        for (int64_t at = 0; at < run;) {
            int64_t piece = length / 4 + xpd_random_below(&p->random, length);
            int64_t side = k * pitch + (pitch - line) / 2;

            piece = piece < run - at ? piece : run - at;
            if (xpd_random_unit(&p->random) < density && piece > line) {
                if (across)
                    rect(p, r0 + at, c0 + side, piece, line);
                else
                    rect(p, r0 + side, c0 + at, line, piece);
            }
            at += piece + line + xpd_random_below(&p->random, 2 * line);
        }
}

static void squares(map *p, int64_t r0, int64_t c0, int64_t height, int64_t width, int64_t pitch,
                    int64_t side, double density)
{
    for (int64_t r = r0; r + side <= r0 + height; r += pitch)
        for (int64_t c = c0; c + side <= c0 + width; c += pitch)
            if (xpd_random_unit(&p->random) < density)
                rect(p, r, c, side, side);
}

/* Cells of a memory: a pair of brackets and a link, the same everywhere. */
static void memory(map *p, int64_t r0, int64_t c0, int64_t height, int64_t width)
{
    for (int64_t r = r0; r + 12 <= r0 + height; r += 14)
        for (int64_t c = c0; c + 16 <= c0 + width; c += 18) {
            rect(p, r, c, 12, 3);
            rect(p, r, c, 3, 7);
            rect(p, r + 9, c, 3, 7);
            rect(p, r, c + 13, 12, 3);
            rect(p, r + 5, c + 7, 3, 9);
        }
}

static void chip(map *p)
{
    const int64_t block = 72, gap = 6;

    /* first metal: blocks of different work */
    for (int64_t r = 0; r < p->rows; r += block)
        for (int64_t c = 0; c < p->cols; c += block) {
            int64_t h = block - gap, kind = xpd_random_below(&p->random, 8);

            if (kind < 3)
                tracks(p, r, c, h, h, false, 7, 3, 30, 0.8);
            else if (kind < 5)
                memory(p, r, c, h, h);
            else if (kind < 6)
                tracks(p, r, c, h, h, true, 6, 3, 44, 0.75);
            else
                squares(p, r, c, h, h, 11, 5, 0.9);
        }
    layer_end(p, 0.24f);
    /* second metal: wider, upright, across blocks; contacts under it */
    tracks(p, 0, 0, p->rows, p->cols, true, 16, 5, 110, 0.55);
    layer_end(p, 0.26f);
    squares(p, 5, 5, p->rows, p->cols, 16, 5, 0.12);
    layer_end(p, 0.30f);
    /* top metal: rails and bonding pads */
    for (int64_t r = 30; r < p->rows; r += 118)
        rect(p, r, 0, 14, p->cols);
    for (int64_t c = 64; c < p->cols; c += 150)
        rect(p, 0, c, p->rows, 10);
    for (int64_t r = 70; r < p->rows; r += 118)
        for (int64_t c = 20; c < p->cols; c += 150)
            if (xpd_random_unit(&p->random) < 0.6)
                rect(p, r, c, 26, 26);
    layer_end(p, 0.22f);
}

/* ------------------------------------------------------------------------------------ star */

/* Inside the material of a star with 36 spokes, broken by rings, in a frame ring. */
static bool star_at(double row, double col, double radius)
{
    double r = hypot(row, col) / radius, angle = atan2(row, col);

    if (r > 1.0)
        return r > 1.06 && r < 1.10;
    if (fabs(r - 0.30) < 0.012 || fabs(r - 0.62) < 0.012)
        return false;
    return sin(36.0 * angle) > 0.0;
}

static void star(map *p)
{
    enum { SUB = 4 };
    double middle_row = 0.5 * (double)p->rows, middle_col = 0.5 * (double)p->cols;
    double radius = 0.40 * (double)(p->rows < p->cols ? p->rows : p->cols);

    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < p->cols; c++) {
            int inside = 0; /* of SUB x SUB points: the share of the pixel that is covered */

            for (int i = 0; i < SUB * SUB; i++)
                inside += star_at((double)r + (i / SUB + 0.5) / SUB - middle_row,
                                  (double)c + (i % SUB + 0.5) / SUB - middle_col, radius);
            p->v[r * p->cols + c] = (float)inside / (SUB * SUB);
        }
}

/* ----------------------------------------------------------------------------------- cells */

typedef struct blob {
    double row, col, a, b, turn, height, edge;
} blob;

/* Adds a drop: flat-topped ellipse whose rim falls over `edge` of its radius. */
static void blob_add(map *p, const blob *o)
{
    double reach = (o->a > o->b ? o->a : o->b) * 1.3, cs = cos(o->turn), sn = sin(o->turn);
    int64_t r0 = clamp((int64_t)(o->row - reach), 0, p->rows);
    int64_t r1 = clamp((int64_t)(o->row + reach) + 2, 0, p->rows);
    int64_t c0 = clamp((int64_t)(o->col - reach), 0, p->cols);
    int64_t c1 = clamp((int64_t)(o->col + reach) + 2, 0, p->cols);

    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) {
            double y = (double)r - o->row, x = (double)c - o->col;
            double u = (cs * y + sn * x) / o->a, w = (cs * x - sn * y) / o->b;
            double d = sqrt(u * u + w * w);

            p->v[r * p->cols + c] += (float)(o->height * 0.5 * (1.0 - tanh((d - 1.0) / o->edge)));
        }
}

/* Smooth noise of one length: random numbers on a lattice, cosine between them. */
static void texture_add(map *p, double length, double height)
{
    int64_t n = (int64_t)((double)p->cols / length) + 2;
    xpd_random row_random = p->random;
    uint64_t seed = xpd_random_next(&row_random);

    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t c = 0; c < p->cols; c++) {
            double y = (double)r / length, x = (double)c / length, corner[4];
            int64_t iy = (int64_t)y, ix = (int64_t)x;
            double fy = 0.5 - 0.5 * cos(M_PI * (y - (double)iy));
            double fx = 0.5 - 0.5 * cos(M_PI * (x - (double)ix));

            for (int k = 0; k < 4; k++) {
                uint64_t z = seed + (uint64_t)((iy + k / 2) * n + ix + k % 2) * 0x9E3779B97F4A7C15u;

                z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
                z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
                corner[k] = (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
            }
            p->v[r * p->cols + c] *=
                (float)(1.0 + height * (((corner[0] * (1 - fx) + corner[1] * fx) * (1 - fy) +
                                         (corner[2] * (1 - fx) + corner[3] * fx) * fy) -
                                        0.5));
        }
    p->random = row_random;
}

static void cells(map *p)
{
    int64_t count = 3 + p->rows * p->cols / 5200;

    for (int64_t i = 0; i < count; i++) {
        xpd_random *g = &p->random;
        blob body = {xpd_random_range(g, 0, (double)p->rows),
                     xpd_random_range(g, 0, (double)p->cols),
                     xpd_random_range(g, 22, 46),
                     xpd_random_range(g, 18, 34),
                     xpd_random_range(g, 0, M_PI),
                     xpd_random_range(g, 0.25, 0.45),
                     0.12};
        blob nucleus = body;
        int64_t grains = 10 + xpd_random_below(g, 14);

        blob_add(p, &body);
        nucleus.row += xpd_random_range(g, -5, 5);
        nucleus.col += xpd_random_range(g, -5, 5);
        nucleus.a *= 0.38;
        nucleus.b *= 0.42;
        nucleus.height = 0.28;
        nucleus.edge = 0.08;
        blob_add(p, &nucleus);
        for (int64_t k = 0; k < grains; k++) {
            double far = sqrt(xpd_random_unit(g)) * 0.85, angle = xpd_random_range(g, 0, 2 * M_PI);
            double y = far * body.a * cos(angle), x = far * body.b * sin(angle);
            double size = xpd_random_range(g, 1.5, 4.0);
            blob grain = {body.row + cos(body.turn) * y - sin(body.turn) * x,
                          body.col + sin(body.turn) * y + cos(body.turn) * x,
                          size,
                          size,
                          0.0,
                          xpd_random_range(g, 0.08, 0.25),
                          0.25};

            blob_add(p, &grain);
        }
    }
    texture_add(p, 17.0, 0.35);
    texture_add(p, 6.0, 0.30);
    texture_add(p, 3.0, 0.20);
}

/* ------------------------------------------------------------------------------------- all */

bool xpd_sim_object(xpe_c32 *object, int64_t rows, int64_t cols, xpd_sim_object_kind kind,
                    uint64_t seed)
{
    xpd_sim_material material = kinds[kind].material;
    size_t count = (size_t)rows * (size_t)cols;
    map p = {.v = calloc(count, sizeof *p.v), .m = calloc(count, 1), .rows = rows, .cols = cols};
    bool good = p.v && p.m;

    xpd_random_init(&p.random, seed, 1);
    if (good) {
        if (kind == XPD_SIM_CHIP)
            chip(&p);
        else if (kind == XPD_SIM_STAR)
            star(&p);
        else
            cells(&p);
        for (size_t i = 0; i < count; i++) {
            double phase = material.phase_max * (double)p.v[i];
            double size = exp(-material.absorption * phase);

            object[i] = (xpe_c32){(float)(size * cos(phase)), (float)(-size * sin(phase))};
        }
    }
    free(p.m);
    free(p.v);
    return good;
}
