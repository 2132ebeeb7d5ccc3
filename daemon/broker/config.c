/* See config.h.  The file is INI, parsed by libinih; a key may be given several times where the
 * option is a list. */
#include "config.h"

#include "gpuset.h"
#include "log.h"
#include "people.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum kind { FLAG, TEXT, PATH, LIST, PATHS, INTEGER, OCTAL } kind;

typedef struct option {
    const char *section, *key; /* in the file; section NULL = command line only */
    const char *flag;          /* on the command line, without the dashes */
    kind kind;
    size_t offset;
    int64_t minimum, maximum;
    const char *initial; /* NULL = not set */
    const char *help;
} option;

#define AT(member) offsetof(xpd_config, member)

static const option options[] = {
    {NULL, NULL, "user", FLAG, AT(user), 0, 0, NULL,
     "run for the calling user alone: own folders, own rights, a token file"},
    {NULL, NULL, "config", PATH, AT(config_file), 0, 0, NULL,
     "configuration file (default /etc/xptycho/xptychod.conf; with --user none)"},
    {"daemon", "state_dir", "state-dir", PATH, AT(state_dir), 0, 0, NULL,
     "folder of the queue, event logs, previews and results; on a local disk"},
    {"daemon", "state_on_network", "state-on-network", FLAG, AT(state_on_network), 0, 0, NULL,
     "start although the state folder is on a network file system: jobs may be lost or run twice "
     "when its server fails"},
    {"daemon", "runtime_dir", "runtime-dir", PATH, AT(runtime_dir), 0, 0, NULL,
     "folder of the sockets and ready.json"},
    {"daemon", "log_level", "log-level", TEXT, AT(log_word), 0, 0, "info",
     "error, warning, info or debug"},
    {"daemon", "log", "log", TEXT, AT(log_form), 0, 0, "text",
     "text or json; to the journal with fields of its own in both"},
    {"daemon", "drain_s", "drain-s", INTEGER, AT(drain_s), 1, 3600, "30",
     "time for the running job to leave the worker at a stop, seconds"},
    {"daemon", "keep_jobs", "keep-jobs", INTEGER, AT(keep_jobs), 1, 10000000, "100000",
     "finished jobs to remember; older ones are deleted with their files in the state folder"},
    {"daemon", "keep_days", "keep-days", INTEGER, AT(keep_days), 0, 36500, "30",
     "days to remember a finished job; 0 = for ever"},
    {"daemon", "ballast_mib", "ballast-mib", INTEGER, AT(ballast_mib), 0, 1 << 20, "64",
     "size of the file that is given up when the disk of the state folder is full; 0 = none"},
    {"daemon", "low_disk_mib", "low-disk-mib", INTEGER, AT(low_disk_mib), 0, 1 << 30, "64",
     "no job is accepted below this free space of the state folder"},
    {"http", "address", "address", TEXT, AT(address), 0, 0, "127.0.0.1",
     "IPv4 or IPv6 address to listen on"},
    {"http", "port", "port", INTEGER, AT(port), -1, 65535, "8270",
     "TCP port; 0 = a free one, see ready.json; -1 = no TCP"},
    {"http", "health_port", "health-port", INTEGER, AT(health_port), -1, 65535, "-1",
     "TCP port on 127.0.0.1 for livez, readyz and metrics, without a token; -1 = none"},
    {"http", "allow_remote", "allow-remote", FLAG, AT(allow_remote), 0, 0, NULL,
     "allow an address beyond loopback: a proxy in front ends TLS"},
    {"http", "host", "host", LIST, AT(hosts), 0, 0, NULL,
     "further name accepted in the Host header over TCP; may be repeated"},
    {"http", "origin", "origin", LIST, AT(origins), 0, 0, NULL,
     "web origin (https://name) whose pages may call; may be repeated"},
    {"http", "token_file", "token-file", PATH, AT(token_file), 0, 0, NULL,
     "tokens, a line each, see 'xptycho help admin'; with --user the file that is written"},
    {"http", "session_hours", "session-hours", INTEGER, AT(session_hours), 1, 720, "12",
     "time after which a browser's session ends, hours"},
    {"http", "unix_mode", "unix-mode", OCTAL, AT(unix_mode), 0600, 0777, "0660",
     "mode of the unix socket (with --user always 0600)"},
    {"roots", "data", "data-root", PATHS, AT(data_roots), 0, 0, NULL,
     "folder in which scans may be, or @GROUP:FOLDER for that group alone; may be repeated (with "
     "--user default /)"},
    {"roots", "write", "write-root", PATHS, AT(write_roots), 0, 0, NULL,
     "folder in which results may be written, or @GROUP:FOLDER for that group alone; may be "
     "repeated (with --user default /)"},
    {"workers", "cpu", "cpu-workers", INTEGER, AT(cpu_workers), 1, 16, "1",
     "device sets on the CPU: so many jobs run side by side, each with its share of the cores"},
    {"workers", "cuda", "cuda", TEXT, AT(cuda_sets), 0, 0, "auto",
     "device sets of GPUs: auto (each GPU one, where xptycho-worker-cuda is installed), none, or "
     "sets such as 'cuda:0+cuda:1 cuda:2'"},
    {"workers", "live", "live-set", LIST, AT(live_sets), 0, 0, NULL,
     "number of a device set, as GET /v1/devices says it, that is kept for live jobs; may be "
     "repeated"},
    {"workers", "memory_mib", "memory-mib", INTEGER, AT(memory_mib), 0, 1 << 30, "0",
     "memory of this machine that jobs may have in all, frames that are read included, MiB; 0 = "
     "all there is"},
    {"worker", "cpu_threads", "worker-cpu-threads", INTEGER, AT(worker_cpu_threads), 0, 4096, "0",
     "most CPU threads of a job; 0 = every core"},
    {"worker", "cancel_grace_s", "cancel-grace-s", INTEGER, AT(cancel_grace_s), 1, 86400, "30",
     "time to obey a cancel before the worker is replaced, seconds"},
    {"worker", "stall_s", "stall-s", INTEGER, AT(stall_s), 0, 86400, "120",
     "time without progress after which a worker is replaced, and ten of the job's own iterations "
     "at least, seconds; 0 = none"},
    {"worker", "memory_mib", "worker-memory-mib", INTEGER, AT(worker_memory_mib), 0, 1 << 30,
     "4096", "an idle worker that holds more memory is replaced; 0 = never"},
    {"worker", "program", "worker-program", PATH, AT(worker_program), 0, 0, NULL,
     "the worker (default: xptycho-worker beside this program)"},
    {"worker", "cuda_program", "cuda-worker-program", PATH, AT(cuda_program), 0, 0, NULL,
     "the worker on GPUs (default: xptycho-worker-cuda beside this program, where it is installed)"},
    {"reader", "probe_s", "reader-probe-s", INTEGER, AT(probe_s), 1, 3600, "30",
     "time to look at a scan at submission, seconds"},
    {"reader", "read_s", "reader-read-s", INTEGER, AT(read_s), 1, 86400, "3600",
     "time to read a scan, seconds"},
    {"reader", "wait_s", "reader-wait-s", INTEGER, AT(dataset_wait_s), 0, 2592000, "86400",
     "time to wait for a scan that another program is writing, seconds"},
    {"reader", "program", "reader-program", PATH, AT(reader_program), 0, 0, NULL,
     "the reader (default: xptycho-reader beside this program)"},
    {"limits", "queue", "queue-max", INTEGER, AT(queue_max), 1, 1000000, "10000",
     "jobs waiting, of all users"},
    {"limits", "queue_user", "queue-user-max", INTEGER, AT(queue_user_max), 1, 1000000, "200",
     "jobs waiting, of one user"},
    {"limits", "class", "class-max", TEXT, AT(class_word), 0, 0, "live",
     "highest class that a job may have: live, normal, batch or scavenger"},
    {"limits", "class_for", "class-max-for", LIST, AT(class_for), 0, 0, NULL,
     "the same for one user or group, as USER:CLASS or @GROUP:CLASS; may be repeated"},
    {"limits", "share", "share", LIST, AT(shares), 0, 0, NULL,
     "weight of a user or group against others, whose weight is 1, when turns are taken, as "
     "USER:WEIGHT or @GROUP:WEIGHT; may be repeated"},
    {"limits", "max_run_live_s", "max-run-live-s", INTEGER, AT(max_run_s[0]), 0, 31536000, "0",
     "time that a live job may run, seconds; 0 = no limit"},
    {"limits", "max_run_normal_s", "max-run-normal-s", INTEGER, AT(max_run_s[1]), 0, 31536000, "0",
     "the same of a normal job"},
    {"limits", "max_run_batch_s", "max-run-batch-s", INTEGER, AT(max_run_s[2]), 0, 31536000, "0",
     "the same of a batch job"},
    {"limits", "max_run_scavenger_s", "max-run-scavenger-s", INTEGER, AT(max_run_s[3]), 0, 31536000,
     "0", "the same of a scavenger job"},
    {"limits", "max_queue_s", "max-queue-s", INTEGER, AT(max_queue_s), 0, 31536000, "0",
     "time that a job may wait for its start, seconds; 0 = no limit"},
    {"limits", "sets_user", "sets-user-max", INTEGER, AT(sets_user_max), 0, 64, "0",
     "device sets that one user's jobs may hold at the same time; 0 = no limit"},
    {"limits", "artefacts_user_mib", "artefacts-user-mib", INTEGER, AT(artefacts_user_mib), 0,
     1 << 30, "0",
     "size of the files that one user's jobs may leave in the state folder, MiB; 0 = no limit"},
    {"limits", "min_run_s", "min-run-s", INTEGER, AT(min_run_s), 0, 86400, "60",
     "time that a batch or scavenger job runs before it may have to make room for a live one, s"},
    {"limits", "running_user", "running-user-max", INTEGER, AT(running_user_max), 0, 1000, "0",
     "jobs running at the same time, of one user; 0 = no limit"},
    {"limits", "streams", "streams-max", INTEGER, AT(streams_max), 1, 10000, "1000",
     "event streams and long polls, of all users"},
    {"limits", "streams_user", "streams-user-max", INTEGER, AT(streams_user_max), 0, 10000, "0",
     "event streams and long polls, of one user; 0 = 64, with --user as limits.streams"},
    {"limits", "streams_job", "streams-job-max", INTEGER, AT(streams_job_max), 0, 10000, "0",
     "the same of one user on one job; 0 = 4, with --user as limits.streams"},
    {"limits", "connections", "connections-max", INTEGER, AT(connections_max), 8, 60000, "1256",
     "connections to the api; one more is answered 503"},
    {"limits", "rate", "rate-max", INTEGER, AT(rate), -1, 1000000, "-1",
     "requests a second that change something, of one user; 0 = no limit, -1 = 10, with --user 0"},
    {"limits", "burst", "burst-max", INTEGER, AT(burst), 1, 1000000, "50",
     "such requests at once before limits.rate counts"},
    {"zmq", "router", "zmq-router", TEXT, AT(zmq_router), 0, 0, NULL,
     "ZeroMQ address of requests, for instance tcp://127.0.0.1:5570; starts xptycho-zmq"},
    {"zmq", "pub", "zmq-pub", TEXT, AT(zmq_pub), 0, 0, NULL,
     "ZeroMQ address of progress, for instance tcp://127.0.0.1:5571"},
    {"zmq", "program", "zmq-program", PATH, AT(zmq_program), 0, 0, NULL,
     "the ZeroMQ front end (default: xptycho-zmq beside this program)"},
    {"zmq", "token_file", "zmq-token-file", PATH, AT(zmq_token_file), 0, 0, NULL,
     "token with which progress is read, of scope admin for everybody's jobs (--user: the own one)"},
    {"zmq", "curve_secret", "zmq-curve-secret", PATH, AT(zmq_curve_secret), 0, 0, NULL,
     "secret key of the ZeroMQ front end: tcp:// speaks CURVE, and may leave this machine"},
    {"zmq", "curve_keys", "zmq-curve-keys", PATH, AT(zmq_curve_keys), 0, 0, NULL,
     "who may connect by CURVE: lines of a public key and a user"},
};
#define OPTION_COUNT (sizeof options / sizeof *options)

/* What a reload may change: nothing that is open, running or a place. */
static const char *const live[] = {"log-level",
                                   "log",
                                   "drain-s",
                                   "keep-jobs",
                                   "low-disk-mib",
                                   "host",
                                   "origin",
                                   "token-file",
                                   "session-hours",
                                   "data-root",
                                   "write-root",
                                   "worker-cpu-threads",
                                   "cancel-grace-s",
                                   "stall-s",
                                   "worker-memory-mib",
                                   "reader-probe-s",
                                   "reader-read-s",
                                   "live-set",
                                   "memory-mib",
                                   "share",
                                   "max-run-live-s",
                                   "max-run-normal-s",
                                   "max-run-batch-s",
                                   "max-run-scavenger-s",
                                   "max-queue-s",
                                   "min-run-s",
                                   "running-user-max",
                                   "sets-user-max",
                                   "artefacts-user-mib",
                                   "class-max",
                                   "class-max-for",
                                   "queue-max",
                                   "queue-user-max",
                                   "streams-max",
                                   "streams-user-max",
                                   "streams-job-max",
                                   "connections-max",
                                   "rate-max",
                                   "burst-max"};

/* ------------------------------------------------------------------------------------ values */

static bool set_text(char **where, const char *value)
{
    char *copy = strdup(value);
    if (!copy)
        return false;
    free(*where);
    *where = copy;
    return true;
}

static void list_clear(xpd_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i]);
    list->count = 0;
}

static bool parse_flag(bool *out, const char *value)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no",
                                                                                "off", "0"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *out = strcmp(value, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool set_integer(int64_t *out, const option *o, const char *value, const char *where,
                        xpd_error *err)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(value, &end, o->kind == OCTAL ? 8 : 10);
    if (!*value || *end || errno || number < o->minimum || number > o->maximum)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        o->kind == OCTAL ? "%s: '%s' is not an octal number from %llo to %llo"
                                         : "%s: '%s' is not a number from %lld to %lld",
                        where, value, (long long)o->minimum, (long long)o->maximum);
    *out = number;
    return true;
}

static bool is_root(const char *value)
{
    char group[64];
    const char *path;
    xpd_root_split(group, sizeof group, &path, value);
    return path[0] == '/' && (value[0] == '/' || (*group && strlen(group) + 1 < sizeof group));
}

static bool set_value(xpd_config *config, const option *o, const char *value, const char *where,
                      xpd_error *err)
{
    void *target = (char *)config + o->offset;

    if (o->kind == PATHS && !is_root(value))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "%s: '%s' is not an absolute path, nor @GROUP and one with a colon between",
                        where, value);
    if (o->kind != FLAG && !*value)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: the value is empty", where);
    switch (o->kind) {
    case FLAG:
        if (!parse_flag(target, value))
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: '%s' is not true or false", where,
                            value);
        return true;
    case TEXT:
    case PATH:
        if (!set_text(target, value))
            return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
        return true;
    case LIST:
    case PATHS: {
        xpd_list *list = target;
        if (list->count == XPD_LIST_MAX)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: more than %d values", where,
                            XPD_LIST_MAX);
        list->items[list->count] = strdup(value);
        if (!list->items[list->count])
            return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
        list->count++;
        return true;
    }
    case INTEGER:
    case OCTAL:
        return set_integer(target, o, value, where, err);
    }
    return false;
}

/* ------------------------------------------------------------------------------ nearest name */

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= 64 || strlen(a) >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; *a; a++, i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (*a != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

static const char *file_name(const option *o, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", o->section, o->key);
    return out;
}

static bool refuse_unknown(const char *where, const char *name, bool flag, xpd_error *err)
{
    char best[96] = "", candidate[96];
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (!flag && !options[i].section)
            continue;
        if (flag)
            snprintf(candidate, sizeof candidate, "--%s", options[i].flag);
        else
            file_name(&options[i], candidate, sizeof candidate);
        size_t distance = edit_distance(name, candidate);
        if (distance < least) {
            least = distance;
            snprintf(best, sizeof best, "%s", candidate);
        }
    }
    return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%sunknown option '%s'; the nearest is '%s'",
                    where, name, best);
}

/* -------------------------------------------------------------------------------------- file */

typedef struct file_reading {
    xpd_config *config;
    const char *path;
    FILE *file;
    int line;       /* the one that was read last */
    bool continued; /* the next piece belongs to the same line */
    xpd_error *err;
    bool failed;
} file_reading;

/* The library's reader, with a count of lines: its handler is not told where it is. */
static char *next_line(char *out, int size, void *context)
{
    file_reading *reading = context;
    if (!fgets(out, size, reading->file))
        return NULL;
    reading->line += !reading->continued;
    reading->continued = strchr(out, '\n') == NULL;
    return out;
}

static int take_line(void *context, const char *section, const char *key, const char *value)
{
    file_reading *reading = context;
    char where[512], name[128];

    if (reading->failed)
        return 0;
    snprintf(where, sizeof where, "%s: line %d: %s.%s", reading->path, reading->line, section, key);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const option *o = &options[i];
        if (!o->section || strcmp(o->section, section) != 0 || strcmp(o->key, key) != 0)
            continue;
        reading->failed = !set_value(reading->config, o, value, where, reading->err);
        return !reading->failed;
    }
    snprintf(where, sizeof where, "%s: line %d: ", reading->path, reading->line);
    snprintf(name, sizeof name, "%.60s.%.60s", section, key);
    refuse_unknown(where, name, false, reading->err);
    reading->failed = true;
    return 0;
}

bool xpd_config_file(xpd_config *config, const char *path, bool must_exist, xpd_error *err)
{
    file_reading reading = {config, path, fopen(path, "re"), 0, false, err, false};

    if (!reading.file && !must_exist && errno == ENOENT)
        return true;
    if (!reading.file)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: cannot be read: %s", path,
                        strerror(errno));
    int line = ini_parse_stream(next_line, &reading, take_line, &reading);
    bool broken = ferror(reading.file);
    fclose(reading.file);
    if (reading.failed)
        return false;
    if (broken)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: cannot be read", path);
    if (line > 0)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: line %d is not 'key = value'", path,
                        line);
    return true;
}

/* ------------------------------------------------------------------------------ command line */

static void print_help(void)
{
    printf(
        "usage: xptychod [--user] [option ...]\n\n"
        "The broker of xptycho: HTTP, the queue and the processes that read and reconstruct.\n\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s", options[i].flag,
                 options[i].kind == FLAG ? "" : " VALUE");
        printf("  %-28s %s", left, options[i].help);
        if (options[i].initial)
            printf(" (default %s)", options[i].initial);
        printf("\n");
        if (options[i].section)
            printf("  %-28s in the file: [%s] %s\n", "", options[i].section, options[i].key);
    }
    printf("  %-28s this text\n  %-28s the version\n\n", "--help", "--version");
    printf("exit status: 0 stopped, 2 usage, 78 bad configuration, 1 anything else\n");
}

static const option *find_flag(const char *name, size_t length)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (strlen(options[i].flag) == length && strncmp(options[i].flag, name, length) == 0)
            return &options[i];
    }
    return NULL;
}

/* One argument (and its value) from argv[*at]; `only` limits it to the options that choose the
 * file. */
static bool take_argument(xpd_config *config, int argc, char **argv, int *at, bool *cleared,
                          bool early, xpd_error *err)
{
    const char *argument = argv[*at];
    if (strncmp(argument, "--", 2) != 0 || !argument[2])
        return refuse_unknown("", argument, true, err);
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument - 2) : strlen(argument + 2);
    const option *o = find_flag(argument + 2, length);
    if (!o)
        return refuse_unknown("", argument, true, err);

    const char *value = equals ? equals + 1 : NULL;
    if (!value && o->kind == FLAG)
        value = "true";
    if (!value) {
        if (*at + 1 >= argc)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: a value must follow", argument);
        value = argv[++*at];
    }
    if (early != !o->section) /* --user and --config first, the others after the file */
        return true;
    if (o->kind == LIST || o->kind == PATHS) {
        if (!cleared[o - options])
            list_clear((xpd_list *)(void *)((char *)config + o->offset));
        cleared[o - options] = true;
    }
    return set_value(config, o, value, argument, err);
}

static bool take_arguments(xpd_config *config, int argc, char **argv, bool early, xpd_error *err)
{
    bool cleared[OPTION_COUNT] = {false};
    for (int i = 1; i < argc; i++) {
        if (!take_argument(config, argc, argv, &i, cleared, early, err))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------ whole */

bool xpd_config_defaults(xpd_config *config, xpd_error *err)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (options[i].initial &&
            !set_value(config, &options[i], options[i].initial, options[i].flag, err))
            return false;
    }
    return true;
}

static bool set_default_path(char **where, const char *base, const char *rest, xpd_error *err)
{
    char path[PATH_MAX];
    if (*where)
        return true;
    if (snprintf(path, sizeof path, "%s%s", base, rest) >= (int)sizeof path ||
        !set_text(where, path))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "the path '%s%s' is too long", base, rest);
    return true;
}

static bool user_folders(xpd_config *config, xpd_error *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *runtime = getenv("XDG_RUNTIME_DIR"),
               *home = getenv("HOME");

    if (state && *state) {
        if (!set_default_path(&config->state_dir, state, "/xptycho", err))
            return false;
    } else if (!config->state_dir) {
        if (!home || !*home)
            return xpd_fail(
                err, XPP_FAULT_BAD_REQUEST, "",
                "no place for the state: neither XDG_STATE_HOME nor HOME is set; give --state-dir");
        if (!set_default_path(&config->state_dir, home, "/.local/state/xptycho", err))
            return false;
    }
    /* Where no session manager made a runtime folder, the sockets live beside the state. */
    if (runtime && *runtime)
        return set_default_path(&config->runtime_dir, runtime, "/xptycho", err);
    return set_default_path(&config->runtime_dir, config->state_dir, "/run", err);
}

static bool set_level(xpd_config *config, xpd_error *err)
{
    static const char *const words[] = {"error", "warning", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(config->log_word, words[i]) == 0) {
            config->log_level = i;
            return true;
        }
    }
    return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                    "log level '%s' is not error, warning, info or debug", config->log_word);
}

static bool make_absolute(char **path, xpd_error *err)
{
    char here[PATH_MAX], whole[PATH_MAX * 2];
    if (!*path || **path == '/')
        return true;
    if (!getcwd(here, sizeof here))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "the current folder has no name: %s",
                        strerror(errno));
    snprintf(whole, sizeof whole, "%s/%s", here, *path);
    return set_text(path, whole) || xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
}

static bool check_sets(const xpd_list *sets, xpd_error *err)
{
    for (int i = 0; i < sets->count; i++) {
        const char *text = sets->items[i];
        char *end = NULL;
        long number = strtol(text, &end, 10);
        if (!isdigit((unsigned char)text[0]) || *end || number >= XPD_SETS_MAX)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                            "workers.live '%.40s' is not the number of a device set, 0 to %d", text,
                            XPD_SETS_MAX - 1);
    }
    return true;
}

bool xpd_config_finish(xpd_config *config, xpd_error *err)
{
    if (!set_level(config, err))
        return false;
    config->log_json = strcmp(config->log_form, "json") == 0;
    if (!config->log_json && strcmp(config->log_form, "text") != 0)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "log '%s' is not text or json",
                        config->log_form);
    xpd_gpu_sets sets;
    if (!xpd_gpu_sets_parse(&sets, config->cuda_sets, err))
        return false;
    if (!xpd_people_check(config, err) || !check_sets(&config->live_sets, err))
        return false;
    if (config->rate < 0)
        config->rate = config->user ? 0 : 10;
    if (config->streams_user_max == 0)
        config->streams_user_max = config->user ? config->streams_max : 64;
    if (config->streams_job_max == 0)
        config->streams_job_max = config->user ? config->streams_max : 4;
    if (config->user) {
        config->unix_mode = 0600;
        if (!user_folders(config, err))
            return false;
        xpd_list *const roots[] = {&config->data_roots, &config->write_roots};
        for (int i = 0; i < 2; i++) {
            if (roots[i]->count == 0 && !(roots[i]->items[roots[i]->count++] = strdup("/")))
                return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
        }
    } else if (!set_default_path(&config->state_dir, "/var/lib/xptycho", "", err) ||
               !set_default_path(&config->runtime_dir, "/run/xptycho", "", err)) {
        return false;
    }
    if (!make_absolute(&config->state_dir, err) || !make_absolute(&config->runtime_dir, err) ||
        !make_absolute(&config->token_file, err))
        return false;
    if (config->user && !set_default_path(&config->token_file, config->runtime_dir, "/token", err))
        return false;
    bool loopback = strncmp(config->address, "127.", 4) == 0 || strcmp(config->address, "::1") == 0;
    if (!loopback && config->port >= 0 && !config->allow_remote)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "http.address '%s' is reachable from other machines and tokens would cross "
                        "the net in the "
                        "clear; put a TLS proxy in front and set http.allow_remote = true",
                        config->address);
    if ((config->zmq_router == NULL) != (config->zmq_pub == NULL))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "zmq.router and zmq.pub must be given together");
    if ((config->zmq_curve_secret == NULL) != (config->zmq_curve_keys == NULL))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "zmq.curve_secret and zmq.curve_keys must be given together");
    return true;
}

xpd_config_result xpd_config_read(xpd_config *config, int argc, char **argv, xpd_error *err)
{
    if (!xpd_config_defaults(config, err))
        return XPD_CONFIG_BAD;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return XPD_CONFIG_EXIT;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("xptychod %s\n", xpp_version());
            return XPD_CONFIG_EXIT;
        }
    }
    if (!take_arguments(config, argc, argv, true, err))
        return XPD_CONFIG_USAGE;
    if (config->config_file) {
        if (!xpd_config_file(config, config->config_file, true, err))
            return XPD_CONFIG_BAD;
    } else if (!config->user &&
               !xpd_config_file(config, "/etc/xptycho/xptychod.conf", false, err)) {
        return XPD_CONFIG_BAD;
    }
    if (!take_arguments(config, argc, argv, false, err))
        return XPD_CONFIG_USAGE;
    return xpd_config_finish(config, err) ? XPD_CONFIG_OK : XPD_CONFIG_BAD;
}

static bool is_live(const option *o)
{
    for (size_t i = 0; i < sizeof live / sizeof *live; i++) {
        if (strcmp(live[i], o->flag) == 0)
            return true;
    }
    return false;
}

static size_t value_size(const option *o)
{
    return o->kind == FLAG                       ? sizeof(bool)
           : o->kind == TEXT || o->kind == PATH  ? sizeof(char *)
           : o->kind == LIST || o->kind == PATHS ? sizeof(xpd_list)
                                                 : sizeof(int64_t);
}

static bool same_value(const option *o, const void *a, const void *b)
{
    if (o->kind != TEXT && o->kind != PATH) /* lists may all change */
        return memcmp(a, b, value_size(o)) == 0;
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    return one == other || (one && other && strcmp(one, other) == 0);
}

void xpd_config_exchange(xpd_config *current, xpd_config *fresh, char *rest, size_t size)
{
    static unsigned char between[sizeof(xpd_list)];

    *rest = '\0';
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const option *o = &options[i];
        void *old = (char *)current + o->offset, *new = (char *)fresh + o->offset;
        size_t n = value_size(o), at = strlen(rest);
        if (is_live(o)) {
            memcpy(between, old, n);
            memcpy(old, new, n);
            memcpy(new, between, n);
        } else if (!same_value(o, old, new)) {
            snprintf(rest + at, size - at, "%s%s.%s", at ? ", " : "",
                     o->section ? o->section : "command line", o->section ? o->key : o->flag);
        }
    }
    current->log_level = fresh->log_level; /* made from the words */
    current->class_max = fresh->class_max;
    current->log_json = fresh->log_json;
}

int xpd_config_count(void)
{
    int count = 0;
    for (size_t i = 0; i < OPTION_COUNT; i++)
        count += options[i].section != NULL;
    return count;
}

void xpd_config_release(xpd_config *config)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        void *member = (char *)config + options[i].offset;
        if (options[i].kind == TEXT || options[i].kind == PATH)
            free(*(char **)member);
        else if (options[i].kind == LIST || options[i].kind == PATHS)
            list_clear(member);
    }
    memset(config, 0, sizeof *config);
}
