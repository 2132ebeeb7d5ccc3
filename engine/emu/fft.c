/* cuFFT through FFTW: packed two-dimensional transforms in batches, in single and double precision.
 *
 * A plan asks for a work area as large as its data, or, for a single field whose sides are powers
 * of two, for none, as cuFFT does for some sizes.  With an area a transform is two pieces of work,
 * into it and out of it, and spoils it, so that two streams that share one show it.  Every field of
 * a batch is transformed by itself: bits do not depend on the batch, which cuFFT does not promise.
 */
#include "cufft.h"
#include "state.h"
#include "xpe_emu_launch.h"

#include <fftw3.h>
#include <stdlib.h>
#include <string.h>

#define PLANS 1024
#define HOST_PLANS 256

typedef struct plan {
    bool live, planned, allocates;
    int device, n[2], batch;
    cufftType type;
    size_t area_bytes;
    char *area;
    cudaStream_t stream;
} plan;

static plan plans[PLANS]; /* handle - 1 */

static plan *plan_of(const char *call, cufftHandle handle)
{
    if (handle < 1 || handle > PLANS || !plans[handle - 1].live)
        xpe_emu_die("%s: %d is no plan, or has been destroyed", call, handle);
    return &plans[handle - 1];
}

static size_t element(cufftType type)
{
    return type == CUFFT_C2C ? sizeof(cufftComplex) : sizeof(cufftDoubleComplex);
}

static size_t plan_bytes(const plan *p)
{
    return (size_t)p->n[0] * (size_t)p->n[1] * (size_t)p->batch * element(p->type);
}

/* ----------------------------------------------------------------------------- transforms */

/* FFTW's plan of one field; kept for the life of the process. */
typedef struct host_plan {
    int n[2], sign;
    cufftType type;
    bool in_place;
    fftwf_plan single;
    fftw_plan both; /* double precision */
} host_plan;

static host_plan host_plans[HOST_PLANS];
static int host_plan_count;

static const host_plan *host_plan_find(host_plan wanted)
{
    size_t bytes = (size_t)wanted.n[0] * (size_t)wanted.n[1] * element(wanted.type);
    unsigned flags = FFTW_ESTIMATE | FFTW_UNALIGNED;
    void *in, *out;

    for (int i = 0; i < host_plan_count; i++)
        if (memcmp(host_plans[i].n, wanted.n, sizeof wanted.n) == 0 &&
            host_plans[i].sign == wanted.sign && host_plans[i].type == wanted.type &&
            host_plans[i].in_place == wanted.in_place)
            return &host_plans[i];
    in = malloc(bytes);
    out = wanted.in_place ? in : malloc(bytes);
    if (host_plan_count == HOST_PLANS || !in || !out)
        xpe_emu_die("no room for one more transform");
    if (wanted.type == CUFFT_C2C)
        wanted.single = fftwf_plan_dft_2d(wanted.n[0], wanted.n[1], in, out, wanted.sign, flags);
    else
        wanted.both = fftw_plan_dft_2d(wanted.n[0], wanted.n[1], in, out, wanted.sign, flags);
    if (!wanted.in_place)
        free(out);
    free(in);
    host_plans[host_plan_count] = wanted;
    return &host_plans[host_plan_count++];
}

typedef struct fft_work {
    const char *call;
    int n[2], batch, sign;
    cufftType type;
    char *in, *out, *area;
    size_t bytes, area_bytes;
} fft_work;

static void work_check(const fft_work *w, int device)
{
    xpe_emu_check(w->call, "the input", w->in, w->bytes, device);
    xpe_emu_check(w->call, "the output", w->out, w->bytes, device);
    if (w->area_bytes)
        xpe_emu_check(w->call, "the work area", w->area, w->area_bytes, device);
}

static void access(const fft_work *w, void (*change)(const void *data, size_t bytes))
{
    change(w->in, w->bytes);
    change(w->out, w->bytes);
    if (w->area_bytes)
        change(w->area, w->area_bytes);
}

static void load_run(int device, void *args)
{
    const fft_work *w = args;

    work_check(w, device);
    access(w, xpe_emu_range_open);
    memcpy(w->area, w->in, w->bytes);
    access(w, xpe_emu_range_close);
}

static void transform_run(int device, void *args)
{
    const fft_work *w = args;
    char *in = w->area_bytes ? w->area : w->in;
    const host_plan *p = host_plan_find((host_plan){
        .n = {w->n[0], w->n[1]}, .sign = w->sign, .type = w->type, .in_place = in == w->out});

    work_check(w, device);
    access(w, xpe_emu_range_open);
    for (int i = 0; i < w->batch; i++) {
        size_t at = w->bytes / (size_t)w->batch * (size_t)i;
        if (w->type == CUFFT_C2C)
            fftwf_execute_dft(p->single, (fftwf_complex *)(void *)(in + at),
                              (fftwf_complex *)(void *)(w->out + at));
        else
            fftw_execute_dft(p->both, (fftw_complex *)(void *)(in + at),
                             (fftw_complex *)(void *)(w->out + at));
    }
    if (w->area_bytes)
        xpe_emu_spoil(w->area, w->area_bytes);
    access(w, xpe_emu_range_close);
    xpe_emu.counts.transforms += (uint64_t)w->batch;
}

/* ---------------------------------------------------------------------------------- plans */

cufftResult cufftCreate(cufftHandle *out)
{
    cufftResult rc = CUFFT_ALLOC_FAILED;

    *out = 0;
    if (!xpe_emu_enter("cufftCreate"))
        for (int i = 0; i < PLANS && rc != CUFFT_SUCCESS; i++)
            if (!plans[i].live) {
                plans[i] = (plan){.live = true, .allocates = true, .device = xpe_emu_current()};
                *out = i + 1;
                xpe_emu.live.plans++;
                rc = CUFFT_SUCCESS;
            }
    xpe_emu_leave();
    return rc;
}

/* Work of the plan that is still queued runs first. */
cufftResult cufftDestroy(cufftHandle handle)
{
    bool fail = xpe_emu_enter("cufftDestroy");
    plan *p = plan_of("cufftDestroy", handle);

    xpe_emu_drain("cufftDestroy", p->device);
    p->live = false;
    xpe_emu.live.plans--;
    xpe_emu_leave();
    return fail ? CUFFT_INTERNAL_ERROR : CUFFT_SUCCESS;
}

cufftResult cufftSetAutoAllocation(cufftHandle handle, int on)
{
    bool fail = xpe_emu_enter("cufftSetAutoAllocation");

    plan_of("cufftSetAutoAllocation", handle)->allocates = on;
    xpe_emu_leave();
    return fail ? CUFFT_INTERNAL_ERROR : CUFFT_SUCCESS;
}

static bool power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

cufftResult cufftMakePlanMany(cufftHandle handle, int rank, int *n, int *inembed, int istride,
                              int idist, int *onembed, int ostride, int odist, cufftType type,
                              int batch, size_t *area)
{
    bool fail = xpe_emu_enter("cufftMakePlanMany");
    plan *p = plan_of("cufftMakePlanMany", handle);
    cufftResult rc = CUFFT_SUCCESS;

    (void)istride, (void)idist, (void)ostride,
        (void)odist; /* without inembed and onembed they are not looked at */
    *area = 0;
    if (rank != 2 || inembed || onembed || p->allocates)
        xpe_emu_die("cufftMakePlanMany: only packed two-dimensional plans without automatic "
                    "allocation are emulated");
    if (p->planned)
        rc = CUFFT_INVALID_PLAN;
    else if (type != CUFFT_C2C && type != CUFFT_Z2Z)
        rc = CUFFT_INVALID_TYPE;
    else if (n[0] < 1 || n[1] < 1 || batch < 1)
        rc = CUFFT_INVALID_SIZE;
    else if (fail)
        rc = CUFFT_ALLOC_FAILED;
    else if (xpe_emu_current() != p->device)
        rc = CUFFT_INVALID_DEVICE;
    if (rc == CUFFT_SUCCESS) {
        p->planned = true;
        p->n[0] = n[0];
        p->n[1] = n[1];
        p->type = type;
        p->batch = batch;
        p->area_bytes = batch == 1 && power_of_two(n[0]) && power_of_two(n[1]) ? 0 : plan_bytes(p);
        *area = p->area_bytes;
    }
    xpe_emu_leave();
    return rc;
}

cufftResult cufftSetStream(cufftHandle handle, cudaStream_t stream)
{
    bool fail = xpe_emu_enter("cufftSetStream");
    plan *p = plan_of("cufftSetStream", handle);

    (void)xpe_emu_stream("cufftSetStream", stream);
    if (!fail)
        p->stream = stream;
    xpe_emu_leave();
    return fail ? CUFFT_INTERNAL_ERROR : CUFFT_SUCCESS;
}

cufftResult cufftSetWorkArea(cufftHandle handle, void *area)
{
    bool fail = xpe_emu_enter("cufftSetWorkArea");
    plan *p = plan_of("cufftSetWorkArea", handle);

    if (!fail)
        p->area = area;
    xpe_emu_leave();
    return fail ? CUFFT_INTERNAL_ERROR : CUFFT_SUCCESS;
}

static cufftResult execute(const char *call, cufftHandle handle, void *in, void *out, int sign,
                           cufftType type)
{
    cufftResult rc = CUFFT_EXEC_FAILED;
    bool fail = xpe_emu_enter(call);
    const plan *p = plan_of(call, handle);
    struct CUstream_st *s = xpe_emu_stream(call, p->stream);

    if (!p->planned || p->type != type)
        rc = CUFFT_INVALID_PLAN;
    else if (sign != CUFFT_FORWARD && sign != CUFFT_INVERSE)
        rc = CUFFT_INVALID_VALUE;
    else if (p->device != xpe_emu_current())
        rc = CUFFT_INVALID_DEVICE;
    else if (!fail && !xpe_emu.devices[p->device].lost)
        rc = CUFFT_SUCCESS;
    if (rc == CUFFT_SUCCESS) {
        fft_work w = {.call = call,
                      .n = {p->n[0], p->n[1]},
                      .batch = p->batch,
                      .sign = sign,
                      .type = type,
                      .in = in,
                      .out = out,
                      .area = p->area,
                      .bytes = plan_bytes(p),
                      .area_bytes = p->area_bytes};
        if (s->device != p->device)
            xpe_emu_die("%s: the plan is of device %d, its stream of device %d", call, p->device,
                        s->device);
        work_check(&w, p->device);
        if (w.area_bytes)
            xpe_emu_enqueue(s, call, load_run, &w, sizeof w);
        xpe_emu_enqueue(s, call, transform_run, &w, sizeof w);
    }
    xpe_emu_leave();
    return rc;
}

cufftResult cufftExecC2C(cufftHandle handle, cufftComplex *in, cufftComplex *out, int direction)
{
    return execute("cufftExecC2C", handle, in, out, direction, CUFFT_C2C);
}

cufftResult cufftExecZ2Z(cufftHandle handle, cufftDoubleComplex *in, cufftDoubleComplex *out,
                         int direction)
{
    return execute("cufftExecZ2Z", handle, in, out, direction, CUFFT_Z2Z);
}

void xpe_emu_plans_forget(void)
{
    memset(plans, 0, sizeof plans);
}
