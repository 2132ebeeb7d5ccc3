/* Which site a request came to, and from a page of which one: Host, Origin, the questions that a
 * browser asks first (CORS), the session's cookie.
 *
 * A name of http.host is that of a proxy which ends TLS; this machine's own names are not.  Only
 * that decides whether a cookie is marked for TLS, nothing that a client could claim.  Loop thread
 * only. */
#ifndef XPD_SITE_H
#define XPD_SITE_H

#include "request.h"

#define XPD_COOKIE_NAME_SIZE 32

/* Over TCP: Host is a name of this service, and Origin, where there is one, a site that may call.
 */
bool xpd_site_check(const xpd_request *r, xpd_error *err);
/* Origin is there and is the site that the request came to. */
bool xpd_site_is_own(const xpd_request *r);
bool xpd_site_is_tls(const xpd_request *r);
/* Whether a request by cookie was made by a page of the service itself, or by no page. */
bool xpd_site_check_cookie(const xpd_request *r, xpd_error *err);
void xpd_site_cookie_name(char out[XPD_COOKIE_NAME_SIZE], const xpd_request *r);
/* Answers an OPTIONS request, which comes without credentials. */
void xpd_site_options(xpd_request *r);
/* What every answer says to browsers. */
void xpd_site_headers(const xpd_request *r);

#endif
