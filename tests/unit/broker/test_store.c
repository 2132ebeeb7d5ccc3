/* The database: what was acknowledged is there after kill -9; damage is refused by name. */
#include "support.h"

#include "store.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
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

static void the_files_are_not_for_everybody(void **state)
{
    static const char *const beside[] = {"", "-wal"};
    char path[256], file[300];
    xpd_job *job = small_job(1, 0);
    mode_t before = umask(0);
    struct stat st;

    path_in(path, sizeof path, *state, "modes.db");
    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    put(store, job);
    umask(before);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(file, sizeof file, "%s%s", path, beside[i]);
        assert_int_equal(stat(file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
    }
    xpd_store_close(store);
    xpd_job_unref(job);
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

static void take_last_note(void *context, const xpd_note *kept)
{
    *(xpd_note *)context = *kept;
}

static void deleted_rows_are_gone_and_leave_their_note(void **state)
{
    char path[256];
    loaded l = {0};
    int seen = 0;
    xpd_job *a = small_job(1, 0), *b = small_job(2, 0);
    xpd_note last = {.key = "own/1/2/3", .n = 1000, .t_ms = 7}, found = {.n = 0};

    path_in(path, sizeof path, *state, "deleted.db");
    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    put(store, a);
    put(store, b);
    xpd_store_delete(store, a->id, NULL, note, &seen);
    wait_for(store, &seen);
    assert_int_equal(seen, XPD_STORE_OK + 1);
    seen = 0;
    xpd_store_delete(store, b->id, &last, note, &seen);
    wait_for(store, &seen);
    assert_int_equal(seen, XPD_STORE_OK + 1);
    xpd_store_close(store);
    store = opened(path);
    assert_true(xpd_store_load(store, take, &l, NULL));
    assert_int_equal(l.count, 0);
    assert_true(xpd_store_notes(store, take_last_note, &found, NULL));
    assert_string_equal(found.key, "own/1/2/3");
    assert_int_equal(found.n, 1000);
    xpd_store_close(store);
    xpd_job_unref(a);
    xpd_job_unref(b);
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

/* -------------------------------------------------------------------------- a disk that fails */

/* The C library's files, but every sync after the first `good` ones fails.  A shim over SQLite's
 * own file methods, so that what is tested is what SQLite does with the error. */
static sqlite3_vfs failing;
static const sqlite3_io_methods *real_methods[2]; /* of the database, which has locks; of others */
static sqlite3_io_methods shim_methods[2];
static _Atomic int syncs_left = 1 << 30, syncs_failed;

static int shim_sync(sqlite3_file *file, int flags)
{
    if (syncs_left-- > 0)
        return real_methods[file->pMethods == &shim_methods[1]]->xSync(file, flags);
    syncs_failed++;
    return SQLITE_IOERR_FSYNC;
}

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    sqlite3_vfs *real = vfs->pAppData;
    int code = real->xOpen(real, name, file, flags, out);
    if (code == SQLITE_OK && file->pMethods) {
        int kind = flags & SQLITE_OPEN_MAIN_DB ? 0 : 1;
        real_methods[kind] = file->pMethods;
        shim_methods[kind] = *file->pMethods;
        shim_methods[kind].xSync = shim_sync;
        file->pMethods = &shim_methods[kind];
    }
    return code;
}

static void after_a_failed_sync_nothing_is_written_any_more(void **state)
{
    char path[256];
    loaded l = {0};
    int result = 0;

    path_in(path, sizeof path, *state, "sync.db");
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    failing = *real;
    failing.zName = "failing";
    failing.pAppData = real;
    failing.xOpen = shim_open;
    assert_int_equal(sqlite3_vfs_register(&failing, 1), SQLITE_OK);

    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    xpd_job *a = small_job(1, 0), *b = small_job(2, 0), *c = small_job(3, 0);
    put(store, a);
    syncs_left = 0;
    xpd_store_put(store, xpd_job_row(b), note, &result);
    wait_for(store, &result);
    assert_int_equal(result, XPD_STORE_FATAL + 1);
    assert_int_equal(syncs_failed, 1);
    /* the disk is well again, which proves nothing: no further sync is made, at the close neither
     */
    result = 0;
    xpd_store_put(store, xpd_job_row(c), note, &result);
    wait_for(store, &result);
    assert_int_equal(result, XPD_STORE_FATAL + 1);
    xpd_store_close(store);
    assert_int_equal(syncs_failed, 1);

    syncs_left = 1 << 30;
    assert_int_equal(sqlite3_vfs_unregister(&failing), SQLITE_OK);
    assert_int_equal(sqlite3_vfs_register(real, 1), SQLITE_OK);
    store = opened(path); /* the next start reads what there is */
    assert_true(xpd_store_load(store, take, &l, NULL));
    assert_true(l.count >= 1);
    assert_int_equal(l.numbers[0], 1);
    xpd_store_close(store);
    xpd_job_unref(a);
    xpd_job_unref(b);
    xpd_job_unref(c);
}

/* The WAL is moved into the database by the store itself, so that it does not grow. */
static void the_wal_stays_small(void **state)
{
    char path[256], wal[300];
    path_in(path, sizeof path, *state, "wal.db");
    snprintf(wal, sizeof wal, "%s-wal", path);
    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    for (int64_t number = 1; number < 1200; number++) {
        xpd_job *job = small_job(number, 0);
        put(store, job);
        xpd_job_unref(job);
    }
    FILE *file = fopen(wal, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_true(ftell(file) < 8 << 20);
    fclose(file);
    xpd_store_close(store);
}

/* ---------------------------------------------------------------------------------- versions */

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static const char version_1[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE jobs(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, rev INTEGER NOT NULL,"
    " uid INTEGER NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,"
    " detail TEXT NOT NULL, priority INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,"
    " doc TEXT NOT NULL, resolved TEXT NOT NULL, devices TEXT, progress TEXT, result TEXT,"
    " idem_key TEXT, idem_sha TEXT);"
    "CREATE UNIQUE INDEX jobs_idem ON jobs(uid, idem_key) WHERE idem_key IS NOT NULL;"
    "INSERT INTO meta VALUES('schema_version', '1');"
    "INSERT INTO jobs VALUES(7,'01KG7Q3N6W8Y2M4T6V8X0Z1A3C',2,1000,'ada','queued','','',5,17,0,0,0,"
    "'{}','{}',NULL,NULL,NULL,'k','s');";

static bool take_migrated(void *context, xpd_row *row)
{
    xpd_row **out = context;
    assert_null(*out);
    *out = row;
    return true;
}

static void an_old_version_is_copied_and_brought_forward(void **state)
{
    char path[256], copy[300];
    xpd_row *row = NULL;

    path_in(path, sizeof path, *state, "old.db");
    snprintf(copy, sizeof copy, "%s.v1", path);
    run_sql(path, version_1);
    write_text(copy, "left by a migration that did not come to its end");
    xpd_store *store = opened(path);
    assert_true(xpd_store_load(store, take_migrated, &row, NULL));
    assert_non_null(row);
    assert_int_equal(row->number, 7);
    assert_int_equal(row->queued_ms, 17);
    assert_string_equal(row->idem_key, "k");
    assert_null(row->labels);
    assert_null(row->more);
    xpd_row_free(row);
    assert_true(xpd_store_start(store, NULL));
    xpd_job *job = small_job(8, 0);
    put(store, job); /* the statements fit the tables */
    xpd_job_unref(job);
    xpd_store_close(store);
    run_sql(copy,
            "UPDATE jobs SET state = 'failed' WHERE number = 7 AND 1 = (SELECT value FROM meta)");
    xpd_store_close(opened(path)); /* and once is enough */
}

static void a_migration_that_fails_leaves_the_old_version(void **state)
{
    char path[256];
    xpd_store *store = NULL;
    xpd_error err = XPD_ERROR_INIT;

    path_in(path, sizeof path, *state, "stuck.db");
    run_sql(path, version_1);
    run_sql(path, "CREATE TABLE notes(x)"); /* in the way of a step */
    assert_false(xpd_store_open(&store, path, &err));
    assert_non_null(strstr(err.text, path));
    run_sql(path, "DROP TABLE notes; ALTER TABLE jobs ADD COLUMN queued_ms; "
                  "ALTER TABLE jobs DROP COLUMN queued_ms"); /* it was not there */
    xpd_store_close(opened(path));
}

static void take_note(void *context, const xpd_note *got)
{
    memcpy(context, got, sizeof *got);
}

static void notes_come_back(void **state)
{
    char path[256];
    int seen = 0;
    xpd_note note_in = {.key = "use/1000", .a = 1.5, .b = 2.5, .n = 3, .t_ms = 4};
    xpd_note got = {0};

    path_in(path, sizeof path, *state, "notes.db");
    xpd_store *store = opened(path);
    assert_true(xpd_store_start(store, NULL));
    xpd_store_note(store, &note_in);
    note_in.a = 9.5;
    xpd_store_note(store, &note_in);
    xpd_job *job = small_job(1, 0);
    xpd_store_put(store, xpd_job_row(job), note, &seen);
    xpd_job_unref(job);
    wait_for(store, &seen);
    xpd_store_close(store);
    store = opened(path);
    assert_true(xpd_store_notes(store, take_note, &got, NULL));
    assert_memory_equal(&got, &note_in, sizeof got);
    xpd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_files_are_not_for_everybody),
        cmocka_unit_test(rows_come_back_in_order_with_their_last_state),
        cmocka_unit_test(deleted_rows_are_gone_and_leave_their_note),
        cmocka_unit_test(a_second_opener_is_refused),
        cmocka_unit_test(a_newer_version_is_refused),
        cmocka_unit_test(a_damaged_file_is_refused_by_name),
        cmocka_unit_test(a_full_disk_is_told_and_what_was_there_stays),
        cmocka_unit_test(after_a_failed_sync_nothing_is_written_any_more),
        cmocka_unit_test(the_wal_stays_small),
        cmocka_unit_test(an_old_version_is_copied_and_brought_forward),
        cmocka_unit_test(a_migration_that_fails_leaves_the_old_version),
        cmocka_unit_test(notes_come_back),
        cmocka_unit_test(kill_9_in_mid_write_loses_nothing_acknowledged),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
