/* Clients that ask one thing again and again, and how long each answer took.
 *
 *   load_requests --to ADDRESS [--token-file F] [--method M] --path P [--body-file F]
 *                 --clients N [--every-ms MS] [--new 1] [--count N] [--seconds S]
 *
 * Each client sends, waits for the whole answer, and (after --every-ms from its last request, 0 =
 * at once) sends again; with --new 1 over a new connection each time, whose making counts.  Ends
 * after so many answers or seconds and prints what it counted.  Answers need a Content-Length.
 * One thread, epoll. */
#include "load.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define HEAD_ROOM 2048

typedef struct client {
    int fd; /* -1 = not connected */
    bool busy, writing, closes;
    char head[HEAD_ROOM];
    size_t head_length, sent;
    long body_left; /* -1 = the head is not whole */
    int status;
    double began, due;
} client;

static struct {
    load_target to;
    char *request; /* [length] */
    size_t length;
    bool fresh;
    double every_s, seconds;
    long count, started, done, failed;
    long statuses[600];
    int epoll;
    load_samples times; /* milliseconds */
} all = {.count = -1};

static void watch(client *c, int operation)
{
    struct epoll_event event = {.events = c->writing ? EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (epoll_ctl(all.epoll, operation, c->fd, &event) != 0)
        load_fail("epoll: %s", strerror(errno));
}

static void drop(client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void finish(client *c, bool good)
{
    double now = load_now();

    c->busy = false;
    c->due = all.every_s > 0 ? c->began + all.every_s : now;
    if (good) {
        load_add(&all.times, (now - c->began) * 1000);
        all.done++;
        if (c->status > 0 && c->status < 600)
            all.statuses[c->status]++;
    } else {
        all.failed++;
        c->due = now + 0.1; /* a service that refuses is not asked in a tight loop */
    }
    if (!good || all.fresh || c->closes)
        drop(c);
}

static void send_rest(client *c)
{
    while (c->sent < all.length) {
        ssize_t n = send(c->fd, all.request + c->sent, all.length - c->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
            return;
        if (n < 0) {
            finish(c, false);
            return;
        }
        c->sent += (size_t)n;
    }
    c->writing = false;
    watch(c, EPOLL_CTL_MOD);
}

static void start(client *c, double now)
{
    bool fresh = c->fd < 0;

    c->began = now;
    c->sent = c->head_length = 0;
    c->status = 0;
    c->body_left = -1;
    c->busy = c->writing = true;
    c->closes = false;
    all.started++;
    if (fresh && (c->fd = load_connect(&all.to, 0)) < 0) {
        finish(c, false);
        return;
    }
    watch(c, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
    if (!fresh)
        send_rest(c);
}

/* What a head says: status, length, whether the connection ends. */
static void take_head(client *c)
{
    c->body_left = 0;
    sscanf(c->head, "HTTP/1.1 %d", &c->status);
    for (char *line = strstr(c->head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, "Content-Length:", 15) == 0)
            c->body_left = strtol(line + 17, NULL, 10);
        else if (strncasecmp(line + 2, "Connection: close", 17) == 0)
            c->closes = true;
    }
}

static void take(client *c, const char *bytes, size_t length)
{
    size_t at = 0;

    while (c->body_left < 0 && at < length) {
        if (c->head_length + 1 >= HEAD_ROOM)
            load_fail("an answer's head is too long");
        c->head[c->head_length++] = bytes[at++];
        c->head[c->head_length] = '\0';
        if (c->head_length >= 4 && strcmp(c->head + c->head_length - 4, "\r\n\r\n") == 0)
            take_head(c);
    }
    if (c->body_left >= 0) {
        c->body_left -= (long)(length - at);
        if (c->body_left <= 0)
            finish(c, true);
    }
}

static void ready(client *c, uint32_t events)
{
    char bytes[65536];

    if (c->fd < 0)
        return;
    if (c->busy && c->writing && (events & EPOLLOUT))
        send_rest(c);
    if (c->fd < 0 || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t got = recv(c->fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0 && c->busy)
        take(c, bytes, (size_t)got);
    else if (c->busy)
        finish(c, false);
    else
        drop(c); /* closed between two requests */
}

static void run(client *clients, int count)
{
    double end = load_now() + all.seconds;

    for (;;) {
        struct epoll_event events[256];
        double now = load_now(), next = now + 0.1;
        bool over = now >= end || (all.count >= 0 && all.started >= all.count), busy = false;

        for (int i = 0; i < count; i++) {
            client *c = &clients[i];
            if (!c->busy && !over && c->due <= now) {
                start(c, now);
                over = all.count >= 0 && all.started >= all.count;
            }
            busy = busy || c->busy;
            if (!c->busy && c->due < next)
                next = c->due;
        }
        if (over && !busy)
            return;
        if (over && now > end + 60)
            return; /* what has no answer by now counts below */
        int wait = (int)((next - now) * 1000 + 0.999);
        int n = epoll_wait(all.epoll, events, 256, wait < 0 ? 0 : wait);
        for (int i = 0; i < n; i++)
            ready(events[i].data.ptr, events[i].events);
    }
}

static char *read_body(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (!file || !text)
        load_fail("'%s' cannot be read", path);
    *length = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

static void make_request(const char *method, const char *path, const char *body_file)
{
    size_t body_length = 0;
    char *body = body_file ? read_body(body_file, &body_length) : NULL;
    char head[1024], type[96] = "";

    if (body)
        snprintf(type, sizeof type, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 body_length);
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s%s\r\n", method,
                     path, all.to.authorization, type, all.fresh ? "Connection: close\r\n" : "");
    all.length = (size_t)n + body_length;
    all.request = malloc(all.length + 1);
    if (!all.request || n >= (int)sizeof head)
        load_fail("the request is too long");
    memcpy(all.request, head, (size_t)n);
    if (body)
        memcpy(all.request + n, body, body_length);
    free(body);
}

static void report(double seconds, long unanswered)
{
    const char *comma = "";

    load_sort(&all.times);
    printf("{\"answers\":%ld,\"failed\":%ld,\"unanswered\":%ld,\"seconds\":%.3f,"
           "\"per_second\":%.1f,\"p50_ms\":%.2f,\"p90_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,"
           "\"status\":{",
           all.done, all.failed, unanswered, seconds, (double)all.done / seconds,
           load_part(&all.times, 0.5), load_part(&all.times, 0.9), load_part(&all.times, 0.99),
           load_part(&all.times, 1));
    for (int i = 0; i < 600; i++) {
        if (all.statuses[i]) {
            printf("%s\"%d\":%ld", comma, i, all.statuses[i]);
            comma = ",";
        }
    }
    printf("}}\n");
}

int main(int argc, char **argv)
{
    const char *to = NULL, *token_file = NULL, *method = "GET", *path = NULL, *body_file = NULL;
    long count = 1, unanswered = 0;
    struct rlimit files;

    all.seconds = 3600;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--to") == 0)
            to = value;
        else if (strcmp(name, "--token-file") == 0)
            token_file = value;
        else if (strcmp(name, "--method") == 0)
            method = value;
        else if (strcmp(name, "--path") == 0)
            path = value;
        else if (strcmp(name, "--body-file") == 0)
            body_file = value;
        else if (strcmp(name, "--clients") == 0)
            count = load_number(name, value);
        else if (strcmp(name, "--every-ms") == 0)
            all.every_s = (double)load_number(name, value) / 1000;
        else if (strcmp(name, "--new") == 0)
            all.fresh = load_number(name, value) != 0;
        else if (strcmp(name, "--count") == 0)
            all.count = load_number(name, value);
        else if (strcmp(name, "--seconds") == 0)
            all.seconds = (double)load_number(name, value);
        else
            load_fail("unknown option %s", name);
    }
    if (!to || !path || count < 1 || count > 60000)
        load_fail("--to and --path are needed, and 1 to 60000 clients");
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    load_target_read(&all.to, to, token_file);
    make_request(method, path, body_file);
    all.epoll = epoll_create1(EPOLL_CLOEXEC);
    client *clients = calloc((size_t)count, sizeof *clients);
    if (!clients)
        load_fail("memory is exhausted");
    for (long i = 0; i < count; i++)
        clients[i].fd = -1;
    double began = load_now();
    run(clients, (int)count);
    for (long i = 0; i < count; i++)
        unanswered += clients[i].busy;
    report(load_now() - began, unanswered);
    return 0;
}
