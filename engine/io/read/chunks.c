/* What HDF5 1.10 does not look at before it copies a whole chunk out of a buffer: how much its own
 * filters put there.  A chunk that inflates to less than its size is then made up of other memory
 * of this process and passes for measured; one that inflates to gigabytes takes them.
 *
 * So every chunk with filters is looked at before HDF5 reads it: deflate is run over it once, for
 * its length alone.  LZ4 and bitshuffle see to it themselves (filters.c) and cost nothing here. */
#include "h5.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define FILTERS_MAX 8
#define WINDOW ((size_t)1 << 16)

typedef struct pipeline {
    int count;
    H5Z_filter_t id[FILTERS_MAX];
    int rank;
    hsize_t dims[H5S_MAX_RANK], chunk[H5S_MAX_RANK];
    size_t bytes; /* of a whole chunk */
    uint8_t *packed;
    size_t room;
} pipeline;

static bool describe(pipeline *p, hid_t dataset)
{
    hid_t plist = H5Dget_create_plist(dataset), space = H5Dget_space(dataset),
          type = H5Dget_type(dataset);
    bool good = plist >= 0 && space >= 0 && type >= 0;

    memset(p, 0, sizeof *p);
    if (good && H5Pget_layout(plist) == H5D_CHUNKED) {
        p->count = H5Pget_nfilters(plist);
        p->rank = H5Sget_simple_extent_dims(space, p->dims, NULL);
        good = p->count >= 0 && p->count <= FILTERS_MAX && p->rank > 0 &&
               H5Pget_chunk(plist, p->rank, p->chunk) == p->rank;
        p->bytes = H5Tget_size(type);
        for (int i = 0; good && i < p->rank; i++)
            p->bytes *= (size_t)p->chunk[i]; /* at most 1 GiB, xpe_h5_expect_chunks has looked */
        for (int i = 0; good && i < p->count; i++) {
            unsigned flags, config;
            size_t values = 0;
            p->id[i] = H5Pget_filter2(plist, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
        }
    }
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    if (plist >= 0)
        H5Pclose(plist);
    return good;
}

/* Bytes that a zlib stream holds, as far as they interest: limit + 1 stands for more. */
static size_t inflated(uint8_t *in, size_t bytes, size_t limit)
{
    static uint8_t window[WINDOW];
    z_stream z = {.next_in = in, .avail_in = (uInt)bytes};
    size_t total = 0;
    int code = inflateInit(&z);

    while (code == Z_OK && total <= limit) {
        z.next_out = window;
        z.avail_out = (uInt)WINDOW;
        code = inflate(&z, Z_NO_FLUSH);
        total += WINDOW - z.avail_out;
    }
    inflateEnd(&z);
    return code == Z_STREAM_END || total > limit ? total : 0;
}

/* Bytes that HDF5 will have once the filters are undone; the last of them that packs decides. */
static size_t undone(const pipeline *p, uint32_t left_out, size_t stored)
{
    size_t bytes = stored;

    for (int i = p->count; i-- > 0;) {
        if (left_out >> i & 1)
            continue;
        if (p->id[i] == H5Z_FILTER_FLETCHER32)
            bytes = bytes > 4 ? bytes - 4 : 0;
        else if (p->id[i] == H5Z_FILTER_DEFLATE)
            bytes = inflated(p->packed, bytes, p->bytes);
        else if (p->id[i] != H5Z_FILTER_SHUFFLE)
            return p->bytes; /* a filter of our own, which sees to it */
    }
    return bytes;
}

static xpe_status check_chunk(pipeline *p, xpe_h5 *h, hid_t dataset, const char *name,
                              const hsize_t *at, xpe_error *err)
{
    hsize_t stored = 0;
    uint32_t left_out = 0;
    size_t bytes;

    if (H5Dget_chunk_storage_size(dataset, at, &stored) < 0 || stored == 0) {
        H5Eclear2(H5E_DEFAULT);
        return XPE_OK; /* never written */
    }
    if (stored > p->bytes + p->bytes / 8 + 4096)
        return xpe_h5_fail(h, err,
                           "dataset '%s' is damaged: a chunk of %zu bytes is stored in %llu", name,
                           p->bytes, (unsigned long long)stored);
    if (stored > p->room) {
        free(p->packed);
        p->room = (size_t)stored + (size_t)stored / 4;
        p->packed = malloc(p->room);
        if (!p->packed)
            return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: a chunk");
    }
    if (H5Dread_chunk(dataset, H5P_DEFAULT, at, &left_out, p->packed) < 0) {
        char reason[256];
        xpe_h5_reason(reason, sizeof reason);
        return xpe_h5_fail(h, err, "a chunk of dataset '%s' cannot be read: %s", name, reason);
    }
    bytes = undone(p, left_out, (size_t)stored);
    if (bytes == p->bytes)
        return XPE_OK;
    if (bytes == 0)
        return xpe_h5_fail(h, err, "dataset '%s' is damaged: a chunk cannot be unpacked", name);
    return xpe_h5_fail(h, err, "dataset '%s' is damaged: a chunk of %zu bytes unpacks to %s%zu",
                       name, p->bytes, bytes > p->bytes ? "more, at least " : "", bytes);
}

xpe_status xpe_chunks_check(xpe_h5 *h, hid_t dataset, const char *name, int64_t first,
                            int64_t count, xpe_error *err)
{
    xpe_status st = XPE_OK;
    hsize_t at[H5S_MAX_RANK] = {0};
    pipeline p;
    int axis;

    if (!describe(&p, dataset))
        return xpe_h5_fail(h, err, "the chunks of dataset '%s' cannot be read", name);
    if (p.count == 0)
        return XPE_OK;
    at[0] = (hsize_t)first / p.chunk[0] * p.chunk[0];
    do {
        XPE_TRY(check_chunk(&p, h, dataset, name, at, err));
        for (axis = p.rank - 1; axis >= 0; axis--) {
            hsize_t end = axis == 0 ? (hsize_t)(first + count) : p.dims[axis];
            at[axis] += p.chunk[axis];
            if (at[axis] < end)
                break;
            if (axis > 0)
                at[axis] = 0;
        }
    } while (axis >= 0);
done:
    free(p.packed);
    return st;
}
