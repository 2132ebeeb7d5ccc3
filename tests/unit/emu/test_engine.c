/* The engine on emulated devices while they fail: every call in turn, devices that are lost or
 * hang, ranks with an error.  A run ends with a status and a sentence, nothing is left behind, and
 * the next run gives the same bits. */
#include "cuda/team.h"
#include "emulated.h"
#include "engine_run.h"

#define DEVICES 3

static const char *const distinct[DEVICES] = {"cuda:0", "cuda:1", "cuda:2"};
static const char *const shared[DEVICES] = {"cuda:0", "cuda:0", "cuda:0"};

/* A job small enough to be run a thousand times: 9 frames of 8 x 8, two iterations with the probe,
 * so that one is begun ahead.
 */
typedef struct job {
    const char *const *names;
    int devices; /* there are */
    xpt_case *scan;
    xpe_stage stage;
    size_t pixels, probe_pixels;
    xpe_c32 *object, *probe, *good_object, *good_probe;
} job;

typedef struct outcome {
    xpe_status status;
    xpe_error error;
    uint64_t calls; /* until the result was read; what comes behind gives things back */
} outcome;

static outcome live_once(const job *j)
{
    xpe_device_list devices = {j->names, DEVICES, 1};
    xpe_problem *problem = NULL;
    xpe_run *run = NULL;
    xpe_report report;
    outcome o = {0};
    uint64_t begin = xpe_emu_count().calls;

    o.status = xpe_problem_create(&problem, &j->scan->desc, &o.error);
    if (o.status == XPE_OK)
        o.status = xpe_run_create(&run, problem, &j->stage, &devices, &o.error);
    for (int i = 0; o.status == XPE_OK && i < j->stage.iterations; i++)
        o.status = xpe_run_step(run, &report, &o.error);
    if (o.status == XPE_OK)
        o.status = xpe_run_object(run, j->object, &o.error);
    if (o.status == XPE_OK)
        o.status = xpe_run_probe(run, j->probe, &o.error);
    o.calls = xpe_emu_count().calls - begin;
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    return o;
}

static bool good(const job *j)
{
    return memcmp(j->object, j->good_object, j->pixels * sizeof *j->object) == 0 &&
           memcmp(j->probe, j->good_probe, j->probe_pixels * sizeof *j->probe) == 0;
}

static void assert_good(const job *j)
{
    outcome o = live_once(j);

    if (o.status != XPE_OK)
        fail_msg("a run after the failure: %s: %s", xpe_status_name(o.status), o.error.text);
    assert_true(good(j));
}

static job open_job(const char *const *names)
{
    job j = {.names = names, .devices = names == distinct ? DEVICES : 1};
    outcome o;

    xpe_emu_begin(j.devices, 256 * MIB, 0);
    j.scan = xpt_small_create(8, 3, 1, 1);
    j.stage = xpt_stage(2);
    j.pixels = (size_t)(j.scan->rows * j.scan->cols);
    j.probe_pixels = 64;
    j.object = xpt_new(j.pixels, sizeof *j.object);
    j.probe = xpt_new(j.probe_pixels, sizeof *j.probe);
    j.good_object = xpt_new(j.pixels, sizeof *j.object);
    j.good_probe = xpt_new(j.probe_pixels, sizeof *j.probe);
    o = live_once(&j);
    if (o.status != XPE_OK)
        fail_msg("%s: %s", xpe_status_name(o.status), o.error.text);
    memcpy(j.good_object, j.object, j.pixels * sizeof *j.object);
    memcpy(j.good_probe, j.probe, j.probe_pixels * sizeof *j.probe);
    xpe_cuda_forget();
    return j;
}

static void close_job(job *j)
{
    xpe_cuda_forget();
    xpt_case_destroy(j->scan);
    free(j->object);
    free(j->probe);
    free(j->good_object);
    free(j->good_probe);
}

static bool gives_back(const char *call)
{
    static const char *const names[] = {"cudaFree",         "cudaFreeHost", "cudaStreamDestroy",
                                        "cudaEventDestroy", "cufftDestroy", "ncclCommDestroy",
                                        "ncclCommAbort"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(call, names[i]) == 0)
            return true;
    return false;
}

/* What every failure must leave: a status with a sentence, or a right result where only giving back
 * has failed. */
static void check_failure(const job *j, const outcome *o, uint64_t n)
{
    const char *call = xpe_emu_failed();

    if (o->status == XPE_OK && !good(j))
        fail_msg("call %llu, %s, failed, and the run ended well with another result",
                 (unsigned long long)n, call);
    if (o->status == XPE_OK && n <= o->calls && !gives_back(call))
        fail_msg("call %llu, %s, failed, and the run ended well", (unsigned long long)n, call);
    if (o->status != XPE_OK && o->status != XPE_DEVICE_LOST && o->status != XPE_NO_DEVICE &&
        o->status != XPE_NO_DEVICE_MEMORY && o->status != XPE_NO_MEMORY)
        fail_msg("call %llu, %s, failed: %s: %s", (unsigned long long)n, call,
                 xpe_status_name(o->status), o->error.text);
    if (o->status != XPE_OK && !o->error.text[0])
        fail_msg("call %llu, %s, failed without a word", (unsigned long long)n, call);
    xpe_emu_fail_never();
    xpe_cuda_forget();
    if (!xpe_emu_empty())
        fail_msg("call %llu, %s, failed: %s: and something is left", (unsigned long long)n, call,
                 o->error.text);
}

#define EVERY 16 /* after so many failures a run must succeed and give the same bits */

static void fail_in_turn(const char *const *names, bool onwards, uint64_t step)
{
    job j = open_job(names);
    uint64_t n = 1, runs = 0;
    outcome o;

    for (;; n += step) {
        xpe_emu_fail(NULL, n, onwards);
        o = live_once(&j);
        if (!xpe_emu_failed())
            break;
        check_failure(&j, &o, n);
        if (++runs % EVERY == 0) {
            assert_good(&j);
            if (runs / EVERY % 2) /* the next failure meets kept plans and communicators, or none */
                xpe_cuda_forget();
        }
    }
    xpe_emu_fail_never();
    assert_int_equal(o.status, XPE_OK);
    assert_true(runs > 100);
    printf("    %llu calls failed in turn\n", (unsigned long long)runs);
    close_job(&j);
}

static void every_call_fails_in_turn_on_three_devices(void **state)
{
    (void)state;
    fail_in_turn(distinct, false, 1);
}

static void every_call_fails_in_turn_on_one_device_named_three_times(void **state)
{
    (void)state;
    fail_in_turn(shared, false, 1);
}

static void from_every_seventh_call_on_all_fail(void **state)
{
    (void)state;
    fail_in_turn(distinct, true, 7);
}

static void a_device_is_lost_at_every_piece_of_work(void **state)
{
    job j = open_job(distinct);
    uint64_t after = 0;
    outcome o;

    (void)state;
    for (;; after++) {
        xpe_emu_begin(j.devices, 256 * MIB, 0);
        xpe_emu_lose(1, after);
        o = live_once(&j);
        xpe_cuda_forget();
        if (!xpe_emu_empty())
            fail_msg("lost after %llu: something is left", (unsigned long long)after);
        if (o.status == XPE_OK)
            break;
        if ((o.status != XPE_DEVICE_LOST && o.status != XPE_NO_DEVICE) ||
            !strstr(o.error.text, "cuda:"))
            fail_msg("lost after %llu: %s: %s", (unsigned long long)after,
                     xpe_status_name(o.status), o.error.text);
    }
    assert_true(good(&j));
    assert_true(after > 20);
    xpe_emu_begin(j.devices, 256 * MIB, 0);
    assert_good(&j);
    close_job(&j);
}

static void a_device_that_hangs_is_given_up_by_name(void **state)
{
    job j = open_job(distinct);
    outcome o;

    (void)state;
    xpe_cuda_patience_s = 0.3;
    xpe_emu_stall(2, true);
    o = live_once(&j);
    assert_int_equal(o.status, XPE_DEVICE_LOST);
    if (!strstr(o.error.text, "device 'cuda:2' has not come back for 0.3 s"))
        fail_msg("%s", o.error.text);
    xpe_cuda_patience_s = 60;
    xpe_emu_stall(2, false); /* the end of its process */
    xpe_cuda_forget();
    xpe_emu_abandon();
    xpe_emu_begin(j.devices, 256 * MIB, 0);
    assert_good(&j);
    close_job(&j);
}

static void an_error_of_a_rank_ends_the_run(void **state)
{
    job j = open_job(distinct);
    outcome o;

    (void)state;
    xpe_emu_nccl_error(1, 6 /* ncclRemoteError */);
    do /* it is asked while the host waits, which an order of work may spare it */
        o = live_once(&j);
    while (o.status == XPE_OK);
    assert_int_equal(o.status, XPE_DEVICE_LOST);
    assert_non_null(strstr(o.error.text, "cuda:1"));
    xpe_emu_nccl_error(1, 0);
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
    assert_good(&j);
    close_job(&j);
}

static void a_device_that_is_too_small_is_refused(void **state)
{
    job j = open_job(distinct);
    outcome o;

    (void)state;
    for (size_t bytes = 1; bytes < 100 * MIB; bytes *= 4) {
        xpe_emu_device_bytes(2, bytes);
        o = live_once(&j);
        if (o.status == XPE_OK)
            break;
        assert_int_equal(o.status, XPE_NO_DEVICE_MEMORY);
        assert_non_null(strstr(o.error.text, "cuda:2"));
        xpe_cuda_forget();
        assert_true(xpe_emu_empty());
    }
    assert_int_equal(o.status, XPE_OK);
    assert_true(good(&j));
    close_job(&j);
}

static uint64_t sum(uint64_t (*pairs)[XPE_EMU_DEVICES_MAX])
{
    uint64_t total = 0;

    for (int i = 0; i < DEVICES; i++)
        for (int k = 0; k < DEVICES; k++)
            total += pairs[i][k];
    return total;
}

static void distinct_devices_exchange_by_nccl_and_copies_are_pinned(void **state)
{
    job j = open_job(distinct);
    xpe_emu_counts counts;

    (void)state;
    xpe_emu_begin(j.devices, 256 * MIB, 0);
    assert_good(&j);
    counts = xpe_emu_count();
    assert_true(sum(counts.bytes_nccl) > 0);
    assert_int_equal(sum(counts.bytes_peer), 0);
    assert_int_equal(counts.pageable, 0);
    assert_int_equal(counts.bytes_nccl[0][0] + counts.bytes_nccl[1][1] + counts.bytes_nccl[2][2],
                     0);
    close_job(&j);
}

static void one_device_named_three_times_exchanges_within_itself(void **state)
{
    job j = open_job(shared);
    xpe_emu_counts counts;

    (void)state;
    xpe_emu_begin(j.devices, 256 * MIB, 0);
    assert_good(&j);
    counts = xpe_emu_count();
    assert_int_equal(sum(counts.bytes_nccl), 0);
    assert_int_equal(sum(counts.bytes_peer), 0);
    assert_int_equal(counts.pageable, 0);
    close_job(&j);
}

/* The names that match the first argument, where there is one. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        fact(every_call_fails_in_turn_on_three_devices),
        fact(every_call_fails_in_turn_on_one_device_named_three_times),
        fact(from_every_seventh_call_on_all_fail),
        fact(a_device_is_lost_at_every_piece_of_work),
        fact(a_device_that_hangs_is_given_up_by_name),
        fact(an_error_of_a_rank_ends_the_run),
        fact(a_device_that_is_too_small_is_refused),
        fact(distinct_devices_exchange_by_nccl_and_copies_are_pinned),
        fact(one_device_named_three_times_exchanges_within_itself),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
