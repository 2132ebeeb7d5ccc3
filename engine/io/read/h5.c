/* Opening a file that someone else chose.
 *
 * The path is opened without blocking (a FIFO must not hang us), must be a regular file, and its
 * resolved name must lie beneath a root; HDF5 then gets the descriptor's own name, so that nothing
 * can be put in its place in between.  That name breaks relative external links, so the folder of
 * the file is their prefix.  Link targets are checked by the same rules in a callback; the sandbox
 * of the program (Landlock) stands behind it, for what paths cannot settle.
 *
 * Files are locked as HDF5 does by default.  A file that is being written is told apart from a
 * broken one, and file systems without locks are opened without. */
#include "h5.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WRITER_SILENT_S 60 /* a writer that keeps its mark longer without writing has died */
#define OUTSIDE "the file is outside the folders that this service may read"

void xpe_read_init(void)
{
    static const char *const names[] = {
        "HDF5_PLUGIN_PATH",          "HDF5_PLUGIN_PRELOAD", "HDF5_VDS_PREFIX",
        "HDF5_EXT_PREFIX",           "HDF5_DRIVER",         "HDF5_DRIVER_CONFIG",
        "HDF5_USE_FILE_LOCKING",     "HDF5_DEBUG",          "HDF5_DISABLE_VERSION_CHECK",
        "HDF5_PREFER_PARALLEL_COPY", "HDF5_NOCLEANUP"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    H5dont_atexit();
    H5open();
    H5PLset_loading_state(0);
    xpe_filters_register(); /* where it fails, they are named as absent */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

bool xpe_roots_cover(const xpe_roots *roots, const char *resolved)
{
    if (!roots)
        return true;
    for (size_t i = 0; i < roots->count; i++) {
        size_t length = strlen(roots->folders[i]);
        while (length > 1 && roots->folders[i][length - 1] == '/')
            length--;
        if (strncmp(roots->folders[i], resolved, length) != 0)
            continue;
        if (length == 1 || resolved[length] == '\0' || resolved[length] == '/')
            return true;
    }
    return false;
}

static xpe_status XPE_PRINTF(4, 5)
    fail_as(xpe_status status, const xpe_h5 *h, xpe_error *err, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return xpe_fail(err, status, h->pointer, "%s '%s': %s", h->what, h->shown, text);
}

xpe_status xpe_h5_fail(const xpe_h5 *h, xpe_error *err, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return xpe_fail(err, XPE_INVALID, h->pointer, "%s '%s': %s", h->what, h->shown, text);
}

/* ------------------------------------------------------------------------- HDF5's own errors */

typedef struct reasons {
    char first[256];
    bool locked, writing, no_locks, truncated;
} reasons;

static herr_t collect_reason(unsigned n, const H5E_error2_t *e, void *data)
{
    reasons *r = data;
    const char *text = e->desc ? e->desc : "";

    (void)n;
    if (r->first[0] == '\0')
        snprintf(r->first, sizeof r->first, "%s", text);
    if (strstr(text, "unable to lock file")) {
        r->locked = true;
        r->no_locks = strstr(text, "errno = 37,") || strstr(text, "errno = 38,") ||
                      strstr(text, "errno = 95,") || strstr(text, "errno = 524,");
    }
    if (strstr(text, "already open for"))
        r->writing = true;
    if (strstr(text, "truncated file")) {
        r->truncated = true;
        snprintf(r->first, sizeof r->first, "%s", text);
    }
    return 0;
}

static reasons take_reasons(void)
{
    reasons r = {.first = ""};

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect_reason, &r);
    H5Eclear2(H5E_DEFAULT);
    for (char *p = r.first; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    return r;
}

void xpe_h5_reason(char *out, size_t size)
{
    reasons r = take_reasons();

    snprintf(out, size, "%s", r.first[0] ? r.first : "no reason given");
}

bool xpe_h5_busy(void)
{
    reasons r = take_reasons();

    return r.locked || r.writing;
}

xpe_status xpe_h5_fail_busy(const xpe_h5 *h, const char *name, xpe_error *err)
{
    return fail_as(XPE_BUSY, h, err, "another program has the file of '%s' open for writing", name);
}

/* ------------------------------------------------------------------------------------- opening */

/* Whether a path that cannot be opened is outside the roots, by as much of it as exists: what is
 * there and what is not is nobody's business outside. */
static bool lies_outside(const xpe_roots *roots, const char *path)
{
    char part[PATH_MAX], resolved[PATH_MAX], *slash;

    if (!roots)
        return false;
    snprintf(part, sizeof part, "%s", path);
    while (!realpath(part[0] ? part : "/", resolved)) {
        slash = strrchr(part, '/');
        if (!slash)
            return true;
        *slash = '\0';
    }
    return !xpe_roots_cover(roots, resolved);
}

/* The descriptor and identity; refuses what is not a plain file beneath the roots. */
static xpe_status open_plain(xpe_h5 *h, const char *path, xpe_error *err)
{
    char link[64];
    struct stat s;
    ssize_t length;

    h->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (h->fd < 0) {
        int code = errno;
        if (lies_outside(h->roots, path))
            return xpe_h5_fail(h, err, OUTSIDE);
        if (code == ENOENT || code == ENOTDIR)
            return xpe_h5_fail(h, err, "the file does not exist");
        if (code == ENXIO)
            return xpe_h5_fail(h, err, "this is a socket or device; a regular HDF5 file is needed");
        return xpe_h5_fail(h, err, "the file cannot be opened: %s", strerror(code));
    }
    if (fstat(h->fd, &s) != 0)
        return xpe_h5_fail(h, err, "the file cannot be examined: %s", strerror(errno));
    snprintf(link, sizeof link, "/proc/self/fd/%d", h->fd);
    length = readlink(link, h->identity.path, sizeof h->identity.path - 1);
    if (length <= 0)
        return xpe_h5_fail(h, err, "the path of the file cannot be resolved: %s", strerror(errno));
    h->identity.path[length] = '\0';
    if (!xpe_roots_cover(h->roots, h->identity.path))
        return xpe_h5_fail(h, err, OUTSIDE);
    if (S_ISDIR(s.st_mode))
        return xpe_h5_fail(h, err, "this is a folder; a regular HDF5 file is needed");
    if (S_ISFIFO(s.st_mode))
        return xpe_h5_fail(h, err, "this is a FIFO; a regular HDF5 file is needed");
    if (!S_ISREG(s.st_mode))
        return xpe_h5_fail(h, err, "this is not a regular file; a regular HDF5 file is needed");
    if (s.st_size == 0)
        return xpe_h5_fail(h, err, "the file is empty (0 bytes); an HDF5 file is needed");
    h->identity.device = (uint64_t)s.st_dev;
    h->identity.inode = (uint64_t)s.st_ino;
    h->identity.bytes = (int64_t)s.st_size;
    h->identity.mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    return XPE_OK;
}

static bool resolve_candidate(xpe_h5 *h, const char *candidate, bool *exists)
{
    char resolved[PATH_MAX];
    struct stat s;

    *exists = false;
    if (!realpath(candidate, resolved))
        return true;
    *exists = true;
    if (!xpe_roots_cover(h->roots, resolved)) {
        snprintf(h->denied, sizeof h->denied,
                 "its file '%.200s' is outside the folders that this service may read", candidate);
        return false;
    }
    if (stat(resolved, &s) != 0 || !S_ISREG(s.st_mode)) {
        snprintf(h->denied, sizeof h->denied, "its file '%.200s' is not a regular file", candidate);
        return false;
    }
    return true;
}

/* HDF5 tries a relative name beside the first file and beside the one that holds the link; both
 * are the folder of the file here, because links out of linked files get that same prefix first. */
bool xpe_h5_link_allowed(xpe_h5 *h, const char *name)
{
    char path[PATH_MAX];
    bool exists = false;

    if (name[0] == '/')
        snprintf(path, sizeof path, "%s", name);
    else if ((size_t)snprintf(path, sizeof path, "%s/%s", h->folder, name) >= sizeof path)
        return false;
    if (!resolve_candidate(h, path, &exists))
        return false;
    if (!exists)
        snprintf(h->denied, sizeof h->denied, "its file '%.200s' does not exist", name);
    return exists;
}

static herr_t follow_link(const char *parent_file, const char *parent_group, const char *child_file,
                          const char *child_object, unsigned *flags, hid_t fapl, void *data)
{
    (void)parent_file, (void)parent_group, (void)child_object, (void)fapl;
    *flags = H5F_ACC_RDONLY;
    return xpe_h5_link_allowed(data, child_file) ? 0 : -1;
}

static xpe_status link_policy(xpe_h5 *h, xpe_error *err)
{
    char *slash;

    snprintf(h->folder, sizeof h->folder, "%s", h->identity.path);
    slash = strrchr(h->folder, '/');
    if (slash)
        slash[slash == h->folder ? 1 : 0] = '\0';
    /* The last place where HDF5 looks for a relative link is the working folder. */
    if (chdir(h->folder) != 0 && chdir("/") != 0)
        return xpe_h5_fail(h, err, "its folder cannot be entered: %s", strerror(errno));
    h->lapl = H5Pcreate(H5P_DATASET_ACCESS); /* a link access list too */
    if (h->lapl < 0 || H5Pset_elink_prefix(h->lapl, h->folder) < 0 ||
        H5Pset_elink_cb(h->lapl, follow_link, h) < 0 ||
        H5Pset_elink_acc_flags(h->lapl, H5F_ACC_RDONLY) < 0 ||
        H5Pset_virtual_prefix(h->lapl, h->folder) < 0 || H5Pset_nlinks(h->lapl, 16) < 0)
        return xpe_fail(err, XPE_INTERNAL, h->pointer, "HDF5 takes no link policy");
    return XPE_OK;
}

/* Any call clears HDF5's errors, so they are taken right after the one that failed. */
static hid_t open_h5(const char *name, bool locking, reasons *why)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file;

    if (fapl < 0)
        return -1;
    H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
    H5Pset_file_locking(fapl, locking, true);
    H5Eclear2(H5E_DEFAULT);
    file = H5Fopen(name, H5F_ACC_RDONLY, fapl);
    if (file < 0)
        *why = take_reasons();
    H5Pclose(fapl);
    return file;
}

/* Seconds since the file was written to. */
static int64_t age_s(const xpe_h5 *h)
{
    int64_t age = (int64_t)time(NULL) - h->identity.mtime_ns / 1000000000;

    return age > 0 ? age : 0;
}

/* A lock is a writer's that lives.  The mark that a file is open stays when its writer dies, and is
 * all that there is of one that takes no locks (network file systems); it counts as one that lives
 * while the file still changes. */
static bool has_writer(const xpe_h5 *h, const reasons *r)
{
    return r->locked || (r->writing && age_s(h) < WRITER_SILENT_S);
}

/* Cut off for good, or not all there yet: copied, or closed by its writer at this moment. */
static xpe_status explain_truncated(const xpe_h5 *h, const reasons *r, xpe_error *err)
{
    unsigned long long is = (unsigned long long)h->identity.bytes, should = 0;
    const char *eof = strstr(r->first, "stored_eof = ");
    char header[64] = "";

    if (eof && sscanf(eof, "stored_eof = %llu", &should) == 1)
        snprintf(header, sizeof header, ", its header says %llu", should);
    if (age_s(h) < WRITER_SILENT_S)
        return fail_as(XPE_BUSY, h, err,
                       "the file is truncated: %llu bytes are there%s; it was written to %lld s "
                       "ago, so another program may still be writing it",
                       is, header, (long long)age_s(h));
    return xpe_h5_fail(h, err, "the file is truncated: %llu bytes are there%s", is, header);
}

static xpe_status explain_open(const xpe_h5 *h, const reasons *r, xpe_error *err)
{
    xpe_status st;

    if (r->truncated)
        return explain_truncated(h, r, err);
    if (has_writer(h, r))
        return fail_as(XPE_BUSY, h, err, "another program has the file open for writing");
    if (r->writing)
        return xpe_h5_fail(h, err,
                           "the file is marked as open for writing and was last written to %lld s "
                           "ago; its writer seems to have died: h5clear -s removes the mark",
                           (long long)age_s(h));
    st = xpe_h5_unchanged(h, err); /* HDF5 finds no name to a file that was replaced */
    if (st != XPE_OK)
        return st;
    return xpe_h5_fail(h, err, "the file cannot be opened as HDF5, it may be damaged: %s",
                       r->first[0] ? r->first : "no reason given");
}

xpe_status xpe_h5_open(xpe_h5 *h, const char *path, const xpe_roots *roots, const char *pointer,
                       xpe_error *err)
{
    xpe_status st = XPE_OK;
    char name[64];
    size_t length = strlen(path);
    reasons why = {.first = ""};

    memset(h, 0, sizeof *h);
    h->fd = -1;
    h->file = h->lapl = -1;
    h->roots = roots;
    h->pointer = pointer;
    snprintf(h->what, sizeof h->what, "%s", pointer[0] == '/' ? pointer + 1 : "file");
    for (char *p = h->what; *p; p++)
        *p = *p == '/' ? '.' : *p;
    if (length < 130)
        snprintf(h->shown, sizeof h->shown, "%s", path);
    else
        snprintf(h->shown, sizeof h->shown, "...%s", path + length - 120);

    XPE_TRY(open_plain(h, path, err));
    snprintf(name, sizeof name, "/proc/self/fd/%d", h->fd);
    if (H5Fis_hdf5(name) <= 0) {
        st = xpe_h5_fail(h, err, "this is not an HDF5 file (its signature is missing)");
        goto done;
    }
    XPE_TRY(link_policy(h, err));
    h->file = open_h5(name, true, &why);
    if (h->file < 0 && why.no_locks) /* a file system without locks, not another program */
        h->file = open_h5(name, false, &why);
    if (h->file < 0)
        st = explain_open(h, &why, err);
done:
    if (st != XPE_OK)
        xpe_h5_close(h);
    return st;
}

void xpe_h5_close(xpe_h5 *h)
{
    if (h->file >= 0)
        H5Fclose(h->file);
    if (h->lapl >= 0)
        H5Pclose(h->lapl);
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
    h->file = h->lapl = -1;
}

xpe_status xpe_h5_unchanged(const xpe_h5 *h, xpe_error *err)
{
    struct stat s;
    const xpe_file_identity *was = &h->identity;

    if (fstat(h->fd, &s) != 0)
        return xpe_h5_fail(h, err, "the file cannot be examined: %s", strerror(errno));
    if ((int64_t)s.st_size != was->bytes ||
        (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec != was->mtime_ns)
        return fail_as(
            XPE_CHANGED, h, err,
            "the file changed while it was read (%lld bytes before, %lld now); submit again when "
            "nothing writes to it",
            (long long)was->bytes, (long long)s.st_size);
    if (stat(was->path, &s) != 0 || (uint64_t)s.st_dev != was->device ||
        (uint64_t)s.st_ino != was->inode)
        return fail_as(
            XPE_CHANGED, h, err,
            "the file was replaced while it was read; submit again when nothing writes to it");
    return XPE_OK;
}

/* ------------------------------------------------------------------------------------- looking */

xpe_h5_kind xpe_h5_look(xpe_h5 *h, const char *path)
{
    char part[256];
    size_t length = strlen(path);
    H5I_type_t type;
    hid_t object;

    h->denied[0] = '\0';
    h->busy = false;
    if (length == 0 || length >= sizeof part)
        return XPE_H5_ABSENT;
    /* Link by link: asking for a/b/c fails in HDF5, not "no", where a or b is missing. */
    for (size_t i = 1; i <= length; i++) {
        if (i < length && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (strcmp(part, "/") == 0 || part[i - 1] == '/')
            continue;
        if (H5Lexists(h->file, part, h->lapl) <= 0) {
            h->busy = xpe_h5_busy(); /* where a link out of the file is part of the path */
            return h->denied[0] || h->busy ? XPE_H5_BROKEN : XPE_H5_ABSENT;
        }
    }
    object = H5Oopen(h->file, path, h->lapl);
    if (object < 0) {
        h->busy = xpe_h5_busy();
        return XPE_H5_BROKEN;
    }
    type = H5Iget_type(object);
    H5Oclose(object);
    return type == H5I_DATASET ? XPE_H5_DATASET : type == H5I_GROUP ? XPE_H5_GROUP : XPE_H5_OTHER;
}

typedef struct name_list {
    char *out;
    size_t size, used, count;
} name_list;

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    name_list *list = data;
    int n;

    (void)group, (void)info;
    if (list->count == 12 || list->used + strlen(name) + 8 > list->size) {
        snprintf(list->out + list->used, list->size - list->used, ", ...");
        return 1;
    }
    n = snprintf(list->out + list->used, list->size - list->used, "%s%s", list->count ? ", " : "",
                 name);
    list->used += n > 0 ? (size_t)n : 0;
    list->count++;
    return 0;
}

void xpe_h5_names(xpe_h5 *h, const char *group, char *out, size_t size)
{
    name_list list = {out, size, 0, 0};
    hid_t id = H5Oopen(h->file, group, h->lapl);
    hsize_t index = 0;

    out[0] = '\0';
    if (id >= 0) {
        H5Literate(id, H5_INDEX_NAME, H5_ITER_NATIVE, &index, add_name, &list);
        H5Oclose(id);
    }
    H5Eclear2(H5E_DEFAULT);
    if (list.count == 0)
        snprintf(out, size, "nothing");
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = '?';
}
