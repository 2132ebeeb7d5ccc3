/* Whose the file is that a job is going to write: not that of another job that is not finished, not
 * the result of another user.  By what file and folder are, not by their names: `..`, links and
 * doubled slashes give them others.  Loop thread only. */
#ifndef XPD_OUTPUT_H
#define XPD_OUTPUT_H

#include "broker.h"

/* `scan` is the reader's answer, path what the job names (NULL = nothing: always allowed), self the
 * job itself where it exists already. */
bool xpd_output_allowed(const xpd_broker *b, uid_t uid, const xpd_job *self, const char *path,
                        const json_t *scan, xpd_error *err);
/* The same by name alone, before a reader has looked. */
bool xpd_output_free(const xpd_broker *b, uid_t uid, const char *path, xpd_error *err);
/* Whether two jobs write the same file, as the reader found both. */
bool xpd_output_same(const char *path, const json_t *scan, const char *other_path,
                     const json_t *other_scan);
/* Remembers the folder that the reader found. */
void xpd_output_note(xpd_job *job, const json_t *scan);

#endif
