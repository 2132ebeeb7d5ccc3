/* Iterations that follow each other without the host: it reads nothing between two reported lines,
 * and while it reads a line the devices have the next iteration's work. */
#include "cuda/team.h"
#include "emu.h"
#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define EVERY 4
#define ITERATIONS 14

static const char *const names[3] = {"cuda:0", "cuda:1", "cuda:2"};

typedef struct counted {
    uint64_t down, averages; /* bytes to the host; averages that have been launched */
} counted;

static counted count(void)
{
    return (counted){xpe_emu_count().bytes_down, xpe_emu_calls("k_average")};
}

/* Steps through a run; `check` sees what each step has done. */
static uint64_t run_through(bool known, int devices, int every,
                            void (*check)(int iteration, int devices, counted before,
                                          counted after))
{
    xpt_case *c = xpt_small_create(8, 6, 1, 2);
    const xpe_device_list list = {names, devices, 1};
    xpe_stage stage = xpt_stage(ITERATIONS);
    xpe_problem *problem;
    xpe_report report;
    xpe_run *run;
    xpe_error err;
    uint64_t queued = 0;

    if (known)
        xpt_case_know(c);
    stage.report_every = every;
    xpe_emu_begin(3, (size_t)64 << 20, 0);
    assert_int_equal(xpe_problem_create(&problem, &c->desc, &err), XPE_OK);
    assert_int_equal(xpe_run_create(&run, problem, &stage, &list, &err), XPE_OK);
    for (int i = 1; i <= ITERATIONS; i++) {
        counted before = count();
        assert_int_equal(xpe_run_step(run, &report, &err), XPE_OK);
        check(i, devices, before, count());
        if (i % every == 0 && i < ITERATIONS)
            queued += xpe_emu_live().queued;
    }
    xpe_run_destroy(run);
    xpe_problem_destroy(problem);
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
    xpt_case_destroy(c);
    return queued;
}

static void check_seldom(int iteration, int devices, counted before, counted after)
{
    bool reported = iteration % EVERY == 0 || iteration == ITERATIONS;

    (void)devices;
    if (iteration > 1) /* the first begins with the coverage, which the host reads */
        assert_int_equal(after.down - before.down,
                         reported ? 36 * sizeof(double) + sizeof(xpe_bad) : 0);
}

static void between_two_lines_the_host_reads_nothing(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++)
        for (int devices = 1; devices <= 3; devices += 2)
            (void)run_through(known, devices, EVERY, check_seldom);
}

static void check_ahead(int iteration, int devices, counted before, counted after)
{
    (void)before;
    assert_int_equal(after.averages,
                     (uint64_t)(devices * (iteration < ITERATIONS ? iteration + 1 : iteration)));
}

static void the_next_iteration_is_queued_when_a_line_is_read(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++)
        for (int devices = 1; devices <= 3; devices += 2) {
            uint64_t queued = 0;
            for (int i = 0; i < 5; i++) /* orders of work */
                queued += run_through(known, devices, 1, check_ahead);
            assert_true(queued > 0); /* and has not been waited for */
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_two_lines_the_host_reads_nothing),
        cmocka_unit_test(the_next_iteration_is_queued_when_a_line_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
