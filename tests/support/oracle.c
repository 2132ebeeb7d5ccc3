/* See oracle.h.  Symbols and steps are those of docs/algorithm.md. */
#include "oracle_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static xpt_c *at_patch(const oracle *o, xpt_c *image, int64_t j, int64_t i)
{
    return image + (o->first[2 * j] + i / o->n) * o->cols + o->first[2 * j + 1] + i % o->n;
}

/* ----------------------------------------------------------------------------------- the modes */

static void renew_coverage(oracle *o, int k)
{
    int64_t pixels = o->rows * o->cols;
    double *cover = o->cover + k * pixels, half[2] = {0, 0};

    memset(cover, 0, (size_t)pixels * sizeof *cover);
    for (int64_t i = 0; i < o->plane; i++)
        o->weight[k * o->plane + i] =
            pow(cabs(o->d[k * o->plane + i]), o->stage->probe_weight_exponent);
    for (int64_t j = 0; j < o->frames; j++)
        for (int64_t i = 0; i < o->plane; i++)
            cover[(o->first[2 * j] + i / o->n) * o->cols + o->first[2 * j + 1] + i % o->n] +=
                o->weight[k * o->plane + i] * xpt_shrink(o);
    for (int64_t i = 0; i < pixels; i++)
        half[i / o->cols >= o->rows / 2] += cover[i] * cover[i];
    for (int h = 0; h < 2; h++)
        o->cover_eps[2 * k + h] =
            o->trap == XPT_COVER_GUARD_BAND
                ? xpt_guard(o, half[h],
                            (double)(h ? o->rows - o->rows / 2 : o->rows / 2) * (double)o->cols)
                : xpt_guard(o, half[0] + half[1], (double)pixels);
}

/* Everything that follows from d. */
static void renew(oracle *o, bool first_time)
{
    double total = 0, all = xpt_energy(o->d, o->modes * o->plane);

    for (int k = 0; k < o->modes; k++) {
        double e = xpt_energy(o->d + k * o->plane, o->plane);
        o->d_eps[k] = o->trap == XPT_MODE_GUARD_SHARED
                          ? xpt_guard(o, all, (double)(o->modes * o->plane))
                          : xpt_guard(o, e, (double)o->plane);
        if (o->trap == XPT_COVER_NEVER_RENEWED && !first_time)
            continue;
        o->share[k] = o->trap == XPT_SHARE_OF_NORMS ? sqrt(e) : e;
        renew_coverage(o, k);
    }
    if (o->trap == XPT_COVER_NEVER_RENEWED && !first_time)
        return;
    for (int k = 0; k < o->modes; k++)
        total += o->share[k];
    for (int k = 0; k < o->modes; k++)
        o->share[k] /= total;
}

/* ----------------------------------------------------------------------------------- the steps */

static double gain(const oracle *o, double y, double intensity, double mean)
{
    if (y < 0)
        return 1;
    if (o->trap == XPT_GAIN_RELATIVE)
        return sqrt(y * y / (intensity + XPT_TINY_GUARD * mean));
    if (o->trap == XPT_GAIN_OUTSIDE)
        return y / (sqrt(intensity) + XPT_TINY_GUARD);
    return sqrt(y * y / (intensity + XPT_TINY_GUARD));
}

/* Fields F(m_k p) of frame j into far [modes][n][n]. */
static void far_fields(const oracle *o, xpt_c *far, const xpt_c *modes, int64_t stride,
                       const xpt_c *p)
{
    for (int k = 0; k < o->modes; k++) {
        for (int64_t i = 0; i < o->plane; i++)
            far[k * o->plane + i] = modes[k * stride + i] * p[i];
        xpt_dft_run(o->dft, far + k * o->plane, -1);
    }
}

static void intensities(const oracle *o, double *sum, const xpt_c *far, double *mean)
{
    *mean = 0;
    for (int64_t i = 0; i < o->plane; i++) {
        sum[i] = 0;
        for (int k = 0; k < o->modes; k++)
            sum[i] += xpt_square(far[k * o->plane + i]);
        *mean += sum[i] / (double)o->plane;
    }
}

/* z or x-bar: image = sum_k w_k (S_k / L_k), S_k = sum_j |d_k|^kappa patches_j */
static void average(oracle *o, xpt_c *image, const xpt_c *patches)
{
    int64_t pixels = o->rows * o->cols;
    xpt_c *sum = xpt_new((size_t)pixels, sizeof *sum);

    memset(image, 0, (size_t)pixels * sizeof *image);
    for (int k = 0; k < o->modes; k++) {
        memset(sum, 0, (size_t)pixels * sizeof *sum);
        for (int64_t j = 0; j < o->frames; j++)
            for (int64_t i = 0; i < o->plane; i++)
                *at_patch(o, sum, j, i) += o->weight[k * o->plane + i] * patches[j * o->plane + i];
        for (int64_t i = 0; i < pixels; i++)
            image[i] +=
                o->share[k] * xpt_divide(sum[i], o->cover[k * pixels + i],
                                         o->cover_eps[2 * k + (i / o->cols >= o->rows / 2)]);
    }
    free(sum);
}

static void object_step(oracle *o)
{
    double alpha = o->stage->object_data_fit, rho = o->stage->relaxation, mean;
    size_t all = (size_t)(o->frames * o->plane);
    xpt_c *w = xpt_new(all, sizeof *w), *mix = xpt_new(all, sizeof *mix);
    xpt_c *far = xpt_new((size_t)(o->modes * o->plane), sizeof *far);
    double *intensity = xpt_new((size_t)o->plane, sizeof *intensity);

    for (int64_t j = 0; j < o->frames; j++) {
        xpt_c *v = o->v + j * o->plane, *wj = w + j * o->plane;
        far_fields(o, far, o->d, o->plane, v);
        intensities(o, intensity, far, &mean);
        for (int64_t i = 0; i < o->plane; i++)
            wj[i] = (1 - alpha) * v[i];
        for (int k = 0; k < o->modes; k++) {
            xpt_c *f = far + k * o->plane;
            for (int64_t i = 0; i < o->plane; i++)
                f[i] *= gain(o, o->y[j * o->plane + i], intensity[i], mean);
            xpt_dft_run(o->dft, f, +1);
            for (int64_t i = 0; i < o->plane; i++)
                wj[i] +=
                    alpha * o->share[k] * xpt_divide(f[i], o->d[k * o->plane + i], o->d_eps[k]);
        }
        for (int64_t i = 0; i < o->plane; i++)
            mix[j * o->plane + i] = 2 * wj[i] - v[i];
    }
    average(o, o->z, mix);
    for (int64_t j = 0; j < o->frames; j++)
        for (int64_t i = 0; i < o->plane; i++)
            o->v[j * o->plane + i] += 2 * rho * (*at_patch(o, o->z, j, i) - w[j * o->plane + i]);
    average(o, o->x, o->v);
    free(intensity);
    free(far);
    free(mix);
    free(w);
}

/* Patches p_j that steps 3 and 4 use, and their guard. */
static xpt_c *take_patches(oracle *o, double *eps)
{
    xpt_c *p = xpt_new((size_t)(o->frames * o->plane), sizeof *p),
          *image = o->trap == XPT_PATCHES_OF_Z ? o->z : o->x;
    int64_t half = o->frames / 2;

    for (int64_t j = 0; j < o->frames; j++)
        for (int64_t i = 0; i < o->plane; i++)
            p[j * o->plane + i] =
                o->trap == XPT_PATCHES_OF_V ? o->v[j * o->plane + i] : *at_patch(o, image, j, i);
    eps[0] = eps[1] =
        xpt_guard(o, xpt_energy(p, o->frames * o->plane), (double)(o->frames * o->plane));
    if (o->trap == XPT_PATCH_GUARD_BLOCK) {
        eps[0] = xpt_guard(o, xpt_energy(p, half * o->plane), (double)(half * o->plane));
        eps[1] = xpt_guard(o, xpt_energy(p + half * o->plane, (o->frames - half) * o->plane),
                           (double)((o->frames - half) * o->plane));
    }
    return p;
}

/* U S of two columns: eigenvectors of their 2 x 2 Gram matrix. */
static void orthogonalize(oracle *o)
{
    xpt_c *a = o->d, *b = o->d + o->plane, g = 0;
    double ea = xpt_energy(a, o->plane), eb = xpt_energy(b, o->plane), theta;
    xpt_c phase;

    for (int64_t i = 0; i < o->plane; i++)
        g += conj(a[i]) * b[i];
    theta = 0.5 * atan2(2 * cabs(g), ea - eb); /* the first column gets the larger energy */
    phase = cabs(g) > 0 ? g / cabs(g) : 1;
    for (int64_t i = 0; i < o->plane; i++) {
        xpt_c x = a[i], y = b[i] * conj(phase);
        a[i] = cos(theta) * x + sin(theta) * y;
        b[i] = cos(theta) * y - sin(theta) * x;
    }
}

static void fill_copies(oracle *o, int from)
{
    for (int k = from; k < o->modes; k++)
        for (int64_t j = 0; j < o->frames; j++)
            memcpy(o->s + (k * o->frames + j) * o->plane, o->d + k * o->plane,
                   (size_t)o->plane * sizeof *o->s);
}

static void add_mode(oracle *o)
{
    double eps[2], mean, f = o->stage->mode_energy_fraction, scale, rest = 0;
    double common = o->trap == XPT_ENERGY_UNSCALED ? 1 : 1 / sqrt(1 + f);
    xpt_c *p = take_patches(o, eps), *far = xpt_new((size_t)(o->modes * o->plane), sizeof *far);
    xpt_c *back = xpt_new((size_t)o->plane, sizeof *back), *fresh = o->d + o->modes * o->plane;
    double *intensity = xpt_new((size_t)o->plane, sizeof *intensity);

    memset(fresh, 0, (size_t)o->plane * sizeof *fresh);
    for (int64_t j = 0; j < o->frames; j++) {
        far_fields(o, far, o->d, o->plane, p + j * o->plane);
        intensities(o, intensity, far, &mean);
        for (int64_t i = 0; i < o->plane; i++) {
            double y = o->y[j * o->plane + i];
            back[i] = y < 0 ? 0 : sqrt(fmax(0, y * y - intensity[i]));
            rest += creal(back[i]);
        }
        xpt_dft_run(o->dft, back, +1);
        for (int64_t i = 0; i < o->plane; i++)
            fresh[i] += xpt_divide(back[i], p[j * o->plane + i], eps[j >= o->frames / 2]) /
                        (double)o->frames;
    }
    if (rest > 0) {
        xpt_fresnel(o, fresh);
        scale = sqrt(f * xpt_energy(o->d, o->modes * o->plane) / xpt_energy(fresh, o->plane));
        for (int64_t i = 0; i < o->plane; i++)
            fresh[i] *= scale;
        o->modes++;
        fill_copies(o, o->modes - 1);
        for (int64_t i = 0; i < o->modes * o->plane; i++)
            o->d[i] *= common;
        for (int64_t i = 0; i < o->modes * o->frames * o->plane && o->trap != XPT_COPIES_UNSCALED;
             i++)
            o->s[i] *= common;
        if (o->stage->orthogonalize_modes) {
            orthogonalize(o);
            fill_copies(o, 0);
        }
        renew(o, true);
    }
    free(intensity);
    free(back);
    free(far);
    free(p);
}

static void replace_outliers(oracle *o, const xpt_c *d)
{
    double limit = o->trap == XPT_OUTLIERS_FROM_ONE ? 1 : 1.5;

    for (int64_t i = 0; i < o->modes * o->plane && o->trap != XPT_OUTLIERS_KEPT; i++) {
        xpt_c *s = o->s + i / o->plane * o->frames * o->plane + i % o->plane;
        double m = 0;
        for (int64_t j = 0; j < o->frames; j++)
            m += cabs(s[j * o->plane] - d[i]) / (double)o->frames;
        m = m > 0 ? m : XPT_TINY_GUARD;
        for (int64_t j = 0; j < o->frames; j++)
            if (0.6745 * cabs(s[j * o->plane] - d[i]) / m > limit)
                s[j * o->plane] = d[i];
    }
}

/* Mean over frames of the copies, minus `part` times r where r is given: step 4's and 5's means. */
static void mean_copies(const oracle *o, xpt_c *out, const xpt_c *s, const xpt_c *r)
{
    for (int64_t i = 0; i < o->modes * o->plane; i++) {
        int64_t at = i / o->plane * o->frames * o->plane + i % o->plane;
        out[i] = 0;
        for (int64_t j = 0; j < o->frames; j++)
            out[i] += (r ? 2 * r[at + j * o->plane] - s[at + j * o->plane] : s[at + j * o->plane]) /
                      (double)o->frames;
    }
}

/* Fit of copy k of frame j: r = (1 - alpha2) s + alpha2 t. */
static void fit_copy(const oracle *o, xpt_c *r, int64_t j, int k, const xpt_c *far,
                     const double *intensity, double mean, const xpt_c *p, double eps)
{
    const xpt_c *s = o->s + (k * o->frames + j) * o->plane;
    xpt_c *own = xpt_new((size_t)o->plane, sizeof *own);
    double alpha = o->stage->probe_data_fit;

    for (int64_t i = 0; i < o->plane; i++)
        own[i] = s[i] * p[i];
    xpt_dft_run(o->dft, own, -1);
    for (int64_t i = 0; i < o->plane; i++) {
        xpt_c phase_of = o->trap == XPT_PHASE_OF_MODE ? far[i] : own[i];
        double size = cabs(o->trap == XPT_AMPLITUDE_OF_COPY ? own[i] : far[i]);
        double amplitude = gain(o, o->y[j * o->plane + i], intensity[i], mean) * size;
        own[i] = cabs(phase_of) > 0 ? amplitude * phase_of / cabs(phase_of) : amplitude;
    }
    xpt_dft_run(o->dft, own, +1);
    for (int64_t i = 0; i < o->plane; i++)
        r[i] = (1 - alpha) * s[i] + alpha * xpt_divide(own[i], p[i], eps);
    free(own);
}

static void probe_step(oracle *o)
{
    double eps[2], mean, rho = o->stage->relaxation;
    size_t all = (size_t)(o->modes * o->frames * o->plane);
    xpt_c *p = take_patches(o, eps), *r = xpt_new(all, sizeof *r),
          *modes = xpt_new((size_t)(o->modes * o->plane), sizeof *modes);
    xpt_c *far = xpt_new((size_t)(o->modes * o->plane), sizeof *far),
          *u = xpt_new((size_t)(o->modes * o->plane), sizeof *u);
    double *intensity = xpt_new((size_t)o->plane, sizeof *intensity);

    for (int64_t j = 0; j < o->frames; j++) {
        memcpy(modes, o->d, (size_t)(o->modes * o->plane) * sizeof *modes);
        for (int k = 0; k < o->modes; k++) {
            xpt_c *rk = r + (k * o->frames + j) * o->plane;
            far_fields(o, far, modes, o->plane, p + j * o->plane);
            intensities(o, intensity, far, &mean);
            fit_copy(o, rk, j, k, far + k * o->plane, intensity, mean, p + j * o->plane,
                     eps[j >= o->frames / 2]);
            if (o->trap == XPT_MODES_IN_TURN)
                memcpy(modes + k * o->plane, rk, (size_t)o->plane * sizeof *modes);
        }
    }
    mean_copies(o, u, o->s, r);
    for (size_t i = 0; i < all; i++) {
        int64_t at = (int64_t)i / (o->frames * o->plane) * o->plane + (int64_t)i % o->plane;
        o->s[i] += 2 * rho * (u[at] - r[i]);
    }
    memcpy(o->d_old, o->d, (size_t)(o->modes * o->plane) * sizeof *o->d);
    mean_copies(o, o->d, o->s, NULL);
    replace_outliers(o, o->d);
    if (o->trap == XPT_MEAN_AFTER_OUTLIERS)
        mean_copies(o, o->d, o->s, NULL);
    renew(o, false);
    free(intensity);
    free(u);
    free(far);
    free(modes);
    free(r);
    free(p);
}

static double data_error(oracle *o)
{
    double wrong = 0, right = 0, mean, *intensity = xpt_new((size_t)o->plane, sizeof *intensity);
    xpt_c *far = xpt_new((size_t)(o->modes * o->plane), sizeof *far),
          *p = xpt_new((size_t)o->plane, sizeof *p);
    const xpt_c *modes = o->trap == XPT_ERROR_OF_OLD_MODES && !o->known ? o->d_old : o->d;

    for (int64_t j = 0; j < o->frames; j++) {
        for (int64_t i = 0; i < o->plane; i++)
            p[i] = *at_patch(o, o->x, j, i);
        far_fields(o, far, modes, o->plane, p);
        intensities(o, intensity, far, &mean);
        for (int64_t i = 0; i < o->plane; i++) {
            double y = o->y[j * o->plane + i];
            double modelled =
                sqrt(intensity[i] + (o->trap == XPT_ERROR_GUARDED ? XPT_TINY_GUARD : 0));
            wrong += y < 0 ? 0 : pow(modelled - y, 2);
            right += y < 0 ? 0 : y * y;
        }
    }
    free(p);
    free(far);
    free(intensity);
    return sqrt(wrong / right);
}

/* ----------------------------------------------------------------------------------- the whole */

static void read_counts(oracle *o)
{
    const xpe_scan *s = &o->c->desc.scan;

    for (int64_t i = 0; i < o->frames * o->plane; i++) {
        bool hidden = s->mask && s->mask[s->mask_frames > 1 ? i : i % o->plane];
        o->y[i] = hidden ? -1 : (double)(float)sqrt(fmax(0, (double)o->c->counts[i]));
    }
}

static void widen(xpt_c *out, const xpe_c32 *in, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = CMPLX((double)in[i].re, (double)in[i].im);
}

static oracle *create(const xpt_case *c, const xpe_stage *stage, xpt_trap trap)
{
    oracle *o = xpt_new(1, sizeof *o);
    size_t modes = (size_t)c->desc.probe_modes, pixels = (size_t)(c->rows * c->cols),
           plane = (size_t)(c->n * c->n);
    double pitch = xpe_pixel_pitch(c->desc.scan.wavelength_m, c->desc.scan.detector_distance_m,
                                   c->desc.scan.detector_pitch_m, c->n);

    *o = (oracle){.c = c,
                  .stage = stage,
                  .trap = trap,
                  .n = c->n,
                  .plane = c->n * c->n,
                  .frames = c->num_frames,
                  .rows = c->rows,
                  .cols = c->cols,
                  .known = c->desc.probe != NULL};
    o->dft = xpt_dft_create(c->n);
    o->q = stage->fresnel_radius_pixels != 0
               ? pow(stage->fresnel_radius_pixels, 2)
               : c->desc.scan.wavelength_m * stage->fresnel_distance_m / (pitch * pitch);
    o->first = xpt_new((size_t)o->frames * 2, sizeof *o->first);
    o->y = xpt_new((size_t)o->frames * plane, sizeof *o->y);
    o->v = xpt_new((size_t)o->frames * plane, sizeof *o->v);
    o->s = xpt_new(o->known ? 1 : modes * (size_t)o->frames * plane, sizeof *o->s);
    o->d = xpt_new(modes * plane, sizeof *o->d);
    o->d_old = xpt_new(modes * plane, sizeof *o->d_old);
    o->x = xpt_new(pixels, sizeof *o->x);
    o->z = xpt_new(pixels, sizeof *o->z);
    o->share = xpt_new(modes, sizeof *o->share);
    o->d_eps = xpt_new(modes, sizeof *o->d_eps);
    o->weight = xpt_new(modes * plane, sizeof *o->weight);
    o->cover = xpt_new(modes * pixels, sizeof *o->cover);
    o->cover_eps = xpt_new(modes * 2, sizeof *o->cover_eps);
    xpt_case_first(c, o->first);
    read_counts(o);
    return o;
}

static void destroy(oracle *o)
{
    xpt_dft_destroy(o->dft);
    free(o->first);
    free(o->y);
    free(o->v);
    free(o->s);
    free(o->d);
    free(o->d_old);
    free(o->x);
    free(o->z);
    free(o->share);
    free(o->d_eps);
    free(o->weight);
    free(o->cover);
    free(o->cover_eps);
    free(o);
}

static void begin(oracle *o, xpt_oracle *out)
{
    const xpe_problem_desc *d = &o->c->desc;

    o->modes = d->probe ? d->probe_count : d->init_probe ? d->init_probe_count : 1;
    if (d->probe || d->init_probe)
        widen(o->d, d->probe ? d->probe : d->init_probe, o->modes * o->plane);
    else
        xpt_start_probe(o);
    if (d->init_object)
        widen(o->x, d->init_object, o->rows * o->cols);
    else
        xpt_start_object(o);
    for (int64_t j = 0; j < o->frames; j++)
        for (int64_t i = 0; i < o->plane; i++)
            o->v[j * o->plane + i] = *at_patch(o, o->x, j, i);
    if (!o->known)
        fill_copies(o, 0);
    renew(o, true);
    out->start_modes = o->modes;
    memcpy(out->start_probe, o->d, (size_t)(o->modes * o->plane) * sizeof *o->d);
    memcpy(out->start_object, o->x, (size_t)(o->rows * o->cols) * sizeof *o->x);
}

static bool is_due(const oracle *o, int iteration)
{
    for (int i = 0; i < o->stage->schedule_count; i++)
        if (o->stage->mode_schedule[i] == iteration - (o->trap == XPT_SCHEDULE_FROM_ZERO))
            return o->modes < o->c->desc.probe_modes;
    return false;
}

static void iterate(oracle *o, int iteration)
{
    object_step(o);
    if (o->known)
        return;
    if (is_due(o, iteration) && o->trap != XPT_ADD_AFTER_PROBE)
        add_mode(o);
    probe_step(o);
    if (is_due(o, iteration) && o->trap == XPT_ADD_AFTER_PROBE)
        add_mode(o);
}

xpt_oracle *xpt_oracle_run(const xpt_case *c, const xpe_stage *stage, xpt_trap trap)
{
    oracle *o = create(c, stage, trap);
    xpt_oracle *out = xpt_new(1, sizeof *out);
    size_t modes = (size_t)c->desc.probe_modes, pixels = (size_t)(c->rows * c->cols);

    *out =
        (xpt_oracle){.n = c->n, .rows = c->rows, .cols = c->cols, .iterations = stage->iterations};
    out->object = xpt_new(pixels, sizeof *out->object);
    out->start_object = xpt_new(pixels, sizeof *out->start_object);
    out->probe = xpt_new(modes * (size_t)o->plane, sizeof *out->probe);
    out->start_probe = xpt_new(modes * (size_t)o->plane, sizeof *out->start_probe);
    out->coverage = xpt_new(pixels, sizeof *out->coverage);
    out->errors = xpt_new((size_t)stage->iterations, sizeof *out->errors);
    begin(o, out);
    for (int i = 1; i <= stage->iterations; i++) {
        iterate(o, i);
        out->errors[i - 1] = data_error(o);
    }
    out->modes = o->modes;
    memcpy(out->object, o->x, pixels * sizeof *o->x);
    memcpy(out->probe, o->d, (size_t)(o->modes * o->plane) * sizeof *o->d);
    for (int k = 0; k < o->modes; k++)
        for (size_t i = 0; i < pixels; i++)
            out->coverage[i] += o->share[k] * o->cover[(size_t)k * pixels + i];
    destroy(o);
    return out;
}

void xpt_oracle_destroy(xpt_oracle *o)
{
    if (!o)
        return;
    free(o->object);
    free(o->probe);
    free(o->start_object);
    free(o->start_probe);
    free(o->coverage);
    free(o->errors);
    free(o);
}
