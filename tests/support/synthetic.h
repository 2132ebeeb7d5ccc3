/* Numbers for the engine's tests: a small generator whose sequence never changes, the tiny problem
 * of the reference figures from its closed formulas, and small scans of a random object.
 *
 * Everything is made in double precision and rounded once.  Nothing here fails but by ending the
 * test. */
#ifndef XPT_SYNTHETIC_H
#define XPT_SYNTHETIC_H

#include "xptychod/engine.h"

/* ------------------------------------------------------------------------------ random numbers */

typedef struct xpt_random {
    uint64_t state;
} xpt_random;

uint64_t xpt_random_bits(xpt_random *r);
double xpt_random_unit(xpt_random *r);                             /* [0, 1) */
double xpt_random_sign(xpt_random *r);                             /* [-1, 1) */
int64_t xpt_random_below(xpt_random *r, int64_t bound);            /* [0, bound) */
void xpt_random_field(xpt_random *r, xpe_c32 *out, int64_t count); /* both parts in [-1, 1) */

/* --------------------------------------------------------------------------------------- scans */

/* A scan with its truth.  `desc` points at the arrays beside it and may be changed by a test. */
typedef struct xpt_case {
    int64_t n, num_frames, rows, cols;
    int modes;         /* of the truth */
    xpe_c32 *object;   /* [rows][cols] */
    xpe_c32 *probe;    /* [modes][n][n] */
    float *counts;     /* [J][n][n], noise free */
    uint8_t *mask;     /* [J][n][n], nothing masked until a test says so; not in desc */
    double *positions; /* [J][2] */
    int64_t shape[2];
    double origin[2];
    xpe_problem_desc desc; /* estimated probe, grid stated */
} xpt_case;

#define XPT_TINY_SIDE 64
#define XPT_TINY_N 16
#define XPT_TINY_POINTS 7
#define XPT_TINY_FRAMES 49
#define XPT_TINY_PITCH 1e-8

/* The tiny problem of tests/data/tiny_*.json: 64 x 64 object, 49 frames of 16 x 16, one or two
 * modes. */
xpt_case *xpt_tiny_create(int modes);
/* A scan on points x points positions with jitter, a random smooth object, a bump for a probe. */
xpt_case *xpt_small_create(int64_t n, int points, int modes, uint64_t seed);
/* Counts again, from object, probe and positions as they are now. */
void xpt_case_measure(xpt_case *c);
/* Makes the truth the known probe. */
void xpt_case_know(xpt_case *c);
/* Marks about `fraction` of the pixels as masked, spoils their counts, and hands the mask to desc.
 */
void xpt_case_hide(xpt_case *c, double fraction, float spoilt, uint64_t seed);
void xpt_case_destroy(xpt_case *c);

/* First pixels of the patches, [J][2], as the definition says: round half to even. */
void xpt_case_first(const xpt_case *c, int64_t *first);

void *xpt_new(size_t count, size_t size); /* zeroed; ends the program when there is none */

#endif
