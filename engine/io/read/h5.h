/* HDF5 as hostile input: files opened only when they are regular, readable and beneath the roots,
 * links followed only where the policy allows, datasets checked before a byte of them is read.
 * Private to the folder. */
#ifndef XPE_IO_H5_H
#define XPE_IO_H5_H

#include "io/read/read.h"

#include "backend/util.h"

#include <hdf5.h>

#define XPE_ATTR_BYTES_MAX 65536

/* An open file.  `what` is the job member that errors speak of ("scan.path"), `pointer` its JSON
 * pointer ("/scan/path"). */
typedef struct xpe_h5 {
    int fd;
    hid_t file;
    hid_t lapl; /* with the link policy */
    const xpe_roots *roots;
    const char *pointer;
    char what[64];
    char shown[200]; /* the path as messages show it */
    char folder[4096];
    char denied[512]; /* why the last external link was not followed, or "" */
    bool busy;        /* it leads to a file that another program has open for writing */
    xpe_file_identity identity;
} xpe_h5;

XPE_MUST_CHECK xpe_status xpe_h5_open(xpe_h5 *h, const char *path, const xpe_roots *roots,
                                      const char *pointer, xpe_error *err);
void xpe_h5_close(xpe_h5 *h);
XPE_MUST_CHECK xpe_status xpe_h5_unchanged(const xpe_h5 *h, xpe_error *err);
/* xpe_fail with "scan.path '...': " in front, XPE_INVALID, the file's pointer. */
xpe_status xpe_h5_fail(const xpe_h5 *h, xpe_error *err, const char *format, ...) XPE_PRINTF(3, 4);
/* The description of the innermost failure that HDF5 knows of; clears its stack. */
void xpe_h5_reason(char *out, size_t size);

typedef enum xpe_h5_kind {
    XPE_H5_ABSENT,
    XPE_H5_GROUP,
    XPE_H5_DATASET,
    XPE_H5_OTHER,
    XPE_H5_BROKEN
} xpe_h5_kind;
/* Whether HDF5 just failed to open a file that is open for writing; clears its stack. */
bool xpe_h5_busy(void);
/* XPE_BUSY: the file of `name` is being written. */
xpe_status xpe_h5_fail_busy(const xpe_h5 *h, const char *name, xpe_error *err);
/* What a path leads to, soft and external links followed; BROKEN: a link that leads nowhere. */
xpe_h5_kind xpe_h5_look(xpe_h5 *h, const char *path);
/* The names in a group, at most a dozen, as "a, b, c" ("nothing" when empty). */
void xpe_h5_names(xpe_h5 *h, const char *group, char *out, size_t size);

/* ------------------------------------------------------------------------------- datasets */

typedef enum xpe_h5_class {
    XPE_H5_NUMBER,
    XPE_H5_COMPLEX,
    XPE_H5_TEXT,
    XPE_H5_UNUSABLE
} xpe_h5_class;

typedef struct xpe_dset {
    hid_t id;
    char path[256];
    int rank;
    hsize_t dims[H5S_MAX_RANK];
    hsize_t chunk[H5S_MAX_RANK]; /* all 0 when not chunked */
    int64_t count;               /* of all elements */
    bool is_virtual, checked;    /* its sources have been looked into */
    xpe_h5_class class;
    xpe_type type; /* NUMBER: as handed over */
    bool is_float;
    char type_text[48]; /* for messages */
} xpe_dset;

/* Opens and checks: filters there, storage inside, virtual sources present, sizes sane.  A chunk
 * cache that holds whole chunks is set. */
XPE_MUST_CHECK xpe_status xpe_dset_open(xpe_dset *d, xpe_h5 *h, const char *path, xpe_error *err);
void xpe_dset_close(xpe_dset *d);
/* "[144][64][64]" */
const char *xpe_dset_shape(const xpe_dset *d, char out[96]);
/* Native memory type of a pixel type. */
hid_t xpe_h5_memory_type(xpe_type type);
/* Rows [first, first + count) of the slowest axis (all when rank is 0) as `memory_type`. */
XPE_MUST_CHECK xpe_status xpe_dset_read(xpe_dset *d, xpe_h5 *h, int64_t first, int64_t count,
                                        hid_t memory_type, void *out, xpe_error *err);
/* Filters of this process (filters.c).  Once, before any dataset is opened. */
bool xpe_filters_register(void);
/* Chunks of that size may come; false where too many sizes are known already. */
bool xpe_filters_expect(size_t chunk_bytes);
/* Whether a registered filter with these parameters can be undone. */
bool xpe_filters_can(int id, size_t parameters, const unsigned *values);
/* Whether the filter pipeline can be undone here; names the first filter that cannot (text). */
bool xpe_h5_filters_ready(hid_t dataset, char *out, size_t size);
/* Notes the size of its chunks for the filters; false where it is unusable. */
bool xpe_h5_expect_chunks(hid_t dataset);
/* Names the first dataset of rank >= 3 of the file that needs an absent filter, or "". */
void xpe_h5_find_unreadable(xpe_h5 *h, char *out, size_t size);
/* Refuses chunks in rows [first, first + count) of the slowest axis that would unpack to another
 * size. */
XPE_MUST_CHECK xpe_status xpe_chunks_check(xpe_h5 *h, hid_t dataset, const char *name,
                                           int64_t first, int64_t count, xpe_error *err);
/* The same of all sources of a virtual dataset. */
XPE_MUST_CHECK xpe_status xpe_h5_check_sources(xpe_h5 *h, hid_t dataset, const char *path,
                                               xpe_error *err);
/* Every source of a virtual dataset exists, is allowed, and all of it is mapped. */
XPE_MUST_CHECK xpe_status xpe_h5_check_virtual(xpe_h5 *h, hid_t dataset, const char *path,
                                               xpe_error *err);
/* The regular file that `name`, as written in a link of this file, leads to; false: not there or
 * not allowed, `denied` says why. */
bool xpe_h5_link_allowed(xpe_h5 *h, const char *name);

/* --------------------------------------------------------------------------------- values */

/* A single number: attribute `name` of object `at`, or dataset at/name.  found = false where there
 * is neither; refused where it is not one finite number.  units (may be NULL, size 32) gets the
 * `units` attribute or "". */
XPE_MUST_CHECK xpe_status xpe_h5_number(xpe_h5 *h, const char *at, const char *name, double *value,
                                        bool *found, char *units, xpe_error *err);
/* Text in the same places; false when absent or not text.  Control characters become spaces. */
bool xpe_h5_text(xpe_h5 *h, const char *at, const char *name, char *out, size_t size);

#endif
