/* Teams and their queues: opening, working off, waiting, failing.  team.h tells how. */
#include "team.h"

#include "fft.h"

#include "backend/util.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

double xpe_cuda_patience_s = 60;

/* -------------------------------------------------------------------------------- failing */

void xpe_cuda_fail(xpe_team *team, xpe_status status, const char *format, ...)
{
    char text[sizeof team->failure.text];
    va_list args;

    if (team->failed) /* the first one is the cause */
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    team->failed = true;
    (void)xpe_fail(&team->failure, status, status == XPE_NO_MEMORY ? "" : "/devices", "%s", text);
}

/* The device that the failure is about, for those who take it out of service. */
static void blame(xpe_team *team, int device)
{
    snprintf(team->failure.device, sizeof team->failure.device, "%s", team->devices[device].name);
}

bool xpe_cuda_ok(xpe_team *team, int device, const char *call, cudaError_t rc)
{
    bool first;

    if (rc == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* a later, unrelated call must not report it again */
    first = !team->failed;
    xpe_cuda_fail(team, rc == cudaErrorMemoryAllocation ? XPE_NO_DEVICE_MEMORY : XPE_DEVICE_LOST,
                  "device '%s' failed: %s: %s (%s)", team->devices[device].name, call,
                  cudaGetErrorString(rc), cudaGetErrorName(rc));
    if (first)
        blame(team, device);
    return false;
}

bool xpe_cuda_use(xpe_team *team, int device)
{
    return XPE_CUDA(team, device, cudaSetDevice, team->devices[device].id);
}

/* -------------------------------------------------------------------------------- waiting */

double xpe_cuda_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Gives the processor away while a device works.  An iteration of a small scan takes milliseconds
 * and a line of it has a wait, so for the first 20 ms nobody sleeps. */
static void pause_since(double begin)
{
    if (xpe_cuda_clock() - begin < 0.02)
        (void)sched_yield();
    else
        (void)nanosleep(&(struct timespec){0, 20000}, NULL);
}

/* Whether the event has happened; a failure counts as not. */
static bool happened(xpe_team *team, int device, cudaEvent_t event)
{
    cudaError_t rc = cudaEventQuery(event);

    if (rc == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    return xpe_cuda_ok(team, device, "cudaEventQuery", rc);
}

#define ANSWER_S 1.0

/* A device that does nothing at all any more, or -1: asked by an event on its default stream, which
 * waits for none of ours.  The team is given up, so that `end` is free. */
static int silent(xpe_team *team)
{
    double begin = xpe_cuda_clock();
    int found;

    for (int g = 0; g < team->device_count; g++)
        if (cudaSetDevice(team->devices[g].id) == cudaSuccess)
            (void)cudaEventRecord(team->devices[g].end, NULL);
    do {
        found = -1;
        for (int g = team->device_count - 1; g >= 0; g--)
            if (cudaEventQuery(team->devices[g].end) == cudaErrorNotReady)
                found = g;
    } while (found >= 0 && xpe_cuda_clock() - begin < ANSWER_S);
    (void)cudaGetLastError();
    return found;
}

/* The device that the others wait for: the one that has been to the fewest of the places where
 * streams were ordered (it is the last to come there, the others stop right behind it); else the
 * one that the host waits for. */
static int culprit(const xpe_team *team, int device)
{
    int64_t fewest = INT64_MAX, most = -1;
    int found = device;

    for (int g = 0; g < team->device_count; g++) {
        const xpe_cuda_device *d = &team->devices[g];
        int64_t been = d->met;
        while (been > 0 && been > d->met - XPE_MEETINGS &&
               cudaEventQuery(d->meeting[(been - 1) % XPE_MEETINGS]) == cudaErrorNotReady)
            been--;
        if (been < fewest) {
            fewest = been;
            found = g;
        }
        most = xpe_max64(most, been);
    }
    (void)cudaGetLastError();
    return fewest < most ? found : device;
}

static void give_up(xpe_team *team, int device)
{
    bool first = !team->failed;
    int dead = silent(team);

    device = dead >= 0 ? dead : culprit(team, device);
    xpe_cuda_fail(team, XPE_DEVICE_LOST,
                  "device '%s' has not come back for %g s; it is given up, and its process should "
                  "be replaced",
                  team->devices[device].name, xpe_cuda_patience_s);
    if (first)
        blame(team, device);
    team->hung = true;
}

bool xpe_cuda_await(xpe_team *team, int device, cudaEvent_t event)
{
    double begin = xpe_cuda_clock();

    while (!team->failed && !happened(team, device, event)) {
        if (team->failed || !xpe_comm_good(team))
            return false;
        if (xpe_cuda_clock() - begin > xpe_cuda_patience_s) {
            give_up(team, device);
            return false;
        }
        pause_since(begin);
    }
    return !team->failed;
}

static bool mark_end(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    return xpe_cuda_use(team, device) && XPE_CUDA(team, device, cudaEventRecord, d->end, d->stream);
}

bool xpe_cuda_finish(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    if (!mark_end(team, device) || !xpe_cuda_await(team, device, d->end))
        return false;
    xpe_cuda_deliver(d);
    d->busy = false;
    d->ends_arrived = true;
    return true;
}

/* Until what was asked for is there; what was enqueued behind it may still be in work. */
static bool receive(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    if (d->arrival_count && !xpe_cuda_await(team, device, d->arrived))
        return false;
    xpe_cuda_deliver(d);
    return true;
}

bool xpe_cuda_finish_moves(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    if (!xpe_cuda_use(team, device) ||
        !XPE_CUDA(team, device, cudaEventRecord, d->moved, d->moves) ||
        !xpe_cuda_await(team, device, d->moved))
        return false;
    d->moving = false;
    return true;
}

/* The streams of a device to their ends.  The call that marks the end may be the one that fails, so
 * it gets a second chance; after an error that stays nothing runs any more. */
static void settle_device(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    d->arrival_count = 0; /* nobody waits for them any more */
    for (int i = 0; i < 2 && d->moving && d->moved && !team->hung; i++) {
        team->failed = false;
        (void)xpe_cuda_finish_moves(team, device);
    }
    for (int i = 0; i < 2 && d->busy && d->end && !team->hung; i++) {
        team->failed = false;
        (void)xpe_cuda_finish(team, device);
    }
    d->busy = d->moving = false;
}

void xpe_cuda_settle(xpe_team *team)
{
    bool failed = team->failed;
    xpe_error failure = team->failure;

    if (failed)
        xpe_comm_close(team); /* a stream may hold a rank that waits for another one */
    for (int g = 0; g < team->device_count; g++) /* all, because streams read each other's memory */
        settle_device(team, g);
    team->failed = failed;
    team->failure = failure;
}

/* Every stream waits for all others; the host does not. */
void xpe_cuda_meet(xpe_team *team)
{
    for (int g = 0; g < team->device_count && team->device_count > 1; g++) {
        xpe_cuda_device *d = &team->devices[g];
        if (!xpe_cuda_use(team, g) ||
            !XPE_CUDA(team, g, cudaEventRecord, d->meeting[d->met % XPE_MEETINGS], d->stream))
            return;
        d->met++;
        d->busy = true;
    }
    for (int g = 0; g < team->device_count; g++)
        for (int h = 0; h < team->device_count; h++)
            if (g != h &&
                !(xpe_cuda_use(team, g) &&
                  XPE_CUDA(team, g, cudaStreamWaitEvent, team->devices[g].stream,
                           team->devices[h].meeting[(team->devices[h].met - 1) % XPE_MEETINGS], 0)))
                return;
}

bool xpe_cuda_order(xpe_team *team, bool parting, bool across)
{
    for (int g = 0; g < team->device_count; g++) {
        xpe_cuda_device *d = &team->devices[g];
        if (!xpe_cuda_use(team, g) ||
            !XPE_CUDA(team, g, cudaEventRecord, parting ? d->parted : d->joined,
                      parting ? d->stream : d->moves))
            return false;
        d->moving = true;
        d->busy = true;
        d->ends_arrived = false;
    }
    for (int g = 0; g < team->device_count; g++)
        for (int h = 0; h < team->device_count; h++) {
            const xpe_cuda_device *d = &team->devices[g], *other = &team->devices[h];
            if (g != h && !across)
                continue;
            if (!xpe_cuda_use(team, g) ||
                !XPE_CUDA(team, g, cudaStreamWaitEvent, parting ? d->moves : d->stream,
                          parting ? other->parted : other->joined, 0))
                return false;
        }
    return true;
}

/* ---------------------------------------------------------------------------------- queue */

void xpe_cuda_enqueue(xpe_team *team, int device, const xpe_cuda_op *op)
{
    xpe_cuda_device *d = &team->devices[device];

    if (team->failed || (op->kind <= XPE_OP_TRANSFER && op->chunks < 1))
        return;
    if (d->op_count == d->op_room) {
        int room = d->op_room ? 2 * d->op_room : 32;
        xpe_cuda_op *ops = realloc(d->ops, (size_t)room * sizeof *ops);
        if (!ops) {
            xpe_cuda_fail(team, XPE_NO_MEMORY, "host memory is exhausted while work was queued");
            return;
        }
        d->ops = ops;
        d->op_room = room;
    }
    d->ops[d->op_count++] = *op;
}

static const xpe_cuda_op *head(const xpe_cuda_device *d)
{
    return d->op_next < d->op_count ? &d->ops[d->op_next] : NULL;
}

/* Whether one more chunk may be queued: the one XPE_PACE before it must be done. */
static bool may_queue(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];

    if (d->pacing[d->pace_next] && !happened(team, device, d->pace[d->pace_next]))
        return false;
    d->pacing[d->pace_next] = false;
    return true;
}

static void queue_chunk(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];
    const xpe_cuda_op *op = head(d);

    if (!xpe_cuda_use(team, device))
        return;
    d->busy = true;
    d->ends_arrived = false;
    op->run(team, device, op, d->chunk_next);
    if (++d->chunk_next == op->chunks) {
        d->chunk_next = 0;
        d->op_next++;
    }
    if (team->failed || !XPE_CUDA(team, device, cudaEventRecord, d->pace[d->pace_next], d->stream))
        return;
    d->pacing[d->pace_next] = true;
    d->pace_next = (d->pace_next + 1) % XPE_PACE;
}

/* Queues what can be queued; `left` says whether there are lists that have not come to a transfer
 * or their end. */
static bool queue_turn(xpe_team *team, bool *left, int *late)
{
    bool moved = false;

    *left = false;
    for (int g = 0; g < team->device_count && !team->failed; g++) {
        const xpe_cuda_op *op = head(&team->devices[g]);
        if (!op || op->kind != XPE_OP_RUN)
            continue;
        *left = true;
        *late = g;
        if (may_queue(team, g) && !team->failed) {
            queue_chunk(team, g);
            moved = true;
        }
    }
    return moved;
}

static bool any(const xpe_team *team, xpe_cuda_kind kind)
{
    for (int g = 0; g < team->device_count; g++) {
        const xpe_cuda_op *op = head(&team->devices[g]);
        if (op && op->kind == kind)
            return true;
    }
    return false;
}

/* All lists have come to the same parting or joining: none goes on before the others are there.
 * Across all devices, because a piece is read on one, written on another, and added there to what a
 * third has sent. */
static void pass_together(xpe_team *team, bool parting)
{
    for (int g = 0; g < team->device_count; g++)
        team->devices[g].op_next++;
    (void)xpe_cuda_order(team, parting, true);
}

/* Works the lists off. */
static void queue_all(xpe_team *team)
{
    double progress = xpe_cuda_clock();
    bool left = true;
    int late = 0;

    while (!team->failed) {
        if (queue_turn(team, &left, &late)) {
            progress = xpe_cuda_clock();
        } else if (left) {
            if (!xpe_comm_good(team))
                return;
            if (xpe_cuda_clock() - progress > xpe_cuda_patience_s)
                give_up(team, late);
            pause_since(progress);
        } else if (any(team, XPE_OP_TRANSFER)) {
            xpe_comm_run(team);
        } else if (any(team, XPE_OP_PART)) {
            pass_together(team, true);
        } else if (any(team, XPE_OP_JOIN)) {
            pass_together(team, false);
        } else {
            return;
        }
    }
}

static void send_all(xpe_team *team)
{
    queue_all(team);
    for (int g = 0; g < team->device_count; g++) {
        team->devices[g].op_count = team->devices[g].op_next = 0;
        team->devices[g].chunk_next = 0;
    }
}

/* Whether the host, when it has what it asked for, has waited for all that computes. */
static bool host_orders(const xpe_team *team)
{
    for (int g = 0; g < team->device_count; g++)
        if (!team->devices[g].ends_arrived)
            return false;
    return true;
}

xpe_status xpe_cuda_order_all(xpe_team *team, xpe_error *err)
{
    send_all(team);
    if (!team->failed)
        xpe_cuda_meet(team);
    if (!team->failed)
        return XPE_OK;
    if (err)
        *err = team->failure;
    return team->failure.status;
}

xpe_status xpe_cuda_wait(xpe_team *team, xpe_error *err)
{
    double begin = xpe_cuda_clock();

    send_all(team);
    if (!team->failed && !team->profile && !host_orders(team))
        xpe_cuda_meet(team); /* what comes next on one device comes behind this on all */
    for (int g = 0; !team->failed && g < team->device_count; g++)
        if (!(team->profile ? xpe_cuda_finish(team, g)
                            : receive(team, g))) /* for its time everything is waited for */
            break;
    if (!team->failed)
        (void)xpe_comm_good(team); /* also what nobody has waited for */
    team->seconds_busy += team->profile ? xpe_cuda_clock() - begin : 0;
    if (!team->failed)
        return XPE_OK;
    if (err)
        *err = team->failure;
    return team->failure.status;
}

/* ----------------------------------------------------------------------------------- team */

int xpe_cuda_number(const char *name)
{
    char *end = NULL;
    long id = 0;

    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    id = strtol(name + 5, &end, 10);
    return *end || id > 4096 ? -1 : (int)id;
}

static xpe_status find_device(xpe_cuda_device *d, const char *name, xpe_error *err)
{
    int count = 0;
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess) {
        (void)cudaGetLastError();
        return xpe_fail(err, XPE_NO_DEVICE, "/devices/devices", "device '%s' cannot be used: %s",
                        name, cudaGetErrorString(rc));
    }
    d->id = xpe_cuda_number(name);
    snprintf(d->name, sizeof d->name, "%s", name);
    if (d->id < 0 || d->id >= count)
        return xpe_fail(err, XPE_NO_DEVICE, "/devices/devices",
                        "no device is called '%s'; this machine has cuda:0 to cuda:%d", name,
                        count - 1);
    return XPE_OK;
}

/* What a device needs before its first buffer. */
static bool device_init(xpe_team *team, int g)
{
    xpe_cuda_device *d = &team->devices[g];
    bool good = xpe_cuda_use(team, g) &&
                XPE_CUDA(team, g, cudaStreamCreateWithFlags, &d->stream, cudaStreamNonBlocking) &&
                XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->end, cudaEventDisableTiming) &&
                XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->arrived, cudaEventDisableTiming);

    if (good && team->device_count > 1)
        good = XPE_CUDA(team, g, cudaStreamCreateWithFlags, &d->moves, cudaStreamNonBlocking) &&
               XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->moved, cudaEventDisableTiming) &&
               XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->parted, cudaEventDisableTiming) &&
               XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->joined, cudaEventDisableTiming);
    for (int i = 0; good && i < XPE_MEETINGS; i++)
        good = XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->meeting[i], cudaEventDisableTiming);
    for (int i = 0; good && i < XPE_PACE; i++)
        good = XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->pace[i], cudaEventDisableTiming);
    d->slab_bytes = xpe_cuda_slab_bytes(team->n);
    for (int i = 0; good && i < 2; i++)
        good =
            XPE_CUDA(team, g, cudaEventCreateWithFlags, &d->slab_sent[i], cudaEventDisableTiming) &&
            xpe_cuda_ok(team, g, "cudaMallocHost",
                        cudaMallocHost((void **)&d->slab[i], d->slab_bytes));
    team->bytes_pinned += (int64_t)(2 * d->slab_bytes + XPE_DOWN_BYTES);
    return good && xpe_cuda_ok(team, g, "cudaMallocHost",
                               cudaMallocHost((void **)&d->down, XPE_DOWN_BYTES));
}

xpe_status xpe_cuda_open(xpe_team **out, const xpe_device_list *devices, int64_t n, int modes,
                         xpe_error *err)
{
    xpe_team *team = NULL;
    xpe_status st;

    *out = NULL;
    XPE_TRY(xpe_new(&team, 1, sizeof *team, err));
    team->n = n;
    team->modes = modes;
    XPE_TRY(xpe_new(&team->devices, (size_t)devices->count, sizeof *team->devices, err));
    for (int g = 0; g < devices->count; g++)
        XPE_TRY(find_device(&team->devices[g], devices->names[g], err));
    team->device_count = devices->count;
    for (int g = 0; g < devices->count; g++)
        if (!device_init(team, g)) {
            st = team->failure.status;
            if (err)
                *err = team->failure;
            goto done;
        }
    XPE_TRY(xpe_comm_open(team, err));
    xpe_cuda_fft_host_on(team->devices[0].id);
    *out = team;
    team = NULL;
done:
    xpe_cuda_close(team);
    return st;
}

static void device_release(xpe_team *team, int g)
{
    xpe_cuda_device *d = &team->devices[g];
    size_t field = (size_t)(team->modes * d->frames * team->n * team->n) * sizeof(xpe_c32);
    size_t parts = (size_t)(d->frames * xpe_cuda_segments(team->n)) * 8;

    free(d->ops);
    free(d->arrivals);
    if (team->hung) /* freeing would wait for a device that does not come back */
        return;
    (void)cudaSetDevice(d->id);
    for (int i = 0; i < 2; i++)
        xpe_cuda_free(team, g, d->field[i], field);
    xpe_cuda_free(team, g, d->partial, parts);
    xpe_cuda_free(team, g, d->partial_masked, parts);
    xpe_cuda_free(team, g, d->fft_area, d->fft_bytes);
    xpe_cuda_free(team, g, d->twiddle, (size_t)team->n * sizeof(xpe_c32));
    xpe_cuda_free(team, g, d->raw, d->slab_bytes);
    xpe_cuda_free(team, g, d->stage, XPE_STAGE_BYTES);
    if (d->greetings)
        (void)cudaFree(d->greetings);
    for (int i = 0; i < 2; i++) {
        if (d->slab[i])
            (void)cudaFreeHost(d->slab[i]);
        if (d->slab_sent[i])
            (void)cudaEventDestroy(d->slab_sent[i]);
    }
    if (d->down)
        (void)cudaFreeHost(d->down);
    for (int i = 0; i < XPE_PACE; i++)
        if (d->pace[i])
            (void)cudaEventDestroy(d->pace[i]);
    if (d->end)
        (void)cudaEventDestroy(d->end);
    if (d->arrived)
        (void)cudaEventDestroy(d->arrived);
    if (d->moved)
        (void)cudaEventDestroy(d->moved);
    if (d->parted)
        (void)cudaEventDestroy(d->parted);
    if (d->joined)
        (void)cudaEventDestroy(d->joined);
    for (int i = 0; i < XPE_MEETINGS; i++)
        if (d->meeting[i])
            (void)cudaEventDestroy(d->meeting[i]);
    if (d->moves)
        (void)cudaStreamDestroy(d->moves);
    if (d->stream)
        (void)cudaStreamDestroy(d->stream);
}

void xpe_cuda_close(xpe_team *team)
{
    if (!team)
        return;
    xpe_cuda_settle(team);
    xpe_comm_close(team);
    for (int g = 0; team->devices && g < team->device_count; g++)
        device_release(team, g);
    (void)cudaGetLastError();
    free(team->devices);
    free(team);
}

void xpe_cuda_forget(void)
{
    xpe_cuda_fft_forget();
    xpe_comm_forget();
}
