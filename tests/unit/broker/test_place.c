/* Which folders the state may not lie in. */
#include "support.h"

#include "place.h"

#include <sys/stat.h>

static void network_file_systems_are_known_by_their_numbers(void **state)
{
    static const unsigned long far[] = {0x6969,     0x517b,     0xff534d42, 0xfe534d42,
                                        0x65735546, 0x0bd00bd0, 0x47504653, 0xffffffffff534d42},
                               near[] = {0xef53, 0x58465342, 0x01021994, 0x9123683e, 0x794c7630};
    (void)state;
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) /* the last as a signed number gives it */
        assert_non_null(xpd_place_network(far[i]));
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) /* ext4, XFS, tmpfs, Btrfs, overlay */
        assert_null(xpd_place_network(near[i]));
}

static void a_local_folder_is_taken_and_none_is_told(void **state)
{
    xpd_error err = XPD_ERROR_INIT;
    assert_true(xpd_place_check(*state, false, &err));
    assert_false(xpd_place_check("/no/such/folder", true, &err));
    assert_non_null(strstr(err.text, "/no/such/folder"));
}

static void a_folder_that_everybody_may_write_is_refused(void **state)
{
    xpd_error err = XPD_ERROR_INIT;

    assert_int_equal(chmod(*state, 0770), 0);
    assert_true(xpd_place_guarded(*state, "daemon.state_dir", &err));
    assert_int_equal(chmod(*state, 01777), 0);
    assert_false(xpd_place_guarded(*state, "daemon.state_dir", &err));
    assert_non_null(strstr(err.text, "mode 1777"));
    assert_non_null(strstr(err.text, "(daemon.state_dir)"));
    assert_int_equal(err.fault, XPP_FAULT_BAD_REQUEST);
    assert_int_equal(chmod(*state, 0700), 0);
    xpd_error_release(&err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(network_file_systems_are_known_by_their_numbers),
        cmocka_unit_test(a_local_folder_is_taken_and_none_is_told),
        cmocka_unit_test(a_folder_that_everybody_may_write_is_refused),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
