/* Teams, queues, buffers and memory of the CPU backend, and its table of operations. */
#include "memory.h"
#include "team.h"

#include "backend/util.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define HUGE_FROM                                                                                  \
    ((size_t)4 << 20) /* buffers from this size lie on huge pages where the system has them */

/* ------------------------------------------------------------------------------- memory */

static void note_bytes(xpe_team *team, long long change)
{
    long long now = atomic_fetch_add(&team->bytes_now, change) + change;
    long long peak = atomic_load(&team->bytes_peak);
    while (now > peak && !atomic_compare_exchange_weak(&team->bytes_peak, &peak, now))
        ;
}

void *xpe_cpu_alloc(xpe_team *team, size_t bytes)
{
    size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : XPE_CACHE_LINE;
    size_t size =
        bytes ? (bytes + XPE_CACHE_LINE - 1) / XPE_CACHE_LINE * XPE_CACHE_LINE : XPE_CACHE_LINE;
    void *p = size < bytes ? NULL : aligned_alloc(align, (size + align - 1) / align * align);

    if (!p)
        return NULL;
    if (align == HUGE_PAGE)
        (void)madvise(p, size / HUGE_PAGE * HUGE_PAGE,
                      MADV_HUGEPAGE); /* fewer address look-ups; works without */
    memset(p, 0, size);
    note_bytes(team, (long long)size);
    return p;
}

void xpe_cpu_free(xpe_team *team, void *data, size_t bytes)
{
    if (!data)
        return;
    note_bytes(team, -(long long)((bytes + XPE_CACHE_LINE - 1) / XPE_CACHE_LINE * XPE_CACHE_LINE));
    free(data);
}

static xpe_status buffer_create(xpe_buffer **out, xpe_team *team, int device, size_t bytes,
                                xpe_error *err)
{
    xpe_status st = xpe_new(out, 1, sizeof **out, err);

    if (st != XPE_OK)
        return st;
    (*out)->team = team;
    (*out)->device = device;
    (*out)->bytes = bytes;
    (*out)->data = xpe_cpu_alloc(team, bytes);
    if ((*out)->data)
        return XPE_OK;
    free(*out);
    *out = NULL;
    return xpe_fail(err, XPE_NO_MEMORY, "/devices",
                    "host memory is exhausted: %.1f MiB more were needed on 'cpu'",
                    (double)bytes / 1048576.0);
}

static void buffer_destroy(xpe_buffer *buffer)
{
    if (!buffer)
        return;
    xpe_cpu_free(buffer->team, buffer->data, buffer->bytes);
    free(buffer);
}

/* -------------------------------------------------------------------------------- queue */

void xpe_cpu_enqueue(xpe_team *team, int device, const xpe_op *op)
{
    xpe_cpu_device *d = &team->devices[device];

    if (d->op_count == d->op_room) {
        int room = d->op_room ? 2 * d->op_room : 16;
        xpe_op *ops = realloc(d->ops, (size_t)room * sizeof *ops);
        if (!ops) {
            team->out_of_memory = true; /* reported by the next wait */
            return;
        }
        d->ops = ops;
        d->op_room = room;
    }
    d->ops[d->op_count++] = *op;
}

/* The operations of one turn: at most one a device, each in parts. */
typedef struct turn {
    xpe_team *team;
    int index;
} turn;

static void turn_part(void *arg, int part, int thread)
{
    turn *t = arg;
    xpe_team *team = t->team;
    xpe_scratch *scratch = &team->scratch[thread];

    for (int g = 0; g < team->device_count; g++) {
        const xpe_cpu_device *d = &team->devices[g];
        const xpe_op *op;
        if (t->index >= d->op_count)
            continue;
        op = &d->ops[t->index];
        if (part < op->parts) {
            double begin = xpe_cpu_clock(team);
            op->run(team, g, op, part, op->parts, scratch);
            scratch->seconds_busy += xpe_cpu_clock(team) - begin;
            return;
        }
        part -= op->parts;
    }
}

static xpe_status team_wait(xpe_team *team, xpe_error *err)
{
    bool failed = team->out_of_memory;
    int most = 0;

    for (int g = 0; g < team->device_count; g++)
        most = team->devices[g].op_count > most ? team->devices[g].op_count : most;
    for (int i = 0; i < most && !failed; i++) {
        turn t = {team, i};
        int parts = 0;
        for (int g = 0; g < team->device_count; g++)
            if (i < team->devices[g].op_count)
                parts += team->devices[g].ops[i].parts;
        xpe_pool_run(team->pool, parts, turn_part, &t);
    }
    for (int g = 0; g < team->device_count; g++)
        team->devices[g].op_count = 0;
    team->out_of_memory = false;
    if (failed)
        return xpe_fail(err, XPE_NO_MEMORY, "", "host memory is exhausted while work was queued");
    return XPE_OK;
}

static void copy_part(xpe_team *team, int device, const xpe_op *op, int part, int parts,
                      xpe_scratch *scratch)
{
    size_t begin = op->args.copy.bytes * (size_t)part / (size_t)parts;
    size_t end = op->args.copy.bytes * (size_t)(part + 1) / (size_t)parts;
    char *to = op->args.copy.to;

    (void)device;
    (void)scratch;
    (void)team;
    if (op->args.copy.from)
        memcpy(to + begin, (const char *)op->args.copy.from + begin, end - begin);
    else
        memset(to + begin, 0, end - begin);
}

static void enqueue_copy(xpe_team *team, int device, void *to, const void *from, size_t bytes)
{
    xpe_op op = {.run = copy_part, .parts = bytes > 1 << 20 ? team->lanes : 1};
    op.args.copy.to = to;
    op.args.copy.from = from;
    op.args.copy.bytes = bytes;
    xpe_cpu_enqueue(team, device, &op);
}

static void upload(xpe_team *team, xpe_buffer *to, size_t offset, const void *from, size_t bytes)
{
    enqueue_copy(team, to->device, (char *)to->data + offset, from, bytes);
}

static void download(xpe_team *team, void *to, const xpe_buffer *from, size_t offset, size_t bytes)
{
    enqueue_copy(team, from->device, to, (const char *)from->data + offset, bytes);
}

static void copy(xpe_team *team, xpe_buffer *to, size_t to_offset, const xpe_buffer *from,
                 size_t from_offset, size_t bytes)
{
    enqueue_copy(team, to->device, (char *)to->data + to_offset,
                 (const char *)from->data + from_offset, bytes);
}

static void zero(xpe_team *team, xpe_buffer *buffer)
{
    enqueue_copy(team, buffer->device, buffer->data, NULL, buffer->bytes);
}

/* --------------------------------------------------------------------------------- lanes */

int xpe_cpu_lanes(const xpe_team *team, int64_t block)
{
    return team->lanes < block ? team->lanes : (int)(block > 0 ? block : 1);
}

xpe_batch xpe_cpu_share(xpe_batch batch, int lane, int lane_count)
{
    int64_t begin = batch.block * lane / lane_count, end = batch.block * (lane + 1) / lane_count;
    xpe_batch share = {xpe_max64(begin, batch.first), 0, batch.block};

    share.count = xpe_max64(0, xpe_min64(end, batch.first + batch.count) - share.first);
    return share;
}

/* ---------------------------------------------------------------------------------- team */

double xpe_cpu_clock(const xpe_team *team)
{
    struct timespec t;

    if (!team->profile)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void xpe_cpu_moved(xpe_team *team, int64_t bytes)
{
    atomic_fetch_add(&team->bytes_moved, bytes);
}

static int usable_threads(void)
{
    cpu_set_t set;
    int count = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        count = CPU_COUNT(&set);
    return count < 1 ? 1 : count;
}

static void team_close(xpe_team *team)
{
    if (!team)
        return;
    int threads = team->pool ? xpe_pool_threads(team->pool) : 0;
    xpe_pool_destroy(team->pool);
    for (int i = 0; team->scratch && i < threads; i++) {
        for (int k = 0; k < 2; k++)
            free(team->scratch[i].field[k]);
        for (int k = 0; k < 4; k++)
            free(team->scratch[i].rows[k]);
        free(team->scratch[i].intensity);
    }
    free(team->scratch);
    for (int g = 0; team->devices && g < team->device_count; g++)
        free(team->devices[g].ops);
    free(team->devices);
    free(team);
}

static xpe_status scratch_init(xpe_team *team, xpe_scratch *s, xpe_error *err)
{
    size_t field = (size_t)(team->modes * team->groups * XPE_GROUP * (team->n + 1)) *
                   sizeof(xpe_c32); /* frame.h */
    size_t rows = (size_t)(XPE_GROUP * team->stride) * sizeof(xpe_c32);
    size_t plane = (size_t)(XPE_GROUP * team->n) * sizeof(float);
    bool good = true;

    for (int i = 0; i < 2; i++)
        good = (s->field[i] = xpe_cpu_alloc(team, field)) && good;
    for (int i = 0; i < 4; i++)
        good = (s->rows[i] = xpe_cpu_alloc(team, rows)) && good;
    good = (s->intensity = xpe_cpu_alloc(team, plane)) && good;
    if (!good)
        return xpe_fail(err, XPE_NO_MEMORY, "",
                        "host memory is exhausted: %.1f MiB of work memory a thread were needed",
                        (double)(2 * field + 4 * rows + plane) / 1048576.0);
    return XPE_OK;
}

static xpe_status team_open(xpe_team **out, const xpe_device_list *devices, int64_t n, int modes,
                            xpe_error *err)
{
    xpe_team *team = NULL;
    xpe_status st;
    int threads = devices->cpu_threads > 0 ? devices->cpu_threads : usable_threads();

    *out = NULL;
    XPE_TRY(xpe_new(&team, 1, sizeof *team, err));
    team->device_count = devices->count;
    team->lanes = (threads + devices->count - 1) / devices->count;
    team->n = n;
    team->modes = modes;
    team->groups = xpe_fft_groups(n);
    team->stride = xpe_fft_stride(n);
    team->loops = xpe_loops_best();
    XPE_TRY(xpe_new(&team->devices, (size_t)devices->count, sizeof *team->devices, err));
    XPE_TRY(xpe_fft_get(&team->fft, n, err));
    XPE_TRY(xpe_pool_create(&team->pool, threads, err));
    XPE_TRY(xpe_new(&team->scratch, (size_t)threads, sizeof *team->scratch, err));
    for (int i = 0; i < threads; i++)
        XPE_TRY(scratch_init(team, &team->scratch[i], err));
    *out = team;
    team = NULL;
done:
    team_close(team);
    return st;
}

/* --------------------------------------------------------------------------------- list */

static void cpu_model(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");

    snprintf(out, size, "processor");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            char *name = strchr(line, ':') + 2;
            name[strcspn(name, "\n")] = 0;
            snprintf(out, size, "%s", name);
            break;
        }
    if (f)
        (void)fclose(f);
}

static size_t list(xpe_device_info *out, size_t max)
{
    char model[64];

    if (max < 1)
        return 1;
    memset(out, 0, sizeof *out);
    cpu_model(model, sizeof model);
    out->threads = usable_threads();
    snprintf(out->name, sizeof out->name, "cpu");
    snprintf(out->model, sizeof out->model, "%s, %d thread%s, %s loops", model, out->threads,
             out->threads == 1 ? "" : "s", xpe_loops_best()->name);
    xpe_cpu_memory(&out->bytes_total, &out->bytes_free);
    return 1;
}

static void memory(xpe_device_info *device)
{
    xpe_cpu_memory(&device->bytes_total, &device->bytes_free);
}

static int64_t amplitude_bytes(int64_t n)
{
    return xpe_fft_groups(n) * XPE_GROUP * n * (int64_t)sizeof(float);
}

static void profile(xpe_team *team, bool on)
{
    team->profile = on;
}

static void stats(const xpe_team *team, xpe_run_stats *out)
{
    memset(out, 0, sizeof *out);
    out->bytes_peak = atomic_load(&team->bytes_peak);
    out->bytes_moved = atomic_load(&team->bytes_moved);
    for (int i = 0; i < xpe_pool_threads(team->pool); i++) {
        out->transforms += team->scratch[i].transforms;
        out->seconds_transforms += team->scratch[i].seconds_transforms;
        out->seconds_busy += team->scratch[i].seconds_busy;
    }
}

extern const xpe_backend xpe_backend_cpu;
const xpe_backend xpe_backend_cpu = {
    .name = "cpu",
    .list = list,
    .memory = memory,
    .amplitude_bytes = amplitude_bytes,
    .open = team_open,
    .close = team_close,
    .wait = team_wait,
    .transform = xpe_fft_host,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .upload = upload,
    .download = download,
    .copy = copy,
    .zero = zero,
    .sums_create = xpe_cpu_sums_create,
    .sums_destroy = xpe_cpu_sums_destroy,
    .sums_clear = xpe_cpu_sums_clear,
    .sums_gather = xpe_cpu_sums_gather,
    .amplitudes = xpe_cpu_amplitudes,
    .fit = xpe_cpu_fit,
    .probe_fit = xpe_cpu_probe_fit,
    .deviation = xpe_cpu_deviation,
    .settle = xpe_cpu_settle,
    .fill = xpe_cpu_fill,
    .patches = xpe_cpu_patches,
    .back = xpe_cpu_back,
    .search = xpe_cpu_search,
    .average = xpe_cpu_average,
    .maxima = xpe_cpu_maxima,
    .numbers = xpe_cpu_numbers,
    .unfix = xpe_cpu_unfix,
    .mode_average = xpe_cpu_mode_average,
    .mode_deviation = xpe_cpu_mode_deviation,
    .mode_energy = xpe_cpu_mode_energy,
    .mode_derive = xpe_cpu_mode_derive,
    .profile = profile,
    .stats = stats,
};
