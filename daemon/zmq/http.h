/* One HTTP transfer to the broker's unix socket, run by a curl multi handle of the caller's thread.
 * The sink gets the body as it arrives; it returns false to stop the transfer. */
#ifndef XPD_ZMQ_HTTP_H
#define XPD_ZMQ_HTTP_H

#include <curl/curl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef bool (*xpd_http_sink)(void *user, const char *data, size_t size);

typedef struct xpd_http_request {
    const char *socket; /* path of the broker's unix socket */
    const char *method, *path;
    const char *token; /* NULL or "" = none: the broker sees this process's user */
    const char *accept;
    const char *idempotency_key; /* NULL or "" = none */
    const char *body;            /* NULL = none; must outlive the transfer */
    long timeout_s; /* of the whole transfer; 0 = a stream: a unix socket tells at once when
                     * its other end is gone */
} xpd_http_request;

/* May not move between open and close. */
typedef struct xpd_http {
    CURL *easy; /* its private pointer is `user` */
    struct curl_slist *headers;
    xpd_http_sink sink;
    void *user;
    char error[CURL_ERROR_SIZE];
} xpd_http;

/* Starts the transfer on `multi`.  false when memory is exhausted; then nothing is left to close.
 */
bool xpd_http_open(xpd_http *out, CURLM *multi, const xpd_http_request *request, xpd_http_sink sink,
                   void *user);
/* Also stops a transfer that is not over. */
void xpd_http_close(xpd_http *http, CURLM *multi);
long xpd_http_status(const xpd_http *http); /* 0 = none yet */

/* A small JSON document, waited for at most a few seconds; NULL where the status is not 200. */
json_t *xpd_http_fetch(const char *socket, const char *path, const char *token);

#endif
