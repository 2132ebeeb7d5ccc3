/* Who is in which group, and which roots and classes follow from it.  By the user database of the
 * system, remembered for a minute, since it may be a slow server.  Loop thread only. */
#ifndef XPD_PEOPLE_H
#define XPD_PEOPLE_H

#include "auth.h"
#include "config.h"

#include <jansson.h>
#include <sys/types.h>

/* group: a name or a number.  A user that the system does not know is in none. */
bool xpd_user_in_group(uid_t uid, const char *group);
/* Forgets what was looked up: the configuration was read again. */
void xpd_people_forget(void);

/* The folders of a list of roots ("/path", or "@group:/path") that the user may use; json null =
 * whatever the process itself may. */
json_t *xpd_roots_of(const xpd_list *roots, uid_t uid);
/* The group of a root, cut out of it, or "" where there is none; *path is the folder. */
void xpd_root_split(char *group, size_t size, const char **path, const char *root);
/* The highest class that the configuration lets the user have: the user's own line in
 * limits.class_for, else the highest of the lines of the user's groups, else limits.class. */
xpd_class xpd_class_of(const xpd_config *config, uid_t uid);
/* The same, and not above what the caller's token is for. */
xpd_class xpd_class_of_caller(const xpd_config *config, const xpd_caller *caller);
/* Whether the caller may have a job of that class; on refusal err says which it may. */
bool xpd_class_allowed(const xpd_config *config, const xpd_caller *caller, xpd_class wanted,
                       xpd_error *err);
/* The weight of the user when turns are taken: the user's own line in limits.share, else the
 * greatest of the lines of the user's groups, else 1. */
double xpd_weight_of(const xpd_config *config, uid_t uid);
/* Whether the groups, users and classes that the configuration names are there. */
bool xpd_people_check(xpd_config *config, xpd_error *err);

#endif
