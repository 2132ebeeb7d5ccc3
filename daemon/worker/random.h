/* Random numbers for the simulator: the same numbers for the same seed on every machine. */
#ifndef XPD_RANDOM_H
#define XPD_RANDOM_H

#include <stdint.h>

typedef struct xpd_random {
    uint64_t s[4];
} xpd_random;

/* Independent streams: the same seed with another stream gives unrelated numbers. */
void xpd_random_init(xpd_random *random, uint64_t seed, uint64_t stream);
uint64_t xpd_random_next(xpd_random *random);
double xpd_random_unit(xpd_random *random);                           /* [0, 1), 53 bits */
double xpd_random_range(xpd_random *random, double low, double high); /* [low, high) */
int64_t xpd_random_below(xpd_random *random, int64_t bound);          /* 0 .. bound - 1 */
double xpd_random_normal(xpd_random *random);                         /* mean 0, deviation 1 */
/* Poisson of any mean from 0 to 1e15; exact in distribution, not a rounded normal. */
int64_t xpd_random_poisson(xpd_random *random, double mean);

#endif
