/* The jobs that wait, and the table of jobs. */
#include "support.h"

#include "queue.h"

static void what_is_removed_is_gone_and_the_rest_stays(void **state)
{
    xpd_queue queue = {0};
    xpd_job *jobs[300];

    (void)state;
    for (int i = 0; i < 300; i++) {
        jobs[i] = small_job(i + 1, i % 3);
        jobs[i]->uid = 1000 + (uid_t)(i % 2);
        assert_true(xpd_queue_insert(&queue, jobs[i]));
    }
    for (int i = 0; i < 300; i += 7) {
        xpd_queue_remove(&queue, jobs[i]);
        xpd_queue_remove(&queue, jobs[i]); /* again does nothing */
    }
    assert_int_equal(queue.count, 300 - 43);
    assert_int_equal(xpd_queue_count_user(&queue, 1000), 150 - 22);
    assert_int_equal(xpd_queue_count_user(&queue, 1002), 0);
    for (size_t i = 0; i < queue.count; i++)
        assert_true((queue.items[i]->number - 1) % 7 != 0);
    xpd_queue_release(&queue);
    for (int i = 0; i < 300; i++)
        xpd_job_unref(jobs[i]);
}

static void jobs_are_found_by_id_and_by_key_of_their_user(void **state)
{
    xpd_table table = {.next_number = 1};
    xpd_job *a = small_job(1, 0), *b = small_job(2, 0);

    (void)state;
    a->idem_key = strdup("k");
    b->idem_key = strdup("k");
    b->uid = 1001;
    assert_true(xpd_table_add(&table, a));
    assert_true(xpd_table_add(&table, b));
    assert_int_equal(table.next_number, 3);
    assert_ptr_equal(xpd_table_find(&table, a->id), a);
    assert_null(xpd_table_find(&table, "short"));
    assert_ptr_equal(xpd_table_find_key(&table, 1000, "k"), a);
    assert_ptr_equal(xpd_table_find_key(&table, 1001, "k"), b);
    assert_null(xpd_table_find_key(&table, 1002, "k"));
    xpd_table_remove(&table, a);
    assert_true(a->removed);
    assert_null(xpd_table_find(&table, a->id));
    assert_null(xpd_table_find_key(&table, 1000, "k"));
    xpd_table_remove(&table, a); /* again does nothing */
    assert_int_equal(table.count, 1);
    xpd_table_release(&table);
    xpd_job_unref(a);
    xpd_job_unref(b);
}

static void the_table_is_ordered_by_number(void **state)
{
    xpd_table table = {.next_number = 1};
    (void)state;
    for (int i = 0; i < 200; i++) {
        xpd_job *job = small_job((i * 37) % 200 + 1, 0);
        assert_true(xpd_table_add(&table, job));
        xpd_job_unref(job);
    }
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(table.items[i]->number, i + 1);
    assert_int_equal(xpd_table_lower(&table, 1), 0);
    assert_int_equal(xpd_table_lower(&table, 100), 99);
    assert_int_equal(xpd_table_lower(&table, 1000), 200);
    xpd_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_removed_is_gone_and_the_rest_stays),
        cmocka_unit_test(jobs_are_found_by_id_and_by_key_of_their_user),
        cmocka_unit_test(the_table_is_ordered_by_number),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
