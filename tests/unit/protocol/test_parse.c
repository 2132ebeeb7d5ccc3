/* Text from outside: what is refused before it becomes a document. */
#include "documents.h"

#include <stdio.h>

static json_t *refusal(const char *text, size_t length)
{
    json_t *problem, *doc = xpp_parse(text, length, &problem);

    assert_null(doc);
    assert_non_null(problem);
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), 400);
    assert_string_equal(json_string_value(json_object_get(problem, "type")),
                        "urn:xptychod:problem:malformed-json");
    return problem;
}

static void refused(const char *text, const char *words)
{
    json_t *problem = refusal(text, strlen(text));
    const char *detail = json_string_value(json_object_get(problem, "detail"));

    if (!strstr(detail, words))
        fail_msg("'%s' does not say '%s'", detail, words);
    json_decref(problem);
}

static void refuses_what_is_not_json(void **state)
{
    (void)state;
    refused("", "the body is empty");
    refused("hello", "line 1");
    refused("{", "line 1");
    refused("{\"a\":1}}", "end of file expected");
    refused("5", "'[' or '{' expected");
    refused("{\"a\":NaN}", "invalid token");
    refused("{\"a\":Infinity}", "invalid token");
    refused("{'a':1}", "line 1");
    refused("{\"a\":1,}", "line 1");
}

static void names_line_and_column(void **state)
{
    const char *text = "{\"a\": 1,\n \"b\": x}";
    json_t *problem = refusal(text, strlen(text));

    (void)state;
    assert_int_equal(json_integer_value(json_object_get(problem, "line")), 2);
    assert_true(json_integer_value(json_object_get(problem, "column")) > 0);
    json_decref(problem);
}

static void refuses_duplicate_keys(void **state)
{
    (void)state;
    refused("{\"a\":1,\"a\":2}", "duplicate object key");
}

static void refuses_numbers_that_do_not_fit(void **state)
{
    (void)state;
    refused("{\"a\":1e400}", "overflow");
    refused("{\"a\":9223372036854775808}", "too big");
}

static void refuses_bytes_that_are_not_utf8(void **state)
{
    (void)state;
    refused("{\"a\":\"\xff\"}", "unable to decode byte 0xff");
    refused("\xEF\xBB\xBF{}", "byte order mark");
}

static void refuses_nul_in_text(void **state)
{
    json_t *problem;

    (void)state;
    refused("{\"a\":\"\\u0000\"}", "\\u0000 is not allowed");
    problem = refusal("{\"a\":\"x\0y\"}", 11);
    json_decref(problem);
}

static json_t *nested(int depth, char open, char close)
{
    char text[2 * 4096];
    json_t *problem, *doc;

    memset(text, open, (size_t)depth);
    memset(text + depth, close, (size_t)depth);
    doc = xpp_parse(text, 2 * (size_t)depth, &problem);
    if (!doc) {
        assert_non_null(
            strstr(json_string_value(json_object_get(problem, "detail")), "nested deeper than 32"));
        assert_int_equal(json_integer_value(json_object_get(problem, "column")), XPP_DEPTH_MAX + 1);
        json_decref(problem);
    }
    return doc;
}

static void limits_depth(void **state)
{
    json_t *doc = nested(XPP_DEPTH_MAX, '[', ']');

    (void)state;
    assert_non_null(doc);
    json_decref(doc);
    assert_null(nested(XPP_DEPTH_MAX + 1, '[', ']'));
    assert_null(nested(4000, '[', ']'));
}

static void brackets_in_text_do_not_nest(void **state)
{
    char text[200] = "{\"a\":\"\\\"";
    json_t *doc, *problem;

    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(text, "[");
    strcat(text, "\"}");
    doc = xpp_parse(text, strlen(text), &problem);
    assert_non_null(doc);
    json_decref(doc);
}

static void unterminated_escape_is_no_overrun(void **state)
{
    char *text =
        malloc(7); /* on the heap and without a final zero, so that a sanitizer sees an overrun */
    json_t *problem;

    (void)state;
    memcpy(text, "{\"a\":\"\\", 7);
    problem = refusal(text, 7);
    json_decref(problem);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(names_line_and_column),
        cmocka_unit_test(refuses_duplicate_keys),
        cmocka_unit_test(refuses_numbers_that_do_not_fit),
        cmocka_unit_test(refuses_bytes_that_are_not_utf8),
        cmocka_unit_test(refuses_nul_in_text),
        cmocka_unit_test(limits_depth),
        cmocka_unit_test(brackets_in_text_do_not_nest),
        cmocka_unit_test(unterminated_escape_is_no_overrun),
    };

    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
