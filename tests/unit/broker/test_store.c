/* The database: what was acknowledged is there after kill -9; damage is refused by name. */
#include "support.h"

#include "store.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

static xpd_store *opened(const char *path)
{
    xpd_store *store = NULL;
    xpd_error err = XPD_ERROR_INIT;
    if (!xpd_store_open(&store, path, &err))
        fail_msg("%s", err.text);
    return store;
}

static void note(void *context, xpd_store_result result)
{
    int *seen = context;
    *seen = (int)result + 1;
}

static void wait_for(xpd_store *store, const int *seen)
{
    for (int i = 0; i < 200 && !*seen; i++) {
        struct pollfd p = {.fd = xpd_store_fd(store), .events = POLLIN};
        poll(&p, 1, 100);
        xpd_store_collect(store);
    }
    assert_int_not_equal(*seen, 0);
}

static void put(xpd_store *store, xpd_job *job)
{
    int seen = 0;
    xpd_store_put(store, xpd_job_row(job), note, &seen);
    wait_for(store, &seen);
    assert_int_equal(seen, XPD_STORE_OK + 1);
}

typedef struct loaded {
    int count;
    int64_t numbers[4096];
    char last_state[16];
} loaded;

static bool take(void *context, xpd_row *row)
{
    loaded *l = context;
    l->numbers[l->count++] = row->number;
    memcpy(l->last_state, row->state, sizeof l->last_state);
    xpd_row_free(row);
    return true;
}

static void rows_come_back_in_order_with_their_last_state(void **state)
{
    char path[256];
    loaded l = {0};
    xpd_job *a = small_job(1, 0), *b = small_job(2, 0);

    path_in(path, sizeof path, *state, "queue.db");
    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    put(store, b);
    put(store, a);
    b->state = XPD_JOB_FAILED;
    put(store, b);
    assert_true(xpd_store_idle(store));
    xpd_store_close(store);

    store = opened(path);
    assert_true(xpd_store_load(store, take, &l, NULL));
    assert_int_equal(l.count, 2);
    assert_int_equal(l.numbers[0], 1);
    assert_string_equal(l.last_state, "failed");
    xpd_store_close(store);
    xpd_job_unref(a);
    xpd_job_unref(b);
}

static void deleted_rows_are_gone(void **state)
{
    char path[256];
    loaded l = {0};
    int seen = 0;
    xpd_job *a = small_job(1, 0);

    path_in(path, sizeof path, *state, "deleted.db");
    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    put(store, a);
    xpd_store_delete(store, a->id, note, &seen);
    wait_for(store, &seen);
    assert_int_equal(seen, XPD_STORE_OK + 1);
    xpd_store_close(store);
    store = opened(path);
    assert_true(xpd_store_load(store, take, &l, NULL));
    assert_int_equal(l.count, 0);
    xpd_store_close(store);
    xpd_job_unref(a);
}

static void a_second_opener_is_refused(void **state)
{
    char path[256];
    xpd_store *second = NULL;
    xpd_error err = XPD_ERROR_INIT;

    path_in(path, sizeof path, *state, "queue.db");
    xpd_store *store = opened(path);
    assert_false(xpd_store_open(&second, path, &err));
    assert_null(second);
    assert_non_null(strstr(err.text, path));
    xpd_store_close(store);
}

static void a_newer_version_is_refused(void **state)
{
    char path[256];
    sqlite3 *db = NULL;
    xpd_store *store = NULL;
    xpd_error err = XPD_ERROR_INIT;

    path_in(path, sizeof path, *state, "newer.db");
    xpd_store_close(opened(path));
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "UPDATE meta SET value = '99'", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_false(xpd_store_open(&store, path, &err));
    assert_non_null(strstr(err.text, "99"));
}

static void a_damaged_file_is_refused_by_name(void **state)
{
    char path[256];
    xpd_store *store = NULL;
    xpd_error err = XPD_ERROR_INIT;

    path_in(path, sizeof path, *state, "noise.db");
    write_text(path, "this is not a database, this is not a database, this is not a database, this "
                     "is not a database, this is not");
    assert_false(xpd_store_open(&store, path, &err));
    assert_non_null(strstr(err.text, path));
}

/* Writes rows until it is killed, and says which were acknowledged. */
static void child(const char *path, int out)
{
    xpd_store *store = NULL;
    if (!xpd_store_open(&store, path, NULL) || !xpd_store_start(store, NULL))
        _exit(1);
    for (int64_t number = 1;; number++) {
        int seen = 0;
        json_t *doc = json_pack("{s:i}", "priority", 0);
        xpd_job *job = xpd_job_create(doc, doc);
        json_decref(doc);
        job->number = number;
        xpp_job_id_make(job->id);
        xpd_store_put(store, xpd_job_row(job), note, &seen);
        xpd_job_unref(job);
        while (!seen) {
            struct pollfd p = {.fd = xpd_store_fd(store), .events = POLLIN};
            poll(&p, 1, 100);
            xpd_store_collect(store);
        }
        if (seen != XPD_STORE_OK + 1 || write(out, &number, sizeof number) != sizeof number)
            _exit(1);
    }
}

static void kill_9_in_mid_write_loses_nothing_acknowledged(void **state)
{
    char name[32], path[256];

    for (int round = 0; round < 5; round++) {
        int out[2];
        int64_t number, acknowledged = 0;
        loaded l = {0};

        snprintf(name, sizeof name, "killed%d.db", round);
        path_in(path, sizeof path, *state, name);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            child(path, out[1]);
        close(out[1]);
        for (int i = 0; i < 5 + 13 * round; i++) {
            assert_int_equal(read(out[0], &number, sizeof number), sizeof number);
            acknowledged = number;
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (read(out[0], &number, sizeof number) == sizeof number)
            acknowledged = number;
        close(out[0]);

        xpd_store *store = opened(path);
        assert_true(xpd_store_load(store, take, &l, NULL));
        xpd_store_close(store);
        assert_true(l.count >= acknowledged && l.count <= acknowledged + 1);
        for (int i = 0; i < l.count; i++)
            assert_int_equal(l.numbers[i], i + 1);
    }
}

/* max_page_count makes SQLite say what it says of a full disk, at the same place. */
static void a_full_disk_is_told_and_what_was_there_stays(void **state)
{
    char path[256];
    loaded l = {0};
    int stored = 0, result = 0;
    sqlite3 *db = NULL;

    path_in(path, sizeof path, *state, "full.db");
    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    db = xpd_store_database(store);
    assert_int_equal(sqlite3_exec(db, "PRAGMA max_page_count = 24", NULL, NULL, NULL), SQLITE_OK);
    for (int64_t number = 1; number < 500 && result != XPD_STORE_FULL + 1; number++) {
        xpd_job *job = small_job(number, 0);
        result = 0;
        xpd_store_put(store, xpd_job_row(job), note, &result);
        wait_for(store, &result);
        stored += result == XPD_STORE_OK + 1;
        xpd_job_unref(job);
    }
    assert_int_equal(result, XPD_STORE_FULL + 1);
    assert_true(stored > 5);
    assert_int_equal(sqlite3_exec(db, "PRAGMA max_page_count = 100000", NULL, NULL, NULL),
                     SQLITE_OK);
    xpd_job *job = small_job(1000, 0);
    put(store, job); /* room again: the service goes on without a restart */
    xpd_job_unref(job);
    xpd_store_close(store);

    store = opened(path);
    assert_true(xpd_store_load(store, take, &l, NULL));
    assert_int_equal(l.count, stored + 1);
    xpd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_in_order_with_their_last_state),
        cmocka_unit_test(deleted_rows_are_gone),
        cmocka_unit_test(a_second_opener_is_refused),
        cmocka_unit_test(a_newer_version_is_refused),
        cmocka_unit_test(a_damaged_file_is_refused_by_name),
        cmocka_unit_test(a_full_disk_is_told_and_what_was_there_stays),
        cmocka_unit_test(kill_9_in_mid_write_loses_nothing_acknowledged),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
