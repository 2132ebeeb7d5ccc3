/* Transforms of the frames of a chunk: cuFFT's, and those of our own (k_fft.cu).
 *
 * cuFFT plans are kept for the life of the process, one for each (device, n, frames, precision).  A
 * plan always works on the same number of frames, whatever there is in them, because cuFFT may
 * choose its kernels by that number. */
#ifndef XPE_CUDA_FFT_H
#define XPE_CUDA_FFT_H

#include "team.h"

/* Whether frames of this side go through the transforms of our own: a rule, never a measurement at
 * run time. */
bool xpe_cuda_own(int64_t n);
/* Work memory that cuFFT asks for on this device. */
XPE_MUST_CHECK xpe_status xpe_cuda_fft_area(size_t *out, int id, int64_t n, xpe_error *err);
/* Sends the table that transforms of our own need. */
bool xpe_cuda_fft_send_twiddle(xpe_team *team, int device);
/* Enqueues cuFFT's unnormalised transforms of `modes` modes of a field of the device, in place. */
bool xpe_cuda_fft_run(xpe_team *team, int device, xpe_c32 *field, int modes, int sign);
/* Whole field in double precision, on the device that xpe_cuda_fft_host_on named to this thread;
 * see backend.h, transform. */
void xpe_cuda_fft_host_on(int id);
XPE_MUST_CHECK xpe_status xpe_cuda_fft_host(xpe_c64 *field, int64_t n, int sign, xpe_error *err);
void xpe_cuda_fft_forget(void);

#endif
