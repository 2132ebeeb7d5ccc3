/* Settings: one table of options serves the command line, the configuration file and --help.
 *
 * Order: defaults, then the file, then the command line; a list given on the command line replaces
 * the file's.  What is not in the table is refused with the nearest name.  Only the loop thread
 * reads it, since a reload may change it. */
#ifndef XPD_CONFIG_H
#define XPD_CONFIG_H

#include "fault.h"

#include <stdbool.h>
#include <stdint.h>

#define XPD_LIST_MAX 32

typedef struct xpd_list {
    char *items[XPD_LIST_MAX]; /* owned */
    int count;
} xpd_list;

typedef struct xpd_config {
    bool user;         /* everything in the caller's own folders, with the caller's own rights */
    char *config_file; /* NULL = the default place, which may be absent */
    char *state_dir, *runtime_dir;
    bool state_on_network;
    int64_t log_level; /* an xpd_level, as a word in the file */
    char *log_word, *log_form;
    bool log_json;
    int64_t keep_jobs, drain_s;

    char *address;
    int64_t port;        /* -1 = no TCP, 0 = a free one */
    int64_t health_port; /* of livez, readyz and metrics over TCP; the same */
    bool allow_remote;
    xpd_list hosts, origins;
    int64_t session_hours;
    char *token_file; /* system mode: lines as in auth.h; --user: where the token is written */
    int64_t unix_mode;

    xpd_list data_roots, write_roots; /* "/path" or "@group:/path"; see people.h */

    int64_t keep_days, ballast_mib;
    int64_t cpu_workers;        /* device sets on the CPU */
    char *cuda_sets;            /* as in gpuset.h */
    char *cuda_program;         /* NULL = beside this program, where it is installed */
    int64_t worker_cpu_threads; /* 0 = every core */
    char *worker_program, *reader_program, *zmq_program; /* NULL = beside this program */
    int64_t cancel_grace_s, probe_s, read_s, dataset_wait_s;
    int64_t stall_s, worker_memory_mib; /* 0 = a job may stand still; a worker may grow */

    char *class_word;
    int64_t class_max;    /* an xpd_class: the highest of those whom class_for does not name */
    xpd_list class_for;   /* "USER:CLASS" or "@GROUP:CLASS" */
    xpd_list shares;      /* "USER:WEIGHT" or "@GROUP:WEIGHT" */
    xpd_list live_sets;   /* numbers of the device sets that are kept for live jobs */
    int64_t memory_mib;   /* of this machine, for jobs; 0 = all there is */
    int64_t max_run_s[4]; /* of a job, by its class; 0 = no limit */
    int64_t max_queue_s;  /* 0 = no limit */
    int64_t sets_user_max, artefacts_user_mib; /* 0 = no limit */
    int64_t running_user_max;                  /* 0 = no limit */
    int64_t min_run_s;                         /* before a job makes room for a live one */
    int64_t queue_max, queue_user_max, streams_max, streams_user_max, streams_job_max;
    int64_t low_disk_mib;
    int64_t connections_max;
    int64_t rate,
        burst; /* changing requests of one user, a second and at once; rate 0 = no limit */

    char *zmq_router, *zmq_pub;
    char *zmq_token_file, *zmq_curve_secret, *zmq_curve_keys; /* NULL = none */
} xpd_config;

typedef enum xpd_config_result {
    XPD_CONFIG_OK,
    XPD_CONFIG_EXIT,  /* --help or --version was answered */
    XPD_CONFIG_USAGE, /* the command line is wrong */
    XPD_CONFIG_BAD    /* the file, or what both say together */
} xpd_config_result;

/* Fills config (which the caller releases in any case); err tells what is wrong and where. */
xpd_config_result xpd_config_read(xpd_config *config, int argc, char **argv, xpd_error *err);
/* The pieces, for tests. */
bool xpd_config_defaults(xpd_config *config, xpd_error *err);
bool xpd_config_file(xpd_config *config, const char *path, bool must_exist, xpd_error *err);
bool xpd_config_finish(xpd_config *config, xpd_error *err);
/* Reload: what may change while the service runs (limits, roots, hosts, origins, log) is exchanged
 * between the two; the names of other options that differ are written to `rest` with commas
 * between.  Cannot fail. */
void xpd_config_exchange(xpd_config *current, xpd_config *fresh, char *rest, size_t size);
int xpd_config_count(void); /* options that the file may have */
void xpd_config_release(xpd_config *config);

#endif
