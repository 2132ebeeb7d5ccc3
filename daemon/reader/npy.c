/* The .npy format: a magic number, a version, and a Python literal with three keys.  The literal is
 * read by a parser of exactly that much Python; what it does not know it refuses. */
#include "npy.h"

#include "io/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t xpd_npy_header_size(const uint8_t s[12])
{
    size_t length;

    if (memcmp(s, "\x93NUMPY", 6) != 0)
        return 0;
    if (s[6] == 1)
        length = 10 + ((size_t)s[8] | (size_t)s[9] << 8);
    else if (s[6] == 2 || s[6] == 3)
        length =
            12 + ((size_t)s[8] | (size_t)s[9] << 8 | (size_t)s[10] << 16 | (size_t)s[11] << 24);
    else
        return 0;
    return length <= XPD_NPY_HEADER_MAX && length >= 12 ? length : 0;
}

/* --------------------------------------------------------------------------------- the literal */

typedef struct cursor {
    const char *p, *end;
} cursor;

static void skip(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t'))
        c->p++;
}

static bool take(cursor *c, char expected)
{
    skip(c);
    if (c->p == c->end || *c->p != expected)
        return false;
    c->p++;
    return true;
}

static bool take_word(cursor *c, const char *word)
{
    size_t length = strlen(word);

    skip(c);
    if ((size_t)(c->end - c->p) < length || memcmp(c->p, word, length) != 0)
        return false;
    c->p += length;
    return true;
}

static bool take_text(cursor *c, char out[32])
{
    char quote;
    size_t n = 0;

    skip(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    quote = *c->p++;
    /* printable only: a type that is refused stands in the message */
    while (c->p < c->end && *c->p != quote && *c->p != '\\' && *c->p >= ' ' && *c->p <= '~' &&
           n < 31)
        out[n++] = *c->p++;
    out[n] = '\0';
    return take(c, quote);
}

static bool take_shape(cursor *c, xpd_npy *out)
{
    if (!take(c, '('))
        return false;
    out->rank = 0;
    while (!take(c, ')')) {
        int64_t value = 0;
        const char *start;
        skip(c);
        start = c->p;
        while (c->p < c->end && *c->p >= '0' && *c->p <= '9' && value < ((int64_t)1 << 52))
            value = value * 10 + (*c->p++ - '0');
        if (c->p == start || value >= ((int64_t)1 << 52) || out->rank == XPD_NPY_RANK_MAX)
            return false;
        out->shape[out->rank++] = value;
        if (!take(c, ',')) {
            if (!take(c, ')'))
                return false;
            return true;
        }
    }
    return true;
}

/* "<f4" and the like; false for anything else, objects included. */
static bool take_type(xpd_npy *out, const char *descr)
{
    static const char *const known[] = {"b1", "i1", "u1", "i2", "u2", "i4", "u4",
                                        "i8", "u8", "f2", "f4", "f8", "c8", "c16"};
    char order = descr[0];

    if (order == '\0' || !strchr("<>|=", order))
        return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(descr + 1, known[i]) == 0) {
            out->kind = descr[1];
            out->item = atoi(descr + 2);
            out->swapped = order == '>' && out->item > 1;
            return out->item == 1 || order != '|';
        }
    return false;
}

static xpe_status settle(xpd_npy *out, const char *name, xpe_error *err)
{
    out->count = 1;
    for (int i = 0; i < out->rank; i++) {
        if (out->shape[i] == 0)
            return xpe_fail(err, XPE_INVALID, "", "array '%.80s' is empty (axis %d has length 0)",
                            name, i);
        if (out->count > ((int64_t)1 << 52) / out->shape[i])
            return xpe_fail(err, XPE_INVALID, "", "array '%.80s' is too large for any memory",
                            name);
        out->count *= out->shape[i];
    }
    return XPE_OK;
}

xpe_status xpd_npy_decode(xpd_npy *out, const uint8_t *header, size_t size, const char *name,
                          xpe_error *err)
{
    size_t start = header[6] == 1 ? 10 : 12;
    cursor c = {(const char *)header + start, (const char *)header + size};
    char key[32], descr[32] = "";
    bool has_order = false, has_shape = false, good;

    memset(out, 0, sizeof *out);
    good = take(&c, '{');
    while (good && !take(&c, '}')) {
        good = take_text(&c, key) && take(&c, ':');
        if (good && strcmp(key, "descr") == 0) {
            skip(&c);
            if (c.p < c.end && *c.p == '[')
                return xpe_fail(err, XPE_INVALID, "",
                                "array '%.80s' has a structured type; plain numbers are needed",
                                name);
            good = take_text(&c, descr);
        } else if (good && strcmp(key, "fortran_order") == 0) {
            out->fortran = take_word(&c, "True");
            good = has_order = out->fortran || take_word(&c, "False");
        } else if (good && strcmp(key, "shape") == 0) {
            good = has_shape = take_shape(&c, out);
        } else {
            good = false;
        }
        if (good && !take(&c, ',')) {
            good = take(&c, '}');
            break;
        }
    }
    if (!good || !descr[0] || !has_order || !has_shape)
        return xpe_fail(err, XPE_INVALID, "", "array '%.80s' has a header that is not understood",
                        name);
    if (strchr(descr, 'O'))
        return xpe_fail(
            err, XPE_INVALID, "",
            "array '%.80s' holds pickled Python objects, which are never loaded; save it as "
            "numbers",
            name);
    if (!take_type(out, descr))
        return xpe_fail(
            err, XPE_INVALID, "",
            "array '%.80s' has type '%s'; integers, floats and complex numbers are read", name,
            descr);
    return settle(out, name, err);
}

void xpd_npy_squeeze(xpd_npy *a, int rank)
{
    while (a->rank > rank && a->shape[0] == 1) {
        memmove(a->shape, a->shape + 1, sizeof a->shape - sizeof a->shape[0]);
        a->rank--;
    }
}

const char *xpd_npy_shape(const xpd_npy *a, char out[128])
{
    size_t used = 0;

    snprintf(out, 128, "a single value");
    for (int i = 0; i < a->rank && used < 100; i++)
        used += (size_t)snprintf(out + used, 128 - used, "[%lld]", (long long)a->shape[i]);
    return out;
}

/* ------------------------------------------------------------------------------------ elements */

static void swap_bytes(uint8_t *data, int64_t count, int width)
{
    for (int64_t i = 0; i < count; i++, data += width)
        for (int a = 0, b = width - 1; a < b; a++, b--) {
            uint8_t t = data[a];
            data[a] = data[b];
            data[b] = t;
        }
}

static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = (h >> 10) & 31, mantissa = h & 1023, bits;
    float value;

    if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Fortran order: the first index runs fastest in the source. */
static void to_c_order(const xpd_npy *a, const uint8_t *from, uint8_t *to)
{
    int64_t index[XPD_NPY_RANK_MAX] = {0}, stride[XPD_NPY_RANK_MAX], at = 0;
    size_t item = (size_t)a->item;

    for (int i = 0; i < a->rank; i++)
        stride[i] = i ? stride[i - 1] * a->shape[i - 1] : 1;
    for (int64_t k = 0; k < a->count; k++) {
        memcpy(to + (size_t)k * item, from + (size_t)at * item, item);
        for (int i = a->rank - 1; i >= 0; i--) {
            at += stride[i];
            if (++index[i] < a->shape[i])
                break;
            at -= stride[i] * a->shape[i];
            index[i] = 0;
        }
    }
}

xpe_status xpd_npy_normalise(xpd_npy *a, void **data, xpe_error *err)
{
    size_t bytes = (size_t)a->count * (size_t)a->item;
    char size[32];
    void *other;

    if (a->swapped)
        swap_bytes(*data, a->kind == 'c' ? 2 * a->count : a->count,
                   a->kind == 'c' ? a->item / 2 : a->item);
    a->swapped = false;
    if (a->fortran && a->rank > 1) {
        other = malloc(bytes);
        if (!other)
            return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: %s",
                            xpe_size_text(size, (double)bytes));
        to_c_order(a, *data, other);
        free(*data);
        *data = other;
    }
    a->fortran = false;
    if (a->kind == 'f' && a->item == 2) {
        const uint16_t *halves = *data;
        float *floats = malloc(2 * bytes);
        if (!floats)
            return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: %s",
                            xpe_size_text(size, 2 * (double)bytes));
        for (int64_t i = 0; i < a->count; i++)
            floats[i] = half_to_float(halves[i]);
        free(*data);
        *data = floats;
        a->item = 4;
    }
    if (a->kind == 'b')
        a->kind = 'u';
    return XPE_OK;
}

bool xpd_npy_type(const xpd_npy *a, xpe_type *out)
{
    char name[16];

    if (a->kind != 'i' && a->kind != 'u' && a->kind != 'f')
        return false;
    snprintf(name, sizeof name, "%s%d",
             a->kind == 'f'   ? "float"
             : a->kind == 'i' ? "int"
                              : "uint",
             8 * a->item);
    return xpe_type_find(out, name);
}
