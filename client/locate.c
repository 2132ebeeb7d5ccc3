/* Finds the daemon's address and the caller's token, in the order that xptychod/client.h states.
 *
 * The first place that exists decides, even where nobody listens there any more: a client that
 * moved on to another daemon would send a job to the wrong queue. */
#include "locate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail.h"

#define SYSTEM_SOCKET "/run/xptycho/api.sock"
#define SYSTEM_ADMIN_SOCKET "/run/xptycho/admin.sock"
#define FILE_MAX 65536 /* bytes of a ready file or a token file */

static bool set_text(char *out, size_t size, const char *text)
{
    int n = snprintf(out, size, "%s", text);
    return n >= 0 && (size_t)n < size;
}

static const char *env_get(const xpc_options *options, const char *name)
{
    const char *value = options->env ? options->env(name) : NULL;
    return value && value[0] ? value : NULL;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* A small file as text (the caller's). */
static xpc_status read_file(char **out, const char *path, const char *what, xpc_error *err)
{
    xpc_status st = XPC_OK;
    char *text = malloc(FILE_MAX + 1);
    size_t used = 0;
    int fd = -1;

    *out = NULL;
    if (!text)
        return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        st = xpc_fail(err, XPC_IO, "cannot read the %s '%s': %s", what, path, strerror(errno));
        goto done;
    }
    for (;;) {
        ssize_t n = read(fd, text + used, FILE_MAX + 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            st = xpc_fail(err, XPC_IO, "cannot read the %s '%s': %s", what, path, strerror(errno));
            goto done;
        }
        if (n == 0)
            break;
        used += (size_t)n;
        if (used > FILE_MAX) {
            st = xpc_fail(err, XPC_IO, "the %s '%s' is longer than %d bytes", what, path, FILE_MAX);
            goto done;
        }
    }
    text[used] = '\0';
    *out = text;
    text = NULL;
done:
    if (fd >= 0)
        (void)close(fd);
    free(text);
    return st;
}

/* Takes the white space off both ends; what stays must be printable ASCII without blanks, since it
 * becomes part of a header line. */
static xpc_status token_set(xpc_place *place, const char *text, const char *source, xpc_error *err)
{
    size_t first = strspn(text, " \t\r\n"), length = strcspn(text + first, " \t\r\n"), i;

    if (length == 0 || text[first + length + strspn(text + first + length, " \t\r\n")] != '\0')
        return xpc_fail(err, XPC_INVALID, "%s must hold one token without blanks", source);
    for (i = 0; i < length; i++)
        if (text[first + i] < 0x21 || text[first + i] > 0x7e)
            return xpc_fail(err, XPC_INVALID, "%s holds bytes that no token has", source);
    free(place->token);
    place->token = strndup(text + first, length);
    return place->token ? XPC_OK : xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
}

static xpc_status token_read(xpc_place *place, const char *path, xpc_error *err)
{
    xpc_status st = XPC_OK;
    char *text = NULL, source[640];

    (void)snprintf(source, sizeof(source), "the token file '%.500s'", path);
    XPC_TRY(read_file(&text, path, "token file", err));
    XPC_TRY(token_set(place, text, source, err));
done:
    free(text);
    return st;
}

/* "unix:/path", "http://host:port" or "https://...". */
static xpc_status address_set(xpc_place *place, const char *server, xpc_error *err)
{
    size_t length = strlen(server);

    if (strncmp(server, "unix:/", 6) == 0) {
        if (!set_text(place->socket, sizeof(place->socket), server + 5) || length > 5 + 107)
            return xpc_fail(err, XPC_INVALID,
                            "server '%.80s...': a socket path has at most 107 bytes", server);
        (void)set_text(place->base, sizeof(place->base), "http://localhost");
    } else if (strncmp(server, "http://", 7) == 0 || strncmp(server, "https://", 8) == 0) {
        const char *host = strstr(server, "://") + 3;
        size_t host_length = strcspn(host, "/?#");

        while (length > 0 && server[length - 1] == '/')
            length--;
        if (host_length == 0 || length > sizeof(place->base) - 1 ||
            host + host_length < server + length || strpbrk(server, " \t\r\n@"))
            return xpc_fail(err, XPC_INVALID,
                            "server '%.200s': write scheme, host and port, for instance "
                            "http://127.0.0.1:8270",
                            server);
        place->socket[0] = '\0';
        (void)snprintf(place->base, sizeof(place->base), "%.*s", (int)length, server);
    } else {
        return xpc_fail(
            err, XPC_INVALID,
            "server '%.200s': give http://HOST:PORT, unix:/PATH or the daemon's runtime "
            "folder",
            server);
    }
    (void)snprintf(place->server, sizeof(place->server), "%s%s", place->socket[0] ? "unix:" : "",
                   place->socket[0] ? place->socket : place->base);
    return XPC_OK;
}

/* Reads a ready file.  *out is the caller's. */
static xpc_status ready_read(json_t **out, const char *path, xpc_error *err)
{
    xpc_status st = XPC_OK;
    char *text = NULL;
    json_error_t where;
    json_t *doc = NULL;

    *out = NULL;
    XPC_TRY(read_file(&text, path, "ready file", err));
    doc = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(doc)) {
        st = xpc_fail(err, XPC_IO, "the ready file '%s' holds no JSON object", path);
        goto done;
    }
    *out = doc;
    doc = NULL;
done:
    json_decref(doc);
    free(text);
    return st;
}

static const char *ready_text(const json_t *ready, const char *name)
{
    const char *value = json_string_value(json_object_get(ready, name));
    return value && value[0] ? value : NULL;
}

/* Address from a ready file; its token too when the address is TCP and no other token is known. */
static xpc_status ready_use(xpc_place *place, const char *path, bool admin, xpc_error *err)
{
    xpc_status st = XPC_OK;
    json_t *ready = NULL;
    const char *socket, *http, *token_file;
    char server[1024];

    XPC_TRY(ready_read(&ready, path, err));
    socket = ready_text(ready, admin ? "admin" : "unix");
    http = admin ? NULL : ready_text(ready, "http");
    token_file = ready_text(ready, "token_file");
    if (!socket && !http) {
        st = xpc_fail(err, XPC_IO, "the ready file '%s' names %s", path,
                      admin ? "no socket 'admin'" : "neither 'unix' nor 'http'");
        goto done;
    }
    (void)snprintf(server, sizeof(server), "%s%s", socket ? "unix:" : "", socket ? socket : http);
    XPC_TRY(address_set(place, server, err));
    if (!place->socket[0] && !place->token && token_file)
        XPC_TRY(token_read(place, token_file, err));
    (void)snprintf(place->found, sizeof(place->found), "the ready file '%.600s'", path);
done:
    json_decref(ready);
    return st;
}

/* The ready files of a daemon of the caller's own: `which` 0 or 1.  false = no such variable. */
static bool ready_path(char *out, size_t size, const xpc_options *options, int which)
{
    const char *runtime = env_get(options, "XDG_RUNTIME_DIR");
    const char *state = env_get(options, "XDG_STATE_HOME");
    const char *home = env_get(options, "HOME");
    int n = -1;

    if (which == 0 && runtime)
        n = snprintf(out, size, "%s/xptycho/ready.json", runtime);
    else if (which == 1 && state)
        n = snprintf(out, size, "%s/xptycho/run/ready.json", state);
    else if (which == 1 && home)
        n = snprintf(out, size, "%s/.local/state/xptycho/run/ready.json", home);
    return n > 0 && (size_t)n < size;
}

/* A server stated by the caller. */
static xpc_status server_use(xpc_place *place, const char *server, const char *source, bool admin,
                             xpc_error *err)
{
    struct stat st;
    char path[1024];

    if (!strstr(server, "://") && strncmp(server, "unix:", 5) != 0 && stat(server, &st) == 0 &&
        !S_ISSOCK(st.st_mode)) {
        int n =
            snprintf(path, sizeof(path), "%s%s", server, S_ISDIR(st.st_mode) ? "/ready.json" : "");
        if (n < 0 || (size_t)n >= sizeof(path))
            return xpc_fail(err, XPC_INVALID, "server '%.80s...' is too long", server);
        if (!exists(path))
            return xpc_fail(err, XPC_UNREACHABLE,
                            "no daemon is running with the runtime folder '%s': it holds no "
                            "ready.json",
                            server);
        return ready_use(place, path, admin, err);
    }
    (void)snprintf(place->found, sizeof(place->found), "%s", source);
    if (server[0] == '/' && (size_t)snprintf(path, sizeof(path), "unix:%s", server) < sizeof(path))
        return address_set(place, path, err);
    return address_set(place, server, err);
}

/* A token for a TCP address that a ready file of the caller's own daemon lists. */
static xpc_status token_of_ready(xpc_place *place, const xpc_options *options, xpc_error *err)
{
    char path[1024];
    int i;

    for (i = 0; i < 2 && !place->token; i++) {
        xpc_status st = XPC_OK;
        json_t *ready = NULL;
        const char *http, *token_file;

        if (!ready_path(path, sizeof(path), options, i) || !exists(path))
            continue;
        if (ready_read(&ready, path, NULL) != XPC_OK)
            continue; /* not what the caller asked about */
        http = ready_text(ready, "http");
        token_file = ready_text(ready, "token_file");
        if (http && token_file && strcmp(http, place->base) == 0)
            st = token_read(place, token_file, err);
        json_decref(ready);
        if (st != XPC_OK)
            return st;
    }
    return XPC_OK;
}

static xpc_status address_find(xpc_place *place, const xpc_options *options, xpc_error *err)
{
    const char *server = env_get(options, "XPTYCHO_SERVER");
    char path[1024];
    int i;

    if (options->server)
        return server_use(place, options->server, "the server given", options->admin, err);
    if (server && !options->admin) /* it names the api */
        return server_use(place, server, "XPTYCHO_SERVER", false, err);
    for (i = 0; i < 2; i++)
        if (ready_path(path, sizeof(path), options, i) && exists(path))
            return ready_use(place, path, options->admin, err);
    (void)snprintf(place->found, sizeof(place->found), "the system's socket");
    return address_set(place, options->admin ? "unix:" SYSTEM_ADMIN_SOCKET : "unix:" SYSTEM_SOCKET,
                       err);
}

static xpc_status token_find(xpc_place *place, const xpc_options *options, xpc_error *err)
{
    const char *token = env_get(options, "XPTYCHO_TOKEN");
    const char *file = env_get(options, "XPTYCHO_TOKEN_FILE");

    if (options->token)
        return token_set(place, options->token, "the token given", err);
    if (options->token_file)
        return token_read(place, options->token_file, err);
    if (token)
        return token_set(place, token, "XPTYCHO_TOKEN", err);
    if (file)
        return token_read(place, file, err);
    return XPC_OK;
}

xpc_status xpc_place_find(xpc_place *out, const xpc_options *options, xpc_error *err)
{
    xpc_status st = XPC_OK;

    memset(out, 0, sizeof(*out));
    XPC_TRY(token_find(out, options, err));
    XPC_TRY(address_find(out, options, err));
    if (!out->token && !out->socket[0])
        XPC_TRY(token_of_ready(out, options, err));
done:
    if (st != XPC_OK)
        xpc_place_release(out);
    return st;
}

void xpc_place_release(xpc_place *place)
{
    if (place->token)
        explicit_bzero(place->token, strlen(place->token));
    free(place->token);
    memset(place, 0, sizeof(*place));
}
