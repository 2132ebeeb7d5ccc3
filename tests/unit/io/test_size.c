/* engine/io/size.h: bytes as messages show them. */
#include "io/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void sizes_have_the_unit_that_keeps_them_short(void **state)
{
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},
                 {1, "1 bytes"},
                 {1023, "1023 bytes"},
                 {1024, "1.0 KiB"},
                 {1.5 * 0x1p20, "1.5 MiB"},
                 {0x1p30 - 1, "1.0 GiB"},
                 {1.953e6 * 0x1p20, "1.9 TiB"},
                 {8.389e6 * 0x1p20, "8.0 TiB"},
                 {0x1p50, "1.0 PiB"},
                 {9.2e18, "8.0 EiB"}};
    char text[32];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(xpe_size_text(text, cases[i].bytes), cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_have_the_unit_that_keeps_them_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
