/* Event-stream clients: readers that check every number, some that never read, some that leave and
 * come back with Last-Event-ID.
 *
 *   load_streams --to ADDRESS [--token-file F] --path /v1/jobs/ID/events
 *                --readers N --stalled N --again N [--again-ms MS] [--limit-s S]
 *
 * Prints a line when every stream is open, then runs until the job has ended for every reader (or
 * the limit), then prints what it counted.  A reader must see seq 1, 2, 3 ... to the event `end`
 * without a hole or a repetition, over all of its connections.  One thread, epoll. */
#include "load.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define OPENING_MAX 64 /* connections that wait for their first byte: below any listen queue */
#define LINE_MAX_                                                                                  \
    128 /* of a line's bytes are kept: enough for `id`, `event`, and a data line's seq and time */
#define RETRY_S 1.0
#define STALLED_ROOM                                                                               \
    4096 /* else their kernel takes megabytes for them, and nobody sees that they do not read */
#define STALE_EVERY 16 /* every 16th reader measures how old events are */

typedef enum role { READER, STALLED, AGAIN } role;
typedef enum phase { IDLE, HEAD, SIZE, DATA, BETWEEN, OVER } phase;

typedef struct client {
    role role;
    int index, fd; /* -1 = not connected */
    phase phase;
    bool opening, opened, ended, gone;
    int status;
    size_t left; /* of the chunk */
    char line[LINE_MAX_];
    size_t length;
    int64_t seq, pending; /* delivered; of the message that is being read, 0 = none */
    bool pending_end;
    double due; /* connect, or leave and come back */
} client;

static struct {
    load_target to;
    const char *path;
    double again_s;
    int epoll, opening;
    client *clients;
    int count;
    int64_t events, gaps, duplicates, disagree, refused, broken, reconnects, stalled_closed;
    load_samples ages; /* milliseconds from the time in an event to its arrival */
} all;

/* ------------------------------------------------------------------------------------ reading */

/* The time of an event, "t":"2026-01-31T09:15:02.123Z". */
static void note_age(const char *line)
{
    const char *at = strstr(line, "\"t\":");
    struct tm t = {0};
    int ms;

    at = at ? strchr(at + 4, '"') : NULL;
    if (!at || sscanf(at + 1, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &t.tm_year, &t.tm_mon, &t.tm_mday,
                      &t.tm_hour, &t.tm_min, &t.tm_sec, &ms) != 7)
        return;
    t.tm_year -= 1900;
    t.tm_mon--;
    load_add(&all.ages, (load_wall() - (double)timegm(&t) - ms / 1000.0) * 1000);
}

/* A blank line: the message is whole, and only now does it count. */
static void deliver(client *c)
{
    if (c->pending == 0)
        return;
    if (c->pending > c->seq + 1)
        all.gaps++;
    else if (c->pending <= c->seq)
        all.duplicates++;
    if (c->pending > c->seq)
        c->seq = c->pending;
    all.events++;
    c->ended = c->ended || c->pending_end;
    c->pending = 0;
    c->pending_end = false;
}

static void take_line(client *c)
{
    long long seq;

    c->line[c->length < LINE_MAX_ ? c->length : LINE_MAX_ - 1] = '\0';
    if (c->length == 0) {
        deliver(c);
    } else if (strncmp(c->line, "id: ", 4) == 0) {
        c->pending = strtoll(c->line + 4, NULL, 10);
    } else if (strcmp(c->line, "event: end") == 0) {
        c->pending_end = true;
    } else if (strcmp(c->line, "event: gap") == 0) {
        all.gaps++;
    } else if (strncmp(c->line, "data: ", 6) == 0 && c->pending > 0) {
        if (sscanf(c->line + 6, "{\"seq\":%lld", &seq) != 1 || seq != c->pending)
            all.disagree++;
        if (c->role == READER && c->index % STALE_EVERY == 0)
            note_age(c->line);
    }
    c->length = 0;
}

static void take_body(client *c, char byte)
{
    if (byte == '\n')
        take_line(c);
    else if (c->length++ < LINE_MAX_ - 1)
        c->line[c->length - 1] = byte;
}

static void answered(client *c)
{
    if (!c->opening)
        return;
    c->opening = false;
    all.opening--;
}

static void take_head(client *c)
{
    c->line[c->length < LINE_MAX_ ? c->length : LINE_MAX_ - 1] = '\0';
    if (c->status == 0 && sscanf(c->line, "HTTP/1.1 %d", &c->status) != 1)
        c->status = -1;
    if (c->length == 0 && c->status > 0) {
        answered(c);
        c->opened = c->opened || c->status == 200;
        c->ended = c->ended || c->status == 204;
        c->phase = c->status == 200 ? SIZE : OVER;
    }
    c->length = 0;
}

static void take(client *c, char byte)
{
    switch (c->phase) {
    case HEAD:
        if (byte == '\n')
            take_head(c);
        else if (byte != '\r' && c->length++ < LINE_MAX_ - 1)
            c->line[c->length - 1] = byte;
        break;
    case SIZE: /* hexadecimal, then CR LF */
        if (byte == '\n')
            c->phase = c->left ? DATA : OVER;
        else if (byte != '\r')
            c->left = c->left * 16 + (size_t)(byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10);
        break;
    case DATA:
        take_body(c, byte);
        if (--c->left == 0)
            c->phase = BETWEEN;
        break;
    case BETWEEN:
        if (byte == '\n')
            c->phase = SIZE;
        break;
    case IDLE:
    case OVER:
        break;
    }
}

/* -------------------------------------------------------------------------------- connections */

static void disconnect(client *c)
{
    answered(c);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->phase = IDLE;
}

/* The service ended it. */
static void lost(client *c)
{
    bool refused = c->status >= 400;

    disconnect(c);
    c->gone = c->ended || c->role == STALLED;
    if (c->role == STALLED)
        all.stalled_closed++;
    if (c->gone)
        return;
    if (refused)
        all.refused++;
    else
        all.broken++;              /* without the event `end` */
    c->due = load_now() + RETRY_S; /* as an EventSource does */
}

static void connect_(client *c)
{
    char request[768], last[64] = "";
    struct epoll_event event = {.events = c->role == STALLED ? EPOLLRDHUP : EPOLLIN, .data.ptr = c};

    c->fd = load_connect(&all.to, c->role == STALLED ? STALLED_ROOM : 0);
    if (c->fd < 0) {
        if (errno != EAGAIN) /* the listen queue of a unix socket is full */
            load_fail("cannot connect: %s", strerror(errno));
        c->due = load_now() + 0.01;
        return;
    }
    if (c->seq > 0)
        snprintf(last, sizeof last, "Last-Event-ID: %lld\r\n", (long long)c->seq);
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n%s%s\r\n",
                     all.path, all.to.authorization, last);
    /* a connection over loopback is there at once unless the listen queue is full */
    for (int round = 0; send(c->fd, request, (size_t)n, MSG_NOSIGNAL) != n; round++) {
        if ((errno != EAGAIN && errno != ENOTCONN) || round > 1000)
            load_fail("cannot send: %s", strerror(errno));
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (epoll_ctl(all.epoll, EPOLL_CTL_ADD, c->fd, &event) != 0)
        load_fail("epoll: %s", strerror(errno));
    c->phase = HEAD;
    c->status = 0;
    c->length = c->left = 0;
    c->pending = 0;
    c->pending_end = false;
    c->opened = c->opened || c->role == STALLED;
    c->opening = c->role != STALLED;
    all.opening += c->opening;
    c->due = load_now() + all.again_s;
}

static void readable(client *c)
{
    char bytes[16384];
    ssize_t got = recv(c->fd, bytes, sizeof bytes, 0);

    if (got < 0 && errno == EAGAIN)
        return;
    for (ssize_t i = 0; i < got; i++)
        take(c, bytes[i]);
    if (got <= 0 || c->phase == OVER)
        lost(c);
}

/* Connects who is due, and takes away who is to come back. */
static void tend(client *c, double now)
{
    if (c->gone || c->due > now)
        return;
    if (c->fd < 0) {
        if (all.opening < OPENING_MAX)
            connect_(c);
    } else if (c->role == AGAIN && !c->opening) {
        disconnect(c);
        all.reconnects++;
        connect_(c);
    }
}

/* --------------------------------------------------------------------------------------- main */

static void report(double began, bool whole)
{
    int64_t least = INT64_MAX, most = 0;
    int ended = 0, readers = 0;
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    for (int i = 0; i < all.count; i++) {
        const client *c = &all.clients[i];
        if (c->role == STALLED)
            continue;
        readers++;
        ended += c->ended;
        least = c->seq < least ? c->seq : least;
        most = c->seq > most ? c->seq : most;
    }
    load_sort(&all.ages);
    printf("{\"readers\":%d,\"ended\":%d,\"events\":%lld,\"gaps\":%lld,\"duplicates\":%lld,"
           "\"disagree\":%lld,\"refused\":%lld,\"broken\":%lld,\"reconnects\":%lld,"
           "\"stalled_closed\":%lld,\"least_seq\":%lld,\"most_seq\":%lld,\"seconds\":%.3f,"
           "\"age_p50_ms\":%.1f,\"age_p99_ms\":%.1f,\"age_max_ms\":%.1f,\"ages\":%zu,"
           "\"cpu_s\":%.2f,\"whole\":%s}\n",
           readers, ended, (long long)all.events, (long long)all.gaps, (long long)all.duplicates,
           (long long)all.disagree, (long long)all.refused, (long long)all.broken,
           (long long)all.reconnects, (long long)all.stalled_closed, (long long)least,
           (long long)most, load_now() - began, load_part(&all.ages, 0.5),
           load_part(&all.ages, 0.99), load_part(&all.ages, 1), all.ages.count,
           (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6,
           whole ? "true" : "false");
    fflush(stdout);
}

/* Whether every stream has been open once, and whether every reader has the event `end`. */
static void look(bool *open, bool *over)
{
    *open = *over = true;
    for (int i = 0; i < all.count; i++) {
        *open = *open && all.clients[i].opened;
        *over = *over && (all.clients[i].role == STALLED || all.clients[i].gone);
    }
}

static bool run(double began, double limit_s)
{
    bool announced = false;

    for (;;) {
        struct epoll_event events[256];
        int count = epoll_wait(all.epoll, events, 256, 10);
        double now = load_now();
        bool open, over;

        for (int i = 0; i < count; i++) {
            client *c = events[i].data.ptr;
            if (c->fd >= 0 && c->role == STALLED)
                lost(c);
            else if (c->fd >= 0)
                readable(c);
        }
        for (int i = 0; i < all.count; i++)
            tend(&all.clients[i], now);
        look(&open, &over);
        if (open && !announced) {
            printf("{\"open\":%d,\"seconds\":%.3f}\n", all.count, now - began);
            fflush(stdout);
            announced = true;
        }
        if (over || now - began > limit_s)
            return over;
    }
}

static void make_clients(int readers, int stalled, int again, double now)
{
    all.count = readers + stalled + again;
    all.clients = calloc((size_t)all.count + 1, sizeof *all.clients);
    if (!all.clients)
        load_fail("memory is exhausted");
    for (int i = 0; i < all.count; i++)
        all.clients[i] = (client){.role = i < stalled           ? STALLED
                                          : i < stalled + again ? AGAIN
                                                                : READER,
                                  .index = i,
                                  .fd = -1,
                                  .due = now};
}

int main(int argc, char **argv)
{
    const char *to = NULL, *token_file = NULL;
    int readers = 0, stalled = 0, again = 0;
    double limit_s = 3600, began = load_now();
    struct rlimit files;

    all.again_s = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--to") == 0)
            to = value;
        else if (strcmp(name, "--token-file") == 0)
            token_file = value;
        else if (strcmp(name, "--path") == 0)
            all.path = value;
        else if (strcmp(name, "--readers") == 0)
            readers = (int)load_number(name, value);
        else if (strcmp(name, "--stalled") == 0)
            stalled = (int)load_number(name, value);
        else if (strcmp(name, "--again") == 0)
            again = (int)load_number(name, value);
        else if (strcmp(name, "--again-ms") == 0)
            all.again_s = (double)load_number(name, value) / 1000;
        else if (strcmp(name, "--limit-s") == 0)
            limit_s = (double)load_number(name, value);
        else
            load_fail("unknown option %s", name);
    }
    if (!to || !all.path || readers + stalled + again == 0)
        load_fail("--to, --path and a number of clients are needed");
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    load_target_read(&all.to, to, token_file);
    all.epoll = epoll_create1(EPOLL_CLOEXEC);
    make_clients(readers, stalled, again, began);
    bool whole = run(began, limit_s);
    report(began, whole);
    return whole ? 0 : 1;
}
