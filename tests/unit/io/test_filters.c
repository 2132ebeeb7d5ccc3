/* LZ4 and bitshuffle chunks (engine/io/read/filters.c): what a naive encoder here and PyPI's
 * bitshuffle wrote comes back, what is damaged is refused with a reason. */
#include "io/read/h5.h"

#include <lz4.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LZ4_FILTER 32004
#define BITSHUFFLE_FILTER 32008

/* ------------------------------------------------------------------------------- encoding */

static void put(uint8_t *p, uint64_t value, int bytes)
{
    for (int i = bytes; i-- > 0; value >>= 8)
        p[i] = (uint8_t)value;
}

/* Bit by bit, as the format says. */
static void shuffle(uint8_t *out, const uint8_t *in, size_t count, size_t size)
{
    memset(out, 0, count * size);
    for (size_t e = 0; e < count; e++)
        for (size_t bit = 0; bit < 8 * size; bit++)
            if (in[e * size + bit / 8] >> bit % 8 & 1)
                out[bit * (count / 8) + e / 8] |= (uint8_t)(1 << e % 8);
}

/* A chunk as the filter's writers store it; block in elements.  Returns its bytes. */
static size_t encode(uint8_t *out, const uint8_t *in, size_t count, size_t size, size_t block,
                     bool bits, bool packed)
{
    uint8_t *scratch = malloc(count * size + 8);
    size_t at = 0, step, whole = bits ? count - count % 8 : count;

    if (packed) {
        put(out, count * size, 8);
        put(out + 8, block * size, 4);
        at = 12;
    }
    for (size_t done = 0; done < whole; done += step) {
        step = whole - done < block ? whole - done : block;
        if (bits)
            shuffle(scratch, in + done * size, step, size);
        else
            memcpy(scratch, in + done * size, step * size);
        if (packed) {
            int n = LZ4_compress_default((const char *)scratch, (char *)out + at + 4,
                                         (int)(step * size), 1 << 20);
            assert_true(n > 0);
            if (!bits && (size_t)n >= step * size) { /* LZ4 keeps what does not shrink */
                n = (int)(step * size);
                memcpy(out + at + 4, scratch, step * size);
            }
            put(out + at, (uint64_t)n, 4);
            at += 4 + (size_t)n;
        } else {
            memcpy(out + at, scratch, step * size);
            at += step * size;
        }
    }
    memcpy(out + at, in + whole * size, (count - whole) * size);
    free(scratch);
    return at + (count - whole) * size;
}

/* ---------------------------------------------------------------------------- a file of one chunk
 */

typedef struct fixture {
    char path[64];
    xpe_h5 h;
    xpe_dset d;
    bool open;
} fixture;

/* The chunk is put there as it is.  HDF5 makes no dataset with a filter that can only decode, but
 * one with an optional filter that it does not know. */
static void write_chunk(fixture *f, int filter, unsigned mode, const uint8_t *chunk, size_t bytes,
                        size_t count, size_t size)
{
    hsize_t dims = count, start = 0;
    const unsigned values[5] = {0, 3, (unsigned)size, 0, mode};
    hid_t type = H5Tcreate(H5T_OPAQUE, size), space = H5Screate_simple(1, &dims, NULL),
          plist = H5Pcreate(H5P_DATASET_CREATE), file, dataset;

    snprintf(f->path, sizeof f->path, "/tmp/xptychod-filters-%d.h5", (int)getpid());
    unlink(f->path);
    H5Zunregister(filter);
    file = H5Fcreate(f->path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Pset_chunk(plist, 1, &dims);
    H5Pset_filter(plist, filter, H5Z_FLAG_OPTIONAL, filter == LZ4_FILTER ? 0 : 5, values);
    dataset = H5Dcreate2(file, "a", type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    assert_true(dataset >= 0);
    assert_true(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, &start, bytes, chunk) >= 0);
    H5Dclose(dataset);
    H5Pclose(plist);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
    assert_true(xpe_filters_register());
}

/* The bytes of the file's dataset; "" or why not. */
static const char *read_back(fixture *f, uint8_t *out, size_t size, xpe_error *err)
{
    xpe_status st = xpe_h5_open(&f->h, f->path, NULL, "/scan/path", err);
    hid_t type = H5Tcreate(H5T_OPAQUE, size);

    memset(&f->d, 0, sizeof f->d);
    f->d.id = -1;
    err->text[0] = '\0';
    assert_int_equal(st, XPE_OK);
    st = xpe_dset_open(&f->d, &f->h, "/a", err);
    if (st == XPE_OK)
        st = xpe_dset_read(&f->d, &f->h, 0, (int64_t)f->d.dims[0], type, out, err);
    H5Tclose(type);
    xpe_dset_close(&f->d);
    xpe_h5_close(&f->h);
    unlink(f->path);
    return st == XPE_OK ? "" : err->text;
}

static void fill(uint8_t *data, size_t bytes, bool noise)
{
    uint32_t x = 12345;

    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525 + 1013904223;
        data[i] = noise ? (uint8_t)(x >> 24) : (uint8_t)(i % 7 == 0 ? x >> 28 : 0);
    }
}

static void every_size_of_element_and_chunk_comes_back(void **state)
{
    static const size_t element[] = {1, 2, 3, 4, 6, 8, 10, 16},
                        counts[] = {1, 7, 8, 63, 64, 65, 200, 1000, 4103}, blocks[] = {8, 64, 1024};
    uint8_t *data = malloc(1 << 17), *chunk = malloc(1 << 18), *back = malloc(1 << 17);
    fixture f;
    xpe_error err;

    (void)state;
    for (size_t s = 0; s < sizeof element / sizeof *element; s++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (unsigned way = 0; way < 6; way++) {
                size_t size = element[s], count = counts[c], bytes = size * count, stored;
                size_t block = blocks[(s + c) % 3];
                bool bits = way < 4, packed = way != 0;
                fill(data, bytes, way % 2);
                stored = encode(chunk, data, count, size, packed ? block : 8192 / size / 8 * 8,
                                bits, packed);
                if (c % 4) /* else its size is new to the filters, too */
                    memset(back, 0xaa, bytes);
                write_chunk(&f, bits ? BITSHUFFLE_FILTER : LZ4_FILTER, packed ? 2 : 0, chunk,
                            stored, count, size);
                assert_string_equal(read_back(&f, back, size, &err), "");
                assert_memory_equal(back, data, bytes);
            }
    free(back);
    free(chunk);
    free(data);
}

/* Changed at `at`, the chunk must be refused with `words`; NULL: anything but a crash. */
static void damage(int filter, size_t at, uint8_t value, size_t cut, const char *words)
{
    uint8_t data[4096], chunk[8192], back[4096];
    size_t stored;
    fixture f;
    xpe_error err;
    const char *said;

    fill(data, sizeof data, false);
    stored = encode(chunk, data, sizeof data / 4, 4, 256, filter == BITSHUFFLE_FILTER, true);
    if (at < stored)
        chunk[at] = value;
    stored = cut && cut < stored ? cut : stored;
    write_chunk(&f, filter, 2, chunk, stored, sizeof data / 4, 4);
    said = read_back(&f, back, 4, &err);
    if (words && !strstr(said, words))
        fail_msg("byte %zu = %u, cut %zu: '%s' lacks '%s'", at, value, cut, said, words);
}

static void what_is_damaged_is_refused_with_its_reason(void **state)
{
    static const int filters[] = {LZ4_FILTER, BITSHUFFLE_FILTER};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        damage(filters[i], 0, 0x7f, 0, "not the size of its chunk"); /* 2^63 bytes */
        damage(filters[i], 7, 0xff, 0, "not the size of its chunk"); /* a little more */
        damage(filters[i], 6, 0x08, 0, "not the size of its chunk"); /* half */
        damage(filters[i], 12, 0xff, 0, "damaged");                  /* a block of 4 GiB */
        damage(filters[i], 15, 0x01, 0, "damaged");                  /* a block of a byte */
        damage(filters[i], 0, 0, 11, "has no header");
        damage(filters[i], 0, 0, 13, "damaged");
        damage(filters[i], 0, 0, 40, "damaged");
    }
    damage(BITSHUFFLE_FILTER, 11, 4, 0, "no multiple of 8");
    for (size_t i = 0; i < 2; i++)
        for (size_t at = 8; at < 200; at++)
            damage(filters[i], at, (uint8_t)(at * 37), 0, NULL);
}

static void forms_without_a_decoder_are_named_before_reading(void **state)
{
    uint8_t data[64] = {0}, chunk[256], back[64];
    fixture f;
    xpe_error err;
    size_t stored = encode(chunk, data, 16, 4, 16, true, true);

    (void)state;
    write_chunk(&f, BITSHUFFLE_FILTER, 3, chunk, stored, 16, 4);
    assert_non_null(
        strstr(read_back(&f, back, 4, &err), "in a form that this reader does not have"));
}

/* Of PyPI's bitshuffle 0.4.0, odd sizes of elements; the same data lies beside it uncompressed. */
static herr_t compare(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    hid_t packed = H5Dopen2(group, name, H5P_DEFAULT), plain, type, space;
    uint8_t a[4096], b[4096];
    char path[128];

    (void)info;
    snprintf(path, sizeof path, "/original/%.100s", name);
    plain = H5Dopen2(group, path, H5P_DEFAULT);
    type = H5Dget_type(packed);
    space = H5Dget_space(packed);
    assert_true(plain >= 0 && H5Dget_storage_size(plain) <= sizeof a);
    assert_true(xpe_h5_expect_chunks(packed));
    assert_true(H5Dread(packed, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, a) >= 0);
    assert_true(H5Dread(plain, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, b) >= 0);
    assert_memory_equal(a, b, H5Dget_storage_size(plain));
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(plain);
    H5Dclose(packed);
    ++*(int *)data;
    return 0;
}

static void what_another_program_wrote_comes_back(void **state)
{
    const char *folder = getenv("XPTYCHOD_DATA");
    char path[4096];
    int count = 0;
    hsize_t index = 0;
    hid_t file, group;

    (void)state;
    snprintf(path, sizeof path, "%s/eiger4m-bitshuffle/bitshuffle_regression_0.4.0.h5",
             folder ? folder : XPTYCHOD_TEST_DATA);
    if (access(path, R_OK) != 0) {
        print_message("'%s' is not here; set XPTYCHOD_DATA\n", path);
        skip();
    }
    file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    group = H5Gopen2(file, "/compressed", H5P_DEFAULT);
    assert_true(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &index, compare, &count) >= 0);
    assert_int_equal(count, 21);
    H5Gclose(group);
    H5Fclose(file);
}

/* The frame of a detector as it wrote it; the numbers are those of PyPI's hdf5plugin 7.1.0. */
static void a_frame_of_a_detector_comes_back(void **state)
{
    const char *folder = getenv("XPTYCHOD_DATA");
    char path[4096];
    xpe_h5 h;
    xpe_dset d;
    xpe_error err;
    uint32_t *frame;
    uint64_t sum = 0;

    (void)state;
    snprintf(path, sizeof path, "%s/eiger4m-bitshuffle/eiger4m_bitshuffle_lz4.h5",
             folder ? folder : XPTYCHOD_TEST_DATA);
    if (access(path, R_OK) != 0) {
        print_message("'%s' is not here; set XPTYCHOD_DATA\n", path);
        skip();
    }
    assert_int_equal(xpe_h5_open(&h, path, NULL, "/scan/path", &err), XPE_OK);
    assert_int_equal(xpe_dset_open(&d, &h, "/entry/data/data", &err), XPE_OK);
    assert_int_equal(d.type, XPE_U32);
    frame = malloc((size_t)d.count * 4);
    assert_int_equal(xpe_dset_read(&d, &h, 0, 1, xpe_h5_memory_type(d.type), frame, &err), XPE_OK);
    for (int64_t i = 0; i < d.count; i++)
        sum += frame[i];
    assert_int_equal(d.count, 2167 * 2070);
    assert_true(sum == 1079334039595732u);
    assert_int_equal(frame[1000 * 2070 + 1000], 62);
    free(frame);
    xpe_dset_close(&d);
    xpe_h5_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_of_element_and_chunk_comes_back),
        cmocka_unit_test(what_is_damaged_is_refused_with_its_reason),
        cmocka_unit_test(forms_without_a_decoder_are_named_before_reading),
        cmocka_unit_test(what_another_program_wrote_comes_back),
        cmocka_unit_test(a_frame_of_a_detector_comes_back),
    };

    xpe_read_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
