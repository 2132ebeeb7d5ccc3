/* Events in batches: none lost, none out of order, at most twenty messages a second. */
#include "scene.h"

#include "outbox.h"

#include <pthread.h>
#include <sys/eventfd.h>

typedef struct box {
    int wake;
    xpd_outbox *outbox;
    xpd_events events;
} box;

static box box_make(void)
{
    box b = {.wake = eventfd(0, EFD_NONBLOCK)};

    b.outbox = xpd_outbox_create(b.wake);
    b.events = xpd_outbox_events(b.outbox);
    return b;
}

static void box_free(box *b)
{
    xpd_outbox_destroy(b->outbox);
    close(b->wake);
}

static void put(box *b, int from, int count)
{
    for (int i = from; i < from + count; i++)
        xpd_emit(&b->events, json_pack("{s:s, s:i}", "type", "iter", "iter", i));
}

/* Checks that the batch continues at `next`; frees it; the number after it. */
static int check(json_t *batch, int next)
{
    json_t *event;
    size_t i;

    assert_non_null(batch);
    json_array_foreach (batch, i, event)
        assert_int_equal(json_integer_value(json_object_get(event, "iter")), next++);
    json_decref(batch);
    return next;
}

static void first_event_leaves_at_once_and_later_ones_wait_their_turn(void **state)
{
    box b = box_make();
    uint64_t woken = 0;

    (void)state;
    assert_true(xpd_outbox_due(b.outbox, 10.0) < 0.0);
    put(&b, 0, 1);
    assert_int_equal(read(b.wake, &woken, sizeof woken), sizeof woken);
    assert_close(xpd_outbox_due(b.outbox, 10.0), 0.0, 0.0);
    assert_int_equal(check(xpd_outbox_take(b.outbox, 10.0, false), 0), 1);
    put(&b, 1, 5);
    assert_null(xpd_outbox_take(b.outbox, 10.01, false));
    assert_close(xpd_outbox_due(b.outbox, 10.01), 0.04, 1e-9);
    put(&b, 6, 4);
    assert_int_equal(check(xpd_outbox_take(b.outbox, 10.06, false), 1), 10);
    assert_null(xpd_outbox_take(b.outbox, 11.0, false));
    box_free(&b);
}

static void end_of_a_job_does_not_wait(void **state)
{
    box b = box_make();

    (void)state;
    put(&b, 0, 1);
    check(xpd_outbox_take(b.outbox, 1.0, false), 0);
    put(&b, 1, 1);
    assert_int_equal(check(xpd_outbox_take(b.outbox, 1.001, true), 1), 2);
    box_free(&b);
}

static void large_heaps_leave_in_several_messages_in_order(void **state)
{
    box b = box_make();
    int next = 0, messages = 0;
    json_t *batch;

    (void)state;
    put(&b, 0, XPD_OUTBOX_BATCH * 2 + 17);
    while ((batch = xpd_outbox_take(b.outbox, 1.0, true))) {
        assert_true(json_array_size(batch) <= XPD_OUTBOX_BATCH);
        next = check(batch, next);
        messages++;
    }
    assert_int_equal(next, XPD_OUTBOX_BATCH * 2 + 17);
    assert_int_equal(messages, 3);
    box_free(&b);
}

static void *flood(void *argument)
{
    put(argument, 0, XPD_OUTBOX_ROOM + 500);
    return NULL;
}

static void full_box_makes_the_sender_wait_and_loses_nothing(void **state)
{
    box b = box_make();
    pthread_t thread;
    int next = 0;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, flood, &b), 0);
    while (next < XPD_OUTBOX_ROOM + 500) {
        json_t *batch = xpd_outbox_take(b.outbox, 1.0, true);

        if (batch)
            next = check(batch, next);
        else
            usleep(200);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(xpd_outbox_take(b.outbox, 1.0, true));
    box_free(&b);
}

static void closed_box_lets_senders_go(void **state)
{
    box b = box_make();
    pthread_t thread;

    (void)state;
    put(&b, 0, XPD_OUTBOX_ROOM - 10);
    assert_int_equal(pthread_create(&thread, NULL, flood, &b), 0);
    xpd_outbox_close(b.outbox);
    assert_int_equal(pthread_join(thread, NULL), 0);
    put(&b, 0, 3);
    box_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_event_leaves_at_once_and_later_ones_wait_their_turn),
        cmocka_unit_test(end_of_a_job_does_not_wait),
        cmocka_unit_test(large_heaps_leave_in_several_messages_in_order),
        cmocka_unit_test(full_box_makes_the_sender_wait_and_loses_nothing),
        cmocka_unit_test(closed_box_lets_senders_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
