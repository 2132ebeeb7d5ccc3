/* The scheduler: each rule by itself, then a simulation of random jobs with a virtual clock whose
 * invariants are checked by other arithmetic than the scheduler's own.  The suite runs 40,000
 * jobs; `test_broker_schedule 1000000` runs as many as told. */
#include "support.h"

#include "schedule.h"

#include <math.h>

#define MINUTE 60000LL
#define HALF_LIFE_MS (6.0 * 60 * MINUTE)
#define SETS 8
#define USERS 20
#define WAITING 4096
#define POOL 400

static int64_t simulated_jobs = 40000;

/* ------------------------------------------------------------------------------------- rules */

typedef struct scene {
    xpd_sched s;
    xpd_sched_set sets[SETS];
    xpd_sched_user users[4];
    xpd_sched_job jobs[16], scratch[16];
} scene;

static scene *scene_of(int sets)
{
    static scene c;
    memset(&c, 0, sizeof c);
    c.s = (xpd_sched){.now_ms = 1000 * MINUTE,
                      .sets = c.sets,
                      .set_count = sets,
                      .users = c.users,
                      .user_count = 4,
                      .jobs = c.jobs};
    for (int i = 0; i < sets; i++)
        c.sets[i].up = true;
    return &c;
}

/* A job that waits since `minutes`, on any `need` sets, of known length in minutes. */
static xpd_sched_job *add(scene *c, xpd_class class, int priority, int user, int64_t minutes,
                          int need, int64_t length)
{
    xpd_sched_job *job = &c->jobs[c->s.job_count++];
    *job = (xpd_sched_job){.number = (int64_t)c->s.job_count,
                           .class = class,
                           .priority = priority,
                           .user = user,
                           .since_ms = c->s.now_ms - minutes * MINUTE,
                           .need = need,
                           .sets = ((uint64_t)1 << c->s.set_count) - 1,
                           .length_ms = length * MINUTE};
    return job;
}

static void hold(scene *c, int set, int64_t minutes)
{
    c->sets[set].busy = true;
    c->sets[set].until_ms = minutes < 0 ? XPD_NEVER : c->s.now_ms + minutes * MINUTE;
}

static const xpd_sched_job *run(scene *c)
{
    xpd_sched_run(&c->s, c->scratch, true);
    return c->jobs;
}

static void assert_order(const scene *c, const int64_t *numbers)
{
    for (size_t i = 0; i < c->s.job_count; i++)
        assert_int_equal(c->jobs[i].number, numbers[i]);
}

static void classes_come_in_their_order_and_priority_within(void **state)
{
    scene *c = scene_of(1);
    (void)state;
    hold(c, 0, 5);
    add(c, XPD_CLASS_SCAVENGER, 100, 0, 0, 1, 1);
    add(c, XPD_CLASS_BATCH, 0, 0, 0, 1, 1);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 1, 1);
    add(c, XPD_CLASS_NORMAL, 1, 0, 0, 1, 1);
    add(c, XPD_CLASS_LIVE, -100, 0, 0, 1, 1);
    run(c);
    assert_order(c, (const int64_t[]){5, 4, 3, 2, 1});
}

static void an_old_job_rises_but_never_into_live(void **state)
{
    scene *c = scene_of(1);
    (void)state;
    hold(c, 0, 5);
    add(c, XPD_CLASS_NORMAL, -1, 0, 0, 1, 1);
    add(c, XPD_CLASS_SCAVENGER, 0, 0, 29, 1, 1);
    add(c, XPD_CLASS_BATCH, 0, 0, 0, 1, 1);
    add(c, XPD_CLASS_SCAVENGER, 0, 0, 91, 1, 1); /* normal after an hour */
    add(c, XPD_CLASS_SCAVENGER, -100, 0, 100000, 1, 1);
    add(c, XPD_CLASS_LIVE, -100, 0, 0, 1, 1);
    run(c);
    assert_order(c, (const int64_t[]){6, 5, 4, 1, 3, 2});
}

static void who_used_least_goes_first_and_users_take_turns(void **state)
{
    scene *c = scene_of(1);
    (void)state;
    hold(c, 0, 5);
    c->users[0].used_s = 110;
    for (int i = 0; i < 2; i++)
        add(c, XPD_CLASS_NORMAL, 0, 0, 0, 1, 1);
    for (int i = 0; i < 4; i++)
        add(c, XPD_CLASS_NORMAL, 0, 1, 0, 1, 1);
    run(c);
    /* user 1 at 0, 60, 120; then user 0 at 110, 170 */
    assert_order(c, (const int64_t[]){3, 4, 1, 5, 2, 6});
}

static void a_gang_starts_with_all_its_sets_or_waits(void **state)
{
    scene *c = scene_of(4);
    (void)state;
    hold(c, 1, 7);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 4, 10);
    add(c, XPD_CLASS_NORMAL, 0, 1, 0, 2, 7);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].pending, XPD_PENDING_DEVICES);
    assert_int_equal(jobs[0].start_ms, c->s.now_ms + 7 * MINUTE);
    assert_int_equal(jobs[1].pending, XPD_PENDING_NONE);
    assert_int_equal(jobs[1].taken, 0x5);
}

static void a_later_job_starts_only_when_it_does_not_delay_the_first(void **state)
{
    scene *c = scene_of(2);
    (void)state;
    hold(c, 1, 7);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 2, 10);
    add(c, XPD_CLASS_NORMAL, 0, 1, 0, 1, 8);  /* too long */
    add(c, XPD_CLASS_NORMAL, 0, 2, 0, 1, 0);  /* of unknown length */
    add(c, XPD_CLASS_NORMAL, -1, 0, 0, 1, 7); /* fits */
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[1].pending, XPD_PENDING_RESERVATION);
    assert_int_equal(jobs[2].pending, XPD_PENDING_RESERVATION);
    assert_int_equal(jobs[3].pending, XPD_PENDING_NONE);
    assert_int_equal(jobs[0].start_ms, c->s.now_ms + 7 * MINUTE);
    assert_int_equal(jobs[1].start_ms, c->s.now_ms + 17 * MINUTE);
}

static void nothing_is_promised_where_an_end_is_unknown(void **state)
{
    scene *c = scene_of(2);
    (void)state;
    hold(c, 1, -1);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 2, 10);
    add(c, XPD_CLASS_NORMAL, 0, 1, 0, 1, 1);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].start_ms, XPD_NEVER);
    assert_int_equal(jobs[1].pending, XPD_PENDING_RESERVATION);
}

static void a_limit_of_a_user_holds_nobody_else_up(void **state)
{
    scene *c = scene_of(3);
    (void)state;
    c->s.running_max = 1;
    add(c, XPD_CLASS_LIVE, 0, 0, 0, 1, 1);
    add(c, XPD_CLASS_LIVE, 0, 0, 0, 1, 1);
    add(c, XPD_CLASS_NORMAL, 0, 1, 0, 1, 1);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].pending, XPD_PENDING_NONE);
    assert_int_equal(jobs[1].pending, XPD_PENDING_LIMIT);
    assert_int_equal(jobs[2].pending, XPD_PENDING_NONE);
}

static void sets_that_are_down_are_not_used_and_hold_nobody_else_up(void **state)
{
    scene *c = scene_of(2);
    (void)state;
    c->sets[0].up = false;
    add(c, XPD_CLASS_NORMAL, 5, 0, 0, 1, 1)->sets = 1;
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 1, 1);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].pending, XPD_PENDING_WORKER);
    assert_int_equal(jobs[0].start_ms, XPD_NEVER);
    assert_int_equal(jobs[1].taken, 2);
}

static void occupied(scene *c, int set, xpd_class class, int64_t owner, int64_t minutes)
{
    hold(c, set, 100);
    c->sets[set].class = class;
    c->sets[set].owner = owner;
    c->sets[set].from_ms = c->s.now_ms - minutes * MINUTE;
    c->sets[set].can_yield = true;
}

static void only_a_live_job_makes_others_yield_and_the_least_first(void **state)
{
    scene *c = scene_of(4);
    (void)state;
    occupied(c, 0, XPD_CLASS_NORMAL, 11, 1);
    occupied(c, 1, XPD_CLASS_BATCH, 12, 1);
    occupied(c, 2, XPD_CLASS_SCAVENGER, 13, 9);
    occupied(c, 3, XPD_CLASS_SCAVENGER, 14, 5);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 1, 1);
    run(c);
    assert_int_equal(c->s.yield, 0);
    c->jobs[0].class = XPD_CLASS_LIVE;
    run(c);
    assert_int_equal(c->s.yield, 1 << 3);
    c->jobs[0].need = 3;
    run(c);
    assert_int_equal(c->s.yield, 0xe);
    c->jobs[0].need = 4; /* would not be enough */
    run(c);
    assert_int_equal(c->s.yield, 0);
    c->jobs[0].need = 1;
    c->sets[3].leaving = true; /* is enough already */
    run(c);
    assert_int_equal(c->s.yield, 0);
}

static void a_gang_yields_with_all_its_sets(void **state)
{
    scene *c = scene_of(3);
    (void)state;
    occupied(c, 0, XPD_CLASS_BATCH, 11, 1);
    occupied(c, 1, XPD_CLASS_NORMAL, 12, 1);
    occupied(c, 2, XPD_CLASS_BATCH, 11, 1);
    add(c, XPD_CLASS_LIVE, 0, 0, 0, 1, 1)->sets = 1 << 2;
    run(c);
    assert_int_equal(c->s.yield, 0x5);
}

static void shares_are_by_weight(void **state)
{
    scene *c = scene_of(1);
    (void)state;
    hold(c, 0, 5);
    c->users[0].weight = 3; /* 0, 20, 40, 60 against 0, 60 */
    for (int i = 0; i < 4; i++)
        add(c, XPD_CLASS_NORMAL, 0, 0, 0, 1, 1);
    for (int i = 0; i < 2; i++)
        add(c, XPD_CLASS_NORMAL, 0, 1, 0, 1, 1);
    run(c);
    assert_order(c, (const int64_t[]){1, 5, 2, 3, 4, 6});
}

static void sets_kept_for_live_jobs_take_no_others(void **state)
{
    scene *c = scene_of(2);
    (void)state;
    c->sets[1].live_only = true;
    for (int i = 0; i < 2; i++)
        add(c, XPD_CLASS_NORMAL, 0, 0, 0, 1, 1);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 1, 1)->sets = 2;
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].taken, 1);
    assert_int_equal(jobs[1].pending, XPD_PENDING_DEVICES);
    assert_int_equal(jobs[2].pending, XPD_PENDING_WORKER);
    add(c, XPD_CLASS_LIVE, 0, 1, 0, 2, 1);
    jobs = run(c);
    assert_int_equal(jobs[0].class, XPD_CLASS_LIVE);
    assert_int_equal(jobs[0].taken, 3);
}

static void a_user_holds_so_many_sets_and_others_go_on(void **state)
{
    scene *c = scene_of(4);
    (void)state;
    c->s.sets_max = 2;
    c->users[0].sets = 1;
    add(c, XPD_CLASS_NORMAL, 9, 0, 0, 2, 1);
    add(c, XPD_CLASS_NORMAL, 8, 0, 0, 1, 1);
    add(c, XPD_CLASS_NORMAL, 0, 1, 0, 2, 1);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].pending, XPD_PENDING_SETS);
    assert_int_equal(jobs[0].start_ms, XPD_NEVER);
    assert_int_equal(jobs[1].pending, XPD_PENDING_NONE);
    assert_int_equal(jobs[2].pending, XPD_PENDING_NONE);
}

/* Pool 0 for all sets, with `free` bytes. */
static void have_memory(scene *c, int64_t free)
{
    static xpd_sched_pool pool;
    pool.free = free;
    c->s.pools = &pool;
    c->s.pool_count = 1;
}

static xpd_sched_job *needs(xpd_sched_job *job, int64_t bytes)
{
    job->bytes = bytes;
    return job;
}

static void a_job_waits_for_memory_that_others_give_back(void **state)
{
    scene *c = scene_of(3);
    (void)state;
    have_memory(c, 40);
    hold(c, 0, 7);
    c->sets[0].bytes = 60;
    needs(add(c, XPD_CLASS_NORMAL, 5, 0, 0, 1, 10), 70);
    needs(add(c, XPD_CLASS_NORMAL, 4, 1, 0, 1, 8), 31); /* would delay the first */
    needs(add(c, XPD_CLASS_NORMAL, 3, 1, 0, 1, 8), 30); /* leaves it what it needs */
    needs(add(c, XPD_CLASS_NORMAL, 2, 1, 0, 1, 7), 11); /* nothing is left now */
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].pending, XPD_PENDING_MEMORY);
    assert_int_equal(jobs[0].start_ms, c->s.now_ms + 7 * MINUTE);
    assert_int_equal(jobs[1].pending, XPD_PENDING_RESERVATION);
    assert_int_equal(jobs[2].pending, XPD_PENDING_NONE);
    assert_int_not_equal(jobs[3].pending, XPD_PENDING_NONE);
    needs(&c->jobs[3], 10); /* in time and within what is free now */
    c->jobs[3].length_ms = 7 * MINUTE;
    assert_int_equal(run(c)[3].pending, XPD_PENDING_NONE);
}

static void two_jobs_do_not_start_on_the_same_memory(void **state)
{
    scene *c = scene_of(2);
    (void)state;
    have_memory(c, 100);
    needs(add(c, XPD_CLASS_NORMAL, 5, 0, 0, 1, 10), 60);
    needs(add(c, XPD_CLASS_NORMAL, 4, 0, 0, 1, 10), 60);
    needs(add(c, XPD_CLASS_NORMAL, 3, 0, 0, 1, 10), 40); /* would be in the way of the second */
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].pending, XPD_PENDING_NONE);
    assert_int_equal(jobs[1].pending, XPD_PENDING_MEMORY);
    assert_int_equal(jobs[1].start_ms, c->s.now_ms + 10 * MINUTE);
    assert_int_equal(jobs[2].pending, XPD_PENDING_NONE);
}

static void memory_of_strangers_keeps_nobody_else_up(void **state)
{
    scene *c = scene_of(2);
    (void)state;
    have_memory(c, 40);
    needs(add(c, XPD_CLASS_NORMAL, 5, 0, 0, 1, 10), 70);
    needs(add(c, XPD_CLASS_NORMAL, 4, 0, 0, 1, 0), 40);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].pending, XPD_PENDING_FOREIGN);
    assert_int_equal(jobs[0].start_ms, XPD_NEVER);
    assert_int_equal(jobs[1].pending, XPD_PENDING_NONE);
}

static void the_memory_of_the_host_is_counted_beside_that_of_a_device(void **state)
{
    scene *c = scene_of(2);
    static const xpd_sched_pool pools[] = {{50}, {100}, {100}};
    (void)state;
    c->s.pools = pools;
    c->s.pool_count = 3;
    c->sets[0].pool = 1;
    c->sets[1].pool = 2;
    needs(add(c, XPD_CLASS_NORMAL, 5, 0, 0, 2, 10), 100)->host_bytes = 51;
    assert_int_equal(run(c)[0].pending, XPD_PENDING_FOREIGN);
    c->jobs[0].host_bytes = 50;
    assert_int_equal(run(c)[0].pending, XPD_PENDING_NONE);
    c->jobs[0].bytes = 101;
    assert_int_equal(run(c)[0].pending, XPD_PENDING_FOREIGN);
}

static void a_live_job_makes_room_in_memory_too(void **state)
{
    scene *c = scene_of(3);
    (void)state;
    have_memory(c, 10);
    occupied(c, 0, XPD_CLASS_NORMAL, 11, 1);
    occupied(c, 1, XPD_CLASS_BATCH, 12, 1);
    c->sets[0].bytes = c->sets[1].bytes = 45;
    needs(add(c, XPD_CLASS_LIVE, 0, 0, 0, 1, 1), 55);
    run(c);
    assert_int_equal(c->s.yield, 1 << 1);
    needs(&c->jobs[0], 56); /* would not be enough */
    run(c);
    assert_int_equal(c->s.yield, 0);
}

/* Pairs 0-1, 2-3, ... with a bridge, and on two sockets. */
static void bridges_and_sockets(xpd_sched_set *sets, int count)
{
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++)
            sets[i].far[k] = (uint8_t)(i / 2 == k / 2 ? 1 : i / 4 == k / 4 ? 2 : 3);
    }
}

static void a_job_takes_sets_that_are_near_each_other(void **state)
{
    scene *c = scene_of(8);
    (void)state;
    bridges_and_sockets(c->sets, 8);
    hold(c, 0, 7);
    add(c, XPD_CLASS_NORMAL, 9, 0, 0, 2, 10);
    assert_int_equal(run(c)[0].taken, 0xc);
    hold(c, 5, 7);
    add(c, XPD_CLASS_NORMAL, 8, 0, 0, 2, 10);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].taken, 0xc);
    assert_int_equal(jobs[1].taken, 0xc0);
    add(c, XPD_CLASS_NORMAL, 7, 0, 0, 2, 10); /* what is left, far apart */
    assert_int_equal(run(c)[2].taken, 0x12);
}

static void four_of_eight_are_on_one_socket(void **state)
{
    scene *c = scene_of(8);
    (void)state;
    bridges_and_sockets(c->sets, 8);
    hold(c, 2, 7);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 4, 10);
    assert_int_equal(run(c)[0].taken, 0xf0);
    c->jobs[0].need = 3;
    assert_int_equal(run(c)[0].taken, 0xb); /* and the other socket stays whole */
    c->jobs[0].need = 5;
    assert_int_equal(run(c)[0].taken, 0xf1);
}

static void a_job_of_one_set_leaves_pairs_whole(void **state)
{
    scene *c = scene_of(8);
    (void)state;
    bridges_and_sockets(c->sets, 8);
    hold(c, 5, 7);
    add(c, XPD_CLASS_NORMAL, 9, 0, 0, 1, 10);
    add(c, XPD_CLASS_NORMAL, 8, 0, 0, 1, 10);
    add(c, XPD_CLASS_NORMAL, 7, 0, 0, 1, 10);
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].taken, 1 << 4);
    assert_int_equal(jobs[1].taken, 1 << 6); /* the socket that is in use */
    assert_int_equal(jobs[2].taken, 1 << 7);
}

static void nobody_waits_for_sets_that_are_nearer(void **state)
{
    scene *c = scene_of(4);
    (void)state;
    bridges_and_sockets(c->sets, 4);
    hold(c, 0, 1);
    hold(c, 2, 1);
    add(c, XPD_CLASS_NORMAL, 0, 0, 0, 2, 10);
    assert_int_equal(run(c)[0].taken, 0xa);
    hold(c, 1, 5);
    hold(c, 3, 5);
    c->sets[2].busy = false;
    c->sets[0].until_ms = c->sets[1].until_ms; /* 2 and one of the others, which end together */
    const xpd_sched_job *jobs = run(c);
    assert_int_equal(jobs[0].start_ms, c->s.now_ms + 5 * MINUTE);
    assert_int_equal(jobs[0].taken, 0xc);
    c->sets[3].until_ms++; /* kept is what is free first */
    assert_int_equal(run(c)[0].taken, 0x5);
}

static void near_sets_without_memory_are_no_choice(void **state)
{
    scene *c = scene_of(4);
    static const xpd_sched_pool pools[] = {{100}, {100}, {10}, {100}, {100}};
    (void)state;
    bridges_and_sockets(c->sets, 4);
    for (int i = 0; i < 4; i++)
        c->sets[i].pool = i + 1;
    c->s.pools = pools;
    c->s.pool_count = 5;
    needs(add(c, XPD_CLASS_NORMAL, 0, 0, 0, 2, 10), 50);
    assert_int_equal(run(c)[0].taken, 0xc);
    c->jobs[0].need = 3;
    assert_int_equal(run(c)[0].taken, 0xd);
}

static void sets_that_are_as_far_apart_are_taken_in_their_order(void **state)
{
    scene *c = scene_of(8);
    (void)state;
    hold(c, 1, 7);
    for (int far = 0; far < 256; far += 5) {
        c->s.job_count = 0;
        for (int i = 0; i < 8; i++)
            memset(c->sets[i].far, far, sizeof c->sets[i].far);
        add(c, XPD_CLASS_NORMAL, 9, 0, 0, 3, 10);
        add(c, XPD_CLASS_NORMAL, 8, 0, 0, 1, 10);
        const xpd_sched_job *jobs = run(c);
        assert_int_equal(jobs[0].taken, 0xd);
        assert_int_equal(jobs[1].taken, 0x10);
    }
}

/* -------------------------------------------------------------------------------- simulation */

typedef struct runner {
    bool used;
    xpd_sched_job job;
    int64_t start_ms, end_ms;
} runner;

typedef struct world {
    uint64_t random;
    xpd_sched s;
    xpd_sched_set sets[SETS];
    xpd_sched_user users[USERS];
    double used_s[USERS]; /* by jobs that ended, decayed to decayed_ms */
    int64_t decayed_ms;
    bool memory; /* it is scarce: the sets of each half share a pool */
    bool near;   /* some sets are nearer to each other than others */
    xpd_sched_pool pools[2];
    xpd_sched_job *jobs, *scratch;
    int64_t *seconds; /* real length of job number i */
    runner runners[SETS];
    int64_t started, waited_most[XPD_CLASSES];
    double served_s[USERS];
    uint64_t hash;
    int64_t head, promise;
} world;

static uint32_t dice(world *w, uint32_t sides)
{
    w->random = w->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)((w->random >> 33) % sides);
}

static world *world_of(uint64_t seed, int64_t jobs)
{
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->random = seed;
    w->jobs = calloc(WAITING, sizeof *w->jobs);
    w->scratch = calloc(WAITING, sizeof *w->scratch);
    w->seconds = calloc((size_t)jobs + 1, sizeof *w->seconds);
    assert_true(w->jobs && w->scratch && w->seconds);
    w->s = (xpd_sched){.sets = w->sets,
                       .set_count = SETS,
                       .users = w->users,
                       .user_count = USERS,
                       .jobs = w->jobs};
    for (int i = 0; i < SETS; i++)
        w->sets[i].up = true;
    return w;
}

static uint64_t world_free(world *w)
{
    uint64_t hash = w->hash;
    free(w->jobs);
    free(w->scratch);
    free(w->seconds);
    free(w);
    return hash;
}

static void arrive(world *w, int64_t number, xpd_class class, int user, int need, int64_t seconds)
{
    assert_true(w->s.job_count < WAITING);
    int priority = dice(w, 4) == 0 ? (int)dice(w, 201) - 100 : 0;
    /* what is estimated is never less than what it takes; sometimes nothing is known */
    int64_t length = dice(w, 20) == 0 ? 0 : seconds * 1000 * (100 + dice(w, 100)) / 100;
    w->seconds[number] = seconds;
    w->jobs[w->s.job_count++] = (xpd_sched_job){
        .number = number,
        .user = user,
        .class = class,
        .priority = priority,
        .since_ms = w->s.now_ms,
        .length_ms = length,
        .need = need,
        .sets = need == 1 && dice(w, 5) == 0 ? 1u << dice(w, SETS) : (1u << SETS) - 1,
        .bytes = w->memory ? 10 + dice(w, need == 1 ? POOL / 2 : POOL / 4 - 10) : 0};
}

static void scarce_memory(world *w)
{
    w->memory = true;
    w->s.pools = w->pools;
    w->s.pool_count = 2;
    for (int i = 0; i < SETS; i++)
        w->sets[i].pool = i / (SETS / 2);
    w->pools[0].free = w->pools[1].free = POOL;
}

static void spread(world *w)
{
    w->near = true;
    for (int i = 0; i < SETS; i++) {
        for (int k = 0; k < i; k++)
            w->sets[i].far[k] = w->sets[k].far[i] = (uint8_t)dice(w, 9);
    }
}

/* Of all pairs of free sets none is nearer. */
static void assert_nearest_pair(const world *w, const xpd_sched_job *job)
{
    int first = __builtin_ctzll(job->taken), other = 63 - __builtin_clzll(job->taken);

    for (int i = 0; i < SETS; i++) {
        for (int k = 0; k < i; k++) {
            bool free = !w->sets[i].busy && !w->sets[k].busy;
            assert_true(!free || w->sets[i].far[k] >= w->sets[first].far[other]);
        }
    }
}

static void finish_due(world *w)
{
    for (int i = 0; i < SETS; i++) {
        runner *r = &w->runners[i];
        if (!r->used || r->end_ms > w->s.now_ms)
            continue;
        for (int k = 0; k < SETS; k++) {
            if (!(r->job.taken & (1u << k)))
                continue;
            w->sets[k].busy = false;
            w->pools[w->sets[k].pool].free += r->job.bytes;
        }
        double s = (double)(r->end_ms - r->start_ms) / 1000 * r->job.need;
        w->used_s[r->job.user] += s;
        w->served_s[r->job.user] += s;
        r->used = false;
    }
}

static void tell_usage(world *w)
{
    double factor = exp2(-(double)(w->s.now_ms - w->decayed_ms) / HALF_LIFE_MS);
    w->decayed_ms = w->s.now_ms;
    for (int i = 0; i < USERS; i++) {
        w->used_s[i] *= factor;
        w->users[i].used_s = w->used_s[i];
        w->users[i].running = w->users[i].sets = 0;
    }
    for (int i = 0; i < SETS; i++) {
        const runner *r = &w->runners[i];
        if (!r->used)
            continue;
        int64_t ms = w->s.now_ms - r->start_ms;
        ms = ms > r->job.length_ms ? ms : r->job.length_ms;
        w->users[r->job.user].used_s += (double)ms / 1000 * r->job.need;
        w->users[r->job.user].running++;
        w->users[r->job.user].sets += r->job.need;
    }
}

/* No set twice, gangs whole, only sets that the job may have. */
static void start(world *w, const xpd_sched_job *job)
{
    runner *r = NULL;
    assert_int_equal(__builtin_popcountll(job->taken), job->need);
    assert_int_equal(job->taken & ~job->sets, 0);
    for (int k = 0; k < SETS; k++) {
        r = !w->runners[k].used ? &w->runners[k] : r;
        if (!(job->taken & (1u << k)))
            continue;
        assert_false(w->sets[k].busy);
        w->sets[k].busy = true;
        w->sets[k].bytes = job->bytes;
        w->pools[w->sets[k].pool].free -= job->bytes;
        assert_true(!w->memory || w->pools[w->sets[k].pool].free >= 0);
        w->sets[k].until_ms = job->length_ms > 0 ? w->s.now_ms + job->length_ms : XPD_NEVER;
    }
    assert_non_null(r);
    *r = (runner){true, *job, w->s.now_ms, w->s.now_ms + w->seconds[job->number] * 1000};
    int64_t waited = w->s.now_ms - job->since_ms;
    if (waited > w->waited_most[job->class])
        w->waited_most[job->class] = waited;
    w->hash = (w->hash ^ (uint64_t)job->number ^ job->taken << 32 ^ (uint64_t)w->s.now_ms) *
              1099511628211ULL;
    w->started++;
}

/* Whether the job could start at that time if nothing but what runs now runs: by counting. */
static bool could_start_at(const world *w, const xpd_sched_job *job, int64_t at)
{
    int64_t sets[2] = {0}, bytes[2] = {w->pools[0].free, w->pools[1].free}, places = 0;

    for (int k = 0; k < SETS; k++) {
        int pool = w->sets[k].pool;
        if (w->sets[k].busy && w->sets[k].until_ms > at)
            continue;
        sets[pool] += (job->sets >> k & 1) != 0;
        bytes[pool] += w->sets[k].busy ? w->sets[k].bytes : 0;
    }
    for (int pool = 0; pool < 2; pool++) {
        int64_t most = w->memory ? bytes[pool] / job->bytes : SETS;
        places += sets[pool] < most ? sets[pool] : most;
    }
    return places >= job->need;
}

static int64_t could_start(const world *w, const xpd_sched_job *job)
{
    int64_t best = XPD_NEVER;

    if (could_start_at(w, job, w->s.now_ms))
        return w->s.now_ms;
    for (int k = 0; k < SETS; k++) {
        int64_t end = w->sets[k].busy ? w->sets[k].until_ms : XPD_NEVER;
        if (end < best && could_start_at(w, job, end))
            best = end;
    }
    return best;
}

static void schedule(world *w)
{
    size_t left = 0;
    bool waits = false, overtaken = false;

    tell_usage(w);
    xpd_sched_run(&w->s, w->scratch, true);
    for (size_t i = 0; i < w->s.job_count; i++) {
        xpd_sched_job job = w->jobs[i];
        if (job.pending == XPD_PENDING_NONE) {
            overtaken = overtaken || !waits;
            if (w->near && !w->memory && !waits && job.need == 2)
                assert_nearest_pair(w, &job);
            start(w, &job);
            continue;
        }
        waits = true;
        w->jobs[left++] = job;
    }
    w->s.job_count = left;
    if (left == 0) {
        w->head = 0;
        return;
    }
    /* The first of those that wait: its sets are not free, and what was started behind it has not
     * moved its start. */
    int64_t at = could_start(w, &w->jobs[0]);
    assert_true(w->jobs[0].pending == XPD_PENDING_DEVICES ||
                (w->memory && w->jobs[0].pending == XPD_PENDING_MEMORY));
    assert_true(at > w->s.now_ms);
    assert_int_equal(at, w->jobs[0].start_ms);
    if (w->head == w->jobs[0].number && !overtaken)
        assert_true(at <= w->promise);
    w->head = w->jobs[0].number;
    w->promise = at;
}

static int64_t next_end(const world *w)
{
    int64_t at = XPD_NEVER;
    for (int i = 0; i < SETS; i++) {
        if (w->runners[i].used && w->runners[i].end_ms < at)
            at = w->runners[i].end_ms;
    }
    return at;
}

static int random_need(world *w)
{
    uint32_t d = dice(w, 100);
    return d < 75 ? 1 : d < 90 ? 2 : d < 98 ? 4 : 8;
}

static uint64_t simulate(uint64_t seed, int64_t count, bool memory, bool near, bool print)
{
    static const int class_of[10] = {0, 1, 1, 1, 1, 1, 2, 2, 3, 3};
    world *w = world_of(seed, count);
    int64_t number = 1, arrival = 0;

    if (memory)
        scarce_memory(w);
    if (near)
        spread(w);

    while (number <= count || w->s.job_count > 0 || next_end(w) != XPD_NEVER) {
        int64_t end = next_end(w);
        bool comes = number <= count && arrival <= end;
        w->s.now_ms = comes ? arrival : end;
        assert_true(w->s.now_ms != XPD_NEVER);
        finish_due(w);
        if (comes) {
            arrive(w, number++, (xpd_class)class_of[dice(w, 10)], (int)dice(w, USERS),
                   random_need(w), 10 + dice(w, 600));
            /* 0.82 of what the sets can do, in waves of 1.1 and 0.6 that last four hours */
            bool high = w->s.now_ms / (240 * MINUTE) % 2 == 0;
            int64_t gap = dice(w, high ? 110000 : 205000);
            arrival += memory ? gap * 8 / 5 : gap; /* not all sets can be used at a time */
        }
        schedule(w);
    }
    assert_int_equal(w->started, count);
    for (int class = 0; class < XPD_CLASSES; class ++) {
        if (print)
            print_message("%lld jobs%s%s, %s: longest wait %.1f h\n", (long long)count,
                          memory ? ", scarce memory" : "", near ? ", near and far" : "",
                          xpd_class_name((xpd_class) class),
                          (double)w->waited_most[class] / (60 * MINUTE));
        assert_true(w->waited_most[class] < 24 * 60 * MINUTE);
    }
    return world_free(w);
}

static void random_jobs_keep_the_invariants(void **state)
{
    (void)state;
    simulate(1, simulated_jobs, false, false, true);
}

static void they_do_where_memory_is_scarce(void **state)
{
    (void)state;
    simulate(2, simulated_jobs / 2, true, false, true);
}

static void they_do_where_sets_are_near_and_far(void **state)
{
    (void)state;
    simulate(1, simulated_jobs, false, true, true);
    simulate(2, simulated_jobs / 2, true, true, true);
}

static void the_same_input_gives_the_same_schedule(void **state)
{
    (void)state;
    for (int near = 0; near < 2; near++) {
        uint64_t hash = simulate(7, 5000, true, near, false);
        assert_true(hash == simulate(7, 5000, true, near, false));
        assert_false(hash == simulate(8, 5000, true, near, false));
    }
}

/* Users with jobs of very different size and number, always some of each waiting. */
static void share_out(bool weighted)
{
    enum { HOURS = 400 };
    world *w = world_of(3, 2000000);
    int64_t number = 1;
    int waiting[USERS];
    double sum = 0, weights = 0;

    for (int u = 0; u < USERS && weighted; u++)
        w->users[u].weight = 1 + u % 2;
    while (w->s.now_ms < HOURS * 60 * MINUTE) {
        memset(waiting, 0, sizeof waiting);
        for (size_t i = 0; i < w->s.job_count; i++)
            waiting[w->jobs[i].user]++;
        for (int u = 0; u < USERS; u++) {
            for (; waiting[u] < 1 + u; waiting[u]++) {
                arrive(w, number, XPD_CLASS_NORMAL, u, 1 + u % 3,
                       30 + 60 * (u % 7) + (int)dice(w, 30));
                w->jobs[w->s.job_count - 1].priority = 0;
                w->jobs[w->s.job_count - 1].sets = (1u << SETS) - 1;
                number++;
            }
        }
        schedule(w);
        w->s.now_ms = next_end(w);
        finish_due(w);
    }
    double least = INFINITY, most = 0;
    for (int u = 0; u < USERS; u++) {
        sum += w->served_s[u];
        weights += weighted ? w->users[u].weight : 1;
    }
    for (int u = 0; u < USERS; u++) {
        double share = w->served_s[u] / sum / (weighted ? w->users[u].weight : 1) * weights;
        least = share < least ? share : least;
        most = share > most ? share : most;
        if (share < 0.9 || share > 1.1)
            fail_msg("user %d has %.2f of its share", u, share);
    }
    print_message("%s shares: from %.3f to %.3f of what is due\n", weighted ? "weighted" : "equal",
                  least, most);
    world_free(w);
}

static void users_that_always_wait_get_equal_shares(void **state)
{
    (void)state;
    share_out(false);
}

static void and_by_weight_where_they_have_one(void **state)
{
    (void)state;
    share_out(true);
}

/* One user keeps eight sets full with urgent jobs; another has one that nobody wants to run. */
static void nobody_starves(void **state)
{
    world *w = world_of(5, 2000000);
    int64_t number = 2;

    (void)state;
    arrive(w, 1, XPD_CLASS_SCAVENGER, 1, 8, 60);
    w->jobs[0].priority = -100;
    while (w->started == 0 || w->served_s[1] <= 0) {
        while (w->s.job_count < 20) {
            arrive(w, number++, XPD_CLASS_NORMAL, 0, 1, 120 + dice(w, 300));
            w->jobs[w->s.job_count - 1].priority = 100;
        }
        schedule(w);
        w->s.now_ms = next_end(w);
        finish_due(w);
        /* overdue after twelve hours, then the running ones end */
        assert_true(w->s.now_ms < 12 * 60 * MINUTE + 20 * MINUTE);
    }
    world_free(w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_come_in_their_order_and_priority_within),
        cmocka_unit_test(an_old_job_rises_but_never_into_live),
        cmocka_unit_test(who_used_least_goes_first_and_users_take_turns),
        cmocka_unit_test(a_gang_starts_with_all_its_sets_or_waits),
        cmocka_unit_test(a_later_job_starts_only_when_it_does_not_delay_the_first),
        cmocka_unit_test(nothing_is_promised_where_an_end_is_unknown),
        cmocka_unit_test(a_limit_of_a_user_holds_nobody_else_up),
        cmocka_unit_test(sets_that_are_down_are_not_used_and_hold_nobody_else_up),
        cmocka_unit_test(only_a_live_job_makes_others_yield_and_the_least_first),
        cmocka_unit_test(a_gang_yields_with_all_its_sets),
        cmocka_unit_test(shares_are_by_weight),
        cmocka_unit_test(sets_kept_for_live_jobs_take_no_others),
        cmocka_unit_test(a_user_holds_so_many_sets_and_others_go_on),
        cmocka_unit_test(a_job_waits_for_memory_that_others_give_back),
        cmocka_unit_test(two_jobs_do_not_start_on_the_same_memory),
        cmocka_unit_test(memory_of_strangers_keeps_nobody_else_up),
        cmocka_unit_test(the_memory_of_the_host_is_counted_beside_that_of_a_device),
        cmocka_unit_test(a_live_job_makes_room_in_memory_too),
        cmocka_unit_test(a_job_takes_sets_that_are_near_each_other),
        cmocka_unit_test(four_of_eight_are_on_one_socket),
        cmocka_unit_test(a_job_of_one_set_leaves_pairs_whole),
        cmocka_unit_test(nobody_waits_for_sets_that_are_nearer),
        cmocka_unit_test(near_sets_without_memory_are_no_choice),
        cmocka_unit_test(sets_that_are_as_far_apart_are_taken_in_their_order),
        cmocka_unit_test(random_jobs_keep_the_invariants),
        cmocka_unit_test(they_do_where_memory_is_scarce),
        cmocka_unit_test(they_do_where_sets_are_near_and_far),
        cmocka_unit_test(the_same_input_gives_the_same_schedule),
        cmocka_unit_test(users_that_always_wait_get_equal_shares),
        cmocka_unit_test(and_by_weight_where_they_have_one),
        cmocka_unit_test(nobody_starves),
    };
    if (argc > 1)
        simulated_jobs = strtoll(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
