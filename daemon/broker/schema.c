/* See schema.h.  A migration is never edited once released: a new version appends a step. */
#include "schema.h"

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKED_MAX (64 << 20) /* bytes: half a second */

/* Version 1.  What follows from it are the steps below, so that a new and a migrated database are
 * the same. */
static const char first[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE jobs("
    " number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, rev INTEGER NOT NULL,"
    " uid INTEGER NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,"
    " detail TEXT NOT NULL, priority INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL, attempts INTEGER NOT NULL,"
    " doc TEXT NOT NULL, resolved TEXT NOT NULL, devices TEXT, progress TEXT, result TEXT,"
    " idem_key TEXT, idem_sha TEXT);"
    "CREATE UNIQUE INDEX jobs_idem ON jobs(uid, idem_key) WHERE idem_key IS NOT NULL;"
    "INSERT INTO meta VALUES('schema_version', '1');";

/* steps[i] makes version i + 2 of version i + 1. */
static const char *const steps[XPD_SCHEMA_VERSION - 1] = {
    /* 2: since when a job waits, the size of its scan, labels that were changed after submission;
     * what past runs tell the scheduler */
    "ALTER TABLE jobs ADD COLUMN queued_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN frames INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN side INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE jobs ADD COLUMN labels TEXT;"
    "UPDATE jobs SET queued_ms = created_ms;"
    "CREATE TABLE notes(key TEXT PRIMARY KEY, a REAL NOT NULL, b REAL NOT NULL,"
    " n INTEGER NOT NULL, t_ms INTEGER NOT NULL);",
    /* 3: what a program may know of a job that no query asks for, as JSON (job.c) */
    "ALTER TABLE jobs ADD COLUMN more TEXT;",
};

static bool fail(sqlite3 *db, const char *path, const char *what, xpd_error *err)
{
    return xpd_fail(err, XPP_FAULT_INTERNAL, "", "state '%s': %s: %s", path, what,
                    sqlite3_errmsg(db));
}

static bool query_text(sqlite3 *db, const char *sql, char *out, size_t size)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        const unsigned char *text = sqlite3_column_text(statement, 0);
        snprintf(out, size, "%s", text ? (const char *)text : "");
        found = true;
    }
    sqlite3_finalize(statement);
    return found;
}

static bool sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* PATH.vN: a whole copy, on disk before anything is changed. */
static bool back_up(sqlite3 *db, const char *path, long version, xpd_error *err)
{
    char copy[PATH_MAX], folder[PATH_MAX];
    sqlite3_stmt *statement = NULL;
    bool ok = false;

    if (snprintf(copy, sizeof copy, "%s.v%ld", path, version) >= (int)sizeof copy)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "the path '%s' is too long", path);
    if (unlink(copy) != 0 && errno != ENOENT) /* of a migration that did not come to its end */
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "'%s' cannot be replaced: %s", copy,
                        strerror(errno));
    int made = open(copy, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640); /* as in store.c */
    if (made >= 0)
        close(made);
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
    if (sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_bind_text(statement, 1, copy, -1, SQLITE_STATIC) == SQLITE_OK)
        ok = sqlite3_step(statement) == SQLITE_DONE;
    if (!ok)
        fail(db, path, "cannot be copied before its migration", err);
    sqlite3_finalize(statement);
    if (ok && (!sync_path(copy) || !sync_path(slash ? folder : ".")))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "'%s' cannot be synced: %s", copy,
                        strerror(errno));
    if (ok)
        xpd_log(XPD_LOG_INFO, NULL, "the state of version %ld was copied to '%s'", version, copy);
    return ok;
}

static bool run_steps(sqlite3 *db, const char *path, long version, xpd_error *err)
{
    char set[96];
    snprintf(set, sizeof set, "UPDATE meta SET value = '%d' WHERE key = 'schema_version'",
             XPD_SCHEMA_VERSION);
    bool ok = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
              (version > 0 || sqlite3_exec(db, first, NULL, NULL, NULL) == SQLITE_OK);
    for (long v = version > 0 ? version : 1; ok && v < XPD_SCHEMA_VERSION; v++)
        ok = sqlite3_exec(db, steps[v - 1], NULL, NULL, NULL) == SQLITE_OK;
    ok = ok && sqlite3_exec(db, set, NULL, NULL, NULL) == SQLITE_OK &&
         sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    if (!ok) {
        fail(db, path, "the tables cannot be made", err);
        if (!sqlite3_get_autocommit(db))
            sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
    return ok;
}

/* The whole check looks into the indices, too, which hold nothing that the tables do not: they are
 * made anew where they are what is wrong.  A large file has the quick one, at a start that may not
 * take minutes. */
static bool check(sqlite3 *db, const char *path, char *text, size_t size)
{
    struct stat st;
    bool small = stat(path, &st) == 0 && st.st_size <= CHECKED_MAX;
    const char *pragma = small ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)";

    if (!query_text(db, pragma, text, size))
        return false;
    if (!small || strcmp(text, "ok") == 0)
        return true;
    xpd_log(XPD_LOG_ERROR, NULL, "state '%s' is damaged: %s", path, text);
    if (sqlite3_exec(db, "REINDEX", NULL, NULL, NULL) != SQLITE_OK)
        return true;
    if (!query_text(db, pragma, text, size))
        return false;
    if (strcmp(text, "ok") == 0)
        xpd_log(XPD_LOG_WARNING, NULL, "state '%s': its indices were made anew, it is whole", path);
    return true;
}

bool xpd_schema_open(sqlite3 *db, const char *path, xpd_error *err)
{
    char text[256];

    if (!check(db, path, text, sizeof text))
        return fail(db, path, "cannot be read", err);
    if (strcmp(text, "ok") != 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "",
                        "state '%s' is damaged: %s; restore it from a backup or move it away", path,
                        text);
    if (!query_text(db, "SELECT value FROM meta WHERE key = 'schema_version'", text, sizeof text)) {
        if (!query_text(db, "SELECT count(*) FROM sqlite_master", text, sizeof text) ||
            strcmp(text, "0") != 0)
            return xpd_fail(err, XPP_FAULT_INTERNAL, "",
                            "state '%s' is a database of another program", path);
        return run_steps(db, path, 0, err);
    }
    long version = strtol(text, NULL, 10);
    if (version == XPD_SCHEMA_VERSION)
        return true;
    if (version < 1 || version > XPD_SCHEMA_VERSION)
        return xpd_fail(
            err, XPP_FAULT_INTERNAL, "",
            "state '%s' has version %ld, this program knows version %d; run a newer xptychod", path,
            version, XPD_SCHEMA_VERSION);
    return back_up(db, path, version, err) && run_steps(db, path, version, err);
}
