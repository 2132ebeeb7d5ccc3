/* From raw counts to amplitudes, and what becomes a mask (algorithm.md 3, "Masked pixels"). */
#include "engine_run.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int second_iteration[] = {2};

static xpe_stage blind_stage(void)
{
    xpe_stage stage = xpt_stage(3);

    stage.mode_schedule = second_iteration;
    stage.schedule_count = 1;
    return stage;
}

static const xpt_division divided = {2, 2, 5};

/* Whole counts of a scan that fit every integer type but for what a test changes: below 100. */
static xpt_case *whole_case(void)
{
    xpt_case *c = xpt_small_create(8, 4, 2, 1);
    float most = 0;

    for (int64_t i = 0; i < c->num_frames * 64; i++)
        most = fmaxf(most, c->counts[i]);
    for (int64_t i = 0; i < c->num_frames * 64; i++)
        c->counts[i] = floorf(c->counts[i] * 99 / most);
    return c;
}

/* --------------------------------------------------------------------------------- pixel types */

static void store(void *to, xpe_type type, int64_t i, double value)
{
    switch (type) {
    case XPE_U8:
        ((uint8_t *)to)[i] = (uint8_t)value;
        break;
    case XPE_I8:
        ((int8_t *)to)[i] = (int8_t)value;
        break;
    case XPE_U16:
        ((uint16_t *)to)[i] = (uint16_t)value;
        break;
    case XPE_I16:
        ((int16_t *)to)[i] = (int16_t)value;
        break;
    case XPE_U32:
        ((uint32_t *)to)[i] = (uint32_t)value;
        break;
    case XPE_I32:
        ((int32_t *)to)[i] = (int32_t)value;
        break;
    case XPE_U64:
        ((uint64_t *)to)[i] = (uint64_t)value;
        break;
    case XPE_I64:
        ((int64_t *)to)[i] = (int64_t)value;
        break;
    case XPE_F32:
        ((float *)to)[i] = (float)value;
        break;
    case XPE_F64:
        ((double *)to)[i] = value;
        break;
    }
}

static void set_largest(void *to, xpe_type type, int64_t i)
{
    static const uint8_t u8 = UINT8_MAX;
    static const int8_t i8 = INT8_MAX;
    static const uint16_t u16 = UINT16_MAX;
    static const int16_t i16 = INT16_MAX;
    static const uint32_t u32 = UINT32_MAX;
    static const int32_t i32 = INT32_MAX;
    static const uint64_t u64 = UINT64_MAX;
    static const int64_t i64 = INT64_MAX;
    static const void *const largest[] = {&u8, &i8, &u16, &i16, &u32, &i32, &u64, &i64};
    size_t size = xpe_type_size(type);

    memcpy((char *)to + (size_t)i * size, largest[type], size);
}

static bool is_signed(xpe_type type)
{
    return type == XPE_I8 || type == XPE_I16 || type == XPE_I32 || type == XPE_I64;
}

static void *stored_as(const xpt_case *c, xpe_type type)
{
    void *frames = xpt_new((size_t)(c->num_frames * c->n * c->n), xpe_type_size(type));

    for (int64_t i = 0; i < c->num_frames * c->n * c->n; i++)
        store(frames, type, i, (double)c->counts[i]);
    return frames;
}

static void every_type_of_the_same_counts_gives_the_same_bits(void **state)
{
    xpt_case *c = whole_case();
    xpe_stage stage = blind_stage();
    xpt_result *right = xpt_run_well(&c->desc, &stage, divided);

    (void)state;
    for (int type = XPE_U8; type <= XPE_F64; type++) {
        void *frames = stored_as(c, (xpe_type)type);
        xpt_result *got;
        c->desc.scan.frames = frames;
        c->desc.scan.type = (xpe_type)type;
        got = xpt_run_well(&c->desc, &stage, divided);
        xpt_assert_same(right, got);
        xpt_result_destroy(got);
        free(frames);
    }
    xpt_result_destroy(right);
    xpt_case_destroy(c);
}

/* The largest value of an integer type, and negative ones, are masked: as an explicit mask there.
 */
static void bad_values_of_integer_types_are_masked(void **state)
{
    (void)state;
    for (int type = XPE_U8; type <= XPE_I64; type++) {
        xpt_case *c = whole_case(), *marked = whole_case();
        xpe_stage stage = blind_stage();
        void *frames = stored_as(c, (xpe_type)type);
        xpt_result *right, *got, *plain = xpt_run_well(&c->desc, &stage, divided);
        const char *what;
        xpt_case_hide(marked, 0.1, 5, 7);
        right = xpt_run_well(&marked->desc, &stage, divided);
        for (int64_t i = 0; i < c->num_frames * 64; i++)
            if (marked->mask[i]) {
                if (is_signed((xpe_type)type) && i % 2)
                    store(frames, (xpe_type)type, i, i % 3 ? -1 : -100);
                else
                    set_largest(frames, (xpe_type)type, i);
            }
        c->desc.scan.frames = frames;
        c->desc.scan.type = (xpe_type)type;
        got = xpt_run_well(&c->desc, &stage, divided);
        xpt_assert_same(right, got);
        assert_false(xpt_same(plain, got, &what)); /* the mask does something */
        xpt_result_destroy(plain);
        xpt_result_destroy(right);
        xpt_result_destroy(got);
        free(frames);
        xpt_case_destroy(marked);
        xpt_case_destroy(c);
    }
}

static void one_below_the_largest_value_is_a_count(void **state)
{
    xpt_case *c = whole_case();
    xpe_stage stage = xpt_stage(1);
    uint8_t *frames = stored_as(c, XPE_U8);
    xpt_result *got, *right;

    (void)state;
    frames[3] = 254;
    c->counts[3] = 254;
    right = xpt_run_well(&c->desc, &stage, divided);
    c->desc.scan.frames = frames;
    c->desc.scan.type = XPE_U8;
    got = xpt_run_well(&c->desc, &stage, divided);
    xpt_assert_same(right, got);
    xpt_result_destroy(right);
    xpt_result_destroy(got);
    free(frames);
    xpt_case_destroy(c);
}

static void floats_that_are_not_finite_are_masked_and_negative_ones_count_as_zero(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const float negative[] = {-1e-30f, -1.0f, -FLT_MAX, -0.0f};
    xpt_case *c = whole_case(), *right_case = whole_case();
    xpe_stage stage = blind_stage();
    xpt_result *right, *got;

    (void)state;
    xpt_case_hide(right_case, 0.1, 5, 8);
    for (int64_t i = 0; i < c->num_frames * 64; i++) {
        if (right_case->mask[i])
            c->counts[i] = bad[i % 3];
        else if (i % 11 == 0) {
            c->counts[i] = negative[i % 4];
            right_case->counts[i] = 0;
        }
    }
    right = xpt_run_well(&right_case->desc, &stage, divided);
    got = xpt_run_well(&c->desc, &stage, divided);
    xpt_assert_same(right, got);
    xpt_result_destroy(right);
    xpt_result_destroy(got);
    xpt_case_destroy(right_case);
    xpt_case_destroy(c);
}

static void counts_at_and_above_saturation_are_masked(void **state)
{
    xpt_case *c = whole_case(), *marked = whole_case();
    xpe_stage stage = blind_stage();
    xpt_result *right, *got;
    int64_t hidden = 0;

    (void)state;
    for (int64_t i = 0; i < c->num_frames * 64; i++) {
        marked->mask[i] = c->counts[i] >= 40 ? 1 : 0;
        hidden += marked->mask[i];
    }
    assert_true(hidden > 10);
    marked->desc.scan.mask = marked->mask;
    marked->desc.scan.mask_frames = c->num_frames;
    right = xpt_run_well(&marked->desc, &stage, divided);
    c->desc.scan.saturation = 40;
    got = xpt_run_well(&c->desc, &stage, divided);
    xpt_assert_same(right, got);
    xpt_result_destroy(right);
    xpt_result_destroy(got);
    xpt_case_destroy(marked);
    xpt_case_destroy(c);
}

/* --------------------------------------------------------------------------------------- masks */

static void what_stands_under_a_mask_changes_no_bit(void **state)
{
    static const float under[] = {0, 1e4f, 3e38f, NAN, INFINITY, -7};

    (void)state;
    for (int known = 0; known < 2; known++) {
        xpt_result *right = NULL;
        for (size_t i = 0; i < sizeof under / sizeof *under; i++) {
            xpt_case *c = whole_case();
            xpe_stage stage = known ? xpt_stage(3) : blind_stage();
            xpt_result *got;
            xpt_case_hide(c, 0.05, under[i], 9);
            if (known)
                xpt_case_know(c);
            got = xpt_run_well(&c->desc, &stage, divided);
            if (right) {
                xpt_assert_same(right, got);
                xpt_result_destroy(got);
            } else {
                right = got;
            }
            xpt_case_destroy(c);
        }
        xpt_result_destroy(right);
    }
}

static void a_mask_that_hides_nothing_changes_no_bit_and_one_that_hides_does(void **state)
{
    xpt_case *c = whole_case();
    xpe_stage stage = blind_stage();
    xpt_result *plain = xpt_run_well(&c->desc, &stage, divided), *empty, *hidden;
    const char *what;

    (void)state;
    xpt_case_hide(c, 0, 0, 1);
    empty = xpt_run_well(&c->desc, &stage, divided);
    xpt_assert_same(plain, empty);
    c->mask[20] = 1;
    hidden = xpt_run_well(&c->desc, &stage, divided);
    assert_false(xpt_same(plain, hidden, &what));
    xpt_result_destroy(plain);
    xpt_result_destroy(empty);
    xpt_result_destroy(hidden);
    xpt_case_destroy(c);
}

static void one_mask_for_all_is_that_mask_for_each(void **state)
{
    xpt_case *c = whole_case();
    xpe_stage stage = blind_stage();
    xpt_result *one, *each;

    (void)state;
    xpt_case_hide(c, 0.1, 0, 2);
    for (int64_t j = 1; j < c->num_frames; j++)
        memcpy(c->mask + j * 64, c->mask, 64);
    each = xpt_run_well(&c->desc, &stage, divided);
    c->desc.scan.mask_frames = 1;
    one = xpt_run_well(&c->desc, &stage, divided);
    xpt_assert_same(one, each);
    xpt_result_destroy(one);
    xpt_result_destroy(each);
    xpt_case_destroy(c);
}

static void any_value_but_zero_masks(void **state)
{
    xpt_case *c = whole_case();
    xpe_stage stage = xpt_stage(1);
    xpt_result *ones, *others;

    (void)state;
    xpt_case_hide(c, 0.1, 0, 3);
    ones = xpt_run_well(&c->desc, &stage, divided);
    for (int64_t i = 0; i < c->num_frames * 64; i++)
        c->mask[i] = (uint8_t)(c->mask[i] ? 2 + i % 254 : 0);
    others = xpt_run_well(&c->desc, &stage, divided);
    xpt_assert_same(ones, others);
    xpt_result_destroy(ones);
    xpt_result_destroy(others);
    xpt_case_destroy(c);
}

static void a_frame_that_is_masked_whole_is_harmless(void **state)
{
    xpt_case *c = whole_case();
    xpe_stage stage = blind_stage();
    xpt_result *got;

    (void)state;
    xpt_case_hide(c, 0, 0, 1);
    memset(c->mask + 5 * 64, 1, 64);
    got = xpt_run_well(&c->desc, &stage, divided);
    assert_true(isfinite(got->errors[2]));
    for (int64_t i = 0; i < c->rows * c->cols; i++)
        assert_true(isfinite(got->object[i].re) && isfinite(got->object[i].im));
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

static void a_frame_without_counts_is_harmless(void **state)
{
    xpt_case *c = whole_case();
    xpe_stage stage = blind_stage();
    xpt_result *got;

    (void)state;
    memset(c->counts + 5 * 64, 0, 64 * sizeof *c->counts);
    got = xpt_run_well(&c->desc, &stage, divided);
    assert_true(isfinite(got->errors[2]));
    xpt_result_destroy(got);
    xpt_case_destroy(c);
}

/* ------------------------------------------------------------------------------------ refusals */

static xpt_result *refused(xpt_case *c, xpe_status status, const char *pointer, const char *part)
{
    xpe_stage stage = xpt_stage(1);
    xpt_result *got = xpt_run(&c->desc, &stage, (xpt_division){0});

    xpt_assert_refused(&got->error, status, part);
    assert_string_equal(got->error.pointer, pointer);
    assert_int_equal(got->status, status);
    return got;
}

static void scans_without_any_count_are_refused_with_the_numbers(void **state)
{
    xpt_case *c = whole_case();

    (void)state;
    memset(c->counts, 0, (size_t)(c->num_frames * 64) * sizeof *c->counts);
    xpt_result_destroy(refused(c, XPE_INVALID, "/scan/path", "0 of 1024 pixels are masked"));
    xpt_case_hide(c, 2, 9, 1);
    xpt_result_destroy(refused(c, XPE_INVALID, "/scan/path", "1024 of 1024 pixels are masked"));
    xpt_case_destroy(c);
}

static void masks_of_another_length_are_refused(void **state)
{
    xpt_case *c = whole_case();

    (void)state;
    c->desc.scan.mask = c->mask;
    c->desc.scan.mask_frames = 3;
    xpt_result_destroy(refused(c, XPE_INVALID, "/scan/path", "3 frames for a scan of 16"));
    c->desc.scan.mask_frames = 0;
    xpt_result_destroy(refused(c, XPE_INVALID, "/scan/path", "0 frames for a scan of 16"));
    xpt_case_destroy(c);
}

static void saturations_that_make_no_sense_are_refused(void **state)
{
    static const double bad[] = {-1, NAN, INFINITY};

    (void)state;
    for (int i = 0; i < 3; i++) {
        xpt_case *c = whole_case();
        c->desc.scan.saturation = bad[i];
        xpt_result_destroy(refused(c, XPE_INVALID, "/scan/saturation", "saturation"));
        xpt_case_destroy(c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_the_same_counts_gives_the_same_bits),
        cmocka_unit_test(bad_values_of_integer_types_are_masked),
        cmocka_unit_test(one_below_the_largest_value_is_a_count),
        cmocka_unit_test(floats_that_are_not_finite_are_masked_and_negative_ones_count_as_zero),
        cmocka_unit_test(counts_at_and_above_saturation_are_masked),
        cmocka_unit_test(what_stands_under_a_mask_changes_no_bit),
        cmocka_unit_test(a_mask_that_hides_nothing_changes_no_bit_and_one_that_hides_does),
        cmocka_unit_test(one_mask_for_all_is_that_mask_for_each),
        cmocka_unit_test(any_value_but_zero_masks),
        cmocka_unit_test(a_frame_that_is_masked_whole_is_harmless),
        cmocka_unit_test(a_frame_without_counts_is_harmless),
        cmocka_unit_test(scans_without_any_count_are_refused_with_the_numbers),
        cmocka_unit_test(masks_of_another_length_are_refused),
        cmocka_unit_test(saturations_that_make_no_sense_are_refused),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
