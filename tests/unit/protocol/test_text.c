/* UTF-8 counting and cutting, near names. */
#include "documents.h"

#include "text.h"

static void characters_are_code_points(void **state)
{
    (void)state;
    assert_int_equal(xpp_utf8_count(""), 0);
    assert_int_equal(xpp_utf8_count("abc"), 3);
    assert_int_equal(xpp_utf8_count("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 3);
}

static void a_cut_keeps_characters_whole(void **state)
{
    (void)state;
    assert_int_equal(xpp_utf8_cut("abc", 5), 3);
    assert_int_equal(xpp_utf8_cut("abc", 2), 2);
    assert_int_equal(xpp_utf8_cut("a\xE2\x82\xAC", 3), 1);
    assert_int_equal(xpp_utf8_cut("a\xE2\x82\xAC", 4), 4);
    assert_int_equal(xpp_utf8_cut("\xE2\x82\xAC", 1), 0);
}

static void distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(xpp_edit_distance("path", "path", 9), 0);
    assert_int_equal(xpp_edit_distance("Path", "PATH", 9), 0);
    assert_int_equal(xpp_edit_distance("interations", "iterations", 9), 1);
    assert_int_equal(xpp_edit_distance("fromat", "format", 9), 1);
    assert_int_equal(xpp_edit_distance("kitten", "sitting", 9), 3);
    assert_int_equal(xpp_edit_distance("", "abc", 9), 3);
    assert_int_equal(xpp_edit_distance("abc", "", 9), 3);
    assert_int_equal(xpp_edit_distance("", "", 9), 0);
}

static void distance_stops_past_its_limit(void **state)
{
    char name[200];

    (void)state;
    assert_int_equal(xpp_edit_distance("abcdef", "uvwxyz", 2), 3);
    memset(name, 'a', sizeof name);
    name[199] = '\0';
    assert_int_equal(xpp_edit_distance(name, name, 2), 3);
    name[64] = '\0';
    assert_int_equal(xpp_edit_distance(name, name, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_code_points),
        cmocka_unit_test(a_cut_keeps_characters_whole),
        cmocka_unit_test(distance_counts_edits),
        cmocka_unit_test(distance_stops_past_its_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
