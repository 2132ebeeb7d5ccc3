/* Scans and results into files: HDF5 that the reference program (PyPI's xptycho) opens too.
 *
 * A file appears under its final name only when it is whole: it is written beside it, synced,
 * closed and renamed.  Arrays are borrowed for the call.  Threads: one thread of the process at a
 * time.  Call xpe_write_init once before the first write. */
#ifndef XPE_WRITE_H
#define XPE_WRITE_H

#include "xptychod/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

void xpe_write_init(void); /* switches HDF5's plugins and error printing off */

/* What is now under the name. */
typedef struct xpe_written {
    int64_t bytes, mtime_ns;
    uint64_t inode;
    uint32_t uid; /* whose the file is */
    char sha256[65];
} xpe_written;

/* The folder that an output path led to when it was judged.  Between that and the writing, hours
 * later, a link may have taken its place.  Inode 0 = it was not judged. */
typedef struct xpe_folder {
    uint64_t device, inode;
} xpe_folder;

/* One row of /run/parameters; origin is "given", "file", "derived" or "default".  The reference
 * program's viewer looks for the row `probe` with the value "known" or "estimated", and
 * `mode_schedule` with a value like "(20, 40)". */
typedef struct xpe_parameter {
    const char *name, *value, *units, *origin;
} xpe_parameter;

typedef struct xpe_result {
    const char *name; /* NULL or "" = none */
    const xpe_grid *grid;
    const xpe_c32 *object; /* [rows][cols] */
    const xpe_c32 *probe;  /* [probe_modes][n][n] */
    int64_t probe_modes, n;
    const float *coverage;   /* [rows][cols]; the reference program needs it; NULL = not known */
    const double *positions; /* [num_frames][2] the positions used */
    const double *gain;      /* [num_frames] of the last position refinement, or NULL */
    int64_t num_frames;
    const int64_t *frame_list; /* [num_frames] original frame numbers; NULL = all, in order */
    const uint8_t *mask;       /* [mask_frames][n][n], 1 = masked, or NULL */
    int64_t mask_frames;
    const double *data_error; /* [iterations], all stages; NaN where it was not computed */
    int64_t iterations;
    const xpe_parameter *parameters;
    size_t parameter_count;
    const char *job;         /* the job document as JSON, or NULL */
    const char *scan_path;   /* or NULL */
    const char *scan_sha256; /* or NULL */
    const char *program;     /* "xptychod 0.1.0" */
    const char *build;       /* xpe_build_identity() */
    const char *devices;     /* "cpu, cpu" */
    const char *end_time;    /* RFC 3339 or NULL */
    bool partial;            /* of a run that did not end as planned */
    xpe_folder folder;       /* where the path has to lead */
    const int64_t *owner;    /* uid of the one whose jobs may replace the file, or NULL */
    /* Called when the file is whole and on disk and before it gets its name, with what will be
     * under the name (naming changes none of it); NULL = nobody wants to know. */
    void (*whole)(void *context, const xpe_written *written);
    void *whole_context;
} xpe_result;

/* Refuses an existing file without overwrite, also one that appears meanwhile; with it, only a
 * regular file is replaced: XPE_INVALID.  So is a path that no longer leads to `folder`.  XPE_IO
 * when the file cannot be written.  The pointer is /output/path. */
XPE_MUST_CHECK xpe_status xpe_result_write(xpe_written *out, const char *path, bool overwrite,
                                           const xpe_result *result, xpe_error *err);

/* A scan in the own format. */
typedef struct xpe_scan_content {
    const xpe_scan *scan; /* frames, positions and mask included */
    const char *name;     /* or NULL */
    const char *note;     /* where it comes from; or NULL */
    bool electrons;
    const xpe_c32 *probe; /* [probe_modes][n][n] first guess, /scan/probe; or NULL */
    int64_t probe_modes;
    const xpe_c32 *true_object; /* [rows][cols] /truth/object, or NULL */
    const xpe_c32 *true_probe;  /* [true_modes][n][n] /truth/probe, or NULL */
    int64_t true_modes;
    const xpe_grid *true_grid; /* of true_object */
} xpe_scan_content;

XPE_MUST_CHECK xpe_status xpe_scan_write(xpe_written *out, const char *path, bool overwrite,
                                         const xpe_scan_content *content, xpe_error *err);

#ifdef __cplusplus
}
#endif
#endif
