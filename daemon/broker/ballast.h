/* A file in the state folder that does nothing but take room.  On a full disk SQLite can neither
 * write nor delete, so it is given up then: running jobs can end, nothing new is accepted (507),
 * and it is made again when there is room.  Loop thread only. */
#ifndef XPD_BALLAST_H
#define XPD_BALLAST_H

#include "broker.h"

/* Makes it where that leaves more than low_disk_mib free. */
void xpd_ballast_make(xpd_broker *b);
/* Gives its room back; the name goes too. */
void xpd_ballast_drop(xpd_broker *b);
/* The same because the disk is full: what it gave is for jobs that run, not for new ones. */
bool xpd_ballast_give(xpd_broker *b); /* whether it was there */
/* Free bytes of the state folder below which no job is accepted. */
int64_t xpd_ballast_needed(const xpd_broker *b);

#endif
