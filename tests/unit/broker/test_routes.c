/* The table of routes and openapi.json say the same. */
#include "support.h"

#include "routes.h"

#include <ctype.h>

static json_t *document(void)
{
    json_t *doc = json_loads(xpp_openapi(), 0, NULL);
    assert_non_null(doc);
    return doc;
}

static void lower(char *out, const char *text)
{
    while (*text)
        *out++ = (char)tolower((unsigned char)*text++);
    *out = '\0';
}

static void every_route_is_in_openapi(void **state)
{
    json_t *doc = document(), *paths = json_object_get(doc, "paths");
    (void)state;
    for (size_t i = 0; i < xpd_route_count; i++) {
        char method[16];
        lower(method, xpd_routes[i].method);
        if (!json_object_get(json_object_get(paths, xpd_routes[i].path), method))
            fail_msg("%s %s is not in openapi.json", xpd_routes[i].method, xpd_routes[i].path);
    }
    json_decref(doc);
}

static bool has_argument(const xpd_route *route, const char *name)
{
    for (int k = 0; k < 4 && route->arguments[k]; k++) {
        if (strcmp(route->arguments[k], name) == 0)
            return true;
    }
    return false;
}

/* Query arguments of an operation, references followed; returns how many. */
static size_t check_arguments(const json_t *doc, const json_t *operation, const xpd_route *route)
{
    size_t count = 0, i;
    json_t *parameter;
    json_array_foreach (json_object_get(operation, "parameters"), i, parameter) {
        const char *reference = json_string_value(json_object_get(parameter, "$ref"));
        if (reference)
            parameter =
                json_object_get(json_object_get(json_object_get(doc, "components"), "parameters"),
                                strrchr(reference, '/') + 1);
        if (strcmp(json_string_value(json_object_get(parameter, "in")), "query") != 0)
            continue;
        count++;
        if (!has_argument(route, json_string_value(json_object_get(parameter, "name"))))
            fail_msg("%s %s does not take '%s'", route->method, route->path,
                     json_string_value(json_object_get(parameter, "name")));
    }
    return count;
}

static void every_operation_of_openapi_is_a_route_with_its_arguments(void **state)
{
    json_t *doc = document(), *item, *operation;
    const char *path, *method;
    (void)state;
    json_object_foreach (json_object_get(doc, "paths"), path, item) {
        json_object_foreach (item, method, operation) {
            const xpd_route *route = NULL;
            if (strcmp(method, "parameters") == 0)
                continue;
            for (size_t i = 0; i < xpd_route_count; i++) {
                char name[16];
                lower(name, xpd_routes[i].method);
                if (strcmp(name, method) == 0 && strcmp(xpd_routes[i].path, path) == 0)
                    route = &xpd_routes[i];
            }
            if (!route)
                fail_msg("%s %s has no route", method, path);
            size_t taken = 0;
            while (taken < 4 && route->arguments[taken])
                taken++;
            assert_int_equal(check_arguments(doc, operation, route), taken);
        }
    }
    json_decref(doc);
}

static int64_t range(const char *header, int64_t size, int64_t *first, int64_t *last)
{
    *first = *last = -7;
    return xpd_read_range(header, size, first, last);
}

static void a_range_is_a_part_or_all_or_beyond(void **state)
{
    int64_t first, last;
    (void)state;
    assert_int_equal(range("bytes=2-5", 10, &first, &last), 1);
    assert_true(first == 2 && last == 5);
    assert_int_equal(range("bytes=2-", 10, &first, &last), 1);
    assert_true(first == 2 && last == 9);
    assert_int_equal(range("bytes=9-99", 10, &first, &last), 1);
    assert_true(first == 9 && last == 9);
    assert_int_equal(range("bytes=-4", 10, &first, &last), 1);
    assert_true(first == 6 && last == 9);
    assert_int_equal(range("bytes=-40", 10, &first, &last), 1);
    assert_true(first == 0 && last == 9);
    static const char *const beyond[] = {"bytes=10-", "bytes=10-12", "bytes=-0",
                                         "bytes=99999999999999999999-"};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        assert_int_equal(range(beyond[i], 10, &first, &last), -1);
    assert_int_equal(range("bytes=0-0", 0, &first, &last), -1);
    static const char *const whole[] = {"bytes=5-2", "bytes=a-",  "bytes=1-2,4-5",
                                        "lines=1-2", "bytes=--3", "bytes=1-2x",
                                        "bytes=",    "bytes=-",   "bytes=50-9x"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        assert_int_equal(range(whole[i], 10, &first, &last), 0);
        assert_true(first == -7 && last == -7);
    }
    assert_int_equal(range(NULL, 10, &first, &last), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_in_openapi),
        cmocka_unit_test(a_range_is_a_part_or_all_or_beyond),
        cmocka_unit_test(every_operation_of_openapi_is_a_route_with_its_arguments),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
