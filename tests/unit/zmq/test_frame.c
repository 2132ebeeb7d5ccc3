/* The framing of requests: both kinds of client, and every way to be malformed. */
#include "frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define S(text) ((xpd_slice){text, sizeof text - 1})
#define PARSE(frame, ...)                                                                          \
    parse(frame, (const xpd_slice[]){__VA_ARGS__},                                                 \
          sizeof((const xpd_slice[]){__VA_ARGS__}) / sizeof(xpd_slice))

static const char *parse(xpd_frame *frame, const xpd_slice *parts, size_t count)
{
    memset(frame, 0xa5, sizeof *frame);
    return xpd_frame_parse(frame, parts, count);
}

static void dealer_message_has_no_delimiter(void **state)
{
    xpd_frame f;

    (void)state;
    assert_null(PARSE(&f, S("peer"), S("XPT1"), S("7"), S("{}")));
    assert_false(f.delimiter);
    assert_memory_equal(f.request.data, "7", 1);
    assert_int_equal(f.request.size, 1);
    assert_memory_equal(f.json.data, "{}", 2);
    assert_int_equal(f.json.size, 2);
}

static void req_message_has_its_delimiter_noted(void **state)
{
    xpd_frame f;

    (void)state;
    assert_null(PARSE(&f, S("peer"), S(""), S("XPT1"), S("id"), S("{}")));
    assert_true(f.delimiter);
    assert_int_equal(f.request.size, 2);
    assert_int_equal(f.json.size, 2);
}

static void request_id_may_be_empty_and_32_bytes_long(void **state)
{
    xpd_frame f;

    (void)state;
    assert_null(PARSE(&f, S("peer"), S("XPT1"), S(""), S("{}")));
    assert_int_equal(f.request.size, 0);
    assert_null(PARSE(&f, S("peer"), S("XPT1"), S("01234567890123456789012345678901"), S("{}")));
    assert_int_equal(f.request.size, 32);
}

static void longer_request_id_is_refused_and_not_echoed(void **state)
{
    xpd_frame f;

    (void)state;
    assert_non_null(
        PARSE(&f, S("peer"), S("XPT1"), S("012345678901234567890123456789012"), S("{}")));
    assert_int_equal(f.request.size, 0);
    assert_int_equal(f.json.size, 0);
}

static void short_messages_are_refused(void **state)
{
    xpd_frame f;

    (void)state;
    assert_non_null(PARSE(&f, S("peer")));
    assert_false(f.delimiter);
    assert_non_null(PARSE(&f, S("peer"), S("")));
    assert_true(f.delimiter);
    assert_non_null(PARSE(&f, S("peer"), S("XPT1")));
    assert_non_null(PARSE(&f, S("peer"), S("XPT1"), S("9")));
    assert_int_equal(f.request.size, 1); /* enough to be answered with it */
}

static void other_magic_is_refused(void **state)
{
    xpd_frame f;

    (void)state;
    assert_non_null(PARSE(&f, S("peer"), S("XPT2"), S("1"), S("{}")));
    assert_non_null(PARSE(&f, S("peer"), S("XPT10"), S("1"), S("{}")));
    assert_non_null(PARSE(&f, S("peer"), S(""), S(""), S("XPT1"), S("1"), S("{}")));
}

static void extra_parts_are_refused_also_those_that_were_dropped(void **state)
{
    const xpd_slice kept[XPD_FRAME_PARTS_MAX] = {S("peer"), S("XPT1"), S("1"), S("{}"), S("more")};
    xpd_frame f;

    (void)state;
    assert_non_null(parse(&f, kept, XPD_FRAME_PARTS_MAX));
    assert_int_equal(f.json.size, 0);
    assert_non_null(parse(&f, kept, 100000));
    assert_int_equal(f.json.size, 0);
    assert_memory_equal(f.request.data, "1", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dealer_message_has_no_delimiter),
        cmocka_unit_test(req_message_has_its_delimiter_noted),
        cmocka_unit_test(request_id_may_be_empty_and_32_bytes_long),
        cmocka_unit_test(longer_request_id_is_refused_and_not_echoed),
        cmocka_unit_test(short_messages_are_refused),
        cmocka_unit_test(other_magic_is_refused),
        cmocka_unit_test(extra_parts_are_refused_also_those_that_were_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
