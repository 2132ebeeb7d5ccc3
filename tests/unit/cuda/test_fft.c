/* Transforms of our own against the definition, at every side that has them, through the kernels
 * that hold them: the misfit of one frame by direct summation in double precision, and sides beyond
 * 65,535 frames. */
#include "backend/backend.h"
#include "cuda/fft.h"
#include "emu.h"
#include "engine_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const xpe_backend xpe_backend_cuda;

static const char *const names[1] = {"cuda:0"};
static const xpe_device_list one = {names, 1, 1};

typedef struct bench {
    const xpe_backend *b;
    xpe_team *team;
} bench;

static bench open_bench(int64_t n, int modes)
{
    bench t = {&xpe_backend_cuda, NULL};
    xpe_error err;

    xpe_emu_begin(1, (size_t)2 << 30, 0);
    assert_int_equal(t.b->open(&t.team, &one, n, modes, &err), XPE_OK);
    return t;
}

static void close_bench(bench t)
{
    t.b->close(t.team);
    xpe_cuda_forget();
    assert_true(xpe_emu_empty());
}

static xpe_buffer *send(bench t, const void *data, size_t bytes)
{
    xpe_buffer *buffer;
    xpe_error err;

    assert_int_equal(t.b->buffer_create(&buffer, t.team, 0, bytes, &err), XPE_OK);
    if (data)
        t.b->upload(t.team, buffer, 0, data, bytes);
    assert_int_equal(t.b->wait(t.team, &err), XPE_OK);
    return buffer;
}

/* Sum over the pixels of |F(d p)|^2 - by Parseval n^2 times the energy of the product - and of |F(d
 * p)| at a few frequencies by the definition. */
static void far_field(double *intensity, const xpe_c32 *product, int64_t n, int64_t row,
                      int64_t col)
{
    double re = 0, im = 0;

    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            double angle = -2 * M_PI * (double)((r * row + c * col) % n) / (double)n;
            const xpe_c32 *x = &product[r * n + c];
            re += (double)x->re * cos(angle) - (double)x->im * sin(angle);
            im += (double)x->re * sin(angle) + (double)x->im * cos(angle);
        }
    *intensity = re * re + im * im;
}

/* The misfit of a frame whose amplitudes are masked everywhere but at one frequency is (|G| - y)^2
 * there. */
static void misfit_of_single_frequencies_is_that_of_the_definition(void **state)
{
    static const int64_t sides[] = {64, 128, 256, 512, 48};

    (void)state;
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
        int64_t n = sides[s], plane = n * n, frames = 4;
        bench t = open_bench(n, 1);
        xpe_c32 *probe = xpt_new((size_t)plane, sizeof *probe),
                *image = xpt_new((size_t)plane, sizeof *image);
        xpe_c32 *product = xpt_new((size_t)plane, sizeof *product);
        float *y = xpt_new((size_t)(plane * frames), sizeof *y);
        int64_t at[4][2] = {{0, 0}, {1, n - 1}, {n / 2, 3}, {n / 8 + 5, n / 4 + 9}};
        int32_t first[8] = {0};
        xpt_random random = {11};
        double misfit[4];
        xpe_error err;
        for (int64_t i = 0; i < plane; i++) {
            probe[i] = (xpe_c32){(float)xpt_random_unit(&random) - 0.5f,
                                 (float)xpt_random_unit(&random) - 0.5f};
            image[i] =
                (xpe_c32){(float)xpt_random_unit(&random), (float)xpt_random_unit(&random) - 0.5f};
            product[i] = (xpe_c32){probe[i].re * image[i].re - probe[i].im * image[i].im,
                                   probe[i].re * image[i].im + probe[i].im * image[i].re};
        }
        for (int64_t i = 0; i < plane * frames; i++)
            y[i] = -1;
        for (int f = 0; f < 4; f++)
            y[f * plane + at[f][0] * n + at[f][1]] = 0.25f;
        xpe_sums_desc desc = {1, true, false, false, n, n, first, frames, n};
        xpe_sums *sums;
        assert_int_equal(t.b->sums_create(&sums, t.team, 0, &desc, &err), XPE_OK);
        xpe_buffer *buffers[] = {
            send(t, first, sizeof first), send(t, y, (size_t)(plane * frames) * sizeof *y),
            send(t, image, (size_t)plane * sizeof *image),
            send(t, probe, (size_t)plane * sizeof *probe), send(t, NULL, sizeof misfit)};
        xpe_fit_args fit = {.flags = XPE_FIT_ERROR,
                            .modes = 1,
                            .batch = {0, frames, frames},
                            .cols = n,
                            .first = buffers[0],
                            .y = buffers[1],
                            .image = buffers[2],
                            .probe = buffers[3],
                            .sums = sums,
                            .misfit = buffers[4]};
        t.b->fit(t.team, 0, &fit);
        t.b->download(t.team, misfit, buffers[4], 0, sizeof misfit);
        assert_int_equal(t.b->wait(t.team, &err), XPE_OK);
        for (int f = 0; f < 4; f++) {
            double intensity, right;
            far_field(&intensity, product, n, at[f][0], at[f][1]);
            right = pow(sqrt(intensity) - 0.25, 2);
            /* a transform of n^2 points errs by a few units in the last place of the rms of the
             * field, n */
            assert_true(fabs(sqrt(misfit[f]) - sqrt(right)) < 1e-6 * (double)n);
        }
        for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
            t.b->buffer_destroy(buffers[i]);
        t.b->sums_destroy(sums);
        close_bench(t);
        free(probe);
        free(image);
        free(product);
        free(y);
    }
}

/* No size of a grid limits the frames: 70,000 of 2 x 2 pixels, in one batch. */
static void more_frames_than_a_grid_dimension_holds_are_worked_on(void **state)
{
    const int64_t frames = 70000, n = 2;
    bench t = open_bench(n, 1);
    int32_t *first = xpt_new((size_t)frames * 2, sizeof *first);
    xpe_c32 image[9], *v = xpt_new((size_t)(frames * n * n), sizeof *v);
    xpe_error err;

    (void)state;
    for (int i = 0; i < 9; i++)
        image[i] = (xpe_c32){(float)i, 0};
    for (int64_t j = 0; j < frames; j++) {
        first[2 * j] = (int32_t)(j % 2);
        first[2 * j + 1] = (int32_t)(j / 2 % 2);
    }
    xpe_buffer *buffers[] = {send(t, first, (size_t)frames * 2 * sizeof *first),
                             send(t, image, sizeof image),
                             send(t, NULL, (size_t)(frames * n * n) * sizeof *v)};
    xpe_patch_args patch = {{0, frames, frames}, 3, buffers[0], buffers[1], buffers[2]};
    t.b->patches(t.team, 0, &patch);
    t.b->download(t.team, v, buffers[2], 0, (size_t)(frames * n * n) * sizeof *v);
    assert_int_equal(t.b->wait(t.team, &err), XPE_OK);
    for (int64_t j = 0; j < frames; j++)
        for (int i = 0; i < 4; i++)
            assert_true(v[j * 4 + i].re ==
                        (float)((first[2 * j] + i / 2) * 3 + first[2 * j + 1] + i % 2));
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        t.b->buffer_destroy(buffers[i]);
    close_bench(t);
    free(first);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misfit_of_single_frequencies_is_that_of_the_definition),
        cmocka_unit_test(more_frames_than_a_grid_dimension_holds_are_worked_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
