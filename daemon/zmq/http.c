/* libcurl, set up once the same way for requests and streams. */
#include "http.h"

#include "xptychod/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t on_data(char *data, size_t size, size_t count, void *user)
{
    xpd_http *http = user;
    size_t bytes = size * count; /* size is 1 */

    return http->sink(http->user, data, bytes) ? bytes : 0;
}

static bool add_line(struct curl_slist **list, const char *line)
{
    struct curl_slist *more = curl_slist_append(*list, line);

    if (more)
        *list = more;
    return more != NULL;
}

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
    char line[768];

    if (!value || !*value)
        return true;
    snprintf(line, sizeof line, "%s: %s", name, value);
    return add_line(list, line);
}

static bool set_headers(xpd_http *http, const xpd_http_request *r)
{
    char bearer[640];

    snprintf(bearer, sizeof bearer, "Bearer %s", r->token ? r->token : "");
    return add_header(&http->headers, "Accept", r->accept) &&
           (!r->token || !*r->token || add_header(&http->headers, "Authorization", bearer)) &&
           add_header(&http->headers, "Idempotency-Key", r->idempotency_key) &&
           add_line(&http->headers, r->body ? "Content-Type: application/json" : "Content-Type:") &&
           add_line(&http->headers, "Expect:"); /* a name alone removes libcurl's own line */
}

bool xpd_http_open(xpd_http *out, CURLM *multi, const xpd_http_request *r, xpd_http_sink sink,
                   void *user)
{
    char url[1200];
    bool post = strcmp(r->method, "POST") == 0;

    memset(out, 0, sizeof *out);
    out->sink = sink;
    out->user = user;
    out->easy = curl_easy_init();
    if (!out->easy || !set_headers(out, r))
        goto failed;
    snprintf(url, sizeof url, "http://localhost%s", r->path);
    curl_easy_setopt(out->easy, CURLOPT_URL, url);
    curl_easy_setopt(out->easy, CURLOPT_UNIX_SOCKET_PATH, r->socket);
    curl_easy_setopt(out->easy, CURLOPT_PROXY, ""); /* whatever the environment says */
    curl_easy_setopt(out->easy, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(out->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(out->easy, CURLOPT_HTTPHEADER, out->headers);
    curl_easy_setopt(out->easy, CURLOPT_ERRORBUFFER, out->error);
    curl_easy_setopt(out->easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(out->easy, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(out->easy, CURLOPT_PRIVATE, user);
    if (post) {
        curl_easy_setopt(out->easy, CURLOPT_POSTFIELDS, r->body ? r->body : "");
        curl_easy_setopt(out->easy, CURLOPT_POSTFIELDSIZE, r->body ? (long)strlen(r->body) : 0L);
    } else if (strcmp(r->method, "GET") != 0) {
        curl_easy_setopt(out->easy, CURLOPT_CUSTOMREQUEST, r->method);
    }
    curl_easy_setopt(out->easy, CURLOPT_TIMEOUT, r->timeout_s);
    if (curl_multi_add_handle(multi, out->easy) != CURLM_OK)
        goto failed;
    return true;
failed:
    curl_easy_cleanup(out->easy);
    curl_slist_free_all(out->headers);
    memset(out, 0, sizeof *out);
    return false;
}

void xpd_http_close(xpd_http *http, CURLM *multi)
{
    if (http->easy) {
        curl_multi_remove_handle(multi, http->easy);
        curl_easy_cleanup(http->easy);
    }
    curl_slist_free_all(http->headers);
    memset(http, 0, sizeof *http);
}

long xpd_http_status(const xpd_http *http)
{
    long status = 0;

    if (http->easy)
        curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* ---------------------------------------------------------------------------- one document */

#define FETCH_MAX (1u << 20)
#define FETCH_S 5

typedef struct fetch {
    char *text;
    size_t size;
} fetch;

static bool on_fetched(void *user, const char *data, size_t size)
{
    fetch *f = user;
    char *text = f->size + size <= FETCH_MAX ? realloc(f->text, f->size + size) : NULL;

    if (!text)
        return false;
    memcpy(text + f->size, data, size);
    f->text = text;
    f->size += size;
    return true;
}

json_t *xpd_http_fetch(const char *socket, const char *path, const char *token)
{
    CURLM *multi = curl_multi_init();
    fetch f = {0};
    json_t *doc = NULL;
    xpd_http http;
    int running = 1;

    if (multi && xpd_http_open(&http, multi,
                               &(xpd_http_request){.socket = socket,
                                                   .method = "GET",
                                                   .path = path,
                                                   .token = token,
                                                   .accept = "application/json",
                                                   .timeout_s = FETCH_S},
                               on_fetched, &f)) {
        while (curl_multi_perform(multi, &running) == CURLM_OK && running > 0)
            if (curl_multi_poll(multi, NULL, 0, 1000, NULL) != CURLM_OK)
                break;
        if (running == 0 && xpd_http_status(&http) == 200)
            doc = xpp_load(f.text ? f.text : "", f.size, 0, NULL);
        xpd_http_close(&http, multi);
    }
    if (multi)
        curl_multi_cleanup(multi);
    free(f.text);
    return doc;
}
