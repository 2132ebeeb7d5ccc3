/* xptycho-zmq: ZeroMQ frames in and out, a client of the broker's own HTTP API.
 *
 * The main thread runs the ROUTER socket, a second one the XPUB socket; each socket is made, used
 * and closed on its own thread.  The process has no rights of its own: a request carries its
 * caller's token.  It keeps no state, so it may be killed at any time; libzmq may abort it, and the
 * queue does not care. */
#include <curl/curl.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

#include "curve.h"
#include "progress.h"
#include "router.h"
#include "zap.h"

#include "xptychod/protocol.h"

#define EXIT_USAGE 2
#define EXIT_REFUSED 3
#define ENDPOINT_MAX 256

static const char help[] =
    "usage: xptycho-zmq --broker unix:PATH --router ADDRESS --pub ADDRESS [options]\n"
    "\n"
    "Answers ZeroMQ requests (ROUTER) by calls of the broker's HTTP API and publishes the progress "
    "of\n"
    "jobs (XPUB). Beyond ipc:// and loopback addresses it binds with CURVE only.\n"
    "\n"
    "  --broker unix:PATH    the broker's socket\n"
    "  --router ADDRESS      requests, for instance tcp://127.0.0.1:5570; port * lets the system "
    "choose\n"
    "  --pub ADDRESS         progress, for instance tcp://127.0.0.1:5571\n"
    "  --token-file FILE     token with which progress is read; default: the permissions of this "
    "user\n"
    "  --ready-file FILE     written when both sockets are bound: {\"zmq_router\", \"zmq_pub\", "
    "\"pid\"}\n"
    "  --curve-secret FILE   the bridge's secret key; tcp:// then speaks CURVE and nothing else\n"
    "  --curve-keys FILE     who may connect: lines of a public key and the user that it stands "
    "for\n"
    "  --make-curve-key FILE writes a new secret key to FILE, prints the public one and ends\n"
    "  --version\n"
    "  --help\n"
    "\n"
    "Exit: 0 stopped by a signal, 2 usage, 3 an address is refused or cannot be bound, 1 "
    "otherwise.\n";

typedef struct options {
    const char *broker, *router, *pub, *token_file, *ready_file;
    const char *curve_secret, *curve_keys;
    char secret[XPD_CURVE_KEY_SIZE], public_key[XPD_CURVE_KEY_SIZE]; /* "" = no CURVE */
} options;

static const char *secret_of(const options *o)
{
    return o->secret[0] ? o->secret : NULL;
}

/* What the XPUB thread is given, and what it reports. */
typedef struct publisher {
    void *context;
    const options *options;
    int stop_fd; /* eventfd: the thread should end */
    sem_t bound;
    char endpoint[ENDPOINT_MAX]; /* "" = could not be bound */
    int failed;                  /* errno of the bind */
    bool good;
} publisher;

static void raise_event(int fd)
{
    const uint64_t one = 1;

    if (write(fd, &one, sizeof one) != (ssize_t)sizeof one)
        abort(); /* a counter of 64 bits cannot be full */
}

static void *publisher_main(void *argument)
{
    publisher *p = argument;
    const options *o = p->options;
    xpd_progress *progress = xpd_progress_open(p->context, o->pub, secret_of(o), o->broker,
                                               o->token_file, p->endpoint, sizeof p->endpoint);

    if (!progress) {
        p->failed = errno;
        p->endpoint[0] = '\0';
    }
    sem_post(&p->bound);
    p->good = progress && xpd_progress_run(progress, p->stop_fd);
    xpd_progress_close(progress);
    if (!p->good)
        kill(getpid(),
             SIGTERM); /* the main thread waits for signals: without progress it ends, too */
    return NULL;
}

/* What does not leave this machine, and so needs no CURVE. */
static bool is_local(const char *address)
{
    static const char *const prefixes[] = {"ipc://", "tcp://127.",
                                           "tcp://localhost:", "tcp://[::1]:"};

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(address, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool write_ready(const char *path, const char *router, const char *pub,
                        const char *public_key)
{
    char beside[4096];
    json_t *ready = json_pack("{s:s, s:s, s:i, s:s*}", "zmq_router", router, "zmq_pub", pub, "pid",
                              (int)getpid(), "curve_public", public_key[0] ? public_key : NULL);
    bool good = ready && snprintf(beside, sizeof beside, "%s.%d.partial", path, (int)getpid()) <
                             (int)sizeof beside;

    good = good && json_dump_file(ready, beside, JSON_COMPACT) == 0 && rename(beside, path) == 0;
    if (!good)
        fprintf(stderr, "ready file '%s' cannot be written: %s\n", path, strerror(errno));
    json_decref(ready);
    return good;
}

/* 0, or an exit status; *done says that the program has nothing more to do. */
static int read_options(options *o, int argc, char **argv, bool *done)
{
    static const struct option known[] = {{"broker", required_argument, NULL, 'b'},
                                          {"router", required_argument, NULL, 'r'},
                                          {"pub", required_argument, NULL, 'p'},
                                          {"token-file", required_argument, NULL, 't'},
                                          {"ready-file", required_argument, NULL, 'f'},
                                          {"curve-secret", required_argument, NULL, 'S'},
                                          {"curve-keys", required_argument, NULL, 'K'},
                                          {"make-curve-key", required_argument, NULL, 'M'},
                                          {"version", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int c;

    *done = true;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'b':
            o->broker = optarg;
            break;
        case 'r':
            o->router = optarg;
            break;
        case 'p':
            o->pub = optarg;
            break;
        case 't':
            o->token_file = optarg;
            break;
        case 'f':
            o->ready_file = optarg;
            break;
        case 'S':
            o->curve_secret = optarg;
            break;
        case 'K':
            o->curve_keys = optarg;
            break;
        case 'M':
            if (!xpd_curve_make(optarg, o->public_key))
                return 1;
            printf("%s\n", o->public_key);
            return 0;
        case 'v':
            printf("xptycho-zmq %s\n", xpp_version());
            return 0;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            return EXIT_USAGE; /* getopt has said what is wrong */
        }
    }
    if (optind < argc || !o->broker || !o->router || !o->pub ||
        strncmp(o->broker, "unix:", 5) != 0) {
        fputs(help, stderr);
        return EXIT_USAGE;
    }
    o->broker += strlen("unix:");
    /* A server key alone would encrypt, and let everybody in. */
    if (!o->curve_secret != !o->curve_keys) {
        fputs("--curve-secret and --curve-keys go together\n", stderr);
        return EXIT_USAGE;
    }
    if (o->curve_secret && !xpd_curve_read(o->curve_secret, o->secret, o->public_key))
        return EXIT_REFUSED;
    if (o->curve_keys && access(o->curve_keys, R_OK) != 0) {
        fprintf(stderr, "list of keys '%s' cannot be read: %s\n", o->curve_keys, strerror(errno));
        return EXIT_REFUSED;
    }
    for (const char *a = o->router; a; a = a == o->router ? o->pub : NULL) {
        if (!is_local(a) && !(o->secret[0] && strncmp(a, "tcp://", 6) == 0)) {
            fprintf(stderr,
                    "address '%s' is neither ipc:// nor loopback; what leaves this machine needs "
                    "--curve-secret and --curve-keys\n",
                    a);
            return EXIT_REFUSED;
        }
    }
    *done = false;
    return 0;
}

static int stop_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread exists, so everywhere */
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Both sockets, until a signal arrives or one of them fails. */
static int serve(void *context, const options *o, int signal_fd)
{
    publisher pub = {.context = context, .options = o};
    char endpoint[ENDPOINT_MAX];
    xpd_router *router =
        xpd_router_open(context, o->router, secret_of(o), o->broker, endpoint, sizeof endpoint);
    pthread_t thread;
    int status = 1;

    if (!router) {
        fprintf(stderr, "address '%s' cannot be bound: %s\n", o->router, zmq_strerror(errno));
        return EXIT_REFUSED;
    }
    pub.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sem_init(&pub.bound, 0, 0);
    if (pub.stop_fd < 0 || pthread_create(&thread, NULL, publisher_main, &pub) != 0) {
        fprintf(stderr, "the publishing thread cannot be started: %s\n", strerror(errno));
        goto done;
    }
    while (sem_wait(&pub.bound) != 0)
        ;
    if (!pub.endpoint[0]) {
        fprintf(stderr, "address '%s' cannot be bound: %s\n", o->pub, zmq_strerror(pub.failed));
        status = EXIT_REFUSED;
    } else if (!o->ready_file ||
               write_ready(o->ready_file, endpoint, pub.endpoint, o->public_key)) {
        fprintf(stderr, "requests at %s, progress at %s\n", endpoint, pub.endpoint);
        status = xpd_router_run(router, signal_fd) ? 0 : 1;
    }
    raise_event(pub.stop_fd);
    pthread_join(thread, NULL);
    if (status == 0 && !pub.good)
        status = 1;
done:
    if (pub.stop_fd >= 0)
        close(pub.stop_fd);
    sem_destroy(&pub.bound);
    xpd_router_close(router);
    return status;
}

int main(int argc, char **argv)
{
    options o = {0};
    bool done;
    int status = read_options(&o, argc, argv, &done);
    int signal_fd;
    void *context;
    xpd_zap *zap;

    if (done)
        return status;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal_fd = stop_signals();
    if (signal_fd < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        fputs("the bridge cannot be started: no signal descriptor or no libcurl\n", stderr);
        return 1;
    }
    xpp_init();
    context = zmq_ctx_new();
    zap = context ? xpd_zap_start(context, o.curve_keys) : NULL;
    if (!zap)
        fprintf(stderr, "the handler of connections cannot be started: %s\n", strerror(errno));
    status = zap ? serve(context, &o, signal_fd) : 1;
    xpd_zap_stop(zap);
    if (context)
        zmq_ctx_term(context);
    curl_global_cleanup();
    close(signal_fd);
    return status;
}
