/* Emulated CUDA: what a test can ask of it and set.
 *
 * engine/emu serves the calls of the CUDA runtime, cuFFT and NCCL that engine/cuda makes, on the
 * host, so that the orchestration of the CUDA backend can be proven where there is no GPU.  It is
 * as unfriendly as the documentation allows:
 *
 *   - Enqueued work (kernels, copies, memsets, transforms, sends and receives) runs late: while an
 * event is queried, memory or a plan or a communicator is given back, or a copy from a device to
 * pageable memory is made; in an order drawn at random from those that streams and events allow.
 * Pinned memory is read when the copy runs.
 *   - Fresh memory holds NaN and has guard pages around it; freed memory stays unmapped.  Under
 * AddressSanitizer device memory is poisoned for the host and for kernels whose arguments do not
 * point at it, and so is pinned memory that a copy is on its way to.
 *   - What real devices leave undefined ends the program by abort, with one sentence on stderr:
 * memory of the wrong device, freed twice or used after free, a pageable pointer in a kernel's
 * arguments, a copy beyond its memory, a transform without its work area, a receive of another size
 * than the send, queues that wait for each other for ever.  Arguments of kernels are looked through
 * for pointers, so their members must all be initialised.
 *
 * The seed is drawn anew for each process and said on stderr.  Settings from the environment, for
 * programs that know nothing of emulation: XPE_EMU_SEED, XPE_EMU_DEVICES (8), XPE_EMU_MIB (1024, of
 * each device), XPE_EMU_LOSE (DEVICE:AFTER, as xpe_emu_lose), XPE_EMU_BRIDGES (0-2,1-3: links
 * between these numbers have rank 0 and all others 1, as xpe_emu_rank); CUDA_VISIBLE_DEVICES shows
 * as many of them as it names.
 *
 * Every call may come from any thread; one lock guards everything, and work runs on the thread that
 * made the call. */
#ifndef XPE_EMU_H
#define XPE_EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XPE_EMU_DEVICES_MAX 16

/* ------------------------------------------------------------------------------- settings */

/* Starts over: so many devices with so much memory, counters at zero, nothing set.  seed 0 draws
 * one.  Ends the program when any object of before is still there, naming it. */
void xpe_emu_begin(int devices, size_t bytes_each, uint64_t seed);
/* Drops every object as the end of a process would: after a device that was given up with all that
 * it had. */
void xpe_emu_abandon(void);
uint64_t xpe_emu_seed(void);
void xpe_emu_device_bytes(int device, size_t bytes); /* memory of one device, from now on */
void xpe_emu_peer(int device, int peer,
                  bool can); /* whether it can access the peer's memory; true at first */
void xpe_emu_rank(int device, int peer, int rank); /* of that link, 0 = the best; 0 at first */

/* --------------------------------------------------------------------------------- faults */

/* The n-th call from now (1, 2, ...) fails; of this name, or of any where name is NULL.  `onwards`:
 * and all behind it.  Kernel launches count under the kernel's name.  What gives something back
 * does so, and reports the error all the same, as an earlier, asynchronous error would be.  Not
 * counted: cudaGetLastError and the names of errors. */
void xpe_emu_fail(const char *name, uint64_t nth, bool onwards);
void xpe_emu_fail_never(void);
const char *xpe_emu_failed(void); /* the first call that was made to fail since, or NULL */

/* The device is lost once it has done this many more things of its queues: what is queued on it
 * vanishes, every call for it fails with cudaErrorLaunchFailure.  Its memory can be given back. */
void xpe_emu_lose(int device, uint64_t after);
/* Nothing that is queued on the device runs any more, until it is allowed to: a kernel that hangs.
 */
void xpe_emu_stall(int device, bool stalled);
/* The communicator of this rank reports this error (ncclResult_t) when it is asked; 0 = none. */
void xpe_emu_nccl_error(int rank, int error);
/* Memory of every device that a communicator takes: when it is made, and when its rank first sends
 * or receives. */
void xpe_emu_nccl_bytes(size_t made, size_t connected);
/* What NCCL moves runs only when somebody waits for it and nothing else can: the rest goes first as
 * far as it may. */
void xpe_emu_slow_nccl(bool on);
/* Queues that wait for each other do so for ever, as in reality, instead of ending the program. */
void xpe_emu_wait_for_ever(bool on);

/* -------------------------------------------------------------------------------- counters */

typedef struct xpe_emu_counts {
    uint64_t calls, kernels, transforms; /* transforms: single n x n fields */
    uint64_t work;                       /* what has run of the queues */
    uint64_t beside; /* kernels that ran while NCCL was next in another queue of their device */
    uint64_t bytes_up, bytes_down; /* host to device, device to host */
    uint64_t bytes_peer[XPE_EMU_DEVICES_MAX]
                       [XPE_EMU_DEVICES_MAX]; /* cudaMemcpyPeerAsync, [from][to] */
    uint64_t bytes_nccl[XPE_EMU_DEVICES_MAX][XPE_EMU_DEVICES_MAX]; /* devices, [from][to] */
    uint64_t devices;  /* a bit for each that calls were sent to */
    uint64_t pageable; /* copies whose host side was not pinned */
    size_t bytes_peak[XPE_EMU_DEVICES_MAX];
} xpe_emu_counts;

xpe_emu_counts xpe_emu_count(void);
uint64_t xpe_emu_calls(const char *name); /* since xpe_emu_begin; of a call or a kernel */

/* What has been made and not given back. */
typedef struct xpe_emu_objects {
    size_t buffers, pinned, streams, events, plans, comms;
    size_t device_bytes;
    size_t queued; /* work that has not run */
} xpe_emu_objects;

xpe_emu_objects xpe_emu_live(void);
bool xpe_emu_empty(void); /* nothing at all; says on stderr what there is otherwise */

#endif
