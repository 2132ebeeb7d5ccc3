/* The multipart framing of requests, without sockets.
 *
 *   in, out:  [identity] [""]? ["XPT1"] [request id, at most 32 bytes] [JSON]
 *
 * The empty delimiter is what a REQ socket sends and wants back; a DEALER has none.  Everything is
 * borrowed from the received parts.  Reentrant. */
#ifndef XPD_ZMQ_FRAME_H
#define XPD_ZMQ_FRAME_H

#include <stdbool.h>
#include <stddef.h>

#define XPD_FRAME_MAGIC "XPT1"
#define XPD_FRAME_REQUEST_MAX 32
#define XPD_FRAME_PARTS_MAX 5 /* of a well-formed request, identity and delimiter included */

typedef struct xpd_slice {
    const char *data;
    size_t size;
} xpd_slice;

typedef struct xpd_frame {
    bool delimiter;    /* to be echoed */
    xpd_slice request; /* id to be echoed; empty where the message has none that can be trusted */
    xpd_slice json;    /* empty when the message is malformed */
} xpd_frame;

/* parts[0] is the identity.  `count` is how many parts the message had; of more than
 * XPD_FRAME_PARTS_MAX only the first XPD_FRAME_PARTS_MAX need be there.  Returns NULL when the
 * message is well formed, else a sentence that says what is wrong (static); *out is always set,
 * with as much as an answer can echo. */
const char *xpd_frame_parse(xpd_frame *out, const xpd_slice *parts, size_t count);

#endif
