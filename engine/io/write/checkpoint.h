/* A saved run in a file, with what is needed to know it again.
 *
 * A folder holds two generations, checkpoint.0 and checkpoint.1, written in turn: whatever happens
 * to the one being written, the other is whole.  The state itself is the stream of xpe_run_save;
 * here it is only bytes.
 *
 * Threads: an object is used by one thread at a time. */
#ifndef XPE_CHECKPOINT_H
#define XPE_CHECKPOINT_H

#include "xptychod/engine.h"

#define XPE_CHECKPOINT_SLOTS 2
#define XPE_CHECKPOINT_HASH 32 /* bytes of a SHA-256 */

/* One iteration of the job so far. */
typedef struct xpe_checkpoint_record {
    double data_error; /* NaN where it was not computed */
    float seconds;
    int32_t modes;
} xpe_checkpoint_record;

/* What a saved state is of, and what a job carries from stage to stage.  When one is found the
 * pointers belong to the xpe_checkpoint_reader. */
typedef struct xpe_checkpoint {
    /* the same job, and the bits that are promised */
    char build[160];                    /* of the program that runs */
    char device[96];                    /* kind and model: the same arithmetic */
    char job[32];                       /* its id; "" = any */
    uint8_t scan[XPE_CHECKPOINT_HASH];  /* of the data */
    uint8_t recon[XPE_CHECKPOINT_HASH]; /* of the settings that decide the bits */
    /* where it is */
    int32_t stage, iteration; /* done, of that stage */
    int32_t start_modes;      /* 0 = no start probe below */
    int64_t num_frames, n;
    xpe_grid grid;
    double seconds; /* of all iterations */
    int64_t record_count;
    const xpe_checkpoint_record *records; /* [record_count] of all stages */
    const double *positions;              /* [num_frames][2] refined by an earlier stage, or NULL */
    const double *gain;                   /* [num_frames] with it, or NULL */
    const xpe_c32 *start_probe;           /* [start_modes][n][n] of this stage */
} xpe_checkpoint;

/* ------------------------------------------------------------------------------------ writing */

typedef struct xpe_checkpoint_writer xpe_checkpoint_writer;

/* Begins generation `slot` under a temporary name; `expected` is about the size of the stream to
 * come.  Refuses when that would leave less than XPE_CHECKPOINT_SPARE bytes on the disk.  Every
 * failure is XPE_IO with errno's words and bytes in its text, but for XPE_NO_MEMORY. */
#define XPE_CHECKPOINT_SPARE ((int64_t)64 << 20)
XPE_MUST_CHECK xpe_status xpe_checkpoint_begin(xpe_checkpoint_writer **out, const char *folder,
                                               int slot, const xpe_checkpoint *head,
                                               int64_t expected, xpe_error *err);
/* An xpe_run_sink. */
XPE_MUST_CHECK xpe_status xpe_checkpoint_put(void *writer, const void *data, size_t bytes,
                                             xpe_error *err);
/* Hash, sync, rename, sync of the folder.  From a failure on, here or before, the writer can only
 * be destroyed: what could not be synced is not tried again. */
XPE_MUST_CHECK xpe_status xpe_checkpoint_finish(xpe_checkpoint_writer *writer, int64_t *bytes,
                                                xpe_error *err);
/* Removes what was not finished. */
void xpe_checkpoint_writer_destroy(xpe_checkpoint_writer *writer);

/* ------------------------------------------------------------------------------------ reading */

typedef struct xpe_checkpoint_reader xpe_checkpoint_reader;

/* What was found, for people. */
typedef void (*xpe_checkpoint_say)(void *arg, const char *text);

/* The newest generation of `folder` that is whole and of the run `wanted` describes (its first five
 * members, frames and n).  *out is NULL where there is none.  `say` is told of each generation that
 * is passed over and why; *foreign becomes true when a whole one belongs to another job. */
XPE_MUST_CHECK xpe_status xpe_checkpoint_find(xpe_checkpoint_reader **out, const char *folder,
                                              const xpe_checkpoint *wanted, bool *foreign,
                                              xpe_checkpoint_say say, void *arg, xpe_error *err);
const xpe_checkpoint *xpe_checkpoint_head(const xpe_checkpoint_reader *reader);
int xpe_checkpoint_slot(const xpe_checkpoint_reader *reader);
/* An xpe_run_source. */
XPE_MUST_CHECK xpe_status xpe_checkpoint_take(void *reader, void *data, size_t bytes,
                                              xpe_error *err);
void xpe_checkpoint_reader_destroy(xpe_checkpoint_reader *reader);

/* Both generations and what a killed process left of one. */
void xpe_checkpoint_remove(const char *folder);

#endif
