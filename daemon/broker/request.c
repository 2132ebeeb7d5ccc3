/* See request.h.  Paths arrive undecoded (libmicrohttpd would decode %2f and cut at %00 before the
 * handler sees them): they are split first and each segment is decoded and judged here. */
#include "request.h"

#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ----------------------------------------------------------------------------------- parsing */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes %XX in place; refuses broken ones, zero bytes and control characters. */
static bool decode(char *text)
{
    char *out = text;
    for (const char *in = text; *in; in++) {
        int c = (unsigned char)*in;
        if (c == '%') {
            int high = hex_digit(in[1]), low = high < 0 ? -1 : hex_digit(in[2]);
            if (low < 0)
                return false;
            c = high * 16 + low;
            in += 2;
        }
        if (c < 0x20 || c == 0x7f)
            return false;
        *out++ = (char)c;
    }
    *out = '\0';
    return true;
}

static bool good_segment(const char *segment)
{
    json_t *utf8 = json_string(segment); /* NULL when it is not UTF-8 */
    json_decref(utf8);
    return utf8 && *segment && !strchr(segment, '/') && strcmp(segment, ".") != 0 &&
           strcmp(segment, "..") != 0;
}

static enum MHD_Result take_argument(void *context, enum MHD_ValueKind kind, const char *name,
                                     const char *value)
{
    xpd_request *r = context;
    (void)kind;
    if (r->argument_count == XPD_ARGUMENTS_MAX) {
        r->argument_count++;
        return MHD_NO;
    }
    r->arguments[r->argument_count].name = strdup(name);
    r->arguments[r->argument_count].value = strdup(value ? value : "");
    r->argument_count++;
    return MHD_YES;
}

static bool parse_arguments(xpd_request *r, xpd_error *err)
{
    MHD_get_connection_values(r->connection, MHD_GET_ARGUMENT_KIND, take_argument, r);
    if (r->argument_count > XPD_ARGUMENTS_MAX) {
        r->argument_count = XPD_ARGUMENTS_MAX;
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "more than %d query arguments",
                        XPD_ARGUMENTS_MAX);
    }
    for (int i = 0; i < r->argument_count; i++) {
        if (!r->arguments[i].name || !r->arguments[i].value)
            return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
        if (!decode(r->arguments[i].name) || !decode(r->arguments[i].value))
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                            "a query argument is not percent-encoded text");
    }
    return true;
}

bool xpd_request_parse(xpd_request *r, const char *url, xpd_error *err)
{
    char *rest = NULL;

    if (strlen(url) > 2048)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "the path is longer than 2048 bytes");
    r->path = strdup(url);
    if (!r->path)
        return xpd_fail(err, XPP_FAULT_UNAVAILABLE, "", "memory is exhausted");
    if (url[0] != '/' || strstr(url, "//"))
        return xpd_fail(err, XPP_FAULT_NOT_FOUND, "", "there is no such path");
    for (char *s = strtok_r(r->path, "/", &rest); s; s = strtok_r(NULL, "/", &rest)) {
        if (r->segment_count == XPD_SEGMENTS_MAX)
            return xpd_fail(err, XPP_FAULT_NOT_FOUND, "", "there is no such path");
        if (!decode(s) || !good_segment(s))
            return xpd_fail(
                err, XPP_FAULT_BAD_REQUEST, "",
                "the path has a segment that is empty, '.', '..' or not percent-encoded text");
        r->segments[r->segment_count++] = s;
    }
    return parse_arguments(r, err);
}

void xpd_request_free(xpd_request *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->argument_count; i++) {
        free(r->arguments[i].name);
        free(r->arguments[i].value);
    }
    if (r->response)
        MHD_destroy_response(r->response);
    xpd_job_unref(r->job);
    free(r->path);
    free(r->body);
    free(r);
}

const char *xpd_request_header(const xpd_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

const char *xpd_request_query(const xpd_request *r, const char *name)
{
    for (int i = 0; i < r->argument_count; i++) {
        if (strcmp(r->arguments[i].name, name) == 0)
            return r->arguments[i].value;
    }
    return NULL;
}

bool xpd_request_number(xpd_request *r, const char *name, int64_t minimum, int64_t maximum,
                        int64_t *out)
{
    const char *text = xpd_request_query(r, name);
    char *end = NULL;

    if (!text)
        return true;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (!*text || *end || errno || number < minimum || number > maximum) {
        xpd_reply_fault(
            r, XPP_FAULT_BAD_REQUEST,
            "query argument '%s' is '%.40s'; it must be a whole number from %lld to %lld", name,
            text, (long long)minimum, (long long)maximum);
        return false;
    }
    *out = number;
    return true;
}

bool xpd_request_accepts(const xpd_request *r, const char *type)
{
    const char *accept = xpd_request_header(r, MHD_HTTP_HEADER_ACCEPT);
    const char *slash = strchr(type, '/');
    size_t major = (size_t)(slash - type) + 1;

    if (!accept || !*accept)
        return true;
    while (*accept) {
        accept += strspn(accept, " \t,");
        size_t length = strcspn(accept, " \t,;");
        size_t whole = strcspn(accept, ",");
        const char *q = memmem(accept, whole, "q=0", 3);
        /* q=0 and q=0.0 refuse, q=0.5 does not */
        bool refused = q && strspn(q + 3, ".0") == (size_t)(accept + whole - (q + 3));
        if (!refused && ((length == strlen(type) && strncasecmp(accept, type, length) == 0) ||
                         (length == 3 && strncmp(accept, "*/*", 3) == 0) ||
                         (length == major + 1 && strncasecmp(accept, type, major) == 0 &&
                          accept[major] == '*')))
            return true;
        accept += whole;
    }
    return false;
}

/* ----------------------------------------------------------------------------------- answers */

void xpd_request_wait(xpd_request *r)
{
    r->waits = true;
}

static const struct MHD_Response *lacking; /* a header, for which there was no memory */

struct MHD_Response *xpd_response_whole(struct MHD_Response *response)
{
    if (!response || response != lacking)
        return response;
    MHD_destroy_response(response);
    lacking = NULL;
    return NULL;
}

void xpd_reply(xpd_request *r, unsigned status, struct MHD_Response *response)
{
    if (r->answered) { /* one answer only: the first stands */
        xpd_log(XPD_LOG_ERROR, NULL, "request %lld was answered twice", (long long)r->number);
        if (response)
            MHD_destroy_response(response);
        return;
    }
    r->answered = true;
    r->status = status;
    r->response = xpd_response_whole(response);
    if (r->parked) {
        r->parked = false;
        r->b->parked--;
        r->b->http_due = true;
        MHD_resume_connection(r->connection);
    }
}

struct MHD_Response *xpd_response_text(const char *text, size_t length, bool is_static,
                                       const char *type)
{
    struct MHD_Response *response;
    if (is_static) {
        /* the library does not write to persistent memory, its type only says so */
        union {
            const char *in;
            void *out;
        } bytes = {.in = text};
        response = MHD_create_response_from_buffer(length, bytes.out, MHD_RESPMEM_PERSISTENT);
    } else {
        char *copy = malloc(length + 1);
        if (!copy)
            return NULL;
        memcpy(copy, text, length);
        response = MHD_create_response_from_buffer(length, copy, MHD_RESPMEM_MUST_FREE);
    }
    if (response)
        xpd_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    return response;
}

void xpd_header(struct MHD_Response *response, const char *name, const char *value)
{
    if (response && MHD_add_response_header(response, name, value) != MHD_YES) {
        xpd_log(XPD_LOG_WARNING, NULL, "header %s cannot be set", name);
        lacking = response;
    }
}

void xpd_reply_json_as(xpd_request *r, unsigned status, json_t *body, const char *type,
                       const char *const headers[][2])
{
    char *text = body ? xpp_dump(body, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    struct MHD_Response *response = NULL;

    json_decref(body);
    if (text) {
        size_t length = strlen(text);
        char *more = realloc(text, length + 2);
        if (more) {
            text = more;
            text[length++] = '\n'; /* for people at a terminal */
        }
        response = MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE);
        if (!response)
            free(text);
    }
    if (response) {
        xpd_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type ? type : "application/json");
        xpd_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
        for (int i = 0; headers && headers[i][0]; i++)
            xpd_header(response, headers[i][0], headers[i][1]);
    }
    xpd_reply(r, response ? status : MHD_HTTP_INTERNAL_SERVER_ERROR, response);
}

void xpd_reply_json(xpd_request *r, unsigned status, json_t *body)
{
    xpd_reply_json_as(r, status, body, NULL, NULL);
}

void xpd_reply_empty(xpd_request *r, unsigned status)
{
    xpd_reply(r, status, xpd_response_text("", 0, true, "text/plain"));
}

void xpd_reply_problem(xpd_request *r, json_t *problem)
{
    json_int_t status = json_integer_value(json_object_get(problem, "status"));
    char seconds[24];
    json_int_t wait = json_integer_value(json_object_get(problem, "retry_after_s"));
    const char *const retry[][2] = {{MHD_HTTP_HEADER_RETRY_AFTER, seconds}, {NULL, NULL}};
    static const char *const ask[][2] = {
        {MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"xptycho\""}, {NULL, NULL}};
    bool later = status == 429 || status == 503 || status == 507;

    snprintf(seconds, sizeof seconds, "%lld", (long long)(wait > 0 ? wait : 5));

    if (status < 400 || status > 599)
        status = 500;
    /* not more of a segment than an id has: who takes a token for a part of the path must not find
     * it in the log */
    if (status >= 400 && !(r->admin && status == 503))
        xpd_log(status >= 500 ? XPD_LOG_WARNING : XPD_LOG_INFO, NULL,
                "request %lld: %s /%.26s/%.26s%s%.26s: %d %s: %s", (long long)r->number, r->method,
                r->segment_count > 0 ? r->segments[0] : "",
                r->segment_count > 1 ? r->segments[1] : "", r->segment_count > 2 ? "/" : "",
                r->segment_count > 2 ? r->segments[2] : "", (int)status,
                problem ? json_string_value(json_object_get(problem, "type")) : "no memory",
                problem ? json_string_value(json_object_get(problem, "detail")) : "");
    xpd_reply_json_as(r, (unsigned)status, problem, "application/problem+json",
                      later           ? retry
                      : status == 401 ? ask
                                      : NULL);
}

void xpd_reply_error(xpd_request *r, xpd_error *err)
{
    xpd_reply_problem(r, xpd_problem(err));
}

void xpd_reply_fault(xpd_request *r, xpp_fault fault, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    xpd_reply_problem(r, xpp_problem(fault, text, NULL, NULL));
}
