/* See load.h. */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void load_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

long load_number(const char *option, const char *text)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (!*text || *end || errno || number < 0)
        load_fail("%s '%s' is not a number", option, text);
    return number;
}

static void read_token(load_target *out, const char *path)
{
    char token[192];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(token, sizeof token, file))
        load_fail("no token in '%s'", path);
    token[strcspn(token, "\r\n")] = '\0';
    snprintf(out->authorization, sizeof out->authorization, "Authorization: Bearer %s\r\n", token);
    fclose(file);
}

void load_target_read(load_target *out, const char *to, const char *token_file)
{
    static const char http[] = "http://", local[] = "unix:";
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->address;
    struct sockaddr_un *un = (struct sockaddr_un *)&out->address;
    char host[64];
    int port;

    memset(out, 0, sizeof *out);
    if (token_file)
        read_token(out, token_file);
    if (strncmp(to, local, sizeof local - 1) == 0 &&
        strlen(to + sizeof local - 1) < sizeof un->sun_path) {
        un->sun_family = AF_UNIX;
        snprintf(un->sun_path, sizeof un->sun_path, "%s", to + sizeof local - 1);
        out->length = sizeof *un;
    } else if (strncmp(to, http, sizeof http - 1) == 0 &&
               sscanf(to + sizeof http - 1, "%63[0-9.]:%d", host, &port) == 2 &&
               inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        out->length = sizeof *v4;
    } else {
        load_fail("'%s' is neither http://ADDRESS:PORT nor unix:PATH", to);
    }
}

int load_connect(const load_target *target, int room)
{
    int one = 1;
    int fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (target->address.ss_family == AF_INET)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (room > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (connect(fd, (const struct sockaddr *)&target->address, target->length) == 0 ||
        errno == EINPROGRESS)
        return fd;
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static double clock_s(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double load_now(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

double load_wall(void)
{
    return clock_s(CLOCK_REALTIME);
}

void load_add(load_samples *samples, double value)
{
    if (samples->count == samples->room) {
        samples->room = samples->room ? samples->room * 2 : 4096;
        samples->values = realloc(samples->values, samples->room * sizeof *samples->values);
        if (!samples->values)
            load_fail("memory is exhausted");
    }
    samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void load_sort(load_samples *samples)
{
    if (samples->count > 0)
        qsort(samples->values, samples->count, sizeof *samples->values, compare);
}

double load_part(const load_samples *samples, double part)
{
    return samples->count ? samples->values[(size_t)(part * (double)(samples->count - 1) + 0.5)]
                          : 0;
}
