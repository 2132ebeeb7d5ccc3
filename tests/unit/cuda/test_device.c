/* A device that hangs, one that is lost, a communicator that fails: the job ends with the name of
 * the device, nobody hangs, and where the device answers the memory comes back. */
#include "cuda/team.h"
#include "emu.h"
#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PATIENCE_S 3.0 /* more than a busy machine takes for what does not hang */

static const char *const names[3] = {"cuda:0", "cuda:1", "cuda:2"};

typedef struct job {
    xpt_case *c;
    xpe_problem *problem;
    xpe_run *run;
} job;

static job begin_job(void)
{
    const xpe_device_list devices = {names, 3, 1};
    xpe_stage stage = xpt_stage(5);
    xpe_report report;
    xpe_error err;
    job j = {.c = xpt_small_create(16, 4, 1, 5)};

    xpt_case_know(j.c);
    xpe_emu_begin(3, (size_t)64 << 20, 0);
    assert_int_equal(xpe_problem_create(&j.problem, &j.c->desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&j.run, j.problem, &stage, &devices, &err), XPE_OK);
    assert_int_equal(xpe_run_step(j.run, &report, &err), XPE_OK);
    return j;
}

static void end_job(job j)
{
    xpe_run_destroy(j.run);
    xpe_problem_destroy(j.problem);
    xpt_case_destroy(j.c);
    xpe_cuda_forget();
}

/* A context costs a GPU memory: a run makes one on the devices that it was given alone. */
static void a_run_touches_no_other_device(void **state)
{
    static const char *const second[] = {"cuda:1"};
    const xpe_device_list devices = {second, 1, 1};
    xpt_case *c = xpt_small_create(16, 4, 1, 5);
    xpe_stage stage = xpt_stage(2);
    xpe_problem *problem;
    xpe_report report;
    xpe_run *run;
    xpe_error err;

    (void)state;
    xpe_emu_begin(3, (size_t)64 << 20, 0);
    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&run, problem, &stage, &devices, &err), XPE_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    assert_int_equal(xpe_emu_count().devices, 2); /* bit 1 */
    xpt_case_destroy(c);
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
}

static double seconds(void)
{
    return xpe_cuda_clock();
}

static void a_lost_device_is_named_and_its_memory_comes_back(void **state)
{
    xpe_report report;
    xpe_error err;
    job j = begin_job();

    (void)state;
    xpe_emu_lose(2, 3);
    assert_int_equal(xpe_run_step(j.run, &report, &err), XPE_DEVICE_LOST);
    assert_non_null(strstr(err.text, "'cuda:2'"));
    assert_int_equal(xpe_run_step(j.run, &report, &err), XPE_DEVICE_LOST); /* and stays so */
    end_job(j);
    assert_true(xpe_emu_empty());
}

static void an_error_of_the_communicator_ends_the_job(void **state)
{
    xpe_report report;
    xpe_error err;
    job j = begin_job();

    (void)state;
    xpe_emu_nccl_error(1, 6);
    assert_int_equal(xpe_run_step(j.run, &report, &err), XPE_DEVICE_LOST);
    assert_non_null(strstr(err.text, "'cuda:1'"));
    assert_non_null(strstr(err.text, "NCCL"));
    end_job(j);
    assert_true(xpe_emu_empty());
    assert_true(xpe_emu_calls("ncclCommAbort") > 0);
}

/* Last, because what hangs is given up together with its memory: nothing looks for it here. */
static void a_device_that_hangs_is_given_up_after_patience(void **state)
{
    xpe_report report;
    xpe_error err;
    job j = begin_job();
    double begin = seconds();

    (void)state;
    xpe_emu_stall(1, true);
    assert_int_equal(xpe_run_step(j.run, &report, &err), XPE_DEVICE_LOST);
    assert_non_null(strstr(err.text, "'cuda:1' has not come back"));
    assert_true(seconds() - begin >= PATIENCE_S);
    begin = seconds();
    xpe_run_destroy(j.run);
    assert_true(seconds() - begin < PATIENCE_S); /* nothing that would wait for it is called */
    xpe_problem_destroy(j.problem);
    xpt_case_destroy(j.c);
}

static void a_device_says_how_it_reaches_the_others(void **state)
{
    static const char *const two[] = {"cuda:1", "cuda:7"};
    static const uint8_t ranked[XPE_PEERS_MAX] = {2, 0, XPE_REACH_MAX, 0},
                         unknown[XPE_PEERS_MAX] = {0};
    xpe_device_info info[2];

    (void)state;
    xpe_emu_begin(4, (size_t)64 << 20, 0);
    xpe_emu_rank(1, 0, 1);
    xpe_emu_rank(1, 2, 99);
    xpe_emu_peer(1, 3, false);
    xpe_devices_look(info, two, 2);
    assert_memory_equal(info[0].reach, unknown, sizeof unknown);
    xpe_devices_links(info, 2);
    assert_memory_equal(info[0].reach, ranked, sizeof ranked);
    assert_true(info[1].absent[0]);
    assert_memory_equal(info[1].reach, unknown, sizeof unknown);
    for (int all = 0; all < 2; all++) {
        xpe_emu_fail(all ? NULL : "cudaDeviceGetP2PAttribute", 1, true);
        memset(info[0].reach, 1, sizeof info[0].reach);
        xpe_devices_links(info, 1);
        assert_memory_equal(info[0].reach, unknown, sizeof unknown);
    }
    xpe_emu_fail_never();
    xpe_cuda_forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_touches_no_other_device),
        cmocka_unit_test(a_lost_device_is_named_and_its_memory_comes_back),
        cmocka_unit_test(an_error_of_the_communicator_ends_the_job),
        cmocka_unit_test(a_device_says_how_it_reaches_the_others),
        cmocka_unit_test(a_device_that_hangs_is_given_up_after_patience),
    };
    xpe_cuda_patience_s = PATIENCE_S;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
