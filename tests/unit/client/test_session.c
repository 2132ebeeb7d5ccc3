/* Exit codes, ids, keys, and the calls that are refused before anything is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli.h"

static void every_status_has_its_exit_code(void **state)
{
    static const int wanted[] = {
        [XPC_OK] = 0,    [XPC_INVALID] = 2, [XPC_UNREACHABLE] = 6, [XPC_REFUSED] = 3,
        [XPC_FAULT] = 1, [XPC_IO] = 1,      [XPC_STOPPED] = 130,   [XPC_NO_MEMORY] = 1,
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        xpc_error err = {.status = (xpc_status)i};
        assert_int_equal(cli_exit_of_status(&err), wanted[i]);
        assert_string_not_equal(xpc_status_name((xpc_status)i), "unknown");
    }
    assert_string_equal(xpc_status_name((xpc_status)i), "unknown");
}

static void the_end_of_a_job_has_its_exit_code(void **state)
{
    (void)state;
    assert_int_equal(cli_exit_of_state("succeeded", ""), CLI_OK);
    assert_int_equal(cli_exit_of_state("cancelled", "cancelled"), CLI_CANCELLED);
    assert_int_equal(cli_exit_of_state("failed", "diverged"), CLI_FAILED);
    assert_int_equal(cli_exit_of_state("failed", "worker-died"), CLI_FAILED);
    assert_int_equal(cli_exit_of_state("failed", "a reason of the future"), CLI_FAILED);
    assert_int_equal(cli_exit_of_state("failed", "dataset"), CLI_REFUSED);
    assert_int_equal(cli_exit_of_state("failed", "no-device-memory"), CLI_REFUSED);
    assert_int_equal(cli_exit_of_state("running", ""), CLI_UNEXPECTED);
}

static void an_id_may_be_typed_in_lower_case(void **state)
{
    char *id = cli_id("01kg7q3n6w8y2m4t6v8x0z1a3c");

    (void)state;
    assert_string_equal(id, "01KG7Q3N6W8Y2M4T6V8X0Z1A3C");
    free(id);
}

static void keys_are_random_uuids(void **state)
{
    char a[XPC_KEY_SIZE], b[XPC_KEY_SIZE];

    (void)state;
    xpc_key_make(a);
    xpc_key_make(b);
    assert_int_equal(strlen(a), 36);
    assert_int_equal(a[14], '4');
    assert_true(a[8] == '-' && a[13] == '-' && a[18] == '-' && a[23] == '-');
    assert_string_not_equal(a, b);
}

static void broken_ids_and_words_are_not_sent(void **state)
{
    xpc_options options = {.server = "unix:/nowhere/api.sock"};
    xpc_client *client = NULL;
    xpc_error err;
    json_t *out = NULL;
    const char *broken[] = {"", "../queue", "01KG7Q3N6W8Y2M4T6V8X0Z1A3",
                            "01KG7Q3N6W8Y2M4T6V8X0Z1A3C/x"};
    const char *good = "01KG7Q3N6W8Y2M4T6V8X0Z1A3C", *bad_state = "run&limit=1";
    xpc_target target = {NULL, false, -1};
    size_t i;

    (void)state;
    assert_int_equal(xpc_open(&client, &options, &err), XPC_OK);
    assert_string_equal(xpc_server(client), "unix:/nowhere/api.sock");
    for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        xpc_follow_options follow = {0};
        assert_int_equal(xpc_show(client, broken[i], &out, &err), XPC_INVALID);
        assert_int_equal(xpc_cancel(client, broken[i], &out, &err), XPC_INVALID);
        assert_int_equal(xpc_rerun(client, broken[i], NULL, NULL, &out, &err), XPC_INVALID);
        assert_int_equal(xpc_delete(client, broken[i], &err), XPC_INVALID);
        assert_int_equal(xpc_follow(client, broken[i], &follow, NULL, &err), XPC_INVALID);
    }
    assert_int_equal(xpc_preview(client, good, "object phase", &target, &err), XPC_INVALID);
    assert_int_equal(
        xpc_list(client, &(xpc_list_query){.states = &bad_state, .state_count = 1}, &out, &err),
        XPC_INVALID);
    assert_int_equal(xpc_show(client, good, &out, &err), XPC_UNREACHABLE);
    assert_non_null(strstr(err.text, "No such file or directory"));
    assert_false(err.maybe_done);
    assert_null(out);
    xpc_close(client);
    xpc_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_exit_code),
        cmocka_unit_test(the_end_of_a_job_has_its_exit_code),
        cmocka_unit_test(an_id_may_be_typed_in_lower_case),
        cmocka_unit_test(keys_are_random_uuids),
        cmocka_unit_test(broken_ids_and_words_are_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
