/* Tokens and peers. */
#include "support.h"

#include "auth.h"

#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>

static void sha256_is_the_standard_one(void **state)
{
    char hex[65];
    (void)state;
    xpd_sha256_hex(hex, "abc", 3);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static xpd_auth *loaded(const void *folder, const char *text)
{
    char path[256];
    xpd_auth *auth = NULL;
    xpd_error err = XPD_ERROR_INIT;
    path_in(path, sizeof path, folder, "tokens");
    write_text(path, text);
    if (!xpd_auth_load(&auth, path, &err))
        fail_msg("%s", err.text);
    return auth;
}

static void a_token_is_its_user_and_another_is_nobody(void **state)
{
    char sha[65], text[256];
    xpd_caller caller;
    xpd_error err = XPD_ERROR_INIT;

    xpd_sha256_hex(sha, "secret", 6);
    snprintf(text, sizeof text, "# beamline\n\nline1:4711:%s\n", sha);
    xpd_auth *auth = loaded(*state, text);
    assert_true(xpd_auth_check(auth, &caller, "Bearer secret", -1, &err));
    assert_int_equal(caller.uid, 4711);
    assert_string_equal(caller.user, "4711");
    assert_true(xpd_auth_check(auth, &caller, "bearer  secret", -1, &err));
    static const char *const wrong[] = {"Bearer secre", "Bearer secrett", "Bearer ",
                                        "Basic secret", "secret",         ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(xpd_auth_check(auth, &caller, wrong[i], -1, &err));
        assert_int_equal(err.fault, XPP_FAULT_UNAUTHENTICATED);
    }
    assert_false(xpd_auth_check(auth, &caller, NULL, -1, &err));
    xpd_auth_destroy(auth);
}

static void a_peer_without_token_is_its_uid_and_with_a_bad_one_nobody(void **state)
{
    int pair[2];
    xpd_caller caller;
    xpd_error err = XPD_ERROR_INIT;
    xpd_auth *auth = loaded(*state, "");

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(xpd_auth_check(auth, &caller, NULL, pair[0], &err));
    assert_int_equal(caller.uid, geteuid());
    assert_false(xpd_auth_check(auth, &caller, "Bearer x", pair[0], &err));
    close(pair[0]);
    close(pair[1]);
    xpd_auth_destroy(auth);
}

static void broken_token_files_are_refused_with_the_line(void **state)
{
    static const char *const broken[] = {
        "name", "name:0", "name:0:12",
        "name:0:zz7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "a:no-such-user-here:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"};
    char path[256], text[512];
    path_in(path, sizeof path, *state, "broken");
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        xpd_auth *auth = NULL;
        xpd_error err = XPD_ERROR_INIT;
        snprintf(text, sizeof text, "# one\n%s\n", broken[i]);
        write_text(path, text);
        assert_false(xpd_auth_load(&auth, path, &err));
        assert_null(auth);
        assert_non_null(strstr(err.text, "line 2"));
        assert_null(strstr(err.text, "ba7816")); /* never the token */
    }
}

static void scopes_and_expiry_are_those_of_the_line(void **state)
{
    char sha[4][65], text[1024];
    xpd_caller caller;
    xpd_error err = XPD_ERROR_INIT;
    static const char *const tokens[] = {"reads", "default", "rules", "old"};

    for (int i = 0; i < 4; i++)
        xpd_sha256_hex(sha[i], tokens[i], strlen(tokens[i]));
    snprintf(
        text, sizeof text,
        "a:1:%s:read\nb:2:%s \nc:3:%s:read,admin:2999-12-31T23:59:59Z\nd:4:%s:submit:2020-01-01\n",
        sha[0], sha[1], sha[2], sha[3]);
    xpd_auth *auth = loaded(*state, text);
    assert_true(xpd_auth_check(auth, &caller, "Bearer reads", -1, &err));
    assert_int_equal(caller.scope, XPD_SCOPE_READ);
    assert_string_equal(caller.token, "a");
    assert_int_equal(caller.expires_ms, 0);
    assert_false(xpd_caller_sees(&caller, 2));
    assert_true(xpd_caller_sees(&caller, 1));
    assert_true(xpd_auth_check(auth, &caller, "Bearer default", -1, &err));
    assert_int_equal(caller.scope, XPD_SCOPE_SUBMIT);
    assert_true(xpd_auth_check(auth, &caller, "Bearer rules", -1, &err));
    assert_int_equal(caller.scope, XPD_SCOPE_ADMIN);
    assert_true(xpd_caller_sees(&caller, 1));
    assert_int_equal(caller.expires_ms, 32503679999000);
    assert_false(xpd_auth_check(auth, &caller, "Bearer old", -1, &err));
    assert_int_equal(err.fault, XPP_FAULT_UNAUTHENTICATED);
    assert_non_null(strstr(err.text, "expired"));
    xpd_auth_destroy(auth);
}

static void a_token_may_be_for_jobs_up_to_a_class(void **state)
{
    char sha[3][65], text[1024];
    static const char *const tokens[] = {"alone", "with", "without"};
    xpd_caller caller;

    for (int i = 0; i < 3; i++)
        xpd_sha256_hex(sha[i], tokens[i], strlen(tokens[i]));
    snprintf(text, sizeof text,
             "a:1:%s:class=batch\nb:2:%s:read,class=scavenger:2999-01-01\nc:3:%s\n", sha[0], sha[1],
             sha[2]);
    xpd_auth *auth = loaded(*state, text);
    assert_true(xpd_auth_check(auth, &caller, "Bearer alone", -1, NULL));
    assert_int_equal(caller.class_most, XPD_CLASS_BATCH);
    assert_int_equal(caller.scope, XPD_SCOPE_SUBMIT);
    assert_true(xpd_auth_check(auth, &caller, "Bearer with", -1, NULL));
    assert_int_equal(caller.class_most, XPD_CLASS_SCAVENGER);
    assert_int_equal(caller.scope, XPD_SCOPE_READ);
    assert_true(xpd_auth_check(auth, &caller, "Bearer without", -1, NULL));
    assert_int_equal(caller.class_most, XPD_CLASS_LIVE);
    xpd_auth_destroy(auth);
}

static void wrong_scopes_and_dates_are_refused_with_the_line(void **state)
{
    static const char *const rest[] = {"write",
                                       "class=fast",
                                       "class=live,class=batch",
                                       "read;submit",
                                       "read:tomorrow",
                                       "read:2027-02-31",
                                       "read:2027-13-01",
                                       "read:2027-01-31T25:00:00Z",
                                       "read:2027-01-31T10:00:00"};
    char path[256], text[512], sha[65];

    xpd_sha256_hex(sha, "x", 1);
    path_in(path, sizeof path, *state, "broken");
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        xpd_auth *auth = NULL;
        xpd_error err = XPD_ERROR_INIT;
        snprintf(text, sizeof text, "\na:0:%s:%s\n", sha, rest[i]);
        write_text(path, text);
        if (xpd_auth_load(&auth, path, &err))
            fail_msg("'%s' was taken", rest[i]);
        assert_non_null(strstr(err.text, "line 2"));
    }
}

static void read_all(char *out, size_t size, const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(out, 1, size - 1, file);
    out[n] = '\0';
    fclose(file);
}

static void the_users_token_is_private_and_outlives_a_restart(void **state)
{
    char path[256], first[128], second[128], header[160];
    struct stat st;
    xpd_auth *auth = NULL;
    xpd_caller caller;

    path_in(path, sizeof path, *state, "token");
    assert_true(xpd_auth_user(&auth, path, NULL));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    read_all(first, sizeof first, path);
    assert_int_equal(strlen(first), 65);
    first[64] = '\0';
    snprintf(header, sizeof header, "Bearer %s", first);
    assert_true(xpd_auth_check(auth, &caller, header, -1, NULL));
    assert_int_equal(caller.uid, geteuid());
    xpd_auth_destroy(auth);

    assert_true(xpd_auth_user(&auth, path, NULL));
    xpd_auth_destroy(auth);
    read_all(second, sizeof second, path);
    second[64] = '\0';
    assert_string_equal(first, second);

    assert_int_equal(chmod(path, 0644), 0); /* others could have read it */
    assert_true(xpd_auth_user(&auth, path, NULL));
    xpd_auth_destroy(auth);
    read_all(second, sizeof second, path);
    second[64] = '\0';
    assert_string_not_equal(first, second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_is_the_standard_one),
        cmocka_unit_test(a_token_is_its_user_and_another_is_nobody),
        cmocka_unit_test(a_peer_without_token_is_its_uid_and_with_a_bad_one_nobody),
        cmocka_unit_test(broken_token_files_are_refused_with_the_line),
        cmocka_unit_test(scopes_and_expiry_are_those_of_the_line),
        cmocka_unit_test(a_token_may_be_for_jobs_up_to_a_class),
        cmocka_unit_test(wrong_scopes_and_dates_are_refused_with_the_line),
        cmocka_unit_test(the_users_token_is_private_and_outlives_a_restart),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
