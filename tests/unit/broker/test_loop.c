/* The event loop: order of timers, removal in a callback, and how long it was away from waiting. */
#include "loop.h"

#include "support.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

typedef struct seen {
    xpd_loop loop;
    char order[8];
    int count, busy_count;
    double busy_s;
    xpd_source *victim;
} seen;

static void setup_loop(seen *s)
{
    *s = (seen){0};
    assert_true(xpd_loop_init(&s->loop));
    s->loop.context = s;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

typedef struct named {
    xpd_timer timer;
    seen *s;
    char name;
} named;

static void fired(void *context)
{
    named *n = context;
    n->s->order[n->s->count++] = n->name;
}

static void timers_fire_by_their_time_and_not_by_when_they_were_set(void **state)
{
    seen s;
    named late = {.s = &s, .name = 'b'}, early = {.s = &s, .name = 'a'},
          never = {.s = &s, .name = 'x'};
    named *all[] = {&late, &early, &never};
    (void)state;
    setup_loop(&s);
    for (size_t i = 0; i < 3; i++)
        all[i]->timer = (xpd_timer){.fire = fired, .context = all[i]};
    xpd_timer_set(&s.loop, &late.timer, 20);
    xpd_timer_set(&s.loop, &never.timer, 10);
    xpd_timer_set(&s.loop, &early.timer, 1);
    xpd_timer_cancel(&never.timer);
    while (s.count < 2)
        xpd_loop_turn(&s.loop);
    assert_string_equal(s.order, "ab");
    assert_false(xpd_timer_armed(&late.timer));
    xpd_loop_release(&s.loop);
}

static void fired_again(void *context)
{
    named *n = context;
    if (++n->s->count < 3)
        xpd_timer_set(&n->s->loop, &n->timer, 0);
}

static void a_timer_that_sets_itself_fires_once_a_turn(void **state)
{
    seen s;
    named again = {.s = &s};
    (void)state;
    setup_loop(&s);
    again.timer = (xpd_timer){.fire = fired_again, .context = &again};
    xpd_timer_set(&s.loop, &again.timer, 0);
    for (int turn = 1; turn <= 3; turn++) {
        xpd_loop_turn(&s.loop);
        assert_int_equal(s.count, turn);
    }
    xpd_loop_release(&s.loop);
}

static void remove_the_other(void *context)
{
    seen *s = context;
    s->count++;
    xpd_loop_remove(&s->loop, s->victim);
}

static void a_source_that_was_removed_in_this_turn_is_not_called(void **state)
{
    seen s;
    xpd_source one, two;
    (void)state;
    setup_loop(&s);
    one = (xpd_source){.fd = eventfd(1, 0), .ready = remove_the_other, .context = &s};
    two = (xpd_source){.fd = eventfd(1, 0), .ready = remove_the_other, .context = &s};
    assert_true(xpd_loop_add(&s.loop, &one) && xpd_loop_add(&s.loop, &two));
    s.victim = &two; /* whoever is first: both remove it, once it is gone it is not called */
    xpd_loop_turn(&s.loop);
    int first = s.count;
    xpd_loop_turn(&s.loop);
    assert_true(first <= 2);
    assert_int_equal(s.count, first + 1);
    close(one.fd);
    close(two.fd);
    xpd_loop_release(&s.loop);
}

static int work_before_the_wait(void *context)
{
    (void)context;
    pause_ms(30);
    return 0;
}

static void note_busy(void *context, double busy_s)
{
    seen *s = context;
    s->busy_count++;
    s->busy_s = busy_s;
}

static void work_before_a_wait_is_lag_too_and_the_wait_is_not(void **state)
{
    seen s;
    named timer = {.s = &s, .name = 't'};
    (void)state;
    setup_loop(&s);
    s.loop.measured = note_busy;
    timer.timer = (xpd_timer){.fire = fired, .context = &timer};
    xpd_timer_set(&s.loop, &timer.timer, 100);
    xpd_loop_turn(&s.loop); /* waits, and does next to nothing */
    assert_int_equal(s.busy_count, 0);
    int64_t began = xpd_now_ms();
    s.loop.before_wait = work_before_the_wait;
    xpd_loop_turn(&s.loop);
    assert_int_equal(s.busy_count, 1);
    assert_true(s.busy_s >= 0.030);
    assert_true(s.busy_s <= (double)(xpd_now_ms() - began + 5) / 1000);
    assert_true(s.loop.lag_max_ms >= 30);
    xpd_loop_release(&s.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_fire_by_their_time_and_not_by_when_they_were_set),
        cmocka_unit_test(a_timer_that_sets_itself_fires_once_a_turn),
        cmocka_unit_test(a_source_that_was_removed_in_this_turn_is_not_called),
        cmocka_unit_test(work_before_a_wait_is_lag_too_and_the_wait_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
