/* Streams, events, work, and what runs when.
 *
 * A stream is a list of work; only its head may run.  Recording an event appends a mark, waiting
 * for one appends a wait that lets its stream go on when the mark is reached.  Nothing runs until
 * somebody asks: cudaEventQuery runs some of what the event needs, or nothing, or also what it does
 * not need, by chance; each next thing is the head of a stream drawn from those that can go on.
 * Whoever forgot to wait therefore mostly finds nothing done, and sometimes everything.
 *
 * When nothing can run and the event has not happened for IDLE_LIMIT_S of asking, the queues wait
 * for each other for ever: the program ends with a report, unless a device is stalled or lost or
 * xpe_emu_wait_for_ever is on. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_LIMIT_S 1.0

/* A point in a stream's order. */
struct xpe_emu_mark {
    int references; /* the event's, the queued record's, each queued wait's */
    bool reached;
    struct CUstream_st *stream; /* not to be used once it is reached */
    uint64_t number;
};

struct CUevent_st {
    struct CUevent_st *next;
    int device;
    xpe_emu_mark *mark; /* of its last record, or NULL */
};

static struct CUstream_st *streams;
static struct CUevent_st *events;
static uint64_t stream_names;
static double idle_since; /* 0: not idle */

static void *need(void *memory)
{
    if (!memory)
        xpe_emu_die("host memory is exhausted");
    return memory;
}

static double clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void xpe_emu_idle_reset(void)
{
    idle_since = 0;
}

/* ------------------------------------------------------------------------------- streams */

static struct CUstream_st *stream_create(int device)
{
    struct CUstream_st *s = need(calloc(1, sizeof *s));

    s->device = device;
    s->name = ++stream_names;
    s->tail = &s->head;
    s->next = streams;
    streams = s;
    return s;
}

static void stream_free(struct CUstream_st *stream)
{
    struct CUstream_st **at = &streams;

    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
}

struct CUstream_st *xpe_emu_stream(const char *call, cudaStream_t stream)
{
    xpe_emu_device *d = &xpe_emu.devices[xpe_emu_current()];

    if (!stream) {
        if (!d->stream0)
            d->stream0 = stream_create(xpe_emu_current());
        return d->stream0;
    }
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s == stream && !s->destroyed)
            return s;
    xpe_emu_die("%s: %p is no stream, or has been destroyed", call, (void *)stream);
}

/* ---------------------------------------------------------------------------------- work */

static xpe_emu_item *append(struct CUstream_st *stream, xpe_emu_kind kind, const char *call,
                            size_t bytes)
{
    xpe_emu_item *item = need(calloc(1, sizeof *item + bytes));

    item->number = ++stream->numbered;
    item->kind = kind;
    item->call = call;
    *stream->tail = item;
    stream->tail = &item->next;
    xpe_emu.live.queued++;
    xpe_emu_idle_reset();
    return item;
}

void xpe_emu_enqueue(struct CUstream_st *stream, const char *call,
                     void (*run)(int device, void *args), const void *args, size_t bytes)
{
    xpe_emu_item *item = append(stream, EMU_RUN, call, bytes);

    item->run = run;
    memcpy(item->args, args, bytes);
}

void xpe_emu_enqueue_part(struct CUstream_st *stream, xpe_emu_part *part)
{
    append(stream, EMU_NCCL, "ncclGroupEnd", 0)->part = part;
}

static void mark_release(xpe_emu_mark *mark)
{
    if (mark && --mark->references == 0)
        free(mark);
}

static void drop_head(struct CUstream_st *stream)
{
    xpe_emu_item *item = stream->head;

    stream->head = item->next;
    if (!stream->head)
        stream->tail = &stream->head;
    mark_release(item->mark);
    free(item);
    xpe_emu.live.queued--;
}

static void pop(struct CUstream_st *stream)
{
    drop_head(stream);
    if (!stream->head && stream->destroyed)
        stream_free(stream);
}

static bool can_run(const struct CUstream_st *s)
{
    const xpe_emu_device *d = &xpe_emu.devices[s->device];

    if (!s->head || d->stalled)
        return false;
    if (d->lost)
        return true; /* to vanish */
    if (s->head->kind == EMU_WAIT)
        return s->head->mark->reached;
    return s->head->kind != EMU_NCCL || xpe_emu_part_ready(s->head->part);
}

/* Whether what is next on the stream, but for waits that are over, moves data between ranks. */
static bool nccl_is_next(const struct CUstream_st *stream)
{
    const xpe_emu_item *item = stream->head;

    while (item && item->kind == EMU_WAIT && item->mark->reached)
        item = item->next;
    return item && item->kind == EMU_NCCL;
}

static bool nccl_beside(const struct CUstream_st *stream)
{
    for (const struct CUstream_st *s = streams; s; s = s->next)
        if (s != stream && s->device == stream->device && nccl_is_next(s))
            return true;
    return false;
}

static void run_head(struct CUstream_st *s)
{
    xpe_emu_device *d = &xpe_emu.devices[s->device];
    xpe_emu_item *item = s->head;
    bool done = true;

    if (!d->lost) {
        xpe_emu.counts.work++;
        if (strncmp(item->call, "k_", 2) == 0 && nccl_beside(s))
            xpe_emu.counts.beside++;
        if (item->kind == EMU_RUN)
            item->run(s->device, item->args);
        else if (item->kind == EMU_NCCL)
            done = xpe_emu_part_step(item->part);
        if (d->losing && d->work_left > 0 && --d->work_left == 0)
            d->lost = true;
    } else if (item->kind == EMU_NCCL) {
        xpe_emu_part_drop(item->part);
    }
    if (item->kind == EMU_RECORD)
        item->mark->reached = true;
    if (done)
        pop(s);
    xpe_emu_idle_reset();
}

/* ------------------------------------------------------------------------ what runs next */

static void want_nothing(void)
{
    for (struct CUstream_st *s = streams; s; s = s->next)
        s->wanted = 0;
}

void xpe_emu_want(struct CUstream_st *stream, uint64_t number)
{
    if (stream->wanted >= number)
        return;
    stream->wanted = number;
    for (const xpe_emu_item *i = stream->head; i && i->number <= number; i = i->next)
        if (i->kind == EMU_WAIT && !i->mark->reached)
            xpe_emu_want(i->mark->stream, i->mark->number);
        else if (i->kind == EMU_NCCL)
            xpe_emu_part_want(i->part);
}

/* One of the queues that can go on, drawn. */
static struct CUstream_st *draw(bool only_wanted, bool without_nccl)
{
    struct CUstream_st *chosen = NULL;
    uint64_t found = 0;

    for (struct CUstream_st *s = streams; s; s = s->next)
        if (can_run(s) && (!only_wanted || s->head->number <= s->wanted) &&
            (!without_nccl || s->head->kind != EMU_NCCL) && xpe_emu_below(++found) == 0)
            chosen = s;
    return chosen;
}

/* Runs one thing drawn from those that can run; false when there is none. */
static bool step(bool only_wanted)
{
    struct CUstream_st *chosen = draw(only_wanted, false);

    if (chosen && chosen->head->kind == EMU_NCCL && xpe_emu.slow_nccl) {
        struct CUstream_st *other = draw(false, true);
        chosen = other || chosen->head->number > chosen->wanted ? other : chosen;
    }
    if (chosen)
        run_head(chosen);
    return chosen;
}

static void report_waiting(void)
{
    char text[160];

    for (const struct CUstream_st *s = streams; s; s = s->next) {
        if (!s->head)
            continue;
        if (s->head->kind == EMU_WAIT && !s->head->mark->reached)
            (void)snprintf(text, sizeof text, "an event of stream %llu (device %d)",
                           (unsigned long long)s->head->mark->stream->name,
                           s->head->mark->stream->device);
        else if (s->head->kind == EMU_NCCL)
            xpe_emu_part_describe(s->head->part, text, sizeof text);
        else
            (void)snprintf(text, sizeof text, "nothing; next is %s", s->head->call);
        fprintf(stderr, "cuda (emulated): stream %llu of device %d waits for %s\n",
                (unsigned long long)s->name, s->device, text);
    }
}

static bool may_hang(void)
{
    bool may = xpe_emu.wait_for_ever;

    for (int i = 0; i < xpe_emu.device_count; i++)
        may |= xpe_emu.devices[i].stalled || xpe_emu.devices[i].lost;
    return may;
}

_Noreturn static void die_waiting(const char *call)
{
    report_waiting();
    xpe_emu_die("%s waits for ever: no queue can go on", call);
}

/* ---------------------------------------------------------------------- giving things back */

static bool device_busy(int device)
{
    for (const struct CUstream_st *s = streams; s; s = s->next)
        if (s->head && s->device == device)
            return true;
    return false;
}

void xpe_emu_drain(const char *call, int device)
{
    while (device_busy(device)) {
        want_nothing();
        for (struct CUstream_st *s = streams; s; s = s->next)
            if (s->device == device && s->head)
                xpe_emu_want(s, s->numbered);
        if (!step(xpe_emu_below(2)) && !step(false))
            die_waiting(call);
    }
}

void xpe_emu_drain_stream(const char *call, struct CUstream_st *stream)
{
    uint64_t end = stream->numbered;

    while (stream->head && stream->head->number <= end) {
        want_nothing();
        xpe_emu_want(stream, end);
        if (!step(xpe_emu_below(2)) && !step(false))
            die_waiting(call);
    }
}

void xpe_emu_drain_until(const char *call, const int *counter)
{
    while (*counter > 0)
        if (!step(false))
            die_waiting(call);
}

/* ------------------------------------------------------------------------- calls: streams */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    cudaError_t rc = cudaErrorMemoryAllocation;

    *out = NULL;
    if (!xpe_emu_enter("cudaStreamCreateWithFlags")) {
        if (flags != cudaStreamNonBlocking)
            xpe_emu_die(
                "cudaStreamCreateWithFlags: flags %u; only cudaStreamNonBlocking is emulated",
                flags);
        rc = xpe_emu.devices[xpe_emu_current()].lost ? cudaErrorLaunchFailure : cudaSuccess;
        if (rc == cudaSuccess) {
            *out = stream_create(xpe_emu_current());
            xpe_emu.live.streams++;
        }
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

/* What is queued still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    bool fail = xpe_emu_enter("cudaStreamDestroy");
    struct CUstream_st *s;

    if (!stream)
        xpe_emu_die("cudaStreamDestroy: the default stream cannot be destroyed");
    s = xpe_emu_stream("cudaStreamDestroy", stream);
    s->destroyed = true;
    if (!s->head)
        stream_free(s);
    xpe_emu.live.streams--;
    xpe_emu_leave();
    return xpe_emu_note(fail ? cudaErrorUnknown : cudaSuccess);
}

static struct CUevent_st *event_of(const char *call, cudaEvent_t event)
{
    for (struct CUevent_st *e = events; e; e = e->next)
        if (e == event)
            return e;
    xpe_emu_die("%s: %p is no event, or has been destroyed", call, (void *)event);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    cudaError_t rc = cudaErrorUnknown;

    if (!xpe_emu_enter("cudaStreamWaitEvent")) {
        struct CUstream_st *s = xpe_emu_stream("cudaStreamWaitEvent", stream);
        xpe_emu_mark *mark = event_of("cudaStreamWaitEvent", event)->mark;
        rc = flags                             ? cudaErrorInvalidValue
             : xpe_emu.devices[s->device].lost ? cudaErrorLaunchFailure
                                               : cudaSuccess;
        if (rc == cudaSuccess && mark && !mark->reached) {
            append(s, EMU_WAIT, "cudaStreamWaitEvent", 0)->mark = mark;
            mark->references++;
        }
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

/* -------------------------------------------------------------------------- calls: events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    cudaError_t rc = cudaErrorMemoryAllocation;

    *out = NULL;
    if (!xpe_emu_enter("cudaEventCreateWithFlags")) {
        if (flags != cudaEventDisableTiming)
            xpe_emu_die(
                "cudaEventCreateWithFlags: flags %u; only cudaEventDisableTiming is emulated",
                flags);
        rc = xpe_emu.devices[xpe_emu_current()].lost ? cudaErrorLaunchFailure : cudaSuccess;
        if (rc == cudaSuccess) {
            *out = need(calloc(1, sizeof **out));
            (*out)->next = events;
            events = *out;
            (*out)->device = xpe_emu_current();
            xpe_emu.live.events++;
        }
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

static void event_free(struct CUevent_st *event)
{
    struct CUevent_st **at = &events;

    while (*at != event)
        at = &(*at)->next;
    *at = event->next;
    mark_release(event->mark);
    free(event);
    xpe_emu.live.events--;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    bool fail = xpe_emu_enter("cudaEventDestroy");

    event_free(event_of("cudaEventDestroy", event));
    xpe_emu_leave();
    return xpe_emu_note(fail ? cudaErrorUnknown : cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t rc = cudaErrorUnknown;

    if (!xpe_emu_enter("cudaEventRecord")) {
        struct CUstream_st *s = xpe_emu_stream("cudaEventRecord", stream);
        rc = event_of("cudaEventRecord", event)->device == s->device
                 ? cudaSuccess
                 : cudaErrorInvalidResourceHandle;
        if (xpe_emu.devices[s->device].lost)
            rc = cudaErrorLaunchFailure;
        if (rc == cudaSuccess) {
            xpe_emu_item *item = append(s, EMU_RECORD, "cudaEventRecord", 0);
            mark_release(event->mark);
            event->mark = item->mark = need(calloc(1, sizeof *item->mark));
            *item->mark = (xpe_emu_mark){.references = 2, .stream = s, .number = item->number};
        }
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

/* Runs nothing, a few things, or until the event has happened; and what it does not need never, now
 * and then, or as often as the rest. */
static void make_progress(const struct CUevent_st *event)
{
    static const uint64_t others_of_8[] = {0, 0, 1, 4};
    uint64_t others = others_of_8[xpe_emu_below(4)],
             steps = xpe_emu_below(8) ? UINT64_MAX : xpe_emu_below(8);
    bool idle = false;

    while (steps-- > 0 && !idle && !event->mark->reached) {
        want_nothing();
        xpe_emu_want(event->mark->stream, event->mark->number);
        idle = !(xpe_emu_below(8) < others ? step(false) : step(true)) && !step(true);
    }
    if (!idle || may_hang())
        return;
    if (idle_since == 0)
        idle_since = clock_now();
    else if (clock_now() - idle_since > IDLE_LIMIT_S)
        die_waiting("cudaEventQuery");
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t rc = cudaErrorUnknown;

    if (!xpe_emu_enter("cudaEventQuery")) {
        const struct CUevent_st *e = event_of("cudaEventQuery", event);
        if (e->mark && !e->mark->reached)
            make_progress(e);
        if (xpe_emu.devices[e->device].lost)
            rc = cudaErrorLaunchFailure;
        else
            rc = !e->mark || e->mark->reached ? cudaSuccess : cudaErrorNotReady;
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

void xpe_emu_queues_forget(void)
{
    while (streams) {
        struct CUstream_st *s = streams;
        while (s->head) {
            if (s->head->kind == EMU_NCCL)
                xpe_emu_part_drop(s->head->part);
            drop_head(s);
        }
        stream_free(s);
    }
    while (events)
        event_free(events);
    stream_names = 0;
}
