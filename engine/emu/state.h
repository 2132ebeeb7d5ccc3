/* What the files of the emulation share.  Everything below is guarded by the one lock that
 * xpe_emu_enter takes and xpe_emu_leave gives back; nothing here is called without it.
 *
 *   runtime.c   the gate every call passes: lock, counters, calls made to fail; devices and errors
 *   memory.c    device and pinned memory: poison, guards, whose it is
 *   queue.c     streams, events and work; what runs when
 *   launch.c    kernels
 *   fft.c nccl.c
 *   control.c   emu.h */
#ifndef XPE_EMU_STATE_H
#define XPE_EMU_STATE_H

#include "cuda_runtime.h"
#include "emu.h"

#define EMU_PRINTF(a, b) __attribute__((format(printf, a, b)))

/* ---------------------------------------------------------------------------- control.c */

typedef struct xpe_emu_device {
    size_t bytes, used;
    bool can_reach[XPE_EMU_DEVICES_MAX]; /* whether peer access can be enabled */
    bool reaches[XPE_EMU_DEVICES_MAX];   /* whether it is */
    int rank[XPE_EMU_DEVICES_MAX];       /* of the link, 0 = the best */
    bool stalled, lost, losing;
    uint64_t work_left; /* until it is lost, while losing */
    struct CUstream_st *stream0;
} xpe_emu_device;

typedef struct xpe_emu_state {
    bool begun;
    int device_count;
    xpe_emu_device devices[XPE_EMU_DEVICES_MAX];
    uint64_t seed, random;
    xpe_emu_counts counts;
    xpe_emu_objects live;
    bool wait_for_ever, slow_nccl;
    size_t nccl_made, nccl_connected; /* bytes */
    int nccl_error[XPE_EMU_DEVICES_MAX];
} xpe_emu_state;

extern xpe_emu_state xpe_emu;

void xpe_emu_ready(void); /* settings from the environment, at the first call */
uint64_t xpe_emu_random(void);
uint64_t xpe_emu_below(uint64_t bound); /* [0, bound) */
/* Ends the program: a fault of the program, not of the device. */
_Noreturn void xpe_emu_die(const char *format, ...) EMU_PRINTF(1, 2);

/* ---------------------------------------------------------------------------- runtime.c */

/* Takes the lock, counts the call; true when it has been told to fail. */
bool xpe_emu_enter(const char *call);
void xpe_emu_leave(void);
int xpe_emu_current(void);                /* device of this thread */
cudaError_t xpe_emu_note(cudaError_t rc); /* keeps it for cudaGetLastError */

/* ----------------------------------------------------------------------------- memory.c */

typedef struct xpe_emu_memory {
    char *map;   /* guard page, pages, guard page */
    size_t span; /* of map */
    char *data;
    size_t bytes;
    int device; /* -1: pinned */
    bool freed;
    uint64_t freed_at; /* order of frees */
} xpe_emu_memory;

/* The live or freed allocation that holds the address, or NULL. */
const xpe_emu_memory *xpe_emu_find(const void *address);
/* Ends the program unless [data, data + bytes) is live memory of the device. */
void xpe_emu_check(const char *call, const char *what, const void *data, size_t bytes, int device);
/* Access to memory for work that runs. */
void xpe_emu_range_open(const void *data, size_t bytes);
void xpe_emu_range_close(const void *data, size_t bytes);
void xpe_emu_pinned_hide(void *data, size_t bytes); /* until a copy to it has run */
void xpe_emu_zero(void *data, size_t bytes);
void xpe_emu_memory_forget(void); /* freed memory, too */

/* ------------------------------------------------------------------------------ queue.c */

typedef struct xpe_emu_mark xpe_emu_mark;
typedef struct xpe_emu_part xpe_emu_part; /* nccl.c: one rank's sends and receives of a group */

typedef enum xpe_emu_kind { EMU_RUN, EMU_RECORD, EMU_WAIT, EMU_NCCL } xpe_emu_kind;

typedef struct xpe_emu_item {
    struct xpe_emu_item *next;
    uint64_t number; /* in its stream, from 1 */
    xpe_emu_kind kind;
    const char *call;
    void (*run)(int device, void *args);
    xpe_emu_mark *mark;
    xpe_emu_part *part;
    _Alignas(max_align_t) char args[];
} xpe_emu_item;

struct CUstream_st {
    struct CUstream_st *next;
    int device;
    uint64_t name; /* in reports */
    bool destroyed;
    xpe_emu_item *head, **tail;
    uint64_t numbered, wanted;
};

/* The stream, which must exist; the current device's own for NULL. */
struct CUstream_st *xpe_emu_stream(const char *call, cudaStream_t stream);
/* Appends work with a copy of its arguments. */
void xpe_emu_enqueue(struct CUstream_st *stream, const char *call,
                     void (*run)(int device, void *args), const void *args, size_t bytes);
void xpe_emu_enqueue_part(struct CUstream_st *stream, xpe_emu_part *part);
/* Runs everything queued on the device before its memory or a plan is given back. */
void xpe_emu_drain(const char *call, int device);
/* Runs the stream to its present end. */
void xpe_emu_drain_stream(const char *call, struct CUstream_st *stream);
/* Runs what there is until the flag is true. */
void xpe_emu_drain_until(const char *call, const int *counter);
void xpe_emu_want(struct CUstream_st *stream, uint64_t number);
void xpe_emu_queues_forget(void); /* with what is queued */
void xpe_emu_idle_reset(void);    /* something has happened that may let others go on */

/* -------------------------------------------------------------------------------- fft.c */

void xpe_emu_plans_forget(void);

/* ------------------------------------------------------------------------------- nccl.c */

bool xpe_emu_part_ready(const xpe_emu_part *part);
bool xpe_emu_part_step(xpe_emu_part *part); /* true when it is done, and then gone */
void xpe_emu_part_drop(xpe_emu_part *part); /* of a lost device */
void xpe_emu_part_want(const xpe_emu_part *part);
void xpe_emu_comms_forget(void); /* once the queues are empty */
void xpe_emu_part_describe(const xpe_emu_part *part, char *text, size_t room);

#endif
