/* Merge patches (the examples of RFC 7396's appendix, by their rules). */
#include "support.h"

#include "submit.h"

static void merges_to(const char *target, const char *patch, const char *wanted)
{
    json_t *t = json_loads(target, JSON_DECODE_ANY, NULL),
           *p = json_loads(patch, JSON_DECODE_ANY, NULL),
           *w = json_loads(wanted, JSON_DECODE_ANY, NULL);
    json_t *before = json_deep_copy(t), *merged = xpd_merge_patch(t, p);
    assert_true(json_equal(merged, w));
    assert_true(json_equal(t, before)); /* the target is not changed */
    json_decref(t);
    json_decref(p);
    json_decref(w);
    json_decref(before);
    json_decref(merged);
}

static void members_replace_and_null_removes(void **state)
{
    (void)state;
    merges_to("{\"a\": \"b\"}", "{\"a\": \"c\"}", "{\"a\": \"c\"}");
    merges_to("{\"a\": \"b\"}", "{\"b\": \"c\"}", "{\"a\": \"b\", \"b\": \"c\"}");
    merges_to("{\"a\": \"b\"}", "{\"a\": null}", "{}");
    merges_to("{\"a\": \"b\", \"b\": 1}", "{\"a\": null, \"x\": null}", "{\"b\": 1}");
    merges_to("{\"a\": 1}", "{}", "{\"a\": 1}");
}

static void objects_merge_and_arrays_do_not(void **state)
{
    (void)state;
    merges_to("{\"a\": {\"b\": 1, \"c\": 2}}", "{\"a\": {\"b\": 3}}",
              "{\"a\": {\"b\": 3, \"c\": 2}}");
    merges_to("{\"a\": [1, 2]}", "{\"a\": [3]}", "{\"a\": [3]}");
    merges_to("{\"a\": [1]}", "{\"a\": {\"b\": 1}}", "{\"a\": {\"b\": 1}}");
    merges_to("{\"a\": {\"b\": 1}}", "{\"a\": [1]}", "{\"a\": [1]}");
    merges_to("{}", "{\"a\": {\"b\": {\"c\": null}}}", "{\"a\": {\"b\": {}}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_replace_and_null_removes),
        cmocka_unit_test(objects_merge_and_arrays_do_not),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
