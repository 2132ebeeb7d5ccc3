/* Groups, and the roots and classes that follow from them.  By root and daemon, who are in every
 * Debian's user database with a group of their own name. */
#include "support.h"

#include "people.h"

#include <grp.h>
#include <pwd.h>

static uid_t daemon_uid;

static int setup(void **state)
{
    const struct passwd *entry = getpwnam("daemon");
    daemon_uid = entry ? entry->pw_uid : 0;
    return entry && daemon_uid != 0 ? folder_make(state) : -1;
}

static bool configured(xpd_config *out, const void *folder, const char *text, xpd_error *err)
{
    char path[256];
    path_in(path, sizeof path, folder, "a.conf");
    write_text(path, text);
    return xpd_config_defaults(out, err) && xpd_config_file(out, path, true, err) &&
           xpd_config_finish(out, err);
}

static void a_user_is_in_the_groups_of_the_database_and_no_other(void **state)
{
    char gid[24];
    (void)state;
    snprintf(gid, sizeof gid, "%lu", (unsigned long)getgrnam("daemon")->gr_gid);
    for (int again = 0; again < 2; again++) { /* the second time from memory */
        assert_true(xpd_user_in_group(daemon_uid, "daemon"));
        assert_true(xpd_user_in_group(daemon_uid, gid));
        assert_false(xpd_user_in_group(0, "daemon"));
        assert_false(xpd_user_in_group(daemon_uid, "root"));
        assert_false(xpd_user_in_group(daemon_uid, "no-such-group"));
        assert_false(xpd_user_in_group(4123456789u, "root"));
    }
    xpd_people_forget();
    assert_true(xpd_user_in_group(0, "root"));
}

static void a_root_with_a_group_is_for_that_group_alone(void **state)
{
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;

    if (!configured(&c, *state,
                    "[roots]\ndata = /all\ndata = @daemon:/theirs\nwrite = @root:/r:x\n", &err))
        fail_msg("%s", err.text);
    json_t *of_root = xpd_roots_of(&c.data_roots, 0),
           *theirs = xpd_roots_of(&c.data_roots, daemon_uid);
    assert_int_equal(json_array_size(of_root), 1);
    assert_string_equal(json_string_value(json_array_get(of_root, 0)), "/all");
    assert_int_equal(json_array_size(theirs), 2);
    assert_string_equal(json_string_value(json_array_get(theirs, 1)), "/theirs");
    json_decref(of_root);
    json_decref(theirs);
    of_root = xpd_roots_of(&c.write_roots, 0);
    assert_string_equal(json_string_value(json_array_get(of_root, 0)), "/r:x");
    json_decref(of_root);
    theirs = xpd_roots_of(&c.write_roots, daemon_uid);
    assert_true(json_is_array(theirs)); /* nothing, not everything */
    assert_int_equal(json_array_size(theirs), 0);
    json_decref(theirs);
    xpd_config_release(&c);
}

static void the_highest_class_is_the_users_then_the_groups_then_everybodys(void **state)
{
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    xpd_caller caller = {.uid = 4711, .user = "4711", .class_most = XPD_CLASS_LIVE};

    if (!configured(
            &c, *state,
            "[limits]\nclass = batch\nclass_for = @daemon:scavenger\n"
            "class_for = @daemon:live\nclass_for = root:scavenger\nclass_for = @root:live\n",
            &err))
        fail_msg("%s", err.text);
    assert_int_equal(xpd_class_of(&c, daemon_uid), XPD_CLASS_LIVE);
    assert_int_equal(xpd_class_of(&c, 0), XPD_CLASS_SCAVENGER);
    assert_int_equal(xpd_class_of(&c, 4711), XPD_CLASS_BATCH);

    assert_true(xpd_class_allowed(&c, &caller, XPD_CLASS_BATCH, &err));
    assert_true(xpd_class_allowed(&c, &caller, XPD_CLASS_SCAVENGER, &err));
    assert_false(xpd_class_allowed(&c, &caller, XPD_CLASS_NORMAL, &err));
    assert_int_equal(err.fault, XPP_FAULT_FORBIDDEN);
    assert_string_equal(err.pointer, "/class");
    assert_non_null(strstr(err.text, "user '4711'"));
    assert_non_null(strstr(err.text, "\"class\": \"batch\""));

    caller = (xpd_caller){
        .uid = daemon_uid, .user = "daemon", .token = "nightly", .class_most = XPD_CLASS_NORMAL};
    assert_true(xpd_class_allowed(&c, &caller, XPD_CLASS_NORMAL, &err));
    assert_false(xpd_class_allowed(&c, &caller, XPD_CLASS_LIVE, &err));
    assert_non_null(strstr(err.text, "token 'nightly'"));
    xpd_config_release(&c);
}

static void what_does_not_exist_is_refused_by_name(void **state)
{
    static const char *const wrong[][2] = {
        {"[limits]\nclass = fast\n", "'fast'"},
        {"[limits]\nclass_for = root\n", "'root'"},
        {"[limits]\nclass_for = root:fast\n", "'root:fast'"},
        {"[limits]\nclass_for = @:live\n", "'@:live'"},
        {"[limits]\nclass_for = nobody-here:live\n", "nobody-here"},
        {"[limits]\nclass_for = @none-here:live\n", "none-here"},
        {"[roots]\ndata = @none-here:/x\n", "none-here"},
        {"[roots]\nwrite = @root:x\n", "@root:x"},
        {"[roots]\nwrite = @root\n", "@root"},
        {"[roots]\nwrite = @:/x\n", "@:/x"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        xpd_config c;
        xpd_error err = XPD_ERROR_INIT;
        if (configured(&c, *state, wrong[i][0], &err))
            fail_msg("'%s' was taken", wrong[i][0]);
        if (!strstr(err.text, wrong[i][1]))
            fail_msg("'%s' does not name %s", err.text, wrong[i][1]);
        xpd_config_release(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_is_in_the_groups_of_the_database_and_no_other),
        cmocka_unit_test(a_root_with_a_group_is_for_that_group_alone),
        cmocka_unit_test(the_highest_class_is_the_users_then_the_groups_then_everybodys),
        cmocka_unit_test(what_does_not_exist_is_refused_by_name),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, setup, folder_remove);
}
