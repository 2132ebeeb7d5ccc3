/* See lost.h.  SQLite passes over the end of a write-ahead log whose checksums are wrong, as it
 * must after a crash, and makes a new database where there is none: both look like fewer jobs.  The
 * folder of a job is made after its row and deleted after it, so one without a row is a job that
 * was lost, or one whose deletion was cut short, which has ended. */
#include "lost.h"

#include "life.h"
#include "log.h"
#include "queue.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAMED_MAX 100 /* then they are counted */

static bool has_ended(const xpd_broker *b, const char *id)
{
    char path[PATH_MAX];
    xpd_events *events = NULL;
    bool ended;

    xpd_job_path(path, sizeof path, b, id, "events.ndjson");
    ended =
        access(path, F_OK) == 0 && xpd_events_open(&events, path, NULL) && xpd_events_ended(events);
    xpd_events_close(events);
    return ended;
}

bool xpd_lost_look(xpd_broker *b, xpd_error *err)
{
    DIR *folder = opendir(b->jobs_dir);
    struct dirent *entry;
    int64_t lost = 0, unfinished = 0;

    if (!folder)
        return errno == ENOENT ||
               xpd_fail(err, XPP_FAULT_INTERNAL, "", "folder '%s' cannot be opened: %s",
                        b->jobs_dir, strerror(errno));
    while ((entry = readdir(folder))) {
        const char *id = entry->d_name;
        if (strlen(id) != XPP_JOB_ID_SIZE - 1 || !xpp_job_id_valid(id) ||
            xpd_table_find(&b->jobs, id))
            continue;
        bool ended = has_ended(b, id);
        unfinished += !ended;
        if (lost++ < NAMED_MAX)
            xpd_log(XPD_LOG_ERROR, id, "it has files in '%s' and no record in the state%s",
                    b->jobs_dir, ended ? "; it had ended" : ", and had not ended: submit it again");
    }
    closedir(folder);
    if (lost > 0)
        xpd_log(XPD_LOG_ERROR, NULL,
                "'%s/queue.db' or its write-ahead log was damaged or replaced: %lld jobs are lost, "
                "%lld of them unfinished",
                b->config.state_dir, (long long)lost, (long long)unfinished);
    if (unfinished == 0 || b->jobs.count > 0)
        return true;
    return xpd_fail(err, XPP_FAULT_INTERNAL, "",
                    "state '%s/queue.db' is empty, but %lld jobs have files in '%s'; restore it "
                    "from a backup, or move that folder away to begin anew",
                    b->config.state_dir, (long long)lost, b->jobs_dir);
}
