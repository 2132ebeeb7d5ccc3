/* What a request must be before its body is read: framed without doubt, meant for this service, by
 * somebody that is known, not too often, of the right type.  Loop thread only. */
#ifndef XPD_GUARD_H
#define XPD_GUARD_H

#include "request.h"

/* libmicrohttpd 0.9.75 serves a smuggled request; true = the framing is not ambiguous. */
bool xpd_guard_framing(struct MHD_Connection *c, const char *version, xpd_error *err);
/* Everything else; fills in the caller. */
bool xpd_guard_request(xpd_request *r, xpd_error *err);
bool xpd_request_has_body(const xpd_request *r);

#endif
