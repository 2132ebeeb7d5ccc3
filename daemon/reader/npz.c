/* Reading .npz: a zip of .npy files, itself perhaps compressed (bz2, gzip, xz, zstd), which
 * libarchive undoes. Sizes come from the arrays' own headers, so that a small file cannot claim
 * memory that it does not fill, and an entry that is longer or shorter than its header says is
 * refused. */
#include "npz.h"

#include "io/size.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX 256
#define BLOCK 65536

static xpe_status fail_archive(struct archive *a, const char *path, xpe_error *err)
{
    const char *text = archive_error_string(a);

    return xpe_fail(err, XPE_INVALID, "",
                    "'%.150s' is not a NumPy archive that can be read: %.180s", path,
                    text ? text : "no reason given");
}

/* Exactly size bytes; false at the end or on an error. */
static bool read_exactly(struct archive *a, uint8_t *out, size_t size)
{
    while (size) {
        la_ssize_t n = archive_read_data(a, out, size);
        if (n <= 0)
            return false;
        out += n;
        size -= (size_t)n;
    }
    return true;
}

static xpe_status read_header(xpd_entry *e, struct archive *a, xpe_error *err)
{
    uint8_t start[12], *header;
    size_t size;
    xpe_status st;

    if (!read_exactly(a, start, sizeof start) || (size = xpd_npy_header_size(start)) == 0)
        return xpe_fail(err, XPE_INVALID, "", "'%.80s' is not a NumPy array", e->name);
    header = malloc(size);
    if (!header)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    memcpy(header, start, sizeof start);
    st = read_exactly(a, header + sizeof start, size - sizeof start)
             ? xpd_npy_decode(&e->header, header, size, e->name, err)
             : xpe_fail(err, XPE_INVALID, "", "array '%.80s' ends within its header", e->name);
    free(header);
    return st;
}

/* Grows with what arrives, so that memory is taken for bytes that exist. */
static xpe_status read_elements(xpd_entry *e, struct archive *a, int64_t *memory_left,
                                xpe_error *err)
{
    int64_t need = e->header.count * e->header.item;
    size_t have = 0, room = 0;
    uint8_t *data = NULL, extra;
    char needed[32], available[32];

    if (need > *memory_left)
        return xpe_fail(
            err, XPE_NO_MEMORY, "", "array '%.80s' needs %s of memory, %s are available", e->name,
            xpe_size_text(needed, (double)need), xpe_size_text(available, (double)*memory_left));
    while (have < (size_t)need) {
        la_ssize_t n;
        if (have == room) {
            uint8_t *grown;
            room = room ? 2 * room : (size_t)1 << 20;
            room = room > (size_t)need ? (size_t)need : room;
            grown = realloc(data, room);
            if (!grown) {
                free(data);
                return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted: array '%.80s'",
                                e->name);
            }
            data = grown;
        }
        n = archive_read_data(a, data + have, room - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    if (have != (size_t)need || archive_read_data(a, &extra, 1) != 0) {
        free(data);
        return xpe_fail(err, XPE_INVALID, "",
                        "array '%.80s' does not have the %lld bytes that its header states (%s)",
                        e->name, (long long)need,
                        have == (size_t)need ? "more are there, or it is damaged"
                                             : "it ends early");
    }
    *memory_left -= need;
    e->data = data;
    return XPE_OK;
}

static bool is_wanted(const char *name, const char *const *wanted)
{
    for (; wanted && *wanted; wanted++)
        if (strcmp(*wanted, name) == 0)
            return true;
    return false;
}

static xpe_status add_entry(xpd_archive *out, struct archive *a, const char *path,
                            const char *const *wanted, int64_t *memory_left, xpe_error *err)
{
    xpd_entry *grown, *e;
    size_t length = strlen(path);
    xpe_error own = {0};
    xpe_status st;

    if (length < 5 || strcmp(path + length - 4, ".npy") != 0)
        return XPE_OK;
    if (out->count == ENTRIES_MAX)
        return xpe_fail(err, XPE_INVALID, "", "the archive holds more than %d arrays", ENTRIES_MAX);
    if (length - 4 >= sizeof e->name)
        return XPE_OK; /* a name that long is none of ours */
    grown = realloc(out->entries, (out->count + 1) * sizeof *grown);
    if (!grown)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    out->entries = grown;
    e = &out->entries[out->count++];
    memset(e, 0, sizeof *e);
    memcpy(e->name, path, length - 4);
    for (char *p = e->name; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = '?';
    st = read_header(e, a, &own);
    if (st == XPE_OK && is_wanted(e->name, wanted))
        st = read_elements(e, a, memory_left, &own);
    if (st == XPE_OK)
        return XPE_OK;
    snprintf(e->refusal, sizeof e->refusal, "%.255s", own.text);
    if (st != XPE_INVALID || is_wanted(e->name, wanted)) {
        if (err)
            *err = own;
        return st;
    }
    return XPE_OK; /* an array that nobody asked for may be what it likes */
}

xpe_status xpd_archive_read(xpd_archive *out, const char *path, const char *const *wanted,
                            int64_t memory_max, xpe_error *err)
{
    struct archive *a = archive_read_new();
    struct archive_entry *entry;
    xpe_status st = XPE_OK;
    int r;

    memset(out, 0, sizeof *out);
    if (!a)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    /* not all: some of libarchive's start programs */
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_bzip2(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_format_zip(a);
    if (archive_read_open_filename(a, path, BLOCK) != ARCHIVE_OK) {
        st = errno == ENOENT ? xpe_fail(err, XPE_INVALID, "", "'%.200s' does not exist", path)
                             : fail_archive(a, path, err);
        goto done;
    }
    while ((r = archive_read_next_header(a, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        const char *name = archive_entry_pathname(entry);
        if (!name)
            continue;
        st = add_entry(out, a, name, wanted, &memory_max, err);
        if (st != XPE_OK)
            goto done;
    }
    if (r != ARCHIVE_EOF)
        st = fail_archive(a, path, err);
    else if (out->count == 0)
        st = xpe_fail(err, XPE_INVALID, "", "'%.200s' holds no NumPy arrays", path);
done:
    archive_read_free(a);
    if (st != XPE_OK)
        xpd_archive_release(out);
    return st;
}

void xpd_archive_release(xpd_archive *archive)
{
    for (size_t i = 0; i < archive->count; i++)
        free(archive->entries[i].data);
    free(archive->entries);
    archive->entries = NULL;
    archive->count = 0;
}

xpd_entry *xpd_archive_find(const xpd_archive *archive, const char *name)
{
    for (size_t i = 0; i < archive->count; i++)
        if (strcmp(archive->entries[i].name, name) == 0)
            return &archive->entries[i];
    return NULL;
}
