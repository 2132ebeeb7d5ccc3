/* Which device sets can hold a job, without processes. */
#include "support.h"

#include "assign.h"

typedef struct fixture {
    xpd_broker b;
    xpd_job *job;
} fixture;

/* A set of GPUs, or of the CPU where there are no names. */
static xpd_worker *add(fixture *f, const char *model, int64_t gib, int count, const int *gpus)
{
    xpd_worker *w = xpd_worker_add(&f->b, count > 0);

    assert_non_null(w);
    w->devices.known = w->ready = true;
    for (int i = 0; i < (count ? count : 1); i++) {
        xpe_device_info *d = &w->devices.items[w->devices.count++];
        snprintf(d->name, sizeof d->name, count ? "cuda:%d" : "cpu", count ? gpus[i] : 0);
        snprintf(d->model, sizeof d->model, "%s", model);
        d->bytes_total = d->bytes_free = gib << 30;
    }
    return w;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!f)
        return -1;
    add(f, "processor", 64, 0, NULL);
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    xpd_job_unref(f->job);
    xpd_workers_destroy(&f->b);
    free(f);
    return 0;
}

static void four_sets(fixture *f)
{
    for (int i = 0; i < 4; i++)
        add(f, "H200", 141, 1, &i);
}

static void make_job(fixture *f, const char *devices)
{
    char text[256];
    snprintf(text, sizeof text, "{\"scan\": {\"path\": \"/s.h5\"}, \"devices\": %s}", devices);
    json_t *doc = json_loads(text, 0, NULL);
    xpd_job_unref(f->job);
    f->job = xpd_job_create(doc, doc);
    json_decref(doc);
    assert_non_null(f->job);
}

/* It ran on these devices. */
static void has_run(fixture *f, const char *first)
{
    f->job->started_ms = 1;
    f->job->devices = json_pack("[s]", first);
}

static void expect(const fixture *f, uint64_t sets, int need)
{
    xpd_assign place = xpd_assign_of(&f->b, f->job);
    assert_int_equal(place.sets, sets);
    assert_int_equal(place.need, need);
}

static void never_enough(const fixture *f, const char *word)
{
    xpd_assign place = xpd_assign_of(&f->b, f->job);
    char text[400];

    assert_true(place.need > __builtin_popcountll(place.sets));
    xpd_assign_missing(text, sizeof text, &f->b, f->job);
    if (!strstr(text, word))
        fail_msg("'%s' does not say '%s'", text, word);
}

static void expect_kind(const fixture *f, const char *kind, int count)
{
    char text[16];
    int n;
    xpd_assign_kind(text, sizeof text, &n, &f->b, f->job);
    assert_string_equal(text, kind);
    assert_int_equal(n, count);
}

static void without_gpus_everything_goes_to_the_cpu(void **state)
{
    fixture *f = *state;

    add(f, "processor", 64, 0, NULL);
    make_job(f, "{}");
    expect(f, 3, 1);
    expect_kind(f, "cpu", 1);
    make_job(f, "{\"devices\": [\"cpu\", \"cpu\"]}");
    expect(f, 3, 1);
    expect_kind(f, "cpu", 2);
}

static void a_job_that_names_nothing_takes_any_set_of_gpus(void **state)
{
    fixture *f = *state;

    four_sets(f);
    make_job(f, "{}");
    expect(f, 0x1e, 1);
    expect_kind(f, "cuda", 1);
    make_job(f, "{\"devices\": [\"cpu\"]}");
    expect(f, 1, 1);
    f->b.workers[2]->drained = true;
    snprintf(f->b.workers[3]->devices.items[0].absent, 8, "gone");
    make_job(f, "{}");
    expect(f, 0x12, 1);
}

static void a_count_takes_one_set_that_has_enough_or_so_many_that_have(void **state)
{
    fixture *f = *state;

    add(f, "H200", 141, 1, (int[]){0});
    add(f, "H200", 141, 2, (int[]){1, 2});
    add(f, "H200", 141, 1, (int[]){3});
    make_job(f, "{\"num_devices\": 1}");
    expect(f, 0xe, 1);
    make_job(f, "{\"num_devices\": 2}");
    expect(f, 0x4, 1);
    expect_kind(f, "cuda", 2);
    make_job(f, "{\"num_devices\": 3}");
    expect(f, 0xe, 3); /* any three: two might be the small ones */
    make_job(f, "{\"num_devices\": 4}");
    expect(f, 0xe, 3);
    make_job(f, "{\"num_devices\": 5}");
    never_enough(f, "5 GPUs, of which 4");
}

static void named_gpus_are_the_sets_that_have_them(void **state)
{
    fixture *f = *state;

    four_sets(f);
    make_job(f, "{\"devices\": [\"cuda:3\", \"cuda:1\"]}");
    expect(f, 0x14, 2);
    make_job(f, "{\"devices\": [\"cuda:3\", \"cuda:9\"]}");
    never_enough(f, "'cuda:9'");
    snprintf(f->b.workers[2]->devices.items[0].absent, 32, "fell off the bus");
    make_job(f, "{\"devices\": [\"cuda:3\", \"cuda:1\"]}");
    never_enough(f, "device 'cuda:1': fell off the bus");
}

static void a_job_that_ran_keeps_to_its_kind_and_model(void **state)
{
    fixture *f = *state;

    add(f, "H200", 141, 1, (int[]){0});
    add(f, "A100", 80, 1, (int[]){1});
    add(f, "H200", 141, 1, (int[]){2});
    make_job(f, "{}");
    expect(f, 0xe, 1);
    has_run(f, "cuda:2");
    expect(f, 0xa, 1);
    json_array_set_new(f->job->devices, 0, json_string("cpu"));
    expect(f, 0x1, 1);
    json_array_set_new(f->job->devices, 0, json_string("cuda:1"));
    expect(f, 0x4, 1);
    for (int i = 1; i <= 3; i++)
        snprintf(f->b.workers[i]->devices.items[0].absent, 32, "no driver");
    never_enough(f, "no driver");
    never_enough(f, "no other kind of device");
}

static void where_a_worker_died_with_it_is_avoided_if_there_is_another_place(void **state)
{
    fixture *f = *state;

    four_sets(f);
    make_job(f, "{}");
    f->job->shunned = 0x2;
    expect(f, 0x1c, 1);
    make_job(f, "{\"num_devices\": 4}");
    f->job->shunned = 0x2;
    expect(f, 0x1e, 4);
    make_job(f, "{\"devices\": [\"cuda:0\"]}");
    f->job->shunned = 0x2;
    expect(f, 0x2, 1);
}

static void choose(const fixture *f, const char *devices, uint64_t sets, const char *names)
{
    char text[256], got[256] = "";
    xpd_choice choice;
    xpd_error err = XPD_ERROR_INIT;

    snprintf(text, sizeof text, "{\"scan\": {\"path\": \"/s.h5\"}, \"devices\": %s}", devices);
    json_t *doc = json_loads(text, 0, NULL);
    xpp_job *job = xpp_job_decode(doc);
    json_decref(doc);
    assert_non_null(job);
    if (!xpd_assign_choose(&choice, &f->b, job, sets, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < choice.count; i++) {
        strcat(got, i ? " " : "");
        strcat(got, choice.names[i]);
    }
    assert_string_equal(got, names);
    xpp_job_free(job);
}

static void devices_are_those_of_the_sets_it_got(void **state)
{
    fixture *f = *state;

    add(f, "T4", 15, 1, (int[]){0});
    add(f, "H200", 141, 2, (int[]){1, 2});
    choose(f, "{}", 0, "cuda:1 cuda:2"); /* at submission: the largest set */
    choose(f, "{}", 0x2, "cuda:0");
    choose(f, "{}", 0x4, "cuda:1 cuda:2");
    choose(f, "{}", 0x1, "cpu");
    choose(f, "{\"num_devices\": 1}", 0x4, "cuda:1");
    choose(f, "{\"num_devices\": 3}", 0x6, "cuda:0 cuda:1 cuda:2");
    choose(f, "{\"devices\": [\"cuda:2\", \"cuda:0\"]}", 0x6, "cuda:2 cuda:0");
}

static void devices_are_known_when_every_kind_has_been_asked(void **state)
{
    fixture *f = *state;

    assert_true(xpd_workers_devices(&f->b)->known);
    four_sets(f);
    f->b.workers[4]->devices.known = false;
    assert_false(xpd_workers_devices(&f->b)->known);
    f->b.workers[4]->devices.known = true;
    assert_true(xpd_workers_devices(&f->b)->known);
    assert_int_equal(xpd_workers_devices(&f->b)->count, 5);
    f->b.workers[0]->devices.known = false;
    assert_false(xpd_workers_devices(&f->b)->known);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(without_gpus_everything_goes_to_the_cpu),
        T(a_job_that_names_nothing_takes_any_set_of_gpus),
        T(a_count_takes_one_set_that_has_enough_or_so_many_that_have),
        T(named_gpus_are_the_sets_that_have_them),
        T(a_job_that_ran_keeps_to_its_kind_and_model),
        T(where_a_worker_died_with_it_is_avoided_if_there_is_another_place),
        T(devices_are_those_of_the_sets_it_got),
        T(devices_are_known_when_every_kind_has_been_asked),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
