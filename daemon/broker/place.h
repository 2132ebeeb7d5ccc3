/* Where the state may lie. */
#ifndef XPD_PLACE_H
#define XPD_PLACE_H

#include "fault.h"

/* Refuses a folder on a network file system, or one made by another process, unless it is allowed:
 * locks and syncs there do not do what SQLite's promise rests on, and a server that is away stops
 * the whole service.  What is allowed so is logged at every start. */
bool xpd_place_check(const char *folder, bool allowed, xpd_error *err);
/* "NFS" for the number that statfs gives it, NULL for a local file system. */
const char *xpd_place_network(unsigned long type);

#endif
