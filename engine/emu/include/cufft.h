/* The calls of cuFFT that engine/cuda uses, served by FFTW (engine/emu/fft.c).  See cuda_runtime.h.
 */
#ifndef XPE_EMU_CUFFT_H
#define XPE_EMU_CUFFT_H

#include "cuda_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cufftResult_t {
    CUFFT_SUCCESS = 0,
    CUFFT_INVALID_PLAN = 1,
    CUFFT_ALLOC_FAILED = 2,
    CUFFT_INVALID_TYPE = 3,
    CUFFT_INVALID_VALUE = 4,
    CUFFT_INTERNAL_ERROR = 5,
    CUFFT_EXEC_FAILED = 6,
    CUFFT_SETUP_FAILED = 7,
    CUFFT_INVALID_SIZE = 8,
    CUFFT_INVALID_DEVICE = 11,
    CUFFT_NO_WORKSPACE = 13
} cufftResult;

typedef enum cufftType_t { CUFFT_C2C = 0x29, CUFFT_Z2Z = 0x69 } cufftType;

#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1

typedef int cufftHandle;

/* As CUDA's float2 and double2: aligned to their size. */
typedef struct __attribute__((aligned(8))) cufftComplex {
    float x, y;
} cufftComplex;
typedef struct __attribute__((aligned(16))) cufftDoubleComplex {
    double x, y;
} cufftDoubleComplex;

cufftResult cufftCreate(cufftHandle *out);
cufftResult cufftDestroy(cufftHandle plan);
cufftResult cufftSetAutoAllocation(cufftHandle plan, int on);
cufftResult cufftMakePlanMany(cufftHandle plan, int rank, int *n, int *inembed, int istride,
                              int idist, int *onembed, int ostride, int odist, cufftType type,
                              int batch, size_t *area);
cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream);
cufftResult cufftSetWorkArea(cufftHandle plan, void *area);
cufftResult cufftExecC2C(cufftHandle plan, cufftComplex *in, cufftComplex *out, int direction);
cufftResult cufftExecZ2Z(cufftHandle plan, cufftDoubleComplex *in, cufftDoubleComplex *out,
                         int direction);

#ifdef __cplusplus
}
#endif
#endif
