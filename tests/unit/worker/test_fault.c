/* Every status of the engine has a reason of the closed list, and every end an exit code. */
#include "scene.h"

#include "fault.h"

static void every_status_has_a_known_reason(void **state)
{
    static const char *const reasons[] = {
        "",        "cancelled",    "diverged",        "output",  "no-device-memory",
        "refused", "dataset-busy", "dataset-changed", "internal"};

    (void)state;
    for (int st = XPE_OK; st <= XPE_INTERNAL; st++) {
        const char *reason = xpd_reason_of((xpe_status)st);
        bool known = false;

        for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
            known = known || strcmp(reason, reasons[i]) == 0;
        assert_true(known);
    }
    assert_string_equal(xpd_reason_of(XPE_DIVERGED), "diverged");
    assert_string_equal(xpd_reason_of(XPE_INVALID), "refused");
    assert_string_equal(xpd_reason_of(XPE_IO), "output");
}

static void ends_have_their_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(xpd_exit_of("succeeded", ""), 0);
    assert_int_equal(xpd_exit_of("cancelled", "cancelled"), 5);
    assert_int_equal(xpd_exit_of("failed", "refused"), 3);
    assert_int_equal(xpd_exit_of("failed", "no-device-memory"), 3);
    assert_int_equal(xpd_exit_of("failed", "diverged"), 4);
    assert_int_equal(xpd_exit_of("failed", "output"), 4);
}

static void memory_refusal_carries_its_bytes(void **state)
{
    xpe_error err = {.status = XPE_NO_DEVICE_MEMORY,
                     .text = "does not fit",
                     .device = "cpu",
                     .bytes_needed = 300,
                     .bytes_free = 200};
    json_t *problem = xpd_problem_of(&err);

    (void)state;
    assert_non_null(problem);
    assert_int_equal(json_integer_value(json_object_get(problem, "status")), 422);
    assert_int_equal(json_integer_value(json_object_get(problem, "shortfall_bytes")), 100);
    assert_string_equal(json_string_value(json_object_get(problem, "device")), "cpu");
    json_decref(problem);
}

static void refusal_names_the_member(void **state)
{
    xpe_error err = {
        .status = XPE_INVALID, .pointer = "/recon/relaxation", .text = "relaxation is 3"};
    json_t *problem = xpd_problem_of(&err), *first;

    (void)state;
    first = json_array_get(json_object_get(problem, "errors"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "pointer")), "/recon/relaxation");
    json_decref(problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_known_reason),
        cmocka_unit_test(ends_have_their_exit_codes),
        cmocka_unit_test(memory_refusal_carries_its_bytes),
        cmocka_unit_test(refusal_names_the_member),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
