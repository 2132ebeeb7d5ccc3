/* NCCL: sends and receives between the devices of one process.
 *
 * What a thread posts between ncclGroupStart and ncclGroupEnd becomes, for every communicator and
 * stream, one piece of work: a part.  The k-th send from rank a to rank b belongs to the k-th
 * receive of b from a, whatever group they are in.  A part that reaches the head of its stream has
 * arrived; a pair is copied once both its parts have; a part is done when all of its pairs are.  A
 * send that nobody receives therefore stops its stream, as in reality. */
#include "nccl.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP_MAX 2048

typedef struct world world;

struct ncclComm {
    world *world;
    int rank, device;
    bool live, aborted, connected;
    size_t bytes; /* of its device */
    int parts;    /* queued; they may outlive the communicator */
};

typedef struct op {
    struct op *match;
    struct op *next; /* of those that wait for their match */
    xpe_emu_part *part;
    bool send, done;
    int peer;
    char *data;
    size_t bytes;
} op;

struct xpe_emu_part {
    ncclComm_t comm;
    struct CUstream_st *stream;
    uint64_t number; /* in its stream */
    bool arrived;
    int count, left;
    op ops[];
};

struct world {
    world *next;
    int ranks;
    struct ncclComm comms[XPE_EMU_DEVICES_MAX];
    op *waiting[XPE_EMU_DEVICES_MAX]
               [XPE_EMU_DEVICES_MAX]; /* [from][to], in order; all sends or all receives */
};

/* What has been posted since ncclGroupStart, by this thread. */
typedef struct posted {
    ncclComm_t comm;
    struct CUstream_st *stream;
    op op;
} posted;

static world *worlds;
static _Thread_local posted group[GROUP_MAX];
static _Thread_local int group_count, group_depth;
static _Thread_local ncclResult_t group_error;

/* ---------------------------------------------------------------------------------- pairs */

static op **waiting_of(const op *o)
{
    const struct ncclComm *c = o->part->comm;

    return o->send ? &c->world->waiting[c->rank][o->peer] : &c->world->waiting[o->peer][c->rank];
}

static void pair(op *o)
{
    op **first = waiting_of(o), *other = *first;

    if (other && other->send != o->send) {
        if (other->bytes != o->bytes)
            xpe_emu_die("rank %d sends %zu bytes to rank %d, which receives %zu",
                        o->send ? o->part->comm->rank : o->peer, o->send ? o->bytes : other->bytes,
                        o->send ? o->peer : o->part->comm->rank, o->send ? other->bytes : o->bytes);
        *first = other->next;
        other->next = NULL;
        other->match = o;
        o->match = other;
        return;
    }
    while (*first)
        first = &(*first)->next;
    *first = o;
}

static void unpair(op *o)
{
    op **at = waiting_of(o);

    if (o->match) {
        o->match->match = NULL; /* which now waits for ever */
        return;
    }
    while (*at && *at != o)
        at = &(*at)->next;
    if (*at)
        *at = o->next;
}

static bool can_copy(const op *o)
{
    return !o->done && o->match && o->match->part->arrived;
}

static void copy(op *o)
{
    op *from = o->send ? o : o->match, *to = from->match;
    int from_device = from->part->comm->device, to_device = to->part->comm->device;

    xpe_emu_check("ncclSend", "the data", from->data, from->bytes, from_device);
    xpe_emu_check("ncclRecv", "the data", to->data, to->bytes, to_device);
    xpe_emu_range_open(from->data, from->bytes);
    xpe_emu_range_open(to->data, to->bytes);
    memmove(to->data, from->data, from->bytes);
    xpe_emu_range_close(from->data, from->bytes);
    xpe_emu_range_close(to->data, to->bytes);
    xpe_emu.counts.bytes_nccl[from_device][to_device] += from->bytes;
    from->done = to->done = true;
    from->match = to->match = NULL;
    from->part->left--;
    to->part->left--;
}

/* ---------------------------------------------------------------------------------- parts */

/* With the last communicator that is used or has something queued. */
static void world_release(world *w)
{
    world **at = &worlds;

    for (int i = 0; i < w->ranks; i++)
        if (w->comms[i].live || w->comms[i].parts > 0)
            return;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free(w);
}

static void part_free(xpe_emu_part *part)
{
    for (int i = 0; i < part->count; i++)
        if (!part->ops[i].done)
            unpair(&part->ops[i]);
    part->comm->parts--;
    world_release(part->comm->world);
    free(part);
}

bool xpe_emu_part_ready(const xpe_emu_part *part)
{
    bool ready = !part->arrived || part->left == 0 || part->comm->aborted;

    for (int i = 0; !ready && i < part->count; i++)
        ready = can_copy(&part->ops[i]);
    return ready;
}

bool xpe_emu_part_step(xpe_emu_part *part)
{
    int first;

    if (part->left == 0 || part->comm->aborted) {
        part_free(part);
        return true;
    }
    if (!part->arrived) {
        part->arrived = true;
        return false;
    }
    first = (int)xpe_emu_below((uint64_t)part->count);
    for (int i = 0; i < part->count; i++) {
        op *o = &part->ops[(first + i) % part->count];
        if (can_copy(o)) {
            copy(o);
            break;
        }
    }
    return false;
}

void xpe_emu_part_drop(xpe_emu_part *part)
{
    part_free(part);
}

void xpe_emu_part_want(const xpe_emu_part *part)
{
    for (int i = 0; i < part->count; i++)
        if (part->ops[i].match)
            xpe_emu_want(part->ops[i].match->part->stream, part->ops[i].match->part->number);
}

void xpe_emu_part_describe(const xpe_emu_part *part, char *text, size_t room)
{
    for (int i = 0; i < part->count; i++) {
        const op *o = &part->ops[i];
        if (!o->done) {
            (void)snprintf(text, room, "rank %d's %s rank %d (%zu bytes), which %s",
                           part->comm->rank, o->send ? "ncclSend to" : "ncclRecv from", o->peer,
                           o->bytes,
                           o->match ? "has posted its side but is not there yet" : "never joins");
            return;
        }
    }
    (void)snprintf(text, room, "nothing");
}

/* ---------------------------------------------------------------------------------- groups */

static xpe_emu_part *part_create(const posted *p, int count)
{
    xpe_emu_part *part = calloc(1, sizeof *part + (size_t)count * sizeof(op));

    if (!part)
        xpe_emu_die("host memory is exhausted");
    part->comm = p->comm;
    part->stream = p->stream;
    p->comm->parts++;
    return part;
}

/* Everything posted on the communicator and stream of group[first], in order. */
static void post(int first)
{
    ncclComm_t comm = group[first].comm;
    struct CUstream_st *stream = group[first].stream;
    xpe_emu_part *part = part_create(&group[first], group_count - first);

    for (int i = first; i < group_count; i++)
        if (group[i].comm == comm && group[i].stream == stream) {
            op *o = &part->ops[part->count++];
            *o = group[i].op;
            o->part = part;
            group[i].comm = NULL;
        }
    part->left = part->count;
    xpe_emu_enqueue_part(stream, part);
    part->number = stream->numbered;
    for (int i = 0; i < part->count; i++)
        pair(&part->ops[i]);
}

static ncclResult_t group_end(bool fail)
{
    ncclResult_t rc = fail ? ncclInternalError : group_error;

    if (--group_depth > 0)
        return rc;
    for (int i = 0; rc == ncclSuccess && i < group_count; i++)
        if (group[i].comm)
            post(i);
    group_count = 0;
    group_error = ncclSuccess;
    return rc;
}

ncclResult_t ncclGroupStart(void)
{
    bool fail = xpe_emu_enter("ncclGroupStart");

    if (!fail)
        group_depth++;
    xpe_emu_leave();
    return fail ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    bool fail = xpe_emu_enter("ncclGroupEnd");
    ncclResult_t rc = group_depth > 0 ? group_end(fail) : ncclInvalidUsage;

    xpe_emu_leave();
    return rc;
}

static ncclComm_t comm_of(const char *call, ncclComm_t comm)
{
    if (!comm || !comm->live)
        xpe_emu_die("%s: %p is no communicator, or has been destroyed", call, (void *)comm);
    return comm;
}

static bool has_room(int device, size_t bytes)
{
    return xpe_emu.devices[device].bytes - xpe_emu.devices[device].used >= bytes;
}

/* Buffers of NCCL's own. */
static bool take(ncclComm_t comm, size_t bytes)
{
    if (!has_room(comm->device, bytes))
        return false;
    xpe_emu.devices[comm->device].used += bytes;
    comm->bytes += bytes;
    return true;
}

/* Into the group, or as a group of its own. */
static ncclResult_t post_one(const char *call, bool send, void *data, size_t bytes,
                             ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    bool fail = xpe_emu_enter(call);
    struct CUstream_st *s = xpe_emu_stream(call, stream);
    ncclResult_t rc = fail ? ncclInternalError : ncclSuccess;

    comm_of(call, comm);
    if (!fail && (type != ncclInt8 || peer < 0 || peer >= comm->world->ranks))
        rc = ncclInvalidArgument;
    if (rc == ncclSuccess && xpe_emu.devices[comm->device].lost)
        rc = ncclUnhandledCudaError;
    if (rc == ncclSuccess && !comm->connected &&
        !(comm->connected = take(comm, xpe_emu.nccl_connected)))
        rc = ncclUnhandledCudaError;
    if (rc == ncclSuccess && s->device != comm->device)
        xpe_emu_die("%s: the communicator is of device %d, the stream of device %d", call,
                    comm->device, s->device);
    if (rc == ncclSuccess && group_count == GROUP_MAX)
        xpe_emu_die("%s: more than %d in a group", call, GROUP_MAX);
    if (rc == ncclSuccess) {
        xpe_emu_check(call, "the data", data, bytes, comm->device);
        group[group_count++] =
            (posted){comm, s, {.send = send, .peer = peer, .data = data, .bytes = bytes}};
    } else if (group_depth > 0) {
        group_error = rc;
    }
    if (group_depth == 0) {
        group_depth = 1;
        group_error = rc;
        rc = group_end(false);
    }
    xpe_emu_leave();
    return rc;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return post_one("ncclSend", true, (void *)(uintptr_t)data, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return post_one("ncclRecv", false, data, count, type, peer, comm, stream);
}

/* -------------------------------------------------------------------------- communicators */

static ncclResult_t world_create(ncclComm_t *comms, int count, const int *devices)
{
    world *w;

    if (count < 1 || count > xpe_emu.device_count)
        return ncclInvalidArgument;
    for (int i = 0; i < count; i++) {
        if (devices[i] < 0 || devices[i] >= xpe_emu.device_count)
            return ncclInvalidArgument;
        if (xpe_emu.devices[devices[i]].lost || !has_room(devices[i], xpe_emu.nccl_made))
            return ncclUnhandledCudaError;
        for (int j = 0; j < i; j++)
            if (devices[i] == devices[j]) /* a device may have one rank */
                return ncclInvalidUsage;
    }
    w = calloc(1, sizeof *w);
    if (!w)
        xpe_emu_die("host memory is exhausted");
    w->ranks = count;
    w->next = worlds;
    worlds = w;
    for (int i = 0; i < count; i++) {
        w->comms[i] = (struct ncclComm){.world = w, .rank = i, .device = devices[i], .live = true};
        comms[i] = &w->comms[i];
        (void)take(comms[i], xpe_emu.nccl_made);
    }
    xpe_emu.live.comms += (size_t)count;
    return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int count, const int *devices)
{
    ncclResult_t rc = ncclSystemError;

    for (int i = 0; i < count; i++)
        comms[i] = NULL;
    if (!xpe_emu_enter("ncclCommInitAll"))
        rc = world_create(comms, count, devices);
    xpe_emu_leave();
    return rc;
}

static void comm_free(ncclComm_t comm)
{
    comm->live = false;
    xpe_emu.devices[comm->device].used -= comm->bytes;
    comm->bytes = 0;
    xpe_emu.live.comms--;
    world_release(comm->world);
}

/* Waits for what is queued on it. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    bool fail = xpe_emu_enter("ncclCommDestroy");

    comm_of("ncclCommDestroy", comm);
    xpe_emu_drain_until("ncclCommDestroy", &comm->parts);
    comm_free(comm);
    xpe_emu_leave();
    return fail ? ncclInternalError : ncclSuccess;
}

/* What is queued on it will end without having been done; other ranks keep waiting until they
 * abort, too. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    bool fail = xpe_emu_enter("ncclCommAbort");

    comm_of("ncclCommAbort", comm);
    comm->aborted = true;
    xpe_emu_idle_reset();
    comm_free(comm);
    xpe_emu_leave();
    return fail ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    bool fail = xpe_emu_enter("ncclCommGetAsyncError");

    comm_of("ncclCommGetAsyncError", comm);
    *out = (ncclResult_t)xpe_emu.nccl_error[comm->rank];
    if (*out == ncclSuccess && xpe_emu.devices[comm->device].lost)
        *out = ncclUnhandledCudaError;
    xpe_emu_leave();
    return fail ? ncclInternalError : ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc)
{
    switch (rc) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInternalError:
        return "internal error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    }
    return "unknown result code";
}

void xpe_emu_comms_forget(void)
{
    while (worlds) {
        world *w = worlds;
        worlds = w->next;
        free(w);
    }
}
