/* daemon/broker/watch.c: how long a job may stand still, and what the kernel counts. */
#include "watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void a_job_that_goes_on_is_given_the_least_time(void **state)
{
    xpd_pace pace;
    (void)state;
    xpd_pace_start(&pace, 1000);
    for (int64_t i = 1; i <= 100; i++)
        xpd_pace_step(&pace, 1000 + 50 * i, false);
    assert_int_equal(pace.seen_ms, 6000);
    assert_int_equal(pace.slowest_ms, 50);
    assert_int_equal(xpd_pace_patience(&pace, 120000), 120000);
}

static void a_slow_job_has_ten_of_its_slowest_iterations(void **state)
{
    xpd_pace pace;
    (void)state;
    xpd_pace_start(&pace, 0);
    xpd_pace_step(&pace, 5000, false);
    xpd_pace_step(&pace, 35000, false);
    xpd_pace_step(&pace, 45000, false);
    assert_int_equal(xpd_pace_patience(&pace, 120000), 300000);
}

static void what_is_no_iteration_has_ten_times_as_long(void **state)
{
    xpd_pace pace;
    (void)state;
    xpd_pace_start(&pace, 0);
    assert_int_equal(xpd_pace_patience(&pace, 1000), 10000); /* it prepares */
    xpd_pace_step(&pace, 90000, false);
    assert_int_equal(pace.slowest_ms, 0); /* which says nothing of an iteration */
    assert_int_equal(xpd_pace_patience(&pace, 1000), 10000);
    xpd_pace_step(&pace, 90300, false);
    assert_int_equal(xpd_pace_patience(&pace, 1000), 3000);
    xpd_pace_step(&pace, 90400, true);
    assert_int_equal(xpd_pace_patience(&pace, 1000), 30000); /* it writes */
    xpd_pace_step(&pace, 95000, false);
    assert_int_equal(pace.slowest_ms, 300); /* the next stage was prepared meanwhile */
}

static void a_sign_of_life_counts_and_is_no_iteration(void **state)
{
    xpd_pace pace;
    (void)state;
    xpd_pace_start(&pace, 0);
    xpd_pace_step(&pace, 100, false);
    xpd_pace_sign(&pace, 60000);
    assert_int_equal(pace.seen_ms, 60000);
    assert_int_equal(pace.slowest_ms, 0);
}

static void no_limit_is_no_limit(void **state)
{
    xpd_pace pace;
    (void)state;
    xpd_pace_start(&pace, 0);
    assert_int_equal(xpd_pace_patience(&pace, 0), 0);
}

static int64_t count_in(const char *text)
{
    char path[] = "/tmp/xptychod-watch-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "%s", text) >= 0);
    close(fd);
    int64_t count = xpd_watch_oom_count(path);
    unlink(path);
    return count;
}

static void the_kernels_counts_are_read(void **state)
{
    (void)state;
    assert_int_equal(count_in("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), 2);
    assert_int_equal(count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), 7);
    assert_int_equal(count_in("oom_kill 5"), 5);
}

static void without_them_nothing_was_killed(void **state)
{
    (void)state;
    assert_int_equal(count_in(""), 0);
    assert_int_equal(count_in("oom_killer 9\nnothing\n"), 0);
    assert_int_equal(count_in("oom_kill many\n"), 0);
    assert_int_equal(xpd_watch_oom_count("/nowhere/memory.events"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_goes_on_is_given_the_least_time),
        cmocka_unit_test(a_slow_job_has_ten_of_its_slowest_iterations),
        cmocka_unit_test(what_is_no_iteration_has_ten_times_as_long),
        cmocka_unit_test(a_sign_of_life_counts_and_is_no_iteration),
        cmocka_unit_test(no_limit_is_no_limit),
        cmocka_unit_test(the_kernels_counts_are_read),
        cmocka_unit_test(without_them_nothing_was_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
