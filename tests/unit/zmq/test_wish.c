/* Subscriptions, peers and lists of keys: every byte of them comes from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wish.h"
#include "zap.h"

#define ID "01KG7Q3N6W8Y2M4T6V8X0Z1A3C"
#define KEY "#f-@:Yne*+.dL.B<[$zM/&n=w>1&D8=.!Q]Z0?c4"

static bool parse(xpd_wish *out, const char *text)
{
    return xpd_wish_parse(out, text, strlen(text));
}

static void a_job_is_wished_for_whole(void **state)
{
    xpd_wish wish;

    (void)state;
    assert_true(parse(&wish, "\1job/" ID "/"));
    assert_true(wish.on);
    assert_string_equal(wish.topic, "job/" ID "/");
    assert_string_equal(wish.id, ID);
    assert_string_equal(wish.token, "");
    assert_true(parse(&wish, "\1job/" ID "/secret"));
    assert_string_equal(wish.topic, "job/" ID "/");
    assert_string_equal(wish.token, "secret");
    assert_true(xpd_wish_parse(&wish, "\0state/t", 8));
    assert_false(wish.on);
    assert_string_equal(wish.topic, "state/");
    assert_string_equal(wish.id, "");
    assert_string_equal(wish.token, "t");
}

static void what_is_shorter_or_odd_is_no_wish(void **state)
{
    static const char *const odd[] = {"",
                                      "\1",
                                      "\1job/",
                                      "\1job/" ID,
                                      "\1j",
                                      "\1state",
                                      "\1job/0/",
                                      "\1JOB/" ID "/",
                                      "\2job/" ID "/",
                                      "job/" ID "/",
                                      "\1job/" ID "/a b",
                                      "\1job/" ID "/\x7f",
                                      "\1state/\r\n"};
    char longest[600];
    xpd_wish wish;

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        assert_false(parse(&wish, odd[i]));
    assert_false(xpd_wish_parse(&wish, "\1job/01KG7Q3N6W8Y\0M4T6V8X0Z1A3C/", 32));
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "\1state/", 7);
    assert_true(xpd_wish_parse(&wish, longest, 7 + XPD_TOKEN_MAX));
    assert_false(xpd_wish_parse(&wish, longest, 8 + XPD_TOKEN_MAX));
}

static void a_peer_is_its_user_or_nobody(void **state)
{
    json_t *mine = json_pack("{s:s}", "user", "nobody"), *other = json_pack("{s:s}", "user", "ada");
    xpd_peer peer;

    (void)state;
    xpd_peer_decode(&peer, "uid:0");
    assert_true(peer.sees_all);
    assert_true(xpd_peer_may_read(&peer, other));
    xpd_peer_decode(&peer, "user:nobody");
    assert_false(peer.sees_all);
    assert_true(xpd_peer_may_read(&peer, mine));
    assert_false(xpd_peer_may_read(&peer, other));
    assert_false(xpd_peer_may_read(&peer, NULL));
    xpd_peer_decode(&peer, "uid:4000000001");
    assert_string_equal(peer.user, "4000000001");
    assert_false(peer.sees_all);
    for (const char *const *id =
             (const char *const[]){"", "uid:", "uid:-1", "uid:1x", "uid: 0",
                                   "user:", "uid:99999999999999999999", "0", NULL};
         *id; id++) {
        xpd_peer_decode(&peer, *id);
        assert_false(peer.known);
        assert_false(xpd_peer_may_read(&peer, mine));
    }
    xpd_peer_decode(&peer, NULL);
    assert_false(peer.known);
    json_decref(mine);
    json_decref(other);
}

static void the_uid_is_taken_from_a_local_address_alone(void **state)
{
    char uid[32];

    (void)state;
    assert_true(xpd_zap_uid("localhost:1000:100:42", uid, sizeof uid));
    assert_string_equal(uid, "uid:1000");
    assert_true(xpd_zap_uid(":7:8:9", uid, sizeof uid));
    assert_false(xpd_zap_uid("127.0.0.1", uid, sizeof uid));
    assert_false(xpd_zap_uid("::1", uid, sizeof uid));
    assert_false(xpd_zap_uid("::1:2:3", uid, sizeof uid));
    assert_false(xpd_zap_uid("localhost:1:2:3:4", uid, sizeof uid));
    assert_false(xpd_zap_uid("localhost:1:2:", uid, sizeof uid));
    assert_false(xpd_zap_uid("", uid, sizeof uid));
}

static void a_key_is_found_with_its_user(void **state)
{
    char path[] = "/tmp/xpd-keys-XXXXXX", user[16];
    int fd = mkstemp(path);
    FILE *list = fd >= 0 ? fdopen(fd, "w") : NULL;

    (void)state;
    assert_non_null(list);
    fputs("# a comment\n\n0000000000000000000000000000000000000000\n  " KEY
          "\t ada  her laptop\r\n",
          list);
    assert_int_equal(fclose(list), 0);
    assert_true(xpd_keys_find(path, KEY, user, sizeof user));
    assert_string_equal(user, "ada");
    assert_false(
        xpd_keys_find(path, "0000000000000000000000000000000000000000", user, sizeof user));
    assert_false(
        xpd_keys_find(path, "1111111111111111111111111111111111111111", user, sizeof user));
    assert_false(xpd_keys_find(path, "", user, sizeof user));
    assert_false(xpd_keys_find(path, KEY, user, 3));
    unlink(path);
    assert_false(xpd_keys_find(path, KEY, user, sizeof user));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_is_wished_for_whole),
        cmocka_unit_test(what_is_shorter_or_odd_is_no_wish),
        cmocka_unit_test(a_peer_is_its_user_or_nobody),
        cmocka_unit_test(the_uid_is_taken_from_a_local_address_alone),
        cmocka_unit_test(a_key_is_found_with_its_user),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
