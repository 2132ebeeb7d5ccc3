/* Reads the parts of one request; every fault still leaves what an answer needs. */
#include "frame.h"

#include <string.h>

const char *xpd_frame_parse(xpd_frame *out, const xpd_slice *parts, size_t count)
{
    size_t at = 1; /* past the identity */

    memset(out, 0, sizeof *out);
    if (at < count && parts[at].size == 0) {
        out->delimiter = true;
        at++;
    }
    if (at >= count)
        return "the message ends before '" XPD_FRAME_MAGIC "'; send ['" XPD_FRAME_MAGIC
               "', request id, JSON]";
    if (parts[at].size != strlen(XPD_FRAME_MAGIC) ||
        memcmp(parts[at].data, XPD_FRAME_MAGIC, parts[at].size) != 0)
        return "the first part is not '" XPD_FRAME_MAGIC "'; send ['" XPD_FRAME_MAGIC
               "', request id, JSON]";
    at++;
    if (at >= count)
        return "the message ends before the request id; send ['" XPD_FRAME_MAGIC
               "', request id, JSON]";
    if (parts[at].size > XPD_FRAME_REQUEST_MAX)
        return "the request id is longer than 32 bytes";
    out->request = parts[at++];
    if (at >= count)
        return "the message ends before the JSON; send ['" XPD_FRAME_MAGIC "', request id, JSON]";
    if (at + 1 != count)
        return "the message has parts after the JSON; send ['" XPD_FRAME_MAGIC
               "', request id, JSON]";
    out->json = parts[at];
    return NULL;
}
