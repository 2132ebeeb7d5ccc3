/* What the files of the CUDA backend share: the team, its devices, their queues and memory.
 *
 * One host thread serves all devices of a team; nothing it calls blocks.  An operation of the
 * backend table is appended to its device's list.  xpe_wait works the lists off, one chunk of one
 * device after the other, so that every GPU has a few chunks queued on its stream and none waits
 * for the host to be done with another one. Copies between devices are gathered from all lists and
 * made together, on streams of their own (comm.c): what moves and what computes wait for each other
 * at the transfers, or, between `beside` on and off, only where it is turned on and off.
 *
 * When the lists are empty the host waits only if it has asked for data (xpe_download), and then
 * only until that has come: what was enqueued behind it goes on.  Each stream is told to wait for
 * the others by events.  Waiting is looking at events until they are done, or until
 * xpe_cuda_patience_s have passed: a device that does not come back is then reported as lost and
 * given up, with its memory, because every call that would free it could block for ever.
 *
 * The first failure of a team is kept and everything behind it is dropped; wait reports it. */
#ifndef XPE_CUDA_TEAM_H
#define XPE_CUDA_TEAM_H

#include "backend/backend.h"
#include "kernels.h"

#define XPE_PACE 8                        /* chunks that a device has queued at most */
#define XPE_MEETINGS 8                    /* about as many as XPE_PACE pieces of work can have */
#define XPE_SLAB_BYTES ((size_t)2 << 20)  /* pinned memory for sending: two of them a device */
#define XPE_DOWN_BYTES ((size_t)1 << 20)  /* pinned memory for reading */
#define XPE_STAGE_BYTES ((size_t)4 << 20) /* what a device receives to add */
#define XPE_FIELD_PIXELS                                                                           \
    ((int64_t)1 << 22)     /* of the frames that are in work together, see xpe_cuda_frames */
#define XPE_PLAN_FRAMES 64 /* most frames of a cuFFT plan */

/* Seconds without any progress after which a device counts as lost. */
extern double xpe_cuda_patience_s;

struct xpe_buffer {
    xpe_team *team;
    int device;
    size_t bytes;
    char *data;
};

struct xpe_sums {
    xpe_team *team;
    int device;
    xpe_sums_desc desc;
    int64_t *array[3]; /* [modes][rows][cols][2 | 2 | 1] or NULL, by xpe_sum_array */
};

/* L lies in the place of W where the set has no place of its own for it (xpe_sums_desc.real). */
static inline int64_t *xpe_sum_of(const xpe_sums *sums, xpe_sum_array array)
{
    return sums->array[array == XPE_SUM_REAL && !sums->array[array] ? XPE_SUM_A : array];
}

/* A piece of memory that goes from one device's memory to another's, or is added there (int64). */
typedef struct xpe_transfer {
    char *to;
    const char *from;
    int source; /* device in the team */
    size_t bytes, done;
    bool add;
    bool beside; /* what is enqueued behind it does not wait for it */
} xpe_transfer;

typedef enum xpe_cuda_kind {
    XPE_OP_RUN,
    XPE_OP_TRANSFER,
    XPE_OP_PART, /* in all lists: what moves waits for all that computes so far */
    XPE_OP_JOIN  /* in all lists: what computes waits for all that moves so far */
} xpe_cuda_kind;

typedef struct xpe_cuda_op {
    /* Enqueues chunk `index` of `chunks` on the device's stream; of XPE_OP_RUN. */
    void (*run)(xpe_team *team, int device, const struct xpe_cuda_op *op, int64_t index);
    xpe_cuda_kind kind;
    int64_t chunks;
    union {
        xpe_amplitude_args amplitude;
        xpe_fit_args fit;
        xpe_probe_args probe;
        xpe_deviation_args deviation;
        xpe_settle_args settle;
        xpe_fill_args fill;
        xpe_patch_args patch;
        xpe_back_args back;
        xpe_search_args search;
        xpe_average_args average;
        xpe_maxima_args maxima;
        xpe_numbers_args numbers;
        xpe_unfix_args unfix;
        xpe_mode_average_args mode_average;
        xpe_mode_deviation_args mode_deviation;
        xpe_mode_energy_args mode_energy;
        xpe_mode_derive_args mode_derive;
        xpe_transfer transfer;
        struct {
            char *device;
            const char *host; /* upload */
            char *host_to;    /* download */
            size_t bytes;
        } copy;
        struct {
            void *at[3];
            size_t bytes[3];
        } zero;
    } args;
} xpe_cuda_op;

/* Data on its way to the host: in pinned memory, and where it goes when the device is done. */
typedef struct xpe_arrival {
    char *to;
    size_t at, bytes;
} xpe_arrival;

typedef struct xpe_cuda_device {
    int id;
    char name[32];
    cudaStream_t stream; /* computes */
    cudaStream_t moves;  /* transfers to and from other shards; only where there are several */
    cudaEvent_t end;     /* of what is enqueued on stream */
    cudaEvent_t moved;   /* the same of moves */
    cudaEvent_t arrived; /* the last thing that was asked for */
    bool ends_arrived;   /* nothing is enqueued on stream behind it */
    cudaEvent_t parted, joined;        /* where one stream waited for the other */
    cudaEvent_t meeting[XPE_MEETINGS]; /* where the streams were ordered, in turn */
    int64_t met;                       /* how often so far */
    cudaEvent_t pace[XPE_PACE];
    bool pacing[XPE_PACE];
    int pace_next;
    bool busy;   /* something is enqueued on stream that nobody has seen the end of */
    bool moving; /* the same of moves */

    xpe_cuda_op *ops;
    int op_count, op_room, op_next;
    int64_t chunk_next;

    char *slab[2]; /* pinned */
    size_t slab_bytes;
    cudaEvent_t slab_sent[2];
    bool slab_sending[2];
    int slab_next;
    char *raw;  /* slab_bytes of device memory: frames as recorded */
    char *down; /* pinned, XPE_DOWN_BYTES */
    size_t down_used;
    xpe_arrival *arrivals;
    int arrival_count, arrival_room;
    char *stage; /* XPE_STAGE_BYTES */
    int64_t
        *greetings; /* [devices]: the first bytes between two devices; a team that connects them */

    int64_t frames;    /* of a chunk; 0: not known yet */
    xpe_c32 *field[2]; /* [modes][frames][n][n]; the second only for an estimated probe */
    double *partial;   /* [frames][segments] */
    int64_t *partial_masked;
    xpe_c32 *twiddle; /* [n], see kernels.h; of transforms of our own */
    char *fft_area;
    size_t fft_bytes;
} xpe_cuda_device;

struct xpe_team {
    int device_count;
    xpe_cuda_device *devices;
    int64_t n;
    int modes;
    bool failed, hung, profile;
    bool beside; /* transfers that are enqueued now run beside what comes behind them */
    double
        seconds_busy; /* from the first queued chunk to the last finished one; only when profiled */
    xpe_error failure;
    struct xpe_comm *comm; /* NULL: copies by the runtime */
    int64_t bytes_now, bytes_peak, bytes_pinned, bytes_moved, transforms;
};

static inline void *xpe_data(const xpe_buffer *buffer)
{
    return buffer ? buffer->data : NULL;
}

/* ------------------------------------------------------------------------------- device.c */

/* True when rc is success; else the team has failed with "'cuda:1': cudaMalloc: out of memory". */
bool xpe_cuda_ok(xpe_team *team, int device, const char *call, cudaError_t rc);
#define XPE_CUDA(team, device, call, ...) xpe_cuda_ok(team, device, #call, call(__VA_ARGS__))
void xpe_cuda_fail(xpe_team *team, xpe_status status, const char *format, ...) XPE_PRINTF(3, 4);
/* Makes the device the one that calls go to. */
bool xpe_cuda_use(xpe_team *team, int device);
void xpe_cuda_enqueue(xpe_team *team, int device, const xpe_cuda_op *op);
/* Until everything enqueued on the device's `stream` is done, its arrivals included. */
bool xpe_cuda_finish(xpe_team *team, int device);
bool xpe_cuda_finish_moves(xpe_team *team, int device); /* the same of `moves` */
/* Lets what is enqueued come to its end whatever has failed before, because memory it uses is about
 * to be freed. */
void xpe_cuda_settle(xpe_team *team);
int xpe_cuda_number(const char *name); /* of "cuda:N", or -1 */
/* Until the event has happened; false when the team has failed. */
bool xpe_cuda_await(xpe_team *team, int device, cudaEvent_t event);
/* What moves waits for what computes so far (parting), or what computes for what moves; across: on
 * all devices, else on its own. */
bool xpe_cuda_order(xpe_team *team, bool parting, bool across);
/* Every stream that computes waits for all others; the host does not. */
void xpe_cuda_meet(xpe_team *team);
double xpe_cuda_clock(void);
xpe_status xpe_cuda_open(xpe_team **out, const xpe_device_list *devices, int64_t n, int modes,
                         xpe_error *err);
void xpe_cuda_close(xpe_team *team);
xpe_status xpe_cuda_wait(xpe_team *team, xpe_error *err);
xpe_status xpe_cuda_order_all(xpe_team *team, xpe_error *err); /* the table's `order` */
/* Gives back what outlives a team: plans, communicators.  For the end of a process, and for tests.
 */
void xpe_cuda_forget(void);

/* ------------------------------------------------------------------------------- buffer.c */

/* Zeroed device memory, counted; NULL when there is none, with the reason in err. */
xpe_status xpe_cuda_alloc(void *out, xpe_team *team, int device, size_t bytes, xpe_error *err);
void xpe_cuda_free(xpe_team *team, int device, void *data, size_t bytes);
/* Most frames of a chunk, which is what is in work together; of cuFFT's plans the number itself. */
int64_t xpe_cuda_frames(int64_t n);
/* Takes the memory that the chunks of a block need: fields 1 or 2. */
xpe_status xpe_cuda_work(xpe_team *team, int device, int64_t block, int fields, xpe_error *err);
/* Device memory beside buffers and sums: see backend.h, work_bytes. */
xpe_status xpe_cuda_work_bytes(xpe_work *out, const char *name, int64_t n, int modes,
                               int64_t frames, bool known, bool alone, int64_t room,
                               xpe_error *err);
void xpe_cuda_set_chunk(xpe_team *team, int device, int64_t frames);
size_t xpe_cuda_slab_bytes(int64_t n);
/* Segments of a frame, see kernels.h. */
static inline int64_t xpe_cuda_segments(int64_t n)
{
    return (n * n + XPE_SEGMENT - 1) / XPE_SEGMENT;
}
/* Pinned memory of slab_bytes that is free to be written; NULL when the team has failed. */
char *xpe_cuda_slab_take(xpe_team *team, int device);
void xpe_cuda_slab_sent(xpe_team *team, int device); /* what was copied from it is enqueued */
xpe_status xpe_cuda_buffer_create(xpe_buffer **out, xpe_team *team, int device, size_t bytes,
                                  xpe_error *err);
void xpe_cuda_buffer_destroy(xpe_buffer *buffer);
void xpe_cuda_upload(xpe_team *team, xpe_buffer *to, size_t offset, const void *from, size_t bytes);
void xpe_cuda_download(xpe_team *team, void *to, const xpe_buffer *from, size_t offset,
                       size_t bytes);
void xpe_cuda_zero(xpe_team *team, xpe_buffer *buffer);
void xpe_cuda_deliver(xpe_cuda_device *d); /* arrivals of a finished device to their places */

xpe_status xpe_cuda_sums_create(xpe_sums **out, xpe_team *team, int device,
                                const xpe_sums_desc *desc, xpe_error *err);
void xpe_cuda_sums_destroy(xpe_sums *sums);
void xpe_cuda_sums_clear(xpe_team *team, int device, xpe_sums *sums);

/* --------------------------------------------------------------------------------- comm.c */

/* Finds out how the devices of a team reach each other; lets NCCL take all the memory that it is
 * going to take. */
xpe_status xpe_comm_open(xpe_team *team, xpe_error *err);
void xpe_comm_close(xpe_team *team);
void xpe_comm_forget(void);
bool xpe_comm_good(xpe_team *team); /* false, with the team failed, when a communicator has */
/* Makes the transfers at the heads of all lists. */
void xpe_comm_run(xpe_team *team);
void xpe_cuda_beside(xpe_team *team, bool on);
void xpe_cuda_copy(xpe_team *team, xpe_buffer *to, size_t to_offset, const xpe_buffer *from,
                   size_t from_offset, size_t bytes);
void xpe_cuda_sums_gather(xpe_team *team, xpe_buffer *to, int device, size_t to_offset,
                          const xpe_sums *sums, int mode, xpe_sum_array array, int64_t row,
                          int64_t rows);

/* ---------------------------------------------------------------------------- operations */

void xpe_cuda_amplitudes(xpe_team *team, int device, const xpe_amplitude_args *args);
void xpe_cuda_fit(xpe_team *team, int device, const xpe_fit_args *args);
void xpe_cuda_probe_fit(xpe_team *team, int device, const xpe_probe_args *args);
void xpe_cuda_deviation(xpe_team *team, int device, const xpe_deviation_args *args);
void xpe_cuda_settle_copies(xpe_team *team, int device, const xpe_settle_args *args);
void xpe_cuda_fill(xpe_team *team, int device, const xpe_fill_args *args);
void xpe_cuda_patches(xpe_team *team, int device, const xpe_patch_args *args);
void xpe_cuda_back(xpe_team *team, int device, const xpe_back_args *args);
void xpe_cuda_search(xpe_team *team, int device, const xpe_search_args *args);
void xpe_cuda_maxima(xpe_team *team, int device, const xpe_maxima_args *args);
void xpe_cuda_numbers(xpe_team *team, int device, const xpe_numbers_args *args);
void xpe_cuda_average(xpe_team *team, int device, const xpe_average_args *args);
void xpe_cuda_unfix(xpe_team *team, int device, const xpe_unfix_args *args);
void xpe_cuda_mode_average(xpe_team *team, int device, const xpe_mode_average_args *args);
void xpe_cuda_mode_deviation(xpe_team *team, int device, const xpe_mode_deviation_args *args);
void xpe_cuda_mode_energy(xpe_team *team, int device, const xpe_mode_energy_args *args);
void xpe_cuda_mode_derive(xpe_team *team, int device, const xpe_mode_derive_args *args);

/* Launches kernel `name` with `args` on the device's stream. */
#define XPE_RUN(team, g, name, args)                                                               \
    xpe_cuda_ok(team, g, "kernel " #name, xpe_cuda_k_##name(args, (team)->devices[g].stream))

#endif
