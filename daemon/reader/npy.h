/* The header of a NumPy array, and its elements as this project wants them.  Nothing is ever
 * unpickled. */
#ifndef XPD_READER_NPY_H
#define XPD_READER_NPY_H

#include "xptychod/engine.h"

#define XPD_NPY_HEADER_MAX 65536
#define XPD_NPY_RANK_MAX 8

typedef struct xpd_npy {
    char kind; /* 'b' bool, 'i', 'u', 'f', 'c' */
    int item;  /* bytes */
    bool swapped, fortran;
    int rank;
    int64_t shape[XPD_NPY_RANK_MAX];
    int64_t count; /* of elements */
} xpd_npy;

/* Bytes of the whole header, from its first 12 bytes; 0 when this is no .npy file. */
size_t xpd_npy_header_size(const uint8_t start[12]);
/* header: all of it.  name is for messages. */
XPE_MUST_CHECK xpe_status xpd_npy_decode(xpd_npy *out, const uint8_t *header, size_t size,
                                         const char *name, xpe_error *err);
/* Drops leading axes of length 1 while more than `rank` axes are left. */
void xpd_npy_squeeze(xpd_npy *array, int rank);
/* "[516][128][128]" */
const char *xpd_npy_shape(const xpd_npy *array, char out[128]);
/* Native byte order and C order, in place where possible; *data (malloc'd) may be replaced. */
XPE_MUST_CHECK xpe_status xpd_npy_normalise(xpd_npy *array, void **data, xpe_error *err);
/* Pixel type of a real array; false for complex.  Half floats and booleans have none yet. */
bool xpd_npy_type(const xpd_npy *array, xpe_type *out);

#endif
