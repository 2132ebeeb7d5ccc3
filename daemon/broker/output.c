/* See output.h. */
#include "output.h"

#include <string.h>

static const char *output_of(const xpd_job *job)
{
    return json_string_value(json_object_get(job->head, "output"));
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool taken(const xpd_job *job, uid_t uid, const char *path, xpd_error *err)
{
    if (job->uid == uid)
        return xpd_fail(err, XPP_FAULT_OUTPUT, "/output/path",
                        "output.path '%s' is the output of job %s, which is not finished; choose "
                        "another or cancel that job",
                        path, job->id);
    return xpd_fail(err, XPP_FAULT_OUTPUT, "/output/path",
                    "output.path '%s' belongs to another user's job; choose another", path);
}

bool xpd_output_free(const xpd_broker *b, uid_t uid, const char *path, xpd_error *err)
{
    for (size_t i = 0; path && i < b->jobs.count; i++) {
        const xpd_job *job = b->jobs.items[i];
        const char *other = output_of(job);
        bool over = xpd_state_terminal(job->state);
        if (other && strcmp(other, path) == 0 && (!over || (job->uid != uid && job->result)))
            return taken(job, uid, path, err);
    }
    return true;
}

bool xpd_output_same(const char *path, const json_t *scan, const char *other_path,
                     const json_t *other_scan)
{
    const json_t *a = json_object_get(scan, "output_disk"),
                 *b = json_object_get(other_scan, "output_disk");

    return json_is_object(a) && strcmp(last_name(path), last_name(other_path)) == 0 &&
           json_equal(json_object_get(a, "device"), json_object_get(b, "device")) &&
           json_equal(json_object_get(a, "inode"), json_object_get(b, "inode"));
}

void xpd_output_note(xpd_job *job, const json_t *scan)
{
    const json_t *disk = json_object_get(scan, "output_disk");
    job->folder_device = json_integer_value(json_object_get(disk, "device"));
    job->folder_inode = json_integer_value(json_object_get(disk, "inode"));
}

/* Another job that is not finished writes a file of that name into that folder. */
static const xpd_job *writer_of(const xpd_broker *b, const xpd_job *self, const char *path,
                                const json_t *scan)
{
    const json_t *disk = json_object_get(scan, "output_disk");
    int64_t device = json_integer_value(json_object_get(disk, "device")),
            inode = json_integer_value(json_object_get(disk, "inode"));

    for (size_t i = 0; inode != 0 && i < b->jobs.count; i++) {
        const xpd_job *job = b->jobs.items[i];
        const char *other = output_of(job);
        if (job != self && other && !xpd_state_terminal(job->state) && job->folder_inode == inode &&
            job->folder_device == device && strcmp(last_name(other), last_name(path)) == 0)
            return job;
    }
    return NULL;
}

/* Another user's job that is remembered left this file. */
static bool result_of_other(const xpd_broker *b, uid_t uid, const json_t *found)
{
    static const char *const members[] = {"inode", "bytes", "mtime_ns"};

    for (size_t i = 0; i < b->jobs.count; i++) {
        const xpd_job *job = b->jobs.items[i];
        size_t same = 0;
        if (job->uid == uid || !json_is_object(job->result))
            continue;
        while (same < 3 && json_equal(json_object_get(found, members[same]),
                                      json_object_get(job->result, members[same])))
            same++;
        if (same == 3)
            return true;
    }
    const json_t *owner = json_object_get(found, "owner");
    if (json_is_integer(owner)) /* the file says it */
        return json_integer_value(owner) != (json_int_t)uid;
    return xpd_owners_other(&b->owners, found, uid);
}

bool xpd_output_allowed(const xpd_broker *b, uid_t uid, const xpd_job *self, const char *path,
                        const json_t *scan, xpd_error *err)
{
    const json_t *found = json_object_get(scan, "replaces");
    const xpd_job *writer = path ? writer_of(b, self, path, scan) : NULL;

    if (writer)
        return taken(writer, uid, path, err);
    if (path && json_is_object(found) && result_of_other(b, uid, found))
        return xpd_fail(err, XPP_FAULT_OUTPUT, "/output/path",
                        "output.path names the result of another user's job; choose another");
    return true;
}
