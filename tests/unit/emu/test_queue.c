/* Streams, events and copies: nothing runs before it is asked for, and then in any order that is
 * allowed. */
#include "emulated.h"

static void work_runs_when_it_is_asked_for(void **state)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, 8 * sizeof *v);

    (void)state;
    ok(cudaMemsetAsync(v, 0, 8 * sizeof *v, s));
    affine(v, 8, 1, 1, s);
    assert_int_equal(xpe_emu_count().work, 0);
    assert_int_equal(xpe_emu_live().queued, 2);
    finish(0, s);
    assert_int_equal(xpe_emu_count().kernels, 1);
    assert_int_equal(xpe_emu_live().queued, 0);
    ok(cudaFree(v));
    ok(cudaStreamDestroy(s));
}

static void a_stream_keeps_its_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        double *v, *back, expected = 0;
        cudaStream_t s;
        xpe_emu_begin(1, MIB, seed);
        s = new_stream(0);
        v = new_buffer(0, sizeof *v);
        back = new_pinned(sizeof *back);
        ok(cudaMemsetAsync(v, 0, sizeof *v, s));
        for (int i = 1; i < 20; i++) {
            affine(v, 1, 1.5, i, s);
            expected = expected * 1.5 + i;
        }
        ok(cudaMemcpyAsync(back, v, sizeof *v, cudaMemcpyDeviceToHost, s));
        finish(0, s);
        assert_true(*back == expected);
        ok(cudaFree(v));
        ok(cudaFreeHost(back));
        ok(cudaStreamDestroy(s));
    }
}

/* Adds 1 on one stream and doubles on another, joined by an event or not: what comes out of 1. */
static double one_and_double(uint64_t seed, bool joined, bool query_between)
{
    double *v, *back, result;
    cudaStream_t a, b;
    cudaEvent_t event;

    xpe_emu_begin(1, MIB, seed);
    a = new_stream(0);
    b = new_stream(0);
    event = new_event(0);
    v = new_buffer(0, sizeof *v);
    back = new_pinned(sizeof *back);
    *back = 1;
    ok(cudaMemcpyAsync(v, back, sizeof *v, cudaMemcpyHostToDevice, a));
    finish(0, a);
    affine(v, 1, 1, 1, a);
    ok(cudaEventRecord(event, a));
    if (query_between && cudaEventQuery(event) == cudaErrorNotReady)
        (void)cudaGetLastError();
    if (joined)
        ok(cudaStreamWaitEvent(b, event, 0));
    affine(v, 1, 2, 0, b);
    ok(cudaMemcpyAsync(back, v, sizeof *v, cudaMemcpyDeviceToHost, b));
    finish(0, b);
    finish(0, a);
    result = *back;
    ok(cudaFree(v));
    ok(cudaFreeHost(back));
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(a));
    ok(cudaStreamDestroy(b));
    return result;
}

static void streams_without_an_event_come_in_either_order(void **state)
{
    int in_order = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        in_order += one_and_double(seed, false, false) == 4;
    assert_in_range(in_order, SEEDS / 20,
                    SEEDS / 2); /* mostly wrong, so that a missing wait shows */
}

static void an_event_orders_two_streams(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        assert_true(one_and_double(seed, true, seed % 2) == 4);
}

static void the_same_seed_gives_the_same_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        assert_true(one_and_double(seed, false, false) == one_and_double(seed, false, false));
}

static void waiting_is_for_the_record_before_it(void **state)
{
    cudaStream_t a = new_stream(0), b = new_stream(0);
    cudaEvent_t event = new_event(0), end = new_event(0);

    (void)state;
    ok(cudaEventRecord(event, a));
    ok(cudaStreamWaitEvent(b, event, 0));
    ok(cudaStreamWaitEvent(a, event, 0));
    ok(cudaEventRecord(event, b)); /* the waits above do not mean this one */
    ok(cudaEventRecord(end, a));
    await(end);
    await(event);
    ok(cudaEventDestroy(event));
    ok(cudaEventDestroy(end));
    ok(cudaStreamDestroy(a));
    ok(cudaStreamDestroy(b));
}

static void an_event_never_recorded_has_happened(void **state)
{
    cudaStream_t s = new_stream(0);
    cudaEvent_t event = new_event(0);

    (void)state;
    assert_int_equal(cudaEventQuery(event), cudaSuccess);
    ok(cudaStreamWaitEvent(s, event, 0));
    assert_int_equal(xpe_emu_live().queued, 0);
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(s));
}

static void an_event_may_be_destroyed_while_it_is_waited_for(void **state)
{
    cudaStream_t a = new_stream(0), b = new_stream(0);
    cudaEvent_t event = new_event(0);

    (void)state;
    ok(cudaEventRecord(event, a));
    ok(cudaStreamWaitEvent(b, event, 0));
    ok(cudaEventDestroy(event));
    finish(0, b);
    ok(cudaStreamDestroy(a));
    ok(cudaStreamDestroy(b));
}

static void not_ready_is_kept_as_the_last_error(void **state)
{
    bool seen = false;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        cudaStream_t s;
        cudaEvent_t event;
        xpe_emu_begin(1, MIB, seed);
        s = new_stream(0);
        event = new_event(0);
        ok(cudaEventRecord(event, s));
        if (cudaEventQuery(event) == cudaErrorNotReady) {
            seen = true;
            assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
        }
        assert_int_equal(cudaGetLastError(), cudaSuccess);
        await(event);
        ok(cudaEventDestroy(event));
        ok(cudaStreamDestroy(s));
    }
    assert_true(seen);
}

static void handles_of_another_device_are_refused(void **state)
{
    cudaStream_t s = new_stream(0);
    cudaEvent_t event = new_event(1);
    double *v = new_buffer(1, sizeof *v);

    (void)state;
    assert_int_equal(cudaEventRecord(event, s), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    affine(v, 1, 1, 1, s); /* device 1 is current */
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    assert_int_equal(xpe_emu_live().queued, 0);
    ok(cudaFree(v));
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(s));
}

static void a_destroyed_stream_runs_to_its_end(void **state)
{
    cudaStream_t a = new_stream(0), b = new_stream(0);
    double *v = new_buffer(0, sizeof *v), back = 0;
    cudaEvent_t event = new_event(0);

    (void)state;
    ok(cudaMemsetAsync(v, 0, sizeof *v, a));
    affine(v, 1, 1, 7, a);
    ok(cudaEventRecord(event, a));
    ok(cudaStreamDestroy(a));
    ok(cudaStreamWaitEvent(b, event, 0));
    ok(cudaMemcpyAsync(&back, v, sizeof back, cudaMemcpyDeviceToHost, b));
    assert_true(back == 7);
    ok(cudaFree(v));
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(b));
}

static void destroyed_stream(void)
{
    cudaStream_t s = new_stream(0);

    ok(cudaStreamDestroy(s));
    (void)cudaMemsetAsync(NULL, 0, 0, s);
}

static void destroyed_event(void)
{
    cudaEvent_t event = new_event(0), other = event;

    ok(cudaEventDestroy(event));
    (void)cudaEventQuery(other);
}

static void destroyed_handles_end_the_program(void **state)
{
    (void)state;
    assert_dies(destroyed_stream, "is no stream, or has been destroyed");
    assert_dies(destroyed_event, "is no event, or has been destroyed");
}

/* --------------------------------------------------------------------------------- copies */

static void pinned_memory_is_read_when_the_copy_runs(void **state)
{
    cudaStream_t s = new_stream(0);
    double *v = new_buffer(0, sizeof *v), *from = new_pinned(sizeof *from), back = 0;

    (void)state;
    *from = 1;
    ok(cudaMemcpyAsync(v, from, sizeof *v, cudaMemcpyHostToDevice, s));
    *from = 2; /* the fault */
    ok(cudaMemcpyAsync(&back, v, sizeof back, cudaMemcpyDeviceToHost, s));
    assert_true(back == 2);
    ok(cudaFree(v));
    ok(cudaFreeHost(from));
    ok(cudaStreamDestroy(s));
}

static void pageable_memory_is_read_at_once(void **state)
{
    cudaStream_t s = new_stream(0);
    size_t count = 20000; /* more than one staging piece */
    double *v = new_buffer(0, count * sizeof *v), *from = calloc(count, sizeof *from),
           *back = calloc(count, sizeof *back);

    (void)state;
    for (size_t i = 0; i < count; i++)
        from[i] = (double)i;
    ok(cudaMemcpyAsync(v, from, count * sizeof *v, cudaMemcpyHostToDevice, s));
    for (size_t i = 0; i < count; i++)
        from[i] = -1;
    ok(cudaMemcpyAsync(back, v, count * sizeof *v, cudaMemcpyDeviceToHost, s));
    for (size_t i = 0; i < count; i++)
        assert_true(back[i] == (double)i);
    assert_int_equal(xpe_emu_count().pageable, 2);
    assert_int_equal(xpe_emu_count().bytes_up, count * sizeof *v);
    assert_int_equal(xpe_emu_count().bytes_down, count * sizeof *v);
    ok(cudaFree(v));
    ok(cudaStreamDestroy(s));
    free(from);
    free(back);
}

static void pinned_memory_is_written_when_the_copy_runs(void **state)
{
    cudaStream_t s = new_stream(0);
    unsigned char *v = new_buffer(0, 16), *to = new_pinned(16);

    (void)state;
    ok(cudaMemsetAsync(v, 5, 16, s));
    ok(cudaMemcpyAsync(to, v, 16, cudaMemcpyDeviceToHost, s));
    assert_int_equal(xpe_emu_count().bytes_down, 0);
    finish(0, s);
    assert_int_equal(to[15], 5);
    assert_int_equal(xpe_emu_count().bytes_down, 16);
    ok(cudaFree(v));
    ok(cudaFreeHost(to));
    ok(cudaStreamDestroy(s));
}

static void copies_between_devices_are_counted_by_pair(void **state)
{
    cudaStream_t s = new_stream(2);
    unsigned char *from = new_buffer(1, 64), *to = new_buffer(2, 64), back[64];
    cudaStream_t first = new_stream(1);

    (void)state;
    ok(cudaMemsetAsync(from, 9, 64, first));
    finish(1, first);
    ok(cudaMemcpyPeerAsync(to, 2, from, 1, 64, s));
    ok(cudaMemcpyAsync(back, to, 64, cudaMemcpyDeviceToHost, s));
    assert_int_equal(back[63], 9);
    assert_int_equal(xpe_emu_count().bytes_peer[1][2], 64);
    assert_int_equal(xpe_emu_count().bytes_peer[2][1], 0);
    ok(cudaFree(from));
    ok(cudaFree(to));
    ok(cudaStreamDestroy(s));
    ok(cudaStreamDestroy(first));
}

static void devices_swapped(void)
{
    cudaStream_t s = new_stream(2);
    void *from = new_buffer(1, 64), *to = new_buffer(2, 64);

    (void)cudaMemcpyPeerAsync(to, 1, from, 2, 64, s);
}

static void stream_of_a_third_device(void)
{
    cudaStream_t s = new_stream(0);
    void *from = new_buffer(1, 64), *to = new_buffer(2, 64);

    (void)cudaMemcpyPeerAsync(to, 2, from, 1, 64, s);
}

static void copies_that_mistake_devices_end_the_program(void **state)
{
    (void)state;
    assert_dies(
        devices_swapped,
        "cudaMemcpyPeerAsync on device 1: the destination lies in memory of 64 bytes of device 2");
    assert_dies(stream_of_a_third_device, "from device 1 to 2 on a stream of device 0");
}

/* --------------------------------------------------------------------- devices that go wrong */

static void a_stalled_device_runs_nothing_until_it_may(void **state)
{
    cudaStream_t s = new_stream(1);
    cudaEvent_t event = new_event(1);

    (void)state;
    ok(cudaEventRecord(event, s));
    xpe_emu_stall(1, true);
    for (int i = 0; i < 100; i++)
        assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    xpe_emu_stall(1, false);
    await(event);
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(s));
}

static void a_lost_device_fails_every_call_and_gives_its_memory_back(void **state)
{
    cudaStream_t s = new_stream(1);
    cudaEvent_t event = new_event(1);
    double *v = new_buffer(1, sizeof *v);
    void *more;
    size_t available, total;

    (void)state;
    affine(v, 1, 1, 1, s);
    affine(v, 1, 1, 1, s);
    ok(cudaEventRecord(event, s));
    xpe_emu_lose(1, 1);
    while (cudaEventQuery(event) == cudaErrorNotReady)
        ;
    assert_int_equal(cudaEventQuery(event), cudaErrorLaunchFailure);
    assert_int_equal(xpe_emu_count().kernels, 1);
    assert_int_equal(cudaMalloc(&more, 8), cudaErrorLaunchFailure);
    assert_int_equal(cudaMemGetInfo(&available, &total), cudaErrorLaunchFailure);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaFree(v), cudaErrorLaunchFailure);
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(s));
}

static void objects_left_behind_can_be_dropped(void **state)
{
    cudaStream_t s = new_stream(1);
    cudaEvent_t event = new_event(1);
    double *v = new_buffer(1, sizeof *v);

    (void)state;
    (void)new_pinned(8);
    affine(v, 1, 1, 1, s);
    ok(cudaEventRecord(event, s));
    assert_false(xpe_emu_empty());
    xpe_emu_abandon();
    assert_true(xpe_emu_empty());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fact(work_runs_when_it_is_asked_for),
        fact(a_stream_keeps_its_order),
        fact(streams_without_an_event_come_in_either_order),
        fact(an_event_orders_two_streams),
        fact(the_same_seed_gives_the_same_order),
        fact(waiting_is_for_the_record_before_it),
        fact(an_event_never_recorded_has_happened),
        fact(an_event_may_be_destroyed_while_it_is_waited_for),
        fact(not_ready_is_kept_as_the_last_error),
        fact(handles_of_another_device_are_refused),
        fact(a_destroyed_stream_runs_to_its_end),
        fact(destroyed_handles_end_the_program),
        fact(pinned_memory_is_read_when_the_copy_runs),
        fact(pageable_memory_is_read_at_once),
        fact(pinned_memory_is_written_when_the_copy_runs),
        fact(copies_between_devices_are_counted_by_pair),
        fact(copies_that_mistake_devices_end_the_program),
        fact(a_stalled_device_runs_nothing_until_it_may),
        fact(a_lost_device_fails_every_call_and_gives_its_memory_back),
        fact(objects_left_behind_can_be_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
