/* The durable state: one SQLite database, one connection, one thread.
 *
 * The loop thread hands over rows; the store thread writes all that wait in one transaction (one
 * sync of the disk for many changes) and gives the outcome back through an eventfd, whose callback
 * runs on the loop thread.  Nothing is acknowledged to a client before its callback has said OK.
 *
 * After a write that failed for another reason than a full disk nothing more is written: every
 * further change is XPD_STORE_FATAL, the program leaves, and the next start reads what there is.
 *
 * Iterations never come here; they are in the event logs. */
#ifndef XPD_STORE_H
#define XPD_STORE_H

#include "fault.h"
#include "loop.h"

#include <stdint.h>

/* One job as it is kept.  Strings are owned by the row; NULL is SQL's null. */
typedef struct xpd_row {
    int64_t number; /* order of submission, unique */
    char id[XPP_JOB_ID_SIZE];
    int64_t rev;
    int64_t uid;
    char *user;
    char state[16], reason[32];
    char *detail;
    int64_t priority;
    int64_t created_ms, started_ms, finished_ms; /* 0 = not yet */
    int64_t attempts;
    char *doc;      /* as submitted, compact JSON */
    char *resolved; /* with every default */
    char *devices;  /* array of names, or NULL */
    char *progress; /* the last iteration, or NULL */
    char *result;   /* or NULL */
    char *idem_key, *idem_sha;
    int64_t queued_ms;    /* it waits since: its age */
    int64_t frames, side; /* of the scan; 0 = not known yet */
    char *labels;         /* object, where they were changed after submission, or NULL */
    char *more;           /* object: the rest that job.c keeps, or NULL */
} xpd_row;

void xpd_row_free(xpd_row *row);

/* A few figures kept under a name; history.c says which. */
typedef struct xpd_note {
    char key[128];
    double a, b;
    int64_t n, t_ms;
} xpd_note;

typedef enum xpd_store_result {
    XPD_STORE_OK,
    XPD_STORE_FULL, /* the disk is full: nothing was written, try again later */
    XPD_STORE_FATAL /* the database cannot be trusted any more: leave and recover from disk */
} xpd_store_result;

typedef struct xpd_store xpd_store;
typedef void (*xpd_store_done)(void *context, xpd_store_result result);

/* Opens or creates the database, checks it and brings it to this program's version (schema.h). */
bool xpd_store_open(xpd_store **out, const char *path, xpd_error *err);
/* Calls back for every row in order of submission; the row is the callee's.  Before xpd_store_start
 * only. */
bool xpd_store_load(xpd_store *store, bool (*take)(void *context, xpd_row *row), void *context,
                    xpd_error *err);
/* The same for the notes, the oldest first. */
bool xpd_store_notes(xpd_store *store, void (*take)(void *context, const xpd_note *note),
                     void *context, xpd_error *err);
bool xpd_store_start(xpd_store *store, xpd_error *err);
int xpd_store_fd(const xpd_store *store);    /* eventfd: readable when results wait */
void xpd_store_collect(xpd_store *store);    /* runs the callbacks of what is done */
bool xpd_store_idle(const xpd_store *store); /* nothing handed over is without its callback */
/* Insert or replace; takes the row.  done may be NULL. */
void xpd_store_put(xpd_store *store, xpd_row *row, xpd_store_done done, void *context);
/* SQLite's own check of the whole file, while changes wait: "ok", or the first thing that is wrong.
 */
typedef void (*xpd_store_told)(void *context, const char *text);
void xpd_store_check(xpd_store *store, xpd_store_told told, void *context);
/* Calls back with the seconds of each commit; loop thread, NULL = nobody wants to know. */
void xpd_store_observe(xpd_store *store, void (*took)(void *context, double seconds),
                       void *context);
/* With `last` (may be NULL) a note is kept in the same transaction. */
void xpd_store_delete(xpd_store *store, const char *id, const xpd_note *last, xpd_store_done done,
                      void *context);
/* Insert or replace by key; nobody is told, and it may be lost when the disk is full. */
void xpd_store_note(xpd_store *store, const xpd_note *note);
/* Waits until what was handed over is on disk; no callbacks. */
void xpd_store_flush(xpd_store *store);
/* The connection, for tests that make it fail; only while nothing is waiting. */
struct sqlite3 *xpd_store_database(xpd_store *store);
/* Writes what waits, ends the thread and closes. */
void xpd_store_close(xpd_store *store);

#endif
