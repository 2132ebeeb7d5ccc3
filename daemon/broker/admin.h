/* What an administrator asks for, over the admin socket or by a signal: reload, drain, dump. */
#ifndef XPD_ADMIN_H
#define XPD_ADMIN_H

#include "broker.h"

/* Reads configuration and tokens again: all is taken or, where anything is wrong, nothing (err says
 * which line).  rest gets the options that differ and need a restart, "" where none; warnings (an
 * array, may be NULL) what is taken and not wise. */
bool xpd_reload(xpd_broker *b, char *rest, size_t size, json_t *warnings, xpd_error *err);
/* The tokens that the configuration names. */
bool xpd_tokens_load(xpd_auth **out, const xpd_config *config, xpd_error *err);
/* No new work; the running job goes back to the queue, or with finish runs to its end. */
void xpd_drain(xpd_broker *b, bool finish);
void xpd_undrain(xpd_broker *b);
/* Writes the state to the log; returns the number of lines. */
int xpd_dump(xpd_broker *b);

#endif
