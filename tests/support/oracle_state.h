/* What the oracle's two files share; oracle.h is what tests see. */
#ifndef XPT_ORACLE_STATE_H
#define XPT_ORACLE_STATE_H

#include "oracle.h"

#define XPT_TINY_GUARD 1e-6

typedef struct oracle {
    const xpt_case *c;
    const xpe_stage *stage;
    xpt_trap trap;
    xpt_dft *dft;
    int64_t n, plane, frames, rows, cols, *first;
    bool known;
    int modes;
    double q, *y;     /* [J][n][n], -1 = masked */
    xpt_c *v, *s;     /* [J][n][n], [mode][J][n][n] */
    xpt_c *d, *d_old; /* [mode][n][n] */
    xpt_c *x, *z;
    double *share, *d_eps, *weight, *cover; /* cover: [mode][rows][cols], / (1 + 1e-6) */
    double *cover_eps;                      /* [mode][2]: of the two halves where they differ */
} oracle;

/* Helpers of both files. */
double xpt_shrink(const oracle *o);                            /* 1 / (1 + 1e-6) */
double xpt_guard(const oracle *o, double total, double count); /* eps of a division */
xpt_c xpt_divide(xpt_c a, xpt_c b, double eps);                /* the stable division */

void xpt_fresnel(const oracle *o, xpt_c *field);
void xpt_start_probe(oracle *o);
void xpt_start_object(oracle *o);

#endif
