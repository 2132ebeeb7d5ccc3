/* See fft.h.  FFTW's planner is not thread-safe: one lock, taken when a frame side is met for the
 * first time.  Executing plans needs none. */
#include "fft.h"

#include "backend/util.h"

#include <fftw3.h>
#include <pthread.h>
#include <string.h>

struct xpe_fft {
    int64_t n;
    fftwf_plan rows[2], columns[2]; /* forward, backward */
    struct xpe_fft *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static xpe_fft *cache;

int64_t xpe_fft_groups(int64_t n)
{
    return (n + XPE_GROUP - 1) / XPE_GROUP;
}

/* A group more than needed, so that rows of a power of two do not share cache sets. */
int64_t xpe_fft_stride(int64_t n)
{
    return (xpe_fft_groups(n) + 1) * XPE_GROUP;
}

static xpe_status make(xpe_fft *fft, xpe_error *err)
{
    static const int signs[2] = {FFTW_FORWARD, FFTW_BACKWARD};
    int n = (int)fft->n, stride = (int)xpe_fft_stride(fft->n);
    fftwf_complex *space = fftwf_alloc_complex((size_t)stride * XPE_GROUP > (size_t)n * XPE_GROUP
                                                   ? (size_t)stride * XPE_GROUP
                                                   : (size_t)n * XPE_GROUP);
    xpe_status st = XPE_OK;

    if (!space)
        return xpe_fail(err, XPE_NO_MEMORY, "",
                        "host memory is exhausted while transforms are planned");
    fftwf_forget_wisdom();
    for (int i = 0; i < 2; i++) {
        fft->rows[i] = fftwf_plan_many_dft(1, &n, XPE_GROUP, space, NULL, 1, stride, space, NULL, 1,
                                           stride, signs[i], FFTW_ESTIMATE);
        fft->columns[i] = fftwf_plan_many_dft(1, &n, XPE_GROUP, space, NULL, XPE_GROUP, 1, space,
                                              NULL, XPE_GROUP, 1, signs[i], FFTW_ESTIMATE);
        if (!fft->rows[i] || !fft->columns[i])
            st = xpe_fail(err, XPE_INTERNAL, "", "no transform of %d points could be planned", n);
    }
    fftwf_free(space);
    return st;
}

static void drop(xpe_fft *fft)
{
    if (!fft)
        return;
    for (int i = 0; i < 2; i++) {
        if (fft->rows[i])
            fftwf_destroy_plan(fft->rows[i]);
        if (fft->columns[i])
            fftwf_destroy_plan(fft->columns[i]);
    }
    free(fft);
}

xpe_status xpe_fft_get(const xpe_fft **out, int64_t n, xpe_error *err)
{
    xpe_fft *fft;
    xpe_status st = XPE_OK;

    *out = NULL;
    pthread_mutex_lock(&lock);
    for (fft = cache; fft; fft = fft->next)
        if (fft->n == n) {
            *out = fft;
            fft = NULL;
            goto done;
        }
    XPE_TRY(xpe_new(&fft, 1, sizeof *fft, err));
    fft->n = n;
    XPE_TRY(make(fft, err));
    fft->next = cache;
    *out = cache = fft;
    fft = NULL;
done:
    drop(fft);
    pthread_mutex_unlock(&lock);
    return st;
}

static void execute(fftwf_plan plan, xpe_c32 *data)
{
    fftwf_complex *p = (fftwf_complex *)(void *)data;
    fftwf_execute_dft(plan, p, p);
}

void xpe_fft_rows(const xpe_fft *fft, xpe_c32 *rows, int sign)
{
    execute(fft->rows[sign > 0], rows);
}

void xpe_fft_columns(const xpe_fft *fft, xpe_c32 *group, int sign)
{
    execute(fft->columns[sign > 0], group);
}

xpe_status xpe_fft_host(xpe_c64 *field, int64_t n, int sign, xpe_error *err)
{
    fftw_complex *p = (fftw_complex *)(void *)field;
    fftw_plan plan;

    pthread_mutex_lock(&lock);
    fftw_forget_wisdom();
    plan = fftw_plan_dft_2d((int)n, (int)n, p, p, sign, FFTW_ESTIMATE | FFTW_UNALIGNED);
    pthread_mutex_unlock(&lock);
    if (!plan)
        return xpe_fail(err, XPE_INTERNAL, "",
                        "no transform of %lld x %lld points could be planned", (long long)n,
                        (long long)n);
    fftw_execute(plan);
    pthread_mutex_lock(&lock);
    fftw_destroy_plan(plan);
    pthread_mutex_unlock(&lock);
    return XPE_OK;
}
