/* Status names, filling an error, pixel types (core/error.c). */
#include "xptychod/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_status_has_a_name_of_its_own(void **state)
{
    static const char *const names[] = {"ok",        "invalid",     "no-memory", "no-device-memory",
                                        "no-device", "device-lost", "diverged",  "cancelled",
                                        "busy",      "changed",     "io",        "internal"};

    (void)state;
    for (int i = 0; i <= XPE_INTERNAL; i++)
        assert_string_equal(xpe_status_name((xpe_status)i), names[i]);
    assert_string_equal(xpe_status_name((xpe_status)(XPE_INTERNAL + 1)), "unknown");
}

static void fail_fills_every_member_and_returns_the_status(void **state)
{
    xpe_error err;

    (void)state;
    memset(&err, 0x5a, sizeof err);
    assert_int_equal(xpe_fail(&err, XPE_IO, "/scan/path", "%d of %s", 3, "four"), XPE_IO);
    assert_int_equal(err.status, XPE_IO);
    assert_string_equal(err.pointer, "/scan/path");
    assert_string_equal(err.text, "3 of four");
    assert_string_equal(err.device, "");
    assert_int_equal(err.bytes_needed, 0);
    assert_int_equal(err.bytes_free, 0);
}

static void fail_needs_no_error_and_no_pointer(void **state)
{
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_fail(NULL, XPE_INVALID, "/x", "text"), XPE_INVALID);
    assert_int_equal(xpe_fail(&err, XPE_INVALID, NULL, "text"), XPE_INVALID);
    assert_string_equal(err.pointer, "");
}

static void long_texts_are_cut_at_the_end(void **state)
{
    static char text[2000];
    xpe_error err;

    (void)state;
    memset(text, 'a', sizeof text - 1);
    (void)xpe_fail(&err, XPE_INVALID, text, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(strlen(err.pointer), sizeof err.pointer - 1);
}

static void types_have_numpy_names_and_sizes(void **state)
{
    static const struct {
        xpe_type type;
        const char *name;
        size_t size;
    } all[] = {{XPE_U8, "uint8", 1},   {XPE_I8, "int8", 1},    {XPE_U16, "uint16", 2},
               {XPE_I16, "int16", 2},  {XPE_U32, "uint32", 4}, {XPE_I32, "int32", 4},
               {XPE_U64, "uint64", 8}, {XPE_I64, "int64", 8},  {XPE_F32, "float32", 4},
               {XPE_F64, "float64", 8}};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        xpe_type found;
        assert_string_equal(xpe_type_name(all[i].type), all[i].name);
        assert_int_equal(xpe_type_size(all[i].type), all[i].size);
        assert_true(xpe_type_find(&found, all[i].name));
        assert_int_equal(found, all[i].type);
    }
}

static void unknown_types_are_not_found(void **state)
{
    static const char *const names[] = {"",      "float",     "uint", "uint16 ",
                                        "UINT8", "complex64", "<u2"};
    xpe_type found;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(xpe_type_find(&found, names[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_name_of_its_own),
        cmocka_unit_test(fail_fills_every_member_and_returns_the_status),
        cmocka_unit_test(fail_needs_no_error_and_no_pointer),
        cmocka_unit_test(long_texts_are_cut_at_the_end),
        cmocka_unit_test(types_have_numpy_names_and_sizes),
        cmocka_unit_test(unknown_types_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
