/* A file that appears whole or not at all, and HDF5 calls that remember their first failure.
 * Private to the folder. */
#ifndef XPE_IO_FILE_H
#define XPE_IO_FILE_H

#include "io/write/write.h"

#include <hdf5.h>

typedef struct xpe_file {
    const char *path; /* the final name, borrowed */
    char folder[4096];
    int folder_fd;
    char temporary[320], target[320]; /* both beneath folder_fd, whatever `path` leads to by now */
    int lock_fd;                      /* holds a lock on `temporary`: its writer lives */
    hid_t id;
    bool overwrite;
    bool failed; /* a call went wrong; `reason` says which and why */
    char reason[256];
    void (*whole)(void *context, const xpe_written *written); /* before the rename; may be NULL */
    void *whole_context;
} xpe_file;

/* bytes: at least what will be written; that much room is taken at once.  where: the folder that
 * path must lead to, or NULL. */
XPE_MUST_CHECK xpe_status xpe_file_create(xpe_file *f, const char *path, const xpe_folder *where,
                                          bool overwrite, int64_t bytes, xpe_error *err);
/* Marks it complete, syncs, renames and describes it. */
XPE_MUST_CHECK xpe_status xpe_file_finish(xpe_file *f, xpe_written *out, xpe_error *err);
/* Closes and removes what was not finished; fine after finish. */
void xpe_file_release(xpe_file *f);

/* From here on nothing happens once `failed` is set. */
void xpe_put_group(xpe_file *f, const char *path);
/* rank <= 3; compress: gzip 1 with shuffle, a chunk for each index of the slowest axis. */
void xpe_put_array(xpe_file *f, const char *path, hid_t file_type, hid_t memory_type, int rank,
                   const hsize_t *dims, const void *data, bool compress);
void xpe_put_complex(xpe_file *f, const char *path, int rank, const hsize_t *dims,
                     const xpe_c32 *data);
void xpe_put_string(xpe_file *f, const char *path,
                    const char *text); /* one text of variable length */
void xpe_put_strings(xpe_file *f, const char *path, hsize_t rows, hsize_t cols,
                     const char *const *texts);
void xpe_attr_text(xpe_file *f, const char *at, const char *name, const char *text);
void xpe_attr_texts(xpe_file *f, const char *at, const char *name, const char *const *texts,
                    hsize_t count);
void xpe_attr_doubles(xpe_file *f, const char *at, const char *name, const double *values,
                      hsize_t count); /* 0 = scalar */
void xpe_attr_int(xpe_file *f, const char *at, const char *name, int64_t value);

#endif
