/* Token buckets. */
#include "support.h"

#include "rate.h"

static void the_burst_is_free_and_then_time_counts(void **state)
{
    static xpd_rate rate;
    int64_t now = 5000;
    (void)state;
    for (int i = 0; i < 50; i++)
        assert_int_equal(xpd_rate_take(&rate, 1, 10, 50, now), 0);
    assert_int_equal(xpd_rate_take(&rate, 1, 10, 50, now), 1);
    assert_int_equal(xpd_rate_take(&rate, 2, 10, 50, now), 0); /* another user has its own */
    assert_int_equal(xpd_rate_take(&rate, 1, 10, 50, now + 99), 1);
    assert_int_equal(xpd_rate_take(&rate, 1, 10, 50, now + 150), 0);
    assert_int_equal(xpd_rate_take(&rate, 1, 10, 50, now + 150), 1);
    now += 3600000; /* not more than the burst, however long the pause */
    for (int i = 0; i < 50; i++)
        assert_int_equal(xpd_rate_take(&rate, 1, 10, 50, now), 0);
    assert_int_not_equal(xpd_rate_take(&rate, 1, 10, 50, now), 0);
}

static void a_slow_rate_says_how_long_to_wait(void **state)
{
    static xpd_rate rate;
    (void)state;
    assert_int_equal(xpd_rate_take(&rate, 1, 1, 1, 0), 0);
    int wait = xpd_rate_take(&rate, 1, 1, 1, 0);
    assert_int_equal(wait, 2); /* never too early */
    assert_int_equal(xpd_rate_take(&rate, 1, 1, 1, wait * 1000), 0);
}

static void without_a_rate_there_is_no_limit(void **state)
{
    static xpd_rate rate;
    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(xpd_rate_take(&rate, 1, 0, 1, 0), 0);
}

static void more_users_than_buckets_are_served(void **state)
{
    static xpd_rate rate;
    (void)state;
    for (uid_t uid = 0; uid < 3 * XPD_RATE_USERS; uid++)
        assert_int_equal(xpd_rate_take(&rate, uid, 1, 1, (int64_t)uid), 0);
    /* the newest is remembered */
    assert_int_not_equal(xpd_rate_take(&rate, 3 * XPD_RATE_USERS - 1, 1, 1, 3 * XPD_RATE_USERS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_burst_is_free_and_then_time_counts),
        cmocka_unit_test(a_slow_rate_says_how_long_to_wait),
        cmocka_unit_test(without_a_rate_there_is_no_limit),
        cmocka_unit_test(more_users_than_buckets_are_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
