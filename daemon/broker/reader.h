/* One look at a scan file by an xptycho-reader of its own: probe (headers) or read (everything).
 * The process has a deadline and dies with the broker.  Loop thread only. */
#ifndef XPD_READER_H
#define XPD_READER_H

#include "broker.h"

typedef struct xpd_reading xpd_reading;

/* Called once: either scan (body and descriptors may be taken) or problem (taken by the callee). */
typedef void (*xpd_reading_done)(void *context, xpp_ipc_message *scan, json_t *problem);

/* type is XPP_IPC_PROBE or XPP_IPC_READ; the roots are those of the user uid; output_path NULL =
 * the daemon's own folder. */
xpd_reading *xpd_reading_start(xpd_broker *b, xpp_ipc_type type, uid_t uid, json_t *job,
                               const char *output_path, xpd_reading_done done, void *context,
                               xpd_error *err);
/* The callback will not come any more. */
void xpd_reading_abandon(xpd_reading *reading);

#endif
