/* Sessions and one-time links, by a clock of the test's. */
#include "support.h"

#include "session.h"

static xpd_sessions all;

static xpd_caller person(uid_t uid, xpd_scope scope)
{
    xpd_caller c = {.uid = uid, .scope = scope};
    snprintf(c.user, sizeof c.user, "%lu", (unsigned long)uid);
    return c;
}

static int setup(void **state)
{
    memset(&all, 0, sizeof all);
    return folder_make(state);
}

static void a_secret_finds_its_own_kind_in_its_time(void **state)
{
    char secret[XPD_SECRET_SIZE], wrong[XPD_SECRET_SIZE];
    xpd_caller ada = person(4711, XPD_SCOPE_SUBMIT);
    (void)state;

    const xpd_session *made =
        xpd_session_make(&all, XPD_SESSION_LINK, &ada, XPD_SCOPE_ADMIN, 1000, 500, secret, NULL);
    assert_non_null(made);
    assert_int_equal(strspn(secret, "0123456789abcdef"), 64);
    assert_int_equal(made->maker.scope, XPD_SCOPE_SUBMIT); /* no more than the maker has */
    assert_ptr_equal(xpd_session_find(&all, XPD_SESSION_LINK, secret, 1499), made);
    assert_null(xpd_session_find(&all, XPD_SESSION_OPEN, secret, 1499));
    assert_null(xpd_session_find(&all, XPD_SESSION_LINK, secret, 1500));
    assert_null(xpd_session_find(&all, XPD_SESSION_LINK, "", 600));
    memcpy(wrong, secret, sizeof wrong);
    wrong[63] = secret[63] == '0' ? '1' : '0';
    assert_null(xpd_session_find(&all, XPD_SESSION_LINK, wrong, 600));
    assert_null(memmem(&all, sizeof all, secret, 64)); /* only its hash is kept */
    xpd_session_end(xpd_session_find(&all, XPD_SESSION_LINK, secret, 600));
    assert_null(xpd_session_find(&all, XPD_SESSION_LINK, secret, 600));
}

static void no_user_has_more_than_a_few_and_the_place_is_bounded(void **state)
{
    char secret[XPD_SECRET_SIZE], first[XPD_SECRET_SIZE];
    xpd_error err = XPD_ERROR_INIT;
    (void)state;

    for (uid_t uid = 1; uid <= XPD_SESSIONS_MAX / XPD_SESSIONS_USER; uid++) {
        xpd_caller c = person(uid, XPD_SCOPE_READ);
        for (int i = 0; i < XPD_SESSIONS_USER; i++)
            assert_non_null(xpd_session_make(&all, XPD_SESSION_OPEN, &c, XPD_SCOPE_READ, 1000, 1,
                                             uid == 1 && i == 0 ? first : secret, NULL));
    }
    xpd_caller late = person(4711, XPD_SCOPE_READ), one = person(1, XPD_SCOPE_READ);
    assert_null(
        xpd_session_make(&all, XPD_SESSION_OPEN, &late, XPD_SCOPE_READ, 1000, 2, secret, &err));
    assert_int_equal(err.fault, XPP_FAULT_UNAVAILABLE);
    assert_non_null(xpd_session_find(&all, XPD_SESSION_OPEN, first, 2));
    assert_non_null(
        xpd_session_make(&all, XPD_SESSION_OPEN, &one, XPD_SCOPE_READ, 1000, 2, secret, NULL));
    assert_null(xpd_session_find(&all, XPD_SESSION_OPEN, first, 2)); /* the oldest made room */
    assert_non_null(xpd_session_make(&all, XPD_SESSION_OPEN, &late, XPD_SCOPE_READ, 1000, 1001,
                                     secret, NULL)); /* time made room */
}

/* A token file with one line, or none where rest is NULL. */
static xpd_auth *tokens(const void *folder, const char *rest)
{
    char path[256], sha[65], text[512];
    xpd_auth *auth = NULL;
    xpd_sha256_hex(sha, "secret", 6);
    snprintf(text, sizeof text, "desk:4711:%s%s\n", sha, rest ? rest : "");
    path_in(path, sizeof path, folder, "tokens");
    write_text(path, rest ? text : "");
    assert_true(xpd_auth_load(&auth, path, NULL));
    return auth;
}

static void a_session_has_what_its_token_still_has(void **state)
{
    static const struct {
        const char *rest;
        bool good;
        xpd_scope scope;
        xpd_class class_most;
    } cases[] = {{":submit", true, XPD_SCOPE_SUBMIT, XPD_CLASS_LIVE},
                 {":admin", true, XPD_SCOPE_SUBMIT, XPD_CLASS_LIVE},
                 {":read,class=batch", true, XPD_SCOPE_READ, XPD_CLASS_BATCH},
                 {":submit:2020-01-01", false, XPD_SCOPE_NONE, XPD_CLASS_LIVE},
                 {NULL, false, XPD_SCOPE_NONE, XPD_CLASS_LIVE}};
    char secret[XPD_SECRET_SIZE];
    xpd_caller caller;
    xpd_auth *auth = tokens(*state, ":submit");

    assert_true(xpd_auth_check(auth, &caller, "Bearer secret", -1, NULL));
    const xpd_session *made =
        xpd_session_make(&all, XPD_SESSION_OPEN, &caller, XPD_SCOPE_SUBMIT, 1000, 1, secret, NULL);
    xpd_auth_destroy(auth);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xpd_error err = XPD_ERROR_INIT;
        auth = tokens(*state, cases[i].rest);
        assert_int_equal(xpd_session_caller(made, auth, &caller, &err), cases[i].good);
        if (cases[i].good) {
            assert_int_equal(caller.scope, cases[i].scope);
            assert_int_equal(caller.class_most, cases[i].class_most);
            assert_string_equal(caller.session, made->id);
        } else {
            assert_int_equal(err.fault, XPP_FAULT_UNAUTHENTICATED);
        }
        xpd_auth_destroy(auth);
    }
    caller = person(7, XPD_SCOPE_READ); /* of the unix socket: there is no token to lose */
    made = xpd_session_make(&all, XPD_SESSION_OPEN, &caller, XPD_SCOPE_READ, 1000, 1, secret, NULL);
    auth = tokens(*state, NULL);
    assert_true(xpd_session_caller(made, auth, &caller, NULL));
    xpd_auth_destroy(auth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_secret_finds_its_own_kind_in_its_time, setup,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(no_user_has_more_than_a_few_and_the_place_is_bounded, setup,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(a_session_has_what_its_token_still_has, setup,
                                        folder_remove),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
