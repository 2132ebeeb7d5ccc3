/* What the load generators share: where the service is, one connection, time, percentiles.
 *
 * The generators are small and single-threaded so that they disturb what they measure as little as
 * they can: a thousand event streams at twenty events a second take a tenth of a core here.  They
 * print one JSON object a line; load.py starts them and judges. */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct load_target {
    struct sockaddr_storage address;
    socklen_t length;
    char authorization[256]; /* header line with its end, or "" */
} load_target;

/* `to`: http://127.0.0.1:PORT or unix:PATH; token_file may be NULL.  Ends the program when it
 * cannot be. */
void load_target_read(load_target *out, const char *to, const char *token_file);
/* A non-blocking connection that may still be under way; -1 = refused, errno tells why.  room: of
 * its receive buffer, bytes; 0 = as the system has it. */
int load_connect(const load_target *target, int room);

double load_now(void);  /* seconds, monotonic */
double load_wall(void); /* seconds since 1970 */

typedef struct load_samples {
    double *values; /* [count] */
    size_t count, room;
} load_samples;

void load_add(load_samples *samples, double value);
void load_sort(load_samples *samples);
/* Of sorted samples; 0 <= part <= 1; 0 where there are none. */
double load_part(const load_samples *samples, double part);

/* A number of the command line; ends the program when it is none. */
long load_number(const char *option, const char *text);
_Noreturn void load_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
