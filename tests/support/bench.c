/* See bench.h. */
#include "bench.h"

#include "engine_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

xpt_bench xpt_bench_open(int devices, int threads, int64_t n, int modes)
{
    xpe_device_list list = xpt_devices(devices, threads);
    xpt_bench t;
    xpe_error err;

    if (xpe_backend_find(&t.b, &list, &err) != XPE_OK ||
        t.b->open(&t.team, &list, n, modes, &err) != XPE_OK)
        fail_msg("%s", err.text);
    return t;
}

void xpt_bench_wait(xpt_bench t)
{
    xpe_error err;

    assert_int_equal(t.b->wait(t.team, &err), XPE_OK);
}

xpe_buffer *xpt_bench_make(xpt_bench t, int device, size_t bytes)
{
    xpe_buffer *buffer;
    xpe_error err;

    assert_int_equal(t.b->buffer_create(&buffer, t.team, device, bytes, &err), XPE_OK);
    return buffer;
}

xpe_buffer *xpt_bench_make_from(xpt_bench t, int device, const void *from, size_t bytes)
{
    xpe_buffer *buffer = xpt_bench_make(t, device, bytes);

    t.b->upload(t.team, buffer, 0, from, bytes);
    xpt_bench_wait(t);
    return buffer;
}

xpe_buffer *xpt_bench_numbers(xpt_bench t, int modes, const xpe_unit *unit, const double *share,
                              const double *eps, double patch_eps)
{
    xpe_numbers n = {.patch_eps = patch_eps};

    for (int k = 0; k < modes; k++)
        n.mode[k] = (xpe_mode_numbers){.share = share ? share[k] : 0,
                                       .d_eps = eps ? eps[k] : 0,
                                       .cover_eps = eps ? eps[k] : 0,
                                       .unit_w = unit[k],
                                       .unit_v = unit[k],
                                       .unit_l = unit[k],
                                       .unit_r = unit[k],
                                       .unit_s = unit[k],
                                       .unit_dev = unit[k]};
    return xpt_bench_make_from(t, 0, &n, sizeof n);
}

void xpt_bench_read(xpt_bench t, void *to, const xpe_buffer *from, size_t bytes)
{
    t.b->download(t.team, to, from, 0, bytes);
    xpt_bench_wait(t);
}
