/* Jobs that have a folder and no row: the database or its write-ahead log was lost or damaged. */
#ifndef XPD_LOST_H
#define XPD_LOST_H

#include "broker.h"

/* Names each in the log, after all rows were loaded.  false = there are unfinished ones and not one
 * row: an empty queue would hide that all is lost. */
bool xpd_lost_look(xpd_broker *b, xpd_error *err);

#endif
