/* Results on their way to a client.
 *
 * A result may lie on a file system whose server is away, where open and read hang; the loop must
 * not.  So each download has a thread of its own, which opens the file, sees whether it is still
 * the one that was written, and reads ahead into a small ring; the loop takes from the ring.  A
 * thread that hangs keeps its place among the few that one user may have, and nothing else.  (Where
 * the kernel lets it not even be killed, as FUSE does, the process that ends stays in the table
 * until the file system answers; NFS lets go.)
 *
 * Loop thread only, but for the thread of a download. */
#ifndef XPD_DOWNLOAD_H
#define XPD_DOWNLOAD_H

#include "request.h"

#define XPD_DOWNLOADS_MAX 64
#define XPD_DOWNLOADS_USER 16

typedef struct xpd_download xpd_download;

/* Answers the request with opened(r, download) when the file of the result document is open and
 * known again, else with a problem.  The callee passes the download to xpd_download_response or
 * xpd_download_drop. */
void xpd_download_start(xpd_request *r, const json_t *result,
                        void (*opened)(xpd_request *r, xpd_download *d));
/* The bytes first to last; takes d, also where it returns NULL. */
struct MHD_Response *xpd_download_response(xpd_download *d, int64_t first, int64_t last);
void xpd_download_drop(xpd_download *d);
int64_t xpd_download_size(const xpd_download *d);

/* Whether the file of the result document is the one that was written.  Waits for the answer, but
 * no longer than 5 s: no answer is no. */
bool xpd_result_is_there(const json_t *result);

void xpd_downloads_tick(xpd_broker *b); /* ends those that got nothing for too long */
bool xpd_downloads_none(const xpd_broker *b);
/* Descriptors of the files that are open; returns how many. */
int xpd_downloads_open(const xpd_broker *b, int out[XPD_DOWNLOADS_MAX]);
void xpd_downloads_close(xpd_broker *b); /* only when there are none */

#endif
