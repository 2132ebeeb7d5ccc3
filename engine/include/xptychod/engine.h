/* The engine's one outward header: a ptychographic scan in, an object and a probe out.
 *
 * What is computed is docs/algorithm.md; section numbers below refer to it.  The engine knows no
 * HTTP, no JSON, no files, no sockets and no environment; it never prints and never exits.
 *
 * Shapes are given slowest to fastest.  Lengths are metres, positions (row, column) of a patch
 * centre.  Arrays are dense.  Complex numbers are pairs of float32, as in HDF5, NumPy and FFTW.
 *
 * Threads: an object is used by one thread at a time.  xpe_run_cancel and xpe_run_progress are the
 * exceptions: any thread may call them while the run exists.
 *
 * Ownership: `T **out` belongs to the caller and is released with the destroy call of its type,
 * which accepts NULL.  What a description points at is borrowed until the object made from it is
 * destroyed, unless it says "copied". */
#ifndef XPTYCHOD_ENGINE_H
#define XPTYCHOD_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define XPE_MUST_CHECK __attribute__((warn_unused_result))
#define XPE_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define XPE_MUST_CHECK
#define XPE_PRINTF(a, b)
#endif

/* ---------------------------------------------------------------------------------- errors */

/* One code for each reaction of the caller. */
#define XPE_STATUS_LIST(X)                                                                         \
    X(OK, "success")                                                                               \
    X(INVALID, "the input is refused; the text says which number is wrong and what would work")    \
    X(NO_MEMORY, "host memory is exhausted")                                                       \
    X(NO_DEVICE_MEMORY, "the run does not fit the memory of a device")                             \
    X(NO_DEVICE, "a device does not exist or its backend is not built in")                         \
    X(DEVICE_LOST, "a device failed; its process should be replaced")                              \
    X(DIVERGED, "the data error is no longer a finite number")                                     \
    X(CANCELLED, "stopped on request")                                                             \
    X(BUSY, "a file is being written by another program; it may do later")                         \
    X(CHANGED, "a file changed while it was read")                                                 \
    X(IO, "a file could not be read or written")                                                   \
    X(INTERNAL, "a defect of this program")

typedef enum xpe_status {
#define X(name, text) XPE_##name,
    XPE_STATUS_LIST(X)
#undef X
} xpe_status;

/* The text is written once, where the numbers are known; `pointer` is the JSON pointer of the job
 * member at fault ("" where no single member is).  The memory figures are filled with
 * XPE_NO_DEVICE_MEMORY only. */
typedef struct xpe_error {
    xpe_status status;
    char pointer[96];
    char text[416];
    char device[32];
    int64_t bytes_needed, bytes_free; /* shortfall = needed - free */
} xpe_error;

const char *xpe_status_name(xpe_status status); /* "invalid", "no-device-memory", ... */
/* Fills err (may be NULL) and returns status. */
xpe_status xpe_fail(xpe_error *err, xpe_status status, const char *pointer, const char *format, ...)
    XPE_PRINTF(4, 5);

/* ------------------------------------------------------------------------------------ scan */

typedef struct xpe_c32 {
    float re, im;
} xpe_c32;

/* Stored type of a frame's pixels. */
#define XPE_TYPE_LIST(X)                                                                           \
    X(U8, uint8, 1)                                                                                \
    X(I8, int8, 1)                                                                                 \
    X(U16, uint16, 2) X(I16, int16, 2) X(U32, uint32, 4) X(I32, int32, 4) X(U64, uint64, 8)        \
        X(I64, int64, 8) X(F32, float32, 4) X(F64, float64, 8)
typedef enum xpe_type {
#define X(name, text, bytes) XPE_##name,
    XPE_TYPE_LIST(X)
#undef X
} xpe_type;
size_t xpe_type_size(xpe_type type);
const char *xpe_type_name(xpe_type type); /* "uint16", NumPy's names */
bool xpe_type_find(xpe_type *out, const char *name);

/* A scan as it was recorded.  Counts become amplitudes sqrt(max(counts, 0)) inside the engine.
 * Masked there (section 3, "Masked pixels"): NaN and infinities; in integer data negative values
 * and the largest value of the type; counts >= saturation; pixels whose mask is not 0. */
typedef struct xpe_scan {
    int64_t num_frames; /* J >= 1 */
    int64_t n;          /* frame side in pixels, even */
    const void *frames; /* [J][n][n], zero frequency at [n/2][n/2] */
    xpe_type type;
    const uint8_t *mask;     /* [mask_frames][n][n], not 0 = masked; NULL = nothing masked */
    int64_t mask_frames;     /* 0, 1 (the same for every frame) or J */
    double saturation;       /* counts; 0 = none stated */
    const double *positions; /* [J][2] */
    double wavelength_m, detector_distance_m, detector_pitch_m;
} xpe_scan;

/* ------------------------------------------------------------------------------------ grid */

/* The object grid; origin = centre of its first pixel (section 1). */
typedef struct xpe_grid {
    int64_t rows, cols;
    double origin_m[2];
    double pitch_m;
} xpe_grid;

/* What a job says about the grid; NULL members are derived from the positions. */
typedef struct xpe_grid_wish {
    const int64_t *shape;   /* [2] rows, cols, or NULL */
    const double *origin_m; /* [2] or NULL */
} xpe_grid_wish;

/* Wavelength of a photon in metres = this / its energy in keV (section 1). */
#define XPE_HC_KEV_M 1.2398419843320026e-9
/* Object pixel pitch dx = lambda D / (n p), metres. */
double xpe_pixel_pitch(double wavelength_m, double distance_m, double detector_pitch_m, int64_t n);

/* Derives the grid and the first pixel of every patch, first[J][2] (may be NULL).  Uses n,
 * num_frames, positions and geometry of the scan only; frames are not looked at.  Refuses: odd n,
 * geometry or positions that are not finite or not positive, a patch outside a stated grid, a grid
 * beyond 2^31 pixels a side or 2^40 in all. */
XPE_MUST_CHECK xpe_status xpe_grid_derive(xpe_grid *grid, int32_t *first, const xpe_scan *scan,
                                          const xpe_grid_wish *wish, xpe_error *err);

/* --------------------------------------------------------------------------------- devices */

#define XPE_PEERS_MAX 32 /* numbers of devices that `reach` knows */
#define XPE_REACH_MAX 8

/* One device of this process, or the reason why there is none of that kind. */
typedef struct xpe_device_info {
    char name[32];    /* "cpu", "cuda:0" */
    char model[96];   /* "AMD EPYC, 2 threads" */
    char absent[160]; /* "" when usable, else why not: "built without CUDA" */
    int64_t bytes_total, bytes_free;
    int threads; /* CPU threads this process may use; 0 for a GPU */
    /* [number of another GPU, N of "cuda:N"]: how it accesses that one's memory.  1 = over the best
     * kind of link that this machine has, 2 = the next best, and so on, XPE_REACH_MAX = that or
     * worse; 0 = not directly, or nobody knows.  0 until xpe_devices_links. */
    uint8_t reach[XPE_PEERS_MAX];
} xpe_device_info;

/* Fills at most max entries, returns how many there are.  Always has "cpu" (or its absence). */
size_t xpe_devices_list(xpe_device_info *out, size_t max);
/* The named ones, in this order, without a touch of the others: a context costs a GPU memory. */
void xpe_devices_look(xpe_device_info *out, const char *const *names, size_t count);
/* Brings bytes_total and bytes_free of those that can be used up to date; any thread, also while a
 * run exists. */
void xpe_devices_memory(xpe_device_info *devices, size_t count);
/* Fills in `reach` of those that can be used, without a touch of the others. */
void xpe_devices_links(xpe_device_info *devices, size_t count);

/* Where a run goes: the same name may stand several times for "cpu". */
typedef struct xpe_device_list {
    const char *const *names;
    int count;       /* N_g >= 1 */
    int cpu_threads; /* of all CPU devices together; 0 = every core this process may use */
} xpe_device_list;

/* ------------------------------------------------------------------------- stage and problem */

typedef enum xpe_algorithm { XPE_PMACE, XPE_REFINE_POSITIONS } xpe_algorithm;

/* One stage of a job; names, ranges and defaults are those of protocol/openapi.json. */
typedef struct xpe_stage {
    xpe_algorithm algorithm;
    int iterations;               /* >= 1; counted from 1 */
    double object_data_fit;       /* alpha_1, 0..1 */
    double probe_data_fit;        /* alpha_2, 0..1 */
    double probe_weight_exponent; /* kappa, 1..2 */
    double relaxation;            /* rho, 0..1 */
    const int *mode_schedule;     /* [schedule_count] iterations that add a mode; no duplicates */
    int schedule_count;
    double mode_energy_fraction; /* f */
    bool orthogonalize_modes;
    double fresnel_distance_m;    /* z; 0 = none */
    double fresnel_radius_pixels; /* r; 0 = none; at most one of the two is not 0 */
    int64_t batch_size;           /* cap, frames per device; 0 = no cap; never changes the result */
    int report_every;             /* iterations between data errors, >= 1 */
    int max_shift;                /* refine_positions: pixels, >= 1 */
} xpe_stage;
xpe_stage xpe_stage_default(void);

/* The input of a run.  Copied: nothing; all arrays are borrowed until the problem is destroyed. */
typedef struct xpe_problem_desc {
    xpe_scan scan;
    xpe_grid_wish grid;
    int probe_modes;            /* K, final number of modes, >= 1 */
    const xpe_c32 *probe;       /* [probe_count][n][n] known probe, or NULL: estimated */
    int probe_count;            /* must be probe_modes */
    const xpe_c32 *init_probe;  /* [init_probe_count][n][n] start of an estimated probe, or NULL */
    int init_probe_count;       /* <= probe_modes */
    const xpe_c32 *init_object; /* [rows][cols] or NULL */
    int64_t init_object_shape[2];
    /* Called by xpe_run_create (each one) when it has read the frames and the mask and before it
     * takes most of its memory: the caller may give their pages back to the system until the next
     * run is created.  NULL = no call. */
    void (*frames_read)(void *arg);
    void *frames_read_arg;
} xpe_problem_desc;

typedef struct xpe_problem xpe_problem;

/* Validates the whole description; every refusal of section 4 that does not depend on devices. */
XPE_MUST_CHECK xpe_status xpe_problem_create(xpe_problem **out, const xpe_problem_desc *desc,
                                             xpe_error *err);
void xpe_problem_destroy(xpe_problem *problem);
const xpe_grid *xpe_problem_grid(const xpe_problem *problem);
const int32_t *xpe_problem_first(const xpe_problem *problem); /* [J][2] */

/* ------------------------------------------------------------------------------------- plan */

/* The division of a run over devices (section 4) and its bytes; pure arithmetic, no device is
 * touched, so a broker can use it for admission. */
typedef struct xpe_plan_shard {
    int64_t frames;                    /* in the block */
    int64_t window_first, window_stop; /* object rows the block touches */
    int64_t band_first, band_stop;     /* object rows owned */
    int64_t bytes;                     /* device memory needed, for the final number of modes */
} xpe_plan_shard;

typedef struct xpe_plan {
    int count;              /* N_g */
    xpe_plan_shard *shards; /* [count] */
    int64_t *order;         /* [J] original frame numbers, block after block */
} xpe_plan;

/* first[J][2] as from xpe_grid_derive.  Refuses more devices than positions and more devices than
 * object rows. */
XPE_MUST_CHECK xpe_status xpe_plan_build(xpe_plan **out, const int32_t *first, int64_t num_frames,
                                         int64_t n, const xpe_grid *grid, int probe_modes,
                                         bool probe_known, int count, xpe_error *err);
void xpe_plan_destroy(xpe_plan *plan);
/* Refuses with XPE_NO_DEVICE_MEMORY when a shard's bytes exceed what its device has free.
 * bytes_free[count]; names[count].  Shards of the same device name share its free bytes. */
XPE_MUST_CHECK xpe_status xpe_plan_admit(const xpe_plan *plan, const char *const *names,
                                         const int64_t *bytes_free, xpe_error *err);

/* -------------------------------------------------------------------------------------- run */

typedef struct xpe_report {
    int iteration;               /* of this stage, from 1 */
    double data_error;           /* NaN where report_every skips it */
    int modes;                   /* modes now */
    double seconds;              /* of this iteration, see xpe_run_step */
    bool mode_added, mode_empty; /* a scheduled mode was added / its residual was zero everywhere */
    bool last;                   /* this was the stage's last iteration */
} xpe_report;

typedef struct xpe_progress {
    int iteration, iterations;
    double data_error;
} xpe_progress;

typedef struct xpe_run xpe_run;

/* Takes all memory of the run.  The problem must outlive it. */
XPE_MUST_CHECK xpe_status xpe_run_create(xpe_run **out, const xpe_problem *problem,
                                         const xpe_stage *stage, const xpe_device_list *devices,
                                         xpe_error *err);
void xpe_run_destroy(xpe_run *run);

/* One iteration.  XPE_CANCELLED after xpe_run_cancel, XPE_DIVERGED when the data error or anything
 * it rests on is not finite; the arrays below then still give the last good iteration (the start if
 * none was).
 *
 * On GPUs a step without a data error returns when its work is queued: its seconds are the host's,
 * the next reported step has the devices' in its own, and that one may say XPE_DIVERGED of an
 * iteration before it, to which xpe_run_progress then goes back.
 *
 * A refine_positions stage is a single step: its data_error is that of the refined positions. */
XPE_MUST_CHECK xpe_status xpe_run_step(xpe_run *run, xpe_report *report, xpe_error *err);

/* Copies of the state after the last step (before the first: the start). */
XPE_MUST_CHECK xpe_status xpe_run_object(xpe_run *run, xpe_c32 *object,
                                         xpe_error *err); /* [rows][cols] */
XPE_MUST_CHECK xpe_status xpe_run_probe(xpe_run *run, xpe_c32 *probe,
                                        xpe_error *err); /* [modes][n][n] */
XPE_MUST_CHECK xpe_status xpe_run_coverage(xpe_run *run, float *coverage,
                                           xpe_error *err); /* [rows][cols] */
/* refine_positions: positions_m[J][2], gain[J] (either may be NULL). */
XPE_MUST_CHECK xpe_status xpe_run_positions(xpe_run *run, double *positions_m, double *gain,
                                            xpe_error *err);
int xpe_run_modes(const xpe_run *run);

void xpe_run_cancel(xpe_run *run); /* any thread; takes effect within an iteration */
xpe_progress xpe_run_progress(const xpe_run *run); /* any thread */

/* Saving and taking up (a pmace stage).  xpe_run_hold before a step makes that step end at a
 * boundary where the run can be saved (not after its last iteration); the run then simply goes on
 * with the next step.  The bits of everything that follows, here or in a new run of the same
 * problem and stage that loads what was saved, on any number of devices, are those of a run that
 * was never held.  The stream has no hash and no name of the scan: the caller adds them. */
typedef xpe_status (*xpe_run_sink)(void *arg, const void *data, size_t bytes, xpe_error *err);
typedef xpe_status (*xpe_run_source)(void *arg, void *data, size_t bytes, xpe_error *err);
void xpe_run_hold(xpe_run *run);
bool xpe_run_held(const xpe_run *run);
XPE_MUST_CHECK xpe_status xpe_run_save(xpe_run *run, xpe_run_sink sink, void *arg, xpe_error *err);
XPE_MUST_CHECK xpe_status xpe_run_load(xpe_run *run, xpe_run_source source, void *arg,
                                       xpe_error *err);

/* What the run moved and took, for the bench and for the check of the estimate. */
typedef struct xpe_run_stats {
    int64_t bytes_peak;        /* device memory really taken, all devices */
    int64_t bytes_planned;     /* what the account before the run said */
    int64_t bytes_pinned;      /* host memory that devices read and write, all devices */
    int64_t bytes_moved;       /* by design, all iterations so far */
    int64_t transforms;        /* 2-D transforms done so far */
    double seconds_transforms; /* thread seconds inside transforms; 0 unless profiled */
    double seconds_busy;       /* thread seconds inside the steps; 0 unless profiled */
} xpe_run_stats;
void xpe_run_profile(xpe_run *run, bool on);
xpe_run_stats xpe_run_get_stats(const xpe_run *run);

/* --------------------------------------------------------------------------------- building */

const char *xpe_build_identity(void); /* version and compiler: what bit-identity is promised for */

#ifdef __cplusplus
}
#endif
#endif
