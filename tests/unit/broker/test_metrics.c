/* Counting: what must stay bounded, and where a value falls. */
#include "support.h"

#include "metrics.h"

static void a_value_falls_into_its_bucket(void **state)
{
    static xpd_metrics m;
    (void)state;
    xpd_metrics_init(&m);
    xpd_histogram_add(&m.loop_lag, 0);
    xpd_histogram_add(&m.loop_lag, 0.001); /* the bound belongs to it */
    xpd_histogram_add(&m.loop_lag, 0.002);
    xpd_histogram_add(&m.loop_lag, 1000);
    assert_int_equal(m.loop_lag.counts[0], 2);
    assert_int_equal(m.loop_lag.counts[1], 1);
    int last = 0;
    while (m.loop_lag.bounds[last] > 0)
        last++;
    assert_true(last <= XPD_BUCKETS_MAX);
    assert_int_equal(m.loop_lag.counts[last], 1);
    assert_true(m.loop_lag.sum > 1000);
}

static void a_strange_method_is_not_a_series_of_its_own(void **state)
{
    static xpd_metrics m;
    char method[16];
    (void)state;
    xpd_metrics_init(&m);
    for (int i = 0; i < 100; i++) {
        snprintf(method, sizeof method, "M%d", i);
        xpd_metrics_request(&m, -1, method, 405, 0);
    }
    xpd_metrics_request(&m, 3, "GET", 200, 0);
    assert_int_equal(m.request_count, 2);
    assert_string_equal(m.requests[0].method, "other");
    assert_int_equal(m.requests[0].count, 100);
}

static void series_are_bounded(void **state)
{
    static xpd_metrics m;
    int64_t sum = 0;
    (void)state;
    xpd_metrics_init(&m);
    for (unsigned i = 0; i < 2 * XPD_REQUEST_SERIES_MAX; i++)
        xpd_metrics_request(&m, 1, "GET", i, 0);
    assert_int_equal(m.request_count, XPD_REQUEST_SERIES_MAX);
    for (int i = 0; i < m.request_count; i++)
        sum += m.requests[i].count;
    assert_int_equal(sum, 2 * XPD_REQUEST_SERIES_MAX);
}

static void the_reason_of_a_reader_is_one_of_the_list(void **state)
{
    static xpd_metrics m;
    (void)state;
    xpd_metrics_init(&m);
    xpd_metrics_reader_failed(&m, "urn:xptychod:problem:dataset");
    xpd_metrics_reader_failed(&m, "urn:xptychod:problem:dataset");
    xpd_metrics_reader_failed(&m, "/data/secret.h5");
    xpd_metrics_reader_failed(&m, NULL);
    assert_int_equal(m.reader_failure_count, 2);
    assert_string_equal(m.reader_failures[0].reason, "dataset");
    assert_int_equal(m.reader_failures[0].count, 2);
    assert_string_equal(m.reader_failures[1].reason, "other");
    assert_int_equal(m.reader_failures[1].count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_falls_into_its_bucket),
        cmocka_unit_test(a_strange_method_is_not_a_series_of_its_own),
        cmocka_unit_test(series_are_bounded),
        cmocka_unit_test(the_reason_of_a_reader_is_one_of_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
