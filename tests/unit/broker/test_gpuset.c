/* What workers.cuda may say. */
#include "support.h"

#include "gpuset.h"

static xpd_gpu_sets good(const char *text)
{
    xpd_gpu_sets sets;
    xpd_error err = XPD_ERROR_INIT;
    if (!xpd_gpu_sets_parse(&sets, text, &err))
        fail_msg("'%s': %s", text, err.text);
    return sets;
}

static void bad(const char *text, const char *word)
{
    xpd_gpu_sets sets;
    xpd_error err = XPD_ERROR_INIT;
    assert_false(xpd_gpu_sets_parse(&sets, text, &err));
    assert_int_equal(err.fault, XPP_FAULT_BAD_REQUEST);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not say '%s'", err.text, word);
}

static void words_are_no_sets(void **state)
{
    (void)state;
    assert_true(good("auto").automatic);
    assert_int_equal(good("auto").count, 0);
    assert_false(good("none").automatic);
    assert_int_equal(good("none").count, 0);
}

static void sets_are_devices_with_plus_between(void **state)
{
    xpd_gpu_sets sets = good(" cuda:0+cuda:1  cuda:12\tcuda:3 ");

    (void)state;
    assert_false(sets.automatic);
    assert_int_equal(sets.count, 3);
    assert_int_equal(sets.sets[0].count, 2);
    assert_string_equal(sets.sets[0].names[1], "cuda:1");
    assert_int_equal(sets.sets[1].count, 1);
    assert_string_equal(sets.sets[1].names[0], "cuda:12");
    assert_string_equal(sets.sets[2].names[0], "cuda:3");
}

static void anything_else_is_refused_by_its_name(void **state)
{
    static const char *const broken[] = {"cpu",         "cuda",
                                         "cuda:",       "cuda:x",
                                         "cuda:00",     "cuda:+1",
                                         "cuda:-1",     "cuda:1x",
                                         "cuda:0+",     "+cuda:0",
                                         "cuda:0 +",    "cuda:0,cuda:1",
                                         "auto cuda:0", "cuda:123456789012345"};
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        bad(broken[i], "is not a GPU such as cuda:0");
    bad("", "empty");
    bad("  ", "empty");
}

static void a_device_is_in_one_set_only(void **state)
{
    (void)state;
    bad("cuda:0 cuda:1+cuda:0", "'cuda:0' stands twice");
    bad("cuda:2+cuda:2", "'cuda:2' stands twice");
}

static void there_is_an_end_to_sets(void **state)
{
    char text[16 * (XPD_GPU_SETS_MAX + 1)] = "";
    size_t at = 0;

    (void)state;
    for (int i = 0; i <= XPD_GPU_SETS_MAX; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "cuda:%d ", i);
    bad(text, "more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_no_sets),
        cmocka_unit_test(sets_are_devices_with_plus_between),
        cmocka_unit_test(anything_else_is_refused_by_its_name),
        cmocka_unit_test(a_device_is_in_one_set_only),
        cmocka_unit_test(there_is_an_end_to_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
