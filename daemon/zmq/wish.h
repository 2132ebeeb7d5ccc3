/* What a subscription asks for, without sockets.
 *
 *   job/ID/         the events of one job, for a subscriber that is known by uid or key
 *   job/ID/TOKEN    the same topic, by right of a token
 *   state/          the state changes of all jobs, for who may see them all
 *   state/TOKEN
 *
 * Anything else, a shorter prefix above all, is no wish: a subscription is a prefix match, and
 * "job/" would be everybody's jobs.  Reentrant. */
#ifndef XPD_ZMQ_WISH_H
#define XPD_ZMQ_WISH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "verb.h"

#include "xptychod/protocol.h"

#define XPD_TOPIC_MAX (8 + XPP_JOB_ID_SIZE)

typedef struct xpd_wish {
    bool on;                       /* false: a subscription is taken back */
    char topic[XPD_TOPIC_MAX];     /* "job/ID/" or "state/" */
    char id[XPP_JOB_ID_SIZE];      /* "" = state/ */
    char token[XPD_TOKEN_MAX + 1]; /* "" = none */
} xpd_wish;

/* A message as XPUB gets it: a byte 1 or 0, then the topic.  false = no wish. */
bool xpd_wish_parse(xpd_wish *out, const char *data, size_t size);

/* Who is at the other end of a connection, as the ZAP handler found out. */
typedef struct xpd_peer {
    bool known;
    bool sees_all; /* root, or the user of the service */
    char user[64]; /* name, or number of a user without one */
} xpd_peer;

/* "uid:1000" or "user:NAME"; NULL or anything else is nobody. */
void xpd_peer_decode(xpd_peer *out, const char *user_id);
/* Whether a known peer may read a job of which this is the document. */
bool xpd_peer_may_read(const xpd_peer *peer, const json_t *job);

#endif
