/* Headers of NumPy arrays (daemon/reader/npy.c). */
#include "reader/npy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Version 1 header around a literal. */
static xpe_status decode(xpd_npy *out, const char *literal, xpe_error *err)
{
    uint8_t header[512];
    size_t length = strlen(literal);

    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (uint8_t)length;
    header[9] = (uint8_t)(length >> 8);
    memcpy(header + 10, literal, length);
    assert_int_equal(xpd_npy_header_size(header), 10 + length);
    return xpd_npy_decode(out, header, 10 + length, "a", err);
}

static void decodes_what_numpy_writes(void **state)
{
    xpd_npy a;
    xpe_error err;
    xpe_type type;
    char shape[128];

    (void)state;
    assert_int_equal(
        decode(&a, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 516, 128, 128), }  \n",
               &err),
        XPE_OK);
    assert_int_equal(a.rank, 4);
    assert_int_equal(a.count, 516 * 128 * 128);
    assert_true(xpd_npy_type(&a, &type));
    assert_int_equal(type, XPE_F32);
    xpd_npy_squeeze(&a, 3);
    assert_string_equal(xpd_npy_shape(&a, shape), "[516][128][128]");
    assert_int_equal(decode(&a, "{\"descr\":\">u2\",\"shape\":(7,),\"fortran_order\":True}", &err),
                     XPE_OK);
    assert_true(a.swapped && a.fortran);
    assert_int_equal(a.rank, 1);
    assert_int_equal(decode(&a, "{'descr': '<c8', 'fortran_order': False, 'shape': ()}", &err),
                     XPE_OK);
    assert_int_equal(a.count, 1);
    assert_false(xpd_npy_type(&a, &type));
}

static void refuses_pickles_structures_and_odd_types(void **state)
{
    xpd_npy a;
    xpe_error err;

    (void)state;
    assert_int_equal(decode(&a, "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", &err),
                     XPE_INVALID);
    assert_non_null(strstr(err.text, "pickled"));
    assert_int_equal(
        decode(&a, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,)}", &err),
        XPE_INVALID);
    assert_non_null(strstr(err.text, "structured"));
    assert_int_equal(
        decode(&a, "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,)}", &err),
        XPE_INVALID);
    assert_non_null(strstr(err.text, "M8"));
    assert_int_equal(decode(&a, "{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}", &err),
                     XPE_INVALID);
    assert_int_equal(decode(&a, "{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}", &err),
                     XPE_INVALID);
}

static void refuses_broken_headers(void **state)
{
    static const char *const broken[] = {
        "",
        "{",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'shape': (2,)}",
        "{'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'extra': 1}",
        "{'descr': '<f4444444444444444444444444444444444444', 'fortran_order': False, 'shape': "
        "(2,)}",
    };
    xpd_npy a;

    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        xpe_error err = {0};
        size_t length = strlen(broken[i]);
        uint8_t header[512] = "\x93NUMPY\x01";
        memcpy(header + 10, broken[i], length);
        assert_int_equal(xpd_npy_decode(&a, header, 10 + length, "a", &err), XPE_INVALID);
        assert_true(err.text[0] != '\0');
    }
}

static void refuses_empty_and_impossible_sizes(void **state)
{
    xpd_npy a;
    xpe_error err;

    (void)state;
    assert_int_equal(decode(&a, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0)}", &err),
                     XPE_INVALID);
    assert_non_null(strstr(err.text, "empty"));
    assert_int_equal(decode(&a,
                            "{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000000000, "
                            "4000000000000000)}",
                            &err),
                     XPE_INVALID);
    assert_non_null(strstr(err.text, "too large"));
}

static void header_size_is_bounded(void **state)
{
    const uint8_t text[12] = "not numpy..", longest[12] = "\x93NUMPY\x02\x00\xff\xff\xff\x7f",
                  four[12] = "\x93NUMPY\x04\x00\x10";

    (void)state;
    assert_int_equal(xpd_npy_header_size(text), 0);
    assert_int_equal(xpd_npy_header_size(longest), 0);
    assert_int_equal(xpd_npy_header_size(four), 0);
}

static void fortran_order_and_byte_order_become_ours(void **state)
{
    xpd_npy a = {.kind = 'u',
                 .item = 2,
                 .swapped = true,
                 .fortran = true,
                 .rank = 2,
                 .shape = {2, 3},
                 .count = 6};
    const uint8_t big[12] = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6}; /* column after column */
    const uint16_t expected[6] = {1, 2, 3, 4, 5, 6};
    void *data = malloc(sizeof big);
    xpe_error err;

    (void)state;
    memcpy(data, big, sizeof big);
    assert_int_equal(xpd_npy_normalise(&a, &data, &err), XPE_OK);
    assert_memory_equal(data, expected, sizeof expected);
    free(data);
}

static void half_floats_become_floats(void **state)
{
    xpd_npy a = {.kind = 'f', .item = 2, .rank = 1, .shape = {6}, .count = 6};
    const uint16_t halves[6] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00, 0x0000};
    const float expected[6] = {1, -2, 65504, 0x1p-24f, INFINITY, 0};
    void *data = malloc(sizeof halves);
    xpe_error err;

    (void)state;
    memcpy(data, halves, sizeof halves);
    assert_int_equal(xpd_npy_normalise(&a, &data, &err), XPE_OK);
    assert_int_equal(a.item, 4);
    assert_memory_equal(data, expected, sizeof expected);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_what_numpy_writes),
        cmocka_unit_test(refuses_pickles_structures_and_odd_types),
        cmocka_unit_test(refuses_broken_headers),
        cmocka_unit_test(refuses_empty_and_impossible_sizes),
        cmocka_unit_test(header_size_is_bounded),
        cmocka_unit_test(fortran_order_and_byte_order_become_ours),
        cmocka_unit_test(half_floats_become_floats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
