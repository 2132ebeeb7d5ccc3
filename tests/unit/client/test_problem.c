/* Problem documents as sentences, and answers that are no problem documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <xptychod/protocol.h>

#include "http.h"

static void says(const char *document, const char *wanted)
{
    char text[512];
    json_t *doc = json_loads(document, 0, NULL);

    assert_non_null(doc);
    xpc_problem_text(text, sizeof(text), doc);
    assert_string_equal(text, wanted);
    json_decref(doc);
}

static void every_error_is_a_line_with_its_pointer(void **state)
{
    (void)state;
    says("{\"detail\": \"2 errors in the job document\", \"errors\": ["
         "{\"pointer\": \"/recon/interations\", \"detail\": \"unknown key\"},"
         "{\"pointer\": \"\", \"detail\": \"'scan' is missing\"}]}",
         "2 errors in the job document\n"
         "  /recon/interations: unknown key\n"
         "  (the document): 'scan' is missing");
}

static void a_single_error_is_not_said_twice(void **state)
{
    (void)state;
    says("{\"detail\": \"no such file\", \"errors\": [{\"pointer\": \"/scan/path\", "
         "\"detail\": \"no such file\"}]}",
         "/scan/path: no such file");
}

static void without_a_detail_the_title_speaks(void **state)
{
    (void)state;
    says("{\"title\": \"The queue is full\"}", "The queue is full");
    says("{\"detail\": 5, \"errors\": 7}", "the daemon gave no reason");
    says("{\"detail\": \"x\", \"errors\": [5, {\"pointer\": 7}]}",
         "x\n  (the document): \n  (the document): ");
}

static void what_does_not_fit_is_counted(void **state)
{
    char text[600];
    json_t *errors = json_array(), *problem;
    int i;

    (void)state;
    for (i = 0; i < 100; i++)
        xpp_errors_add(errors, "/recon/iterations", "error number %d", i);
    problem = xpp_problem(XPP_FAULT_INVALID_JOB, "100 errors", errors, NULL);
    xpc_problem_text(text, sizeof(text), problem);
    assert_true(strlen(text) < sizeof(text));
    assert_non_null(strstr(text, "error number 0"));
    assert_non_null(strstr(text, " more"));
    json_decref(problem);
}

static xpc_error fault_of(int status, const char *type, const char *body, xpc_status wanted)
{
    xpc_response response = {.status = status};
    xpc_error err;
    json_t *problem = NULL;

    (void)snprintf(response.type, sizeof(response.type), "%s", type);
    assert_true(xpc_buffer_add(&response.body, body, strlen(body), 1000));
    assert_int_equal(xpc_response_fault(&response, &problem, &err), wanted);
    json_decref(problem);
    xpc_response_release(&response);
    return err;
}

static void a_refusal_has_type_and_status(void **state)
{
    xpc_error err = fault_of(422, "application/problem+json",
                             "{\"type\": \"urn:xptychod:problem:invalid-job\", \"detail\": \"no\"}",
                             XPC_REFUSED);

    (void)state;
    assert_string_equal(err.type, "invalid-job");
    assert_string_equal(err.text, "no");
    assert_int_equal(err.http_status, 422);
}

static void an_answer_of_the_http_library_is_no_riddle(void **state)
{
    xpc_error err = fault_of(431, "text/html", "<html>no</html>", XPC_REFUSED);

    (void)state;
    assert_string_equal(err.text, "the daemon answered HTTP 431 without saying why");
    assert_string_equal(err.type, "");
    (void)fault_of(500, "application/problem+json", "{\"detail\": \"defect\"}", XPC_FAULT);
    (void)fault_of(302, "text/html", "", XPC_FAULT);
    (void)fault_of(422, "application/problem+json", "{broken", XPC_REFUSED);
}

static void media_types_lose_parameters_and_case(void **state)
{
    char type[16];

    (void)state;
    xpc_media_type(type, sizeof(type), "Text/HTML; charset=utf-8");
    assert_string_equal(type, "text/html");
    xpc_media_type(type, sizeof(type), "application/x-very-long");
    assert_int_equal(strlen(type), 15);
    xpc_media_type(type, sizeof(type), NULL);
    assert_string_equal(type, "");
}

static void a_buffer_stops_at_its_limit(void **state)
{
    xpc_buffer buffer = {0};

    (void)state;
    assert_true(xpc_buffer_add(&buffer, "12345", 5, 8));
    assert_false(xpc_buffer_add(&buffer, "6789", 4, 8));
    assert_true(xpc_buffer_add(&buffer, "678", 3, 8));
    assert_string_equal(buffer.data, "12345678");
    xpc_buffer_release(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_is_a_line_with_its_pointer),
        cmocka_unit_test(a_single_error_is_not_said_twice),
        cmocka_unit_test(without_a_detail_the_title_speaks),
        cmocka_unit_test(what_does_not_fit_is_counted),
        cmocka_unit_test(a_refusal_has_type_and_status),
        cmocka_unit_test(an_answer_of_the_http_library_is_no_riddle),
        cmocka_unit_test(media_types_lose_parameters_and_case),
        cmocka_unit_test(a_buffer_stops_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
