/* The generator's streams and the Poisson numbers: mean, variance and the exact probabilities. */
#include "scene.h"

static void same_seed_gives_the_same_numbers(void **state)
{
    xpd_random a, b;

    (void)state;
    xpd_random_init(&a, 5, 9);
    xpd_random_init(&b, 5, 9);
    for (int i = 0; i < 1000; i++)
        assert_true(xpd_random_next(&a) == xpd_random_next(&b));
}

static void streams_differ(void **state)
{
    int equal = 0;

    (void)state;
    for (uint64_t s = 0; s < 200; s++) {
        xpd_random a, b;

        xpd_random_init(&a, 5, s);
        xpd_random_init(&b, 5, s + 1);
        equal += xpd_random_next(&a) == xpd_random_next(&b);
    }
    assert_int_equal(equal, 0);
}

/* Numbers of an independent program of the two published generators: a change would change every
 * simulated scan. */
static void seed_one_gives_the_published_sequence(void **state)
{
    static const uint64_t expected[] = {0x704560CED7CC0501u, 0x4EEF90036C89C53Au,
                                        0xDCE05AF2BA1364D7u};
    xpd_random a;

    (void)state;
    xpd_random_init(&a, 1, 0);
    for (int i = 0; i < 3; i++)
        assert_true(xpd_random_next(&a) == expected[i]);
}

static void unit_numbers_are_uniform(void **state)
{
    enum { COUNT = 200000 };
    double sum = 0.0, square = 0.0;
    xpd_random a;

    (void)state;
    xpd_random_init(&a, 3, 3);
    for (int i = 0; i < COUNT; i++) {
        double u = xpd_random_unit(&a);

        assert_true(u >= 0.0 && u < 1.0);
        sum += u;
        square += u * u;
    }
    assert_close(sum / COUNT, 0.5, 5 * sqrt(1.0 / 12 / COUNT));
    assert_close(square / COUNT, 1.0 / 3, 0.004);
}

static void normal_numbers_have_deviation_one(void **state)
{
    enum { COUNT = 100000 };
    double sum = 0.0, square = 0.0;
    xpd_random a;

    (void)state;
    xpd_random_init(&a, 4, 4);
    for (int i = 0; i < COUNT; i++) {
        double v = xpd_random_normal(&a);

        sum += v;
        square += v * v;
    }
    assert_close(sum / COUNT, 0.0, 5 / sqrt(COUNT));
    assert_close(square / COUNT, 1.0, 5 * sqrt(2.0 / COUNT));
}

/* Mean and variance equal the mean, within five standard errors of each. */
static void poisson_has_mean_and_variance(void **state)
{
    static const double means[] = {0.02, 0.7, 4.0, 9.99, 10.0, 12.5, 60.0, 3000.0, 2e6};

    (void)state;
    for (size_t k = 0; k < sizeof means / sizeof *means; k++) {
        enum { COUNT = 100000 };
        double m = means[k], sum = 0.0, square = 0.0, mean, variance;
        xpd_random a;

        xpd_random_init(&a, 11, k);
        for (int i = 0; i < COUNT; i++) {
            double v = (double)xpd_random_poisson(&a, m) - m;

            sum += v;
            square += v * v;
        }
        mean = sum / COUNT;
        variance = square / COUNT - mean * mean;
        assert_true(fabs(mean) < 5 * sqrt(m / COUNT));
        /* the fourth central moment is m + 3 m^2 */
        assert_true(fabs(variance - m) < 5 * sqrt((m + 2 * m * m) / COUNT));
    }
}

/* Chi square against exp(-m) m^k / k! on both sides of the change of method. */
static void check_probabilities(double m)
{
    enum { COUNT = 200000, LAST = 40 };
    double counts[LAST + 1] = {0}, chi2 = 0.0;
    int bins = 0, sign;
    xpd_random a;

    xpd_random_init(&a, 21, (uint64_t)(m * 100));
    for (int i = 0; i < COUNT; i++) {
        int64_t v = xpd_random_poisson(&a, m);

        assert_true(v >= 0);
        counts[v < LAST ? v : LAST] += 1.0;
    }
    for (int k = 0; k < LAST; k++) {
        double expected = COUNT * exp(k * log(m) - m - lgamma_r(k + 1.0, &sign));

        if (expected >= 20.0) {
            chi2 += (counts[k] - expected) * (counts[k] - expected) / expected;
            bins++;
        }
    }
    assert_true(bins > 10);
    assert_true(chi2 < bins + 5 * sqrt(2.0 * bins));
}

static void poisson_has_the_exact_probabilities(void **state)
{
    (void)state;
    check_probabilities(5.5);
    check_probabilities(9.9);
    check_probabilities(10.1);
    check_probabilities(15.0);
}

static void poisson_of_nothing_is_zero(void **state)
{
    xpd_random a;

    (void)state;
    xpd_random_init(&a, 1, 1);
    assert_int_equal(xpd_random_poisson(&a, 0.0), 0);
    assert_int_equal(xpd_random_poisson(&a, -3.0), 0);
    assert_int_equal(xpd_random_poisson(&a, NAN), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_gives_the_same_numbers),
        cmocka_unit_test(streams_differ),
        cmocka_unit_test(seed_one_gives_the_published_sequence),
        cmocka_unit_test(unit_numbers_are_uniform),
        cmocka_unit_test(normal_numbers_have_deviation_one),
        cmocka_unit_test(poisson_has_mean_and_variance),
        cmocka_unit_test(poisson_has_the_exact_probabilities),
        cmocka_unit_test(poisson_of_nothing_is_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
