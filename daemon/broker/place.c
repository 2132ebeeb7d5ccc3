/* See place.h. */
#include "place.h"

#include "log.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

const char *xpd_place_network(unsigned long type)
{
    /* the kernel's numbers, which no one header has all of */
    static const struct {
        unsigned long type;
        const char *name;
    } known[] = {{0x6969, "NFS"},         {0x517b, "SMB"},       {0xff534d42, "CIFS"},
                 {0xfe534d42, "SMB 2"},   {0x65735546, "FUSE"},  {0x0bd00bd0, "Lustre"},
                 {0x47504653, "GPFS"},    {0x00c36400, "Ceph"},  {0x19830326, "BeeGFS"},
                 {0x01161970, "GFS2"},    {0x7461636f, "OCFS2"}, {0xaad7aaea, "PanFS"},
                 {0x5346414f, "AFS"},     {0x6b414653, "AFS"},   {0x01021997, "9P"},
                 {0x20030528, "OrangeFS"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].type == (type & 0xffffffff))
            return known[i].name;
    }
    return NULL;
}

bool xpd_place_check(const char *folder, bool allowed, xpd_error *err)
{
    struct statfs st;

    if (statfs(folder, &st) != 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "folder '%s' cannot be looked at: %s", folder,
                        strerror(errno));
    const char *name = xpd_place_network((unsigned long)st.f_type);
    if (!name)
        return true;
    if (!allowed)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "state folder '%s' is on %s, where locks and syncs do not keep what was "
                        "acknowledged and a server that is away stops the service; choose one on a "
                        "local disk (daemon.state_dir), or accept that risk by "
                        "daemon.state_on_network = true",
                        folder, name);
    xpd_log(XPD_LOG_WARNING, NULL,
            "state folder '%s' is on %s (daemon.state_on_network): jobs may be lost or run twice "
            "when its server fails",
            folder, name);
    return true;
}

bool xpd_place_guarded(const char *folder, const char *option, xpd_error *err)
{
    struct stat st;

    if (stat(folder, &st) != 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "folder '%s' cannot be looked at: %s", folder,
                        strerror(errno));
    if (st.st_mode & S_IWOTH)
        return xpd_fail(
            err, XPP_FAULT_BAD_REQUEST, "",
            "folder '%s' can be written by everybody (mode %04o), who could lay links in "
            "the way of the service's files; take that right away (chmod o-w) or choose "
            "another one (%s)",
            folder, (unsigned)st.st_mode & 07777, option);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        xpd_log(XPD_LOG_WARNING, NULL,
                "folder '%s' (%s) belongs to user %u, who can replace what is in it; it should be "
                "user %u's",
                folder, option, (unsigned)st.st_uid, (unsigned)geteuid());
    return true;
}
