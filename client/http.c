/* One HTTP exchange through libcurl.
 *
 * Proxies of the environment are not used: they cannot reach a loopback address or a unix socket,
 * and a token must not travel through one.  Redirects are not followed, for the same reason.  A 2xx
 * body goes to a descriptor as it comes; everything else is kept, up to XPC_BODY_MAX. */
#include "http.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"

#include "xptychod/protocol.h"

#define CONNECT_TIMEOUT_MS 5000L
#define STALL_S 60L

bool xpc_buffer_add(xpc_buffer *buffer, const char *data, size_t length, size_t limit)
{
    if (length > limit || buffer->length > limit - length)
        return false;
    if (buffer->length + length + 1 > buffer->room) {
        size_t room = buffer->room ? buffer->room : 4096;
        char *grown;

        while (room < buffer->length + length + 1)
            room *= 2;
        grown = realloc(buffer->data, room);
        if (!grown)
            return false;
        buffer->data = grown;
        buffer->room = room;
    }
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    buffer->data[buffer->length] = '\0';
    return true;
}

void xpc_buffer_release(xpc_buffer *buffer)
{
    free(buffer->data);
    memset(buffer, 0, sizeof(*buffer));
}

bool xpc_header_add(struct curl_slist **headers, const char *name, const char *value)
{
    char line[8192];
    int n = snprintf(line, sizeof(line), "%s: %s", name, value);
    struct curl_slist *grown;

    if (n < 0 || (size_t)n >= sizeof(line))
        return false;
    grown = curl_slist_append(*headers, line);
    if (grown)
        *headers = grown;
    return grown != NULL;
}

void xpc_media_type(char *out, size_t size, const char *content_type)
{
    size_t i;

    for (i = 0; content_type && i + 1 < size; i++) {
        char c = content_type[i];
        if (c == '\0' || c == ';' || c == ' ' || c == '\t' || c == '\r' || c == '\n')
            break;
        out[i] = (char)tolower((unsigned char)c);
    }
    out[i] = '\0';
}

xpc_status xpc_http_prepare(CURL *curl, const xpc_place *place, const char *path,
                            struct curl_slist **headers, xpc_error *err)
{
    char url[4096];
    int n = snprintf(url, sizeof(url), "%s%s", place->base, path);

    if (n < 0 || (size_t)n >= sizeof(url))
        return xpc_fail(err, XPC_INVALID, "the request '%.80s...' is too long", path);
    if (place->token) {
        char value[4200];
        n = snprintf(value, sizeof(value), "Bearer %s", place->token);
        if (n < 0 || (size_t)n >= sizeof(value))
            return xpc_fail(err, XPC_INVALID, "the token is longer than 4096 bytes");
        if (!xpc_header_add(headers, "Authorization", value))
            return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
        explicit_bzero(value, sizeof(value));
    }
    /* An empty Expect keeps libcurl from waiting a second for "100 Continue". */
    if (!xpc_header_add(headers, "Expect", ""))
        return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
    curl_easy_reset(curl);
    if (curl_easy_setopt(curl, CURLOPT_URL, url) != CURLE_OK ||
        curl_easy_setopt(curl, CURLOPT_USERAGENT, "xptycho/" XPTYCHOD_VERSION) != CURLE_OK ||
        (place->socket[0] &&
         curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, place->socket) != CURLE_OK))
        return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALL_S);
    return XPC_OK;
}

xpc_status xpc_http_fault(CURL *curl, CURLcode code, const char *detail, const xpc_place *place,
                          xpc_error *err)
{
    const char *why = detail && detail[0] ? detail : curl_easy_strerror(code);
    long number = 0;

    /* Of a socket libcurl would say that it cannot reach port 80 of localhost. */
    (void)curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &number);
    if (code == CURLE_COULDNT_CONNECT && number != 0)
        why = strerror((int)number);
    switch (code) {
    case CURLE_OUT_OF_MEMORY:
        return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        return xpc_fail(err, XPC_UNREACHABLE,
                        "no daemon answers at '%s' (from %s): %s; start 'xptychod --user', or name "
                        "another with --server",
                        place->server, place->found, why);
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        (void)xpc_fail(err, XPC_UNREACHABLE, "the connection to '%s' was lost: %s", place->server,
                       why);
        if (err)
            err->maybe_done = true;
        return XPC_UNREACHABLE;
    default:
        return xpc_fail(err, XPC_FAULT, "the exchange with '%s' failed: %s", place->server, why);
    }
}

typedef struct exchange {
    CURL *curl;
    xpc_response *response;
    int fd;
    int write_errno; /* of the descriptor */
    bool too_long;
} exchange;

static bool write_all(int fd, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, data, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        data += n;
        length -= (size_t)n;
    }
    return true;
}

static size_t on_body(char *data, size_t size, size_t count, void *user)
{
    exchange *x = user;
    size_t length = size * count;
    long status = 0;

    (void)curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    if (x->fd >= 0 && status >= 200 && status < 300) {
        if (write_all(x->fd, data, length))
            return length;
        x->write_errno = errno;
        return 0;
    }
    x->too_long = !xpc_buffer_add(&x->response->body, data, length, XPC_BODY_MAX);
    return x->too_long ? 0 : length;
}

static xpc_status set_body(CURL *curl, const xpc_request *request, struct curl_slist **headers,
                           char **text, xpc_error *err)
{
    *text = NULL;
    if (request->body) {
        *text = xpp_dump(request->body, JSON_COMPACT | JSON_REAL_PRECISION(17));
        if (!*text)
            return xpc_fail(err, XPC_INVALID, "the document cannot be written as JSON");
        if (!xpc_header_add(headers, "Content-Type", "application/json"))
            return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(*text));
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, *text);
    } else if (strcmp(request->method, "POST") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, 0L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    }
    if (strcmp(request->method, "GET") != 0 &&
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method) != CURLE_OK)
        return xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
    return XPC_OK;
}

static void read_head(CURL *curl, xpc_response *out)
{
    long status = 0;
    curl_off_t retry_after = 0;
    const char *type = NULL;

    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after);
    (void)curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
    out->status = (int)status;
    out->retry_after_s = retry_after > 0 && retry_after < 86400 ? (int)retry_after : 0;
    xpc_media_type(out->type, sizeof(out->type), type);
}

xpc_status xpc_http_send(CURL *curl, const xpc_place *place, const xpc_request *request,
                         xpc_response *out, xpc_error *err)
{
    xpc_status st = XPC_OK;
    struct curl_slist *headers = NULL;
    char *text = NULL, detail[CURL_ERROR_SIZE] = "";
    exchange x = {curl, out, request->fd, 0, false};
    CURLcode code;

    memset(out, 0, sizeof(*out));
    XPC_TRY(xpc_http_prepare(curl, place, request->path, &headers, err));
    XPC_TRY(set_body(curl, request, &headers, &text, err));
    if (!xpc_header_add(&headers, "Accept", request->accept) ||
        (request->match && !xpc_header_add(&headers, "If-Match", request->match)) ||
        (request->key && !xpc_header_add(&headers, "Idempotency-Key", request->key))) {
        st = xpc_fail(err, XPC_NO_MEMORY, "memory is exhausted");
        goto done;
    }
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &x);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    code = curl_easy_perform(curl);
    if (x.write_errno)
        st = xpc_fail(err, XPC_IO, "the answer could not be written: %s", strerror(x.write_errno));
    else if (x.too_long)
        st = xpc_fail(err, XPC_FAULT, "the answer to %s %s is longer than %u MiB", request->method,
                      request->path, XPC_BODY_MAX >> 20);
    else if (code != CURLE_OK)
        st = xpc_http_fault(curl, code, detail, place, err);
    else
        read_head(curl, out);
done:
    /* The handle outlives these. */
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(headers);
    free(text);
    if (st != XPC_OK)
        xpc_response_release(out);
    return st;
}

void xpc_response_release(xpc_response *response)
{
    xpc_buffer_release(&response->body);
    memset(response, 0, sizeof(*response));
}

/* The last part of a problem's type: "urn:xptychod:problem:invalid-job". */
static void type_suffix(char *out, size_t size, const char *type)
{
    const char *colon = type ? strrchr(type, ':') : NULL;
    (void)snprintf(out, size, "%s", colon ? colon + 1 : type ? type : "");
}

xpc_status xpc_response_fault(const xpc_response *response, json_t **problem, xpc_error *err)
{
    xpc_status st = response->status >= 400 && response->status != 500 ? XPC_REFUSED : XPC_FAULT;
    json_t *doc = NULL;
    char text[4096], type[64] = "";

    *problem = NULL;
    if (response->body.data && strstr(response->type, "json"))
        doc = json_loadb(response->body.data, response->body.length, 0, NULL);
    if (json_is_object(doc)) {
        xpc_problem_text(text, sizeof(text), doc);
        type_suffix(type, sizeof(type), json_string_value(json_object_get(doc, "type")));
        *problem = doc;
    } else {
        /* The HTTP library answers broken requests itself, without a document. */
        (void)snprintf(text, sizeof(text), "the daemon answered HTTP %d without saying why",
                       response->status);
        json_decref(doc);
    }
    (void)xpc_fail(err, st, "%s", text);
    if (err) {
        err->http_status = response->status;
        err->retry_after_s = response->retry_after_s;
        (void)snprintf(err->type, sizeof(err->type), "%s", type);
    }
    return st;
}
