/* Job ids and where programs are found. */
#include "documents.h"

#include <time.h>
#include <unistd.h>

static void ids_are_valid_and_differ(void **state)
{
    char a[XPP_JOB_ID_SIZE], b[XPP_JOB_ID_SIZE];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        xpp_job_id_make(a);
        xpp_job_id_make(b);
        assert_int_equal(strlen(a), 26);
        assert_true(xpp_job_id_valid(a));
        assert_string_not_equal(a, b);
    }
}

static void ids_are_ordered_by_time(void **state)
{
    char a[XPP_JOB_ID_SIZE], b[XPP_JOB_ID_SIZE];

    (void)state;
    xpp_job_id_make(a);
    usleep(3000);
    xpp_job_id_make(b);
    assert_true(strcmp(a, b) < 0);
}

static void ids_carry_the_time_in_their_first_ten_characters(void **state)
{
    static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    char id[XPP_JOB_ID_SIZE];
    struct timespec now;
    int64_t ms = 0;

    (void)state;
    xpp_job_id_make(id);
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < 10; i++)
        ms = ms * 32 + (strchr(alphabet, id[i]) - alphabet);
    assert_true(llabs((long long)now.tv_sec * 1000 - (long long)ms) < 60000);
}

static void what_is_no_id_is_refused(void **state)
{
    (void)state;
    assert_true(xpp_job_id_valid("01KG7Q3N6W8Y2M4T6V8X0Z1A3C"));
    assert_false(xpp_job_id_valid(""));
    assert_false(xpp_job_id_valid("01KG7Q3N6W8Y2M4T6V8X0Z1A3"));
    assert_false(xpp_job_id_valid("01KG7Q3N6W8Y2M4T6V8X0Z1A3CC"));
    assert_false(xpp_job_id_valid("01kg7q3n6w8y2m4t6v8x0z1a3c"));
    assert_false(xpp_job_id_valid("81KG7Q3N6W8Y2M4T6V8X0Z1A3C"));
    assert_false(xpp_job_id_valid("01KG7Q3N6W8Y2M4T6V8X0Z1A3U"));
    assert_false(xpp_job_id_valid("../../../../../etc/passwd0"));
}

static void a_program_beside_this_one_is_found(void **state)
{
    char path[4200];

    (void)state;
    assert_true(xpp_program_find(path, sizeof path, "test_protocol_ident"));
    assert_int_equal(access(path, X_OK), 0);
    assert_int_equal(path[0], '/');
}

static void a_missing_program_is_told_with_the_places(void **state)
{
    char text[8400];

    (void)state;
    assert_false(xpp_program_find(text, sizeof text, "xptycho-no-such-program"));
    assert_non_null(strstr(text, "neither /"));
    assert_non_null(strstr(text, XPTYCHOD_LIBEXECDIR "/xptycho-no-such-program"));
}

static void names_with_a_slash_or_without_room_are_not_found(void **state)
{
    char path[4200], small[8];

    (void)state;
    assert_false(xpp_program_find(path, sizeof path, "../bin/test_protocol_ident"));
    assert_false(xpp_program_find(path, sizeof path, ""));
    assert_false(xpp_program_find(small, sizeof small, "test_protocol_ident"));
    assert_int_equal(strlen(small), sizeof small - 1);
}

static void the_version_is_that_of_the_build(void **state)
{
    (void)state;
    assert_string_equal(xpp_version(), XPTYCHOD_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_valid_and_differ),
        cmocka_unit_test(ids_are_ordered_by_time),
        cmocka_unit_test(ids_carry_the_time_in_their_first_ten_characters),
        cmocka_unit_test(what_is_no_id_is_refused),
        cmocka_unit_test(a_program_beside_this_one_is_found),
        cmocka_unit_test(a_missing_program_is_told_with_the_places),
        cmocka_unit_test(names_with_a_slash_or_without_room_are_not_found),
        cmocka_unit_test(the_version_is_that_of_the_build),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
