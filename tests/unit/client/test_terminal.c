/* What a terminal gets to see: text made harmless, units, tables, wrapped paragraphs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli.h"

static void shows(const char *text, bool lines, const char *wanted)
{
    char *out = NULL;
    size_t size;
    FILE *file = open_memstream(&out, &size);

    cli_put(file, text, lines);
    (void)fclose(file);
    assert_string_equal(out, wanted);
    free(out);
}

static void control_characters_are_escaped(void **state)
{
    (void)state;
    shows("a\x1b[31mb\x07", false, "a\\x1b[31mb\\x07");
    shows("a\nb\tc\rd\x7f", false, "a\\x0ab\\x09c\\x0dd\\x7f");
    shows("a\nb\tc\r", true, "a\nb\tc\\x0d");
    shows("\xc2\x9b"
          "31m",
          false, "\\xc2\\x9b31m"); /* C1: starts a sequence as well */
    shows("\xe2\x80\xae"
          "abc",
          false,
          "\\xe2\\x80\\xae"
          "abc"); /* turns the direction of text */
}

static void text_of_the_world_stays(void **state)
{
    (void)state;
    shows("Probe \xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xac", false,
          "Probe \xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xac");
}

static void broken_utf8_is_escaped(void **state)
{
    (void)state;
    shows("\xff", false, "\\xff");
    shows("\xc3", false, "\\xc3");
    shows("\xc0\x80", false, "\\xc0\\x80");          /* overlong */
    shows("\xed\xa0\x80", false, "\\xed\\xa0\\x80"); /* half of a surrogate pair */
    shows("\xf4\x90\x80\x80", false, "\\xf4\\x90\\x80\\x80");
}

static void durations_have_units(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0.0021, "2 ms"},    {1.25, "1.2 s"},      {59.9, "59.9 s"},   {60, "1 min 00 s"},
                 {185, "3 min 05 s"}, {3600, "1 h 00 min"}, {90061, "1 d 1 h"}, {-1, "-"},
                 {NAN, "-"},          {INFINITY, "-"}};
    char text[32];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cli_duration(text, sizeof(text), cases[i].seconds);
        assert_string_equal(text, cases[i].text);
    }
}

static void bytes_have_units(void **state)
{
    char text[32];

    (void)state;
    cli_bytes(text, sizeof(text), 1000);
    assert_string_equal(text, "1000 B");
    cli_bytes(text, sizeof(text), 1024);
    assert_string_equal(text, "1.0 KiB");
    cli_bytes(text, sizeof(text), 1.5 * 1073741824);
    assert_string_equal(text, "1.5 GiB");
}

static void times_are_local(void **state)
{
    char text[64];

    (void)state;
    assert_int_equal(setenv("TZ", "UTC-2", 1), 0);
    cli_time(text, sizeof(text), "2026-01-31T23:15:02.123Z");
    assert_string_equal(text, "2026-02-01 01:15:02");
    cli_time(text, sizeof(text), "yesterday");
    assert_string_equal(text, "-");
}

static void tables_are_aligned(void **state)
{
    static const char *const heads[] = {"NAME", "N", "TEXT"};
    cli_table table = {.heads = heads, .align = "lrl", .columns = 3};
    char *out = NULL;
    size_t size;
    FILE *file = open_memstream(&out, &size);

    (void)state;
    assert_true(cli_table_add(&table, (const char *const[]){"a", "1", "x"}));
    assert_true(cli_table_add(
        &table, (const char *const[]){"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", "100", "\x1b"}));
    cli_table_print(file, &table);
    (void)fclose(file);
    assert_string_equal(out, "NAME     N  TEXT\n"
                             "a        1  x\n"
                             "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9  100  \\x1b\n");
    free(out);
    cli_table_release(&table);
}

static void paragraphs_wrap_at_blanks(void **state)
{
    char *out = NULL;
    size_t size;
    FILE *file = open_memstream(&out, &size);

    (void)state;
    cli_put_paragraph(file, "aaa bbb ccc\nd", 2, 9);
    (void)fclose(file);
    assert_string_equal(out, "aaa bbb\n  ccc\n  d\n");
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_escaped),
        cmocka_unit_test(text_of_the_world_stays),
        cmocka_unit_test(broken_utf8_is_escaped),
        cmocka_unit_test(durations_have_units),
        cmocka_unit_test(bytes_have_units),
        cmocka_unit_test(times_are_local),
        cmocka_unit_test(tables_are_aligned),
        cmocka_unit_test(paragraphs_wrap_at_blanks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
