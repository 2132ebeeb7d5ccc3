/* Datasets of a file that someone else wrote: everything that could make HDF5 return what was never
 * measured (absent filters, missing virtual sources, storage elsewhere) or make us take too much
 * memory is found before the first read. */
#include "h5.h"

#include "io/size.h"

#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES_MAX ((int64_t)1 << 30)
#define CACHE_BYTES_MAX ((int64_t)256 << 20)
#define CACHE_BYTES_MIN ((int64_t)1 << 20)
#define OBJECTS_VISITED_MAX 2000
#define DEPTH_MAX 200   /* characters of a path */
#define FILTER_VALUES 8 /* parameters of a filter that are looked at */
/* Deflate shrinks to a thousandth at most; what claims far more was not written, and would be read
 * as so much memory full of zeros. */
#define SPARSE_FACTOR 16384.0

/* --------------------------------------------------------------------------------- filters */

static const char *filter_name(H5Z_filter_t id)
{
    static const struct {
        H5Z_filter_t id;
        const char *name;
    } known[] = {{1, "deflate"},   {2, "shuffle"},     {3, "fletcher32"},     {4, "szip"},
                 {5, "nbit"},      {6, "scaleoffset"}, {307, "bzip2"},        {32000, "lzf"},
                 {32001, "blosc"}, {32004, "lz4"},     {32008, "bitshuffle"}, {32013, "zfp"},
                 {32015, "zstd"},  {32017, "sz"},      {32018, "fcidecomp"},  {32026, "blosc2"}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == id)
            return known[i].name;
    return "unknown";
}

/* Of those that are read at all.  HDF5's nbit, scaleoffset and szip believe the file about lengths.
 */
static bool is_packer(H5Z_filter_t id)
{
    return id == H5Z_FILTER_DEFLATE || id == 32004 || id == 32008;
}

bool xpe_h5_filters_ready(hid_t dataset, char *out, size_t size)
{
    int packers = 0;
    hid_t plist = H5Dget_create_plist(dataset);
    int count = plist < 0 ? -1 : H5Pget_nfilters(plist);
    bool ready = count >= 0;

    if (!ready)
        snprintf(out, size, "its filters cannot be listed");
    for (int i = 0; ready && i < count; i++) {
        unsigned flags = 0, config = 0, values[FILTER_VALUES] = {0};
        size_t count_values = FILTER_VALUES;
        H5Z_filter_t id =
            H5Pget_filter2(plist, (unsigned)i, &flags, &count_values, values, 0, NULL, &config);
        packers += is_packer(id);
        if (id < 0) {
            snprintf(out, size, "its filter %d cannot be read", i);
            ready = false;
        } else if (packers > 1) {
            snprintf(out, size,
                     "it is compressed more than once, which is not read; repack it with gzip "
                     "(h5repack -f GZIP=4)");
            ready = false;
        } else if (!(is_packer(id) || id == H5Z_FILTER_SHUFFLE || id == H5Z_FILTER_FLETCHER32) ||
                   H5Zfilter_avail(id) <= 0 || H5Zget_filter_info(id, &config) < 0 ||
                   !(config & H5Z_FILTER_CONFIG_DECODE_ENABLED)) {
            snprintf(
                out, size,
                "it is compressed with filter %d (%s), which this reader does not have; repack it "
                "with gzip (h5repack -f GZIP=4)",
                (int)id, filter_name(id));
            ready = false;
        } else if (!xpe_filters_can((int)id, count_values, values)) {
            snprintf(out, size,
                     "it is compressed with filter %d (%s) in a form that this reader does not "
                     "have (parameters %u, %u, %u; LZ4 or nothing behind the shuffle is read); "
                     "repack it with gzip (h5repack -f GZIP=4)",
                     (int)id, filter_name(id), values[2], values[3], values[4]);
            ready = false;
        }
    }
    if (plist >= 0)
        H5Pclose(plist);
    H5Eclear2(H5E_DEFAULT);
    return ready;
}

/* Bytes of one chunk of a chunked dataset; 0 where there is none or it is beyond all measure. */
static int64_t chunk_size(hid_t plist, int rank, size_t element, hsize_t chunk[H5S_MAX_RANK])
{
    int64_t bytes = (int64_t)element;

    if (H5Pget_layout(plist) != H5D_CHUNKED || H5Pget_chunk(plist, H5S_MAX_RANK, chunk) != rank)
        return 0;
    for (int i = 0; i < rank; i++) {
        if (chunk[i] == 0 || bytes > CHUNK_BYTES_MAX / (int64_t)element ||
            chunk[i] > (hsize_t)(CHUNK_BYTES_MAX / bytes))
            return 0;
        bytes *= (int64_t)chunk[i];
    }
    return bytes;
}

bool xpe_h5_expect_chunks(hid_t dataset)
{
    hsize_t chunk[H5S_MAX_RANK];
    hid_t plist = H5Dget_create_plist(dataset), type = H5Dget_type(dataset),
          space = H5Dget_space(dataset);
    bool good = true;

    if (plist >= 0 && type >= 0 && space >= 0 && H5Pget_layout(plist) == H5D_CHUNKED) {
        int64_t bytes =
            chunk_size(plist, H5Sget_simple_extent_ndims(space), H5Tget_size(type), chunk);
        good = bytes > 0 && xpe_filters_expect((size_t)bytes);
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (plist >= 0)
        H5Pclose(plist);
    return good;
}

typedef struct search {
    char *out;
    size_t size;
    int visited;
    hid_t lapl;
} search;

static herr_t visit(hid_t at, const char *name, const H5O_info_t *info, void *data)
{
    search *s = data;
    char reason[200] = "";
    hid_t id;

    if (++s->visited > OBJECTS_VISITED_MAX || strlen(name) > DEPTH_MAX)
        return 1; /* HDF5 takes minutes over groups nested by the thousand */
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    id = H5Oopen(at, name, s->lapl);
    if (id >= 0) {
        hid_t space = H5Dget_space(id);
        bool frames = space >= 0 && H5Sget_simple_extent_ndims(space) >= 3;
        if (space >= 0)
            H5Sclose(space);
        if (frames && !xpe_h5_filters_ready(id, reason, sizeof reason))
            snprintf(s->out, s->size, "its dataset /%s cannot be read either: %s", name, reason);
        H5Oclose(id);
    }
    return s->out[0] ? 1 : 0;
}

void xpe_h5_find_unreadable(xpe_h5 *h, char *out, size_t size)
{
    search s = {out, size, 0, h->lapl};

    out[0] = '\0';
    H5Ovisit(h->file, H5_INDEX_NAME, H5_ITER_NATIVE, visit, &s);
    H5Eclear2(H5E_DEFAULT);
}

/* ----------------------------------------------------------------------------------- types */

hid_t xpe_h5_memory_type(xpe_type type)
{
    switch (type) {
    case XPE_U8:
        return H5T_NATIVE_UINT8;
    case XPE_I8:
        return H5T_NATIVE_INT8;
    case XPE_U16:
        return H5T_NATIVE_UINT16;
    case XPE_I16:
        return H5T_NATIVE_INT16;
    case XPE_U32:
        return H5T_NATIVE_UINT32;
    case XPE_I32:
        return H5T_NATIVE_INT32;
    case XPE_U64:
        return H5T_NATIVE_UINT64;
    case XPE_I64:
        return H5T_NATIVE_INT64;
    case XPE_F32:
        return H5T_NATIVE_FLOAT;
    case XPE_F64:
        return H5T_NATIVE_DOUBLE;
    }
    return H5I_INVALID_HID;
}

static bool is_complex(hid_t type)
{
    bool complex = false;
    char *names[2] = {NULL, NULL};

    if (H5Tget_nmembers(type) != 2)
        return false;
    names[0] = H5Tget_member_name(type, 0);
    names[1] = H5Tget_member_name(type, 1);
    if (names[0] && names[1])
        complex = strcmp(names[0], "r") == 0 && strcmp(names[1], "i") == 0 &&
                  H5Tget_member_class(type, 0) == H5T_FLOAT &&
                  H5Tget_member_class(type, 1) == H5T_FLOAT;
    H5free_memory(names[0]);
    H5free_memory(names[1]);
    return complex;
}

/* Stored integers keep their width; half floats become float32, the bytes native. */
static void classify(xpe_dset *d, hid_t type)
{
    H5T_class_t class = H5Tget_class(type);
    size_t size = H5Tget_size(type);
    bool is_signed = false, plain = true;

    d->class = XPE_H5_UNUSABLE;
    if (class == H5T_ENUM) { /* h5py's booleans */
        hid_t base = H5Tget_super(type);
        is_signed = H5Tget_sign(base) == H5T_SGN_2;
        H5Tclose(base);
        class = H5T_INTEGER;
    } else if (class == H5T_INTEGER) {
        is_signed = H5Tget_sign(type) == H5T_SGN_2;
        plain = H5Tget_precision(type) == size * 8;
    }
    if (class == H5T_INTEGER && plain && (size == 1 || size == 2 || size == 4 || size == 8)) {
        xpe_type base = size == 1 ? XPE_U8 : size == 2 ? XPE_U16 : size == 4 ? XPE_U32 : XPE_U64;
        d->class = XPE_H5_NUMBER;
        d->type = (xpe_type)((int)base + (is_signed ? 1 : 0));
    } else if (class == H5T_FLOAT && size <= 8) {
        d->class = XPE_H5_NUMBER;
        d->type = size <= 4 ? XPE_F32 : XPE_F64;
        d->is_float = true;
    } else if (class == H5T_COMPOUND && is_complex(type)) {
        d->class = XPE_H5_COMPLEX;
    } else if (class == H5T_STRING) {
        d->class = XPE_H5_TEXT;
    }
    if (d->class == XPE_H5_NUMBER)
        snprintf(d->type_text, sizeof d->type_text, "%s", xpe_type_name(d->type));
    else if (d->class == XPE_H5_COMPLEX)
        snprintf(d->type_text, sizeof d->type_text, "complex%zu", size * 8);
    else if (d->class == XPE_H5_TEXT)
        snprintf(d->type_text, sizeof d->type_text, "text");
    else
        snprintf(d->type_text, sizeof d->type_text, "a type of class %d and %zu bytes", (int)class,
                 size);
}

/* --------------------------------------------------------------------------------- opening */

static xpe_status check_extent(xpe_dset *d, const xpe_h5 *h, hid_t space, xpe_error *err)
{
    if (H5Sget_simple_extent_type(space) == H5S_NULL)
        return xpe_h5_fail(h, err, "dataset '%s' is empty", d->path);
    d->rank = H5Sget_simple_extent_dims(space, d->dims, NULL);
    if (d->rank < 0 || d->rank > H5S_MAX_RANK)
        return xpe_h5_fail(h, err, "the shape of dataset '%s' cannot be read", d->path);
    d->count = 1;
    for (int i = 0; i < d->rank; i++) {
        if (d->dims[i] == 0)
            return xpe_h5_fail(h, err, "dataset '%s' is empty (axis %d has length 0)", d->path, i);
        if (d->dims[i] > INT64_MAX / 16 || d->count > (INT64_MAX / 16) / (int64_t)d->dims[i])
            return xpe_h5_fail(h, err, "the shape of dataset '%s' is beyond what fits any memory",
                               d->path);
        d->count *= (int64_t)d->dims[i];
    }
    return XPE_OK;
}

/* Layout, storage, filters; then a chunk cache to match. */
static xpe_status check_storage(xpe_dset *d, xpe_h5 *h, size_t element, int64_t *chunk_bytes,
                                xpe_error *err)
{
    xpe_status st = XPE_OK;
    char reason[256], stated[32], kept[32];
    hid_t plist = H5Dget_create_plist(d->id);
    H5D_layout_t layout = plist < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(plist);

    *chunk_bytes = 0;
    if (layout == H5D_LAYOUT_ERROR) {
        st = xpe_h5_fail(h, err, "the layout of dataset '%s' cannot be read", d->path);
    } else if (layout == H5D_VIRTUAL) {
        d->is_virtual = true;
        st = xpe_h5_check_virtual(h, d->id, d->path, err);
    } else if (H5Pget_external_count(plist) > 0) {
        st = xpe_h5_fail(
            h, err,
            "dataset '%s' keeps its data in files outside HDF5 (external storage), which is not "
            "allowed; repack it into one file",
            d->path);
    } else if (!xpe_h5_filters_ready(d->id, reason, sizeof reason)) {
        st = xpe_h5_fail(h, err, "dataset '%s': %s", d->path, reason);
    } else if (layout != H5D_COMPACT && H5Dget_storage_size(d->id) == 0) {
        st = xpe_h5_fail(h, err, "dataset '%s' was created but nothing was ever written to it",
                         d->path);
    } else if (layout == H5D_CHUNKED && (double)H5Dget_storage_size(d->id) * SPARSE_FACTOR <
                                            (double)d->count * (double)element) {
        st = xpe_h5_fail(h, err, "dataset '%s' states %s, but only %s were ever written to it",
                         d->path, xpe_size_text(stated, (double)d->count * (double)element),
                         xpe_size_text(kept, (double)H5Dget_storage_size(d->id)));
    } else if (layout != H5D_CHUNKED && H5Dget_storage_size(d->id) / element < (hsize_t)d->count) {
        /* what is not there must not be made up, nor read beyond its end */
        st = xpe_h5_fail(h, err,
                         "dataset '%s' is damaged: it states %lld elements of %zu bytes, but keeps "
                         "%lld bytes",
                         d->path, (long long)d->count, element,
                         (long long)H5Dget_storage_size(d->id));
    } else if (layout == H5D_CHUNKED) {
        *chunk_bytes = chunk_size(plist, d->rank, element, d->chunk);
        if (*chunk_bytes == 0)
            st = xpe_h5_fail(h, err, "a chunk of dataset '%s' is larger than 1 GiB or damaged",
                             d->path);
        else if (!xpe_filters_expect((size_t)*chunk_bytes))
            st = xpe_h5_fail(h, err, "the file has too many different sizes of chunks");
    }
    if (plist >= 0)
        H5Pclose(plist);
    return st;
}

/* A chunk that does not fit the cache would be unpacked again for every row that is read of it. */
static hid_t reopen_with_cache(xpe_h5 *h, hid_t id, const char *path, int64_t chunk_bytes)
{
    int64_t want = 2 * chunk_bytes;
    hid_t dapl, again;

    if (chunk_bytes == 0)
        return id;
    want = want < CACHE_BYTES_MIN   ? CACHE_BYTES_MIN
           : want > CACHE_BYTES_MAX ? CACHE_BYTES_MAX
                                    : want;
    dapl = H5Pcopy(h->lapl);
    if (dapl < 0)
        return id;
    H5Pset_chunk_cache(dapl, 1009, (size_t)want, 1.0);
    H5Dclose(id);
    again = H5Dopen2(h->file, path, dapl);
    H5Pclose(dapl);
    return again;
}

xpe_status xpe_dset_open(xpe_dset *d, xpe_h5 *h, const char *path, xpe_error *err)
{
    xpe_status st = XPE_OK;
    hid_t type = -1, space = -1;
    size_t element;
    int64_t chunk_bytes = 0;

    memset(d, 0, sizeof *d);
    d->id = -1;
    snprintf(d->path, sizeof d->path, "%s", path);
    switch (xpe_h5_look(h, path)) {
    case XPE_H5_DATASET:
        break;
    case XPE_H5_BROKEN:
        if (h->busy)
            return xpe_h5_fail_busy(h, path, err);
        return xpe_h5_fail(h, err, "'%s' is a link that leads nowhere%s%s", path,
                           h->denied[0] ? ": " : "", h->denied);
    case XPE_H5_ABSENT:
        return xpe_h5_fail(h, err, "there is no dataset '%s' in the file", path);
    default:
        return xpe_h5_fail(h, err, "'%s' is not a dataset", path);
    }
    d->id = H5Dopen2(h->file, path, h->lapl);
    type = d->id < 0 ? -1 : H5Dget_type(d->id);
    space = d->id < 0 ? -1 : H5Dget_space(d->id);
    if (type < 0 || space < 0) {
        char reason[256];
        xpe_h5_reason(reason, sizeof reason);
        st = xpe_h5_fail(h, err, "dataset '%s' cannot be opened: %s", path, reason);
        goto done;
    }
    element = H5Tget_size(type);
    element = element ? element : 1;
    classify(d, type);
    XPE_TRY(check_extent(d, h, space, err));
    XPE_TRY(check_storage(d, h, element, &chunk_bytes, err));
    d->id = reopen_with_cache(h, d->id, path, chunk_bytes);
    if (d->id < 0)
        st = xpe_h5_fail(h, err, "dataset '%s' cannot be opened again", path);
done:
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    if (st != XPE_OK)
        xpe_dset_close(d);
    return st;
}

void xpe_dset_close(xpe_dset *d)
{
    if (d->id > 0)
        H5Dclose(d->id);
    d->id = -1;
}

const char *xpe_dset_shape(const xpe_dset *d, char out[96])
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < d->rank && used < 72; i++)
        used += (size_t)snprintf(out + used, 96 - used, "[%llu]", (unsigned long long)d->dims[i]);
    if (d->rank == 0)
        snprintf(out, 96, "a single value");
    return out;
}

xpe_status xpe_dset_read(xpe_dset *d, xpe_h5 *h, int64_t first, int64_t count, hid_t memory_type,
                         void *out, xpe_error *err)
{
    xpe_status st = XPE_OK;
    hsize_t start[H5S_MAX_RANK] = {0}, size[H5S_MAX_RANK];
    hid_t file_space = H5Dget_space(d->id), memory_space = -1;
    char reason[256];

    if (d->is_virtual && !d->checked)
        st = xpe_h5_check_sources(h, d->id, d->path, err);
    else if (d->chunk[0] > 0)
        st = xpe_chunks_check(h, d->id, d->path, first, count, err);
    d->checked = true;
    if (st != XPE_OK)
        goto done;
    memcpy(size, d->dims, sizeof size);
    if (d->rank > 0) {
        start[0] = (hsize_t)first;
        size[0] = (hsize_t)count;
        memory_space = H5Screate_simple(d->rank, size, NULL);
    } else {
        memory_space = H5Screate(H5S_SCALAR);
    }
    if (file_space < 0 || memory_space < 0 ||
        (d->rank > 0 &&
         H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, size, NULL) < 0) ||
        H5Dread(d->id, memory_type, memory_space, file_space, H5P_DEFAULT, out) < 0) {
        xpe_h5_reason(reason, sizeof reason);
        st = xpe_h5_fail(h, err, "dataset '%s' cannot be read, the file may be damaged: %s",
                         d->path, reason);
    }
done:
    if (memory_space >= 0)
        H5Sclose(memory_space);
    if (file_space >= 0)
        H5Sclose(file_space);
    return st;
}
