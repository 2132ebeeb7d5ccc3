/* Requests to HTTP calls and HTTP answers to replies. */
#include "verb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "xptychod/protocol.h"

#define ID "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"

static void calls(const char *request, const char *method, const char *path, const char *body)
{
    xpd_call call;
    json_t *problem = xpd_call_decode(&call, request, strlen(request));

    if (problem)
        fail_msg("%s: %s", request, json_string_value(json_object_get(problem, "detail")));
    assert_string_equal(call.method, method);
    assert_string_equal(call.path, path);
    assert_string_equal(call.token, "t");
    if (body)
        assert_string_equal(call.body, body);
    else
        assert_null(call.body);
    xpd_call_release(&call);
}

static void refused(const char *request, int status, const char *word)
{
    xpd_call call;
    json_t *problem = xpd_call_decode(&call, request, strlen(request));
    char *text;

    assert_non_null(problem);
    text = json_dumps(problem, 0);
    assert_non_null(text);
    if (json_integer_value(json_object_get(problem, "status")) != status || !strstr(text, word))
        fail_msg("%s: wanted %d and '%s', got %s", request, status, word, text);
    free(text);
    json_decref(problem);
}

static void every_verb_is_its_http_call(void **state)
{
    (void)state;
    calls("{\"verb\":\"submit\",\"token\":\"t\",\"body\":{\"scan\":{\"path\":\"/a\"}}}", "POST",
          "/v1/jobs", "{\"scan\":{\"path\":\"/a\"}}");
    calls("{\"verb\":\"dry_run\",\"token\":\"t\",\"body\":{}}", "POST", "/v1/jobs?dry_run=true",
          "{}");
    calls("{\"verb\":\"list\",\"token\":\"t\"}", "GET", "/v1/jobs", NULL);
    calls(
        "{\"verb\":\"list\",\"token\":\"t\",\"limit\":2,\"cursor\":\"a/b&c\",\"state\":[\"queued\","
        "\"running\"]}",
        "GET", "/v1/jobs?state=queued&state=running&limit=2&cursor=a%2Fb%26c", NULL);
    calls("{\"verb\":\"show\",\"token\":\"t\",\"id\":\"" ID "\"}", "GET", "/v1/jobs/" ID, NULL);
    calls("{\"verb\":\"events\",\"token\":\"t\",\"id\":\"" ID "\",\"from\":12}", "GET",
          "/v1/jobs/" ID "/events?follow=0&from=12", NULL);
    calls("{\"verb\":\"cancel\",\"token\":\"t\",\"id\":\"" ID "\"}", "POST",
          "/v1/jobs/" ID "/cancel", NULL);
    calls("{\"verb\":\"delete\",\"token\":\"t\",\"id\":\"" ID "\"}", "DELETE", "/v1/jobs/" ID,
          NULL);
    calls("{\"verb\":\"log\",\"token\":\"t\",\"id\":\"" ID "\",\"tail\":5}", "GET",
          "/v1/jobs/" ID "/log?tail=5", NULL);
    calls("{\"verb\":\"rerun\",\"token\":\"t\",\"id\":\"" ID "\"}", "POST", "/v1/jobs/" ID "/rerun",
          NULL);
    calls("{\"verb\":\"rerun\",\"token\":\"t\",\"id\":\"" ID "\",\"body\":{\"name\":\"b\"}}",
          "POST", "/v1/jobs/" ID "/rerun", "{\"name\":\"b\"}");
    calls("{\"verb\":\"result\",\"token\":\"t\",\"id\":\"" ID "\"}", "GET",
          "/v1/jobs/" ID "/result", NULL);
    calls("{\"verb\":\"queue\",\"token\":\"t\"}", "GET", "/v1/queue", NULL);
    calls("{\"verb\":\"devices\",\"token\":\"t\"}", "GET", "/v1/devices", NULL);
    calls("{\"verb\":\"version\",\"token\":\"t\"}", "GET", "/v1/version", NULL);
}

static void a_request_without_a_usable_token_is_not_forwarded(void **state)
{
    (void)state;
    refused("{\"verb\":\"queue\"}", 401, "token");
    refused("{\"verb\":\"queue\",\"token\":\"\"}", 401, "token");
    refused("{\"verb\":\"queue\",\"token\":7}", 401, "token");
    refused("{\"verb\":\"queue\",\"token\":null}", 401, "token");
    refused("{\"verb\":\"queue\",\"token\":\"a\\r\\nHost: b\"}", 401, "token");
    refused("{\"verb\":\"queue\",\"token\":\"a b\"}", 401, "token");
}

static void a_token_of_513_characters_is_refused(void **state)
{
    char request[700] = "{\"verb\":\"queue\",\"token\":\"";
    size_t used = strlen(request);

    (void)state;
    memset(request + used, 'a', 513);
    memcpy(request + used + 513, "\"}", 3);
    refused(request, 401, "token");
}

static void what_is_not_a_request_is_refused_with_what_would_be(void **state)
{
    (void)state;
    refused("", 400, "JSON");
    refused("{\"verb\":", 400, "JSON");
    refused("[]", 400, "verb");
    refused("7", 400, "");
    refused("{}", 400, "verb");
    refused("{\"verb\":3,\"token\":\"t\"}", 400, "verb");
    refused("{\"verb\":\"sumbit\",\"token\":\"t\"}", 400, "submit");
    refused("{\"verb\":\"submit\",\"token\":\"t\"}", 400, "body");
    refused("{\"verb\":\"show\",\"token\":\"t\"}", 400, "id");
    refused("{\"verb\":\"show\",\"token\":\"t\",\"id\":\"../../admin\"}", 404, "id");
    refused("{\"verb\":\"show\",\"token\":\"t\",\"id\":5}", 404, "id");
    refused("{\"verb\":\"show\",\"token\":\"t\",\"id\":\"" ID "\",\"form\":1,\"tail\":2}", 400,
            "/form");
    refused("{\"verb\":\"show\",\"token\":\"t\",\"id\":\"" ID "\",\"form\":1,\"tail\":2}", 400,
            "/tail");
    refused("{\"verb\":\"events\",\"token\":\"t\",\"id\":\"" ID "\",\"from\":{}}", 400, "from");
    refused("{\"verb\":\"list\",\"token\":\"t\",\"state\":[1]}", 400, "state");
    refused("{\"verb\":\"submit\",\"token\":\"t\",\"body\":{},\"idempotency_key\":\"a\\nb\"}", 400,
            "idempotency_key");
}

static void a_query_that_does_not_fit_is_refused(void **state)
{
    char request[2100] = "{\"verb\":\"list\",\"token\":\"t\",\"cursor\":\"";
    size_t used = strlen(request);

    (void)state;
    memset(request + used, 'a', 2000);
    memcpy(request + used + 2000, "\"}", 3);
    refused(request, 400, "cursor");
}

static void idempotency_key_becomes_a_header(void **state)
{
    const char *request =
        "{\"verb\":\"submit\",\"token\":\"t\",\"body\":{},\"idempotency_key\":\"k-1\"}";
    xpd_call call;

    (void)state;
    assert_null(xpd_call_decode(&call, request, strlen(request)));
    assert_string_equal(call.idempotency_key, "k-1");
    xpd_call_release(&call);
}

static void answers(const char *want, char *text)
{
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

static void answers_carry_status_and_body(void **state)
{
    const char *lines = "{\"seq\":1}\n\n{\"seq\":2}\n{\"se";

    (void)state;
    answers("{\"status\":200,\"body\":{\"a\":0.1}}",
            xpd_answer_encode(XPD_ANSWER_JSON, 200, "{\"a\":0.1}", 9, false));
    answers("{\"status\":204,\"body\":null}",
            xpd_answer_encode(XPD_ANSWER_JSON, 204, "", 0, false));
    answers("{\"status\":200,\"body\":{\"text\":\"one\\ntwo\"}}",
            xpd_answer_encode(XPD_ANSWER_TEXT, 200, "one\ntwo", 7, false));
    answers("{\"status\":200,\"body\":{\"events\":[{\"seq\":1},{\"seq\":2}],\"more\":true}}",
            xpd_answer_encode(XPD_ANSWER_EVENTS, 200, lines, strlen(lines), true));
    answers("{\"status\":204,\"body\":{\"events\":[],\"more\":false}}",
            xpd_answer_encode(XPD_ANSWER_EVENTS, 204, "", 0, false));
    answers("{\"status\":404,\"body\":{\"status\":404}}",
            xpd_answer_encode(XPD_ANSWER_EVENTS, 404, "{\"status\":404}", 14, false));
}

static void an_answer_that_is_not_json_or_too_long_becomes_a_problem(void **state)
{
    char *text = xpd_answer_encode(XPD_ANSWER_JSON, 400, "<html>", 6, false);

    (void)state;
    assert_non_null(strstr(text, "\"status\":500"));
    free(text);
    text = xpd_answer_encode(XPD_ANSWER_TEXT, 200, "abc", 3, true);
    assert_non_null(strstr(text, "\"status\":413"));
    free(text);
    text = xpd_answer_encode(XPD_ANSWER_TEXT, 200, "\xff\xfe", 2, false);
    assert_non_null(strstr(text, "UTF-8"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verb_is_its_http_call),
        cmocka_unit_test(a_request_without_a_usable_token_is_not_forwarded),
        cmocka_unit_test(a_token_of_513_characters_is_refused),
        cmocka_unit_test(what_is_not_a_request_is_refused_with_what_would_be),
        cmocka_unit_test(a_query_that_does_not_fit_is_refused),
        cmocka_unit_test(idempotency_key_becomes_a_header),
        cmocka_unit_test(answers_carry_status_and_body),
        cmocka_unit_test(an_answer_that_is_not_json_or_too_long_becomes_a_problem),
    };

    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
