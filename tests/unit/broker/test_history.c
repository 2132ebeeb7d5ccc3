/* What past runs tell: times by shape, and what users had. */
#include "support.h"

#include "history.h"

#include <math.h>

static const xpd_shape small = {"cpu 1 2", 144, 64, 1};

static void a_run_that_goes_on_tells_until_one_has_ended(void **state)
{
    xpd_history h = {0};
    double iteration_s, rest_s;
    (void)state;
    xpd_history_glimpse(&h, &small, 3, 1);
    xpd_history_glimpse(&h, &small, 2, 2);
    xpd_history_glimpse(&h, &small, NAN, 3);
    assert_true(xpd_history_guess(&h, &small, &iteration_s, &rest_s));
    assert_float_equal(iteration_s, 2, 1e-12);
    assert_float_equal(rest_s, 0, 1e-12);
    xpd_history_learn(&h, &small, 0.5, 4, 3, NULL);
    xpd_history_glimpse(&h, &small, 9, 4);
    assert_true(xpd_history_guess(&h, &small, &iteration_s, &rest_s));
    assert_float_equal(iteration_s, 0.5, 1e-12);
    assert_float_equal(rest_s, 4, 1e-12);
    assert_int_equal(h.timing_count, 1);
    xpd_history_release(&h);
}

static void what_was_measured_is_guessed(void **state)
{
    xpd_history h = {0};
    double iteration_s, rest_s;
    (void)state;
    assert_false(xpd_history_guess(&h, &small, &iteration_s, &rest_s));
    xpd_history_learn(&h, &small, 0.5, 2, 1, NULL);
    assert_true(xpd_history_guess(&h, &small, &iteration_s, &rest_s));
    assert_float_equal(iteration_s, 0.5, 1e-12);
    assert_float_equal(rest_s, 2, 1e-12);
    for (int i = 0; i < 40; i++)
        xpd_history_learn(&h, &small, 1, 2, 1, NULL);
    assert_true(xpd_history_guess(&h, &small, &iteration_s, &rest_s));
    assert_float_equal(iteration_s, 1, 1e-3);
    xpd_history_release(&h);
}

static void another_size_is_scaled_from_the_nearest_of_the_same_devices(void **state)
{
    xpd_history h = {0};
    xpd_shape large = {"cpu 1 2", 1440, 64, 1}, twice = {"cpu 1 2", 288, 64, 1},
              other = {"cuda 1 2", 144, 64, 1}, unknown = {"cpu 1 2", 0, 0, 1};
    double iteration_s, rest_s;
    (void)state;
    xpd_history_learn(&h, &small, 0.5, 2, 1, NULL);
    xpd_history_learn(&h, &large, 100, 2, 1, NULL);
    assert_true(xpd_history_guess(&h, &twice, &iteration_s, &rest_s));
    assert_float_equal(iteration_s, 1, 1e-12);
    assert_float_equal(rest_s, 4, 1e-12);
    assert_false(xpd_history_guess(&h, &other, &iteration_s, &rest_s));
    assert_false(xpd_history_guess(&h, &unknown, &iteration_s, &rest_s));
    xpd_history_release(&h);
}

static void shapes_are_bounded_and_the_oldest_goes(void **state)
{
    xpd_history h = {0};
    xpd_shape shape = small;
    (void)state;
    for (int i = 0; i < XPD_TIMINGS_MAX + 10; i++) {
        shape.frames = i + 1;
        xpd_history_learn(&h, &shape, 1, 1, i, NULL);
    }
    assert_int_equal(h.timing_count, XPD_TIMINGS_MAX);
    for (size_t i = 0; i < h.timing_count; i++)
        assert_true(h.timings[i].shape.frames > 10);
    xpd_history_release(&h);
}

static void what_a_user_had_is_halved_every_six_hours(void **state)
{
    xpd_history h = {0};
    const int64_t six = (int64_t)XPD_HALF_LIFE_MS;
    (void)state;
    assert_float_equal(xpd_history_used(&h, 1000, 0), 0, 0);
    xpd_history_charge(&h, 1000, 100, 0, NULL);
    xpd_history_charge(&h, 7, 3, 0, NULL);
    xpd_history_charge(&h, 2000, 5, 0, NULL);
    assert_float_equal(xpd_history_used(&h, 1000, six), 50, 1e-9);
    xpd_history_charge(&h, 1000, 100, six, NULL);
    assert_float_equal(xpd_history_used(&h, 1000, 2 * six), 75, 1e-9);
    assert_float_equal(xpd_history_used(&h, 7, 0), 3, 1e-9);
    assert_float_equal(xpd_history_used(&h, 2000, 0), 5, 1e-9);
    /* a clock that was set back does not make it grow */
    assert_float_equal(xpd_history_used(&h, 7, -six), 3, 1e-9);
    xpd_history_release(&h);
}

static void notes_carry_everything_over_a_restart(void **state)
{
    xpd_history a = {0}, b = {0};
    xpd_note time_note, use_note;
    double iteration_s, rest_s;
    (void)state;
    xpd_history_learn(&a, &small, 0.5, 2, 11, &time_note);
    xpd_history_charge(&a, 1000, 100, 12, &use_note);
    xpd_history_take(&b, &time_note);
    xpd_history_take(&b, &use_note);
    assert_true(xpd_history_guess(&b, &small, &iteration_s, &rest_s));
    assert_float_equal(iteration_s, 0.5, 0);
    assert_float_equal(xpd_history_used(&b, 1000, 12), 100, 0);
    xpd_history_release(&a);
    xpd_history_release(&b);
}

static void nonsense_is_not_taken(void **state)
{
    static const char *const keys[] = {
        "", "use/", "time/cpu", "time/cpu/0/1/1", "time//1/1/1", "time/cpu 1 2/1/x/1", "other/1"};
    xpd_history h = {0};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        xpd_note note = {.a = 1, .b = 1, .n = 1};
        snprintf(note.key, sizeof note.key, "%s", keys[i]);
        xpd_history_take(&h, &note);
    }
    xpd_note endless = {.key = "use/1", .a = INFINITY};
    xpd_history_take(&h, &endless);
    xpd_history_learn(&h, &small, NAN, 1, 1, NULL);
    xpd_history_charge(&h, 1, -1, 1, NULL);
    assert_int_equal(h.timing_count, 0);
    assert_int_equal(h.account_count, 0);
    xpd_history_release(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_is_guessed),
        cmocka_unit_test(a_run_that_goes_on_tells_until_one_has_ended),
        cmocka_unit_test(another_size_is_scaled_from_the_nearest_of_the_same_devices),
        cmocka_unit_test(shapes_are_bounded_and_the_oldest_goes),
        cmocka_unit_test(what_a_user_had_is_halved_every_six_hours),
        cmocka_unit_test(notes_carry_everything_over_a_restart),
        cmocka_unit_test(nonsense_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
