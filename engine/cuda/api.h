/* The only file that includes CUDA, cuFFT and NCCL headers.
 *
 * engine/cuda is compiled twice from the same text: with nvcc and the toolkit (target xpe_cuda),
 * and as C17 with engine/emu/include in front (target xpe_cuda_emu), where the same names are
 * served by the host.  Only the calls listed here are used; using another one means adding it to
 * this list and, with a test, to engine/emu.
 *
 * Runtime
 *   devices    cudaGetDeviceCount cudaSetDevice cudaGetDeviceProperties (name, major, minor)
 * cudaMemGetInfo cudaDeviceCanAccessPeer cudaDeviceEnablePeerAccess cudaDeviceGetP2PAttribute
 * (cudaDevP2PAttrPerformanceRank) memory     cudaMalloc cudaFree
 * cudaMallocHost cudaFreeHost movement   cudaMemcpyAsync (host to device, device to host, within a
 * device; host side always pinned) cudaMemcpyPeerAsync cudaMemsetAsync streams
 * cudaStreamCreateWithFlags (cudaStreamNonBlocking) cudaStreamDestroy cudaStreamWaitEvent events
 * cudaEventCreateWithFlags (cudaEventDisableTiming) cudaEventDestroy cudaEventRecord cudaEventQuery
 *   errors     cudaGetLastError cudaGetErrorName cudaGetErrorString
 *   constants  CUDART_VERSION cudaSuccess cudaErrorUnknown cudaErrorNotReady
 * cudaErrorMemoryAllocation cudaErrorNoDevice cudaErrorInsufficientDriver
 * cudaErrorPeerAccessAlreadyEnabled The host never blocks in a call of CUDA: it looks at events
 * (device.c says why).
 *
 * cuFFT
 *   cufftCreate cufftSetAutoAllocation cufftMakePlanMany (2-D, packed, CUFFT_C2C and CUFFT_Z2Z)
 * cufftSetStream cufftSetWorkArea cufftExecC2C cufftExecZ2Z cufftDestroy; CUFFT_SUCCESS
 * CUFFT_ALLOC_FAILED CUFFT_INVALID_SIZE CUFFT_EXEC_FAILED CUFFT_INTERNAL_ERROR CUFFT_FORWARD
 * CUFFT_INVERSE
 *
 * NCCL, between distinct devices of one process, all ranks driven by one thread
 *   ncclCommInitAll ncclCommDestroy ncclCommAbort ncclCommGetAsyncError ncclGroupStart ncclGroupEnd
 *   ncclSend ncclRecv (ncclInt8) ncclGetErrorString; ncclSuccess ncclInProgress
 *
 * Kernels: launch.h lists the words that the emulation provides in xpe_emu_launch.h. */
#ifndef XPE_CUDA_API_H
#define XPE_CUDA_API_H

#include <cuda_runtime.h>
#include <cufft.h>
#ifdef XPE_WITH_NCCL
#include <nccl.h>
#endif

#endif
