/* The threads of a team (cpu/pool.c). */
#include "cpu/pool.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PARTS_MAX 64
#define THREADS_MAX 4

typedef struct count {
    int threads;
    atomic_int done[PARTS_MAX];
    atomic_int inside[THREADS_MAX]; /* calls in progress with this thread number */
    atomic_bool wrong;
    int64_t plain[PARTS_MAX]; /* written without atomics: each part by one thread, read after the
                                 pass */
} count;

static void body(void *arg, int part, int thread)
{
    count *c = arg;

    if (part < 0 || part >= PARTS_MAX || thread < 0 || thread >= c->threads) {
        atomic_store(&c->wrong, true);
        return;
    }
    if (atomic_fetch_add(&c->inside[thread], 1) != 0)
        atomic_store(&c->wrong, true); /* its scratch memory would be shared */
    atomic_fetch_add(&c->done[part], 1);
    c->plain[part] += part;
    atomic_fetch_sub(&c->inside[thread], 1);
}

static xpe_pool *create(int threads)
{
    xpe_pool *pool;
    xpe_error err;

    assert_int_equal(xpe_pool_create(&pool, threads, &err), XPE_OK);
    assert_int_equal(xpe_pool_threads(pool), threads);
    return pool;
}

static void every_part_is_done_once_in_every_pass(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS_MAX; threads++) {
        static count c;
        xpe_pool *pool = create(threads);
        memset(&c, 0, sizeof c);
        c.threads = threads;
        for (int pass = 1; pass <= 2000; pass++) {
            int parts = pass % (PARTS_MAX + 1); /* 0, 1, few, many */
            int before[PARTS_MAX];
            for (int i = 0; i < PARTS_MAX; i++)
                before[i] = atomic_load(&c.done[i]);
            xpe_pool_run(pool, parts, body, &c);
            for (int i = 0; i < PARTS_MAX; i++)
                assert_int_equal(atomic_load(&c.done[i]), before[i] + (i < parts));
        }
        for (int i = 0; i < PARTS_MAX; i++)
            assert_true(c.plain[i] == (int64_t)i * atomic_load(&c.done[i]));
        assert_false(atomic_load(&c.wrong));
        xpe_pool_destroy(pool);
    }
}

static void what_one_pass_writes_the_next_one_reads(void **state)
{
    xpe_pool *pool = create(3);
    static count c;

    (void)state;
    memset(&c, 0, sizeof c);
    c.threads = 3;
    for (int pass = 0; pass < 3000; pass++)
        xpe_pool_run(pool, 3, body, &c); /* any thread may take any part: a race shows under TSan */
    assert_int_equal(c.plain[2], 2 * 3000);
    xpe_pool_destroy(pool);
}

static void a_pool_that_never_ran_is_destroyed(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS_MAX; threads++)
        xpe_pool_destroy(create(threads));
    xpe_pool_destroy(NULL);
}

static void note_signals(void *arg, int part, int thread)
{
    atomic_int *unblocked = arg;
    sigset_t set;

    (void)part;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (thread > 0 && (!sigismember(&set, SIGTERM) || !sigismember(&set, SIGINT)))
        atomic_fetch_add(unblocked, 1);
}

static void helpers_take_no_signals_and_the_caller_keeps_its_mask(void **state)
{
    sigset_t before, after;
    atomic_int unblocked = 0;
    xpe_pool *pool;

    (void)state;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    pool = create(4);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int i = 0; i < 100; i++)
        xpe_pool_run(pool, 50, note_signals, &unblocked);
    assert_int_equal(atomic_load(&unblocked), 0);
    assert_int_equal(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
    xpe_pool_destroy(pool);
}

static void pools_side_by_side_do_not_mix(void **state)
{
    static count a, b;
    xpe_pool *one = create(2), *two = create(3);

    (void)state;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    a.threads = 2;
    b.threads = 3;
    for (int pass = 0; pass < 300; pass++) {
        xpe_pool_run(one, 5, body, &a);
        xpe_pool_run(two, 7, body, &b);
    }
    assert_int_equal(atomic_load(&a.done[4]), 300);
    assert_int_equal(atomic_load(&a.done[5]), 0);
    assert_int_equal(atomic_load(&b.done[6]), 300);
    assert_false(atomic_load(&a.wrong) || atomic_load(&b.wrong));
    xpe_pool_destroy(one);
    xpe_pool_destroy(two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_once_in_every_pass),
        cmocka_unit_test(what_one_pass_writes_the_next_one_reads),
        cmocka_unit_test(a_pool_that_never_ran_is_destroyed),
        cmocka_unit_test(helpers_take_no_signals_and_the_caller_keeps_its_mask),
        cmocka_unit_test(pools_side_by_side_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
