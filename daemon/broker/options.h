/* The table of settings that the command line, the configuration file and --help share; config.c
 * reads them by it. */
#ifndef XPD_OPTIONS_H
#define XPD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The member of xpd_config that an option sets: bool, char *, char * that is made absolute,
 * xpd_list, xpd_list of folders, int64_t, int64_t. */
typedef enum xpd_option_kind {
    XPD_FLAG,
    XPD_TEXT,
    XPD_PATH,
    XPD_LIST,
    XPD_PATHS,
    XPD_INTEGER,
    XPD_OCTAL
} xpd_option_kind;

typedef struct xpd_option {
    const char *section, *key; /* in the file; section NULL = command line only */
    const char *flag;          /* on the command line, without the dashes */
    xpd_option_kind kind;
    size_t offset;            /* of the member in xpd_config */
    int64_t minimum, maximum; /* of a number */
    const char *initial;      /* NULL = not set */
    const char *help;
} xpd_option;

#define XPD_OPTION_ROOM 128 /* at least as many as there are */

extern const xpd_option xpd_options[];
extern const size_t xpd_option_count;

/* Whether a reload may change it: nothing that is open, running or a place. */
bool xpd_option_is_live(const xpd_option *o);

#endif
