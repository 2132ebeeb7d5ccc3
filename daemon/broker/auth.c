/* See auth.h. */
#include "auth.h"

#include "log.h"
#include "loop.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/base16.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TOKENS_MAX 1024
#define TOKEN_BYTES 32

typedef struct token {
    uint8_t sha[SHA256_DIGEST_SIZE];
    uid_t uid;
    char name[64];
    xpd_scope scope;
    xpd_class class_most;
    int64_t expires_ms; /* 0 = never */
} token;

struct xpd_auth {
    token *tokens;
    size_t count;
};

static void sha256(uint8_t out[SHA256_DIGEST_SIZE], const void *data, size_t length)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, length, data);
    sha256_digest(&context, SHA256_DIGEST_SIZE, out);
}

void xpd_sha256_hex(char out[65], const void *data, size_t length)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256(digest, data, length);
    base16_encode_update(out, sizeof digest, digest);
    out[64] = '\0';
}

static bool decode_sha(uint8_t out[SHA256_DIGEST_SIZE], const char *hex)
{
    struct base16_decode_ctx context;
    size_t length = SHA256_DIGEST_SIZE;

    if (strlen(hex) != 2 * SHA256_DIGEST_SIZE)
        return false;
    base16_decode_init(&context);
    return base16_decode_update(&context, &length, out, 2 * SHA256_DIGEST_SIZE, hex) &&
           base16_decode_final(&context) && length == SHA256_DIGEST_SIZE;
}

/* Remembered, since the user database may be a slow server: asked once a uid, not once a request.
 */
void xpd_user_name(char *out, size_t size, uid_t uid)
{
    static struct {
        bool known;
        uid_t uid;
        char name[64];
    } names[64];
    struct passwd entry, *found = NULL;
    char buffer[4096];
    size_t slot = uid % 64;

    if (!names[slot].known || names[slot].uid != uid) {
        names[slot].known = true;
        names[slot].uid = uid;
        if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
            snprintf(names[slot].name, sizeof names[slot].name, "%s", found->pw_name);
        else
            snprintf(names[slot].name, sizeof names[slot].name, "%lu", (unsigned long)uid);
    }
    snprintf(out, size, "%s", names[slot].name);
}

bool xpd_user_find(uid_t *out, const char *user)
{
    struct passwd entry, *found = NULL;
    char buffer[4096], *end = NULL;

    if (isdigit((unsigned char)user[0])) {
        unsigned long number = strtoul(user, &end, 10);
        *out = (uid_t)number;
        return !*end && number < (uid_t)-1;
    }
    if (getpwnam_r(user, &entry, buffer, sizeof buffer, &found) != 0 || !found)
        return false;
    *out = found->pw_uid;
    return true;
}

/* ------------------------------------------------------------------------------------- files */

static bool add_token(xpd_auth *auth, const token *t)
{
    token *more = realloc(auth->tokens, (auth->count + 1) * sizeof *more);
    if (!more)
        return false;
    auth->tokens = more;
    auth->tokens[auth->count++] = *t;
    return true;
}

static const char *const scopes[] = {"", "read", "submit", "admin"};

const char *xpd_scope_name(xpd_scope scope)
{
    return scopes[scope];
}

/* A line that names a class alone has the scope submit, as one without words. */
static bool parse_scopes(xpd_scope *out, xpd_class *most, char *text)
{
    char *rest = NULL;
    bool classed = false;

    *out = XPD_SCOPE_NONE;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        xpd_scope found = XPD_SCOPE_NONE;
        if (strncmp(word, "class=", 6) == 0) {
            if (classed || !xpd_class_find(most, word + 6))
                return false;
            classed = true;
            continue;
        }
        for (int i = XPD_SCOPE_READ; i <= XPD_SCOPE_ADMIN; i++) {
            if (strcmp(word, scopes[i]) == 0)
                found = (xpd_scope)i;
        }
        if (!found)
            return false;
        *out = found > *out ? found : *out;
    }
    if (classed && *out == XPD_SCOPE_NONE)
        *out = XPD_SCOPE_SUBMIT;
    return *out != XPD_SCOPE_NONE;
}

static bool parse_expiry(int64_t *out_ms, const char *text)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"};
    for (int i = 0; i < 2; i++) {
        struct tm when = {0};
        const char *end = strptime(text, forms[i], &when);
        struct tm same = when;
        if (!end || *end)
            continue;
        *out_ms = (int64_t)timegm(&same) * 1000;
        return *out_ms > 0 && same.tm_mday == when.tm_mday; /* not the 31st of April */
    }
    return false;
}

static bool parse_line(xpd_auth *auth, char *text, const char *path, int number, xpd_error *err)
{
    char *rest = NULL;
    token t = {.scope = XPD_SCOPE_SUBMIT, .class_most = XPD_CLASS_LIVE};

    text[strcspn(text, "\r\n")] = '\0';
    while (*text == ' ' || *text == '\t')
        text++;
    if (!*text || *text == '#')
        return true;
    for (size_t n = strlen(text); n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'); n--)
        text[n - 1] = '\0';
    const char *name = strtok_r(text, ":", &rest), *user = strtok_r(NULL, ":", &rest),
               *sha = strtok_r(NULL, ":", &rest);
    char *words = strtok_r(NULL, ":", &rest); /* the rest is the expiry, which has colons */
    if (!name || !user || !sha || !decode_sha(t.sha, sha))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "token file '%s', line %d: not 'name:user:sha256 in 64 hex digits'", path,
                        number);
    if (words && !parse_scopes(&t.scope, &t.class_most, words))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "token file '%s', line %d: the scopes are read, submit and admin, with "
                        "commas between, and class=live, normal, batch or scavenger",
                        path, number);
    if (words && rest && *rest && !parse_expiry(&t.expires_ms, rest))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "token file '%s', line %d: the expiry '%.40s' is not a date such as "
                        "2027-01-31 or 2027-01-31T18:00:00Z",
                        path, number, rest);
    if (!xpd_user_find(&t.uid, user))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "token file '%s', line %d: there is no user '%s'", path, number, user);
    if (auth->count == TOKENS_MAX)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "token file '%s': more than %d tokens",
                        path, TOKENS_MAX);
    snprintf(t.name, sizeof t.name, "%s", name);
    return add_token(auth, &t) || xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
}

bool xpd_auth_load(xpd_auth **out, const char *path, xpd_error *err)
{
    xpd_auth *auth = calloc(1, sizeof *auth);
    FILE *file = NULL;
    char text[512];
    bool ok = false;

    *out = NULL;
    if (!auth)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    if (path && !(file = fopen(path, "re"))) {
        xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "token file '%s' cannot be read: %s", path,
                 strerror(errno));
        goto done;
    }
    for (int number = 1; file && fgets(text, sizeof text, file); number++) {
        if (!parse_line(auth, text, path, number, err))
            goto done;
    }
    *out = auth;
    auth = NULL;
    ok = true;
done:
    if (file)
        fclose(file);
    xpd_auth_destroy(auth);
    return ok;
}

/* A token written by an earlier start is kept, so that clients survive a restart. */
static bool read_token(char hex[2 * TOKEN_BYTES + 1], const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                (st.st_mode & 077) == 0 && read(fd, hex, 2 * TOKEN_BYTES) == 2 * TOKEN_BYTES;
    close(fd);
    hex[2 * TOKEN_BYTES] = '\0';
    return good && strspn(hex, "0123456789abcdef") == 2 * TOKEN_BYTES;
}

static bool write_token(char hex[2 * TOKEN_BYTES + 1], const char *path, xpd_error *err)
{
    uint8_t bytes[TOKEN_BYTES];
    char beside[4096];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "no random bytes: %s", strerror(errno));
    base16_encode_update(hex, sizeof bytes, bytes);
    hex[2 * TOKEN_BYTES] = '\0';
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    unlink(beside);
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && dprintf(fd, "%s\n", hex) == 2 * TOKEN_BYTES + 1;
    if (fd >= 0 && close(fd) != 0)
        ok = false;
    if (!ok || rename(beside, path) != 0)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "token file '%s' cannot be written: %s", path,
                        strerror(errno));
    return true;
}

bool xpd_auth_user(xpd_auth **out, const char *path, xpd_error *err)
{
    char hex[2 * TOKEN_BYTES + 1];
    token t = {.uid = geteuid(), .name = "user", .scope = XPD_SCOPE_ADMIN};
    xpd_auth *auth;

    *out = NULL;
    if (!read_token(hex, path) && !write_token(hex, path, err))
        return false;
    sha256(t.sha, hex, 2 * TOKEN_BYTES);
    auth = calloc(1, sizeof *auth);
    if (!auth || !add_token(auth, &t)) {
        xpd_auth_destroy(auth);
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    }
    *out = auth;
    return true;
}

void xpd_auth_destroy(xpd_auth *auth)
{
    if (!auth)
        return;
    free(auth->tokens);
    free(auth);
}

/* ------------------------------------------------------------------------------------- check */

/* Every token is compared, so the time does not say where it matched. */
static const token *find_token(const xpd_auth *auth, const uint8_t sha[SHA256_DIGEST_SIZE])
{
    const token *found = NULL;
    for (size_t i = 0; i < auth->count; i++) {
        if (memeql_sec(sha, auth->tokens[i].sha, SHA256_DIGEST_SIZE))
            found = &auth->tokens[i];
    }
    return found;
}

static bool is_over(const token *t)
{
    return t->expires_ms && xpd_wall_ms() >= t->expires_ms;
}

bool xpd_auth_renew(const xpd_auth *auth, xpd_caller *caller, xpd_error *err)
{
    const token *t = *caller->token ? find_token(auth, caller->token_sha) : NULL;

    if (!*caller->token)
        return true; /* a peer of the unix socket */
    if (!t || is_over(t) || t->uid != caller->uid)
        return xpd_fail(err, XPP_FAULT_UNAUTHENTICATED, "",
                        "the token that the session was made with is not valid any more");
    if (t->scope < caller->scope)
        caller->scope = t->scope;
    caller->class_most = t->class_most;
    caller->expires_ms = t->expires_ms;
    return true;
}

static bool check_token(const xpd_auth *auth, xpd_caller *out, const char *text, xpd_error *err)
{
    sha256(out->token_sha, text, strlen(text));
    const token *found = find_token(auth, out->token_sha);

    if (!found)
        return xpd_fail(err, XPP_FAULT_UNAUTHENTICATED, "", "the token is not known");
    if (is_over(found))
        return xpd_fail(err, XPP_FAULT_UNAUTHENTICATED, "", "the token has expired");
    out->uid = found->uid;
    out->scope = found->scope;
    out->expires_ms = found->expires_ms;
    out->class_most = found->class_most;
    snprintf(out->token, sizeof out->token, "%s", found->name);
    return true;
}

bool xpd_caller_sees(const xpd_caller *caller, uid_t owner)
{
    return caller->uid == owner || caller->scope == XPD_SCOPE_ADMIN;
}

bool xpd_auth_check(const xpd_auth *auth, xpd_caller *out, const char *authorization, int fd,
                    xpd_error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    *out = (xpd_caller){.scope = XPD_SCOPE_SUBMIT};
    if (authorization) {
        if (strncasecmp(authorization, "Bearer ", 7) != 0)
            return xpd_fail(err, XPP_FAULT_UNAUTHENTICATED, "",
                            "the Authorization header is not 'Bearer TOKEN'");
        authorization += 7;
        while (*authorization == ' ')
            authorization++;
        if (!check_token(auth, out, authorization, err))
            return false;
    } else if (fd < 0) {
        return xpd_fail(err, XPP_FAULT_UNAUTHENTICATED, "",
                        "no token; send 'Authorization: Bearer TOKEN'");
    } else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        return xpd_fail(err, XPP_FAULT_UNAUTHENTICATED, "", "the peer's uid is not known: %s",
                        strerror(errno));
    } else {
        out->uid = peer.uid; /* the pid is not used: it may belong to someone else by now */
    }
    xpd_user_name(out->user, sizeof out->user, out->uid);
    return true;
}
