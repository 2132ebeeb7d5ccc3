/* xptychod: the order of start and stop.
 *
 * Start: configuration, folders, lock, state, listeners, worker, bridge; ready.json last.
 * Stop (SIGTERM, SIGINT): no new work, the running job back to the queue, children leave, streams
 * end, the state is closed; bounded in time, and until the streams end questions are answered.  A
 * second signal means now: what is on disk is enough to go on from.  SIGHUP reloads, SIGUSR1 writes
 * the state to the log. */
#include "admin.h"
#include "ballast.h"
#include "bridge.h"
#include "dispatch.h"
#include "download.h"
#include "http.h"
#include "life.h"
#include "log.h"
#include "notify.h"
#include "place.h"
#include "roots.h"
#include "run.h"
#include "stream.h"
#include "submit.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXIT_USAGE 2
#define EXIT_CONFIG 78 /* not worth a restart by the service manager */
#define QUIT_MS 8000   /* for the bridge to leave */
#define CLOSE_MS 3000  /* for streams and answers on their way */
#define DESCRIPTORS 65536
#define DESCRIPTORS_SPARE 512 /* beside connections: files, children and what they hand over */
#define READY_WAIT_MS 10000   /* for the bridge before ready.json is written without it */
#define LOCK_TRIES 250        /* of 20 ms */

typedef struct service {
    xpd_broker b;
    int locks[2]; /* of the state and the runtime folder */
    bool locked;
    xpd_source signals;
    xpd_timer tick, ready, close;
    int64_t started_ms;
    bool at_once, announced;
    char ready_file[PATH_MAX];
} service;

/* ----------------------------------------------------------------------------------- folders */

static bool make_folders(const char *path, mode_t mode, xpd_error *err)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *at = copy + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(copy, 0755) != 0 && errno != EEXIST)
            return xpd_fail(err, XPP_FAULT_INTERNAL, "", "folder '%s' cannot be made: %s", copy,
                            strerror(errno));
        *at = '/';
    }
    if (mkdir(copy, mode) != 0 && errno != EEXIST)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "folder '%s' cannot be made: %s", copy,
                        strerror(errno));
    return true;
}

static bool prepare_folders(service *s, xpd_error *err)
{
    xpd_broker *b = &s->b;
    mode_t mode = b->config.user ? 0700 : 0750;

    if (strlen(b->config.state_dir) > PATH_MAX - 128)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "the path of the state folder is too long");
    snprintf(b->jobs_dir, sizeof b->jobs_dir, "%.*s/jobs", PATH_MAX - 128, b->config.state_dir);
    snprintf(b->results_dir, sizeof b->results_dir, "%.*s/results", PATH_MAX - 128,
             b->config.state_dir);
    snprintf(s->ready_file, sizeof s->ready_file, "%.*s/ready.json", PATH_MAX - 128,
             b->config.runtime_dir);
    return make_folders(b->config.state_dir, mode, err) &&
           xpd_place_check(b->config.state_dir, b->config.state_on_network, err) &&
           xpd_place_guarded(b->config.state_dir, "daemon.state_dir", err) &&
           make_folders(b->jobs_dir, mode, err) && make_folders(b->results_dir, mode, err) &&
           make_folders(b->config.runtime_dir, b->config.user ? 0700 : 0755, err) &&
           xpd_place_guarded(b->config.runtime_dir, "daemon.runtime_dir", err);
}

/* A child of a broker that was killed holds its lock for a moment, between its birth and its
 * program: where the pid in the file is nobody's, waiting helps.  holder: that pid as text. */
static bool wait_for_lock(int lock, char *holder, size_t size)
{
    const struct timespec pause = {.tv_nsec = 20000000};

    for (int tries = 0; flock(lock, LOCK_EX | LOCK_NB) != 0; tries++) {
        ssize_t n = pread(lock, holder, size - 1, 0);
        holder[n > 0 ? n : 0] = '\0';
        holder[strcspn(holder, "\n")] = '\0';
        pid_t pid = (pid_t)strtol(holder, NULL, 10);
        if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH || tries == LOCK_TRIES)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

/* One broker a folder: a lock that the kernel gives back when we die, with our pid in it. */
static bool take_lock(int *lock, const char *folder, const char *option, xpd_error *err)
{
    char path[PATH_MAX], text[32] = "";

    snprintf(path, sizeof path, "%.*s/lock", PATH_MAX - 128, folder);
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (*lock < 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "'%s' cannot be opened: %s", path,
                        strerror(errno));
    if (!wait_for_lock(*lock, text, sizeof text))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "",
                        "another xptychod (pid %s) uses '%s'; stop it or choose another %s",
                        *text ? text : "unknown", folder, option);
    if (ftruncate(*lock, 0) != 0 || dprintf(*lock, "%ld\n", (long)getpid()) < 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "'%s' cannot be written: %s", path,
                        strerror(errno));
    return true;
}

static bool take_locks(service *s, xpd_error *err)
{
    const xpd_config *c = &s->b.config;
    s->locked = take_lock(&s->locks[0], c->state_dir, "--state-dir", err) &&
                (strcmp(c->state_dir, c->runtime_dir) == 0 ||
                 take_lock(&s->locks[1], c->runtime_dir, "--runtime-dir", err));
    return s->locked;
}

/* -------------------------------------------------------------------------------- ready.json */

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static void write_ready(service *s)
{
    xpd_broker *b = &s->b;
    char beside[PATH_MAX + 16];
    json_t *doc = json_pack(
        "{s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o}", "http",
        text_or_null(xpd_http_address(b->http)), "unix", text_or_null(xpd_http_unix_path(b->http)),
        "admin", text_or_null(xpd_http_admin_path(b->http)), "health",
        text_or_null(xpd_http_health_address(b->http)), "pid", (int)getpid(), "token_file",
        text_or_null(b->config.user ? b->config.token_file : NULL), "zmq_router",
        text_or_null(b->bridge ? b->bridge->router : NULL), "zmq_pub",
        text_or_null(b->bridge ? b->bridge->pub : NULL), "curve_public",
        text_or_null(b->bridge ? b->bridge->curve_public : NULL));

    snprintf(beside, sizeof beside, "%s.partial", s->ready_file);
    if (!doc || json_dump_file(doc, beside, JSON_COMPACT) != 0 || chmod(beside, 0644) != 0 ||
        rename(beside, s->ready_file) != 0)
        xpd_log(XPD_LOG_ERROR, NULL, "'%s' cannot be written: %s", s->ready_file, strerror(errno));
    json_decref(doc);
}

/* Written when everything is there; without the bridge when that takes too long. */
static void try_ready(void *context)
{
    service *s = context;
    xpd_broker *b = &s->b;
    bool bridged = !b->bridge || xpd_bridge_ready(b->bridge);

    if (b->stopping)
        return;
    if (!bridged)
        xpd_timer_set(&b->loop, &s->ready, 20);
    if (!bridged && (s->announced || xpd_now_ms() - s->started_ms < READY_WAIT_MS))
        return;
    write_ready(s);
    if (!s->announced)
        xpd_log(XPD_LOG_INFO, NULL, "ready: %s %s", xpd_http_address(b->http),
                xpd_http_unix_path(b->http));
    s->announced = true;
    xpd_notify_ready("serving");
}

/* The bridge died: its addresses are gone until it is back. */
static void addresses_changed(service *s)
{
    s->b.addresses_changed = false;
    if (!s->announced || s->b.stopping)
        return;
    write_ready(s);
    xpd_timer_set(&s->b.loop, &s->ready, 20);
}

/* -------------------------------------------------------------------------------------- stop */

static void stop_loop(void *context)
{
    service *s = context;
    if (s->b.parked > 0 || !xpd_streams_none(&s->b))
        xpd_log(XPD_LOG_WARNING, NULL, "clients that do not read are left behind");
    s->b.loop.stop = true;
}

static void begin_stop(service *s)
{
    xpd_broker *b = &s->b;

    xpd_log(XPD_LOG_INFO, NULL, "stopping");
    b->stopping = true;
    xpd_notify_stopping();
    unlink(s->ready_file);
    xpd_submissions_end(b);
    xpd_run_shutdown(b);
    xpd_workers_quit(b, false, b->config.drain_s * 1000);
    xpd_bridge_quit(b->bridge, QUIT_MS);
}

/* Children first, since their last words are events; then streams; then whatever is on its way to
 * the disk. */
static void go_on_stopping(service *s)
{
    xpd_broker *b = &s->b;

    if (xpd_workers_alive(b) || xpd_bridge_alive(b->bridge))
        return;
    if (!b->closing) {
        b->closing = true;
        xpd_http_quiesce(b->http);
        xpd_streams_end(b);
        xpd_timer_set(&b->loop, &s->close, CLOSE_MS);
    }
    if (xpd_streams_none(b) && b->parked == 0 && xpd_store_idle(b->store) &&
        xpd_http_connections(b->http) == 0)
        b->loop.stop = true;
}

static void reload(service *s)
{
    xpd_error err = XPD_ERROR_INIT;
    char rest[512];

    if (!s->b.stopping)
        xpd_reload(&s->b, rest, sizeof rest, NULL, &err); /* it logs what came of it */
    xpd_error_release(&err);
}

static void on_signal(void *context)
{
    service *s = context;
    struct signalfd_siginfo info;

    while (read(s->signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            xpd_children_reap();
        } else if (info.ssi_signo == SIGHUP) {
            reload(s);
        } else if (info.ssi_signo == SIGUSR1) {
            xpd_dump(&s->b);
        } else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) {
            if (!s->b.stopping) {
                begin_stop(s);
            } else {
                s->at_once = true;
                s->b.loop.stop = true;
            }
        }
    }
}

static bool watch_signals(service *s, xpd_error *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "signals cannot be blocked: %s",
                        strerror(errno));
    s->signals = (xpd_source){
        .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .ready = on_signal, .context = s};
    if (s->signals.fd < 0 || !xpd_loop_add(&s->b.loop, &s->signals))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "signals cannot be watched: %s",
                        strerror(errno));
    return true;
}

/* -------------------------------------------------------------------------------------- loop */

static int before_wait(void *context)
{
    service *s = context;
    return xpd_http_before_wait(s->b.http);
}

static void after_turn(void *context)
{
    service *s = context;
    xpd_clock_follow(&s->b);
    xpd_submissions_answer(&s->b); /* before a start changes the place of others */
    if (!s->b.draining)
        xpd_dispatch(&s->b);
    if (s->b.addresses_changed)
        addresses_changed(s);
    if (s->b.stopping)
        go_on_stopping(s);
}

static void measured(void *context, double busy_s)
{
    service *s = context;
    xpd_histogram_add(&s->b.metrics.loop_lag, busy_s);
}

static void tick(void *context)
{
    service *s = context;
    xpd_broker *b = &s->b;
    xpd_http_tick(b->http);
    xpd_streams_tick(b);
    xpd_downloads_tick(b);
    xpd_metrics_tick(b);
    xpd_notify_alive(xpd_now_ms(), !b->failed);
    xpd_timer_set(&b->loop, &s->tick, 1000);
}

/* ------------------------------------------------------------------------------------- start */

/* At its limit of open files the service could neither accept, nor start a reader, nor write an
 * event, so it does not start where its own limits lead there. */
static bool raise_descriptors(const xpd_config *config, xpd_error *err)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)xpd_http_descriptors(config) + DESCRIPTORS_SPARE;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return true;
    rlim_t want = need > DESCRIPTORS ? need : DESCRIPTORS;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        xpd_log(XPD_LOG_WARNING, NULL, "the limit of open files cannot be raised: %s",
                strerror(errno));
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return true;
    return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                    "limits.connections %lld needs %llu open files, the system allows %llu; raise "
                    "the hard limit (LimitNOFILE of the unit, ulimit -n) or lower "
                    "limits.connections",
                    (long long)config->connections_max, (unsigned long long)need,
                    (unsigned long long)limit.rlim_cur);
}

static bool open_state(service *s, xpd_error *err)
{
    xpd_broker *b = &s->b;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%.*s/queue.db", PATH_MAX - 128, b->config.state_dir);
    if (!xpd_store_open(&b->store, path, err) || !xpd_jobs_load(b, err))
        return false;
    xpd_store_observe(b->store, xpd_metrics_commit, &b->metrics);
    b->store_source =
        (xpd_source){.fd = xpd_store_fd(b->store), .ready = xpd_store_ready, .context = b};
    if (!xpd_loop_add(&b->loop, &b->store_source))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "the store cannot be watched: %s",
                        strerror(errno));
    xpd_ballast_make(b);
    xpd_state_tend(b);
    if (b->jobs.count > 0)
        xpd_log(XPD_LOG_INFO, NULL, "%zu jobs in the state, %zu wait", b->jobs.count,
                b->queue.count);
    return true;
}

static bool open_auth(service *s, xpd_error *err)
{
    const xpd_config *c = &s->b.config;
    if (!c->user && c->port >= 0 && !c->token_file)
        xpd_log(XPD_LOG_WARNING, NULL,
                "http.token_file is not set: nobody can use TCP, only the unix socket");
    if (!c->user && c->data_roots.count == 0)
        xpd_log(XPD_LOG_WARNING, NULL, "roots.data is not set: no scan can be read");
    return xpd_tokens_load(&s->b.auth, c, err);
}

static bool start(service *s, xpd_error *err)
{
    xpd_broker *b = &s->b;

    s->started_ms = xpd_now_ms();
    if (!raise_descriptors(&b->config, err))
        return false;
    if (!xpd_loop_init(&b->loop))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "no event loop: %s", strerror(errno));
    if (!prepare_folders(s, err) ||
        !xpd_roots_apart(&b->config, b->config.state_dir, b->config.runtime_dir, NULL, err) ||
        !take_locks(s, err) || !watch_signals(s, err) || !open_auth(s, err) ||
        !open_state(s, err) || !xpd_http_open(&b->http, b, err))
        return false;
    b->loop.before_wait = before_wait;
    b->loop.after_turn = after_turn;
    b->loop.measured = measured;
    b->loop.context = s;
    s->tick = (xpd_timer){.fire = tick, .context = s};
    s->ready = (xpd_timer){.fire = try_ready, .context = s};
    s->close = (xpd_timer){.fire = stop_loop, .context = s};
    if (!xpd_workers_create(b, err))
        return false;
    if (!xpd_bridge_create(b))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    b->ready = true;
    xpd_timer_set(&b->loop, &s->tick, 1000);
    xpd_watch_start(b);
    try_ready(s);
    return true;
}

/* Closes every descriptor but those of results that are being read: closing these may hang.  Where
 * a thread waits for a file system that is away, the kernel keeps the process with all that it has
 * open until that answers; so the locks, the database, the addresses and the clients are let go
 * of here, and the next broker can start. */
static void let_go(const xpd_broker *b)
{
    int kept[XPD_DOWNLOADS_MAX], count = xpd_downloads_open(b, kept);
    unsigned from = 0;

    for (;;) {
        unsigned next = UINT_MAX;
        for (int i = 0; i < count; i++) {
            if ((unsigned)kept[i] >= from && (unsigned)kept[i] < next)
                next = (unsigned)kept[i];
        }
        if (next > from)
            close_range(from, next == UINT_MAX ? next : next - 1, 0);
        if (next == UINT_MAX)
            return;
        from = next + 1;
    }
}

static void finish(service *s)
{
    xpd_broker *b = &s->b;

    /* The library aborts when it is stopped with suspended connections, so leftovers are left to
     * the kernel. */
    bool clean = !s->at_once && b->parked == 0 && !b->streams && !b->waits && !b->submissions &&
                 xpd_downloads_none(b);
    xpd_watch_stop(b);
    xpd_workers_kill(b);
    if (b->bridge)
        xpd_child_signal(&b->bridge->child, SIGKILL);
    xpd_ballast_drop(b);
    if (s->locked)
        unlink(s->ready_file);
    if (!clean) {
        if (!b->failed)
            xpd_store_flush(b->store);
        xpd_log(XPD_LOG_INFO, NULL, "stopped at once");
        let_go(b);
        _exit(b->failed ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    xpd_http_close(b->http);
    xpd_downloads_close(b);
    if (b->store)
        xpd_loop_remove(&b->loop, &b->store_source);
    xpd_store_close(b->store);
    xpd_workers_destroy(b);
    xpd_bridge_destroy(b->bridge);
    xpd_auth_destroy(b->auth);
    xpd_queue_release(&b->queue);
    xpd_queue_release(&b->held);
    xpd_history_release(&b->history);
    xpd_owners_release(&b->owners);
    xpd_table_release(&b->jobs);
    for (int i = 0; i < XPD_FEED_RING; i++)
        free(b->feed[i].line);
    if (s->signals.fd >= 0)
        close(s->signals.fd);
    xpd_loop_release(&b->loop);
    for (int i = 0; i < 2; i++) {
        if (s->locks[i] >= 0)
            close(s->locks[i]);
    }
    xpd_config_release(&b->config);
}

int main(int argc, char **argv)
{
    static service s; /* large: the feed's ring */
    xpd_error err = XPD_ERROR_INIT;
    char user[64];
    int code = EXIT_SUCCESS;

    s.locks[0] = s.locks[1] = s.signals.fd = -1;
    s.b.store_source.fd = -1;
    s.b.ballast = -1;
    s.b.loop.epoll = -1;
    s.b.argc = argc;
    s.b.argv = argv;
    umask(umask(077) | 002); /* whatever we were started with: others write none of our files */
    xpd_metrics_init(&s.b.metrics);
    xpp_init();
    xpd_config_result read = xpd_config_read(&s.b.config, argc, argv, &err);
    if (read != XPD_CONFIG_OK) {
        bool memory = read != XPD_CONFIG_EXIT && err.fault == XPP_FAULT_INTERNAL;
        if (read == XPD_CONFIG_USAGE && !memory)
            fprintf(stderr, "xptychod: %s; see xptychod --help\n", err.text);
        else if (read != XPD_CONFIG_EXIT)
            fprintf(stderr, "xptychod: %s\n", err.text);
        xpd_config_release(&s.b.config);
        return memory                     ? EXIT_FAILURE /* another start may have it */
               : read == XPD_CONFIG_EXIT  ? EXIT_SUCCESS
               : read == XPD_CONFIG_USAGE ? EXIT_USAGE
                                          : EXIT_CONFIG;
    }
    xpd_log_set_level((xpd_level)s.b.config.log_level);
    xpd_log_set_json(s.b.config.log_json);
    /* glibc 2.36 does not get over a lack of memory in the first such look-up: before there are
     * jobs */
    xpd_user_name(user, sizeof user, geteuid());
    if (start(&s, &err)) {
        xpd_loop_run(&s.b.loop);
        code = s.b.failed ? EXIT_FAILURE : EXIT_SUCCESS;
        if (code == EXIT_SUCCESS)
            xpd_log(XPD_LOG_INFO, NULL, "stopped");
    } else {
        xpd_log(XPD_LOG_ERROR, NULL, "%s", err.text);
        code = err.fault == XPP_FAULT_BAD_REQUEST ? EXIT_CONFIG : EXIT_FAILURE;
    }
    xpd_error_release(&err);
    finish(&s);
    return code;
}
