/* One piece of work at a time, on another thread. */
#include "scene.h"

#include "writer.h"

#include <pthread.h>
#include <semaphore.h>

typedef struct task {
    sem_t started, go;
    pthread_t thread;
    int done;
} task;

static void work(void *context)
{
    task *t = context;

    t->thread = pthread_self();
    sem_post(&t->started);
    sem_wait(&t->go);
    t->done++;
}

static void second_work_is_not_taken_while_the_first_runs(void **state)
{
    xpd_writer *writer = xpd_writer_create();
    task t = {0};

    (void)state;
    sem_init(&t.started, 0, 0);
    sem_init(&t.go, 0, 0);
    assert_true(xpd_writer_idle(writer));
    assert_true(xpd_writer_post(writer, work, &t));
    sem_wait(&t.started);
    assert_false(xpd_writer_idle(writer));
    assert_false(xpd_writer_post(writer, work, &t));
    assert_false(pthread_equal(t.thread, pthread_self()));
    sem_post(&t.go);
    xpd_writer_wait(writer);
    assert_int_equal(t.done, 1);
    assert_true(xpd_writer_idle(writer));
    sem_post(&t.go);
    assert_true(xpd_writer_post(writer, work, &t));
    xpd_writer_wait(writer);
    assert_int_equal(t.done, 2);
    xpd_writer_destroy(writer);
}

static void destroy_finishes_what_is_in_hand(void **state)
{
    xpd_writer *writer = xpd_writer_create();
    task t = {0};

    (void)state;
    sem_init(&t.started, 0, 0);
    sem_init(&t.go, 0, 1);
    assert_true(xpd_writer_post(writer, work, &t));
    xpd_writer_destroy(writer);
    assert_int_equal(t.done, 1);
    xpd_writer_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_work_is_not_taken_while_the_first_runs),
        cmocka_unit_test(destroy_finishes_what_is_in_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
