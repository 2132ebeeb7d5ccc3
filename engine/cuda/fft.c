/* See fft.h.  One lock guards the list of plans.  A plan is shared by all runs with such transforms
 * on its device and holds stream and work area of the last: each plan has a lock of its own, from
 * there until its transforms are queued. */
#include "fft.h"

#include "backend/util.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

typedef struct plan {
    int id;
    int64_t n, frames;
    cufftType type;
    cufftHandle handle;
    size_t area;
    pthread_mutex_t in_use;
    struct plan *next;
} plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static plan *plans;
/* Where this thread's single transforms are done: the first device of the team that it opened last.
 */
static _Thread_local int host_device;

/* The sides for which a block of 256 threads holds whole lines with eight points a thread
 * (transform.h). */
bool xpe_cuda_own(int64_t n)
{
    return n == 64 || n == 128 || n == 256 || n == 512;
}

bool xpe_cuda_fft_send_twiddle(xpe_team *team, int device)
{
    xpe_cuda_device *d = &team->devices[device];
    size_t bytes = (size_t)team->n * sizeof(xpe_c32);
    char *slab = xpe_cuda_slab_take(team, device);
    xpe_c32 *table = (xpe_c32 *)(void *)slab;

    if (!slab)
        return false;
    for (int64_t k = 0; k < team->n; k++) {
        double angle = -2 * M_PI * (double)k / (double)team->n;
        table[k] = (xpe_c32){(float)cos(angle), (float)sin(angle)};
    }
    if (!XPE_CUDA(team, device, cudaMemcpyAsync, d->twiddle, slab, bytes, cudaMemcpyHostToDevice,
                  d->stream))
        return false;
    xpe_cuda_slab_sent(team, device);
    return !team->failed;
}

static const char *fft_error(cufftResult rc)
{
    switch (rc) {
    case CUFFT_ALLOC_FAILED:
        return "out of memory";
    case CUFFT_INVALID_SIZE:
        return "size not supported";
    case CUFFT_EXEC_FAILED:
        return "execution failed";
    default:
        return "internal error";
    }
}

static cufftResult make(plan *p)
{
    int n[2] = {(int)p->n, (int)p->n}, side = (int)p->n;
    cufftResult rc = cufftCreate(&p->handle);

    if (rc != CUFFT_SUCCESS)
        return rc;
    rc = cufftSetAutoAllocation(p->handle, 0);
    if (rc == CUFFT_SUCCESS)
        rc = cufftMakePlanMany(p->handle, 2, n, NULL, 1, side * side, NULL, 1, side * side, p->type,
                               (int)p->frames, &p->area);
    if (rc != CUFFT_SUCCESS)
        (void)cufftDestroy(p->handle);
    return rc;
}

/* The plan, made when it is asked for for the first time; borrowed. */
static xpe_status find(plan **out, int id, int64_t n, int64_t frames, cufftType type,
                       xpe_error *err)
{
    plan *p;
    cufftResult rc = CUFFT_SUCCESS;
    xpe_status st = XPE_OK;

    *out = NULL;
    pthread_mutex_lock(&lock);
    for (p = plans; p; p = p->next)
        if (p->id == id && p->n == n && p->frames == frames && p->type == type) {
            *out = p;
            p = NULL;
            goto done;
        }
    XPE_TRY(xpe_new(&p, 1, sizeof *p, err));
    *p = (plan){.id = id, .n = n, .frames = frames, .type = type, .next = plans};
    pthread_mutex_init(&p->in_use, NULL);
    rc = cudaSetDevice(id) == cudaSuccess ? make(p) : CUFFT_INTERNAL_ERROR;
    if (rc != CUFFT_SUCCESS) {
        (void)cudaGetLastError();
        st = xpe_fail(err, rc == CUFFT_ALLOC_FAILED ? XPE_NO_DEVICE_MEMORY : XPE_DEVICE_LOST,
                      "/devices",
                      "device 'cuda:%d' failed: cuFFT could not plan %lld transforms of %lld x "
                      "%lld points: %s (%d)",
                      id, (long long)frames, (long long)n, (long long)n, fft_error(rc), (int)rc);
        goto done;
    }
    *out = plans = p;
    p = NULL;
done:
    free(p);
    pthread_mutex_unlock(&lock);
    return st;
}

xpe_status xpe_cuda_fft_area(size_t *out, int id, int64_t n, xpe_error *err)
{
    plan *p;
    xpe_status st = find(&p, id, n, xpe_cuda_frames(n), CUFFT_C2C, err);

    *out = p ? p->area : 0;
    return st;
}

static bool fft_ok(xpe_team *team, int device, const char *call, cufftResult rc)
{
    if (rc == CUFFT_SUCCESS)
        return true;
    (void)cudaGetLastError();
    xpe_cuda_fail(team, XPE_DEVICE_LOST, "device '%s' failed: %s: %s (%d)",
                  team->devices[device].name, call, fft_error(rc), (int)rc);
    return false;
}

static bool execute(xpe_team *team, int device, const plan *p, xpe_c32 *field, int modes, int sign)
{
    xpe_cuda_device *d = &team->devices[device];
    int64_t size = d->frames * team->n * team->n;

    if (!fft_ok(team, device, "cufftSetStream", cufftSetStream(p->handle, d->stream)) ||
        !fft_ok(team, device, "cufftSetWorkArea", cufftSetWorkArea(p->handle, d->fft_area)))
        return false;
    for (int k = 0; k < modes; k++) {
        cufftComplex *data = (cufftComplex *)(void *)(field + k * size);
        if (!fft_ok(team, device, "cufftExecC2C",
                    cufftExecC2C(p->handle, data, data, sign < 0 ? CUFFT_FORWARD : CUFFT_INVERSE)))
            return false;
    }
    return true;
}

bool xpe_cuda_fft_run(xpe_team *team, int device, xpe_c32 *field, int modes, int sign)
{
    xpe_cuda_device *d = &team->devices[device];
    xpe_error err;
    plan *p;
    bool ok;

    if (find(&p, d->id, team->n, d->frames, CUFFT_C2C, &err) != XPE_OK) {
        xpe_cuda_fail(team, err.status, "%s", err.text);
        return false;
    }
    pthread_mutex_lock(&p->in_use);
    ok = execute(team, device, p, field, modes, sign);
    pthread_mutex_unlock(&p->in_use);
    return ok;
}

/* -------------------------------------------------------------------------- a single field */

#define HOST_TRY(text, call)                                                                       \
    do {                                                                                           \
        if ((call) != 0) {                                                                         \
            (void)cudaGetLastError();                                                              \
            st = xpe_fail(err, XPE_DEVICE_LOST, "/devices",                                        \
                          "a transform of %lld x %lld points on the GPU failed: %s", (long long)n, \
                          (long long)n, text);                                                     \
            goto done;                                                                             \
        }                                                                                          \
    } while (0)

/* What becomes of the event before patience ends; cudaErrorNotReady: the device does not come back.
 */
static cudaError_t outcome(cudaEvent_t event)
{
    double begin = xpe_cuda_clock();
    cudaError_t rc;

    while ((rc = cudaEventQuery(event)) == cudaErrorNotReady &&
           xpe_cuda_clock() - begin < xpe_cuda_patience_s)
        (void)sched_yield();
    (void)cudaGetLastError();
    return rc;
}

static cufftResult execute_one(plan *p, cufftDoubleComplex *data, void *area, cudaStream_t stream,
                               int sign)
{
    cufftResult rc;

    pthread_mutex_lock(&p->in_use);
    rc = cufftSetStream(p->handle, stream);
    if (rc == CUFFT_SUCCESS)
        rc = cufftSetWorkArea(p->handle, area);
    if (rc == CUFFT_SUCCESS)
        rc = cufftExecZ2Z(p->handle, data, data, sign < 0 ? CUFFT_FORWARD : CUFFT_INVERSE);
    pthread_mutex_unlock(&p->in_use);
    return rc;
}

void xpe_cuda_fft_host_on(int id)
{
    host_device = id;
}

xpe_status xpe_cuda_fft_host(xpe_c64 *field, int64_t n, int sign, xpe_error *err)
{
    size_t bytes = (size_t)(n * n) * sizeof *field;
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    void *host = NULL, *data = NULL, *area = NULL;
    bool back = true; /* else nothing may be freed: that would wait for ever */
    xpe_status st = XPE_OK;
    cudaError_t rc;
    plan *p;

    XPE_TRY(find(&p, host_device, n, 1, CUFFT_Z2Z, err));
    HOST_TRY("no device", cudaSetDevice(host_device));
    HOST_TRY("no stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    HOST_TRY("no event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    HOST_TRY("no pinned memory", cudaMallocHost(&host, bytes));
    HOST_TRY("no memory", cudaMalloc(&data, bytes));
    HOST_TRY("no memory", cudaMalloc(&area, p->area ? p->area : 1));
    memcpy(host, field, bytes);
    HOST_TRY("cudaMemcpyAsync", cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream));
    HOST_TRY("cuFFT", execute_one(p, data, area, stream, sign));
    HOST_TRY("cudaMemcpyAsync", cudaMemcpyAsync(host, data, bytes, cudaMemcpyDeviceToHost, stream));
    HOST_TRY("cudaEventRecord", cudaEventRecord(event, stream));
    rc = outcome(event);
    back = rc != cudaErrorNotReady;
    HOST_TRY("the device has not come back", !back);
    HOST_TRY("cudaEventQuery", rc);
    memcpy(field, host, bytes);
done:
    if (back && area)
        (void)cudaFree(area);
    if (back && data)
        (void)cudaFree(data);
    if (back && host)
        (void)cudaFreeHost(host);
    if (event)
        (void)cudaEventDestroy(event);
    if (stream)
        (void)cudaStreamDestroy(stream);
    return st;
}

void xpe_cuda_fft_forget(void)
{
    pthread_mutex_lock(&lock);
    while (plans) {
        plan *p = plans;
        plans = p->next;
        (void)cudaSetDevice(p->id);
        (void)cufftDestroy(p->handle);
        pthread_mutex_destroy(&p->in_use);
        free(p);
    }
    pthread_mutex_unlock(&lock);
}
