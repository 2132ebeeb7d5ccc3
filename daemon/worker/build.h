/* What runs here, to the byte: bits are promised for one build and not for the next. */
#ifndef XPD_BUILD_H
#define XPD_BUILD_H

#include <stddef.h>

/* "VERSION, COMPILER, 0123456789abcdef": the engine's words and a hash over the build ids of this
 * program and of the libraries that compute. */
void xpd_build_text(char *out, size_t size);

#endif
