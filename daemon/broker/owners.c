/* See owners.h.  Notes have the keys "own/INODE/BYTES/MTIME_NS"; n is the uid. */
#include "owners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void xpd_owners_release(xpd_owners *owners)
{
    free(owners->items);
    *owners = (xpd_owners){0};
}

void xpd_owners_take(xpd_owners *owners, const xpd_note *note)
{
    long long inode, bytes, mtime_ns;
    char rest;

    if (sscanf(note->key, "own/%lld/%lld/%lld%c", &inode, &bytes, &mtime_ns, &rest) != 3)
        return;
    if (owners->count == owners->room) {
        size_t room = owners->room ? owners->room * 2 : 64;
        xpd_owned *more = realloc(owners->items, room * sizeof *more);
        if (!more)
            return;
        owners->items = more;
        owners->room = room;
    }
    owners->items[owners->count++] = (xpd_owned){inode, bytes, mtime_ns, note->n};
}

bool xpd_owners_note(xpd_note *out, const xpd_job *job, int64_t now_ms)
{
    const json_t *inode = json_object_get(job->result, "inode"),
                 *bytes = json_object_get(job->result, "bytes"),
                 *mtime = json_object_get(job->result, "mtime_ns");

    *out = (xpd_note){.n = (int64_t)job->uid, .t_ms = now_ms};
    if (json_is_integer(json_object_get(job->result, "owner")) ||
        !json_is_string(json_object_get(job->head, "output")) || !json_is_integer(inode) ||
        !json_is_integer(bytes) || !json_is_integer(mtime))
        return false;
    snprintf(out->key, sizeof out->key, "own/%lld/%lld/%lld", json_integer_value(inode),
             json_integer_value(bytes), json_integer_value(mtime));
    return true;
}

bool xpd_owners_other(const xpd_owners *owners, const json_t *file, uid_t uid)
{
    int64_t inode = json_integer_value(json_object_get(file, "inode")),
            bytes = json_integer_value(json_object_get(file, "bytes")),
            mtime_ns = json_integer_value(json_object_get(file, "mtime_ns"));

    /* the newest word counts: the number of a file that is gone may be given to another */
    for (size_t i = owners->count; i-- > 0;) {
        const xpd_owned *o = &owners->items[i];
        if (o->inode == inode && o->bytes == bytes && o->mtime_ns == mtime_ns)
            return o->uid != (int64_t)uid;
    }
    return false;
}
