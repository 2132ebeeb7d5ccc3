/* The few numbers between the steps of an iteration: guards of divisions, shares of the modes, and
 * the largest values, which bound the sums of the next trip and so give their units (algorithm.md
 * 3 and 5).
 *
 * Every device holds the same ones, computed by itself from what all devices have told each other:
 * xpe_numbers_KIND takes what a step has left, xpe_numbers_unit follows with the units of one mode.
 * They run on a GPU, on the CPU backend's queue and, at the start of a run, on the host, with the
 * same bits.  A value that is not finite is remembered as the first iteration in which it was; from
 * then on no average and no mode is written. */
#ifndef XPE_NUMBERS_H
#define XPE_NUMBERS_H

#include "fixsum.h"
#include "order.h"

#define XPE_MODES_MAX 64

/* What float rounding may add to a bound. */
#define XPE_SLACK 1.001

typedef struct xpe_mode_numbers {
    double energy, share;              /* ||d||^2, and its part of that of all modes: w_k */
    double d_eps, cover_eps;           /* guards of divisions by d and by L */
    double d_max, weight_max;          /* max |d|, |d|^kappa */
    double reach;                      /* max |d|^kappa sum_m w_m |d_m| / (|d_m|^2 + eps_m) */
    xpe_unit unit_w, unit_v, unit_l;   /* of the sums of a trip */
    xpe_unit unit_r, unit_s, unit_dev; /* of the sums over copies; the last of |s - d| */
} xpe_mode_numbers;

/* What went wrong: where the modes of that iteration are those of the one before, and where not. */
enum {
    XPE_BAD_OBJECT = 1, /* not finite, or zero everywhere: modes not touched yet */
    XPE_BAD_COPIES,     /* not finite; modes of that iteration are written, as with the rest */
    XPE_BAD_PROBE,      /* not finite */
    XPE_BAD_PROBE_ZERO, /* zero everywhere */
    XPE_BAD_MODES       /* what follows from them is not finite */
};

typedef struct xpe_bad {
    int64_t iteration; /* from 1; 0: nothing */
    int64_t what;
} xpe_bad;

typedef struct xpe_numbers {
    xpe_bad bad;        /* first, because it is read by itself */
    double patch_eps;   /* guard of divisions by patches; of an estimated probe */
    double v, z, image; /* largest value of the patches as stored, of z, of x-bar */
    double s, u;        /* ... of the copies as stored, of u */
    xpe_mode_numbers mode[XPE_MODES_MAX];
} xpe_numbers;

/* What they are computed with: stays the same while the number of modes does. */
typedef struct xpe_numbers_model {
    int modes;
    bool known, masked;
    double object_data_fit, probe_data_fit, two_rho;
    double frame_norm;   /* max_j ||y_j|| */
    double pixels;       /* of a frame */
    double cover_pixels; /* of the object grid */
    int64_t num_frames;
    int64_t count_max; /* most patches over a pixel */
} xpe_numbers_model;

/* What the numbers are brought up to date with. */
typedef enum xpe_numbers_step {
    XPE_NUMBERS_AVERAGE,  /* maxima of |v|^2, |z|^2, |x|^2; rows [count]: energies of patches */
    XPE_NUMBERS_COPIES,   /* maxima of |s|^2, |u|^2 */
    XPE_NUMBERS_ENERGIES, /* rows [modes][count]: energies of modes */
    XPE_NUMBERS_MODES,    /* rows [modes][count][3]: of each mode and row, see xpe_numbers_mode */
    XPE_NUMBERS_COVER     /* rows [count][modes]: energies of coverage */
} xpe_numbers_step;

XPE_HD bool xpe_is_finite(double x)
{
    return x - x == 0;
}

XPE_HD void xpe_numbers_fail(xpe_numbers *n, int64_t iteration, int64_t what)
{
    if (n->bad.iteration)
        return;
    n->bad.iteration = iteration;
    n->bad.what = what;
}

/* After an average: the squares of the largest values, and the energy of all patches of x-bar. */
XPE_HD void xpe_numbers_average(const xpe_numbers_model *m, xpe_numbers *n, int64_t iteration,
                                double v, double z, double image, double energy)
{
    n->v = sqrt(v);
    n->z = sqrt(z);
    n->image = sqrt(image);
    if (!m->known)
        n->patch_eps = 1e-6 * sqrt(energy / ((double)m->num_frames * m->pixels));
    if (!xpe_is_finite(n->v) || !xpe_is_finite(n->z) || !xpe_is_finite(n->image) || !(image > 0) ||
        !(m->known || (n->patch_eps > 0 && xpe_is_finite(n->patch_eps))))
        xpe_numbers_fail(n, iteration, XPE_BAD_OBJECT);
}

/* After step 4: the squares of the largest copy and the largest u. */
XPE_HD void xpe_numbers_copies(xpe_numbers *n, int64_t iteration, double s, double u)
{
    n->s = sqrt(s);
    n->u = sqrt(u);
    if (!xpe_is_finite(n->s) || !xpe_is_finite(n->u))
        xpe_numbers_fail(n, iteration, XPE_BAD_COPIES);
}

/* With new modes: mode[].energy has been set. */
XPE_HD void xpe_numbers_energies(const xpe_numbers_model *m, xpe_numbers *n, int64_t iteration)
{
    double total = 0;

    for (int k = 0; k < m->modes; k++)
        total += n->mode[k].energy;
    if (!xpe_is_finite(total))
        xpe_numbers_fail(n, iteration, XPE_BAD_PROBE);
    else if (!(total > 0))
        xpe_numbers_fail(n, iteration, XPE_BAD_PROBE_ZERO);
    for (int k = 0; k < m->modes; k++) {
        n->mode[k].share = n->mode[k].energy / total;
        n->mode[k].d_eps = 1e-6 * sqrt(n->mode[k].energy / m->pixels);
    }
}

/* What follows from mode k: max |d|^2, |d|^kappa, and how far its fit reaches. */
XPE_HD void xpe_numbers_mode(xpe_numbers *n, int64_t iteration, int k, double energy_max,
                             double weight_max, double reach)
{
    n->mode[k].d_max = sqrt(energy_max);
    n->mode[k].weight_max = weight_max;
    n->mode[k].reach = reach;
    if (!xpe_is_finite(energy_max) || !xpe_is_finite(weight_max) || !(weight_max > 0) ||
        !xpe_is_finite(reach))
        xpe_numbers_fail(n, iteration, XPE_BAD_MODES);
}

/* Coverage of mode k: the sum of L^2 over the object grid. */
XPE_HD void xpe_numbers_cover(const xpe_numbers_model *m, xpe_numbers *n, int k, double energy)
{
    n->mode[k].cover_eps = 1e-6 * sqrt(energy / m->cover_pixels);
}

/* Units of mode k's sums, from the largest values (algorithm.md 5).
 *
 * W = sum |d_k|^kappa w_j for patches of at most v: w = (1 - alpha) v + alpha times what comes back
 * from fields of at most ||y_j||, or of ||d|| v where a masked pixel keeps its field.  A copy is
 * what it was, with the pending step 5, or a mode (step 6); its fit comes back from such a field
 * divided by a patch, |p| / (|p|^2 + eps) being at most 1 / (2 sqrt(eps)). */
XPE_HD void xpe_numbers_unit(const xpe_numbers_model *m, xpe_numbers *n, int k)
{
    xpe_mode_numbers *mode = n->mode + k;
    double v = n->v + m->two_rho * n->z, moved = n->s + m->two_rho * n->u, copy = moved;
    double energy = 0, root_energy, field, w, r;

    for (int j = 0; j < m->modes; j++) {
        energy += n->mode[j].energy;
        copy = xpe_larger(n->mode[j].d_max, copy);
    }
    root_energy = m->masked ? sqrt(energy) : 0;
    field = m->frame_norm + root_energy * v;
    w = (1 - m->object_data_fit) * mode->weight_max * v + m->object_data_fit * mode->reach * field;
    mode->unit_w = xpe_unit_make(w * XPE_SLACK, m->count_max);
    mode->unit_v = xpe_unit_make(mode->weight_max * v * XPE_SLACK, m->count_max);
    mode->unit_l = xpe_unit_make(mode->weight_max * XPE_SLACK, m->count_max);
    if (m->known)
        return;
    field = m->frame_norm + root_energy * n->image;
    r = (1 - m->probe_data_fit) * copy;
    if (n->patch_eps > 0)
        r += m->probe_data_fit * field / (2 * sqrt(n->patch_eps));
    mode->unit_r = xpe_unit_make(r * XPE_SLACK, m->num_frames);
    mode->unit_s = xpe_unit_make(copy * XPE_SLACK, m->num_frames);
    mode->unit_dev = xpe_unit_make((moved + mode->d_max) * XPE_SLACK, m->num_frames);
}

#endif
