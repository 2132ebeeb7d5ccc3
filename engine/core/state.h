/* The state of a run: what each device holds, and what the host knows of it.
 *
 * The iteration is arranged so that one trip over the frames serves it.  After a trip (step 1 of
 * iteration t) the sums W_k = sum |d_k|^kappa w_j give z and, because step 2 adds the same z to
 * every patch that covers a pixel, also the sum of step 2 and so x-bar (see xpe_average_args).  The
 * patches themselves receive z in the next trip, as they are read for step 1 of iteration t + 1;
 * the same trip takes the data error of iteration t.  Probe copies are treated the same way: steps
 * 5 and 6 are pending until step 4 of the next iteration reads them. */
#ifndef XPE_STATE_H
#define XPE_STATE_H

#include "backend/backend.h"
#include "problem.h"

#include <stdatomic.h>

typedef struct xpe_shard {
    int64_t frames;       /* of the block */
    const int64_t *order; /* [frames] original numbers, in the plan */
    int64_t chunk;        /* frames in work together, see backend.h, work_bytes; 0 = not told */
    int64_t window_first, window_rows, band_first, band_rows;
    /* frames of the block before `above` and from `below` on have rows outside the band */
    int64_t above, below;

    /* block: y, v and copies stay where they are */
    xpe_buffer *first, *y, *v, *s, *energy, *masked, *misfit, *v_energy, *s_energy, *nonzero;
    /* window */
    xpe_buffer *image, *z;
    xpe_sums *sums, *probe_sums;
    /* band */
    xpe_buffer *fix, *v_sum, *l_sum, *count, *band_z, *row_max;
    xpe_buffer *band_image[3]; /* of the last iterations, see run->slot; two where lazy is false */
    /* of numbers.c, the same on every device: whole columns of rows, maxima of each device */
    xpe_buffer *numbers, *row_energy, *cover_energy, *maxima;
    /* modes, the same on every device */
    xpe_buffer *d, *probe, *divider, *weight, *u, *deviation, *mode_energy, *mode_max;
    /* modes, on the owner only (device 0) */
    xpe_buffer *probe_fix_r, *probe_fix_s, *u_max, *d_before;
} xpe_shard;

struct xpe_run {
    const xpe_problem *problem;
    xpe_stage stage;
    int *schedule; /* copied */
    const xpe_backend *backend;
    xpe_team *team;
    xpe_plan *plan;
    xpe_shard *shards; /* [plan->count] */
    int64_t n, num_frames, rows, cols;
    bool known, masked;

    bool lazy;           /* the host reads nothing but lines, see numbers.c */
    int slot;            /* which band_image holds x-bar of the last average */
    int shown;           /* which one that of the last finished iteration */
    bool ahead;          /* the next iteration's average is enqueued already */
    xpe_numbers numbers; /* as the host read or set them last; the devices' go on */
    xpe_bad bad_read;    /* where xpe_numbers_ask puts its answer */
    int trip_flags;      /* of the last trip: which sums wait to be averaged */
    int modes, modes_max;
    int modes_before; /* before this iteration, with d_before: what a diverged run falls back to */
    bool modes_kept;  /* d_before holds them already, because a mode was added */
    double *norms;    /* [J] ||y_j||, original order */
    double total_energy;  /* sum_j ||y_j||^2 */
    double frame_norm;    /* max_j ||y_j|| */
    int64_t count_max;    /* most patches over a pixel */
    double *frame_values; /* [J], original order */
    double *host_rows;    /* scratch for the longest per-row or per-frame array that is read */

    int iteration;            /* finished */
    bool primed;              /* step 1 of the next iteration has been summed */
    bool sums_wait;           /* ... and its sums have not been averaged yet */
    bool hold;                /* the next step is to stop at a boundary */
    bool due;                 /* a held run still has to make the trip into its next iteration */
    bool ended;               /* diverged: there is no next step */
    bool coverage_good;       /* l_sum belongs to the modes */
    bool beside;              /* transfers run beside what is enqueued, see exchange.c */
    int gathered;             /* flags of the trip whose sums are with their owners already */
    bool pending;             /* copies wait for steps 5 and 6 */
    double *positions, *gain; /* refine_positions: [J][2], [J] */
    atomic_bool cancel;
    atomic_int progress_iteration;
    _Atomic double progress_error;
};

/* state.c */
XPE_MUST_CHECK xpe_status xpe_state_create(xpe_run *run, const xpe_device_list *devices,
                                           xpe_error *err);
void xpe_state_destroy(xpe_run *run);
XPE_MUST_CHECK xpe_status xpe_state_wait(xpe_run *run, xpe_error *err);
/* Orders the devices; what was asked for need not be there. */
XPE_MUST_CHECK xpe_status xpe_state_order(xpe_run *run, xpe_error *err);
/* Batches of a shard's block, capped by the stage's batch size: false when there is none left. */
bool xpe_state_next_batch(const xpe_run *run, const xpe_shard *shard, xpe_batch *batch);
/* The same of the frames before `stop`; begins at batch->first with a batch->count of 0. */
bool xpe_state_next_batch_of(const xpe_run *run, const xpe_shard *shard, int64_t stop,
                             xpe_batch *batch);
/* Sends modes [modes][n][n] (times the checkerboard) to every device. */
XPE_MUST_CHECK xpe_status xpe_state_send_modes(xpe_run *run, const xpe_c32 *modes, xpe_error *err);
/* `member`: d, or what is kept of it. */
XPE_MUST_CHECK xpe_status xpe_state_get_modes(xpe_run *run, size_t member, xpe_c32 *modes,
                                              xpe_error *err);
/* Sends an image [rows][cols] to bands and windows. */
XPE_MUST_CHECK xpe_status xpe_state_send_image(xpe_run *run, const xpe_c32 *image, xpe_error *err);
/* Reads a per-frame array (in block order on the devices) into original order; size <= 8 bytes a
 * frame; uses host_rows. */
XPE_MUST_CHECK xpe_status xpe_state_get_frames(xpe_run *run, size_t member, void *out, size_t size,
                                               xpe_error *err);
/* The same in two parts: what is asked for is there after the next wait. */
void xpe_state_ask_frames(xpe_run *run, size_t member, size_t size);
void xpe_state_take_frames(const xpe_run *run, void *out, size_t size);
/* Reads a per-row array of the bands into one array [rows]; size bytes a row. */
XPE_MUST_CHECK xpe_status xpe_state_get_rows(xpe_run *run, size_t member, size_t plane, void *out,
                                             size_t size, xpe_error *err);
void xpe_checkerboard(xpe_c32 *field, int64_t n); /* in place; its own inverse */

/* A buffer of a shard, named by its member: XPE_AT(image). */
#define XPE_AT(member) offsetof(xpe_shard, member)
static inline xpe_buffer *xpe_shard_buffer(const xpe_shard *shard, size_t member)
{
    return *(xpe_buffer *const *)(const void *)((const char *)shard + member);
}

/* exchange.c: the two movements between devices, and the modes' way from and to their owner.  Each
 * waits before it begins; what it enqueues is in order with what its destination does next. */
XPE_MUST_CHECK xpe_status xpe_exchange_sum(xpe_run *run, xpe_sum_array array,
                                           xpe_error *err); /* into `fix` */
XPE_MUST_CHECK xpe_status xpe_exchange_windows(xpe_run *run, size_t band, size_t window,
                                               xpe_error *err);
/* Where the backend can move rows beside the batches that do not need them (docs/decisions/0005):
 * sums of a trip with step 1 leave for their owners when the frames of the rim are done, those of
 * other devices first, the device's own when the trip is over; z and x-bar (`band`) of a known
 * probe come into windows while frames are in work that do not reach beyond the band. */
bool xpe_exchange_overlaps(const xpe_run *run);
void xpe_exchange_early_clear(xpe_run *run, int flags);
void xpe_exchange_early(xpe_run *run, int flags, bool own);
XPE_MUST_CHECK xpe_status xpe_exchange_images(xpe_run *run, size_t band, xpe_error *err);
void xpe_exchange_join(xpe_run *run); /* what is enqueued from here on comes behind the transfers */
XPE_MUST_CHECK xpe_status xpe_exchange_probe_sum(xpe_run *run, xpe_sum_array array, size_t to,
                                                 int modes, xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_exchange_broadcast(xpe_run *run, size_t member, size_t bytes,
                                                 xpe_error *err);
/* The bands' rows of a column that every device has whole (`member`, bytes a row), and, where they
 * are asked for, the maxima of each device: from everyone to everyone. */
XPE_MUST_CHECK xpe_status xpe_exchange_numbers(xpe_run *run, bool maxima, size_t member,
                                               size_t row_bytes, xpe_error *err);

/* start.c */
XPE_MUST_CHECK xpe_status xpe_start_modes(xpe_run *run, xpe_c32 *modes, int *count,
                                          xpe_error *err); /* true units */
XPE_MUST_CHECK xpe_status xpe_start_object(xpe_run *run, double probe_energy, xpe_c32 *object,
                                           xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_start_counts(xpe_run *run, int32_t *counts,
                                           xpe_error *err); /* [rows][cols] */

double xpe_fresnel_number(const xpe_run *run); /* q = lambda z / dx^2; 0 = none */
/* Mean over all frames of F*(y) (modes 0) or of F*(R) / p (algorithm.md 3, step 3), true units,
 * [n][n]. */
XPE_MUST_CHECK xpe_status xpe_start_back(xpe_run *run, int modes, xpe_c64 *mean, xpe_error *err);

/* numbers.c */
xpe_numbers_model xpe_numbers_model_of(const xpe_run *run);
/* After an average, on all devices. */
XPE_MUST_CHECK xpe_status xpe_numbers_after_average(xpe_run *run, int iteration, xpe_error *err);
/* The other steps, on all devices, from what they have already. */
void xpe_numbers_update(xpe_run *run, xpe_numbers_step step, int iteration);
/* Brings run->numbers up to date. */
XPE_MUST_CHECK xpe_status xpe_numbers_get(xpe_run *run, xpe_error *err);
/* The same, and ends the stage where something is bad. */
XPE_MUST_CHECK xpe_status xpe_numbers_read(xpe_run *run, xpe_error *err);
/* Computes units and sends run->numbers to all devices. */
XPE_MUST_CHECK xpe_status xpe_numbers_send(xpe_run *run, xpe_error *err);
/* For what is asked for and comes with the next wait: what went wrong first, if anything did. */
void xpe_numbers_ask(xpe_run *run, xpe_bad *bad);
/* What went wrong ends the stage: back to the iteration before it. */
XPE_MUST_CHECK xpe_status xpe_numbers_check(xpe_run *run, xpe_bad bad, xpe_error *err);
int xpe_slot_of(const xpe_run *run, int64_t iteration); /* one of the last two finished ones */

/* pmace.c */
XPE_MUST_CHECK xpe_status xpe_pmace_trip(xpe_run *run, int flags, xpe_error *err);
/* The trip that begins the first iteration. */
XPE_MUST_CHECK xpe_status xpe_pmace_begin(xpe_run *run, xpe_error *err);
/* The trip that finishes `finished` iterations (with `flags`) and begins the next. */
XPE_MUST_CHECK xpe_status xpe_pmace_next(xpe_run *run, int finished, int flags, xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_pmace_average(xpe_run *run, int iteration, xpe_error *err);
/* ahead: the average of the next iteration is enqueued before the host waits. */
XPE_MUST_CHECK xpe_status xpe_pmace_data_error(xpe_run *run, bool ahead, double *out,
                                               xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_pmace_coverage(xpe_run *run, xpe_error *err);

/* modes.c */
void xpe_modes_derive(xpe_run *run); /* after the modes changed, on all devices */
/* Every copy becomes its mode; run->numbers are to be sent. */
XPE_MUST_CHECK xpe_status xpe_modes_fill(xpe_run *run, xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_modes_add(xpe_run *run, bool *added, xpe_error *err);
/* probe_step.c: steps 4, 5 and the deviations of 6 */
XPE_MUST_CHECK xpe_status xpe_probe_step(xpe_run *run, xpe_error *err);

/* refine.c */
XPE_MUST_CHECK xpe_status xpe_refine_step(xpe_run *run, xpe_report *report, xpe_error *err);
/* coverage[rows][cols] */
XPE_MUST_CHECK xpe_status xpe_refine_coverage(xpe_run *run, float *coverage, xpe_error *err);

static inline double xpe_two_rho(const xpe_run *run)
{
    return 2 * run->stage.relaxation;
}

#endif
