/* See session.h. */
#include "session.h"

#include <errno.h>
#include <nettle/base16.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <string.h>
#include <sys/random.h>

#define SECRET_BYTES 32

static void hash(uint8_t out[SHA256_DIGEST_SIZE], const char *secret)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, strlen(secret), (const uint8_t *)secret);
    sha256_digest(&context, SHA256_DIGEST_SIZE, out);
}

static bool make_secret(char out[XPD_SECRET_SIZE])
{
    uint8_t bytes[SECRET_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return false;
    base16_encode_update(out, sizeof bytes, bytes);
    out[2 * SECRET_BYTES] = '\0';
    explicit_bzero(bytes, sizeof bytes);
    return true;
}

bool xpd_session_alive(const xpd_session *session, int64_t now_ms)
{
    return session->kind != XPD_SESSION_NONE && now_ms < session->expires_ms;
}

/* A free place; where the user has enough of the kind, that of the user's oldest. */
static xpd_session *find_place(xpd_sessions *all, xpd_session_kind kind, uid_t uid, int64_t now_ms)
{
    xpd_session *free_one = NULL, *oldest = NULL;
    int mine = 0;

    for (int i = 0; i < XPD_SESSIONS_MAX; i++) {
        xpd_session *s = &all->items[i];
        if (!xpd_session_alive(s, now_ms)) {
            free_one = s;
        } else if (s->kind == kind && s->maker.uid == uid) {
            mine++;
            if (!oldest || s->number < oldest->number)
                oldest = s;
        }
    }
    return mine >= XPD_SESSIONS_USER ? oldest : free_one;
}

xpd_session *xpd_session_make(xpd_sessions *all, xpd_session_kind kind, const xpd_caller *maker,
                              xpd_scope scope, int64_t ttl_ms, int64_t now_ms,
                              char secret[XPD_SECRET_SIZE], xpd_error *err)
{
    xpd_session *s = find_place(all, kind, maker->uid, now_ms);

    if (!s) {
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "",
                 "%d sessions and links are open; that is the limit", XPD_SESSIONS_MAX);
        return NULL;
    }
    if (!make_secret(secret)) {
        xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "no random bytes: %s", strerror(errno));
        return NULL;
    }
    *s = (xpd_session){.kind = kind,
                       .maker = *maker,
                       .number = all->made++,
                       .made_ms = now_ms,
                       .expires_ms = now_ms + ttl_ms};
    s->maker.scope = scope < maker->scope ? scope : maker->scope;
    xpp_job_id_make(s->id);
    hash(s->sha, secret);
    return s;
}

xpd_session *xpd_session_find(xpd_sessions *all, xpd_session_kind kind, const char *secret,
                              int64_t now_ms)
{
    uint8_t sha[SHA256_DIGEST_SIZE];
    xpd_session *found = NULL;

    hash(sha, secret);
    for (int i = 0; i < XPD_SESSIONS_MAX; i++) {
        xpd_session *s = &all->items[i];
        if (memeql_sec(sha, s->sha, sizeof sha) && s->kind == kind && xpd_session_alive(s, now_ms))
            found = s;
    }
    return found;
}

bool xpd_session_caller(const xpd_session *session, const xpd_auth *auth, xpd_caller *out,
                        xpd_error *err)
{
    *out = session->maker;
    if (!xpd_auth_renew(auth, out, err))
        return false;
    memcpy(out->session, session->id, sizeof out->session);
    return true;
}

xpd_session *xpd_session_by_id(xpd_sessions *all, const char *id, int64_t now_ms)
{
    for (int i = 0; i < XPD_SESSIONS_MAX; i++) {
        if (xpd_session_alive(&all->items[i], now_ms) && strcmp(all->items[i].id, id) == 0)
            return &all->items[i];
    }
    return NULL;
}

void xpd_session_end(xpd_session *session)
{
    explicit_bzero(session, sizeof *session);
}
