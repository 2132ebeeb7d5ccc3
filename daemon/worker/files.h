/* Small files and folders of the worker. */
#ifndef XPD_FILES_H
#define XPD_FILES_H

#include "xptychod/engine.h"

/* Joins folder and name; false when it does not fit. */
bool xpd_path_join(char *out, size_t size, const char *folder, const char *name);
/* A path of the command line is relative to where the command was given. */
bool xpd_path_absolute(char *out, size_t size, const char *path);
/* Writes bytes beside `path` and renames them to it: a reader sees the old file or the new one. */
XPE_MUST_CHECK xpe_status xpd_file_replace(const char *path, const void *bytes, size_t size,
                                           xpe_error *err);
/* Reads a whole file ("-" is standard input) of at most max bytes; *out is malloc'd and ends in 0.
 */
XPE_MUST_CHECK xpe_status xpd_file_read(char **out, size_t *size, const char *path, size_t max,
                                        xpe_error *err);

#endif
