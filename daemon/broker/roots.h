/* Whether the folders that jobs may use and the service's own keep apart. */
#ifndef XPD_ROOTS_H
#define XPD_ROOTS_H

#include "config.h"
#include "fault.h"

#include <jansson.h>

/* Of a service for several users; that of one user alone may do what the user may.  A write root
 * that holds the state or the runtime folder is refused, as is one inside of them: a job could
 * write there what the service takes for its own.  A data root that does is told in the log and in
 * warnings (an array; may be NULL): jobs could read what is other users'.  The results are an
 * exception, which everybody may be meant to read and name.  Links are followed, as far as their
 * file systems answer in time. */
bool xpd_roots_apart(const xpd_config *config, const char *state_dir, const char *runtime_dir,
                     json_t *warnings, xpd_error *err);

#endif
