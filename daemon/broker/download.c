/* See download.h. */
#include "download.h"

#include "aside.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING (256 * 1024)
#define BLOCK 65536
#define OPEN_MS 10000
#define STALL_MS 60000
#define GLANCE_S 5

typedef struct xpd_downloads downloads;

struct xpd_download {
    /* made before the thread, then only read */
    downloads *all;
    char *path;
    int64_t inode, bytes, mtime_ns;
    int wake; /* eventfd of all */

    pthread_mutex_t lock;
    pthread_cond_t change; /* for the thread */
    /* under the lock */
    enum { OPENING, OPEN, GONE, BROKEN } state;
    int fd; /* of the file, or -1 */
    bool go, dropped, starved, thread_over;
    int64_t first, left;
    size_t begin, used; /* of the ring */
    char *ring;

    /* of the loop */
    xpd_request *r; /* not answered yet, else NULL */
    void (*opened)(xpd_request *r, xpd_download *d);
    struct MHD_Connection *connection;
    uid_t uid;
    bool suspended, let_go; /* the response has let go of it */
    int64_t since_ms;
    xpd_timer patience;
    xpd_download *next, **link;
};

struct xpd_downloads {
    xpd_broker *b;
    xpd_source source;
    xpd_download *list;
};

/* ---------------------------------------------------------------------------------- its thread */

static void tell(int wake)
{
    uint64_t one = 1;
    ssize_t n = write(wake, &one, sizeof one);
    (void)n; /* it is full: then the loop is told already */
}

static bool is_the_one(const struct stat *st, int64_t inode, int64_t bytes, int64_t mtime_ns)
{
    return S_ISREG(st->st_mode) && (int64_t)st->st_ino == inode && (int64_t)st->st_size == bytes &&
           (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec == mtime_ns;
}

/* Reads ahead until all is read or nobody wants it; the lock is held but while it reads. */
static void read_ahead(xpd_download *d, int fd)
{
    while (d->left > 0 && d->state == OPEN) {
        while (d->used == RING && !d->dropped)
            pthread_cond_wait(&d->change, &d->lock);
        if (d->dropped)
            return;
        size_t at = (d->begin + d->used) % RING, room = RING - d->used;
        if (room > RING - at)
            room = RING - at;
        if (room > BLOCK)
            room = BLOCK;
        if ((int64_t)room > d->left)
            room = (size_t)d->left;
        int64_t offset = d->first;
        pthread_mutex_unlock(&d->lock);
        ssize_t n = pread(fd, d->ring + at, room, offset); /* may hang */
        pthread_mutex_lock(&d->lock);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            d->state = BROKEN;
        } else {
            d->used += (size_t)n;
            d->first += n;
            d->left -= n;
        }
        if (d->starved) {
            d->starved = false;
            tell(d->wake);
        }
    }
}

static void *serve(void *context)
{
    xpd_download *d = context;
    int wake = d->wake;
    int fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* may hang */
    struct stat st;

    pthread_mutex_lock(&d->lock);
    d->fd = fd;
    pthread_mutex_unlock(&d->lock);
    bool good = fd >= 0 && fstat(fd, &st) == 0 && is_the_one(&st, d->inode, d->bytes, d->mtime_ns);
    pthread_mutex_lock(&d->lock);
    if (d->state == OPENING)
        d->state = good ? OPEN : GONE;
    tell(wake);
    while (!d->go && !d->dropped)
        pthread_cond_wait(&d->change, &d->lock);
    if (!d->dropped)
        read_ahead(d, fd);
    pthread_mutex_unlock(&d->lock);
    if (fd >= 0)
        close(fd);
    pthread_mutex_lock(&d->lock);
    d->thread_over = true; /* from here on it is the loop's alone */
    pthread_mutex_unlock(&d->lock);
    tell(wake);
    return NULL;
}

/* ------------------------------------------------------------------------------------ the loop */

static void unlink_and_free(xpd_download *d)
{
    if (d->link) {
        *d->link = d->next;
        if (d->next)
            d->next->link = d->link;
    }
    xpd_timer_cancel(&d->patience);
    pthread_cond_destroy(&d->change);
    pthread_mutex_destroy(&d->lock);
    free(d->ring);
    free(d->path);
    free(d);
}

void xpd_download_drop(xpd_download *d)
{
    pthread_mutex_lock(&d->lock);
    d->dropped = true;
    pthread_cond_signal(&d->change);
    pthread_mutex_unlock(&d->lock);
    d->let_go = true;
    tell(d->wake); /* where the thread is over already */
}

static void answer(xpd_download *d, int state)
{
    xpd_request *r = d->r;

    d->r = NULL;
    xpd_timer_cancel(&d->patience);
    if (state == OPEN) {
        d->opened(r, d);
        return;
    }
    if (state == GONE)
        xpd_reply_fault(r, XPP_FAULT_GONE,
                        "the file is not there any more, or is not the one that was written");
    else
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE,
                        "the file system of the result does not answer; try again later");
    xpd_download_drop(d);
}

static void too_late(void *context)
{
    xpd_download *d = context;
    xpd_log(XPD_LOG_WARNING, d->r && d->r->job ? d->r->job->id : NULL,
            "the file system of '%s' has not answered for %d s", d->path, OPEN_MS / 1000);
    pthread_mutex_lock(&d->lock);
    d->state = BROKEN;
    pthread_mutex_unlock(&d->lock);
    answer(d, BROKEN);
}

static void resume(xpd_download *d)
{
    d->suspended = false;
    d->all->b->http_due = true;
    MHD_resume_connection(d->connection);
}

/* Something happened in one of the threads. */
static void look(void *context)
{
    downloads *all = context;
    xpd_download *next;
    uint64_t count;
    ssize_t n = read(all->source.fd, &count, sizeof count);
    (void)n;

    for (xpd_download *d = all->list; d; d = next) {
        next = d->next;
        pthread_mutex_lock(&d->lock);
        int state = d->state;
        bool over = d->thread_over, some = d->used > 0 || state == BROKEN;
        pthread_mutex_unlock(&d->lock);
        if (d->r && state != OPENING)
            answer(d, state);
        if (d->suspended && some)
            resume(d);
        if (over && d->let_go)
            unlink_and_free(d);
    }
}

static downloads *open_all(xpd_broker *b)
{
    downloads *all = b->downloads;

    if (all)
        return all;
    all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    all->b = b;
    all->source =
        (xpd_source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = look, .context = all};
    if (all->source.fd < 0 || !xpd_loop_add(&b->loop, &all->source)) {
        if (all->source.fd >= 0)
            close(all->source.fd);
        free(all);
        return NULL;
    }
    b->downloads = all;
    return all;
}

static bool check_room(const downloads *all, uid_t uid, xpd_error *err)
{
    int count = 0, mine = 0;
    for (const xpd_download *d = all->list; d; d = d->next) {
        count++;
        mine += d->uid == uid;
    }
    if (count < XPD_DOWNLOADS_MAX && mine < XPD_DOWNLOADS_USER)
        return true;
    return xpd_fail(
        err, XPP_FAULT_UNAVAILABLE, "", "%d results are being fetched%s; that is the limit",
        mine >= XPD_DOWNLOADS_USER ? mine : count, mine >= XPD_DOWNLOADS_USER ? " by you" : "");
}

static xpd_download *create(downloads *all, xpd_request *r, const json_t *result)
{
    const char *path = json_string_value(json_object_get(result, "path"));
    xpd_download *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->change, NULL);
    d->all = all;
    d->wake = all->source.fd;
    d->fd = -1;
    d->path = strdup(path ? path : "");
    d->ring = malloc(RING);
    d->inode = json_integer_value(json_object_get(result, "inode"));
    d->bytes = json_integer_value(json_object_get(result, "bytes"));
    d->mtime_ns = json_integer_value(json_object_get(result, "mtime_ns"));
    d->connection = r->connection;
    d->uid = r->caller.uid;
    d->patience = (xpd_timer){.fire = too_late, .context = d};
    if (d->path && d->ring && xpd_thread_start(serve, d))
        return d;
    unlink_and_free(d);
    return NULL;
}

void xpd_download_start(xpd_request *r, const json_t *result,
                        void (*opened)(xpd_request *r, xpd_download *d))
{
    downloads *all = open_all(r->b);
    xpd_error err = XPD_ERROR_INIT;

    if (all && !check_room(all, r->caller.uid, &err)) {
        xpd_reply_error(r, &err);
        return;
    }
    xpd_download *d = all ? create(all, r, result) : NULL;
    if (!d) {
        xpd_reply_fault(r, XPP_FAULT_UNAVAILABLE, "memory is exhausted");
        return;
    }
    d->next = all->list;
    d->link = &all->list;
    if (d->next)
        d->next->link = &d->next;
    all->list = d;
    d->r = r;
    d->opened = opened;
    xpd_timer_set(&r->b->loop, &d->patience, OPEN_MS);
    xpd_request_wait(r);
}

/* ---------------------------------------------------------------------------------- the answer */

static ssize_t fill(void *context, uint64_t position, char *out, size_t room)
{
    xpd_download *d = context;
    (void)position;

    pthread_mutex_lock(&d->lock);
    size_t piece = d->used < RING - d->begin ? d->used : RING - d->begin;
    bool broken = d->state == BROKEN;
    if (piece > room)
        piece = room;
    if (piece > 0) {
        memcpy(out, d->ring + d->begin, piece);
        d->begin = (d->begin + piece) % RING;
        d->used -= piece;
        pthread_cond_signal(&d->change);
    }
    d->starved = piece == 0;
    pthread_mutex_unlock(&d->lock);
    d->since_ms = xpd_now_ms();
    if (piece > 0)
        return (ssize_t)piece;
    if (broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    d->suspended = true;
    MHD_suspend_connection(d->connection);
    return 0; /* only here: nothing to send and suspended */
}

static void let_go(void *context)
{
    xpd_download_drop(context);
}

struct MHD_Response *xpd_download_response(xpd_download *d, int64_t first, int64_t last)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback((uint64_t)(last - first + 1), BLOCK, fill, d, let_go);

    if (!response) {
        xpd_download_drop(d);
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    d->first = first;
    d->left = last - first + 1;
    d->go = true;
    pthread_cond_signal(&d->change);
    pthread_mutex_unlock(&d->lock);
    return response;
}

int64_t xpd_download_size(const xpd_download *d)
{
    return d->bytes;
}

/* ------------------------------------------------------------------------------------ one look */

typedef struct glance {
    char *path;
    int64_t inode, bytes, mtime_ns;
    bool there;
} glance;

static void glance_free(void *context)
{
    glance *g = context;
    free(g->path);
    free(g);
}

static void glance_at(void *context)
{
    glance *g = context;
    struct stat st;
    g->there = lstat(g->path, &st) == 0 && is_the_one(&st, g->inode, g->bytes, g->mtime_ns);
}

bool xpd_result_is_there(const json_t *result)
{
    const char *path = json_string_value(json_object_get(result, "path"));
    glance *g = path ? calloc(1, sizeof *g) : NULL;

    if (!g || !(g->path = strdup(path))) {
        free(g);
        return false;
    }
    g->inode = json_integer_value(json_object_get(result, "inode"));
    g->bytes = json_integer_value(json_object_get(result, "bytes"));
    g->mtime_ns = json_integer_value(json_object_get(result, "mtime_ns"));
    if (!xpd_aside(glance_at, glance_free, g, GLANCE_S)) {
        xpd_log(XPD_LOG_WARNING, NULL, "the file system of '%s' has not answered for %d s", path,
                GLANCE_S);
        return false;
    }
    bool there = g->there;
    glance_free(g);
    return there;
}

/* ------------------------------------------------------------------------------------- the end */

void xpd_downloads_tick(xpd_broker *b)
{
    downloads *all = b->downloads;
    int64_t now = xpd_now_ms();

    for (xpd_download *d = all ? all->list : NULL; d; d = d->next) {
        if (!d->suspended || now - d->since_ms < STALL_MS)
            continue;
        xpd_log(XPD_LOG_WARNING, NULL, "the file system of '%s' has not answered for %d s", d->path,
                STALL_MS / 1000);
        pthread_mutex_lock(&d->lock);
        d->state = BROKEN;
        pthread_mutex_unlock(&d->lock);
        resume(d);
    }
}

bool xpd_downloads_none(const xpd_broker *b)
{
    const downloads *all = b->downloads;
    return !all || !all->list;
}

int xpd_downloads_open(const xpd_broker *b, int out[XPD_DOWNLOADS_MAX])
{
    const downloads *all = b->downloads;
    int count = 0;

    for (xpd_download *d = all ? all->list : NULL; d && count < XPD_DOWNLOADS_MAX; d = d->next) {
        pthread_mutex_lock(&d->lock);
        if (d->fd >= 0)
            out[count++] = d->fd;
        pthread_mutex_unlock(&d->lock);
    }
    return count;
}

void xpd_downloads_close(xpd_broker *b)
{
    downloads *all = b->downloads;
    if (!all)
        return;
    xpd_loop_remove(&b->loop, &all->source);
    close(all->source.fd);
    free(all);
    b->downloads = NULL;
}
