/* Scans and arrays out of files: the only part of the project that reads HDF5.
 *
 * A scan file is opened, checked as hostile input, and described; positions are read at once (they
 * are small), frames in slabs of the caller's choice, so that host memory stays bounded.  What is
 * handed over follows engine.h: frames in their stored type with zero frequency in the middle,
 * positions (row, column) in metres, masks with 1 = masked.
 *
 * Threads: one thread of the process.  Ownership: what open gives, close takes (NULL is fine);
 * texts and arrays reached through a scan file live as long as it.
 *
 * Nothing here trusts the environment, but HDF5 does: call xpe_read_init once, before anything
 * else. */
#ifndef XPE_READ_H
#define XPE_READ_H

#include "xptychod/engine.h"

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets HDF5_* variables, switches plugins and error printing off. */
void xpe_read_init(void);

/* Folders that files, external links and virtual sources must lie beneath; NULL = anywhere. */
typedef struct xpe_roots {
    const char *const *folders; /* resolved, absolute */
    size_t count;
} xpe_roots;

/* Whether a resolved path is one of the roots or beneath one. */
bool xpe_roots_cover(const xpe_roots *roots, const char *resolved);

struct xpe_scan_info;

/* What the caller states about the scan; 0 = not stated, the file must say it. */
typedef struct xpe_read_options {
    const char *format; /* "auto", "xptycho", "cxi" */
    double energy_kev, wavelength_m, detector_distance_m, detector_pitch_m, saturation;
    const xpe_roots *roots; /* NULL = anywhere */
    struct xpe_scan_info
        *seen; /* gets what was known, also where the file is then refused; or NULL */
} xpe_read_options;

/* The file that was opened, as fstat saw it. */
typedef struct xpe_file_identity {
    char path[4096]; /* resolved */
    uint64_t device, inode;
    int64_t bytes, mtime_ns;
} xpe_file_identity;

typedef struct xpe_scan_info {
    char format[16];
    char name[128];
    int64_t num_frames, n;
    xpe_type type;
    int64_t frames_bytes;
    double wavelength_m, detector_distance_m, detector_pitch_m;
    double energy_kev; /* of photons; 0 for other probes */
    bool electrons;
    double saturation;   /* 0 = none */
    int64_t mask_frames; /* 0, 1 or num_frames */
    int64_t slab_frames; /* reading this many at a time reads every chunk of the file once */
    xpe_file_identity file;
} xpe_scan_info;

typedef struct xpe_scan_file xpe_scan_file;

/* Opens and checks everything but the pixels.  Positions that are not finite, counts that differ,
 * missing geometry, filters that are not there: refused, each in one sentence with its pointer. */
XPE_MUST_CHECK xpe_status xpe_scan_file_open(xpe_scan_file **out, const char *path,
                                             const xpe_read_options *options, xpe_error *err);
void xpe_scan_file_close(xpe_scan_file *file);
const xpe_scan_info *xpe_scan_file_info(const xpe_scan_file *file);
const double *xpe_scan_file_positions(const xpe_scan_file *file); /* [num_frames][2] */
/* The same as a scan for xpe_grid_derive: frames and mask are NULL. */
xpe_scan xpe_scan_file_scan(const xpe_scan_file *file);
/* Frames [first, first + count) in their stored type; out has count * n * n pixels. */
XPE_MUST_CHECK xpe_status xpe_scan_file_frames(xpe_scan_file *file, int64_t first, int64_t count,
                                               void *out, xpe_error *err);
/* out[mask_frames][n][n]; refuses a mask that hides more than half of the pixels. */
XPE_MUST_CHECK xpe_status xpe_scan_file_mask(xpe_scan_file *file, uint8_t *out, xpe_error *err);
/* Whether neighbouring patches can overlap.  CXI files are refused where they cannot (near-field
 * data look so); the own format, far-field by definition, gets a warning. */
XPE_MUST_CHECK xpe_status xpe_scan_file_sampling(xpe_scan_file *file, xpe_error *err);
/* Refuses when the file is no longer the one that was opened. */
XPE_MUST_CHECK xpe_status xpe_scan_file_unchanged(const xpe_scan_file *file, xpe_error *err);
/* Sentences for the user, in the order they were found. */
size_t xpe_scan_file_warnings(const xpe_scan_file *file);
const char *xpe_scan_file_warning(const xpe_scan_file *file, size_t index);

/* --------------------------------------------------------------------------------- pixels */

/* What passes by while frames are read; start from zeroes. */
typedef struct xpe_pixel_stats {
    int64_t frames, zero_frames; /* frames seen; of them, zero everywhere */
    int64_t pixels;
    int64_t not_finite, negative, type_max,
        saturated;          /* pixels of these kinds, each counted once */
    double sum, max;        /* of the others */
    double *mean_amplitude; /* [n][n] sums of sqrt(counts), or NULL */
} xpe_pixel_stats;

void xpe_pixel_stats_add(xpe_pixel_stats *stats, const void *frames, xpe_type type, int64_t count,
                         int64_t n, double saturation);
/* Pixels that the engine will mask. */
int64_t xpe_pixel_stats_masked(const xpe_pixel_stats *stats);

/* Median distance from a position to its nearest neighbour, metres; 0 for a single position. */
double xpe_position_step(const double *positions, int64_t count);
/* Four standard deviations of the focused probe that has this mean amplitude, in object pixels
 * along rows and columns; a lower bound of the probe's true size (a defocused one is larger). */
void xpe_probe_width(double width[2], const double *mean_amplitude, int64_t n);

/* --------------------------------------------------------------------------------- arrays */

typedef enum xpe_array_use { XPE_ARRAY_PROBE, XPE_ARRAY_OBJECT } xpe_array_use;

/* A complex array of a file: complex64, complex128 or real; [n][n], [K][n][n] or, as an object,
 * [rows][cols]. */
typedef struct xpe_array {
    int64_t shape[3];     /* modes (1 for an object), rows, cols */
    xpe_c32 *data;        /* NULL when only the shape was asked for */
    double pixel_pitch_m; /* of a result file; 0 = not stated */
    char dataset[256];    /* where it was found */
} xpe_array;

/* dataset NULL: /sample/probe, /probe or /scan/probe; /sample/object or /object.  pointer is the
 * job member that errors name ("/probe").  Finite values only. */
XPE_MUST_CHECK xpe_status xpe_array_read(xpe_array *out, const char *path, const char *dataset,
                                         xpe_array_use use, bool shape_only, const xpe_roots *roots,
                                         const char *pointer, xpe_error *err);
void xpe_array_release(xpe_array *array);

/* Where an image lies, as its file says; each part may be missing. */
typedef struct xpe_array_place {
    double pixel_m; /* 0 = not stated */
    bool has_origin, has_extent;
    double origin_m[2]; /* of the first pixel's centre */
    double extent_m[4]; /* of the patch centres: first and last row, first and last column */
} xpe_array_place;

/* Attributes pixel_pitch and origin of the dataset's group; extent of /run or /scan positions. */
XPE_MUST_CHECK xpe_status xpe_array_place_read(xpe_array_place *out, const char *path,
                                               const char *dataset, const xpe_roots *roots,
                                               const char *pointer, xpe_error *err);

/* Whether a file is one that this project or the reference program wrote as a result.  *owner (may
 * be NULL) is the uid of the one whose jobs may replace it, where the file says so and is this
 * process's own: nobody else can have written that; else -1. */
bool xpe_file_is_result(const char *path, int64_t *owner);

#ifdef __cplusplus
}
#endif
#endif
