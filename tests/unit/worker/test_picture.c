/* From complex arrays to values, ranges and bytes. */
#include "scene.h"

#include "colour.h"
#include "picture.h"

enum { ROWS = 12, COLS = 16 };

typedef struct field {
    xpe_c32 v[ROWS * COLS];
    float coverage[ROWS * COLS];
    int64_t scanned[4];
} field;

/* Magnitude 1, phase `phase` inside the rectangle; noise of size 50 outside it, where nothing was
 * lit. */
static field field_make(double phase)
{
    field f = {.scanned = {3, 9, 4, 12}};

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            bool inside = r >= 3 && r < 9 && c >= 4 && c < 12;

            f.v[r * COLS + c] =
                inside ? (xpe_c32){(float)cos(phase), (float)sin(phase)} : (xpe_c32){-50, 9};
            f.coverage[r * COLS + c] = inside ? 2.0f : 0.01f;
        }
    return f;
}

static void only_lit_pixels_of_the_scanned_rectangle_count(void **state)
{
    field f = field_make(0.0);
    xpd_plane p;
    float values[ROWS * COLS];
    double range[2];

    (void)state;
    f.v[4 * COLS + 6] = (xpe_c32){NAN, 0};
    assert_true(xpd_plane_of_object(&p, f.v, f.coverage, ROWS, COLS, f.scanned, 100));
    assert_int_equal(p.rows, ROWS);
    assert_int_equal(p.factor, 1);
    assert_int_equal(p.lit[0], 0);
    assert_int_equal(p.lit[3 * COLS + 4], 1);
    assert_int_equal(p.judged[4 * COLS + 6], 0);
    xpd_plane_magnitude(values, &p);
    assert_true(xpd_plane_range(range, &p, values, 0.0, 100.0));
    assert_close(range[0], 1.0, 1e-6);
    assert_close(range[1], 1.0, 1e-6);
    xpd_plane_release(&p);
}

static void common_phase_is_taken_off(void **state)
{
    float before[ROWS * COLS], after[ROWS * COLS];

    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        field f = field_make(turn ? 2.9 : 0.4);
        xpd_plane p;

        /* two pixels that stand out by 0.2 rad on either side */
        f.v[5 * COLS + 5] =
            (xpe_c32){(float)cos((turn ? 2.9 : 0.4) + 0.2), (float)sin((turn ? 2.9 : 0.4) + 0.2)};
        f.v[5 * COLS + 6] =
            (xpe_c32){(float)cos((turn ? 2.9 : 0.4) - 0.2), (float)sin((turn ? 2.9 : 0.4) - 0.2)};
        assert_true(xpd_plane_of_object(&p, f.v, f.coverage, ROWS, COLS, f.scanned, 100));
        xpd_plane_phase(turn ? after : before, &p, xpd_plane_common_phase(&p));
        xpd_plane_release(&p);
    }
    assert_close(before[5 * COLS + 5], 0.2, 1e-5);
    assert_close(before[5 * COLS + 6], -0.2, 1e-5);
    for (int r = 3; r < 9; r++)
        for (int c = 4; c < 12; c++)
            assert_close(before[r * COLS + c], after[r * COLS + c], 1e-5);
}

static void large_arrays_are_averaged(void **state)
{
    field f = field_make(0.0);
    xpd_plane p;

    (void)state;
    for (int i = 0; i < ROWS * COLS; i++)
        f.v[i] = (xpe_c32){(float)(i % COLS), (float)(i / COLS)};
    assert_true(
        xpd_plane_of_object(&p, f.v, f.coverage, ROWS, COLS, f.scanned, 7)); /* blocks of 3 */
    assert_int_equal(p.factor, 3);
    assert_int_equal(p.rows, 4);
    assert_int_equal(p.cols, 6);
    assert_close(p.value[0].re, 1.0, 1e-6);
    assert_close(p.value[0].im, 1.0, 1e-6);
    assert_close(p.value[1 * 6 + 1].re, 4.0, 1e-6);
    assert_close(p.value[1 * 6 + 1].im, 4.0, 1e-6);
    assert_close(p.value[5].re, 15.0, 1e-6); /* the last block is one column wide */
    xpd_plane_release(&p);
}

static void modes_stand_side_by_side(void **state)
{
    xpe_c32 probe[2 * 4 * 4] = {0};
    xpd_plane p;

    (void)state;
    probe[5] = (xpe_c32){3, 4};
    probe[16 + 10] = (xpe_c32){0, 0.05f};
    assert_true(xpd_plane_of_probe(&p, probe, 2, 4, 100));
    assert_int_equal(p.rows, 4);
    assert_int_equal(p.cols, 8);
    assert_close(p.value[1 * 8 + 1].re, 3.0, 0.0);
    assert_close(p.value[2 * 8 + 4 + 2].im, 0.05, 1e-7);
    assert_int_equal(p.lit[1 * 8 + 1], 1);
    assert_int_equal(p.lit[2 * 8 + 4 + 2], 0); /* 1 % of the largest: its phase means nothing */
    xpd_plane_release(&p);
}

static void percentiles_are_those_of_numpy(void **state)
{
    xpe_c32 probe[100] = {0};
    float values[100];
    double range[2];
    xpd_plane p;

    (void)state;
    assert_true(xpd_plane_of_probe(&p, probe, 1, 10, 100));
    for (int i = 0; i < 100; i++)
        values[(i * 37) % 100] = (float)(i * i);
    /* numpy.percentile(arange(100) ** 2, [1, 99]) */
    assert_true(xpd_plane_range(range, &p, values, 1.0, 99.0));
    assert_close(range[0], 0.99, 1e-6);
    assert_close(range[1], 9605.97, 2e-3);
    values[3] = INFINITY;
    assert_true(xpd_plane_range(range, &p, values, 0.0, 100.0));
    assert_true(isfinite(range[1]));
    xpd_plane_release(&p);
}

static void magnitude_is_painted_from_black_to_white_and_blank_where_unlit(void **state)
{
    field f = field_make(0.0);
    uint8_t pixels[ROWS * COLS];
    float values[ROWS * COLS];
    const double range[2] = {1.0, 3.0};
    xpd_plane p;

    (void)state;
    assert_true(xpd_plane_of_object(&p, f.v, f.coverage, ROWS, COLS, f.scanned, 100));
    xpd_plane_magnitude(values, &p);
    values[4 * COLS + 5] = 2.0f;
    values[4 * COLS + 6] = 9.0f;
    values[4 * COLS + 7] = 0.0f;
    xpd_plane_paint_magnitude(pixels, &p, values, range);
    assert_int_equal(pixels[4 * COLS + 4], 0);
    assert_int_equal(pixels[4 * COLS + 5], 128);
    assert_int_equal(pixels[4 * COLS + 6], 255);
    assert_int_equal(pixels[4 * COLS + 7], 0);
    assert_int_equal(pixels[0], XPD_PICTURE_BLANK);
    xpd_plane_release(&p);
}

static void phase_is_painted_within_the_palette(void **state)
{
    field f = field_make(0.0);
    uint8_t pixels[ROWS * COLS];
    float values[ROWS * COLS] = {0};
    const double narrow[2] = {-0.5, 0.5}, wide[2] = {-3.0, 3.0}, flat[2] = {0.0, 0.0};
    xpd_plane p;

    (void)state;
    assert_true(xpd_plane_of_object(&p, f.v, f.coverage, ROWS, COLS, f.scanned, 100));
    values[4 * COLS + 5] = 0.5f;
    values[4 * COLS + 6] = NAN;
    xpd_plane_paint_phase(pixels, &p, values, narrow);
    assert_int_equal(pixels[0], XPD_COLOUR_OUTSIDE);
    assert_int_equal(pixels[4 * COLS + 4], XPD_COLOURS / 4);
    assert_int_equal(pixels[4 * COLS + 5], XPD_COLOURS / 2);
    assert_int_equal(pixels[4 * COLS + 6], XPD_COLOUR_OUTSIDE);
    xpd_plane_paint_phase(pixels, &p, values, wide);
    assert_int_equal(pixels[4 * COLS + 4], XPD_COLOURS / 2); /* the even circle: 0 is brightest */
    xpd_plane_paint_phase(pixels, &p, values, flat);
    assert_int_equal(pixels[4 * COLS + 4], XPD_COLOURS / 4);
    xpd_plane_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_lit_pixels_of_the_scanned_rectangle_count),
        cmocka_unit_test(common_phase_is_taken_off),
        cmocka_unit_test(large_arrays_are_averaged),
        cmocka_unit_test(modes_stand_side_by_side),
        cmocka_unit_test(percentiles_are_those_of_numpy),
        cmocka_unit_test(magnitude_is_painted_from_black_to_white_and_blank_where_unlit),
        cmocka_unit_test(phase_is_painted_within_the_palette),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
