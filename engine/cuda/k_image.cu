/* Averages on bands, exact sums to numbers, modes and what follows from them: one block a row, so
 * that a row's number never depends on the division over devices. */
#include "kernel.h"

#include "math/average.h"
#include "math/order.h"

XPE_KERNEL(k_average, k_average_args)
{
    XPE_SHARED(double, energy, XPE_BLOCK);
    XPE_SHARED(double, z_max, XPE_BLOCK);
    XPE_SHARED(double, x_max, XPE_BLOCK);
    int64_t plane = p.rows * p.cols;

    XPE_BLOCK_LOOP(r, p.rows)
    {
        XPE_THREADS(t)
        {
            bool frozen = p.numbers->bad.iteration != 0;
            energy[t] = z_max[t] = x_max[t] = 0;
            for (int64_t i = r * p.cols + t; !frozen && i < (r + 1) * p.cols; i += XPE_BLOCK) {
                double re = 0, im = 0, x;
                xpe_c32 z;
                for (int k = 0; k < p.modes; k++) {
                    int64_t at = k * plane + i;
                    double q = xpe_cover_factor(p.l[at], p.numbers->mode[k].share,
                                                p.numbers->mode[k].cover_eps);
                    re += xpe_average_z(xpe_unfix(p.w[2 * at], p.numbers->mode[k].unit_w.unit),
                                        p.v[2 * at], q);
                    im += xpe_average_z(xpe_unfix(p.w[2 * at + 1], p.numbers->mode[k].unit_w.unit),
                                        p.v[2 * at + 1], q);
                }
                z = xpe_c((float)re, (float)im); /* what the patches will really receive */
                p.z[i] = z;
                re = im = 0;
                for (int k = 0; k < p.modes; k++) {
                    int64_t at = k * plane + i;
                    double q = xpe_cover_factor(p.l[at], p.numbers->mode[k].share,
                                                p.numbers->mode[k].cover_eps);
                    double v_re = xpe_average_v(
                        p.v[2 * at], xpe_unfix(p.w[2 * at], p.numbers->mode[k].unit_w.unit),
                        (double)z.re, p.l[at], p.two_rho);
                    double v_im = xpe_average_v(
                        p.v[2 * at + 1], xpe_unfix(p.w[2 * at + 1], p.numbers->mode[k].unit_w.unit),
                        (double)z.im, p.l[at], p.two_rho);
                    p.v[2 * at] = v_re;
                    p.v[2 * at + 1] = v_im;
                    re += v_re * q;
                    im += v_im * q;
                }
                p.image[i] = xpe_c((float)re, (float)im);
                x = xpe_energy_double(p.image[i]);
                energy[t] += p.count[i] * x;
                x_max[t] = p.count[i] ? xpe_larger(x, x_max[t]) : x_max[t];
                z_max[t] = p.count[i] ? xpe_larger(xpe_energy_double(z), z_max[t]) : z_max[t];
            }
        }
        XPE_TREE(energy, xpe_plus);
        XPE_TREE(z_max, xpe_larger);
        XPE_TREE(x_max, xpe_larger);
        XPE_THREADS(t)
        {
            if (t == 0) {
                p.row_energy[r] = energy[0];
                p.row_max[2 * r] = z_max[0];
                p.row_max[2 * r + 1] = x_max[0];
            }
        }
    }
}
XPE_LAUNCHER(average, args->rows)

XPE_KERNEL(k_unfix, k_unfix_args)
{
    XPE_SHARED(double, energy, XPE_BLOCK);

    XPE_BLOCK_LOOP(r, p.modes * p.rows)
    {
        int64_t k = r / p.rows;
        const xpe_mode_numbers *mode = p.numbers->mode + k;
        XPE_THREADS(t)
        {
            double unit = p.cover ? mode->unit_l.unit : mode->unit_v.unit;
            energy[t] = 0;
            for (int64_t i = r * p.width + t; i < (r + 1) * p.width; i += XPE_BLOCK) {
                double value = xpe_unfix(p.sum[i], unit), cover = value * XPE_COVERAGE_SCALE;
                p.out[i] = value;
                energy[t] += cover * cover;
            }
        }
        XPE_TREE(energy, xpe_plus);
        XPE_THREADS(t)
        {
            if (t == 0 && p.row_energy)
                p.row_energy[(r - k * p.rows) * p.modes + k] = energy[0];
        }
    }
}
XPE_LAUNCHER(unfix, args->modes * args->rows)

#define ADD_WORK ((args->count + 4 * XPE_BLOCK - 1) / (4 * XPE_BLOCK))

XPE_KERNEL(k_add, k_add_args)
{
    XPE_BLOCK_LOOP(b, (p.count + 4 * XPE_BLOCK - 1) / (4 * XPE_BLOCK))
    {
        int64_t end = (b + 1) * 4 * XPE_BLOCK < p.count ? (b + 1) * 4 * XPE_BLOCK : p.count;
        XPE_THREADS(t)
        {
            for (int64_t i = b * 4 * XPE_BLOCK + t; i < end; i += XPE_BLOCK)
                p.to[i] = xpe_fix_add(p.to[i], p.from[i]);
        }
    }
}
XPE_LAUNCHER(add, ADD_WORK)

XPE_KERNEL(k_mode_average, k_mode_average_args)
{
    XPE_SHARED(double, most, XPE_BLOCK);

    XPE_BLOCK_LOOP(r, (int64_t)p.modes * p.n)
    {
        const xpe_mode_numbers *mode = p.numbers->mode + r / p.n;
        double unit_r = mode->unit_r.unit, unit_s = mode->unit_s.unit;
        XPE_THREADS(t)
        {
            bool frozen = p.numbers->bad.iteration != 0;
            most[t] = 0;
            for (int64_t i = r * p.n + t; !frozen && i < (r + 1) * p.n; i += XPE_BLOCK) {
                double r_re = xpe_unfix(p.r[2 * i], unit_r),
                       r_im = xpe_unfix(p.r[2 * i + 1], unit_r);
                double s_re = xpe_unfix(p.s[2 * i], unit_s),
                       s_im = xpe_unfix(p.s[2 * i + 1], unit_s);
                xpe_c32 u = xpe_c(xpe_mode_u(r_re, s_re, p.num_frames),
                                  xpe_mode_u(r_im, s_im, p.num_frames));
                p.u[i] = u;
                if (p.before)
                    p.before[i] = p.d[i];
                p.d[i] = xpe_c(xpe_mode_d(r_re, s_re, (double)u.re, p.num_frames, p.two_rho),
                               xpe_mode_d(r_im, s_im, (double)u.im, p.num_frames, p.two_rho));
                most[t] = xpe_larger(xpe_energy_double(u), most[t]);
            }
        }
        XPE_TREE(most, xpe_larger);
        XPE_THREADS(t)
        {
            if (t == 0)
                p.row_max[r] = most[0];
        }
    }
}
XPE_LAUNCHER(mode_average, (int64_t)args->modes * args->n)

XPE_KERNEL(k_mode_deviation, k_mode_deviation_args)
{
    XPE_BLOCK_LOOP(r, (int64_t)p.modes * p.n)
    {
        XPE_THREADS(t)
        {
            for (int64_t i = r * p.n + t; i < (r + 1) * p.n; i += XPE_BLOCK)
                p.deviation[i] = xpe_mode_deviation(
                    xpe_unfix(p.sum[i], p.numbers->mode[r / p.n].unit_dev.unit), p.num_frames);
        }
    }
}
XPE_LAUNCHER(mode_deviation, (int64_t)args->modes * args->n)

XPE_KERNEL(k_mode_energy, k_mode_energy_args)
{
    XPE_SHARED(double, energy, XPE_BLOCK);

    XPE_BLOCK_LOOP(r, (int64_t)p.modes * p.n)
    {
        XPE_THREADS(t)
        {
            energy[t] = 0;
            for (int64_t i = r * p.n + t; i < (r + 1) * p.n; i += XPE_BLOCK)
                energy[t] += xpe_energy_double(p.d[i]);
        }
        XPE_TREE(energy, xpe_plus);
        XPE_THREADS(t)
        {
            if (t == 0)
                p.row_energy[r] = energy[0];
        }
    }
}
XPE_LAUNCHER(mode_energy, (int64_t)args->modes * args->n)

/* The largest of one mode's values in a row; what there is to reach is a sum over all modes. */
XPE_KERNEL(k_mode_derive, k_mode_derive_args)
{
    XPE_SHARED(double, most, 3 * XPE_BLOCK);

    XPE_BLOCK_LOOP(b, (int64_t)p.modes * p.n)
    {
        int64_t k = b / p.n, r = b - k * p.n, plane = (int64_t)p.n * p.n;
        const xpe_mode_numbers *mode = p.numbers->mode;
        float eps = (float)mode[k].d_eps, scale = (float)(p.alpha * mode[k].share / (double)p.n);
        XPE_THREADS(t)
        {
            double *m = most + t;
            m[0] = m[XPE_BLOCK] = m[2 * XPE_BLOCK] = 0;
            for (int64_t i = r * p.n + t; i < (r + 1) * p.n; i += XPE_BLOCK) {
                int64_t at = k * plane + i;
                float energy = xpe_energy(p.d[at]), weight = xpe_power(energy, p.kappa);
                double reach = 0;
                for (int j = 0; j < p.modes; j++)
                    reach +=
                        xpe_reach(xpe_energy(p.d[j * plane + i]), mode[j].share, mode[j].d_eps);
                p.probe[at] = xpe_scale(p.d[at], 1.0f / (float)p.n);
                p.divider[at] = xpe_scale(xpe_divider(p.d[at], eps), scale);
                p.weight[at] = weight;
                m[0] = fmax(m[0], (double)energy);
                m[XPE_BLOCK] = fmax(m[XPE_BLOCK], (double)weight);
                m[2 * XPE_BLOCK] = fmax(m[2 * XPE_BLOCK], (double)weight * reach);
            }
        }
        XPE_TREE(most, fmax);
        XPE_TREE(most + XPE_BLOCK, fmax);
        XPE_TREE(most + 2 * XPE_BLOCK, fmax);
        XPE_THREADS(t)
        {
            if (t < 3)
                p.row_max[b * 3 + t] = most[t * XPE_BLOCK];
        }
    }
}
XPE_LAUNCHER(mode_derive, (int64_t)args->modes * args->n)

XPE_KERNEL(k_check, k_check_args)
{
    XPE_THREADS(t)
    {
        if (t == 0)
            p.out[0] = p.value;
    }
}
XPE_LAUNCHER(check, 1)
