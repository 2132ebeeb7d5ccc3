/* Devices as the worker tells them, and the choice among them. */
#include "support.h"

#include "device.h"

static const char cpu_only[] =
    "{\"devices\": [{\"name\": \"cpu\", \"model\": \"m\", \"absent\": \"\", \"bytes_total\": "
    "1000000000, \"bytes_free\": 900000000, \"threads\": 2},"
    " {\"name\": \"cuda\", \"model\": \"\", \"absent\": \"built without CUDA\", \"bytes_total\": "
    "0, \"bytes_free\": 0, \"threads\": 0}]}";
static const char two_gpus[] = "{\"devices\": [{\"name\": \"cpu\", \"model\": \"m\", \"absent\": "
                               "\"\", \"bytes_total\": 9, \"bytes_free\": 9, \"threads\": 2},"
                               " {\"name\": \"cuda:0\", \"model\": \"g\", \"absent\": \"\", "
                               "\"bytes_total\": 9, \"bytes_free\": 8, \"threads\": 0},"
                               " {\"name\": \"cuda:1\", \"model\": \"g\", \"absent\": \"\", "
                               "\"bytes_total\": 9, \"bytes_free\": 7, \"threads\": 0}]}";

static xpd_devices decoded(const char *text)
{
    xpd_devices devices;
    json_t *hello = json_loads(text, 0, NULL);
    assert_true(xpd_devices_decode(&devices, hello));
    json_decref(hello);
    return devices;
}

static xpp_job *job_with(const char *devices, const char *model)
{
    char text[512];
    snprintf(text, sizeof text, "{\"scan\": {\"path\": \"/s.h5\"}, \"devices\": %s, \"model\": %s}",
             devices, model);
    json_t *doc = json_loads(text, 0, NULL);
    json_t *errors = xpp_job_check(doc);
    assert_null(errors);
    xpp_job *job = xpp_job_decode(doc);
    json_decref(doc);
    assert_non_null(job);
    return job;
}

static void chosen(const char *hello, const char *wish, int count, const char *first)
{
    xpd_devices devices = decoded(hello);
    xpd_choice choice;
    xpd_error err = XPD_ERROR_INIT;
    xpp_job *job = job_with(wish, "{}");
    if (!xpd_devices_choose(&choice, &devices, job, &err))
        fail_msg("%s", err.text);
    assert_int_equal(choice.count, count);
    assert_string_equal(choice.names[0], first);
    xpp_job_free(job);
}

static void not_chosen(const char *hello, const char *wish, const char *pointer, const char *word)
{
    xpd_devices devices = decoded(hello);
    xpd_choice choice;
    xpd_error err = XPD_ERROR_INIT;
    xpp_job *job = job_with(wish, "{}");
    assert_false(xpd_devices_choose(&choice, &devices, job, &err));
    assert_int_equal(err.fault, XPP_FAULT_NO_DEVICE);
    assert_string_equal(err.pointer, pointer);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not say '%s'", err.text, word);
    xpp_job_free(job);
}

static void without_a_wish_every_gpu_else_the_cpu_is_taken(void **state)
{
    (void)state;
    chosen(cpu_only, "{}", 1, "cpu");
    chosen(two_gpus, "{}", 2, "cuda:0");
    chosen(two_gpus, "{\"num_devices\": 1}", 1, "cuda:0");
    chosen(cpu_only, "{\"num_devices\": 1}", 1, "cpu");
    chosen(cpu_only, "{\"devices\": [\"cpu\", \"cpu\", \"cpu\"]}", 3, "cpu");
    chosen(two_gpus, "{\"devices\": [\"cuda:1\"]}", 1, "cuda:1");
}

static void devices_that_are_not_there_are_refused_with_what_is(void **state)
{
    (void)state;
    not_chosen(cpu_only, "{\"num_devices\": 2}", "/devices/num_devices", "built without CUDA");
    not_chosen(cpu_only, "{\"devices\": [\"cuda:3\", \"cuda:0\"]}", "/devices/devices/0",
               "built without CUDA");
    not_chosen(two_gpus, "{\"num_devices\": 3}", "/devices/num_devices", "cuda:0, cuda:1");
    not_chosen(two_gpus, "{\"devices\": [\"cuda:2\"]}", "/devices/devices/0", "cuda:2");
}

static void a_hello_that_breaks_the_contract_is_refused(void **state)
{
    static const char *const broken[] = {
        "{}", "{\"devices\": 3}", "{\"devices\": [{}]}", "{\"devices\": [{\"name\": \"\"}]}",
        "{\"devices\": [{\"name\": \"cpu\", \"bytes_free\": -1}]}"};
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        xpd_devices devices;
        json_t *hello = json_loads(broken[i], 0, NULL);
        assert_false(xpd_devices_decode(&devices, hello));
        json_decref(hello);
    }
}

static bool updated(xpd_devices *devices, const char *text)
{
    json_t *pong = json_loads(text, 0, NULL);
    bool good = xpd_devices_update(devices, pong);
    json_decref(pong);
    return good;
}

static void a_pong_brings_the_memory_of_now_and_no_device(void **state)
{
    static const char word[] =
        "{\"devices\": [{\"name\": \"cpu\", \"bytes_total\": 90, \"bytes_free\": 60},"
        " {\"name\": \"cuda:1\", \"bytes_total\": 9, \"bytes_free\": 2},"
        " {\"name\": \"cuda:7\", \"bytes_total\": 9, \"bytes_free\": 9}]}";
    xpd_devices devices = decoded(two_gpus);
    xpd_choice choice;
    xpd_error err = XPD_ERROR_INIT;
    xpp_job *job = job_with("{}", "{}");

    (void)state;
    assert_true(xpd_devices_choose(&choice, &devices, job, &err));
    assert_true(updated(&devices, word));
    assert_int_equal(devices.count, 3);
    assert_int_equal(xpd_devices_find(&devices, "cpu")->bytes_free, 60);
    assert_int_equal(xpd_devices_find(&devices, "cpu")->bytes_total, 90);
    assert_int_equal(xpd_devices_find(&devices, "cuda:0")->bytes_free, 8);
    assert_int_equal(xpd_devices_find(&devices, "cuda:1")->bytes_free, 2);
    assert_null(xpd_devices_find(&devices, "cuda:7"));
    assert_int_equal(choice.bytes_free[1], 7);
    xpd_choice_refresh(&choice, &devices);
    assert_int_equal(choice.bytes_free[0], 8);
    assert_int_equal(choice.bytes_free[1], 2);

    assert_true(updated(&devices, "{}")); /* a worker that says nothing about it */
    assert_false(updated(&devices, "{\"devices\": [{\"bytes_free\": 2}]}"));
    assert_false(updated(&devices, "{\"devices\": [{\"name\": \"cpu\", \"bytes_free\": -2}]}"));
    xpp_job_free(job);
}

static bool hello_with(xpd_devices *out, const char *reach)
{
    char text[512];
    snprintf(text, sizeof text, "{\"devices\": [{\"name\": \"cuda:0\"%s%s}]}",
             reach ? ", \"reach\": " : "", reach ? reach : "");
    json_t *hello = json_loads(text, 0, NULL);
    assert_non_null(hello);
    bool ok = xpd_devices_decode(out, hello);
    json_decref(hello);
    return ok;
}

static void links_of_a_device_are_numbers_in_their_range_or_not_known(void **state)
{
    static const char *const wrong[] = {"null",   "{}",     "1",     "[9]",
                                        "[0,-1]", "[true]", "[1.0]", "[\"1\"]"};
    static const uint8_t none[XPE_PEERS_MAX] = {0}, some[XPE_PEERS_MAX] = {0, 1, 8};
    char many[4 * XPE_PEERS_MAX + 8] = "[1";
    xpd_devices devices;

    (void)state;
    assert_true(hello_with(&devices, NULL));
    assert_memory_equal(devices.items[0].reach, none, sizeof none);
    assert_true(hello_with(&devices, "[]"));
    assert_memory_equal(devices.items[0].reach, none, sizeof none);
    assert_true(hello_with(&devices, "[0, 1, 8]"));
    assert_memory_equal(devices.items[0].reach, some, sizeof some);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(hello_with(&devices, wrong[i]));
    for (int i = 1; i < XPE_PEERS_MAX; i++)
        strcat(many, ", 1");
    strcat(many, "]");
    assert_true(hello_with(&devices, many));
    many[strlen(many) - 1] = '\0';
    strcat(many, ", 1]");
    assert_false(hello_with(&devices, many));
}

/* Alone in its set, with links to the GPUs of these numbers. */
static xpd_devices one_gpu(const char *name, int near, int farther)
{
    xpd_devices devices = {.known = true, .count = 1};
    snprintf(devices.items[0].name, sizeof devices.items[0].name, "%s", name);
    devices.items[0].reach[near] = 1;
    devices.items[0].reach[farther] = 3;
    return devices;
}

static void two_sets_are_as_far_apart_as_their_farthest_devices(void **state)
{
    xpd_devices a = one_gpu("cuda:0", 1, 2), b = one_gpu("cuda:1", 0, 2),
                c = one_gpu("cuda:2", 3, 0), none = {0};

    (void)state;
    assert_int_equal(xpd_devices_far(&a, &b), 1);
    assert_int_equal(xpd_devices_far(&a, &c), 3);
    assert_int_equal(xpd_devices_far(&b, &c), XPD_FAR); /* only one knows of a link */
    assert_int_equal(xpd_devices_far(&a, &none), XPD_FAR);
    b.items[b.count++] = c.items[0];
    assert_int_equal(xpd_devices_far(&a, &b), 3);
    assert_int_equal(xpd_devices_far(&b, &a), 3);
    snprintf(b.items[1].absent, sizeof b.items[1].absent, "drained");
    assert_int_equal(xpd_devices_far(&a, &b), 1);
    snprintf(b.items[0].absent, sizeof b.items[0].absent, "drained");
    assert_int_equal(xpd_devices_far(&a, &b), XPD_FAR);
    c = one_gpu("cuda:1x", 0, 2);
    assert_int_equal(xpd_devices_far(&a, &c), XPD_FAR);
    c = one_gpu("cuda:99", 0, 2);
    assert_int_equal(xpd_devices_far(&a, &c), XPD_FAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_of_a_device_are_numbers_in_their_range_or_not_known),
        cmocka_unit_test(two_sets_are_as_far_apart_as_their_farthest_devices),
        cmocka_unit_test(without_a_wish_every_gpu_else_the_cpu_is_taken),
        cmocka_unit_test(devices_that_are_not_there_are_refused_with_what_is),
        cmocka_unit_test(a_hello_that_breaks_the_contract_is_refused),
        cmocka_unit_test(a_pong_brings_the_memory_of_now_and_no_device),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
