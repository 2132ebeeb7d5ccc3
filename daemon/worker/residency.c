/* From submit to the first line of a tiny job, on a cold and on a warm worker.
 *
 * A worker is started as the broker starts it and given the same START message twice; cold counts
 * from before the start of the process to the first iteration's event, warm from the second START.
 * What the broker and the reader do in between is the same for both and left out. */
#include "residency.h"

#include "child.h"
#include "xptychod/protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIDE 64
#define POINTS 6 /* along each axis */
#define FRAMES (POINTS * POINTS)
#define STEP_M 8e-8 /* 8 pixels of 10 nm */
#define ROUNDS_MAX 100

typedef struct trial {
    char folder[64];
    int frames, positions; /* sealed memfds */
    double cold[ROUNDS_MAX], warm[ROUNDS_MAX];
} trial;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int sealed(const void *data, size_t bytes)
{
    int fd = memfd_create("xptycho residency", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && (write(fd, data, bytes) != (ssize_t)bytes ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static xpe_status make_arrays(trial *t, xpe_error *err)
{
    uint16_t *frames = calloc(FRAMES * SIDE * SIDE, sizeof *frames);
    double positions[FRAMES * 2];

    if (!frames)
        return xpe_fail(err, XPE_NO_MEMORY, "", "no memory for %d frames", FRAMES);
    for (int j = 0; j < FRAMES; j++) {
        positions[2 * j] = (j / POINTS) * STEP_M;
        positions[2 * j + 1] = (j % POINTS) * STEP_M;
        for (int i = 0; i < SIDE * SIDE; i++) {
            int r = i / SIDE - SIDE / 2, c = i % SIDE - SIDE / 2;
            frames[j * SIDE * SIDE + i] = (uint16_t)(1000 / (1 + r * r + c * c));
        }
    }
    t->frames = sealed(frames, FRAMES * SIDE * SIDE * sizeof *frames);
    t->positions = sealed(positions, sizeof positions);
    free(frames);
    if (t->frames < 0 || t->positions < 0)
        return xpe_fail(err, XPE_NO_MEMORY, "", "cannot hold the frames: errno %d", errno);
    return XPE_OK;
}

/* As the broker sends it; docs/architecture.md, section 2. */
static json_t *start_message(const trial *t)
{
    json_t *wish =
        json_pack("{s:{s:s},s:{s:i}}", "scan", "path", "/residency.h5", "recon", "iterations", 2);
    json_t *job;

    job = wish ? xpp_job_resolved(wish) : NULL;
    json_decref(wish);
    if (!job)
        return NULL;
    return json_pack("{s:s,s:i,s:o,s:{s:s+,s:b},s:s,s:{s:s,s:f,s:f,s:f,s:[{s:s,s:s,s:[i,i,i]},"
                     "{s:s,s:s,s:[i,i]}]}}",
                     "id", "00000000000000000000000000", "attempt", 1, "job", job, "output", "path",
                     t->folder, "/r.h5", "overwrite", 1, "folder", t->folder, "scan", "format",
                     "xptycho", "wavelength_m", 1e-10, "detector_distance_m", 1.0,
                     "detector_pitch_m", 1e-10 / (SIDE * 1e-8), "arrays", "name", "frames", "type",
                     "uint16", "shape", FRAMES, SIDE, SIDE, "name", "positions", "type", "float64",
                     "shape", FRAMES, 2);
}

/* Whether an `events` message holds an iteration. */
static bool has_iteration(const json_t *body)
{
    const json_t *event;
    size_t i;

    json_array_foreach (json_object_get(body, "events"), i, event) {
        const char *type = json_string_value(json_object_get(event, "type"));
        if (type && strcmp(type, "iter") == 0)
            return true;
    }
    return false;
}

/* Sends the job and waits for its end; *first is when its first iteration was heard of. */
static xpe_status one_job(const trial *t, int socket, double *first, xpe_error *err)
{
    json_t *body = start_message(t);
    int fds[2] = {t->frames, t->positions};
    bool over = false;
    xpe_status st = XPE_OK;

    *first = 0;
    if (!body || xpp_ipc_send(socket, XPP_IPC_START, body, fds, 2) != XPP_IPC_OK)
        st = xpe_fail(err, XPE_INTERNAL, "", "cannot give the worker its job: errno %d", errno);
    json_decref(body);
    while (st == XPE_OK && !over) {
        xpp_ipc_message message;
        if (xpp_ipc_receive(socket, &message) != XPP_IPC_OK)
            return xpe_fail(err, XPE_INTERNAL, "", "the worker went away");
        if (message.type == XPP_IPC_EVENTS && *first == 0 && has_iteration(message.body))
            *first = now();
        if (message.type == XPP_IPC_DONE) {
            const char *state = json_string_value(json_object_get(message.body, "state"));
            const char *detail = json_string_value(json_object_get(message.body, "detail"));
            over = true;
            if (!state || strcmp(state, "succeeded") != 0 || *first == 0)
                st = xpe_fail(err, XPE_INTERNAL, "", "the job ended '%.40s': %.300s",
                              state ? state : "", detail ? detail : "");
        }
        xpp_ipc_message_release(&message);
    }
    return st;
}

static xpe_status one_round(trial *t, int round, xpe_error *err)
{
    double begin = now(), first;
    int socket, status;
    pid_t pid;
    xpe_status st = xpd_spawn(&pid, &socket, "xptycho-worker", err);

    if (st != XPE_OK)
        return st;
    st = one_job(t, socket, &first, err);
    t->cold[round] = first - begin;
    begin = now();
    if (st == XPE_OK)
        st = one_job(t, socket, &first, err);
    t->warm[round] = first - begin;
    close(socket); /* it leaves when its broker is gone */
    kill(pid, SIGTERM);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return st;
}

static int ascending(const void *a, const void *b)
{
    double x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static void remove_folder(const trial *t)
{
    static const char *const names[] = {"r.h5",
                                        "done.json",
                                        "preview.json",
                                        "object_phase.png",
                                        "object_phase.f32",
                                        "object_magnitude.png",
                                        "object_magnitude.f32",
                                        "probe_phase.png",
                                        "probe_phase.f32",
                                        "probe_magnitude.png",
                                        "probe_magnitude.f32"};
    char path[128];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", t->folder, names[i]);
        unlink(path);
    }
    rmdir(t->folder);
}

static void report(trial *t, int rounds, bool json)
{
    double cold, warm;

    qsort(t->cold, (size_t)rounds, sizeof *t->cold, ascending);
    qsort(t->warm, (size_t)rounds, sizeof *t->warm, ascending);
    cold = t->cold[rounds / 2];
    warm = t->warm[rounds / 2];
    if (json)
        printf("{\"rounds\":%d,\"cold_seconds\":%.6f,\"warm_seconds\":%.6f}\n", rounds, cold, warm);
    else
        printf("%d frames of %d x %d, from submit to the first line, median of %d\n"
               "  cold worker %8.2f ms (%.2f to %.2f)\n"
               "  warm worker %8.2f ms (%.2f to %.2f)\n",
               FRAMES, SIDE, SIDE, rounds, cold * 1e3, t->cold[0] * 1e3, t->cold[rounds - 1] * 1e3,
               warm * 1e3, t->warm[0] * 1e3, t->warm[rounds - 1] * 1e3);
}

xpe_status xpd_residency_bench(int rounds, bool json, xpe_error *err)
{
    trial t = {.folder = "/tmp/xptycho-residency-XXXXXX", .frames = -1, .positions = -1};
    xpe_status st = XPE_OK;

    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    if (!mkdtemp(t.folder))
        return xpe_fail(err, XPE_IO, "", "cannot make a folder '%s': errno %d", t.folder, errno);
    st = make_arrays(&t, err);
    for (int i = 0; st == XPE_OK && i < rounds; i++)
        st = one_round(&t, i, err);
    if (st == XPE_OK)
        report(&t, rounds, json);
    if (t.frames >= 0)
        close(t.frames);
    if (t.positions >= 0)
        close(t.positions);
    remove_folder(&t);
    return st;
}
