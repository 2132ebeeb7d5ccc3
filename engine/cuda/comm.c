/* Movement between the devices of a team: copies, and pieces of sums that are added where they
 * arrive.
 *
 * Between distinct GPUs the pieces go through NCCL: whatever stands at the heads of all lists is
 * sent and received in one group, so that all links work at once, and a sum's pieces are added from
 * a staging buffer afterwards.  Where one GPU is named more than once NCCL cannot be used; there
 * the runtime copies, and shards that share a GPU add straight from each other's memory.  Only the
 * bytes that the core names move: the rows where windows and bands overlap.
 *
 * Transfers have a stream of their own on every device.  It waits for everything that computes
 * before it moves anything, and everything that computes waits for it behind the transfers: the two
 * streams are then one queue.  A core that turns `beside` on says that what it enqueues until it
 * turns it off touches neither sources nor destinations of the transfers; the streams then wait for
 * each other only there, and transfers and batches overlap.
 *
 * The core waits before it makes other transfers, so their sources are finished on every stream,
 * and it waits again before it changes a source.
 *
 * A communicator takes a second to make and some hundred MiB of every device; it is kept for the
 * next team with the same devices.  It is made, and every pair of its ranks connected, before a run
 * looks at what is free: its buffers are then no part of any account, and no run finds less than it
 * was promised. */
#include "team.h"

#include "backend/util.h"

#include <pthread.h>
#include <string.h>

/* ----------------------------------------------------------------------------- communicators */

#ifdef XPE_WITH_NCCL

struct xpe_comm {
    int count;
    int *ids;          /* [count] CUDA devices, the rank is the device's place in the team */
    ncclComm_t *ranks; /* [count] */
    struct xpe_comm *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct xpe_comm *idle; /* under lock: those that no team uses */

static void comm_destroy(struct xpe_comm *c, bool abort)
{
    if (!c)
        return;
    for (int i = 0; c->ranks && i < c->count; i++)
        if (c->ranks[i])
            (void)(abort ? ncclCommAbort(c->ranks[i]) : ncclCommDestroy(c->ranks[i]));
    free(c->ranks);
    free(c->ids);
    free(c);
}

static bool same_devices(const struct xpe_comm *c, const xpe_team *team)
{
    for (int g = 0; g < team->device_count; g++)
        if (c->count != team->device_count || c->ids[g] != team->devices[g].id)
            return false;
    return true;
}

static struct xpe_comm *comm_take(const xpe_team *team)
{
    struct xpe_comm **at, *found = NULL;

    pthread_mutex_lock(&lock);
    for (at = &idle; *at; at = &(*at)->next)
        if (same_devices(*at, team)) {
            found = *at;
            *at = found->next;
            found->next = NULL;
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static xpe_status comm_create(struct xpe_comm **out, const xpe_team *team, xpe_error *err)
{
    struct xpe_comm *c = NULL;
    ncclResult_t rc;
    xpe_status st;

    *out = NULL;
    XPE_TRY(xpe_new(&c, 1, sizeof *c, err));
    c->count = team->device_count;
    XPE_TRY(xpe_new(&c->ids, (size_t)c->count, sizeof *c->ids, err));
    XPE_TRY(xpe_new(&c->ranks, (size_t)c->count, sizeof *c->ranks, err));
    for (int g = 0; g < c->count; g++)
        c->ids[g] = team->devices[g].id;
    rc = ncclCommInitAll(c->ranks, c->count, c->ids);
    if (rc != ncclSuccess) {
        (void)cudaGetLastError();
        memset(c->ranks, 0, (size_t)c->count * sizeof *c->ranks);
        st = xpe_fail(err, XPE_DEVICE_LOST, "/devices",
                      "NCCL could not connect %d devices from '%s' on: %s", c->count,
                      team->devices[0].name, ncclGetErrorString(rc));
        goto done;
    }
    *out = c;
    c = NULL;
done:
    comm_destroy(c, false);
    return st;
}

static bool distinct(const xpe_team *team)
{
    for (int g = 0; g < team->device_count; g++)
        for (int h = 0; h < g; h++)
            if (team->devices[g].id == team->devices[h].id)
                return false;
    return true;
}

static bool nccl_ok(xpe_team *team, int device, const char *call, ncclResult_t rc)
{
    if (rc == ncclSuccess)
        return true;
    (void)cudaGetLastError();
    xpe_cuda_fail(team, XPE_DEVICE_LOST, "device '%s' failed: %s: %s", team->devices[device].name,
                  call, ncclGetErrorString(rc));
    return false;
}

bool xpe_comm_good(xpe_team *team)
{
    for (int g = 0; team->comm && g < team->device_count; g++) {
        ncclResult_t state = ncclSuccess;
        if (!nccl_ok(team, g, "ncclCommGetAsyncError",
                     ncclCommGetAsyncError(team->comm->ranks[g], &state)) ||
            (state != ncclInProgress && !nccl_ok(team, g, "NCCL", state)))
            return false;
    }
    return true;
}

void xpe_comm_close(xpe_team *team)
{
    struct xpe_comm *c = team->comm;

    team->comm = NULL;
    if (c && team->failed) {
        comm_destroy(c, true); /* a rank may still wait for another one */
    } else if (c) {
        pthread_mutex_lock(&lock);
        c->next = idle;
        idle = c;
        pthread_mutex_unlock(&lock);
    }
}

void xpe_comm_forget(void)
{
    pthread_mutex_lock(&lock);
    while (idle) {
        struct xpe_comm *c = idle;
        idle = c->next;
        comm_destroy(c, false);
    }
    pthread_mutex_unlock(&lock);
}

/* Others in the way of these devices give their memory back. */
static void make_way(const xpe_team *team)
{
    struct xpe_comm **at = &idle;

    pthread_mutex_lock(&lock);
    while (*at) {
        struct xpe_comm *c = *at;
        bool shared = false;
        for (int i = 0; i < c->count; i++)
            for (int g = 0; g < team->device_count; g++)
                shared = shared || c->ids[i] == team->devices[g].id;
        if (shared) {
            *at = c->next;
            comm_destroy(c, false);
        } else {
            at = &c->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* From every rank to every other one: NCCL makes a connection, with its buffers, when the first
 * byte goes through it. */
static bool greet(xpe_team *team)
{
    bool good = true;

    for (int g = 0; g < team->device_count; g++) {
        xpe_cuda_device *d = &team->devices[g];
        size_t bytes = (size_t)team->device_count * sizeof *d->greetings;
        if (!xpe_cuda_use(team, g) ||
            !xpe_cuda_ok(team, g, "cudaMalloc", cudaMalloc((void **)&d->greetings, bytes)))
            return false;
        d->moving = true;
        if (!XPE_CUDA(team, g, cudaMemsetAsync, d->greetings, 0, bytes, d->moves))
            return false;
    }
    xpe_cuda_meet(team); /* tells who hangs, should one of them not come to it */
    if (team->failed || !nccl_ok(team, 0, "ncclGroupStart", ncclGroupStart()))
        return false;
    for (int g = 0; g < team->device_count; g++)
        for (int h = 0; h < team->device_count && good; h++)
            good = g == h ||
                   (nccl_ok(team, h, "ncclSend",
                            ncclSend(team->devices[h].greetings + h, sizeof(int64_t), ncclInt8, g,
                                     team->comm->ranks[h], team->devices[h].moves)) &&
                    nccl_ok(team, g, "ncclRecv",
                            ncclRecv(team->devices[g].greetings + h, sizeof(int64_t), ncclInt8, h,
                                     team->comm->ranks[g], team->devices[g].moves)));
    if (!nccl_ok(team, 0, "ncclGroupEnd",
                 ncclGroupEnd())) /* also after a failure: a group that was begun is ended */
        good = false;
    for (int g = 0; g < team->device_count && good; g++)
        good = xpe_cuda_finish_moves(team, g);
    return good;
}

static xpe_status connect_team(xpe_team *team, xpe_error *err)
{
    xpe_status st;

    team->comm = comm_take(team);
    if (team->comm)
        return XPE_OK;
    make_way(team);
    st = comm_create(&team->comm, team, err);
    if (st == XPE_OK && !greet(team)) {
        st = team->failure.status;
        if (err)
            *err = team->failure;
    }
    return st;
}

/* One piece; both ends are told. */
static bool send_piece(xpe_team *team, int device, char *to, const xpe_transfer *t, size_t bytes)
{
    int source = t->source;
    xpe_cuda_device *from = &team->devices[source], *d = &team->devices[device];

    return nccl_ok(team, source, "ncclSend",
                   ncclSend(t->from + t->done, bytes, ncclInt8, device, team->comm->ranks[source],
                            from->moves)) &&
           nccl_ok(team, device, "ncclRecv",
                   ncclRecv(to, bytes, ncclInt8, source, team->comm->ranks[device], d->moves));
}

static bool group_begin(xpe_team *team)
{
    return !team->comm || nccl_ok(team, 0, "ncclGroupStart", ncclGroupStart());
}

static bool group_end(xpe_team *team)
{
    return !team->comm || nccl_ok(team, 0, "ncclGroupEnd", ncclGroupEnd());
}

#else /* without NCCL the runtime copies */

static bool send_piece(xpe_team *team, int device, char *to, const xpe_transfer *t, size_t bytes)
{
    (void)team;
    (void)device;
    (void)to;
    (void)t;
    (void)bytes;
    return false;
}

static bool group_begin(xpe_team *team)
{
    return !team->failed;
}

static bool group_end(xpe_team *team)
{
    return !team->failed;
}

bool xpe_comm_good(xpe_team *team)
{
    (void)team;
    return true;
}

void xpe_comm_close(xpe_team *team)
{
    team->comm = NULL;
}

void xpe_comm_forget(void)
{
}

#endif

/* Lets distinct GPUs reach each other's memory where the machine allows it; else the runtime goes
 * through the host. */
static bool open_peers(xpe_team *team, int g)
{
    for (int h = 0; h < team->device_count; h++) {
        int id = team->devices[h].id, can = 0;
        cudaError_t rc;
        if (id == team->devices[g].id)
            continue;
        if (!XPE_CUDA(team, g, cudaDeviceCanAccessPeer, &can, team->devices[g].id, id))
            return false;
        if (!can)
            continue;
        if (!xpe_cuda_use(team, g))
            return false;
        rc = cudaDeviceEnablePeerAccess(id, 0);
        if (rc == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError();
        else if (!xpe_cuda_ok(team, g, "cudaDeviceEnablePeerAccess", rc))
            return false;
    }
    return true;
}

xpe_status xpe_comm_open(xpe_team *team, xpe_error *err)
{
    if (team->device_count < 2)
        return XPE_OK;
#ifdef XPE_WITH_NCCL
    if (distinct(team))
        return connect_team(team, err);
#endif
    for (int g = 0; g < team->device_count; g++)
        if (!open_peers(team, g)) {
            if (err)
                *err = team->failure;
            return team->failure.status;
        }
    return XPE_OK;
}

/* ---------------------------------------------------------------------------------- transfers */

void xpe_cuda_copy(xpe_team *team, xpe_buffer *to, size_t to_offset, const xpe_buffer *from,
                   size_t from_offset, size_t bytes)
{
    xpe_cuda_op op = {.kind = XPE_OP_TRANSFER, .chunks = bytes > 0};

    op.args.transfer = (xpe_transfer){
        to->data + to_offset, from->data + from_offset, from->device, bytes, 0, false,
        team->beside};
    xpe_cuda_enqueue(team, to->device, &op);
}

void xpe_cuda_sums_gather(xpe_team *team, xpe_buffer *to, int device, size_t to_offset,
                          const xpe_sums *sums, int mode, xpe_sum_array array, int64_t row,
                          int64_t rows)
{
    int64_t width = sums->desc.cols * (array == XPE_SUM_REAL ? 1 : 2);
    const int64_t *from = xpe_sum_of(sums, array) + (mode * sums->desc.rows + row) * width;
    size_t bytes = (size_t)(rows * width) * sizeof *from;
    xpe_cuda_op op = {.kind = XPE_OP_TRANSFER, .chunks = bytes > 0};

    op.args.transfer = (xpe_transfer){
        to->data + to_offset, (const char *)from, sums->device, bytes, 0, true, team->beside};
    xpe_cuda_enqueue(team, device, &op);
}

void xpe_cuda_beside(xpe_team *team, bool on)
{
    xpe_cuda_op op = {.kind = on ? XPE_OP_PART : XPE_OP_JOIN};

    if (team->beside == on || team->device_count < 2)
        return;
    team->beside = on;
    for (int g = 0; g < team->device_count; g++)
        xpe_cuda_enqueue(team, g, &op);
}

/* Where a device's transfers are made: a device alone needs no second stream. */
static cudaStream_t moves_of(const xpe_cuda_device *d)
{
    return d->moves ? d->moves : d->stream;
}

static void add(xpe_team *team, int device, char *to, const char *from, size_t bytes)
{
    k_add_args args = {(int64_t *)(void *)to, (const int64_t *)(const void *)from,
                       (int64_t)(bytes / sizeof(int64_t))};

    if (xpe_cuda_use(team, device))
        (void)xpe_cuda_ok(team, device, "kernel add",
                          xpe_cuda_k_add(&args, moves_of(&team->devices[device])));
}

/* Within one GPU, from one shard's memory to another's or its own. */
static void move_here(xpe_team *team, int device, xpe_transfer *t)
{
    if (t->add)
        add(team, device, t->to, t->from, t->bytes);
    else if (xpe_cuda_use(team, device))
        (void)XPE_CUDA(team, device, cudaMemcpyAsync, t->to, t->from, t->bytes,
                       cudaMemcpyDeviceToDevice, moves_of(&team->devices[device]));
    t->done = t->bytes;
}

/* A piece that has arrived in the staging buffer and is to be added. */
typedef struct piece {
    int device;
    char *to;
    const char *from;
    size_t bytes;
} piece;

/* Moves what the staging buffer of the device has room for; false when the transfer must wait for
 * the next round. */
static bool move_from_afar(xpe_team *team, int device, xpe_transfer *t, size_t *staged,
                           piece *pieces, int *count)
{
    xpe_cuda_device *d = &team->devices[device];
    size_t left = t->bytes - t->done, bytes = left;
    char *to = t->to + t->done;

    if (t->add) {
        bytes = left < XPE_STAGE_BYTES - *staged ? left : XPE_STAGE_BYTES - *staged;
        if (bytes == 0)
            return false;
        to = d->stage + *staged;
    }
    if (team->comm) {
        if (!send_piece(team, device, to, t, bytes))
            return false;
    } else if (!xpe_cuda_use(team, device) ||
               !XPE_CUDA(team, device, cudaMemcpyPeerAsync, to, d->id, t->from + t->done,
                         team->devices[t->source].id, bytes, d->moves)) {
        return false;
    }
    if (t->add) {
        pieces[(*count)++] = (piece){device, t->to + t->done, to, bytes};
        *staged += bytes;
    }
    t->done += bytes;
    return t->done == t->bytes;
}

#define PIECES 256 /* of a round, all devices together */

/* The transfers at the head of one list, as far as staging memory goes. */
static void move_for(xpe_team *team, int device, piece *pieces, int *count)
{
    xpe_cuda_device *d = &team->devices[device];
    size_t staged = 0;

    d->busy = d->moving = true;
    d->ends_arrived = false;
    for (; d->op_next < d->op_count && d->ops[d->op_next].kind == XPE_OP_TRANSFER &&
           !team->failed && *count < PIECES;
         d->op_next++) {
        xpe_transfer *t = &d->ops[d->op_next].args.transfer;
        if (d->id == team->devices[t->source].id)
            move_here(team, device, t);
        else if (!move_from_afar(team, device, t, &staged, pieces, count))
            break;
    }
}

/* Whether the transfers at the heads were made beside other work; they all were, or none, because
 * parting and joining stand in all lists. */
static bool are_beside(const xpe_team *team)
{
    for (int g = 0; g < team->device_count; g++) {
        const xpe_cuda_device *d = &team->devices[g];
        if (d->op_next < d->op_count && d->ops[d->op_next].kind == XPE_OP_TRANSFER)
            return d->ops[d->op_next].args.transfer.beside;
    }
    return false;
}

void xpe_comm_run(xpe_team *team)
{
    piece pieces[PIECES];
    int count = 0;
    /* devices have been ordered by the core's wait before, and will be by its wait behind */
    bool in_order = team->device_count > 1 && !are_beside(team);

    if ((in_order && !xpe_cuda_order(team, true, false)) || !group_begin(team))
        return;
    for (int g = 0; g < team->device_count; g++)
        move_for(team, g, pieces, &count);
    if (!group_end(team)) /* also after a failure: a group that was begun is ended */
        return;
    for (int i = 0; i < count && !team->failed; i++)
        add(team, pieces[i].device, pieces[i].to, pieces[i].from, pieces[i].bytes);
    if (in_order && !team->failed)
        (void)xpe_cuda_order(team, false, false);
}
