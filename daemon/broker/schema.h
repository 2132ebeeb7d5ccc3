/* The tables of the state and their versions.  A database of an older version is brought forward in
 * one transaction, after a copy of it was made beside it; one of a newer version is refused. Before
 * the store's thread starts. */
#ifndef XPD_SCHEMA_H
#define XPD_SCHEMA_H

#include "fault.h"

struct sqlite3;

#define XPD_SCHEMA_VERSION 3

/* Checks the file, makes the tables of an empty one, migrates an old one. */
bool xpd_schema_open(struct sqlite3 *db, const char *path, xpd_error *err);

#endif
