/* Calls to a running xptychod from C: submit, watch, fetch.  libcurl and protocol.h beneath.
 *
 * Documents go in and come out as jansson values; what they hold is protocol/openapi.json.
 *
 * Threads: a client is used by one thread at a time; several clients may be used by several
 * threads. Call xpp_init and curl_global_init(CURL_GLOBAL_DEFAULT) once before the first thread
 * exists.
 *
 * Ownership: `T **out` belongs to the caller (json_decref, free or xpc_close) and is NULL on
 * failure. Arguments are borrowed for the call.  Nothing here prints, exits or reads the
 * environment, but for the lookup function that the caller hands over. */
#ifndef XPTYCHOD_CLIENT_H
#define XPTYCHOD_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define XPC_MUST_CHECK __attribute__((warn_unused_result))
#define XPC_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define XPC_MUST_CHECK
#define XPC_PRINTF(a, b)
#endif

/* ---------------------------------------------------------------------------------- errors */

/* One code for each reaction of the caller. */
#define XPC_STATUS_LIST(X)                                                                         \
    X(OK, "success", "done")                                                                       \
    X(INVALID, "invalid", "an argument of the call is wrong; nothing was sent")                    \
    X(UNREACHABLE, "unreachable", "the daemon could not be reached, or was lost for too long")     \
    X(REFUSED, "refused", "the daemon understood and said no")                                     \
    X(FAULT, "fault", "the daemon answered something unexpected")                                  \
    X(IO, "io", "a local file could not be read or written")                                       \
    X(STOPPED, "stopped", "the caller asked to stop")                                              \
    X(NO_MEMORY, "no-memory", "memory is exhausted")

typedef enum xpc_status {
#define X(name, label, text) XPC_##name,
    XPC_STATUS_LIST(X)
#undef X
} xpc_status;

/* `text` is one sentence; where a document has several faults, a line follows for each, as
 * "  /recon/iterations: must be at least 1, is 0". */
typedef struct xpc_error {
    xpc_status status;
    int http_status;   /* 0 where no answer came */
    char type[64];     /* of the problem document: "invalid-job"; "" where there was none */
    int retry_after_s; /* from the daemon; 0 = not said */
    bool maybe_done;   /* UNREACHABLE only: the request may have been carried out */
    char text[4096];
} xpc_error;

const char *xpc_status_name(xpc_status status); /* "unreachable", ... */

/* The sentence for a problem document (RFC 9457), with a line for each of its errors. */
void xpc_problem_text(char *out, size_t size, const json_t *problem);

/* ---------------------------------------------------------------------------------- opening */

/* Where the daemon is, in this order; the first that is there decides:
 *   1. `server`
 *   2. XPTYCHO_SERVER
 *   3. $XDG_RUNTIME_DIR/xptycho/ready.json, where XDG_RUNTIME_DIR is set
 *   4. $XDG_STATE_HOME/xptycho/run/ready.json (XDG_STATE_HOME is ~/.local/state where it is not
 * set)
 *   5. /run/xptycho/api.sock
 * A server is an address "http://HOST:PORT" (or https), a socket "unix:/PATH", a runtime folder of
 * the daemon, or its ready.json.  Of a ready.json the unix socket is used where it has one.
 *
 * The token is `token`, else the content of `token_file`, else XPTYCHO_TOKEN, else the file named
 * by XPTYCHO_TOKEN_FILE, else the token file of a ready.json of 3 or 4 (or of the folder named as
 * server) that lists the same address.  On a unix socket no token is needed. */
typedef struct xpc_options {
    const char *server;             /* NULL = look */
    const char *token;              /* NULL = look */
    const char *token_file;         /* NULL = look */
    char *(*env)(const char *name); /* getenv, or NULL: no environment */
    bool admin;                     /* the administrator's socket instead: `server`, else that of a
                                       ready.json of 3 or 4, else /run/xptycho/admin.sock */
    int timeout_ms;                 /* of one call; 0 = 60 s */
    int retry_ms;                   /* how long a lost connection is tried again by xpc_submit,
                                       xpc_rerun and xpc_follow; 0 = 30 s, negative = not at all */
} xpc_options;

typedef struct xpc_client xpc_client;

/* Finds address and token; does not connect. */
XPC_MUST_CHECK xpc_status xpc_open(xpc_client **out, const xpc_options *options, xpc_error *err);
void xpc_close(xpc_client *client);
const char *xpc_server(const xpc_client *client); /* "unix:/run/xptycho/api.sock"; borrowed */
/* The problem document of the last call that the daemon refused; borrowed until the next call; may
 * be NULL. */
const json_t *xpc_problem(const xpc_client *client);

/* ---------------------------------------------------------------------------------- calls */

#define XPC_KEY_SIZE 37                    /* 36 characters and the final zero */
void xpc_key_make(char out[XPC_KEY_SIZE]); /* a fresh Idempotency-Key (a random UUID) */

/* A job document in, the job out.  The key is sent as Idempotency-Key; NULL makes a fresh one.  A
 * lost connection is tried again with the same key, so that one job results and not two. */
XPC_MUST_CHECK xpc_status xpc_submit(xpc_client *client, const json_t *job, const char *key,
                                     json_t **out, xpc_error *err);
/* The daemon's verdict on a job document; nothing is created. */
XPC_MUST_CHECK xpc_status xpc_dry_run(xpc_client *client, const json_t *job, json_t **out,
                                      xpc_error *err);

/* One page of jobs, newest first. */
typedef struct xpc_list_query {
    const char *const *states; /* [state_count] names of states; NULL = all */
    int state_count;
    int limit;          /* 0 = the daemon's default */
    const char *cursor; /* `next` of the page before; NULL = first page */
} xpc_list_query;
XPC_MUST_CHECK xpc_status xpc_list(xpc_client *client, const xpc_list_query *query, json_t **out,
                                   xpc_error *err);

XPC_MUST_CHECK xpc_status xpc_show(xpc_client *client, const char *id, json_t **out,
                                   xpc_error *err);
/* Idempotent; the job as it is then.  A terminal job is unchanged. */
XPC_MUST_CHECK xpc_status xpc_cancel(xpc_client *client, const char *id, json_t **out,
                                     xpc_error *err);
/* Keeps a waiting job from starting, and lets it go; idempotent. */
XPC_MUST_CHECK xpc_status xpc_hold(xpc_client *client, const char *id, json_t **out,
                                   xpc_error *err);
XPC_MUST_CHECK xpc_status xpc_release(xpc_client *client, const char *id, json_t **out,
                                      xpc_error *err);
/* A merge patch of what may change after submission (the schema Change), made for the job as it was
 * at `rev`, the document's own: XPC_REFUSED with HTTP 412 where it has changed since.  rev 0 = as
 * it is. */
XPC_MUST_CHECK xpc_status xpc_change(xpc_client *client, const char *id, int64_t rev,
                                     const json_t *patch, json_t **out, xpc_error *err);
/* Removes the record of a terminal job. */
XPC_MUST_CHECK xpc_status xpc_delete(xpc_client *client, const char *id, xpc_error *err);
/* A new job of the same document; `changes` is a merge patch (RFC 7396) or NULL; key as in
 * xpc_submit. */
XPC_MUST_CHECK xpc_status xpc_rerun(xpc_client *client, const char *id, const json_t *changes,
                                    const char *key, json_t **out, xpc_error *err);
XPC_MUST_CHECK xpc_status xpc_result(xpc_client *client, const char *id, json_t **out,
                                     xpc_error *err);
XPC_MUST_CHECK xpc_status xpc_queue(xpc_client *client, json_t **out, xpc_error *err);
XPC_MUST_CHECK xpc_status xpc_devices(xpc_client *client, json_t **out, xpc_error *err);
XPC_MUST_CHECK xpc_status xpc_daemon_version(xpc_client *client, json_t **out, xpc_error *err);

/* A link that opens a browser's session, once: {"urls": [...], ...}.  wish is {"scope",
 * "valid_s"}, each of which may be missing, or NULL. */
XPC_MUST_CHECK xpc_status xpc_session_link(xpc_client *client, const json_t *wish, json_t **out,
                                           xpc_error *err);
/* {"sessions": [...]}, links that were not used included. */
XPC_MUST_CHECK xpc_status xpc_sessions(xpc_client *client, json_t **out, xpc_error *err);
XPC_MUST_CHECK xpc_status xpc_session_end(xpc_client *client, const char *id, xpc_error *err);

/* POSTs to /admin/WHAT, for instance "drain?finish=true"; the client was opened with `admin`. */
XPC_MUST_CHECK xpc_status xpc_admin(xpc_client *client, const char *what, json_t **out,
                                    xpc_error *err);

/* Where bytes go. */
typedef struct xpc_target {
    const char *path; /* written beside, synced, renamed: never half a file under this name */
    bool overwrite;   /* false: an existing path is refused */
    int fd;           /* used where path is NULL; stays open */
} xpc_target;

/* The last `tail` lines of the job's log, 0 = all. */
XPC_MUST_CHECK xpc_status xpc_log(xpc_client *client, const char *id, int tail,
                                  const xpc_target *target, xpc_error *err);
XPC_MUST_CHECK xpc_status xpc_result_data(xpc_client *client, const char *id,
                                          const xpc_target *target, xpc_error *err);
/* what: "object_phase", "object_magnitude", "probe_phase", "probe_magnitude". */
XPC_MUST_CHECK xpc_status xpc_preview(xpc_client *client, const char *id, const char *what,
                                      const xpc_target *target, xpc_error *err);

/* ---------------------------------------------------------------------------------- events */

typedef struct xpc_follow_options {
    int64_t from; /* first event wanted; 0 or 1 = from the beginning */
    bool once;    /* only what exists now */
    /* Called at least about once a second while waiting; false stops with XPC_STOPPED.  May make
     * calls on the same client, but may not follow.  May be NULL. */
    bool (*tick)(void *user);
    /* Called when the connection was lost and is tried again; may be NULL. */
    void (*lost)(void *user, const char *why);
    /* One event, borrowed: {"seq", "t", "type", ...}.  false stops with XPC_STOPPED.  May make
     * calls on the same client, but may not follow. */
    bool (*event)(void *user, const json_t *event);
    void *user;
} xpc_follow_options;

/* The events of a job, each once and in order, until its event `end` (returned in *end, which may
 * be NULL), resumed after every lost connection. */
XPC_MUST_CHECK xpc_status xpc_follow(xpc_client *client, const char *id,
                                     const xpc_follow_options *options, json_t **end,
                                     xpc_error *err);

#ifdef __cplusplus
}
#endif
#endif
