/* Problem documents. */
#include "documents.h"

static void a_problem_has_the_four_members(void **state)
{
    json_t *problem = xpp_problem(XPP_FAULT_QUEUE_FULL, "9 jobs wait", NULL, NULL);

    (void)state;
    assert_int_equal(json_object_size(problem), 4);
    assert_string_equal(json_string_value(json_object_get(problem, "type")),
                        "urn:xptychod:problem:queue-full");
    assert_string_equal(json_string_value(json_object_get(problem, "title")), "The queue is full");
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), 429);
    assert_string_equal(json_string_value(json_object_get(problem, "detail")), "9 jobs wait");
    json_decref(problem);
}

static void errors_and_more_are_taken(void **state)
{
    json_t *errors = json_array(), *more = json_object(), *problem;

    (void)state;
    xpp_errors_add(errors, "/a", "%d too many", 3);
    json_object_set_new(more, "limit", json_integer(5));
    json_object_set_new(more, "status", json_integer(200)); /* does not replace the status */
    problem = xpp_problem(XPP_FAULT_INVALID_JOB, NULL, errors, more);
    assert_int_equal(json_integer_value(json_object_get(problem, "limit")), 5);
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), 422);
    assert_string_equal(json_string_value(json_object_get(problem, "detail")), "");
    errors = json_object_get(problem, "errors");
    assert_string_equal(json_string_value(json_object_get(json_array_get(errors, 0), "pointer")),
                        "/a");
    assert_string_equal(json_string_value(json_object_get(json_array_get(errors, 0), "detail")),
                        "3 too many");
    json_decref(problem);
}

static void every_fault_is_found_by_its_suffix(void **state)
{
    (void)state;
    for (xpp_fault fault = XPP_FAULT_NONE + 1; fault <= XPP_FAULT_LOW_DISK; fault++) {
        xpp_fault found = XPP_FAULT_NONE;
        json_t *problem = xpp_problem(fault, "", NULL, NULL);

        assert_true(xpp_fault_find(&found, xpp_fault_type(fault)));
        assert_int_equal(found, fault);
        found = XPP_FAULT_NONE;
        assert_true(xpp_fault_find(&found, json_string_value(json_object_get(problem, "type"))));
        assert_int_equal(found, fault);
        assert_int_equal(json_integer_value(json_object_get(problem, "status")),
                         xpp_fault_status(fault));
        json_decref(problem);
    }
}

static void unknown_suffixes_are_not_found(void **state)
{
    xpp_fault found = XPP_FAULT_CONFLICT;

    (void)state;
    assert_false(xpp_fault_find(&found, "teapot"));
    assert_false(xpp_fault_find(&found, ""));
    assert_false(xpp_fault_find(&found, "urn:xptychod:problem:"));
    assert_int_equal(found, XPP_FAULT_CONFLICT);
}

static void a_number_that_is_no_fault_is_internal(void **state)
{
    (void)state;
    assert_int_equal(xpp_fault_status((xpp_fault)9999), 500);
    assert_string_equal(xpp_fault_type((xpp_fault)9999), "internal");
}

static void bytes_that_are_not_utf8_become_question_marks(void **state)
{
    json_t *problem = xpp_problem(XPP_FAULT_DATASET, "no file '/d/\xff.h5'", NULL, NULL),
           *text = xpp_text("\xC3\xA9");

    (void)state;
    assert_string_equal(json_string_value(json_object_get(problem, "detail")), "no file '/d/?.h5'");
    assert_string_equal(json_string_value(text), "\xC3\xA9");
    json_decref(text);
    json_decref(problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_problem_has_the_four_members),
        cmocka_unit_test(errors_and_more_are_taken),
        cmocka_unit_test(every_fault_is_found_by_its_suffix),
        cmocka_unit_test(unknown_suffixes_are_not_found),
        cmocka_unit_test(a_number_that_is_no_fault_is_internal),
        cmocka_unit_test(bytes_that_are_not_utf8_become_question_marks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
