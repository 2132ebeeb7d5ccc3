/* Lines out of bytes that arrive in any pieces. */
#include "lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char seen[256];

static void note(void *user, const char *text, size_t size)
{
    size_t used = strlen(seen);

    assert_ptr_equal(user, seen);
    assert_true(used + size + 2 < sizeof seen);
    memcpy(seen + used, text, size);
    memcpy(seen + used + size, "|", 2);
}

static void feed(xpd_lines *l, const char *text)
{
    assert_true(xpd_lines_feed(l, text, strlen(text), note, seen));
}

static void lines_are_the_same_however_they_are_cut(void **state)
{
    const char text[] = "one\n\ntwo\nthree";

    (void)state;
    for (size_t step = 1; step <= sizeof text; step++) {
        xpd_lines l = {0};

        seen[0] = '\0';
        for (size_t at = 0; at < sizeof text - 1; at += step) {
            size_t left = sizeof text - 1 - at;

            assert_true(xpd_lines_feed(&l, text + at, left < step ? left : step, note, seen));
        }
        assert_string_equal(seen, "one|two|");
        feed(&l, "\n");
        assert_string_equal(seen, "one|two|three|");
        xpd_lines_release(&l);
    }
}

static void too_long_a_line_is_left_out_and_the_next_is_read(void **state)
{
    size_t size = XPD_LINE_MAX / 2 + 1;
    char *half = malloc(size);
    xpd_lines l = {0};

    (void)state;
    assert_non_null(half);
    memset(half, 'x', size);
    seen[0] = '\0';
    for (int i = 0; i < 5; i++)
        assert_true(xpd_lines_feed(&l, half, size, note, seen));
    assert_true(l.room <= 2 * XPD_LINE_MAX);
    feed(&l, "tail\nnext\n");
    assert_string_equal(seen, "next|");
    xpd_lines_release(&l);
    free(half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_the_same_however_they_are_cut),
        cmocka_unit_test(too_long_a_line_is_left_out_and_the_next_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
