/* The bridge's own key pair: a file with the secret key, Z85, that nobody else may read. */
#ifndef XPD_ZMQ_CURVE_H
#define XPD_ZMQ_CURVE_H

#include <stdbool.h>

#define XPD_CURVE_KEY_SIZE 41 /* 40 characters of Z85 and the final zero */

/* Makes a pair; the secret key goes to a new file (mode 0600), the public one to `public_key`.
 * Reported on stderr. */
bool xpd_curve_make(const char *file, char public_key[XPD_CURVE_KEY_SIZE]);
/* Reads a secret key and finds the public one.  Reported on stderr. */
bool xpd_curve_read(const char *file, char secret[XPD_CURVE_KEY_SIZE],
                    char public_key[XPD_CURVE_KEY_SIZE]);

#endif
