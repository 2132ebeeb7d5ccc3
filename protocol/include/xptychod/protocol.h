/* The language that all processes and clients of xptychod speak: the job document, events, errors
 * and the messages between broker, worker and reader.  jansson and libc only.
 *
 * Names, types, ranges and defaults are stated once, in protocol/openapi.json; the tables behind
 * xpp_job_check are generated from it when the program is built.
 *
 * Threads: every function here is reentrant.  Call xpp_init once before the first thread starts. */
#ifndef XPTYCHOD_PROTOCOL_H
#define XPTYCHOD_PROTOCOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define XPP_MUST_CHECK __attribute__((warn_unused_result))
#define XPP_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define XPP_MUST_CHECK
#define XPP_PRINTF(a, b)
#endif

#define XPP_BODY_MAX (1 << 20)     /* bytes of a request body */
#define XPP_METADATA_MAX (1 << 16) /* bytes of `metadata` as compact JSON */
#define XPP_DEPTH_MAX 32           /* nesting of any document from outside */
#define XPP_JOB_ID_SIZE 27         /* 26 characters and the final zero */
#define XPP_MODES_MAX 64
#define XPP_STAGES_MAX 32
#define XPP_DEVICES_MAX 64

/* Seeds jansson's hash and has its allocations watched; call before threads exist. */
void xpp_init(void);
const char *xpp_version(void);

/* ------------------------------------------------------------------------------------ faults */

/* Everything that can be wrong with a request: code, HTTP status, type suffix, title. */
#define XPP_FAULT_LIST(X)                                                                          \
    X(NONE, 200, "", "success")                                                                    \
    X(MALFORMED_JSON, 400, "malformed-json", "The body is not JSON")                               \
    X(BAD_REQUEST, 400, "bad-request", "The request is not valid")                                 \
    X(UNAUTHENTICATED, 401, "unauthenticated", "No valid credentials")                             \
    X(FORBIDDEN, 403, "forbidden", "Not allowed")                                                  \
    X(NOT_FOUND, 404, "not-found", "No such resource")                                             \
    X(RESULT_NOT_READY, 404, "result-not-ready", "The result does not exist yet")                  \
    X(METHOD_NOT_ALLOWED, 405, "method-not-allowed", "The resource does not know this method")     \
    X(NOT_ACCEPTABLE, 406, "not-acceptable", "None of the accepted types can be produced")         \
    X(CONFLICT, 409, "conflict", "The job's state does not allow this")                            \
    X(GONE, 410, "result-gone", "The result file is no longer the one that was written")           \
    X(PRECONDITION_FAILED, 412, "precondition-failed", "The resource has changed")                 \
    X(TOO_LARGE, 413, "too-large", "The request is too large")                                     \
    X(RANGE, 416, "range-not-satisfiable", "The range is beyond the end")                          \
    X(UNSUPPORTED_TYPE, 415, "unsupported-type", "The body must be application/json")              \
    X(INVALID_JOB, 422, "invalid-job", "The job is not valid")                                     \
    X(DATASET, 422, "dataset", "The dataset cannot be used")                                       \
    X(DATASET_BUSY, 409, "dataset-busy", "The dataset is being written")                           \
    X(DATASET_CHANGED, 422, "dataset-changed", "The dataset changed while it was read")            \
    X(DATASET_UNRESPONSIVE, 422, "dataset-unresponsive", "The dataset could not be read in time")  \
    X(OUTPUT, 422, "output", "The output path cannot be used")                                     \
    X(NO_DEVICE, 422, "no-device", "The devices asked for do not exist")                           \
    X(NO_DEVICE_MEMORY, 422, "insufficient-device-memory", "The job does not fit the devices")     \
    X(NO_DISK, 422, "insufficient-disk", "The job's files do not fit the disk")                    \
    X(IDEMPOTENCY, 422, "idempotency-conflict", "The idempotency key was used with another body")  \
    X(PRECONDITION_REQUIRED, 428, "precondition-required", "If-Match is needed")                   \
    X(QUEUE_FULL, 429, "queue-full", "The queue is full")                                          \
    X(RATE_LIMITED, 429, "rate-limited", "Too many requests")                                      \
    X(INTERNAL, 500, "internal", "Unexpected failure")                                             \
    X(UNAVAILABLE, 503, "unavailable", "The service cannot do this now")                           \
    X(DRAINING, 503, "draining", "No new work is taken")                                           \
    X(LOW_DISK, 507, "low-disk", "The disk is almost full")

typedef enum xpp_fault {
#define X(name, status, suffix, title) XPP_FAULT_##name,
    XPP_FAULT_LIST(X)
#undef X
} xpp_fault;

int xpp_fault_status(xpp_fault fault);          /* HTTP status */
const char *xpp_fault_type(xpp_fault fault);    /* suffix: "invalid-job" */
bool xpp_fault_find(xpp_fault *out, const char *suffix); /* also "urn:xptychod:problem:invalid-job" */

/* An RFC 9457 document: {type, title, status, detail}.  `errors` (taken, may be NULL) is an array of
 * {"pointer", "detail"}; `more` (taken, may be NULL) holds extension members.  Never NULL but when
 * memory is exhausted. */
json_t *xpp_problem(xpp_fault fault, const char *detail, json_t *errors, json_t *more);
/* A text as JSON: where it is not UTF-8 (file names) the bytes above 127 become '?'. */
json_t *xpp_text(const char *text);
/* Appends {"pointer", "detail"} to an array of errors. */
void xpp_errors_add(json_t *errors, const char *pointer, const char *format, ...) XPP_PRINTF(3, 4);

/* --------------------------------------------------------------------------------------- job */

/* Parses text from outside: depth at most XPP_DEPTH_MAX, no duplicate keys, UTF-8, finite numbers.
 * NULL on failure, with *problem set (the caller's). */
json_t *xpp_parse(const char *text, size_t length, json_t **problem);

/* Checks a job document against the tables of openapi.json: unknown keys (with the nearest known
 * name), types, ranges, and what depends on what.  Every fault is reported, each with its JSON
 * pointer; past 100 they are counted only.  Returns NULL when the document is good, else an array of
 * errors (the caller's); when memory is exhausted that may be JSON null. */
json_t *xpp_job_check(const json_t *doc);

/* A dataset inside a file. */
typedef struct xpp_array_ref {
    const char *path;    /* NULL = not given */
    const char *dataset; /* NULL = the default of its use */
} xpp_array_ref;

typedef struct xpp_stage {
    const char *algorithm; /* "pmace", "refine_positions" */
    int iterations;
    double object_data_fit, probe_data_fit, probe_weight_exponent, relaxation;
    int *mode_schedule; /* [mode_schedule_count] */
    int mode_schedule_count;
    double mode_energy_fraction;
    bool orthogonalize_modes;
    double fresnel_distance_m, fresnel_radius_pixels; /* 0 = not given */
    int64_t batch_size;                               /* 0 = not given */
    int report_every;
    int max_shift;
} xpp_stage;

/* A decoded job: defaults filled in.  Text and arrays belong to it; it keeps a reference to its
 * document. */
typedef struct xpp_job {
    json_t *doc;
    const char *name; /* "" when not given */
    int priority;
    struct {
        const char *path;   /* absolute */
        const char *format; /* "auto", "xptycho", "cxi", ... */
        double energy_kev, wavelength_m, detector_distance_m, detector_pitch_m; /* 0 = not given */
        double saturation; /* counts; 0 = not given */
    } scan;
    struct {
        int probe_modes;
        bool has_shape, has_origin;
        int64_t object_shape[2];
        double object_origin_m[2];
    } model;
    xpp_array_ref probe, init_object, init_probe;
    const char *init_path; /* a result file; NULL = not given */
    xpp_stage *stages;     /* [stage_count] */
    int stage_count;
    struct {
        char **names;    /* [count] */
        int count;       /* 0 = not given */
        int num_devices; /* 0 = not given */
        int cpu_threads; /* 0 = every core */
    } devices;
    double preview_every_s;
    double deadline_s; /* 0 = none */
    bool checkpoint;           /* exact; false = off */
    double checkpoint_every_s; /* negative = not given */
    const char *output_path; /* NULL = the daemon's result folder */
    bool output_overwrite;
} xpp_job;

/* doc must have passed xpp_job_check.  Takes a new reference to doc.  NULL when memory is exhausted. */
xpp_job *xpp_job_decode(json_t *doc);
void xpp_job_free(xpp_job *job);
/* The document with every default written out (a new reference), as shown and kept in results. */
json_t *xpp_job_resolved(const json_t *doc);
/* The JSON Schema of a job with its references resolved, as GET /v1/schema/job serves it; static. */
const char *xpp_schema_job(void);
/* protocol/openapi.json as text; static. */
const char *xpp_openapi(void);

/* json_dumps with its flags, but whole or NULL when memory is exhausted (free it), also where it was
 * as this thread made documents since its last text. */
char *xpp_dump(const json_t *doc, size_t flags);
/* json_loadb with its flags, but whole or NULL; json_error_out_of_memory where memory is exhausted.
 * error may be NULL. */
json_t *xpp_load(const char *text, size_t length, size_t flags, json_error_t *error);

/* ----------------------------------------------------------------------------------- progress */

/* The reference program's line, without newline: "iteration    1   data error 0.037012   modes 1". */
int xpp_progress_line(char *out, size_t size, int iteration, double data_error, int modes);
/* A number as JSON: not finite becomes null (jansson would refuse it). */
json_t *xpp_number(double value);
/* One event as one line of compact JSON with newline (malloc'd; NULL when memory is exhausted):
 * {"seq":..,"t":"2026-01-31T09:15:02.123Z","type":..., members of `body`}. */
char *xpp_event_line(int64_t seq, int64_t t_ms, const char *type, const json_t *body);
/* The same event (a parsed line) as text/plain: the progress line for "iter", "# state running" for others. */
int xpp_event_text(char *out, size_t size, const json_t *event);
/* RFC 3339 in UTC with milliseconds; out has at least 25 bytes. */
void xpp_time_text(char *out, int64_t t_ms);
/* A new 26-character job id: time-ordered, random, upper-case Crockford base 32. */
void xpp_job_id_make(char out[XPP_JOB_ID_SIZE]);
bool xpp_job_id_valid(const char *id);

/* Path of a program of this package ("xptycho-reader"): beside the running program, else in the
 * libexec folder of the tree that it runs from, else in the one it was built for.  false when none
 * has it; out then names where it was looked for. */
bool xpp_program_find(char *out, size_t size, const char *name);

/* ---------------------------------------------------------------------------------------- ipc */

/* Messages between broker, worker and reader over SOCK_SEQPACKET socketpairs.  A message is a fixed
 * header, a JSON object and file descriptors.  A document larger than a packet travels in a sealed
 * memfd.  Both sides check magic, version, type, lengths and descriptor counts; a message that
 * breaks them ends the connection.  docs/architecture.md lists the messages and their members. */
#define XPP_IPC_VERSION 1
#define XPP_IPC_FDS_MAX 12
#define XPP_IPC_JSON_MAX (8 << 20)

#define XPP_IPC_LIST(X)                                                                            \
    X(HELLO, "hello")         /* worker, reader -> broker: who I am, devices */                    \
    X(PROBE, "probe")         /* broker -> reader: headers only */                                 \
    X(READ, "read")           /* broker -> reader: the arrays too */                               \
    X(SCAN, "scan")           /* reader -> broker: what the file holds, memfds */                  \
    X(REFUSED, "refused")     /* reader -> broker: a problem document */                           \
    X(START, "start")         /* broker -> worker: job, scan, memfds */                            \
    X(CANCEL, "cancel")       /* broker -> worker: the job with this id */                         \
    X(EVENTS, "events")       /* worker -> broker: several events of a job, in order */            \
    X(DONE, "done")           /* worker -> broker: terminal: succeeded, failed, cancelled */       \
    X(PING, "ping")           /* broker -> worker */                                               \
    X(PONG, "pong")           /* worker -> broker */                                               \
    X(QUIT, "quit")           /* broker -> worker: leave now, the queue is empty for you */

typedef enum xpp_ipc_type {
#define X(name, text) XPP_IPC_##name,
    XPP_IPC_LIST(X)
#undef X
    XPP_IPC_TYPES
} xpp_ipc_type;

const char *xpp_ipc_type_name(xpp_ipc_type type);

typedef struct xpp_ipc_message {
    xpp_ipc_type type;
    json_t *body;             /* an object; owned */
    int fds[XPP_IPC_FDS_MAX]; /* owned, -1 when taken over */
    int fd_count;
} xpp_ipc_message;

typedef enum xpp_ipc_result {
    XPP_IPC_OK,
    XPP_IPC_AGAIN,  /* non-blocking socket: nothing there / no room */
    XPP_IPC_CLOSED, /* the other side is gone */
    XPP_IPC_BROKEN, /* the message breaks the rules; close the connection */
    XPP_IPC_FAILED  /* errno says why */
} xpp_ipc_result;

/* A connected pair, close-on-exec on both ends. */
XPP_MUST_CHECK int xpp_ipc_pair(int fds[2]);
/* Borrows body and fds. */
XPP_MUST_CHECK xpp_ipc_result xpp_ipc_send(int socket, xpp_ipc_type type, const json_t *body,
                                           const int *fds, int fd_count);
XPP_MUST_CHECK xpp_ipc_result xpp_ipc_receive(int socket, xpp_ipc_message *out);
void xpp_ipc_message_release(xpp_ipc_message *message); /* closes what was not taken over */

#ifdef __cplusplus
}
#endif
#endif
