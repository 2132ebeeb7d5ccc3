/* What the files of the CPU backend share: the team, its devices, buffers, sums and scratch memory.
 *
 * A CPU device is a part of this machine's memory with a queue.  Enqueued operations run when the
 * team is waited for: the first of every queue, then the second, and so on, each split into parts
 * that the team's threads take.  The frames of a block belong to lanes, contiguous runs of it: a
 * lane has sums of its own over just the rows that it touches, so no two threads ever add to the
 * same place, and because the sums are exact it does not matter how many lanes there are. */
#ifndef XPE_TEAM_H
#define XPE_TEAM_H

#include "backend/backend.h"
#include "fft.h"
#include "loops.h"
#include "pool.h"

#include <stdatomic.h>

#define XPE_CACHE_LINE 64

struct xpe_buffer {
    xpe_team *team;
    int device;
    size_t bytes;
    void *data;
};

/* Rows and frames of one lane. */
typedef struct xpe_lane {
    int64_t frame_first, frame_stop; /* of the block */
    int64_t row_first, row_stop;     /* of the window */
    int64_t *a, *b, *real;           /* [modes][rows][cols][2 | 2 | 1] or NULL */
} xpe_lane;

/* The place of L: W's where the set has none of its own (xpe_sums_desc.real). */
static inline int64_t *xpe_lane_real(const xpe_lane *lane)
{
    return lane->real ? lane->real : lane->a;
}

struct xpe_sums {
    xpe_team *team;
    xpe_sums_desc desc;
    int lane_count;
    xpe_lane *lanes;
};

/* Scratch of one thread. */
typedef struct xpe_scratch {
    xpe_c32 *field[2]; /* [modes][group][row][XPE_GROUP]: far fields of d and of s */
    xpe_c32 *rows[4];  /* [XPE_GROUP][stride]: row buffers */
    float *intensity;  /* [row][XPE_GROUP] of one group */
    double seconds_transforms, seconds_busy;
    int64_t transforms;
    char padding[XPE_CACHE_LINE];
} xpe_scratch;

/* One operation: `run` is called for every part. */
typedef struct xpe_op {
    void (*run)(xpe_team *team, int device, const struct xpe_op *op, int part, int parts,
                xpe_scratch *scratch);
    int parts;
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
        struct {
            void *to;
            const void *from; /* NULL: zeros */
            size_t bytes;
        } copy;
        struct {
            xpe_sums *sums;
        } clear;
        struct {
            int64_t *to;
            const xpe_sums *sums;
            int mode;
            xpe_sum_array array;
            int64_t row, rows;
        } gather;
    } args;
} xpe_op;

typedef struct xpe_cpu_device {
    xpe_op *ops;
    int op_count, op_room;
} xpe_cpu_device;

struct xpe_team {
    int device_count, lanes; /* lanes a device */
    xpe_cpu_device *devices;
    xpe_pool *pool;
    const xpe_loops *loops;
    const xpe_fft *fft;
    int64_t n, groups, stride;
    int modes;
    xpe_scratch *scratch; /* [threads] */
    bool profile, out_of_memory;
    atomic_llong bytes_now, bytes_peak, bytes_moved;
};

static inline void *xpe_data(const xpe_buffer *buffer)
{
    return buffer ? buffer->data : NULL;
}

static inline const xpe_mode_numbers *xpe_numbers_of(const xpe_buffer *numbers)
{
    return ((const xpe_numbers *)numbers->data)->mode;
}

void *xpe_cpu_alloc(xpe_team *team,
                    size_t bytes); /* zeroed, aligned, counted; NULL when exhausted */
void xpe_cpu_free(xpe_team *team, void *data, size_t bytes);
void xpe_cpu_enqueue(xpe_team *team, int device, const xpe_op *op);
void xpe_cpu_moved(xpe_team *team, int64_t bytes);
double xpe_cpu_clock(const xpe_team *team); /* seconds; 0 unless profiled */

/* The frames of a lane (of lane_count nearly equal lanes of the block) within a batch. */
xpe_batch xpe_cpu_share(xpe_batch batch, int lane, int lane_count);
/* Lanes of a block. */
int xpe_cpu_lanes(const xpe_team *team, int64_t block);

/* One file an operation family; each enqueues. */
void xpe_cpu_amplitudes(xpe_team *team, int device, const xpe_amplitude_args *args);
void xpe_cpu_fit(xpe_team *team, int device, const xpe_fit_args *args);
void xpe_cpu_probe_fit(xpe_team *team, int device, const xpe_probe_args *args);
void xpe_cpu_deviation(xpe_team *team, int device, const xpe_deviation_args *args);
void xpe_cpu_settle(xpe_team *team, int device, const xpe_settle_args *args);
void xpe_cpu_fill(xpe_team *team, int device, const xpe_fill_args *args);
void xpe_cpu_patches(xpe_team *team, int device, const xpe_patch_args *args);
void xpe_cpu_back(xpe_team *team, int device, const xpe_back_args *args);
void xpe_cpu_search(xpe_team *team, int device, const xpe_search_args *args);
void xpe_cpu_average(xpe_team *team, int device, const xpe_average_args *args);
void xpe_cpu_unfix(xpe_team *team, int device, const xpe_unfix_args *args);
void xpe_cpu_maxima(xpe_team *team, int device, const xpe_maxima_args *args);
void xpe_cpu_numbers(xpe_team *team, int device, const xpe_numbers_args *args);
void xpe_cpu_mode_average(xpe_team *team, int device, const xpe_mode_average_args *args);
void xpe_cpu_mode_deviation(xpe_team *team, int device, const xpe_mode_deviation_args *args);
void xpe_cpu_mode_energy(xpe_team *team, int device, const xpe_mode_energy_args *args);
void xpe_cpu_mode_derive(xpe_team *team, int device, const xpe_mode_derive_args *args);

xpe_status xpe_cpu_sums_create(xpe_sums **out, xpe_team *team, int device,
                               const xpe_sums_desc *desc, xpe_error *err);
void xpe_cpu_sums_destroy(xpe_sums *sums);
void xpe_cpu_sums_clear(xpe_team *team, int device, xpe_sums *sums);
void xpe_cpu_sums_gather(xpe_team *team, xpe_buffer *to, int device, size_t to_offset,
                         const xpe_sums *sums, int mode, xpe_sum_array array, int64_t row,
                         int64_t rows);

#endif
