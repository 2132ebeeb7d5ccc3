/* See store.h.  WAL with synchronous=FULL: an acknowledged job survives a power cut.  Exclusive
 * locking: a second broker on the same folder cannot open the database, and with a single
 * connection the WAL-reset fault of SQLite before 3.51.3 cannot happen. */
#include "store.h"

#include "log.h"
#include "schema.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define CHECKPOINT_PAGES 1000 /* of the WAL before it is moved into the database */
#define WAKE_TRIES 100

typedef struct op {
    struct op *next;
    enum { PUT, DELETE, NOTE, CHECK } kind;
    xpd_row *row;             /* PUT */
    char id[XPP_JOB_ID_SIZE]; /* DELETE */
    xpd_note note;            /* NOTE; DELETE, where it has a key */
    xpd_store_told told;      /* CHECK */
    char text[256];           /* CHECK: what came of it */
    double seconds;           /* of the commit, in the first of a batch; else -1 */
    xpd_store_done done;
    void *context;
    xpd_store_result result;
} op;

typedef struct op_list {
    op *first, **last;
} op_list;

struct xpd_store {
    sqlite3 *db;
    sqlite3_stmt *put, *del, *note;
    int wal_pages; /* store thread only, as is `lost` */
    bool lost;     /* a write failed in a way that is known to the disk alone: no further one */
    pthread_t thread;
    bool started;
    int event;            /* eventfd of results */
    pthread_mutex_t lock; /* guards the three below */
    pthread_cond_t wake;
    op_list waiting, finished;
    bool stop;
    int64_t outstanding; /* loop thread only, as are the next two */
    void (*took)(void *context, double seconds);
    void *took_context;
};

static const char put_sql[] =
    "INSERT INTO jobs "
    "VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,"
    "?25)"
    " ON CONFLICT(number) DO UPDATE SET rev=?3, state=?6, reason=?7, detail=?8, priority=?9,"
    " started_ms=?11, finished_ms=?12, attempts=?13, devices=?16, progress=?17, result=?18,"
    " queued_ms=?21, frames=?22, side=?23, labels=?24, more=?25";

static const char note_sql[] = "INSERT INTO notes VALUES(?1,?2,?3,?4,?5) ON CONFLICT(key) DO UPDATE"
                               " SET a=?2, b=?3, n=?4, t_ms=?5";

void xpd_row_free(xpd_row *row)
{
    if (!row)
        return;
    free(row->user);
    free(row->detail);
    free(row->doc);
    free(row->resolved);
    free(row->devices);
    free(row->progress);
    free(row->result);
    free(row->idem_key);
    free(row->idem_sha);
    free(row->labels);
    free(row->more);
    free(row);
}

/* ----------------------------------------------------------------------------------- opening */

static bool db_fail(xpd_store *store, const char *path, const char *what, xpd_error *err)
{
    return xpd_fail(err, XPP_FAULT_INTERNAL, "", "state '%s': %s: %s", path, what,
                    sqlite3_errmsg(store->db));
}

static bool run_sql(xpd_store *store, const char *sql, const char *path, const char *what,
                    xpd_error *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return db_fail(store, path, what, err);
    return true;
}

/* A size of the WAL that asks for a checkpoint, which is done apart from the commit: SQLite's own
 * would swallow a failed sync and try it again later. */
static int on_commit(void *context, sqlite3 *db, const char *name, int pages)
{
    xpd_store *store = context;
    (void)db;
    (void)name;
    store->wal_pages = pages;
    return SQLITE_OK;
}

bool xpd_store_open(xpd_store **out, const char *path, xpd_error *err)
{
    xpd_store *store = calloc(1, sizeof *store);
    bool ok = false;

    *out = NULL;
    if (!store)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->wake, NULL);
    store->waiting.last = &store->waiting.first;
    store->finished.last = &store->finished.first;
    store->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->event < 0) {
        xpd_fail(err, XPP_FAULT_INTERNAL, "", "cannot make an eventfd: %s", strerror(errno));
        goto done;
    }
    /* SQLite would let everybody read it, and gives the files beside it the mode of this one. */
    int made = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (made >= 0)
        close(made);
    if (sqlite3_open_v2(path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK) {
        db_fail(store, path, "cannot be opened", err);
        goto done;
    }
    sqlite3_extended_result_codes(store->db, 1);
    if (!run_sql(store, "PRAGMA locking_mode=EXCLUSIVE", path, "cannot be locked", err) ||
        !run_sql(store, "PRAGMA journal_mode=WAL", path, "cannot be opened", err) ||
        !run_sql(store, "PRAGMA synchronous=FULL", path, "cannot be opened", err) ||
        !xpd_schema_open(store->db, path, err))
        goto done;
    sqlite3_wal_hook(store->db, on_commit, store);
    if (sqlite3_prepare_v2(store->db, put_sql, -1, &store->put, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(store->db, note_sql, -1, &store->note, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(store->db, "DELETE FROM jobs WHERE id = ?1", -1, &store->del, NULL) !=
            SQLITE_OK) {
        db_fail(store, path, "does not have the expected tables", err);
        goto done;
    }
    *out = store;
    store = NULL;
    ok = true;
done:
    xpd_store_close(store);
    return ok;
}

/* -------------------------------------------------------------------------------------- rows */

static char *column_text(sqlite3_stmt *s, int column)
{
    const unsigned char *text = sqlite3_column_text(s, column);
    return text ? strdup((const char *)text) : NULL;
}

/* Of a column that is never NULL but in a damaged file: there it is empty, and the row will make no
 * sense. */
static char *column_must(sqlite3_stmt *s, int column)
{
    const unsigned char *text = sqlite3_column_text(s, column);
    return strdup(text ? (const char *)text : "");
}

static void column_copy(char *out, size_t size, sqlite3_stmt *s, int column)
{
    const unsigned char *text = sqlite3_column_text(s, column);
    snprintf(out, size, "%s", text ? (const char *)text : "");
}

static xpd_row *read_row(sqlite3_stmt *s)
{
    xpd_row *row = calloc(1, sizeof *row);
    if (!row)
        return NULL;
    row->number = sqlite3_column_int64(s, 0);
    column_copy(row->id, sizeof row->id, s, 1);
    row->rev = sqlite3_column_int64(s, 2);
    row->uid = sqlite3_column_int64(s, 3);
    row->user = column_must(s, 4);
    column_copy(row->state, sizeof row->state, s, 5);
    column_copy(row->reason, sizeof row->reason, s, 6);
    row->detail = column_must(s, 7);
    row->priority = sqlite3_column_int64(s, 8);
    row->created_ms = sqlite3_column_int64(s, 9);
    row->started_ms = sqlite3_column_int64(s, 10);
    row->finished_ms = sqlite3_column_int64(s, 11);
    row->attempts = sqlite3_column_int64(s, 12);
    row->doc = column_must(s, 13);
    row->resolved = column_must(s, 14);
    row->devices = column_text(s, 15);
    row->progress = column_text(s, 16);
    row->result = column_text(s, 17);
    row->idem_key = column_text(s, 18);
    row->idem_sha = column_text(s, 19);
    row->queued_ms = sqlite3_column_int64(s, 20);
    row->frames = sqlite3_column_int64(s, 21);
    row->side = sqlite3_column_int64(s, 22);
    row->labels = column_text(s, 23);
    row->more = column_text(s, 24);
    if (!row->user || !row->detail || !row->doc || !row->resolved) {
        xpd_row_free(row);
        return NULL;
    }
    return row;
}

bool xpd_store_load(xpd_store *store, bool (*take)(void *context, xpd_row *row), void *context,
                    xpd_error *err)
{
    sqlite3_stmt *s = NULL;
    bool ok = true;
    int code = sqlite3_prepare_v2(store->db, "SELECT * FROM jobs ORDER BY number", -1, &s, NULL);

    while (ok && code == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
        xpd_row *row = read_row(s);
        ok = row && take(context, row);
    }
    int last = sqlite3_finalize(s);
    if (!ok)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "cannot load the jobs: memory is exhausted");
    if (code != SQLITE_OK || last != SQLITE_OK)
        return db_fail(store, sqlite3_db_filename(store->db, "main"), "cannot load the jobs", err);
    return true;
}

bool xpd_store_notes(xpd_store *store, void (*take)(void *context, const xpd_note *note),
                     void *context, xpd_error *err)
{
    sqlite3_stmt *s = NULL;
    int code =
        sqlite3_prepare_v2(store->db, "SELECT * FROM notes ORDER BY t_ms, key", -1, &s, NULL);

    while (code == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
        const unsigned char *key = sqlite3_column_text(s, 0);
        xpd_note note = {.a = sqlite3_column_double(s, 1),
                         .b = sqlite3_column_double(s, 2),
                         .n = sqlite3_column_int64(s, 3),
                         .t_ms = sqlite3_column_int64(s, 4)};
        snprintf(note.key, sizeof note.key, "%s", key ? (const char *)key : "");
        take(context, &note);
    }
    int last = sqlite3_finalize(s);
    if (code != SQLITE_OK || last != SQLITE_OK)
        return db_fail(store, sqlite3_db_filename(store->db, "main"),
                       "cannot load what past jobs tell", err);
    return true;
}

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    if (text)
        sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(s, at);
}

static void bind_row(sqlite3_stmt *s, const xpd_row *r)
{
    sqlite3_bind_int64(s, 1, r->number);
    bind_text(s, 2, r->id);
    sqlite3_bind_int64(s, 3, r->rev);
    sqlite3_bind_int64(s, 4, r->uid);
    bind_text(s, 5, r->user);
    bind_text(s, 6, r->state);
    bind_text(s, 7, r->reason);
    bind_text(s, 8, r->detail);
    sqlite3_bind_int64(s, 9, r->priority);
    sqlite3_bind_int64(s, 10, r->created_ms);
    sqlite3_bind_int64(s, 11, r->started_ms);
    sqlite3_bind_int64(s, 12, r->finished_ms);
    sqlite3_bind_int64(s, 13, r->attempts);
    bind_text(s, 14, r->doc);
    bind_text(s, 15, r->resolved);
    bind_text(s, 16, r->devices);
    bind_text(s, 17, r->progress);
    bind_text(s, 18, r->result);
    bind_text(s, 19, r->idem_key);
    bind_text(s, 20, r->idem_sha);
    sqlite3_bind_int64(s, 21, r->queued_ms);
    sqlite3_bind_int64(s, 22, r->frames);
    sqlite3_bind_int64(s, 23, r->side);
    bind_text(s, 24, r->labels);
    bind_text(s, 25, r->more);
}

static void bind_note(sqlite3_stmt *s, const xpd_note *note)
{
    bind_text(s, 1, note->key);
    sqlite3_bind_double(s, 2, note->a);
    sqlite3_bind_double(s, 3, note->b);
    sqlite3_bind_int64(s, 4, note->n);
    sqlite3_bind_int64(s, 5, note->t_ms);
}

static int execute(xpd_store *store, const op *o)
{
    sqlite3_stmt *s = o->kind == PUT ? store->put : o->kind == NOTE ? store->note : store->del;

    if (o->kind == CHECK)
        return SQLITE_OK;
    if (o->kind == PUT)
        bind_row(s, o->row);
    else if (o->kind == NOTE)
        bind_note(s, &o->note);
    else
        bind_text(s, 1, o->id);
    sqlite3_step(s);
    int code = sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    if (code != SQLITE_OK || o->kind != DELETE || !o->note.key[0])
        return code;
    bind_note(store->note, &o->note);
    sqlite3_step(store->note);
    code = sqlite3_reset(store->note);
    sqlite3_clear_bindings(store->note);
    return code;
}

/* ------------------------------------------------------------------------------------ thread */

/* Why the write to the WAL failed. */
static bool over_quota(sqlite3 *db)
{
    sqlite3_file *wal = NULL;
    int code = 0;

    return sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal) == SQLITE_OK &&
           wal && wal->pMethods &&
           wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &code) == SQLITE_OK &&
           code == EDQUOT;
}

static int write_all(xpd_store *store, op *first)
{
    int code = sqlite3_exec(store->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (op *o = first; o && code == SQLITE_OK; o = o->next)
        code = execute(store, o);
    if (code == SQLITE_OK)
        code = sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL);
    if (code != SQLITE_OK) {
        xpd_log(XPD_LOG_ERROR, NULL, "the state cannot be written: %s", sqlite3_errmsg(store->db));
        if (code == SQLITE_IOERR_WRITE && over_quota(store->db))
            code = SQLITE_FULL; /* which SQLite says of ENOSPC alone */
        if (!sqlite3_get_autocommit(store->db))
            sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return code;
}

static xpd_store_result result_of(int code)
{
    if (code == SQLITE_OK)
        return XPD_STORE_OK;
    /* A full disk leaves the file intact and readable.  After anything else (a failed sync above
     * all, which the kernel reports once only) what is on disk is known only after opening again.
     */
    return (code & 0xff) == SQLITE_FULL ? XPD_STORE_FULL : XPD_STORE_FATAL;
}

/* One transaction.  After anything but success and a full disk nothing is tried again: the kernel
 * tells of a failed sync once and forgets the pages, so a second sync that succeeds proves nothing.
 */
static xpd_store_result write_batch(xpd_store *store, op *first)
{
    if (store->lost)
        return XPD_STORE_FATAL;
    xpd_store_result result = result_of(write_all(store, first));
    if (result == XPD_STORE_OK && store->wal_pages >= CHECKPOINT_PAGES) {
        int code =
            sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        store->wal_pages = 0;
        if (code != SQLITE_OK && (code & 0xff) != SQLITE_FULL && (code & 0xff) != SQLITE_BUSY) {
            xpd_log(XPD_LOG_ERROR, NULL, "the state cannot be written: %s",
                    sqlite3_errmsg(store->db));
            result = XPD_STORE_FATAL;
        }
    }
    store->lost = result == XPD_STORE_FATAL;
    return result;
}

static void check_file(xpd_store *store, op *o)
{
    sqlite3_stmt *s = NULL;
    const char *text = NULL;

    if (sqlite3_prepare_v2(store->db, "PRAGMA integrity_check(1)", -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        text = (const char *)sqlite3_column_text(s, 0);
    snprintf(o->text, sizeof o->text, "%s", text ? text : sqlite3_errmsg(store->db));
    sqlite3_finalize(s);
}

/* The counter cannot overflow; should the kernel say no all the same, nobody else looks here. */
static void wake_loop(const xpd_store *store)
{
    const uint64_t one = 1;
    const struct timespec pause = {0, 10 * 1000 * 1000};

    for (int tries = 0; tries < WAKE_TRIES; tries++) {
        if (write(store->event, &one, sizeof one) == sizeof one || errno == EAGAIN)
            return;
        xpd_log(XPD_LOG_ERROR, NULL, "cannot wake the loop: %s", strerror(errno));
        nanosleep(&pause, NULL);
    }
}

static void *store_thread(void *context)
{
    xpd_store *store = context;

    pthread_mutex_lock(&store->lock);
    for (;;) {
        while (!store->waiting.first && !store->stop)
            pthread_cond_wait(&store->wake, &store->lock);
        op *batch = store->waiting.first;
        if (!batch)
            break;
        store->waiting.first = NULL;
        store->waiting.last = &store->waiting.first;
        pthread_mutex_unlock(&store->lock);

        int64_t began = xpd_now_ms();
        xpd_store_result result = write_batch(store, batch);
        double seconds = (double)(xpd_now_ms() - began) / 1000;
        op **end = &batch;
        for (op *o = batch; o; o = o->next) {
            o->result = result;
            o->seconds = o == batch ? seconds : -1;
            if (o->kind == CHECK)
                check_file(store, o);
            end = &o->next;
        }

        pthread_mutex_lock(&store->lock);
        *store->finished.last = batch;
        store->finished.last = end;
        wake_loop(store);
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

bool xpd_store_start(xpd_store *store, xpd_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&store->thread, NULL, store_thread, store);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "cannot start the store's thread: %s",
                        strerror(code));
    store->started = true;
    return true;
}

int xpd_store_fd(const xpd_store *store)
{
    return store->event;
}

bool xpd_store_idle(const xpd_store *store)
{
    return store->outstanding == 0;
}

void xpd_store_collect(xpd_store *store)
{
    uint64_t count;
    if (read(store->event, &count, sizeof count) < 0 && errno != EAGAIN)
        xpd_log(XPD_LOG_WARNING, NULL, "cannot read the store's eventfd: %s", strerror(errno));

    pthread_mutex_lock(&store->lock);
    op *list = store->finished.first;
    store->finished.first = NULL;
    store->finished.last = &store->finished.first;
    pthread_mutex_unlock(&store->lock);

    while (list) {
        op *o = list;
        list = o->next;
        store->outstanding--;
        if (store->took && o->seconds >= 0)
            store->took(store->took_context, o->seconds);
        if (o->done)
            o->done(o->context, o->result);
        if (o->told)
            o->told(o->context, o->text);
        xpd_row_free(o->row);
        free(o);
    }
}

static void hand_over(xpd_store *store, op *o)
{
    store->outstanding++;
    pthread_mutex_lock(&store->lock);
    *store->waiting.last = o;
    store->waiting.last = &o->next;
    pthread_cond_signal(&store->wake);
    pthread_mutex_unlock(&store->lock);
}

void xpd_store_put(xpd_store *store, xpd_row *row, xpd_store_done done, void *context)
{
    op *o = row ? calloc(1, sizeof *o) : NULL;
    if (!o) {
        xpd_row_free(row);
        if (done)
            done(context, XPD_STORE_FULL);
        return;
    }
    o->kind = PUT;
    o->row = row;
    o->done = done;
    o->context = context;
    hand_over(store, o);
}

void xpd_store_delete(xpd_store *store, const char *id, const xpd_note *last, xpd_store_done done,
                      void *context)
{
    op *o = calloc(1, sizeof *o);
    if (!o) {
        if (done)
            done(context, XPD_STORE_FULL);
        return;
    }
    o->kind = DELETE;
    if (last)
        o->note = *last;
    snprintf(o->id, sizeof o->id, "%s", id);
    o->done = done;
    o->context = context;
    hand_over(store, o);
}

void xpd_store_note(xpd_store *store, const xpd_note *note)
{
    op *o = calloc(1, sizeof *o);
    if (!o)
        return;
    o->kind = NOTE;
    o->note = *note;
    hand_over(store, o);
}

void xpd_store_check(xpd_store *store, xpd_store_told told, void *context)
{
    op *o = calloc(1, sizeof *o);
    if (!o) {
        told(context, "memory is exhausted");
        return;
    }
    o->kind = CHECK;
    o->told = told;
    o->context = context;
    hand_over(store, o);
}

void xpd_store_observe(xpd_store *store, void (*took)(void *context, double seconds), void *context)
{
    store->took = took;
    store->took_context = context;
}

struct sqlite3 *xpd_store_database(xpd_store *store)
{
    return store->db;
}

void xpd_store_flush(xpd_store *store)
{
    if (!store || !store->started)
        return;
    pthread_mutex_lock(&store->lock);
    store->stop = true;
    pthread_cond_signal(&store->wake);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->thread, NULL);
    store->started = false;
}

void xpd_store_close(xpd_store *store)
{
    if (!store)
        return;
    if (store->started) {
        xpd_store_flush(store);
        xpd_store_collect(store);
    }
    sqlite3_finalize(store->put);
    sqlite3_finalize(store->del);
    sqlite3_finalize(store->note);
    if (store->lost) /* closing would move the WAL, whose state nobody knows, into the database */
        sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (sqlite3_close(store->db) != SQLITE_OK)
        xpd_log(XPD_LOG_WARNING, NULL, "the state was not closed cleanly");
    if (store->event >= 0)
        close(store->event);
    pthread_cond_destroy(&store->wake);
    pthread_mutex_destroy(&store->lock);
    free(store);
}
