/* A team of devices on a test bench: what backend.h offers, with errors that end the test. */
#ifndef XPT_BENCH_H
#define XPT_BENCH_H

#include "backend/backend.h"

typedef struct xpt_bench {
    const xpe_backend *b;
    xpe_team *team;
} xpt_bench;

/* Close it with b->close(team), buffers with b->buffer_destroy. */
xpt_bench xpt_bench_open(int devices, int threads, int64_t n, int modes);
void xpt_bench_wait(xpt_bench t);
xpe_buffer *xpt_bench_make(xpt_bench t, int device, size_t bytes);
xpe_buffer *xpt_bench_make_from(xpt_bench t, int device, const void *from, size_t bytes);
/* Numbers for `modes` modes: a mode's unit for all of its sums, shares and guards (of d and of L)
 * where they are given. */
xpe_buffer *xpt_bench_numbers(xpt_bench t, int modes, const xpe_unit *unit, const double *share,
                              const double *eps, double patch_eps);
void xpt_bench_read(xpt_bench t, void *to, const xpe_buffer *from, size_t bytes);

#endif
