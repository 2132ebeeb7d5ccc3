/* The writer thread: takes one piece of work at a time, so that a slow disk never stalls the
 * engine.
 *
 * Whoever posts must not touch what the work uses until it is done. */
#ifndef XPD_WRITER_H
#define XPD_WRITER_H

#include <stdbool.h>

typedef struct xpd_writer xpd_writer;

xpd_writer *xpd_writer_create(void); /* NULL when there is no memory or no thread */
/* Finishes the work in hand first. */
void xpd_writer_destroy(xpd_writer *writer);
/* false, and nothing happens, while earlier work is in hand. */
bool xpd_writer_post(xpd_writer *writer, void (*work)(void *context), void *context);
bool xpd_writer_idle(xpd_writer *writer);
void xpd_writer_wait(xpd_writer *writer); /* until idle */

#endif
