/* The circle of colours and the place of an angle on it. */
#include "scene.h"

#include "colour.h"

static double lightness(const uint8_t rgb[3]) /* CIE L* */
{
    double linear[3], y;

    for (int k = 0; k < 3; k++) {
        double v = rgb[k] / 255.0;

        linear[k] = v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
    }
    y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    return y > 0.008856 ? 116.0 * cbrt(y) - 16.0 : 903.3 * y;
}

static void circle_is_closed_and_smooth(void **state)
{
    uint8_t rgb[XPD_COLOURS][3];

    (void)state;
    xpd_colour_circle(rgb);
    for (int i = 0; i < XPD_COLOURS; i++)
        for (int k = 0; k < 3; k++)
            assert_true(abs(rgb[i][k] - rgb[(i + 1) % XPD_COLOURS][k]) <= 5);
}

static void circle_is_dark_at_the_start_and_bright_half_way(void **state)
{
    uint8_t rgb[XPD_COLOURS][3];
    int half = XPD_COLOURS / 2;

    (void)state;
    xpd_colour_circle(rgb);
    for (int i = 1; i < XPD_COLOURS; i++) {
        double step = lightness(rgb[i]) - lightness(rgb[i - 1]);

        assert_true(i <= half ? step > -0.6 : step < 0.6);
    }
    assert_true(lightness(rgb[0]) < 35.0);
    assert_true(lightness(rgb[half]) > 80.0);
}

static void colours_are_not_cut_at_the_edge_of_srgb(void **state)
{
    uint8_t rgb[XPD_COLOURS][3];

    (void)state;
    xpd_colour_circle(rgb);
    for (int i = 0; i < XPD_COLOURS; i++)
        for (int k = 0; k < 3; k++)
            assert_in_range(rgb[i][k], 1, 254);
}

static void low_is_darkest_and_high_is_brightest(void **state)
{
    (void)state;
    assert_int_equal(xpd_colour_of_phase(-0.4, -0.4, 0.3), 0);
    assert_int_equal(xpd_colour_of_phase(0.3, -0.4, 0.3), XPD_COLOURS / 2);
    assert_int_equal(xpd_colour_of_phase(-0.05, -0.4, 0.3), XPD_COLOURS / 4);
}

static void turning_by_two_pi_changes_nothing(void **state)
{
    (void)state;
    for (double phase = -3.1; phase < 3.1; phase += 0.0173) {
        int a = xpd_colour_of_phase(phase, -0.4, 0.3),
            b = xpd_colour_of_phase(phase + 2 * M_PI, -0.4, 0.3);
        int apart = abs(a - b);

        assert_true(apart <= 1 || apart == XPD_COLOURS - 1);
    }
}

static void map_has_no_jump_anywhere(void **state)
{
    int before = xpd_colour_of_phase(-M_PI, -0.4, 0.3);

    (void)state;
    for (int i = 1; i <= 10000; i++) {
        int now = xpd_colour_of_phase(-M_PI + 2 * M_PI * i / 10000, -0.4, 0.3),
            apart = abs(now - before);

        assert_true(apart <= 1 || apart == XPD_COLOURS - 1);
        assert_in_range(now, 0, XPD_COLOURS - 1);
        before = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(circle_is_closed_and_smooth),
        cmocka_unit_test(circle_is_dark_at_the_start_and_bright_half_way),
        cmocka_unit_test(colours_are_not_cut_at_the_edge_of_srgb),
        cmocka_unit_test(low_is_darkest_and_high_is_brightest),
        cmocka_unit_test(turning_by_two_pi_changes_nothing),
        cmocka_unit_test(map_has_no_jump_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
