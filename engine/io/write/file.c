/* Files that appear whole.
 *
 * The file is written under a name of its own in the target folder and synced; a rename that
 * refuses to replace anything (or, where the file system has none, a hard link) then gives it its
 * name, and the folder is synced.  A lock on the file tells that its writer lives; what a writer
 * left who was killed is removed by the next one of the same name.  Room on the disk is taken
 * before the first byte: HDF5 1.10.8 does not get over a flush that fails (it crashes in its own
 * clean-up at exit, which is therefore switched off).  What still goes wrong is reported with the
 * system's words.
 *
 * Calls to HDF5 remember the first failure and do nothing after it, so that what writes a file
 * reads as a list of what is in it. */
#include "file.h"

#include "io/size.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define POINTER "/output/path"

void xpe_write_init(void)
{
    H5dont_atexit(); /* its clean-up crashes after a failed close, and every file here is closed by
                        hand */
    H5open();
    H5PLset_loading_state(0);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static xpe_status fail_errno(const xpe_file *f, xpe_error *err, const char *what, int code)
{
    char text[80];

    return xpe_fail(err, XPE_IO, POINTER, "output.path '%.200s': %s: %s", f->path, what,
                    strerror_r(code, text, sizeof text));
}

/* ------------------------------------------------------------------------------- life of a file */

/* Opens the folder of the path.  Everything later is done beneath the descriptor: a folder that is
 * replaced by a link in the middle of a run does not lead the writing elsewhere. */
static xpe_status open_folder(xpe_file *f, const xpe_folder *where, xpe_error *err)
{
    const char *slash = strrchr(f->path, '/');
    size_t length = slash ? (size_t)(slash - f->path) : 0;
    struct stat s;

    if (length >= sizeof f->folder)
        return xpe_fail(err, XPE_INVALID, POINTER, "output.path is too long (%zu bytes)",
                        strlen(f->path));
    snprintf(f->folder, sizeof f->folder, "%.*s", !slash || length ? (int)length : 1, f->path);
    if (!slash)
        snprintf(f->folder, sizeof f->folder, ".");
    f->folder_fd = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder_fd < 0 || fstat(f->folder_fd, &s) != 0)
        return fail_errno(f, err, "its folder cannot be opened", errno);
    if (where && where->inode &&
        ((uint64_t)s.st_dev != where->device || (uint64_t)s.st_ino != where->inode))
        return xpe_fail(
            err, XPE_INVALID, POINTER,
            "output.path '%.200s': its folder was replaced by another one while the job "
            "ran; nothing is written there",
            f->path);
    return XPE_OK;
}

static xpe_status name_files(xpe_file *f, xpe_error *err)
{
    const char *slash = strrchr(f->path, '/');
    const char *name = slash ? slash + 1 : f->path;
    uint64_t number = 0;

    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return xpe_fail(err, XPE_INVALID, POINTER, "output.path '%.200s' names no file", f->path);
    if (strlen(name) > NAME_MAX)
        return xpe_fail(err, XPE_INVALID, POINTER,
                        "output.path is too long (a name of %zu bytes, at most %d)", strlen(name),
                        NAME_MAX);
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return fail_errno(f, err, "no random name can be made", errno);
    snprintf(f->target, sizeof f->target, "/proc/self/fd/%d/%.*s", f->folder_fd, NAME_MAX, name);
    /* The start of the name is enough, NAME_MAX being the most that a name may have. */
    snprintf(f->temporary, sizeof f->temporary, "/proc/self/fd/%d/.%.200s.%016llx", f->folder_fd,
             name, (unsigned long long)number);
    return XPE_OK;
}

static xpe_status check_target(const xpe_file *f, xpe_error *err)
{
    struct stat s;

    if (lstat(f->target, &s) != 0)
        return errno == ENOENT ? XPE_OK : fail_errno(f, err, "cannot be written", errno);
    if (!f->overwrite)
        return xpe_fail(err, XPE_INVALID, POINTER,
                        "output.path '%.200s' exists; choose another name or set output.overwrite",
                        f->path);
    if (!S_ISREG(s.st_mode))
        return xpe_fail(err, XPE_INVALID, POINTER,
                        "output.path '%.200s' is not a regular file, which is never replaced",
                        f->path);
    return XPE_OK;
}

static xpe_status check_room(const xpe_file *f, int64_t bytes, xpe_error *err)
{
    struct statvfs v;
    char needed[32], available[32];

    if (fstatvfs(f->folder_fd, &v) != 0 || v.f_blocks == 0)
        return XPE_OK; /* a file system that does not say */
    if ((double)v.f_bavail * (double)v.f_frsize < (double)bytes)
        return xpe_fail(err, XPE_IO, POINTER,
                        "output.path '%.200s': the disk is full: %s are needed, %s are free",
                        f->path, xpe_size_text(needed, (double)bytes),
                        xpe_size_text(available, (double)v.f_bavail * (double)v.f_frsize));
    return XPE_OK;
}

/* Takes the blocks, size unchanged; HDF5 then writes into them and a truncate gives the rest back.
 */
static xpe_status take_room(const xpe_file *f, int fd, int64_t bytes, xpe_error *err)
{
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP ||
        errno == ENOSYS)
        return XPE_OK;
    return fail_errno(f, err, "there is no room for the file on its disk", errno);
}

typedef struct innermost {
    char text[160];
    int code; /* errno, where HDF5 states one */
} innermost;

/* "file write failed: time = ..., errno = 28, error message = '...', ..." */
static herr_t look_inside(unsigned n, const H5E_error2_t *e, void *data)
{
    innermost *in = data;
    const char *code = e->desc ? strstr(e->desc, "errno = ") : NULL;

    (void)n;
    if (in->text[0] == '\0' && e->desc)
        snprintf(in->text, sizeof in->text, "%s", e->desc);
    if (code && in->code == 0)
        in->code = (int)strtol(code + strlen("errno = "), NULL, 10);
    return 0;
}

static void reason_of_hdf5(char *out, size_t size, const char *what)
{
    innermost in = {.code = 0};
    char words[80];

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look_inside, &in);
    snprintf(out, size, "%s cannot be written: %s", what,
             in.code      ? strerror_r(in.code, words, sizeof words)
             : in.text[0] ? in.text
                          : "no reason given");
}

static xpe_status failure(const xpe_file *f, xpe_error *err)
{
    return xpe_fail(err, XPE_IO, POINTER, "output.path '%.150s': %s", f->path, f->reason);
}

static int open_temporary(const xpe_file *f, int flags)
{
    return open(f->temporary, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
}

static void remove_abandoned(const xpe_file *f)
{
    const char *mine = strrchr(f->temporary, '/') + 1;
    size_t length = strlen(mine) - 16; /* the start that all writers of this name share */
    int folder = openat(f->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = folder >= 0 ? fdopendir(folder) : NULL;
    struct dirent *e;
    struct stat s;

    while (d && (e = readdir(d))) {
        if (strncmp(e->d_name, mine, length) != 0 || strlen(e->d_name) != length + 16 ||
            strspn(e->d_name + length, "0123456789abcdef") != 16 || strcmp(e->d_name, mine) == 0)
            continue;
        int fd = openat(f->folder_fd, e->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) &&
            flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(f->folder_fd, e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
    else if (folder >= 0)
        close(folder);
}

/* The file, locked (where the file system has locks) for as long as its writer lives. */
static int make_temporary(xpe_file *f)
{
    int fd = open_temporary(f, O_CREAT | O_EXCL);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_abandoned(f);
    f->lock_fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    return fd;
}

xpe_status xpe_file_create(xpe_file *f, const char *path, const xpe_folder *where, bool overwrite,
                           int64_t bytes, xpe_error *err)
{
    xpe_status st;
    hid_t fapl;
    int fd;

    memset(f, 0, sizeof *f);
    f->path = path;
    f->overwrite = overwrite;
    f->whole = NULL;
    f->folder_fd = f->lock_fd = -1;
    f->id = -1;
    st = open_folder(f, where, err);
    if (st == XPE_OK)
        st = name_files(f, err);
    if (st == XPE_OK)
        st = check_target(f, err);
    if (st == XPE_OK)
        st = check_room(f, bytes, err);
    fd = st == XPE_OK ? make_temporary(f) : -1;
    if (fd < 0) {
        if (st == XPE_OK)
            st = fail_errno(f, err, "a file cannot be created in its folder", errno);
        f->temporary[0] = '\0';
        xpe_file_release(f);
        return st;
    }
    st = take_room(f, fd, bytes, err);
    if (st != XPE_OK) {
        close(fd);
        xpe_file_release(f);
        return st;
    }
    fapl = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(fapl, H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);
    H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG);
    H5Pset_file_locking(fapl, false, true); /* nobody else knows the name */
    H5Eset_auto2(H5E_DEFAULT, NULL,
                 NULL); /* each thread has its own, where HDF5 knows of threads */
    H5Eclear2(H5E_DEFAULT);
    f->id = H5Fcreate(f->temporary, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    if (f->id < 0)
        reason_of_hdf5(f->reason, sizeof f->reason, "the file"); /* the next call forgets it */
    H5Pclose(fapl);
    if (f->id >= 0)
        st = take_room(f, fd, bytes, err); /* creating emptied the file */
    close(fd);
    if (f->id < 0)
        st = failure(f, err);
    if (st != XPE_OK)
        xpe_file_release(f);
    return st;
}

/* Size, time, inode and hash of what was written. */
static xpe_status describe(const xpe_file *f, int fd, xpe_written *out, xpe_error *err)
{
    struct sha256_ctx hash;
    struct stat s;
    uint8_t digest[SHA256_DIGEST_SIZE];
    uint8_t *buffer = malloc(1 << 20);
    ssize_t n;

    if (!buffer)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted");
    sha256_init(&hash);
    while ((n = read(fd, buffer, 1 << 20)) > 0)
        sha256_update(&hash, (size_t)n, buffer);
    free(buffer);
    if (n < 0 || fstat(fd, &s) != 0)
        return fail_errno(f, err, "cannot be read back", errno);
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(out->sha256 + 2 * i, 3, "%02x", digest[i]);
    out->bytes = (int64_t)s.st_size;
    out->inode = (uint64_t)s.st_ino;
    out->uid = s.st_uid;
    out->mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    return XPE_OK;
}

static int give_name(const xpe_file *f)
{
    if (f->overwrite)
        return rename(f->temporary, f->target);
    if (renameat2(AT_FDCWD, f->temporary, AT_FDCWD, f->target, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return -1;
    if (link(f->temporary, f->target) != 0)
        return -1;
    return unlink(f->temporary);
}

static void note_failure(xpe_file *f, const char *what)
{
    if (!f->failed)
        reason_of_hdf5(f->reason, sizeof f->reason, what);
    f->failed = true;
    H5Eclear2(H5E_DEFAULT);
}

xpe_status xpe_file_finish(xpe_file *f, xpe_written *out, xpe_error *err)
{
    xpe_status st = XPE_OK;
    struct stat s;
    int fd = -1;
    herr_t closed;

    if (!f->failed && H5Fflush(f->id, H5F_SCOPE_LOCAL) < 0)
        note_failure(f, "the file");
    xpe_attr_int(f, "/", "complete", 1); /* last, so that its absence tells of a file cut short */
    H5Eclear2(H5E_DEFAULT);
    closed = H5Fclose(f->id);
    f->id = -1;
    if (closed < 0)
        note_failure(f, "the file");
    if (f->failed) {
        st = failure(f, err);
        goto done;
    }
    fd = open_temporary(f, 0);
    if (fd < 0 || fstat(fd, &s) != 0 || ftruncate(fd, s.st_size) != 0 || fsync(fd) != 0) {
        st = fail_errno(f, err, "cannot be synced", errno);
        goto done;
    }
    st = describe(f, fd, out, err);
    if (st == XPE_OK && f->whole)
        f->whole(f->whole_context, out);
    if (st == XPE_OK && give_name(f) != 0)
        st = errno == EEXIST
                 ? xpe_fail(err, XPE_INVALID, POINTER,
                            "output.path '%.200s' exists by now; choose another name or "
                            "set output.overwrite",
                            f->path)
                 : fail_errno(f, err, "cannot be given its name", errno);
    if (st == XPE_OK) {
        f->temporary[0] = '\0';
        if (fsync(f->folder_fd) != 0 && errno != EINVAL && errno != ENOTSUP)
            st = fail_errno(f, err, "its folder cannot be synced", errno);
    }
done:
    if (fd >= 0)
        close(fd);
    return st;
}

void xpe_file_release(xpe_file *f)
{
    if (f->id >= 0)
        H5Fclose(f->id);
    if (f->temporary[0])
        unlink(f->temporary);
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    if (f->folder_fd >= 0)
        close(f->folder_fd);
    f->temporary[0] = '\0';
    f->id = -1;
    f->folder_fd = f->lock_fd = -1;
    H5Eclear2(H5E_DEFAULT);
}

/* ------------------------------------------------------------------------------------- contents */

void xpe_put_group(xpe_file *f, const char *path)
{
    hid_t id;

    if (f->failed)
        return;
    id = H5Gcreate2(f->id, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (id < 0 || H5Gclose(id) < 0)
        note_failure(f, path);
}

/* The same content makes the same bytes: no dataset says when it was made. */
static hid_t plain_dataset(void)
{
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);

    H5Pset_obj_track_times(plist, false);
    return plist;
}

void xpe_put_array(xpe_file *f, const char *path, hid_t file_type, hid_t memory_type, int rank,
                   const hsize_t *dims, const void *data, bool compress)
{
    hsize_t chunk[3] = {1, 1, 1};
    hid_t space, plist, id;

    if (f->failed)
        return;
    for (int i = 1; i < rank; i++)
        chunk[i] = dims[i];
    space = H5Screate_simple(rank, dims, NULL);
    plist = plain_dataset();
    if (compress) {
        H5Pset_chunk(plist, rank, chunk);
        H5Pset_shuffle(plist);
        H5Pset_deflate(plist, 1);
    }
    id = H5Dcreate2(f->id, path, file_type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (id < 0 || H5Dwrite(id, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        note_failure(f, path);
    if (id >= 0 && H5Dclose(id) < 0)
        note_failure(f, path);
    H5Pclose(plist);
    H5Sclose(space);
}

/* A compound {r, i} of little-endian floats, which h5py opens as complex64. */
void xpe_put_complex(xpe_file *f, const char *path, int rank, const hsize_t *dims,
                     const xpe_c32 *data)
{
    hid_t file_type = H5Tcreate(H5T_COMPOUND, 8),
          memory_type = H5Tcreate(H5T_COMPOUND, sizeof *data);

    H5Tinsert(file_type, "r", 0, H5T_IEEE_F32LE);
    H5Tinsert(file_type, "i", 4, H5T_IEEE_F32LE);
    H5Tinsert(memory_type, "r", offsetof(xpe_c32, re), H5T_NATIVE_FLOAT);
    H5Tinsert(memory_type, "i", offsetof(xpe_c32, im), H5T_NATIVE_FLOAT);
    xpe_put_array(f, path, file_type, memory_type, rank, dims, data, false);
    H5Tclose(memory_type);
    H5Tclose(file_type);
}

static hid_t text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

void xpe_put_string(xpe_file *f, const char *path, const char *text)
{
    hid_t space, plist, type, id;

    if (f->failed || !text)
        return;
    space = H5Screate(H5S_SCALAR);
    plist = plain_dataset();
    type = text_type();
    id = H5Dcreate2(f->id, path, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    if (id < 0 || H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text) < 0)
        note_failure(f, path);
    if (id >= 0 && H5Dclose(id) < 0)
        note_failure(f, path);
    H5Tclose(type);
    H5Pclose(plist);
    H5Sclose(space);
}

void xpe_put_strings(xpe_file *f, const char *path, hsize_t rows, hsize_t cols,
                     const char *const *texts)
{
    const hsize_t dims[2] = {rows, cols};
    hid_t type;

    if (f->failed)
        return;
    type = text_type();
    xpe_put_array(f, path, type, type, 2, dims, texts, false);
    H5Tclose(type);
}

/* An attribute of any kind; count 0 = a single value. */
static void put_attr(xpe_file *f, const char *at, const char *name, hid_t file_type,
                     hid_t memory_type, hsize_t count, const void *data)
{
    hid_t object, space, id;

    if (f->failed)
        return;
    object = H5Oopen(f->id, at, H5P_DEFAULT);
    space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
    id = object < 0 ? -1 : H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (id < 0 || H5Awrite(id, memory_type, data) < 0)
        note_failure(f, name);
    if (id >= 0)
        H5Aclose(id);
    H5Sclose(space);
    if (object >= 0)
        H5Oclose(object);
}

void xpe_attr_text(xpe_file *f, const char *at, const char *name, const char *text)
{
    hid_t type = text_type();

    if (text)
        put_attr(f, at, name, type, type, 0, &text);
    H5Tclose(type);
}

void xpe_attr_texts(xpe_file *f, const char *at, const char *name, const char *const *texts,
                    hsize_t count)
{
    hid_t type = text_type();

    put_attr(f, at, name, type, type, count, texts);
    H5Tclose(type);
}

void xpe_attr_doubles(xpe_file *f, const char *at, const char *name, const double *values,
                      hsize_t count)
{
    put_attr(f, at, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, count, values);
}

void xpe_attr_int(xpe_file *f, const char *at, const char *name, int64_t value)
{
    put_attr(f, at, name, H5T_STD_I64LE, H5T_NATIVE_INT64, 0, &value);
}
