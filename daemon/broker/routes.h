/* What a request means: the table of routes, one handler an endpoint. */
#ifndef XPD_ROUTES_H
#define XPD_ROUTES_H

#include "request.h"

typedef struct xpd_route {
    const char *method;
    const char *path;         /* "/v1/jobs/{id}/events", as in openapi.json */
    const char *arguments[4]; /* query arguments it takes; others are refused */
    void (*handle)(xpd_request *r);
    bool for_readers; /* changes nothing but the caller's own session */
} xpd_route;

void xpd_route_request(xpd_request *r);
/* The methods of the request's path with commas between, "" where there is no such path. */
void xpd_route_methods(char *out, size_t size, const xpd_request *r);
/* Asks for a part of a file: sets [*first, *last] and returns 1, 0 for all of it, -1 where the part
 * is beyond the end. */
int xpd_read_range(const char *header, int64_t size, int64_t *first, int64_t *last);
/* Commits the request's job and answers with it when it is on disk. */
void xpd_reply_durable(xpd_request *r, unsigned status);
/* 416 with the size. */
void xpd_reply_beyond(xpd_request *r, int64_t size);
/* The table, for the test that compares it with openapi.json. */
extern const xpd_route xpd_routes[];
extern const size_t xpd_route_count;

/* jobs: routes_job.c */
void xpd_get_jobs(xpd_request *r);
void xpd_post_job(xpd_request *r);
void xpd_get_job(xpd_request *r);
void xpd_delete_job(xpd_request *r);
void xpd_get_job_events(xpd_request *r);
void xpd_post_cancel(xpd_request *r);
void xpd_post_rerun(xpd_request *r);
void xpd_get_log(xpd_request *r);
/* the queue: routes_queue.c */
void xpd_get_queue(xpd_request *r);
void xpd_get_devices(xpd_request *r);
void xpd_get_limits(xpd_request *r);
void xpd_post_hold(xpd_request *r);
void xpd_post_release(xpd_request *r);
void xpd_patch_job(xpd_request *r);
/* files of a job: routes_file.c */
void xpd_get_result(xpd_request *r);
void xpd_get_result_data(xpd_request *r);
void xpd_get_preview_png(xpd_request *r);
void xpd_get_preview_f32(xpd_request *r);
/* the service: routes_service.c */
void xpd_get_events(xpd_request *r);
void xpd_get_version(xpd_request *r);
void xpd_get_whoami(xpd_request *r);
void xpd_get_schema(xpd_request *r);
void xpd_get_openapi(xpd_request *r);
void xpd_get_livez(xpd_request *r);
void xpd_get_readyz(xpd_request *r);
/* sessions of browsers: routes_session.c */
void xpd_post_session(xpd_request *r);
void xpd_delete_session(xpd_request *r);
void xpd_post_session_link(xpd_request *r);
void xpd_get_login(xpd_request *r);
void xpd_get_home(xpd_request *r);
void xpd_get_sessions(xpd_request *r);
void xpd_delete_session_by_id(xpd_request *r);
/* the administrator: admin.c; metrics.c */
void xpd_post_drain(xpd_request *r);
void xpd_post_undrain(xpd_request *r);
void xpd_post_reload(xpd_request *r);
void xpd_post_dump(xpd_request *r);
void xpd_post_db_check(xpd_request *r);

#endif
