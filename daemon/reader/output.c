/* The output path, by stat and access only (the sandbox forbids more): its folder exists, lies
 * beneath a write root and can be written; the name is free, or belongs to a result that may be
 * replaced. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define POINTER "/output/path"

static xpe_status refuse(xpe_error *err, const char *path, const char *why)
{
    return xpe_fail(err, XPE_INVALID, POINTER, "output.path '%.200s': %s", path, why);
}

static xpe_status check_folder(xpd_output_place *found, const char *path, const xpe_roots *roots,
                               xpe_error *err)
{
    char folder[PATH_MAX], resolved[PATH_MAX], text[256];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    struct stat s;
    struct statvfs v;

    if (!slash || path[0] != '/')
        return refuse(err, path, "an absolute path is needed");
    if (slash[1] == '\0')
        return refuse(err, path, "this names a folder; a file name is needed");
    if (length >= sizeof folder)
        return refuse(err, path, "the path is too long");
    snprintf(folder, sizeof folder, "%.*s", length ? (int)length : 1, path);
    if (!realpath(folder, resolved)) {
        snprintf(text, sizeof text, "its folder %s",
                 errno == ENOENT || errno == ENOTDIR ? "does not exist; make it or choose another"
                                                     : strerror(errno));
        return refuse(err, path, text);
    }
    if (!xpe_roots_cover(roots, resolved))
        return refuse(err, path, "the folder is outside those that this service may write");
    if (stat(resolved, &s) != 0 || !S_ISDIR(s.st_mode))
        return refuse(err, path, "its parent is not a folder");
    if (faccessat(AT_FDCWD, resolved, W_OK | X_OK, AT_EACCESS) != 0) {
        snprintf(text, sizeof text, "its folder cannot be written: %s", strerror(errno));
        return refuse(err, path, text);
    }
    /* The superuser passes the check above everywhere, /proc included, where no file can be made.
     */
    if (statvfs(resolved, &v) == 0) {
        if (v.f_bavail == 0)
            return refuse(err, path, "its folder cannot be written: there is no room on its disk");
        found->disk_total = (int64_t)(v.f_blocks * v.f_frsize);
        found->disk_free = (int64_t)(v.f_bavail * v.f_frsize);
    }
    found->folder_device = (int64_t)s.st_dev;
    found->folder_inode = (int64_t)s.st_ino;
    return XPE_OK;
}

xpe_status xpd_output_check(xpd_output_place *found, const char *path, bool overwrite,
                            const xpe_roots *write_roots, xpe_error *err)
{
    struct stat s;
    char text[256];
    xpe_status st;

    *found = (xpd_output_place){0};
    st = check_folder(found, path, write_roots, err);
    if (st != XPE_OK)
        return st;
    if (lstat(path, &s) != 0) {
        if (errno == ENOENT)
            return XPE_OK;
        snprintf(text, sizeof text, "it cannot be used: %s", strerror(errno));
        return refuse(err, path, text);
    }
    if (S_ISDIR(s.st_mode))
        return refuse(err, path, "this is a folder; a file name is needed");
    if (!overwrite)
        return refuse(err, path, "the file exists; choose another name or set output.overwrite");
    if (!S_ISREG(s.st_mode))
        return refuse(err, path, "this is not a regular file, which is never replaced");
    if (!xpe_file_is_result(path, &found->owner))
        return refuse(
            err, path,
            "the file there is not a result of a reconstruction, and only such are replaced");
    found->exists = true;
    found->inode = (int64_t)s.st_ino;
    found->bytes = (int64_t)s.st_size;
    found->mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    return XPE_OK;
}
