/* Work that may hang in a file system, done beside the loop: on a thread of its own, which nobody
 * waits for longer than a while. */
#ifndef XPD_ASIDE_H
#define XPD_ASIDE_H

#include <stdbool.h>

/* A detached thread with a small stack that no signal reaches. */
bool xpd_thread_start(void *(*run)(void *), void *context);
/* Waits until work(context) is over, no longer than limit_s.  true: it is.  false: it is not, or no
 * thread could be made; context was taken and is given to drop, by whoever is the last with it. */
bool xpd_aside(void (*work)(void *context), void (*drop)(void *context), void *context,
               int limit_s);

#endif
