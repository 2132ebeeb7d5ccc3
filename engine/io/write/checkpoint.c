/* See checkpoint.h.  A file is: header of fixed size, records, refined positions and gain, start
 * probe, the stream of the engine, footer.  The footer is the length of everything before it and
 * the SHA-256 of all that, the length included; so a file that was cut, that lost a page in a power
 * failure or that rotted is known by one look at every byte, which is taken before the first byte
 * is believed.
 *
 * Little-endian and in the layout of this machine: a checkpoint is read by the build that wrote it
 * and no other.
 *
 * The stream is written as it comes, in the engine's slabs, and the system is told at once to begin
 * with each on the disk: nothing of the size of the state is held in memory.  After a failed fsync
 * the kernel may have dropped the pages and will say "done" next time, so the descriptor is given
 * up and the file with it. */
#include "checkpoint.h"

#include "backend/util.h"
#include "io/size.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define VERSION 1
#define RECORDS_MAX ((int64_t)1 << 28)
#define READ_CHUNK ((size_t)4 << 20)
#define PATH_SIZE 4096

static const char magic[8] = {'X', 'P', 'C', 'K', 'P', 'T', '\r', '\n'};

typedef struct header {
    char magic[8];
    uint32_t version, bytes;
    char build[160], device[96], job[32];
    uint8_t scan[XPE_CHECKPOINT_HASH], recon[XPE_CHECKPOINT_HASH];
    int32_t stage, iteration, start_modes, has_positions, has_gain, reserved;
    int64_t num_frames, n, rows, cols;
    double origin_m[2], pitch_m, seconds;
    int64_t record_count;
} header;

typedef struct footer {
    int64_t length; /* of the file without the footer */
    uint8_t hash[XPE_CHECKPOINT_HASH];
} footer;

static xpe_status fail_errno(xpe_error *err, const char *path, const char *what, int code,
                             int64_t bytes)
{
    char text[80];

    return xpe_fail(err, XPE_IO, "", "checkpoint '%.200s': %s after %lld bytes: %s (errno %d)",
                    path, what, (long long)bytes, strerror_r(code, text, sizeof text), code);
}

static bool name_of(char *out, const char *folder, int slot, const char *end)
{
    int length = snprintf(out, PATH_SIZE, "%s/checkpoint.%d%s", folder, slot, end);

    return length > 0 && length < PATH_SIZE;
}

/* Bytes of what follows the header and comes before the stream. */
static int64_t carried_bytes(const header *h)
{
    int64_t bytes = h->record_count * (int64_t)sizeof(xpe_checkpoint_record);

    bytes += h->has_positions ? h->num_frames * 2 * (int64_t)sizeof(double) : 0;
    bytes += h->has_gain ? h->num_frames * (int64_t)sizeof(double) : 0;
    return bytes + h->start_modes * h->n * h->n * (int64_t)sizeof(xpe_c32);
}

/* ------------------------------------------------------------------------------------ writing */

struct xpe_checkpoint_writer {
    char path[PATH_SIZE], temporary[PATH_SIZE];
    int folder, fd;
    bool failed;
    int64_t written;
    int64_t expected; /* bytes of the stream, about */
    header head;
    struct sha256_ctx hash;
};

static xpe_status put_bytes(xpe_checkpoint_writer *w, const void *data, size_t bytes,
                            xpe_error *err)
{
    const char *at = data;

    for (size_t left = bytes; left > 0;) {
        ssize_t done = write(w->fd, at, left);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            w->failed = true;
            return fail_errno(err, w->path, "cannot be written", done < 0 ? errno : ENOSPC,
                              w->written);
        }
        at += done;
        left -= (size_t)done;
        w->written += done;
    }
    return XPE_OK;
}

xpe_status xpe_checkpoint_put(void *writer, const void *data, size_t bytes, xpe_error *err)
{
    xpe_checkpoint_writer *w = writer;
    int64_t from = w->written;
    xpe_status st;

    if (w->failed)
        return xpe_fail(err, XPE_IO, "", "checkpoint '%.200s': it failed before", w->path);
    st = put_bytes(w, data, bytes, err);
    if (st != XPE_OK)
        return st;
    if (bytes >= READ_CHUNK)
        sync_file_range(w->fd, from, (off_t)bytes,
                        SYNC_FILE_RANGE_WRITE); /* a hint; fsync is what counts */
    sha256_update(&w->hash, bytes, data);
    return XPE_OK;
}

static void head_fill(header *h, const xpe_checkpoint *c)
{
    *h = (header){.version = VERSION,
                  .bytes = sizeof *h,
                  .stage = c->stage,
                  .iteration = c->iteration,
                  .start_modes = c->start_probe ? c->start_modes : 0,
                  .has_positions = c->positions != NULL,
                  .has_gain = c->gain != NULL,
                  .num_frames = c->num_frames,
                  .n = c->n,
                  .rows = c->grid.rows,
                  .cols = c->grid.cols,
                  .origin_m = {c->grid.origin_m[0], c->grid.origin_m[1]},
                  .pitch_m = c->grid.pitch_m,
                  .seconds = c->seconds,
                  .record_count = c->record_count};
    memcpy(h->magic, magic, sizeof magic);
    snprintf(h->build, sizeof h->build, "%s", c->build);
    snprintf(h->device, sizeof h->device, "%s", c->device);
    snprintf(h->job, sizeof h->job, "%s", c->job);
    memcpy(h->scan, c->scan, sizeof h->scan);
    memcpy(h->recon, c->recon, sizeof h->recon);
}

static xpe_status put_head(xpe_checkpoint_writer *w, const xpe_checkpoint *c, xpe_error *err)
{
    const header *h = &w->head;
    size_t frames = (size_t)h->num_frames;
    xpe_status st;

    XPE_TRY(xpe_checkpoint_put(w, h, sizeof *h, err));
    XPE_TRY(xpe_checkpoint_put(w, c->records, (size_t)h->record_count * sizeof *c->records, err));
    if (h->has_positions)
        XPE_TRY(xpe_checkpoint_put(w, c->positions, frames * 2 * sizeof *c->positions, err));
    if (h->has_gain)
        XPE_TRY(xpe_checkpoint_put(w, c->gain, frames * sizeof *c->gain, err));
    if (h->start_modes)
        XPE_TRY(xpe_checkpoint_put(w, c->start_probe,
                                   (size_t)(h->start_modes * h->n * h->n) * sizeof *c->start_probe,
                                   err));
done:
    return st;
}

static xpe_status check_room(const xpe_checkpoint_writer *w, xpe_error *err)
{
    int64_t bytes = (int64_t)sizeof w->head + carried_bytes(&w->head) + w->expected;
    struct statvfs v;
    char size[32], available[32];

    if (fstatvfs(w->folder, &v) != 0 || v.f_blocks == 0)
        return XPE_OK; /* a file system that does not say */
    if ((double)v.f_bavail * (double)v.f_frsize >= (double)bytes + (double)XPE_CHECKPOINT_SPARE)
        return XPE_OK;
    return xpe_fail(err, XPE_IO, "",
                    "checkpoint '%.200s': %lld bytes (%s) would leave less than %lld MiB on the "
                    "disk, where %s are free (errno %d)",
                    w->path, (long long)bytes, xpe_size_text(size, (double)bytes),
                    (long long)(XPE_CHECKPOINT_SPARE >> 20),
                    xpe_size_text(available, (double)v.f_bavail * (double)v.f_frsize), ENOSPC);
}

xpe_status xpe_checkpoint_begin(xpe_checkpoint_writer **out, const char *folder, int slot,
                                const xpe_checkpoint *c, int64_t expected, xpe_error *err)
{
    xpe_checkpoint_writer *w = NULL;
    xpe_status st;

    *out = NULL;
    XPE_TRY(xpe_new(&w, 1, sizeof *w, err));
    w->fd = w->folder = -1;
    sha256_init(&w->hash);
    head_fill(&w->head, c);
    w->expected = expected;
    if (!name_of(w->path, folder, slot, "") || !name_of(w->temporary, folder, slot, ".tmp")) {
        w->temporary[0] = 0;
        st = xpe_fail(err, XPE_IO, "", "checkpoint: the path of its folder is too long (%zu bytes)",
                      strlen(folder));
        goto done;
    }
    w->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->folder < 0) {
        st = fail_errno(err, w->path, "its folder cannot be opened", errno, 0);
        goto done;
    }
    XPE_TRY(check_room(w, err));
    unlink(w->temporary); /* of a process that was killed; nobody else writes here */
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (w->fd < 0) {
        st = fail_errno(err, w->path, "cannot be made", errno, 0);
        goto done;
    }
    XPE_TRY(put_head(w, c, err));
    *out = w;
    w = NULL;
done:
    xpe_checkpoint_writer_destroy(w);
    return st;
}

/* The descriptor is gone afterwards, whatever came of it. */
static xpe_status sync_and_close(xpe_checkpoint_writer *w, xpe_error *err)
{
    int fd = w->fd;

    w->fd = -1;
    if (fsync(fd) != 0) {
        int code = errno;

        close(fd);
        return fail_errno(err, w->path, "cannot be synced", code, w->written);
    }
    return close(fd) == 0 ? XPE_OK
                          : fail_errno(err, w->path, "cannot be closed", errno, w->written);
}

xpe_status xpe_checkpoint_finish(xpe_checkpoint_writer *w, int64_t *bytes, xpe_error *err)
{
    footer end = {.length = w->written};
    xpe_status st;

    if (w->failed)
        return xpe_fail(err, XPE_IO, "", "checkpoint '%.200s': it failed before", w->path);
    w->failed = true; /* until all of it is done */
    sha256_update(&w->hash, sizeof end.length, (const uint8_t *)&end.length);
    sha256_digest(&w->hash, sizeof end.hash, end.hash);
    XPE_TRY(put_bytes(w, &end, sizeof end, err));
    XPE_TRY(sync_and_close(w, err));
    if (rename(w->temporary, w->path) != 0) {
        st = fail_errno(err, w->path, "cannot be renamed", errno, w->written);
        goto done;
    }
    w->temporary[0] = 0;
    if (fsync(w->folder) != 0) {
        st = fail_errno(err, w->path, "its folder cannot be synced", errno, w->written);
        goto done;
    }
    *bytes = w->written;
    w->failed = false;
done:
    return st;
}

void xpe_checkpoint_writer_destroy(xpe_checkpoint_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary[0])
        unlink(w->temporary);
    if (w->folder >= 0)
        close(w->folder);
    free(w);
}

/* ------------------------------------------------------------------------------------ reading */

struct xpe_checkpoint_reader {
    char path[PATH_SIZE];
    int fd, slot;
    int64_t size, at; /* of the file; what comes next of the stream */
    header head;
    xpe_checkpoint found;
    void *carried; /* what found points into */
};

static xpe_status read_at(xpe_checkpoint_reader *r, void *out, size_t bytes, int64_t offset,
                          xpe_error *err)
{
    char *to = out;

    while (bytes > 0) {
        ssize_t got = pread(r->fd, to, bytes, offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(err, r->path, "cannot be read", errno, offset);
        if (got == 0)
            return xpe_fail(err, XPE_INVALID, "", "checkpoint '%.200s': it ends at byte %lld",
                            r->path, (long long)offset);
        to += got;
        bytes -= (size_t)got;
        offset += got;
    }
    return XPE_OK;
}

static bool ends(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

/* Numbers that would overflow or that no run has; the hash is looked at later. */
static bool sane(const header *h, int64_t size)
{
    const int64_t side = (int64_t)1 << 31;

    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->version != VERSION ||
        h->bytes != sizeof *h)
        return false;
    if (h->record_count < 1 || h->record_count > RECORDS_MAX || h->num_frames < 1 ||
        h->num_frames > side || h->n < 1 || h->n > 65536 || h->start_modes < 0 ||
        h->start_modes > 4096 || h->stage < 0 || h->iteration < 1 ||
        h->iteration > h->record_count || h->rows < 1 || h->rows > side || h->cols < 1 ||
        h->cols > side)
        return false;
    return ends(h->build, sizeof h->build) && ends(h->device, sizeof h->device) &&
           ends(h->job, sizeof h->job) &&
           (int64_t)sizeof *h + carried_bytes(h) + (int64_t)sizeof(footer) <= size;
}

/* Every byte; the state is believed or not as a whole. */
static xpe_status check_hash(xpe_checkpoint_reader *r, xpe_error *err)
{
    struct sha256_ctx hash;
    uint8_t digest[XPE_CHECKPOINT_HASH];
    uint8_t *chunk = NULL;
    footer end;
    xpe_status st;

    sha256_init(&hash);
    XPE_TRY(xpe_new(&chunk, 1, READ_CHUNK, err));
    XPE_TRY(read_at(r, &end, sizeof end, r->size - (int64_t)sizeof end, err));
    for (int64_t at = 0; at < r->size - (int64_t)sizeof end;) {
        size_t part = (size_t)xpe_min64((int64_t)READ_CHUNK, r->size - (int64_t)sizeof end - at);

        XPE_TRY(read_at(r, chunk, part, at, err));
        sha256_update(&hash, part, chunk);
        at += (int64_t)part;
    }
    sha256_update(&hash, sizeof end.length, (const uint8_t *)&end.length);
    sha256_digest(&hash, sizeof digest, digest);
    if (end.length != r->size - (int64_t)sizeof end || memcmp(digest, end.hash, sizeof digest) != 0)
        st = xpe_fail(err, XPE_INVALID, "",
                      "checkpoint '%.200s': its hash is not that of its %lld bytes", r->path,
                      (long long)r->size);
done:
    free(chunk);
    return st;
}

static xpe_status read_carried(xpe_checkpoint_reader *r, xpe_error *err)
{
    const header *h = &r->head;
    xpe_checkpoint *c = &r->found;
    size_t bytes = (size_t)carried_bytes(h);
    char *at;
    xpe_status st;

    XPE_TRY(xpe_new(&r->carried, 1, bytes, err));
    XPE_TRY(read_at(r, r->carried, bytes, sizeof *h, err));
    r->at = (int64_t)sizeof *h + (int64_t)bytes;
    at = r->carried;
    *c = (xpe_checkpoint){.stage = h->stage,
                          .iteration = h->iteration,
                          .start_modes = h->start_modes,
                          .num_frames = h->num_frames,
                          .n = h->n,
                          .grid = {h->rows, h->cols, {h->origin_m[0], h->origin_m[1]}, h->pitch_m},
                          .seconds = h->seconds,
                          .record_count = h->record_count,
                          .records = (const void *)at};
    memcpy(c->build, h->build, sizeof c->build);
    memcpy(c->device, h->device, sizeof c->device);
    memcpy(c->job, h->job, sizeof c->job);
    memcpy(c->scan, h->scan, sizeof c->scan);
    memcpy(c->recon, h->recon, sizeof c->recon);
    at += (size_t)h->record_count * sizeof *c->records;
    if (h->has_positions) {
        c->positions = (const void *)at;
        at += (size_t)h->num_frames * 2 * sizeof(double);
    }
    if (h->has_gain) {
        c->gain = (const void *)at;
        at += (size_t)h->num_frames * sizeof(double);
    }
    if (h->start_modes)
        c->start_probe = (const void *)at;
done:
    return st;
}

/* *out is NULL with XPE_OK where there is no such file. */
static xpe_status open_slot(xpe_checkpoint_reader **out, const char *folder, int slot,
                            xpe_error *err)
{
    xpe_checkpoint_reader *r = NULL;
    struct stat s;
    xpe_status st;

    *out = NULL;
    XPE_TRY(xpe_new(&r, 1, sizeof *r, err));
    r->fd = -1;
    r->slot = slot;
    if (!name_of(r->path, folder, slot, ""))
        goto done; /* nothing can have been written there */
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (r->fd < 0) {
        st = errno == ENOENT ? XPE_OK : fail_errno(err, r->path, "cannot be opened", errno, 0);
        goto done;
    }
    if (fstat(r->fd, &s) != 0 || !S_ISREG(s.st_mode)) {
        st = xpe_fail(err, XPE_INVALID, "", "checkpoint '%.200s': it is no regular file", r->path);
        goto done;
    }
    r->size = s.st_size;
    XPE_TRY(read_at(r, &r->head, sizeof r->head, 0, err));
    if (!sane(&r->head, r->size)) {
        st = xpe_fail(err, XPE_INVALID, "",
                      "checkpoint '%.200s': its %lld bytes are not those of a whole checkpoint",
                      r->path, (long long)r->size);
        goto done;
    }
    *out = r;
    r = NULL;
done:
    xpe_checkpoint_reader_destroy(r);
    return st;
}

/* NULL when it is of the run wanted, else why it is not. */
static const char *differs(const header *h, const xpe_checkpoint *w, bool *foreign)
{
    if (strcmp(h->job, w->job) != 0 || memcmp(h->recon, w->recon, sizeof h->recon) != 0 ||
        memcmp(h->scan, w->scan, sizeof h->scan) != 0 || h->num_frames != w->num_frames ||
        h->n != w->n) {
        *foreign = true;
        return strcmp(h->job, w->job) != 0 ? "it is of another job"
               : memcmp(h->recon, w->recon, sizeof h->recon) != 0
                   ? "it is of a job with other settings"
                   : "it is of other data";
    }
    if (strncmp(h->build, w->build, sizeof h->build - 1) != 0)
        return "it is of another build of the engine, whose bits are not promised";
    if (strncmp(h->device, w->device, sizeof h->device - 1) != 0)
        return "it is of another kind of device, whose bits are not promised";
    return NULL;
}

/* Whole and wanted, or destroyed and told. */
static bool accept(xpe_checkpoint_reader *r, const xpe_checkpoint *wanted, bool *foreign,
                   xpe_checkpoint_say say, void *arg)
{
    const char *why = NULL;
    bool other = false;
    xpe_error err = {0};
    char text[640];

    if (check_hash(r, &err) == XPE_OK) {
        why = differs(&r->head, wanted, &other);
        *foreign = *foreign || other;
        if (!why && read_carried(r, &err) == XPE_OK)
            return true;
    }
    if (why)
        snprintf(text, sizeof text,
                 "checkpoint '%.200s' is not used: %s (job '%s', build '%.100s', device '%s')",
                 r->path, why, r->head.job, r->head.build, r->head.device);
    else
        snprintf(text, sizeof text, "%.400s; it is not used", err.text);
    say(arg, text);
    xpe_checkpoint_reader_destroy(r);
    return false;
}

xpe_status xpe_checkpoint_find(xpe_checkpoint_reader **out, const char *folder,
                               const xpe_checkpoint *wanted, bool *foreign, xpe_checkpoint_say say,
                               void *arg, xpe_error *err)
{
    xpe_checkpoint_reader *slots[XPE_CHECKPOINT_SLOTS] = {NULL};
    xpe_status st = XPE_OK;
    bool passed = false;
    int newest;

    *out = NULL;
    *foreign = false;
    for (int i = 0; i < XPE_CHECKPOINT_SLOTS; i++) {
        xpe_error why = {0};

        st = open_slot(&slots[i], folder, i, &why);
        if (st == XPE_NO_MEMORY) {
            if (err)
                *err = why;
            goto done;
        }
        if (st != XPE_OK) {
            char text[512];

            snprintf(text, sizeof text, "%.400s; it is not used", why.text);
            say(arg, text);
            passed = true;
        }
    }
    st = XPE_OK;
    newest = slots[0] && (!slots[1] || slots[0]->head.record_count >= slots[1]->head.record_count)
                 ? 0
                 : 1;
    for (int i = 0; i < XPE_CHECKPOINT_SLOTS && !*out; i++) {
        int at = i == 0 ? newest : 1 - newest;

        if (slots[at] && accept(slots[at], wanted, foreign, say, arg))
            *out = slots[at];
        else
            passed = passed || slots[at];
        slots[at] = NULL;
    }
    if (*out && passed && !*foreign) {
        char text[160];

        snprintf(text, sizeof text,
                 "going on from the other generation, after iteration %d of stage %d",
                 (*out)->head.iteration, (*out)->head.stage);
        say(arg, text);
    }
done:
    for (int i = 0; i < XPE_CHECKPOINT_SLOTS; i++)
        xpe_checkpoint_reader_destroy(slots[i]);
    return st;
}

const xpe_checkpoint *xpe_checkpoint_head(const xpe_checkpoint_reader *r)
{
    return &r->found;
}

int xpe_checkpoint_slot(const xpe_checkpoint_reader *r)
{
    return r->slot;
}

xpe_status xpe_checkpoint_take(void *reader, void *data, size_t bytes, xpe_error *err)
{
    xpe_checkpoint_reader *r = reader;
    int64_t end = r->size - (int64_t)sizeof(footer);
    xpe_status st;

    if ((int64_t)bytes > end - r->at)
        return xpe_fail(err, XPE_INVALID, "",
                        "checkpoint '%.200s': its state ends %lld bytes before what is asked for",
                        r->path, (long long)(r->at + (int64_t)bytes - end));
    st = read_at(r, data, bytes, r->at, err);
    r->at += (int64_t)bytes;
    return st;
}

void xpe_checkpoint_reader_destroy(xpe_checkpoint_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->carried);
    free(r);
}

void xpe_checkpoint_remove(const char *folder)
{
    char path[PATH_SIZE];

    for (int slot = 0; slot < XPE_CHECKPOINT_SLOTS; slot++) {
        if (name_of(path, folder, slot, ""))
            unlink(path);
        if (name_of(path, folder, slot, ".tmp"))
            unlink(path);
    }
}
