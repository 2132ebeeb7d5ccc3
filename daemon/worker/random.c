/* The generator is xoshiro256++ (Blackman and Vigna, ACM TOMS 47, 2021), its state filled by
 * splitmix64.  Poisson numbers: below a mean of 10 by counting exponential gaps, above by the
 * transformed rejection PTRS (Hoermann, Insurance: Mathematics and Economics 12, 1993), which
 * accepts from the exact density and therefore has no bias at any mean.
 *
 * Only +, *, comparisons, sqrt, log, exp, lgamma and fixed conversions are used; equality of the
 * numbers on two machines rests on their libm agreeing on log, exp and lgamma. */
#include "random.h"

#include <math.h>

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void xpd_random_init(xpd_random *random, uint64_t seed, uint64_t stream)
{
    uint64_t state = seed;
    uint64_t mixed = splitmix(&state) ^ (stream * 0xD1342543DE82EF95u);

    for (int i = 0; i < 4; i++)
        random->s[i] = splitmix(&mixed);
}

uint64_t xpd_random_next(xpd_random *random)
{
    uint64_t *s = random->s;
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double xpd_random_unit(xpd_random *random)
{
    return (double)(xpd_random_next(random) >> 11) * 0x1p-53;
}

double xpd_random_range(xpd_random *random, double low, double high)
{
    return low + (high - low) * xpd_random_unit(random);
}

int64_t xpd_random_below(xpd_random *random, int64_t bound)
{
    /* 53 bits over a bound of at most a few thousand: the bias is below 1e-12. */
    return (int64_t)(xpd_random_unit(random) * (double)bound);
}

double xpd_random_normal(xpd_random *random)
{
    /* Polar method; the second number is dropped to keep no state beside the generator's. */
    for (;;) {
        double u = xpd_random_range(random, -1.0, 1.0);
        double v = xpd_random_range(random, -1.0, 1.0);
        double q = u * u + v * v;

        if (q > 0.0 && q < 1.0)
            return u * sqrt(-2.0 * log(q) / q);
    }
}

/* The product of uniform numbers falls below exp(-mean) after that many factors. */
static int64_t poisson_small(xpd_random *random, double mean)
{
    double limit = exp(-mean), product = 1.0;

    for (int64_t k = 0;; k++) {
        product *= xpd_random_unit(random);
        if (product <= limit)
            return k;
    }
}

/* PTRS, valid from a mean of 10; constants of the paper. */
static int64_t poisson_large(xpd_random *random, double mean)
{
    double root = sqrt(mean), log_mean = log(mean);
    double b = 0.931 + 2.53 * root;
    double a = -0.059 + 0.02483 * b;
    double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    double v_r = 0.9277 - 3.6224 / (b - 2.0);

    for (;;) {
        double u = xpd_random_unit(random) - 0.5;
        double v = 1.0 - xpd_random_unit(random); /* (0, 1]: log(v) below is finite */
        double us = 0.5 - fabs(u);
        double k = us > 0.0 ? floor((2.0 * a / us + b) * u + mean + 0.43) : -1.0;
        int sign;

        if (us >= 0.07 && v <= v_r)
            return (int64_t)k;
        if (k < 0.0 || (us < 0.013 && v > us))
            continue;
        if (log(v * inverse_alpha / (a / (us * us) + b)) <=
            k * log_mean - mean - lgamma_r(k + 1.0, &sign))
            return (int64_t)k;
    }
}

int64_t xpd_random_poisson(xpd_random *random, double mean)
{
    if (!(mean > 0.0))
        return 0;
    return mean < 10.0 ? poisson_small(random, mean) : poisson_large(random, mean);
}
