/* One HTTP request on its way through the broker, and the answers it can get.
 *
 * A handler answers at once or suspends the request and answers later; exactly one answer.  Loop
 * thread only. */
#ifndef XPD_REQUEST_H
#define XPD_REQUEST_H

#include "broker.h"

#include <microhttpd.h>

#define XPD_SEGMENTS_MAX 8
#define XPD_ARGUMENTS_MAX 32

typedef struct xpd_request {
    xpd_broker *b;
    struct MHD_Connection *connection;
    bool tcp, admin, health; /* which listener */
    int route;               /* index in the table, -1 = none yet */
    int64_t began_ms;
    bool streams, lagged; /* an event stream; it was too slow */
    bool large;           /* the answer may take any time while it moves */
    char method[16];
    char *path; /* decoded in place, cut into segments */
    char *segments[XPD_SEGMENTS_MAX];
    int segment_count;
    char *body;
    size_t body_length, body_room;
    bool body_too_large;
    xpd_caller caller;
    int64_t number; /* X-Request-Id */
    struct {
        char *name, *value; /* decoded */
    } arguments[XPD_ARGUMENTS_MAX];
    int argument_count;
    bool answered;                 /* once and for all; never carried out again */
    struct MHD_Response *response; /* NULL with `answered`: there was no memory for it */
    unsigned status;
    bool waits;  /* an answer will come later */
    bool parked; /* the library has it suspended */
    bool close;
    const char *named; /* the segment at {session} of the path */
    xpd_job *job;      /* reference, of the job in the path; NULL where there is none */
} xpd_request;

/* The answer comes later, by xpd_reply (which may still be in the same handler). */
void xpd_request_wait(xpd_request *r);
/* Takes the response; continues a suspended request. */
void xpd_reply(xpd_request *r, unsigned status, struct MHD_Response *response);
/* Takes body.  type NULL = application/json. */
void xpd_reply_json(xpd_request *r, unsigned status, json_t *body);
void xpd_reply_json_as(xpd_request *r, unsigned status, json_t *body, const char *type,
                       const char *const headers[][2]);
void xpd_reply_problem(xpd_request *r, json_t *problem); /* takes it */
void xpd_reply_error(xpd_request *r, xpd_error *err);    /* releases err */
void xpd_reply_fault(xpd_request *r, xpp_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void xpd_reply_empty(xpd_request *r, unsigned status);
/* Takes the response; NULL where xpd_header found no memory for one of its headers. */
struct MHD_Response *xpd_response_whole(struct MHD_Response *response);
/* text is copied unless static. */
struct MHD_Response *xpd_response_text(const char *text, size_t length, bool is_static,
                                       const char *type);
void xpd_header(struct MHD_Response *response, const char *name, const char *value);

const char *xpd_request_header(const xpd_request *r, const char *name);
/* The first query argument of that name, NULL where there is none. */
const char *xpd_request_query(const xpd_request *r, const char *name);
/* Decodes path and query; false when they break the rules (err says how). */
bool xpd_request_parse(xpd_request *r, const char *url, xpd_error *err);
void xpd_request_free(xpd_request *r);
/* Whether Accept allows the type ("application/json"); a missing header allows all. */
bool xpd_request_accepts(const xpd_request *r, const char *type);
/* A query argument that is a number; false and a reply when it is not one in range. */
bool xpd_request_number(xpd_request *r, const char *name, int64_t minimum, int64_t maximum,
                        int64_t *out);

#endif
