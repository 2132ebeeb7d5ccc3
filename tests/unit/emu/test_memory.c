/* Memory: what it holds at first, how much there is, and every way of misusing it. */
#include "emulated.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

static void fresh_memory_is_nan_and_huge(void **state)
{
    cudaStream_t s = new_stream(0);
    void *v = new_buffer(0, 1000 * 8);
    union {
        float f[2000];
        double d[1000];
        int32_t i[2000];
        int64_t l[1000];
    } back;

    (void)state;
    ok(cudaMemcpyAsync(&back, v, sizeof back, cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 2000; i++) {
        assert_true(isnan(back.f[i]));
        assert_true(back.i[i] > 2000000000);
    }
    for (int i = 0; i < 1000; i++) {
        assert_true(isnan(back.d[i]));
        assert_true(back.l[i] > INT64_MAX / 2);
    }
    ok(cudaFree(v));
    ok(cudaStreamDestroy(s));
}

static void memory_of_a_device_runs_out(void **state)
{
    void *a, *b;
    size_t available, total;

    (void)state;
    xpe_emu_device_bytes(1, 1000 * 256);
    ok(cudaSetDevice(1));
    ok(cudaMalloc(&a, 999 * 256));
    ok(cudaMemGetInfo(&available, &total));
    assert_int_equal(available, 256);
    assert_int_equal(total, 1000 * 256);
    assert_int_equal(cudaMalloc(&b, 257), cudaErrorMemoryAllocation);
    assert_null(b);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    ok(cudaMalloc(&b, 1)); /* rounded up */
    assert_int_equal(xpe_emu_count().bytes_peak[1], 1000 * 256);
    assert_int_equal(xpe_emu_live().device_bytes, 999 * 256 + 1);
    ok(cudaFree(b));
    ok(cudaFree(a));
    ok(cudaMemGetInfo(&available, &total));
    assert_int_equal(available, total);
    assert_int_equal(cudaMalloc(&a, SIZE_MAX), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
}

static void nothing_is_no_memory(void **state)
{
    void *a = &a;

    (void)state;
    ok(cudaMalloc(&a, 0));
    assert_null(a);
    ok(cudaFree(NULL));
    ok(cudaFreeHost(NULL));
}

static void addresses_are_aligned_and_not_given_out_again(void **state)
{
    void *old[50];

    (void)state;
    for (int i = 0; i < 50; i++) {
        void *v = new_buffer(0, (size_t)i + 1);
        assert_int_equal((uintptr_t)v % 256, 0);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(v, old[j]);
        old[i] = v;
        ok(cudaFree(v));
    }
}

static void freeing_runs_what_is_queued_on_the_device(void **state)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, sizeof *v);

    (void)state;
    affine(v, 1, 1, 1, s);
    ok(cudaFree(v));
    assert_int_equal(xpe_emu_count().kernels, 1);
    ok(cudaStreamDestroy(s));
}

static void memsets_keep_to_their_bytes(void **state)
{
    size_t bytes = 3 * MIB;
    cudaStream_t s = new_stream(0);
    unsigned char *v = new_buffer(0, bytes), *back = calloc(1, bytes);

    (void)state;
    ok(cudaMemsetAsync(v, 7, bytes, s));
    ok(cudaMemsetAsync(v + 1001, 0, bytes - 2002, s)); /* whole pages and both ends */
    ok(cudaMemsetAsync(v + 5000, 9, 1, s));
    ok(cudaMemcpyAsync(back, v, bytes, cudaMemcpyDeviceToHost, s));
    for (size_t i = 0; i < bytes; i++)
        if (back[i] != (i < 1001 || i >= bytes - 1001 ? 7 : i == 5000 ? 9 : 0))
            fail_msg("byte %zu is %d", i, back[i]);
    ok(cudaFree(v));
    ok(cudaStreamDestroy(s));
    free(back);
}

static void devices_without_a_gpu_say_so(void **state)
{
    int count = 7;

    (void)state;
    xpe_emu_begin(0, MIB, 1);
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    assert_int_equal(count, 0);
    assert_string_equal(cudaGetErrorName(cudaGetLastError()), "cudaErrorNoDevice");
    assert_string_equal(cudaGetErrorString((cudaError_t)12345), "unrecognized error code");
}

static void devices_have_a_name_and_a_number(void **state)
{
    struct cudaDeviceProp prop;

    (void)state;
    ok(cudaGetDeviceProperties(&prop, 2));
    assert_string_equal(prop.name, "cuda (emulated)");
    assert_int_equal(prop.totalGlobalMem, 4 * MIB);
    assert_int_equal(cudaGetDeviceProperties(&prop, 3), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
}

static void peer_access_is_enabled_once_and_where_there_is_a_way(void **state)
{
    int can = 0;

    (void)state;
    xpe_emu_peer(0, 2, false);
    ok(cudaSetDevice(0));
    ok(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_true(can);
    ok(cudaDeviceCanAccessPeer(&can, 0, 2));
    assert_false(can);
    ok(cudaDeviceEnablePeerAccess(1, 0));
    assert_int_equal(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    assert_int_equal(cudaGetLastError(), cudaErrorPeerAccessAlreadyEnabled);
    assert_int_equal(cudaDeviceEnablePeerAccess(2, 0), cudaErrorPeerAccessUnsupported);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
}

static cudaError_t rank_of(int *rank, int device, int peer)
{
    return cudaDeviceGetP2PAttribute(rank, cudaDevP2PAttrPerformanceRank, device, peer);
}

static void a_link_between_two_devices_has_a_rank(void **state)
{
    int rank = 7;

    (void)state;
    ok(rank_of(&rank, 0, 1));
    assert_int_equal(rank, 0);
    xpe_emu_rank(0, 1, 2);
    ok(rank_of(&rank, 0, 1));
    assert_int_equal(rank, 2);
    ok(rank_of(&rank, 1, 0));
    assert_int_equal(rank, 0);
    xpe_emu_peer(1, 0, false);
    ok(rank_of(&rank, 1, 0)); /* says nothing of whether there is a way */
    assert_int_equal(rank, 0);
    assert_int_equal(rank_of(&rank, 1, 1), cudaErrorInvalidDevice);
    assert_int_equal(rank_of(&rank, 1, 3), cudaErrorInvalidDevice);
    assert_int_equal(rank_of(&rank, 3, 1), cudaErrorInvalidDevice);
    assert_int_equal(cudaDeviceGetP2PAttribute(&rank, (enum cudaDeviceP2PAttr)2, 0, 1),
                     cudaErrorInvalidValue);
}

static void a_kernel_reaches_a_peer_after_it_was_enabled(void **state)
{
    cudaStream_t s = new_stream(0), other = new_stream(1);
    double *v = new_buffer(1, sizeof *v), back = 0;

    (void)state;
    ok(cudaMemsetAsync(v, 0, sizeof *v, other));
    finish(1, other);
    ok(cudaSetDevice(0));
    ok(cudaDeviceEnablePeerAccess(1, 0));
    affine(v, 1, 1, 3, s);
    finish(0, s);
    ok(cudaMemcpyAsync(&back, v, sizeof back, cudaMemcpyDeviceToHost, other));
    assert_true(back == 3);
    ok(cudaFree(v));
    ok(cudaStreamDestroy(s));
    ok(cudaStreamDestroy(other));
}

/* --------------------------------------------------------------- misuse ends the program */

static void freed_twice(void)
{
    void *v = new_buffer(0, 64);

    ok(cudaFree(v));
    (void)cudaFree(v);
}

static void pinned_freed_twice(void)
{
    void *v = new_pinned(64);

    ok(cudaFreeHost(v));
    (void)cudaFreeHost(v);
}

static void freed_from_the_middle(void)
{
    char *v = new_buffer(0, 64);

    (void)cudaFree(v + 1);
}

static void freed_by_the_wrong_call(void)
{
    (void)cudaFree(new_pinned(64));
}

static void freed_from_the_heap(void)
{
    (void)cudaFree(malloc(64)); /* NOLINT: what this test is about */
}

static void wrong_frees_end_the_program(void **state)
{
    (void)state;
    assert_dies(freed_twice, "cudaFree: memory of 64 bytes of device 0 has been freed before");
    assert_dies(pinned_freed_twice,
                "cudaFreeHost: pinned memory of 64 bytes has been freed before");
    assert_dies(freed_from_the_middle, "which cannot be freed so");
    assert_dies(freed_by_the_wrong_call,
                "lies in pinned memory of 64 bytes, which cannot be freed so");
    assert_dies(freed_from_the_heap, "was not given out");
}

static void kernel_on_freed_memory(void)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, sizeof *v);

    ok(cudaFree(v));
    affine(v, 1, 1, 1, s);
}

static void memset_on_freed_memory(void)
{
    cudaStream_t s = new_stream(0);
    void *v = new_buffer(0, 64);

    ok(cudaFree(v));
    (void)cudaMemsetAsync(v, 0, 64, s);
}

static void queued_work_of_another_device_on_freed_memory(void)
{
    cudaStream_t s = new_stream(1);
    void *from = new_buffer(0, 64), *to = new_buffer(1, 64);

    ok(cudaMemcpyPeerAsync(to, 1, from, 0, 64, s));
    ok(cudaFree(from)); /* waits for device 0 only */
    finish(1, s);
}

static void pinned_memory_freed_under_a_copy(void)
{
    cudaStream_t s = new_stream(0);
    void *v = new_buffer(0, 64), *from = new_pinned(64);

    ok(cudaMemcpyAsync(v, from, 64, cudaMemcpyHostToDevice, s));
    ok(cudaFreeHost(from));
    finish(0, s);
}

static void use_after_free_ends_the_program(void **state)
{
    (void)state;
    assert_dies(
        kernel_on_freed_memory,
        "kernel k_affine on device 0: its arguments, at byte 0, point at memory of device 0 that "
        "has been freed");
    assert_dies(
        memset_on_freed_memory,
        "cudaMemsetAsync on device 0: the destination lies in memory of 64 bytes of device 0 that "
        "has been freed");
    assert_dies(queued_work_of_another_device_on_freed_memory,
                "the source lies in memory of 64 bytes of device 0 that has been");
    assert_dies(pinned_memory_freed_under_a_copy,
                "the source lies in pinned memory of 64 bytes that has been freed");
}

static void kernel_on_another_device(void)
{
    double *v = new_buffer(1, sizeof *v);
    cudaStream_t s = new_stream(0);

    affine(v, 1, 1, 1, s);
}

static void memset_on_another_device(void)
{
    void *v = new_buffer(1, 64);
    cudaStream_t s = new_stream(0);

    (void)cudaMemsetAsync(v, 0, 64, s);
}

static void copy_to_another_device(void)
{
    void *v = new_buffer(1, 64), *from = new_pinned(64);
    cudaStream_t s = new_stream(0);

    (void)cudaMemcpyAsync(v, from, 64, cudaMemcpyHostToDevice, s);
}

static void copy_with_the_sides_swapped(void)
{
    void *v = new_buffer(0, 64), *from = new_pinned(64);
    cudaStream_t s = new_stream(0);

    (void)cudaMemcpyAsync(from, v, 64, cudaMemcpyHostToDevice, s);
}

static void memory_of_the_wrong_device_ends_the_program(void **state)
{
    (void)state;
    assert_dies(kernel_on_another_device, "point at memory of device 1, to which it has no access");
    assert_dies(
        memset_on_another_device,
        "cudaMemsetAsync on device 0: the destination lies in memory of 64 bytes of device 1");
    assert_dies(
        copy_to_another_device,
        "cudaMemcpyAsync on device 0: the destination lies in memory of 64 bytes of device 1");
    assert_dies(copy_with_the_sides_swapped, "the destination lies in pinned memory");
}

static void kernel_on_the_heap(void)
{
    cudaStream_t s = new_stream(0);

    for (int i = 0; i < 64; i++) /* every second place in memory is looked at */
        affine(calloc(4 * MIB, 16), 1, 1, 1, s);
}

static void pageable_memory_in_a_kernel_ends_the_program(void **state)
{
    (void)state;
    assert_dies(kernel_on_the_heap, "point at memory of the host that is not pinned");
}

static void copy_beyond_the_end(void)
{
    cudaStream_t s = new_stream(0);
    char *v = new_buffer(0, 64), *from = new_pinned(128);

    (void)cudaMemcpyAsync(v + 8, from, 57, cudaMemcpyHostToDevice, s);
}

static void copy_from_beyond_the_end(void)
{
    cudaStream_t s = new_stream(0);
    char *v = new_buffer(0, 128), *from = new_pinned(64);

    (void)cudaMemcpyAsync(v, from, 65, cudaMemcpyHostToDevice, s);
}

static void kernel_behind_the_end(void)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, 8 * sizeof *v);

    affine(v, 9, 0, 1, s);
    ok(cudaFree(v));
}

static void kernel_before_the_begin(void)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, 8 * sizeof *v), *other = new_buffer(0, 4096 - 8);

    (void)v;
    affine(other - 1, 1, 0, 1, s);
    finish(0, s);
    ok(cudaFree(other));
}

static void kernel_far_behind_the_end(void)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, 8 * sizeof *v);

    affine(v, 33, 0, 1, s); /* 256 bytes on is a page that does not exist */
    ok(cudaFree(v));
}

static void bounds_end_the_program(void **state)
{
    (void)state;
    assert_dies(
        copy_beyond_the_end,
        "the destination of 57 bytes ends beyond memory of 64 bytes of device 0, at byte 8 of it");
    assert_dies(copy_from_beyond_the_end,
                "the source of 65 bytes ends beyond pinned memory of 64 bytes");
#ifdef WITH_ASAN
    assert_dies(kernel_behind_the_end, "use-after-poison");
    assert_dies(kernel_before_the_begin, "");
#else
    assert_dies(kernel_behind_the_end,
                "something was written behind memory of 64 bytes of device 0");
    assert_dies(kernel_before_the_begin, "");
#endif
    assert_dies(kernel_far_behind_the_end, "");
}

#ifdef WITH_ASAN
static void host_reads_device_memory(void)
{
    volatile double *v = new_buffer(0, sizeof *v);

    (void)*v;
}

static void host_reads_device_memory_after_a_kernel(void)
{
    cudaStream_t s = new_stream(0);
    volatile double *v = new_buffer(0, sizeof *v);

    affine((double *)(uintptr_t)v, 1, 1, 1, s);
    finish(0, s);
    (void)*v;
}

static void host_reads_what_has_not_arrived(void)
{
    cudaStream_t s = new_stream(0);
    void *v = new_buffer(0, 64);
    volatile char *to = new_pinned(64);

    ok(cudaMemcpyAsync((void *)(uintptr_t)to, v, 64, cudaMemcpyDeviceToHost, s));
    (void)*to;
}

typedef struct k_hidden_args {
    double **table; /* in memory of the device */
} k_hidden_args;

XPE_KERNEL(k_hidden, k_hidden_args)
{
    XPE_THREADS(t)
    {
        if (t == 0)
            p.table[0][0] = 1;
    }
}

static void kernel_finds_another_device_by_itself(void)
{
    double *far = new_buffer(1, sizeof *far);
    cudaStream_t s = new_stream(0);
    k_hidden_args args = {new_buffer(0, sizeof *args.table)};

    ok(cudaMemcpyAsync(args.table, &far, sizeof far, cudaMemcpyHostToDevice, s));
    XPE_LAUNCH(k_hidden, 1, s, &args);
    finish(0, s);
}
#endif

static void the_address_sanitizer_sees_every_access(void **state)
{
    (void)state;
#ifdef WITH_ASAN
    assert_dies(host_reads_device_memory, "use-after-poison");
    assert_dies(host_reads_device_memory_after_a_kernel, "use-after-poison");
    assert_dies(host_reads_what_has_not_arrived, "use-after-poison");
    assert_dies(kernel_finds_another_device_by_itself, "use-after-poison");
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fact(fresh_memory_is_nan_and_huge),
        fact(memory_of_a_device_runs_out),
        fact(nothing_is_no_memory),
        fact(addresses_are_aligned_and_not_given_out_again),
        fact(freeing_runs_what_is_queued_on_the_device),
        fact(memsets_keep_to_their_bytes),
        fact(devices_without_a_gpu_say_so),
        fact(devices_have_a_name_and_a_number),
        fact(peer_access_is_enabled_once_and_where_there_is_a_way),
        fact(a_link_between_two_devices_has_a_rank),
        fact(a_kernel_reaches_a_peer_after_it_was_enabled),
        fact(wrong_frees_end_the_program),
        fact(use_after_free_ends_the_program),
        fact(memory_of_the_wrong_device_ends_the_program),
        fact(pageable_memory_in_a_kernel_ends_the_program),
        fact(bounds_end_the_program),
        fact(the_address_sanitizer_sees_every_access),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
