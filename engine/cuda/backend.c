/* The table of the CUDA backend, and the devices that it finds. */
#include "team.h"

#include "fft.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int64_t amplitude_bytes(int64_t n)
{
    return n * n * (int64_t)sizeof(float);
}

static void profile(xpe_team *team, bool on)
{
    team->profile = on;
}

static void stats(const xpe_team *team, xpe_run_stats *out)
{
    memset(out, 0, sizeof *out);
    out->bytes_peak = team->bytes_peak;
    out->bytes_pinned = team->bytes_pinned;
    out->bytes_moved = team->bytes_moved;
    out->transforms = team->transforms;
    out->seconds_busy = team->seconds_busy; /* transforms are fused and have no time of their own; a
                                               profiler names kernels */
}

/* ------------------------------------------------------------------------------- devices */

#define CHECK_VALUE 0x5ca7

/* Whether this build's kernels run on the current device; asked once a process, because it takes a
 * stream and, on the first call, the context of the device. */
static cudaError_t run_check(void)
{
    k_check_args args = {NULL, CHECK_VALUE};
    int32_t *host = NULL;
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    cudaError_t rc = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    double begin = xpe_cuda_clock();

    if (rc == cudaSuccess)
        rc = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (rc == cudaSuccess)
        rc = cudaMallocHost((void **)&host, sizeof *host);
    if (rc == cudaSuccess)
        rc = cudaMalloc((void **)&args.out, sizeof *args.out);
    if (rc == cudaSuccess)
        rc = xpe_cuda_k_check(&args, stream);
    if (rc == cudaSuccess)
        rc = cudaMemcpyAsync(host, args.out, sizeof *host, cudaMemcpyDeviceToHost, stream);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(event, stream);
    while (rc == cudaSuccess && (rc = cudaEventQuery(event)) == cudaErrorNotReady &&
           xpe_cuda_clock() - begin < xpe_cuda_patience_s) {
        (void)cudaGetLastError();
        rc = cudaSuccess;
    }
    if (rc == cudaSuccess && *host != CHECK_VALUE)
        rc = cudaErrorUnknown;
    if (rc == cudaErrorNotReady) /* hangs, and so would a call that frees */
        return rc;
    (void)cudaFree(args.out);
    (void)cudaFreeHost(host);
    if (event)
        (void)cudaEventDestroy(event);
    if (stream)
        (void)cudaStreamDestroy(stream);
    return rc;
}

#define DEVICES_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool checked[DEVICES_MAX];             /* under lock */
static cudaError_t check_result[DEVICES_MAX]; /* under lock */

static cudaError_t check_once(int id)
{
    cudaError_t rc;

    if (id >= DEVICES_MAX)
        return run_check();
    pthread_mutex_lock(&lock);
    if (!checked[id])
        check_result[id] = run_check();
    checked[id] = true;
    rc = check_result[id];
    pthread_mutex_unlock(&lock);
    return rc;
}

static void describe(xpe_device_info *out, int id)
{
    struct cudaDeviceProp prop;
    size_t bytes_free = 0, bytes_total = 0;
    cudaError_t rc = cudaSetDevice(id);

    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "cuda:%d", id);
    if (rc == cudaSuccess)
        rc = cudaGetDeviceProperties(&prop, id);
    if (rc == cudaSuccess)
        snprintf(out->model, sizeof out->model, "%.64s, compute capability %d.%d", prop.name,
                 prop.major, prop.minor);
    if (rc == cudaSuccess)
        rc = check_once(id);
    if (rc == cudaSuccess)
        rc = cudaMemGetInfo(&bytes_free, &bytes_total);
    out->bytes_free = (int64_t)bytes_free;
    out->bytes_total = (int64_t)bytes_total;
    if (rc != cudaSuccess)
        snprintf(out->absent, sizeof out->absent, "no kernel of this build runs there: %.100s",
                 cudaGetErrorString(rc));
    (void)cudaGetLastError();
}

/* Why there is no device at all. */
static void absent(xpe_device_info *out, const char *name, cudaError_t rc)
{
    (void)cudaGetLastError();
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", name);
    if (rc == cudaErrorInsufficientDriver) /* also what the runtime says where there is no driver at
                                              all */
        snprintf(out->absent, sizeof out->absent, "no NVIDIA driver, or one older than CUDA %d.%d",
                 CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    else
        snprintf(out->absent, sizeof out->absent, "%.120s",
                 rc == cudaSuccess || rc == cudaErrorNoDevice ? "this machine has no CUDA device"
                                                              : cudaGetErrorString(rc));
}

static size_t list(xpe_device_info *out, size_t max)
{
    int count = 0;
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc == cudaSuccess && count > 0) {
        for (int id = 0; id < count && (size_t)id < max; id++)
            describe(&out[id], id);
        return (size_t)count;
    }
    if (max > 0)
        absent(out, "cuda", rc);
    return 1;
}

static void look(xpe_device_info *out, const char *name)
{
    int count = 0, id = xpe_cuda_number(name);
    cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess || count < 1) {
        absent(out, name, rc);
    } else if (id < 0 || id >= count) {
        absent(out, name, cudaErrorNoDevice);
        snprintf(out->absent, sizeof out->absent,
                 "there is no device of this number; the last one is cuda:%d", count - 1);
    } else {
        describe(out, id);
    }
}

static void memory(xpe_device_info *device)
{
    size_t bytes_free = 0, bytes_total = 0;

    if (cudaSetDevice(xpe_cuda_number(device->name)) == cudaSuccess &&
        cudaMemGetInfo(&bytes_free, &bytes_total) == cudaSuccess) {
        device->bytes_free = (int64_t)bytes_free;
        device->bytes_total = (int64_t)bytes_total;
    }
    (void)cudaGetLastError();
}

static uint8_t reach_of(int id, int peer)
{
    int can = 0, rank = 0; /* which says something only where there is a way */

    if (cudaDeviceCanAccessPeer(&can, id, peer) != cudaSuccess || !can ||
        cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, id, peer) != cudaSuccess ||
        rank < 0)
        return 0;
    return (uint8_t)(rank < XPE_REACH_MAX ? rank + 1 : XPE_REACH_MAX);
}

/* Neither question takes a context of the others; its own, which it has, is made the current one,
 * so that no call makes that of device 0. */
static void links(xpe_device_info *device)
{
    int count = 0, id = xpe_cuda_number(device->name);
    bool asked = cudaSetDevice(id) == cudaSuccess && cudaGetDeviceCount(&count) == cudaSuccess;

    memset(device->reach, 0, sizeof device->reach);
    for (int peer = 0; asked && peer < count && peer < XPE_PEERS_MAX; peer++)
        device->reach[peer] = peer == id ? 0 : reach_of(id, peer);
    (void)cudaGetLastError();
}

extern const xpe_backend xpe_backend_cuda;
const xpe_backend xpe_backend_cuda = {
    .name = "cuda",
    .list = list,
    .look = look,
    .memory = memory,
    .links = links,
    .amplitude_bytes = amplitude_bytes,
    .work_bytes = xpe_cuda_work_bytes,
    .set_chunk = xpe_cuda_set_chunk,
    .open = xpe_cuda_open,
    .close = xpe_cuda_close,
    .wait = xpe_cuda_wait,
    .transform = xpe_cuda_fft_host,
    .buffer_create = xpe_cuda_buffer_create,
    .buffer_destroy = xpe_cuda_buffer_destroy,
    .upload = xpe_cuda_upload,
    .download = xpe_cuda_download,
    .copy = xpe_cuda_copy,
    .beside = xpe_cuda_beside,
    .zero = xpe_cuda_zero,
    .sums_create = xpe_cuda_sums_create,
    .sums_destroy = xpe_cuda_sums_destroy,
    .sums_clear = xpe_cuda_sums_clear,
    .sums_gather = xpe_cuda_sums_gather,
    .amplitudes = xpe_cuda_amplitudes,
    .fit = xpe_cuda_fit,
    .probe_fit = xpe_cuda_probe_fit,
    .deviation = xpe_cuda_deviation,
    .settle = xpe_cuda_settle_copies,
    .fill = xpe_cuda_fill,
    .patches = xpe_cuda_patches,
    .back = xpe_cuda_back,
    .search = xpe_cuda_search,
    .average = xpe_cuda_average,
    .maxima = xpe_cuda_maxima,
    .numbers = xpe_cuda_numbers,
    .order = xpe_cuda_order_all,
    .unfix = xpe_cuda_unfix,
    .mode_average = xpe_cuda_mode_average,
    .mode_deviation = xpe_cuda_mode_deviation,
    .mode_energy = xpe_cuda_mode_energy,
    .mode_derive = xpe_cuda_mode_derive,
    .profile = profile,
    .stats = stats,
};
