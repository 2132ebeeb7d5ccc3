/* Calls that are told to fail. */
#define XPE_WITH_NCCL
#include "cuda/api.h"
#include "emulated.h"

static void the_nth_call_of_a_name_fails_once(void **state)
{
    void *v[4];

    (void)state;
    ok(cudaSetDevice(0));
    xpe_emu_fail("cudaMalloc", 3, false);
    ok(cudaMalloc(&v[0], 8));
    ok(cudaMalloc(&v[1], 8));
    assert_null(xpe_emu_failed());
    assert_int_equal(cudaMalloc(&v[2], 8), cudaErrorMemoryAllocation);
    assert_null(v[2]);
    assert_string_equal(xpe_emu_failed(), "cudaMalloc");
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    ok(cudaMalloc(&v[3], 8));
    assert_int_equal(xpe_emu_calls("cudaMalloc"), 4);
    ok(cudaFree(v[0]));
    ok(cudaFree(v[1]));
    ok(cudaFree(v[3]));
}

static void the_nth_call_of_any_name_fails_and_all_behind_it(void **state)
{
    int count;
    void *v;

    (void)state;
    xpe_emu_fail(NULL, 2, true);
    ok(cudaSetDevice(0));
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorUnknown);
    assert_int_equal(cudaMallocHost(&v, 8), cudaErrorMemoryAllocation);
    assert_string_equal(xpe_emu_failed(), "cudaGetDeviceCount");
    xpe_emu_fail_never();
    ok(cudaMallocHost(&v, 8));
    ok(cudaFreeHost(v));
}

static void a_kernel_that_cannot_be_launched_is_the_last_error(void **state)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, sizeof *v);

    (void)state;
    xpe_emu_fail("k_affine", 1, false);
    affine(v, 1, 1, 1, s);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(xpe_emu_live().queued, 0);
    ok(cudaFree(v));
    ok(cudaStreamDestroy(s));
}

static void what_gives_back_gives_back_even_so(void **state)
{
    static const int devices[] = {0, 1};
    cudaStream_t s = new_stream(0);
    cudaEvent_t event = new_event(0);
    void *v = new_buffer(0, 8), *p = new_pinned(8);
    ncclComm_t comm[2];
    cufftHandle plan;

    (void)state;
    ok(ncclCommInitAll(comm, 2, devices));
    ok(cufftCreate(&plan));
    xpe_emu_fail(NULL, 1, true);
    assert_int_not_equal(cudaFree(v), cudaSuccess);
    assert_int_not_equal(cudaFreeHost(p), cudaSuccess);
    assert_int_not_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_not_equal(cudaStreamDestroy(s), cudaSuccess);
    assert_int_not_equal(cufftDestroy(plan), CUFFT_SUCCESS);
    assert_int_not_equal(ncclCommDestroy(comm[0]), ncclSuccess);
    assert_int_not_equal(ncclCommAbort(comm[1]), ncclSuccess);
    assert_true(xpe_emu_empty());
}

static void every_call_that_can_fail_does(void **state)
{
    static const int devices[] = {0, 1};
    cudaStream_t s = new_stream(0), none;
    cudaEvent_t event = new_event(0), no_event;
    double *v = new_buffer(0, sizeof *v), *p = new_pinned(8);
    ncclComm_t comm[2], no_comm[2];
    cufftHandle plan, no_plan;
    ncclResult_t error;
    struct cudaDeviceProp prop;
    size_t a, b;
    int n[2] = {2, 2}, can, rank;

    (void)state;
    ok(ncclCommInitAll(comm, 2, devices));
    ok(cufftCreate(&plan));
    xpe_emu_fail(NULL, 1, true);
    assert_int_not_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_not_equal(cudaGetDeviceProperties(&prop, 0), cudaSuccess);
    assert_int_not_equal(cudaMemGetInfo(&a, &b), cudaSuccess);
    assert_int_not_equal(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
    assert_int_not_equal(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
    assert_int_not_equal(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, 0, 1),
                         cudaSuccess);
    assert_int_not_equal(cudaMemcpyAsync(v, p, 8, cudaMemcpyHostToDevice, s), cudaSuccess);
    assert_int_not_equal(cudaMemcpyPeerAsync(v, 0, v, 0, 8, s), cudaSuccess);
    assert_int_not_equal(cudaMemsetAsync(v, 0, 8, s), cudaSuccess);
    assert_int_not_equal(cudaStreamCreateWithFlags(&none, cudaStreamNonBlocking), cudaSuccess);
    assert_int_not_equal(cudaStreamWaitEvent(s, event, 0), cudaSuccess);
    assert_int_not_equal(cudaEventCreateWithFlags(&no_event, cudaEventDisableTiming), cudaSuccess);
    assert_int_not_equal(cudaEventRecord(event, s), cudaSuccess);
    assert_int_not_equal(cudaEventQuery(event), cudaSuccess);
    assert_int_not_equal(cufftCreate(&no_plan), CUFFT_SUCCESS);
    assert_int_not_equal(cufftSetAutoAllocation(plan, 0), CUFFT_SUCCESS);
    assert_int_equal(cufftMakePlanMany(plan, 2, n, NULL, 1, 4, NULL, 1, 4, CUFFT_C2C, 1, &a),
                     CUFFT_ALLOC_FAILED);
    assert_int_not_equal(cufftSetStream(plan, s), CUFFT_SUCCESS);
    assert_int_not_equal(cufftSetWorkArea(plan, v), CUFFT_SUCCESS);
    assert_int_not_equal(ncclCommInitAll(no_comm, 2, devices), ncclSuccess);
    assert_int_not_equal(ncclGroupStart(), ncclSuccess);
    assert_int_not_equal(ncclSend(v, 8, ncclInt8, 1, comm[0], s), ncclSuccess);
    assert_int_not_equal(ncclRecv(v, 8, ncclInt8, 1, comm[0], s), ncclSuccess);
    assert_int_not_equal(ncclCommGetAsyncError(comm[0], &error), ncclSuccess);
    xpe_emu_fail_never();
    assert_int_equal(xpe_emu_live().queued, 0);
    assert_string_equal(ncclGetErrorString(ncclInternalError), "internal error");
    ok(ncclCommDestroy(comm[0]));
    ok(ncclCommDestroy(comm[1]));
    ok(cufftDestroy(plan));
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(s));
    ok(cudaFree(v));
    ok(cudaFreeHost(p));
}

static void begin_with_something_alive(void)
{
    (void)new_stream(1);
    xpe_emu_begin(1, MIB, 1);
}

static void what_is_left_is_named(void **state)
{
    (void)state;
    assert_dies(begin_with_something_alive, "1 streams");
    assert_dies(begin_with_something_alive,
                "xpe_emu_begin while objects are alive (XPE_EMU_SEED=1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fact(the_nth_call_of_a_name_fails_once),
        fact(the_nth_call_of_any_name_fails_and_all_behind_it),
        fact(a_kernel_that_cannot_be_launched_is_the_last_error),
        fact(what_gives_back_gives_back_even_so),
        fact(every_call_that_can_fail_does),
        fact(what_is_left_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
