/* Arrays of other programs (daemon/reader/convert.c). */
#include "reader/convert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static xpd_entry entry(char kind, int item, int rank, const int64_t *shape, const void *data)
{
    xpd_entry e = {.name = "a", .header = {.kind = kind, .item = item, .rank = rank, .count = 1}};

    for (int i = 0; i < rank; i++) {
        e.header.shape[i] = shape[i];
        e.header.count *= shape[i];
    }
    e.data = malloc((size_t)e.header.count * (size_t)item);
    memcpy(e.data, data, (size_t)e.header.count * (size_t)item);
    return e;
}

static void zero_frequency_moves_to_the_middle_and_only_when_needed(void **state)
{
    const int64_t shape[3] = {1, 4, 4};
    const uint16_t corner[16] = {9, 1, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0};
    const uint16_t middle[16] = {0, 0, 0, 0, 0, 0, 4, 0, 0, 2, 9, 1, 0, 0, 3, 0};
    xpd_entry e = entry('u', 2, 3, shape, corner);
    bool moved = false;

    (void)state;
    assert_int_equal(xpd_convert_zero_frequency(&e, XPE_U16, XPD_SHIFTED_AUTO, &moved, NULL),
                     XPE_OK);
    assert_true(moved);
    assert_memory_equal(e.data, middle, sizeof middle);
    assert_int_equal(xpd_convert_zero_frequency(&e, XPE_U16, XPD_SHIFTED_AUTO, &moved, NULL),
                     XPE_OK);
    assert_false(moved);
    assert_memory_equal(e.data, middle, sizeof middle);
    free(e.data);
}

static void flat_frames_are_not_guessed(void **state)
{
    const int64_t shape[3] = {1, 2, 2};
    const float flat[4] = {5, 5, 5, 5};
    xpd_entry e = entry('f', 4, 3, shape, flat);
    xpe_error err;
    bool moved;

    (void)state;
    assert_int_equal(xpd_convert_zero_frequency(&e, XPE_F32, XPD_SHIFTED_AUTO, &moved, &err),
                     XPE_INVALID);
    assert_non_null(strstr(err.text, "--shifted"));
    assert_int_equal(xpd_convert_zero_frequency(&e, XPE_F32, XPD_SHIFTED_NO, &moved, &err), XPE_OK);
    assert_false(moved);
    free(e.data);
}

static void positions_are_swapped_first_then_turned_round(void **state)
{
    const int64_t shape[3] = {1, 2, 3}; /* [2][J] is understood */
    const float columns_rows[6] = {1, 2, 3, 10, 20, 30};
    const double expected[6] = {-10, 1, -20, 2, -30, 3};
    xpd_entry e = entry('f', 4, 3, shape, columns_rows);
    double *out;

    (void)state;
    assert_int_equal(xpd_convert_positions(&out, &e, 3, true, true, false, NULL), XPE_OK);
    assert_memory_equal(out, expected, sizeof expected);
    free(out);
    free(e.data);
}

static void two_positions_are_rows_of_the_array(void **state)
{
    const int64_t shape[2] = {2, 2};
    const double values[4] = {1, 2, 3, 4};
    xpd_entry e = entry('f', 8, 2, shape, values);
    double *out;

    (void)state;
    assert_int_equal(xpd_convert_positions(&out, &e, 2, false, false, false, NULL), XPE_OK);
    assert_memory_equal(out, values, sizeof values);
    free(out);
    free(e.data);
}

static void counts_that_differ_are_named(void **state)
{
    const int64_t shape[2] = {3, 2};
    const double values[6] = {0};
    xpd_entry e = entry('f', 8, 2, shape, values);
    double *out;
    xpe_error err;

    (void)state;
    assert_int_equal(xpd_convert_positions(&out, &e, 4, false, false, false, &err), XPE_INVALID);
    assert_string_equal(err.text, "4 frames but 3 positions; give one position a frame");
    assert_null(out);
    free(e.data);
}

static void a_probe_of_doubles_becomes_single(void **state)
{
    const int64_t shape[4] = {1, 1, 2, 2};
    const double values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    xpd_entry e = entry('c', 16, 4, shape, values);
    xpe_c32 *out;
    xpe_error err;
    int64_t modes;

    (void)state;
    assert_int_equal(xpd_convert_probe(&out, &modes, &e, 2, NULL), XPE_OK);
    assert_int_equal(modes, 1);
    assert_float_equal(out[3].re, 7, 0);
    assert_float_equal(out[3].im, 8, 0);
    free(out);
    assert_int_equal(xpd_convert_probe(&out, &modes, &e, 4, &err), XPE_INVALID);
    assert_non_null(strstr(err.text, "[modes][4][4]"));
    free(e.data);
}

static void odd_and_complex_frames_are_refused(void **state)
{
    const int64_t odd[3] = {1, 3, 3}, even[3] = {1, 2, 2};
    const float zeros[9] = {0};
    xpd_entry a = entry('f', 4, 3, odd, zeros), b = entry('c', 8, 3, even, zeros);
    xpe_type type;
    xpe_error err;

    (void)state;
    assert_int_equal(xpd_convert_frames(&a, &type, &err), XPE_INVALID);
    assert_non_null(strstr(err.text, "3 x 3"));
    assert_int_equal(xpd_convert_frames(&b, &type, &err), XPE_INVALID);
    assert_non_null(strstr(err.text, "complex"));
    free(a.data);
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_frequency_moves_to_the_middle_and_only_when_needed),
        cmocka_unit_test(flat_frames_are_not_guessed),
        cmocka_unit_test(positions_are_swapped_first_then_turned_round),
        cmocka_unit_test(two_positions_are_rows_of_the_array),
        cmocka_unit_test(counts_that_differ_are_named),
        cmocka_unit_test(a_probe_of_doubles_becomes_single),
        cmocka_unit_test(odd_and_complex_frames_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
