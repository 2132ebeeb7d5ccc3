/* Buffers, copies, queues and the host transform of a backend, through backend.h only. */
#include "bench.h"
#include "engine_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIDE 16
#define PLANE (SIDE * SIDE)

/* -------------------------------------------------------------------------- buffers and queues */

static void new_buffers_are_zero_even_after_dirty_ones(void **state)
{
    xpt_bench t = xpt_bench_open(2, 2, SIDE, 1);
    unsigned char bytes[5000], zeros[5000] = {0};

    (void)state;
    for (int i = 0; i < 20; i++) {
        xpe_buffer *buffer = xpt_bench_make(t, i % 2, sizeof bytes);
        xpt_bench_read(t, bytes, buffer, sizeof bytes);
        assert_memory_equal(bytes, zeros, sizeof bytes);
        memset(bytes, 0xa5, sizeof bytes);
        t.b->upload(t.team, buffer, 0, bytes, sizeof bytes);
        xpt_bench_wait(t);
        t.b->buffer_destroy(buffer);
    }
    t.b->buffer_destroy(NULL);
    t.b->close(t.team);
}

static void offsets_move_just_the_bytes_asked_for(void **state)
{
    xpt_bench t = xpt_bench_open(1, 1, SIDE, 1);
    xpe_buffer *a = xpt_bench_make(t, 0, 16), *b = xpt_bench_make(t, 0, 16);
    char out[17] = {0}, all[16];

    (void)state;
    t.b->upload(t.team, a, 3, "abcdef", 6);
    t.b->copy(t.team, b, 10, a, 4, 3);
    t.b->download(t.team, out, b, 9, 5);
    t.b->download(t.team, all, a, 0, 16);
    xpt_bench_wait(t);
    assert_memory_equal(out, "\0bcd\0", 5);
    assert_memory_equal(all, "\0\0\0abcdef\0\0\0\0\0\0\0", 16);
    t.b->zero(t.team, a);
    xpt_bench_read(t, all, a, 16);
    assert_memory_equal(all, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    t.b->buffer_destroy(a);
    t.b->buffer_destroy(b);
    t.b->close(t.team);
}

/* More than a queue holds at first, each step needing the one before. */
static void work_of_a_device_is_done_in_its_order(void **state)
{
    xpt_bench t = xpt_bench_open(2, 2, SIDE, 1);
    xpe_buffer *chain[50];
    int value = 0, first[50], out = 0;

    (void)state;
    for (int i = 0; i < 50; i++)
        chain[i] = xpt_bench_make(t, 1, sizeof value);
    for (int i = 0; i < 50; i++)
        first[i] = i + 1;
    for (int i = 0; i < 50; i++) {
        t.b->upload(t.team, chain[0], 0, &first[i], sizeof value);
        for (int k = 1; k < 50; k++)
            t.b->copy(t.team, chain[k], 0, chain[k - 1], 0, sizeof value);
    }
    t.b->download(t.team, &out, chain[49], 0, sizeof out);
    xpt_bench_wait(t);
    assert_int_equal(out, 50);
    for (int i = 0; i < 50; i++)
        t.b->buffer_destroy(chain[i]);
    t.b->close(t.team);
}

static void large_copies_between_devices_arrive_whole(void **state)
{
    enum { BYTES = 3 * 1048576 + 5 };
    xpt_bench t = xpt_bench_open(3, 3, SIDE, 1);
    unsigned char *data = xpt_new(BYTES, 1), *out = xpt_new(BYTES, 1);
    xpe_buffer *a, *b = xpt_bench_make(t, 2, BYTES);
    xpt_random r = {1};

    (void)state;
    for (int i = 0; i < BYTES; i++)
        data[i] = (unsigned char)xpt_random_bits(&r);
    a = xpt_bench_make_from(t, 0, data, BYTES);
    t.b->copy(t.team, b, 0, a, 0, BYTES);
    xpt_bench_wait(t);
    xpt_bench_read(t, out, b, BYTES);
    assert_memory_equal(out, data, BYTES);
    t.b->zero(t.team, b);
    xpt_bench_read(t, out, b, BYTES);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(out[i], 0);
    t.b->buffer_destroy(a);
    t.b->buffer_destroy(b);
    free(data);
    free(out);
    t.b->close(t.team);
}

static void waiting_for_nothing_is_fine(void **state)
{
    xpt_bench t = xpt_bench_open(1, 1, SIDE, 1);

    (void)state;
    xpt_bench_wait(t);
    xpt_bench_wait(t);
    t.b->close(t.team);
}

/* ------------------------------------------------------------------------------ host transform */

static void host_transform_of_an_impulse_is_a_plane_wave(void **state)
{
    xpt_bench t = xpt_bench_open(1, 1, SIDE, 1);
    xpe_c64 field[PLANE] = {{0, 0}};
    xpe_error err;

    (void)state;
    field[2 * SIDE + 3].re = 1;
    assert_int_equal(t.b->transform(field, SIDE, -1, &err), XPE_OK);
    for (int i = 0; i < PLANE; i++) {
        double phase = -2 * 3.14159265358979323846 * (2 * (i / SIDE) + 3 * (i % SIDE)) / SIDE;
        assert_true(fabs(field[i].re - cos(phase)) < 1e-14 &&
                    fabs(field[i].im - sin(phase)) < 1e-14);
    }
    assert_int_equal(t.b->transform(field, SIDE, +1, &err), XPE_OK);
    for (int i = 0; i < PLANE; i++)
        assert_true(fabs(field[i].re - (i == 2 * SIDE + 3 ? PLANE : 0)) < 1e-11 &&
                    fabs(field[i].im) < 1e-11);
    t.b->close(t.team);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_buffers_are_zero_even_after_dirty_ones),
        cmocka_unit_test(offsets_move_just_the_bytes_asked_for),
        cmocka_unit_test(work_of_a_device_is_done_in_its_order),
        cmocka_unit_test(large_copies_between_devices_arrive_whole),
        cmocka_unit_test(waiting_for_nothing_is_fine),
        cmocka_unit_test(host_transform_of_an_impulse_is_a_plane_wave),
    };
    int skipped = xpt_backend_begin(argc, argv);

    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
