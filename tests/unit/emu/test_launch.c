/* Kernels: every thread once, any order, phases that need their barriers. */
#include "emulated.h"

typedef struct k_count_args {
    int64_t *total;
    int32_t *most;
    int32_t *visits; /* [work][XPE_BLOCK] */
    int64_t work;
} k_count_args;

XPE_KERNEL(k_count, k_count_args)
{
    XPE_BLOCK_LOOP(b, p.work)
    {
        XPE_THREADS(t)
        {
            p.visits[b * XPE_BLOCK + t] += 1;
            XPE_ADD64(p.total, (int64_t)b * XPE_BLOCK + t);
            XPE_MAX32(p.most, (int32_t)(b * XPE_BLOCK + t));
        }
    }
}

static void every_thread_of_every_block_runs_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        int64_t work = 1 + (int64_t)(seed * 7 % 100), count = work * XPE_BLOCK, total = 0;
        k_count_args args;
        cudaStream_t s;
        int32_t *back, most;
        xpe_emu_begin(1, 4 * MIB, seed);
        s = new_stream(0);
        back = calloc((size_t)count, sizeof *back);
        args = (k_count_args){new_buffer(0, 8), new_buffer(0, 4), new_buffer(0, (size_t)count * 4),
                              work};
        ok(cudaMemsetAsync(args.total, 0, 8, s));
        ok(cudaMemsetAsync(args.most, 0, 4, s));
        ok(cudaMemsetAsync(args.visits, 0, (size_t)count * 4, s));
        XPE_LAUNCH(k_count, work, s, &args);
        ok(cudaMemcpyAsync(back, args.visits, (size_t)count * 4, cudaMemcpyDeviceToHost, s));
        ok(cudaMemcpyAsync(&total, args.total, 8, cudaMemcpyDeviceToHost, s));
        ok(cudaMemcpyAsync(&most, args.most, 4, cudaMemcpyDeviceToHost, s));
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(back[i], 1);
        assert_int_equal(total, count * (count - 1) / 2);
        assert_int_equal(most, count - 1);
        ok(cudaFree(args.total));
        ok(cudaFree(args.most));
        ok(cudaFree(args.visits));
        ok(cudaStreamDestroy(s));
        free(back);
    }
}

static void nothing_to_do_is_not_launched(void **state)
{
    cudaStream_t s = new_stream(0);

    (void)state;
    affine(NULL, 0, 1, 1, s);
    assert_int_equal(xpe_emu_live().queued, 0);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    ok(cudaStreamDestroy(s));
}

static void arguments_are_copied_when_the_kernel_is_enqueued(void **state)
{
    cudaStream_t s = new_stream(0);
    double back = 0;
    k_affine_args args = {new_buffer(0, sizeof back), 1, 0, 5};

    (void)state;
    ok(cudaMemsetAsync(args.v, 0, sizeof back, s));
    XPE_LAUNCH(k_affine, 1, s, &args);
    args.add = 6;
    ok(cudaMemcpyAsync(&back, args.v, sizeof back, cudaMemcpyDeviceToHost, s));
    assert_true(back == 5);
    assert_int_equal(xpe_emu_calls("k_affine"), 1);
    ok(cudaFree(args.v));
    ok(cudaStreamDestroy(s));
}

typedef struct k_turn_args {
    int32_t *v; /* [work][XPE_BLOCK] */
    int64_t work;
    int barrier;
} k_turn_args;

/* Turns each block's values round, through shared memory. */
XPE_KERNEL(k_turn, k_turn_args)
{
    XPE_SHARED(int32_t, copy, XPE_BLOCK);

    XPE_BLOCK_LOOP(b, p.work)
    {
        if (p.barrier) {
            XPE_THREADS(t) copy[t] = p.v[b * XPE_BLOCK + t];
            XPE_THREADS(t) p.v[b * XPE_BLOCK + t] = copy[XPE_BLOCK - 1 - t];
        } else {
            XPE_THREADS(t)
            {
                copy[t] = p.v[b * XPE_BLOCK + t];
                p.v[b * XPE_BLOCK + t] = copy[XPE_BLOCK - 1 - t];
            }
        }
    }
}

static bool turns(uint64_t seed, bool barrier)
{
    int32_t values[3 * XPE_BLOCK];
    k_turn_args args;
    cudaStream_t s;
    bool right = true;

    xpe_emu_begin(1, MIB, seed);
    s = new_stream(0);
    args = (k_turn_args){new_buffer(0, sizeof values), 3, barrier};
    for (int i = 0; i < 3 * XPE_BLOCK; i++)
        values[i] = i;
    ok(cudaMemcpyAsync(args.v, values, sizeof values, cudaMemcpyHostToDevice, s));
    XPE_LAUNCH(k_turn, 3, s, &args);
    ok(cudaMemcpyAsync(values, args.v, sizeof values, cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 3 * XPE_BLOCK; i++)
        right = right && values[i] == i / XPE_BLOCK * XPE_BLOCK + XPE_BLOCK - 1 - i % XPE_BLOCK;
    ok(cudaFree(args.v));
    ok(cudaStreamDestroy(s));
    return right;
}

static void a_missing_barrier_shows(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        assert_true(turns(seed, true));
        assert_false(turns(seed, false));
    }
}

typedef struct k_peek_args {
    double *out;
} k_peek_args;

XPE_KERNEL(k_peek, k_peek_args)
{
    XPE_SHARED(double, fresh, 4);

    XPE_THREADS(t)
    {
        if (t == 3)
            p.out[0] = fresh[t];
    }
}

static void shared_memory_is_nan_at_first(void **state)
{
    cudaStream_t s = new_stream(0);
    double back = 0;
    k_peek_args args = {new_buffer(0, sizeof back)};

    (void)state;
    XPE_LAUNCH(k_peek, 1, s, &args);
    ok(cudaMemcpyAsync(&back, args.out, sizeof back, cudaMemcpyDeviceToHost, s));
    assert_true(isnan(back));
    ok(cudaFree(args.out));
    ok(cudaStreamDestroy(s));
}

static void additions_wrap_as_on_a_device(void **state)
{
    int64_t sum = INT64_MAX;

    (void)state;
    XPE_ADD64(&sum, 1);
    assert_true(sum == INT64_MIN);
}

typedef struct k_large_args {
    char bytes[4097];
} k_large_args;

XPE_KERNEL(k_large, k_large_args)
{
    (void)p;
}

static void large_arguments(void)
{
    static k_large_args args;

    XPE_LAUNCH(k_large, 1, new_stream(0), &args);
}

static void arguments_beyond_the_limit_end_the_program(void **state)
{
    (void)state;
    assert_dies(large_arguments, "kernel k_large: 4097 bytes of arguments, 4096 are allowed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fact(every_thread_of_every_block_runs_once),
        fact(nothing_to_do_is_not_launched),
        fact(arguments_are_copied_when_the_kernel_is_enqueued),
        fact(a_missing_barrier_shows),
        fact(shared_memory_is_nan_at_first),
        fact(additions_wrap_as_on_a_device),
        fact(arguments_beyond_the_limit_end_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
