/* What the tests of the emulation share: programs that must end, waiting, short kernels. */
#ifndef XPT_EMULATED_H
#define XPT_EMULATED_H

#include "cuda/launch.h"
#include "emu/emu.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define SEEDS                                                                                      \
    200 /* enough for a one-in-twenty order to be missed once in 30000 runs; the seeds are fixed   \
         */

#define ok(call) assert_int_equal(call, 0)

/* Runs body in a process of its own, which must end abnormally and say `part`. */
static inline void assert_dies(void (*body)(void), const char *part)
{
    char text[65536] = "";
    size_t length = 0;
    int ends[2], status;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        (void)dup2(ends[1], 2);
        body();
        _exit(0);
    }
    (void)close(ends[1]);
    while (length < sizeof text - 1 &&
           (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || !strstr(text, part))
        fail_msg("expected an end that says '%s', got status %d and: %s", part, status, text);
}

/* Asks until the event has happened. */
static inline void await(cudaEvent_t event)
{
    cudaError_t rc;

    while ((rc = cudaEventQuery(event)) == cudaErrorNotReady)
        (void)cudaGetLastError();
    assert_int_equal(rc, cudaSuccess);
}

static inline cudaStream_t new_stream(int device)
{
    cudaStream_t stream;

    ok(cudaSetDevice(device));
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline cudaEvent_t new_event(int device)
{
    cudaEvent_t event;

    ok(cudaSetDevice(device));
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

static inline void *new_buffer(int device, size_t bytes)
{
    void *data;

    ok(cudaSetDevice(device));
    ok(cudaMalloc(&data, bytes));
    return data;
}

static inline void *new_pinned(size_t bytes)
{
    void *data;

    ok(cudaMallocHost(&data, bytes));
    return data;
}

/* Runs the stream to its end. */
static inline void finish(int device, cudaStream_t stream)
{
    cudaEvent_t event = new_event(device);

    ok(cudaEventRecord(event, stream));
    await(event);
    ok(cudaEventDestroy(event));
}

/* v = v * scale + add, for every element. */
typedef struct k_affine_args {
    double *v;
    int64_t n;
    double scale, add;
} k_affine_args;

XPE_KERNEL(k_affine, k_affine_args)
{
    XPE_BLOCK_LOOP(b, (p.n + XPE_BLOCK - 1) / XPE_BLOCK)
    {
        XPE_THREADS(t)
        {
            int64_t i = b * XPE_BLOCK + t;
            if (i < p.n)
                p.v[i] = p.v[i] * p.scale + p.add;
        }
    }
}

static inline void affine(double *v, int64_t n, double scale, double add, cudaStream_t stream)
{
    k_affine_args args = {v, n, scale, add};

    XPE_LAUNCH(k_affine, (n + XPE_BLOCK - 1) / XPE_BLOCK, stream, &args);
}

static inline int nothing_left(void **state)
{
    (void)state;
    (void)cudaGetLastError();
    xpe_emu_fail_never();
    return xpe_emu_empty() ? 0 : -1;
}

static inline int begin_three_devices(void **state)
{
    (void)state;
    xpe_emu_begin(3, 4 * MIB, 1);
    return 0;
}

#define fact(name) cmocka_unit_test_setup_teardown(name, begin_three_devices, nothing_left)

#endif
