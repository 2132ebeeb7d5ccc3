/* LZ4 (32004) and bitshuffle (32008), in which pixel detectors such as DECTRIS' write their frames.
 *
 * HDF5 1.10 has neither, and its plugins would be code that somebody puts into a folder; so both
 * are decoded here, on liblz4's bounded call, and given to HDF5 as filters of this process.  Every
 * way of reading (virtual datasets, parts of chunks, probes) then works as with gzip.
 *
 * A chunk of either is a header (bytes of the whole, 8; bytes of a block, 4; the highest first) and
 * blocks, each with its compressed length (4) in front.  LZ4 keeps a block that did not shrink as
 * it was.  Bitshuffle transposes the bits of each block of elements before it compresses; what is
 * no multiple of eight elements follows at the end as it was.
 *
 * The header is hostile: HDF5 1.10 copies a whole chunk out of what a filter hands back, however
 * long that is.  So the sizes of chunks that may come are noted when a dataset is checked, a
 * header that states another size is refused, and the buffer is never smaller than the largest. */
#include "h5.h"

#include <lz4.h>
#include <stdint.h>
#include <string.h>

#define LZ4_FILTER 32004
#define BITSHUFFLE_FILTER 32008
#define HEADER_BYTES 12
#define ELEMENT_BYTES_MAX 256
#define SIZES_MAX 512
#define WITH_LZ4 2 /* bitshuffle's parameter 4; 0: shuffled only, 3: Zstandard */

/* Sizes of whole chunks, of the datasets that were checked; one thread. */
static size_t sizes[SIZES_MAX], size_count, largest;

bool xpe_filters_expect(size_t chunk_bytes)
{
    for (size_t i = 0; i < size_count; i++)
        if (sizes[i] == chunk_bytes)
            return true;
    if (size_count == SIZES_MAX)
        return false;
    sizes[size_count++] = chunk_bytes;
    largest = chunk_bytes > largest ? chunk_bytes : largest;
    return true;
}

static bool expected(uint64_t bytes)
{
    for (size_t i = 0; i < size_count; i++)
        if (sizes[i] == bytes)
            return true;
    return false;
}

/* One sentence onto HDF5's error stack, where xpe_h5_reason finds it; 0 is how filters fail. */
#define REFUSE(...)                                                                                \
    (H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_PLINE, H5E_READERROR,    \
              __VA_ARGS__),                                                                        \
     (size_t)0)

static uint64_t big_endian(const uint8_t *p, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value = value << 8 | p[i];
    return value;
}

/* ---------------------------------------------------------------------------- bit transpose */

/* Bit k of the bytes of eight rows into the bits of one byte each: eight transposes of 8 x 8 bits
 * side by side in 64-bit words, by swaps of ever larger squares. */
static void transpose_bits(uint64_t r[8])
{
    static const struct {
        int step, shift;
        uint64_t mask;
    } rounds[] = {
        {1, 1, 0x5555555555555555}, {2, 2, 0x3333333333333333}, {4, 4, 0x0f0f0f0f0f0f0f0f}};

    for (int round = 0; round < 3; round++) {
        int step = rounds[round].step, shift = rounds[round].shift;
        for (int i = 0; i < 8; i++) {
            uint64_t t;
            if (i & step)
                continue;
            t = (r[i] >> shift ^ r[i + step]) & rounds[round].mask;
            r[i] ^= t << shift;
            r[i + step] ^= t;
        }
    }
}

/* count elements (a multiple of 8) of `size` bytes: row 8 b + k of `in` holds bit k of byte b of
 * every element, count / 8 bytes a row. */
static void unshuffle(uint8_t *restrict out, const uint8_t *restrict in, size_t count, size_t size)
{
    size_t row = count / 8;

    for (size_t b = 0; b < size; b++) {
        const uint8_t *rows = in + 8 * b * row;
        for (size_t g = 0; g < row; g += 8) {
            size_t width = row - g < 8 ? row - g : 8;
            uint64_t r[8] = {0};
            for (size_t k = 0; k < 8; k++)
                if (width == 8) /* of a length that the compiler knows: one load */
                    memcpy(&r[k], rows + k * row + g, 8);
                else
                    memcpy(&r[k], rows + k * row + g, width);
            transpose_bits(r);
            for (size_t j = 0; j < 8; j++) {
                uint8_t bytes[8], *at = out + (8 * g + j) * size + b;
                memcpy(bytes, &r[j], 8);
                for (size_t i = 0; i < width; i++)
                    at[8 * i * size] = bytes[i];
            }
        }
    }
}

/* -------------------------------------------------------------------------------- filters */

typedef struct source {
    const uint8_t *at;
    size_t left;
} source;

/* The next block into out[bytes]. */
static bool take_block(source *in, uint8_t *out, size_t bytes, bool may_be_raw)
{
    size_t packed;

    if (in->left < 4)
        return false;
    packed = (size_t)big_endian(in->at, 4);
    in->at += 4;
    in->left -= 4;
    if (packed > in->left || packed > INT32_MAX || bytes > INT32_MAX)
        return false;
    if (may_be_raw && packed == bytes)
        memcpy(out, in->at, bytes);
    else if (LZ4_decompress_safe((const char *)in->at, (char *)out, (int)packed, (int)bytes) !=
             (int)bytes)
        return false;
    in->at += packed;
    in->left -= packed;
    return true;
}

/* Hands `out` over in place of *buffer. */
static size_t hand_over(uint8_t *out, size_t bytes, size_t room, size_t *buffer_bytes,
                        void **buffer)
{
    memset(out + bytes, 0, room - bytes);
    H5free_memory(*buffer);
    *buffer = out;
    *buffer_bytes = room;
    return bytes;
}

static size_t decode_lz4(unsigned flags, size_t parameters, const unsigned values[], size_t bytes,
                         size_t *buffer_bytes, void **buffer)
{
    source in = {*buffer, bytes};
    uint64_t total;
    size_t block, room = largest, done = 0;
    uint8_t *out;

    (void)parameters, (void)values;
    if (!(flags & H5Z_FLAG_REVERSE))
        return REFUSE("LZ4 is only read here");
    if (bytes < HEADER_BYTES)
        return REFUSE("an LZ4 chunk of %zu bytes has no header", bytes);
    total = big_endian(in.at, 8);
    block = (size_t)big_endian(in.at + 8, 4);
    if (!expected(total))
        return REFUSE("an LZ4 chunk states %llu bytes, which is not the size of its chunk",
                      (unsigned long long)total);
    if (block == 0)
        return REFUSE("an LZ4 chunk states blocks of 0 bytes");
    in = (source){in.at + HEADER_BYTES, in.left - HEADER_BYTES};
    out = H5allocate_memory(room, false);
    if (!out)
        return REFUSE("host memory is exhausted: a chunk of %zu bytes", room);
    while (done < total) {
        size_t want = total - done < block ? (size_t)total - done : block;
        if (!take_block(&in, out + done, want, true)) {
            H5free_memory(out);
            return REFUSE("an LZ4 chunk is damaged at byte %zu of %zu", done, (size_t)total);
        }
        done += want;
    }
    return hand_over(out, (size_t)total, room, buffer_bytes, buffer);
}

/* Elements of `size` bytes, `block` of them at a time; `packed`: LZ4 in between. */
static bool unshuffle_all(uint8_t *out, uint8_t *scratch, source in, size_t count, size_t size,
                          size_t block, bool packed)
{
    size_t rest = count % 8 * size;

    count -= count % 8;
    for (size_t done = 0; done < count;) {
        size_t now = count - done < block ? count - done : block;
        const uint8_t *bits = scratch;
        if (packed) {
            if (!take_block(&in, scratch, now * size, false))
                return false;
        } else {
            bits = in.at;
            in.at += now * size;
            in.left -= now * size;
        }
        unshuffle(out + done * size, bits, now, size);
        done += now;
    }
    if (in.left < rest)
        return false;
    memcpy(out + count * size, in.at, rest);
    return true;
}

/* As the library does where no block size is stated: 8 KiB, a multiple of eight elements. */
static size_t default_block(size_t size)
{
    size_t block = 8192 / size / 8 * 8;

    return block < 128 ? 128 : block;
}

static size_t decode_bitshuffle(unsigned flags, size_t parameters, const unsigned values[],
                                size_t bytes, size_t *buffer_bytes, void **buffer)
{
    source in = {*buffer, bytes};
    bool packed = parameters > 4 && values[4] == WITH_LZ4, good;
    size_t size = parameters > 2 ? values[2] : 0, block = parameters > 3 ? values[3] : 0;
    size_t room = largest;
    uint64_t total = bytes;
    uint8_t *out, *scratch;

    if (!(flags & H5Z_FLAG_REVERSE))
        return REFUSE("bitshuffle is only read here");
    if (size == 0 || size > ELEMENT_BYTES_MAX)
        return REFUSE("a bitshuffle filter states elements of %zu bytes", size);
    if (packed) {
        if (bytes < HEADER_BYTES)
            return REFUSE("a bitshuffle chunk of %zu bytes has no header", bytes);
        total = big_endian(in.at, 8);
        block = (size_t)big_endian(in.at + 8, 4) / size;
        in = (source){in.at + HEADER_BYTES, in.left - HEADER_BYTES};
    }
    if (!expected(total) || total % size != 0)
        return REFUSE("a bitshuffle chunk states %llu bytes, which is not the size of its chunk",
                      (unsigned long long)total);
    block = block ? block : default_block(size);
    block = block < total / size ? block : (size_t)total / size / 8 * 8 + 8;
    if (block % 8 != 0)
        return REFUSE("a bitshuffle chunk states blocks of %zu elements, no multiple of 8", block);
    out = H5allocate_memory(room, false);
    scratch = H5allocate_memory(block * size, false);
    good = out && scratch &&
           unshuffle_all(out, scratch, in, (size_t)total / size, size, block, packed);
    H5free_memory(scratch);
    if (!good) {
        H5free_memory(out);
        return REFUSE("a bitshuffle chunk is damaged, or memory for its %zu bytes is exhausted",
                      (size_t)total);
    }
    return hand_over(out, (size_t)total, room, buffer_bytes, buffer);
}

bool xpe_filters_register(void)
{
    static const H5Z_class2_t
        lz4 = {H5Z_CLASS_T_VERS, LZ4_FILTER, 0, 1, "lz4", NULL, NULL, decode_lz4},
        bits = {H5Z_CLASS_T_VERS, BITSHUFFLE_FILTER, 0, 1, "bitshuffle", NULL, NULL,
                decode_bitshuffle};

    return H5Zregister(&lz4) >= 0 && H5Zregister(&bits) >= 0;
}

bool xpe_filters_can(int id, size_t parameters, const unsigned *values)
{
    if (id != BITSHUFFLE_FILTER)
        return true;
    return parameters > 2 && values[2] > 0 && values[2] <= ELEMENT_BYTES_MAX &&
           (parameters < 5 || values[4] == 0 || values[4] == WITH_LZ4);
}
