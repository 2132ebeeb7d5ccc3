/* Events as lines of JSON and of text. */
#include "documents.h"

#include <math.h>

static void progress_line_is_that_of_the_reference_program(void **state)
{
    char line[80];

    (void)state;
    assert_int_equal(xpp_progress_line(line, sizeof line, 1, 0.037012, 1), 46);
    assert_string_equal(line, "iteration    1   data error 0.037012   modes 1");
    xpp_progress_line(line, sizeof line, 12345, -NAN, 2);
    assert_string_equal(line, "iteration 12345   data error nan   modes 2");
}

static void numbers_that_are_not_finite_become_null(void **state)
{
    json_t *number = xpp_number(0.25);

    (void)state;
    assert_true(json_real_value(number) == 0.25);
    json_decref(number);
    assert_true(json_is_null(xpp_number(NAN)));
    assert_true(json_is_null(xpp_number(INFINITY)));
}

static void times_are_rfc_3339(void **state)
{
    char text[25];

    (void)state;
    xpp_time_text(text, 1769850902123);
    assert_string_equal(text, "2026-01-31T09:15:02.123Z");
    xpp_time_text(text, 0);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    xpp_time_text(text, -1);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    xpp_time_text(text, INT64_MAX);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
}

static void event_line_is_the_documented_one(void **state)
{
    json_t *body =
        document("{'stage':0,'iter':1,'data_error':0.0370118,'modes':1,'seconds':0.0021}");
    char *line = xpp_event_line(7, 1769850902123, "iter", body);

    (void)state;
    assert_string_equal(
        line,
        "{\"seq\":7,\"t\":\"2026-01-31T09:15:02.123Z\",\"type\":\"iter\",\"stage\":0,\"iter\":1,"
        "\"data_error\":0.0370118,\"modes\":1,\"seconds\":0.0021}\n");
    free(line);
    json_decref(body);
}

static void event_line_stays_one_line_and_keeps_its_number(void **state)
{
    json_t *body = document("{'text':'a\\nb','seq':99,'type':'end'}"), *event, *problem;
    char *line = xpp_event_line(3, 0, "log", body);

    (void)state;
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    event = xpp_parse(line, strlen(line), &problem);
    assert_int_equal(json_integer_value(json_object_get(event, "seq")), 3);
    assert_string_equal(json_string_value(json_object_get(event, "type")), "log");
    assert_string_equal(json_string_value(json_object_get(event, "text")), "a\nb");
    json_decref(event);
    json_decref(body);
    free(line);
}

static void event_line_needs_no_body(void **state)
{
    char *line = xpp_event_line(1, 0, "preview", NULL);

    (void)state;
    assert_string_equal(line,
                        "{\"seq\":1,\"t\":\"1970-01-01T00:00:00.000Z\",\"type\":\"preview\"}\n");
    free(line);
}

static void text_is(const char *quoted, const char *wanted)
{
    json_t *event = document(quoted);
    char text[200];

    assert_int_equal(xpp_event_text(text, sizeof text, event), strlen(wanted));
    assert_string_equal(text, wanted);
    json_decref(event);
}

static void events_as_text(void **state)
{
    (void)state;
    text_is("{'type':'iter','stage':0,'iter':1,'data_error':0.0370118,'modes':1}",
            "iteration    1   data error 0.037012   modes 1");
    text_is("{'type':'iter','iter':2,'data_error':null,'modes':1}",
            "iteration    2   data error nan   modes 1");
    text_is("{'type':'state','state':'running','reason':'','detail':''}", "# state running");
    text_is("{'type':'end','state':'failed','reason':'diverged','detail':'data error is "
            "nan','result':null}",
            "# end failed: diverged: data error is nan");
    text_is("{'type':'warning','text':'two\\nlines\\u001b'}", "# warning two lines ");
    text_is("{'type':'preview','stage':1,'iter':20}", "# preview stage 1 iteration 20");
    text_is("{'type':'resumed','from_iter':4}", "# resumed from iteration 4");
    text_is("{}", "# event");
    text_is("{'type':5,'state':[],'text':{}}", "# event");
}

static void event_text_fits_its_buffer(void **state)
{
    json_t *event = document("{'type':'log','text':'\xC3\xA9\xC3\xA9\xC3\xA9'}");
    char text[200];

    (void)state;
    for (size_t size = 0; size < 20; size++) {
        json_t *valid;

        memset(text, 'x', sizeof text);
        assert_int_equal(xpp_event_text(text, size, event), 12);
        assert_int_equal(text[size], 'x');
        if (size == 0)
            continue;
        assert_non_null(memchr(text, '\0', size));
        valid = json_string(text); /* NULL unless it is UTF-8 */
        assert_non_null(valid);
        json_decref(valid);
    }
    json_decref(event);
}

static void hostile_numbers_stay_in_the_line(void **state)
{
    (void)state;
    text_is("{'type':'iter','iter':9223372036854775807,'data_error':'x','modes':-9}",
            "iteration 999999999   data error nan   modes 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_line_is_that_of_the_reference_program),
        cmocka_unit_test(numbers_that_are_not_finite_become_null),
        cmocka_unit_test(times_are_rfc_3339),
        cmocka_unit_test(event_line_is_the_documented_one),
        cmocka_unit_test(event_line_stays_one_line_and_keeps_its_number),
        cmocka_unit_test(event_line_needs_no_body),
        cmocka_unit_test(events_as_text),
        cmocka_unit_test(event_text_fits_its_buffer),
        cmocka_unit_test(hostile_numbers_stay_in_the_line),
    };

    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
