/* The loops of loops.h.  Bodies call the per-pixel functions of engine/math and nothing else. */
#include "loops.h"

#include "math/fit.h"
#include "math/order.h"
#include "math/relax.h"

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define STR_(a) #a
#define STR(a) STR_(a)
#define R __restrict

static void product(xpe_c32 *R out, const xpe_c32 *R a, const xpe_c32 *R b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = xpe_mul(a[i], b[i]);
}

static void advance_product(xpe_c32 *R out, xpe_c32 *R v, const xpe_c32 *R z, const xpe_c32 *R d,
                            float two_rho, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        v[i] = xpe_advance(v[i], z[i], two_rho);
        out[i] = xpe_mul(d[i], v[i]);
    }
}

static void advance(xpe_c32 *R v, const xpe_c32 *R z, float two_rho, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = xpe_advance(v[i], z[i], two_rho);
}

static void intensity(float *R out, const xpe_c32 *R h, int64_t n, bool add)
{
    if (add)
        for (int64_t i = 0; i < n; i++)
            out[i] += xpe_energy(h[i]);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = xpe_energy(h[i]);
}

static void replace(xpe_c32 *R h, const float *R y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        h[i] = xpe_scale(h[i], xpe_gain(y[i], xpe_energy(h[i])));
}

static void gain(float *R g, const float *R y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        g[i] = xpe_gain(y[i], g[i]);
}

static void scale(xpe_c32 *R h, const float *R g, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        h[i] = xpe_scale(h[i], g[i]);
}

static void impose(xpe_c32 *R s, const xpe_c32 *R g, const float *R factor, int64_t n)
{
    int32_t zeros = 0;

    for (int64_t i = 0; i < n; i++) {
        float energy = xpe_energy(s[i]);
        zeros |= !(energy > 0.0f);
        s[i] = xpe_scale(s[i], xpe_phase_scale(factor[i] * sqrtf(xpe_energy(g[i])), energy));
    }
    for (int64_t i = 0; zeros && i < n;
         i++) /* rare: the phase factor is 1, times the checkerboard */
        if (s[i].re == 0.0f && s[i].im == 0.0f) {
            float wanted = factor[i] * sqrtf(xpe_energy(g[i]));
            s[i].re = (i / XPE_GROUP + i) % 2 ? -wanted : wanted;
        }
}

static void misfit(double *R sums, const float *R in, const float *R y, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < XPE_GROUP; c++) {
            double m = (double)xpe_misfit(y[r * XPE_GROUP + c], in[r * XPE_GROUP + c]);
            sums[c] += m * m;
        }
}

static void misfit_one(double *R sums, const xpe_c32 *R h, const float *R y, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < XPE_GROUP; c++) {
            double m = (double)xpe_misfit(y[r * XPE_GROUP + c], xpe_energy(h[r * XPE_GROUP + c]));
            sums[c] += m * m;
        }
}

static bool residual(float *R in, const float *R y, int64_t n)
{
    int32_t any = 0;
    for (int64_t i = 0; i < n; i++) {
        in[i] = xpe_residual(y[i], in[i]);
        any |= in[i] > 0.0f;
    }
    return any != 0;
}

static void weigh(xpe_c32 *R t, const xpe_c32 *R a, const xpe_c32 *R b, int64_t n, bool add)
{
    if (add)
        for (int64_t i = 0; i < n; i++)
            t[i] = xpe_add(t[i], xpe_mul(a[i], b[i]));
    else
        for (int64_t i = 0; i < n; i++)
            t[i] = xpe_mul(a[i], b[i]);
}

static int32_t relax(xpe_c32 *R w, xpe_c32 *R v, const xpe_c32 *R t, float one_minus_alpha,
                     float two_rho, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        w[i] = xpe_blend(v[i], t[i], one_minus_alpha);
        v[i] = xpe_retreat(v[i], w[i], two_rho);
        bits = xpe_order_bits(xpe_energy(v[i]));
        most = bits > most ? bits : most;
    }
    return most;
}

static void sum_weighted(int64_t *R sum, const float *R weight, const xpe_c32 *R w, xpe_unit unit,
                         int64_t n)
{
    double magic = unit.magic;
    int64_t bias = unit.bias;
    for (int64_t i = 0; i < n; i++) {
        sum[2 * i] = xpe_fix_add(sum[2 * i], xpe_fix(weight[i] * w[i].re, magic, bias));
        sum[2 * i + 1] = xpe_fix_add(sum[2 * i + 1], xpe_fix(weight[i] * w[i].im, magic, bias));
    }
}

static void sum_plain(int64_t *R sum, const xpe_c32 *R w, xpe_unit unit, int64_t n)
{
    double magic = unit.magic;
    int64_t bias = unit.bias;
    for (int64_t i = 0; i < n; i++) {
        sum[2 * i] = xpe_fix_add(sum[2 * i], xpe_fix(w[i].re, magic, bias));
        sum[2 * i + 1] = xpe_fix_add(sum[2 * i + 1], xpe_fix(w[i].im, magic, bias));
    }
}

static void sum_real(int64_t *R sum, const float *R w, xpe_unit unit, int64_t n)
{
    double magic = unit.magic;
    int64_t bias = unit.bias;
    for (int64_t i = 0; i < n; i++)
        sum[i] = xpe_fix_add(sum[i], xpe_fix(w[i], magic, bias));
}

static void copy_state(xpe_c32 *R s, const xpe_c32 *R u, const xpe_c32 *R d,
                       const float *R deviation, float two_rho, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        s[i] = xpe_replace_outlier(xpe_advance(s[i], u[i], two_rho), d[i], deviation[i]);
}

static void divide(xpe_c32 *R out, const xpe_c32 *R t, const xpe_c32 *R p, float eps, float factor,
                   int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = xpe_mul(t[i], xpe_scale(xpe_divider(p[i], eps), factor));
}

static void sum_deviation(int64_t *R sum, const xpe_c32 *R s, const xpe_c32 *R u,
                          const xpe_c32 *R d, float two_rho, xpe_unit unit, int64_t n)
{
    double magic = unit.magic;
    int64_t bias = unit.bias;
    for (int64_t i = 0; i < n; i++)
        sum[i] = xpe_fix_add(
            sum[i], xpe_fix(xpe_deviation(xpe_advance(s[i], u[i], two_rho), d[i]), magic, bias));
}

static void add_int(int64_t *R to, const int64_t *R from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = xpe_fix_add(to[i], from[i]);
}

static void multiply(xpe_c32 *R s, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        s[i] = xpe_scale(s[i], factor);
}

extern const xpe_loops CAT(xpe_loops_, XPE_LEVEL);
const xpe_loops CAT(xpe_loops_, XPE_LEVEL) = {
    .name = STR(XPE_LEVEL),
    .product = product,
    .advance_product = advance_product,
    .advance = advance,
    .intensity = intensity,
    .replace = replace,
    .gain = gain,
    .scale = scale,
    .impose = impose,
    .misfit = misfit,
    .misfit_one = misfit_one,
    .residual = residual,
    .weigh = weigh,
    .relax = relax,
    .sum_weighted = sum_weighted,
    .sum_plain = sum_plain,
    .sum_real = sum_real,
    .copy_state = copy_state,
    .divide = divide,
    .sum_deviation = sum_deviation,
    .add_int = add_int,
    .multiply = multiply,
};
