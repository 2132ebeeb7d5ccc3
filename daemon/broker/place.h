/* Where our folders may lie. */
#ifndef XPD_PLACE_H
#define XPD_PLACE_H

#include "fault.h"

/* Refuses a folder on a network file system, or one made by another process, unless it is allowed:
 * locks and syncs there do not do what SQLite's promise rests on, and a server that is away stops
 * the whole service.  What is allowed so is logged at every start. */
bool xpd_place_check(const char *folder, bool allowed, xpd_error *err);
/* Refuses a folder that everybody may write, where links can be laid in the way of our files; one
 * of another user than root and ourselves is logged.  option: the name of the setting. */
bool xpd_place_guarded(const char *folder, const char *option, xpd_error *err);
/* "NFS" for the number that statfs gives it, NULL for a local file system. */
const char *xpd_place_network(unsigned long type);

#endif
