/* Sends and receives between devices: pairs, counts, ranks that never join, aborts. */
#define XPE_WITH_NCCL
#include "cuda/api.h"
#include "emulated.h"

#define RANKS 3
#define BYTES 64

/* Three ranks; each has a buffer of its own number and a row of buffers for what it receives. */
typedef struct ranks {
    ncclComm_t comm[RANKS];
    cudaStream_t stream[RANKS];
    unsigned char *own[RANKS], *got[RANKS][RANKS];
} ranks;

static ranks open_ranks(void)
{
    static const int devices[RANKS] = {0, 1, 2};
    ranks r;

    ok(ncclCommInitAll(r.comm, RANKS, devices));
    for (int i = 0; i < RANKS; i++) {
        r.stream[i] = new_stream(i);
        r.own[i] = new_buffer(i, BYTES);
        ok(cudaMemsetAsync(r.own[i], 10 + i, BYTES, r.stream[i]));
        for (int j = 0; j < RANKS; j++) {
            r.got[i][j] = new_buffer(i, BYTES);
            ok(cudaMemsetAsync(r.got[i][j], 0, BYTES, r.stream[i]));
        }
    }
    return r;
}

static void send(const ranks *r, int from, int to)
{
    ok(ncclSend(r->own[from], BYTES, ncclInt8, to, r->comm[from], r->stream[from]));
}

static void receive(const ranks *r, int to, int from)
{
    ok(ncclRecv(r->got[to][from], BYTES, ncclInt8, from, r->comm[to], r->stream[to]));
}

static int value(const ranks *r, int to, int from)
{
    unsigned char back[BYTES];

    ok(cudaMemcpyAsync(back, r->got[to][from], BYTES, cudaMemcpyDeviceToHost, r->stream[to]));
    for (int i = 1; i < BYTES; i++)
        assert_int_equal(back[i], back[0]);
    return back[0];
}

static void close_ranks(const ranks *r, bool comms)
{
    for (int i = 0; i < RANKS; i++) {
        if (comms)
            ok(ncclCommDestroy(r->comm[i]));
        ok(cudaFree(r->own[i]));
        for (int j = 0; j < RANKS; j++)
            ok(cudaFree(r->got[i][j]));
        ok(cudaStreamDestroy(r->stream[i]));
    }
}

static void every_pair_exchanges_in_one_group(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        ranks r;
        xpe_emu_begin(RANKS, MIB, seed);
        r = open_ranks();
        ok(ncclGroupStart());
        for (int i = 0; i < RANKS; i++)
            for (int j = 0; j < RANKS; j++)
                if (i != j) {
                    send(&r, i, j);
                    receive(&r, j, i);
                }
        assert_int_equal(xpe_emu_count().bytes_nccl[0][1], 0);
        ok(ncclGroupEnd());
        for (int i = 0; i < RANKS; i++)
            for (int j = 0; j < RANKS; j++)
                assert_int_equal(value(&r, i, j), i == j ? 0 : 10 + j);
        for (int i = 0; i < RANKS; i++)
            for (int j = 0; j < RANKS; j++)
                assert_int_equal(xpe_emu_count().bytes_nccl[i][j], i == j ? 0 : BYTES);
        close_ranks(&r, true);
    }
}

static void sends_meet_receives_in_their_order(void **state)
{
    ranks r = open_ranks();

    (void)state;
    ok(ncclGroupStart());
    send(&r, 0, 1);
    ok(ncclGroupEnd());
    ok(cudaSetDevice(0));
    ok(cudaMemsetAsync(r.own[0], 77, BYTES, r.stream[0]));
    ok(ncclGroupStart());
    send(&r, 0, 1);
    ok(ncclGroupEnd());
    ok(ncclGroupStart());
    receive(&r, 1, 0);
    ok(ncclGroupEnd());
    assert_int_equal(value(&r, 1, 0), 10);
    receive(&r, 1, 0); /* a group of its own */
    assert_int_equal(value(&r, 1, 0), 77);
    close_ranks(&r, true);
}

static void a_send_waits_for_its_stream(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        ranks r;
        xpe_emu_begin(RANKS, MIB, seed);
        r = open_ranks();
        ok(cudaMemsetAsync(r.own[0], 42, BYTES, r.stream[0]));
        ok(ncclGroupStart());
        send(&r, 0, 2);
        receive(&r, 2, 0);
        ok(ncclGroupEnd());
        ok(cudaMemsetAsync(r.own[0], 43, BYTES, r.stream[0])); /* behind the send */
        assert_int_equal(value(&r, 2, 0), 42);
        close_ranks(&r, true);
    }
}

static void a_rank_may_send_to_itself(void **state)
{
    ranks r = open_ranks();

    (void)state;
    ok(ncclGroupStart());
    send(&r, 1, 1);
    receive(&r, 1, 1);
    ok(ncclGroupEnd());
    assert_int_equal(value(&r, 1, 1), 11);
    close_ranks(&r, true);
}

static void groups_nest(void **state)
{
    ranks r = open_ranks();

    (void)state;
    ok(ncclGroupStart());
    ok(ncclGroupStart());
    send(&r, 1, 0);
    ok(ncclGroupEnd());
    receive(&r, 0, 1);
    ok(ncclGroupEnd());
    assert_int_equal(value(&r, 0, 1), 11);
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    close_ranks(&r, true);
}

/* -------------------------------------------------------------------------- never joining */

static void wait_for(int device, cudaStream_t stream)
{
    finish(device, stream);
}

static void a_send_that_nobody_receives(void)
{
    ranks r = open_ranks();

    send(&r, 0, 2);
    wait_for(0, r.stream[0]);
}

static void a_receive_that_nobody_sends(void)
{
    ranks r = open_ranks();

    receive(&r, 1, 0);
    (void)cudaFree(r.got[1][0]);
}

static void ranks_in_the_wrong_order(void)
{
    ranks r = open_ranks(); /* each sends first and receives behind that, outside of a group */

    send(&r, 0, 1);
    receive(&r, 0, 1);
    send(&r, 1, 0);
    receive(&r, 1, 0);
    wait_for(0, r.stream[0]);
}

static void destroyed_while_it_waits(void)
{
    ranks r = open_ranks();

    send(&r, 0, 1);
    (void)ncclCommDestroy(r.comm[0]);
}

static void ranks_that_never_join_end_the_program(void **state)
{
    (void)state;
    assert_dies(
        a_send_that_nobody_receives,
        "stream 1 of device 0 waits for rank 0's ncclSend to rank 2 (64 bytes), which never joins");
    assert_dies(a_send_that_nobody_receives, "cudaEventQuery waits for ever: no queue can go on");
    assert_dies(a_receive_that_nobody_sends,
                "rank 1's ncclRecv from rank 0 (64 bytes), which never joins");
    assert_dies(ranks_in_the_wrong_order, "has posted its side but is not there yet");
    assert_dies(destroyed_while_it_waits, "ncclCommDestroy waits for ever");
}

static void slow_moves_let_everything_else_go_first(void **state)
{
    ranks r = open_ranks();
    cudaStream_t beside = new_stream(0);
    cudaEvent_t event = new_event(2);
    double *v = new_buffer(0, sizeof *v);
    uint64_t before = xpe_emu_count().beside;

    (void)state;
    for (int i = 0; i < RANKS; i++)
        finish(i, r.stream[i]);
    xpe_emu_slow_nccl(true);
    ok(ncclGroupStart());
    send(&r, 0, 2);
    receive(&r, 2, 0);
    ok(ncclGroupEnd());
    ok(cudaEventRecord(event, r.stream[2]));
    ok(cudaSetDevice(0));
    for (int i = 0; i < 5; i++)
        affine(v, 1, 0, 1, beside);
    await(event); /* needs the move alone */
    assert_int_equal(xpe_emu_count().beside - before, 5);
    xpe_emu_slow_nccl(false);
    ok(cudaFree(v));
    ok(cudaEventDestroy(event));
    ok(cudaStreamDestroy(beside));
    close_ranks(&r, true);
}

static void an_abort_lets_a_rank_that_waits_go_on(void **state)
{
    ranks r = open_ranks();
    cudaEvent_t event = new_event(0);

    (void)state;
    xpe_emu_wait_for_ever(true);
    send(&r, 0, 2);
    ok(cudaEventRecord(event, r.stream[0]));
    for (int i = 0; i < 100; i++)
        assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    for (int i = 0; i < RANKS; i++)
        ok(ncclCommAbort(r.comm[i]));
    await(event);
    assert_int_equal(value(&r, 2, 0), 0);
    assert_int_equal(xpe_emu_count().bytes_nccl[0][2], 0);
    ok(cudaEventDestroy(event));
    close_ranks(&r, false);
}

static void other_ranks_wait_until_they_abort_too(void **state)
{
    ranks r = open_ranks();
    cudaEvent_t event = new_event(2);

    (void)state;
    xpe_emu_wait_for_ever(true);
    ok(ncclGroupStart());
    send(&r, 0, 2);
    receive(&r, 2, 0);
    ok(ncclGroupEnd());
    ok(cudaEventRecord(event, r.stream[2]));
    ok(ncclCommAbort(r.comm[0]));
    finish(0, r.stream[0]);
    for (int i = 0; i < 100; i++)
        assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    ok(ncclCommAbort(r.comm[2]));
    await(event);
    ok(ncclCommDestroy(r.comm[1]));
    ok(cudaEventDestroy(event));
    close_ranks(&r, false);
}

static void a_lost_rank_is_reported_by_its_communicator(void **state)
{
    ranks r = open_ranks();
    ncclResult_t error;

    (void)state;
    ok(ncclCommGetAsyncError(r.comm[1], &error));
    assert_int_equal(error, ncclSuccess);
    xpe_emu_lose(1, 0);
    ok(ncclCommGetAsyncError(r.comm[1], &error));
    assert_int_equal(error, ncclUnhandledCudaError);
    ok(ncclCommGetAsyncError(r.comm[0], &error));
    assert_int_equal(error, ncclSuccess);
    xpe_emu_nccl_error(0, ncclRemoteError);
    ok(ncclCommGetAsyncError(r.comm[0], &error));
    assert_int_equal(error, ncclRemoteError);
    assert_int_equal(ncclSend(r.own[1], BYTES, ncclInt8, 0, r.comm[1], r.stream[1]),
                     ncclUnhandledCudaError);
    for (int i = 0; i < RANKS; i++)
        ok(ncclCommAbort(r.comm[i]));
    assert_int_equal(xpe_emu_live().comms, 0);
    xpe_emu_abandon();
}

/* ------------------------------------------------------------------------------- refusals */

static void communicators_refuse_a_device_named_twice(void **state)
{
    static const int twice[] = {0, 1, 0}, absent[] = {0, 3};
    ncclComm_t comm[3];

    (void)state;
    assert_int_equal(ncclCommInitAll(comm, 3, twice), ncclInvalidUsage);
    assert_int_equal(ncclCommInitAll(comm, 2, absent), ncclInvalidArgument);
    assert_null(comm[0]);
}

static void a_group_with_an_error_posts_nothing(void **state)
{
    ranks r = open_ranks();

    (void)state;
    for (int i = 0; i < RANKS; i++)
        finish(i, r.stream[i]);
    ok(ncclGroupStart());
    send(&r, 0, 1);
    assert_int_equal(ncclRecv(r.got[1][0], BYTES, ncclInt8, 7, r.comm[1], r.stream[1]),
                     ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
    assert_int_equal(xpe_emu_live().queued, 0);
    ok(ncclGroupStart()); /* and the next one is as good as new */
    send(&r, 0, 1);
    receive(&r, 1, 0);
    ok(ncclGroupEnd());
    assert_int_equal(value(&r, 1, 0), 10);
    close_ranks(&r, true);
}

static void another_size(void)
{
    ranks r = open_ranks();

    send(&r, 0, 1);
    (void)ncclRecv(r.got[1][0], BYTES - 1, ncclInt8, 0, r.comm[1], r.stream[1]);
}

static void data_of_another_device(void)
{
    ranks r = open_ranks();

    (void)ncclSend(r.own[1], BYTES, ncclInt8, 1, r.comm[0], r.stream[0]);
}

static void stream_of_another_rank(void)
{
    ranks r = open_ranks();

    (void)ncclSend(r.own[0], BYTES, ncclInt8, 1, r.comm[0], r.stream[1]);
}

static void mistaken_ranks_end_the_program(void **state)
{
    (void)state;
    assert_dies(another_size, "rank 0 sends 64 bytes to rank 1, which receives 63");
    assert_dies(data_of_another_device,
                "ncclSend on device 0: the data lies in memory of 64 bytes of device 1");
    assert_dies(stream_of_another_rank, "the communicator is of device 0, the stream of device 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fact(every_pair_exchanges_in_one_group),
        fact(sends_meet_receives_in_their_order),
        fact(a_send_waits_for_its_stream),
        fact(a_rank_may_send_to_itself),
        fact(groups_nest),
        fact(ranks_that_never_join_end_the_program),
        fact(slow_moves_let_everything_else_go_first),
        fact(an_abort_lets_a_rank_that_waits_go_on),
        fact(other_ranks_wait_until_they_abort_too),
        fact(a_lost_rank_is_reported_by_its_communicator),
        fact(communicators_refuse_a_device_named_twice),
        fact(a_group_with_an_error_posts_nothing),
        fact(mistaken_ranks_end_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
