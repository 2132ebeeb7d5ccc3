/* Files of a job: the result and its data, the pictures.  A result is served only while it is the
 * file that was written: same inode, size and time, not through a link.  A path in a record is not
 * a permission. */
#include "download.h"
#include "life.h"
#include "log.h"
#include "routes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------- result */

static bool no_result(xpd_request *r)
{
    static const char *const retry[][2] = {{MHD_HTTP_HEADER_RETRY_AFTER, "2"}, {NULL, NULL}};
    const xpd_job *job = r->job;
    bool terminal = xpd_state_terminal(job->state);

    if (json_is_object(job->result))
        return false;
    json_t *problem =
        xpp_problem(XPP_FAULT_RESULT_NOT_READY,
                    terminal ? "the job ended without a result" : "the job is not finished", NULL,
                    json_pack("{s:s}", "state", xpd_state_name(job->state)));
    xpd_reply_json_as(r, MHD_HTTP_NOT_FOUND, problem, "application/problem+json",
                      terminal ? NULL : retry);
    return true;
}

void xpd_get_result(xpd_request *r)
{
    if (!no_result(r))
        xpd_reply_json(r, MHD_HTTP_OK, json_incref(r->job->result));
}

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* One range of bytes; what is not one is answered with the whole file, as the standard allows:
 * *first and *last stay as they were then. */
int xpd_read_range(const char *text, int64_t size, int64_t *first, int64_t *last)
{
    char *end = NULL;
    int64_t from, to;

    if (!text || strncmp(text, "bytes=", 6) != 0 || strchr(text, ','))
        return 0;
    text += 6;
    if (*text == '-') {
        size_t digits = strspn(text + 1, "0123456789");
        int64_t n = strtoll(text + 1, &end, 10);
        if (digits == 0 || *end)
            return 0;
        *first = n >= size ? 0 : size - n;
        *last = size - 1;
        return n > 0 && size > 0 ? 1 : -1;
    }
    if (strspn(text, "0123456789") == 0)
        return 0;
    from = strtoll(text, &end, 10);
    if (*end != '-')
        return 0;
    text = end + 1;
    to = *text ? strtoll(text, &end, 10) : size - 1;
    if (*text && (*end || end == text || *text == '-'))
        return 0;
    if (*text && to < from)
        return 0;
    *first = from;
    *last = to < size ? to : size - 1;
    return from < size ? 1 : -1;
}

void xpd_reply_beyond(xpd_request *r, int64_t size)
{
    char text[64];
    snprintf(text, sizeof text, "bytes */%lld", (long long)size);
    const char *const headers[][2] = {{MHD_HTTP_HEADER_CONTENT_RANGE, text}, {NULL, NULL}};
    json_t *problem = xpp_problem(XPP_FAULT_RANGE, "the range begins beyond the end", NULL,
                                  json_pack("{s:I}", "bytes", (json_int_t)size));
    xpd_reply_json_as(r, MHD_HTTP_RANGE_NOT_SATISFIABLE, problem, "application/problem+json",
                      headers);
}

/* As much as the system allows: connections begin with little. */
static void widen(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    int bytes = 4 << 20;
    if (info && setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) != 0)
        xpd_log(XPD_LOG_DEBUG, NULL, "the buffer of a download stays small: %s", strerror(errno));
}

static void make_tag(char *out, size_t size, const xpd_job *job)
{
    const char *sha = json_string_value(json_object_get(job->result, "sha256"));
    snprintf(out, size, "\"%.64s\"", sha ? sha : job->id);
}

static void data_opened(xpd_request *r, xpd_download *d)
{
    char tag[80], name[96], content_range[96];
    const char *guard = xpd_request_header(r, MHD_HTTP_HEADER_IF_RANGE);
    int64_t size = xpd_download_size(d), first = 0, last = size - 1;
    int part = 0;

    make_tag(tag, sizeof tag, r->job);
    if (!guard || strcmp(guard, tag) == 0)
        part = xpd_read_range(xpd_request_header(r, MHD_HTTP_HEADER_RANGE), size, &first, &last);
    if (part < 0) {
        xpd_download_drop(d);
        xpd_reply_beyond(r, size);
        return;
    }
    if (part == 0) {
        first = 0;
        last = size - 1;
    }
    struct MHD_Response *response = xpd_download_response(d, first, last);
    if (!response) {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
        return;
    }
    r->large = true;
    widen(r->connection);
    snprintf(name, sizeof name, "attachment; filename=\"%s.h5\"", r->job->id);
    xpd_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/x-hdf5");
    xpd_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, name);
    xpd_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    xpd_header(response, MHD_HTTP_HEADER_ETAG, tag);
    if (part) {
        snprintf(content_range, sizeof content_range, "bytes %lld-%lld/%lld", (long long)first,
                 (long long)last, (long long)size);
        xpd_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, content_range);
    }
    xpd_reply(r, part ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response);
}

void xpd_get_result_data(xpd_request *r)
{
    const char *wanted = xpd_request_header(r, MHD_HTTP_HEADER_IF_NONE_MATCH);
    char tag[80];

    if (no_result(r))
        return;
    make_tag(tag, sizeof tag, r->job);
    if (wanted && strstr(wanted, tag)) {
        struct MHD_Response *same = xpd_response_text("", 0, true, "application/x-hdf5");
        xpd_header(same, MHD_HTTP_HEADER_ETAG, tag);
        xpd_reply(r, MHD_HTTP_NOT_MODIFIED, same);
        return;
    }
    xpd_download_start(r, r->job->result, data_opened);
}

/* ----------------------------------------------------------------------------------- pictures */

/* The pieces of preview.json that headers tell. */
typedef struct picture {
    char tag[96], shape[48], range[80], stage[24], iteration[24];
} picture;

static void describe(picture *p, const xpd_request *r, const char *what, const struct stat *st)
{
    char path[PATH_MAX];

    xpd_job_path(path, sizeof path, r->b, r->job->id, "preview.json");
    json_t *doc = json_load_file(path, 0, NULL);
    json_t *item = json_object_get(json_object_get(doc, "items"), what);
    json_t *shape = json_object_get(item, "shape"), *range = json_object_get(item, "range");
    snprintf(p->shape, sizeof p->shape, "%lld,%lld",
             (long long)json_integer_value(json_array_get(shape, 0)),
             (long long)json_integer_value(json_array_get(shape, 1)));
    snprintf(p->range, sizeof p->range, "%.9g,%.9g", json_number_value(json_array_get(range, 0)),
             json_number_value(json_array_get(range, 1)));
    snprintf(p->stage, sizeof p->stage, "%lld",
             (long long)json_integer_value(json_object_get(doc, "stage")));
    snprintf(p->iteration, sizeof p->iteration, "%lld",
             (long long)json_integer_value(json_object_get(doc, "iter")));
    snprintf(p->tag, sizeof p->tag, "\"%llu-%lld\"", (unsigned long long)st->st_ino,
             (long long)mtime_ns(st));
    json_decref(doc);
}

static void reply_picture(xpd_request *r, const char *suffix, const char *type)
{
    static const char *const names[] = {"object_phase", "object_magnitude", "probe_phase",
                                        "probe_magnitude"};
    const char *what = xpd_request_query(r, "what"),
               *wanted = xpd_request_header(r, MHD_HTTP_HEADER_IF_NONE_MATCH);
    char file[64], path[PATH_MAX];
    bool known = !what;
    struct stat st;
    picture p;

    if (!what)
        what = names[0];
    for (int i = 0; i < 4; i++)
        known = known || strcmp(what, names[i]) == 0;
    if (!known) {
        xpd_reply_fault(r, XPP_FAULT_BAD_REQUEST,
                        "what is '%.40s'; it must be object_phase, object_magnitude, probe_phase "
                        "or probe_magnitude",
                        what);
        return;
    }
    snprintf(file, sizeof file, "%s.%s", what, suffix);
    xpd_job_path(path, sizeof path, r->b, r->job->id, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0)
            close(fd);
        xpd_reply_fault(r, XPP_FAULT_NOT_FOUND, "there is no picture of this job yet");
        return;
    }
    describe(&p, r, what, &st);
    bool same = wanted && strstr(wanted, p.tag);
    struct MHD_Response *response = same ? xpd_response_text("", 0, true, type)
                                         : MHD_create_response_from_fd64((uint64_t)st.st_size, fd);
    if (same || !response)
        close(fd);
    if (!same)
        xpd_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    xpd_header(response, MHD_HTTP_HEADER_ETAG, p.tag);
    xpd_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    xpd_header(response, "X-Xptycho-Shape", p.shape);
    xpd_header(response, "X-Xptycho-Range", p.range);
    xpd_header(response, "X-Xptycho-Stage", p.stage);
    xpd_header(response, "X-Xptycho-Iteration", p.iteration);
    xpd_reply(r, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response);
}

void xpd_get_preview_png(xpd_request *r)
{
    reply_picture(r, "png", "image/png");
}

void xpd_get_preview_f32(xpd_request *r)
{
    reply_picture(r, "f32", "application/octet-stream");
}
