/* Transforms against the definition and against FFTW in double precision; work areas; plans
 * misused. */
#include "cuda/api.h"
#include "emulated.h"

#include <complex.h>
#include <fftw3.h>

typedef double _Complex field;

static cufftHandle new_plan(int device, int rows, int cols, int batch, cufftType type, size_t *area)
{
    cufftHandle plan;
    int n[2] = {rows, cols};

    ok(cudaSetDevice(device));
    ok(cufftCreate(&plan));
    ok(cufftSetAutoAllocation(plan, 0));
    ok(cufftMakePlanMany(plan, 2, n, NULL, 1, rows * cols, NULL, 1, rows * cols, type, batch,
                         area));
    return plan;
}

/* Values that repeat nowhere. */
static void fill(cufftComplex *v, int count)
{
    uint32_t state = 1;

    for (int i = 0; i < 2 * count; i++) {
        state = state * 1664525u + 1013904223u;
        ((float *)v)[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

/* The transforms of `batch` fields on the device, in place. */
static void transform(cufftComplex *v, int rows, int cols, int batch, int sign)
{
    size_t bytes = (size_t)(rows * cols * batch) * sizeof *v, area;
    cudaStream_t s = new_stream(0);
    cufftComplex *data = new_buffer(0, bytes);
    cufftHandle plan = new_plan(0, rows, cols, batch, CUFFT_C2C, &area);
    void *work = new_buffer(0, area);

    ok(cufftSetStream(plan, s));
    ok(cufftSetWorkArea(plan, work));
    ok(cudaMemcpyAsync(data, v, bytes, cudaMemcpyHostToDevice, s));
    ok(cufftExecC2C(plan, data, data, sign));
    ok(cudaMemcpyAsync(v, data, bytes, cudaMemcpyDeviceToHost, s));
    ok(cufftDestroy(plan));
    ok(cudaFree(data));
    ok(cudaFree(work));
    ok(cudaStreamDestroy(s));
}

/* The definition, row by row and column by column. */
static void definition(field *out, const cufftComplex *in, int rows, int cols, int sign)
{
    for (int k = 0; k < rows; k++)
        for (int l = 0; l < cols; l++) {
            field sum = 0;
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < cols; j++)
                    sum += ((double)in[i * cols + j].x + (double)in[i * cols + j].y * I) *
                           cexp(sign * 2 * acos(-1.0) * I *
                                ((double)k * i / rows + (double)l * j / cols));
            out[k * cols + l] = sum;
        }
}

static double distance(const cufftComplex *a, const field *b, int count)
{
    double difference = 0, norm = 0;

    for (int i = 0; i < count; i++) {
        field d = (double)a[i].x + (double)a[i].y * I - b[i];
        difference += creal(d) * creal(d) + cimag(d) * cimag(d);
        norm += creal(b[i]) * creal(b[i]) + cimag(b[i]) * cimag(b[i]);
    }
    return sqrt(difference / norm);
}

/* A transform of N points rounds log2 N times by 2^-24 each, which add up as a random walk does: 4
 * times that. */
static double bound(int points)
{
    return 4 * sqrt(log2(points)) * 0x1p-24;
}

static void transforms_follow_the_definition(void **state)
{
    static const int shapes[][3] = {{1, 1, 1},  {2, 2, 3},  {8, 8, 1},  {8, 8, 4},
                                    {6, 10, 2}, {15, 7, 3}, {16, 16, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int rows = shapes[i][0], cols = shapes[i][1], batch = shapes[i][2],
                points = rows * cols;
            cufftComplex in[512], out[512];
            field expected[256];
            fill(in, points * batch);
            memcpy(out, in, sizeof out);
            transform(out, rows, cols, batch, sign);
            for (int b = 0; b < batch; b++) {
                definition(expected, in + b * points, rows, cols, sign);
                assert_true(distance(out + b * points, expected, points) <= bound(points));
            }
        }
}

static void large_transforms_agree_with_fftw(void **state)
{
    enum { SIDE = 64, POINTS = SIDE * SIDE };
    cufftComplex *v = calloc(POINTS, sizeof *v);
    field *exact = fftw_malloc(POINTS * sizeof *exact);
    fftw_plan plan = fftw_plan_dft_2d(SIDE, SIDE, exact, exact, FFTW_FORWARD, FFTW_ESTIMATE);

    (void)state;
    fill(v, POINTS);
    for (int i = 0; i < POINTS; i++)
        exact[i] = (double)v[i].x + (double)v[i].y * I;
    fftw_execute(plan);
    transform(v, SIDE, SIDE, 1, CUFFT_FORWARD);
    assert_true(distance(v, exact, POINTS) <= bound(POINTS));
    assert_int_equal(xpe_emu_count().transforms, 1);
    fftw_destroy_plan(plan);
    fftw_free(exact);
    free(v);
}

static void the_inverse_undoes_the_transform_times_the_points(void **state)
{
    cufftComplex v[300], before[300];

    (void)state;
    fill(v, 300);
    memcpy(before, v, sizeof v);
    transform(v, 10, 10, 3, CUFFT_FORWARD);
    transform(v, 10, 10, 3, CUFFT_INVERSE);
    for (int i = 0; i < 300; i++) {
        assert_true(fabsf(v[i].x / 100 - before[i].x) < 1e-6f);
        assert_true(fabsf(v[i].y / 100 - before[i].y) < 1e-6f);
    }
}

static void bits_do_not_depend_on_the_batch(void **state)
{
    cufftComplex v[5 * 144], one[5 * 144];

    (void)state;
    fill(v, 5 * 144);
    memcpy(one, v, sizeof v);
    transform(v, 12, 12, 5, CUFFT_FORWARD);
    for (int i = 0; i < 5; i++)
        transform(one + i * 144, 12, 12, 1, CUFFT_FORWARD);
    assert_memory_equal(v, one, sizeof v);
}

static void double_precision_is_double_precision(void **state)
{
    cufftDoubleComplex v[64];
    cudaStream_t s = new_stream(0);
    size_t area;
    cufftHandle plan = new_plan(0, 8, 8, 1, CUFFT_Z2Z, &area);
    cufftDoubleComplex *in = new_buffer(0, sizeof v), *out = new_buffer(0, sizeof v);

    (void)state;
    assert_int_equal(area, 0); /* one field whose sides are powers of two */
    for (int i = 0; i < 64; i++)
        v[i] = (cufftDoubleComplex){1.0 / (i + 1), 0};
    ok(cufftSetStream(plan, s));
    ok(cudaMemcpyAsync(in, v, sizeof v, cudaMemcpyHostToDevice, s));
    ok(cufftExecZ2Z(plan, in, out, CUFFT_FORWARD)); /* not in place */
    ok(cufftExecZ2Z(plan, out, out, CUFFT_INVERSE));
    ok(cudaMemcpyAsync(v, out, sizeof v, cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 64; i++)
        assert_true(fabs(v[i].x / 64 - 1.0 / (i + 1)) < 1e-15);
    ok(cufftDestroy(plan));
    ok(cudaFree(in));
    ok(cudaFree(out));
    ok(cudaStreamDestroy(s));
}

/* -------------------------------------------------------------------- plans, areas, streams */

static void plans_say_what_is_wrong_with_them(void **state)
{
    int n[2] = {8, 8}, none[2] = {0, 8};
    size_t area;
    cufftHandle plan, made = new_plan(1, 8, 8, 2, CUFFT_C2C, &area);
    cufftComplex *v = new_buffer(1, area);

    (void)state;
    assert_int_equal(area, 8 * 8 * 2 * sizeof *v);
    assert_int_equal(cufftMakePlanMany(made, 2, n, NULL, 1, 64, NULL, 1, 64, CUFFT_C2C, 2, &area),
                     CUFFT_INVALID_PLAN);
    ok(cufftCreate(&plan));
    ok(cufftSetAutoAllocation(plan, 0));
    assert_int_equal(
        cufftMakePlanMany(plan, 2, none, NULL, 1, 64, NULL, 1, 64, CUFFT_C2C, 2, &area),
        CUFFT_INVALID_SIZE);
    assert_int_equal(cufftMakePlanMany(plan, 2, n, NULL, 1, 64, NULL, 1, 64, CUFFT_C2C, 0, &area),
                     CUFFT_INVALID_SIZE);
    ok(cudaSetDevice(0));
    assert_int_equal(cufftMakePlanMany(plan, 2, n, NULL, 1, 64, NULL, 1, 64, CUFFT_C2C, 2, &area),
                     CUFFT_INVALID_DEVICE);
    assert_int_equal(cufftExecC2C(plan, v, v, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    assert_int_equal(cufftExecZ2Z(made, NULL, NULL, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    assert_int_equal(cufftExecC2C(made, v, v, CUFFT_FORWARD), CUFFT_INVALID_DEVICE);
    ok(cudaSetDevice(1));
    assert_int_equal(cufftExecC2C(made, v, v, 2), CUFFT_INVALID_VALUE);
    ok(cufftDestroy(made));
    ok(cufftDestroy(plan));
    ok(cudaFree(v));
}

static void transform_with(size_t area_given)
{
    size_t area;
    cudaStream_t s = new_stream(0);
    cufftHandle plan = new_plan(0, 8, 8, 2, CUFFT_C2C, &area);
    cufftComplex *v = new_buffer(0, area);

    ok(cufftSetStream(plan, s));
    ok(cufftSetWorkArea(plan, area_given ? new_buffer(0, area_given) : NULL));
    (void)cufftExecC2C(plan, v, v, CUFFT_FORWARD);
}

static void without_an_area(void)
{
    transform_with(0);
}

static void with_a_short_area(void)
{
    transform_with(8 * 8 * 2 * sizeof(cufftComplex) - 1);
}

static void with_short_data(void)
{
    size_t area;
    cufftHandle plan = new_plan(0, 8, 8, 1, CUFFT_C2C, &area);
    cufftComplex *v = new_buffer(0, 63 * sizeof *v);

    (void)cufftExecC2C(plan, v, v, CUFFT_FORWARD);
}

static void destroyed_plan(void)
{
    size_t area;
    cufftHandle plan = new_plan(0, 8, 8, 1, CUFFT_C2C, &area);

    ok(cufftDestroy(plan));
    (void)cufftSetStream(plan, NULL);
}

static void stream_of_another_device(void)
{
    size_t area;
    cudaStream_t s = new_stream(1);
    cufftHandle plan = new_plan(0, 8, 8, 1, CUFFT_C2C, &area);
    cufftComplex *v = new_buffer(0, 64 * sizeof *v);

    ok(cufftSetStream(plan, s));
    (void)cufftExecC2C(plan, v, v, CUFFT_FORWARD);
}

static void misused_plans_end_the_program(void **state)
{
    (void)state;
    assert_dies(without_an_area,
                "cufftExecC2C on device 0: the work area ((nil)) is no memory of a device");
    assert_dies(with_a_short_area, "the work area of 1024 bytes ends beyond memory of 1023 bytes");
    assert_dies(with_short_data, "the input of 512 bytes ends beyond memory of 504 bytes");
    assert_dies(destroyed_plan, "is no plan, or has been destroyed");
    assert_dies(stream_of_another_device, "the plan is of device 0, its stream of device 1");
}

static void destroying_a_plan_runs_what_it_has_queued(void **state)
{
    size_t area;
    cudaStream_t s = new_stream(0);
    cufftHandle plan = new_plan(0, 8, 8, 1, CUFFT_C2C, &area);
    cufftComplex *v = new_buffer(0, 64 * sizeof *v);

    (void)state;
    ok(cufftSetStream(plan, s));
    ok(cufftExecC2C(plan, v, v, CUFFT_FORWARD));
    assert_int_equal(xpe_emu_count().transforms, 0);
    ok(cufftDestroy(plan));
    assert_int_equal(xpe_emu_count().transforms, 1);
    ok(cudaFree(v));
    ok(cudaStreamDestroy(s));
}

/* Zeros on one stream, ones on another; whether both come out right when they share a work area. */
static bool zeros_stay_zeros(uint64_t seed, bool shared)
{
    size_t area;
    cudaStream_t s[2];
    cufftHandle plan[2];
    cufftComplex *v[2], back[2][64];
    void *work[2];

    xpe_emu_begin(1, MIB, seed);
    for (int i = 0; i < 2; i++) {
        s[i] = new_stream(0);
        plan[i] = new_plan(0, 4, 4, 4, CUFFT_C2C, &area);
        v[i] = new_buffer(0, sizeof back[i]);
        work[i] = new_buffer(0, area);
        ok(cudaMemsetAsync(v[i], i ? 0x3f : 0, sizeof back[i], s[i]));
        finish(0, s[i]);
    }
    for (int i = 0; i < 2; i++) {
        ok(cufftSetStream(plan[i], s[i]));
        ok(cufftSetWorkArea(plan[i], work[shared ? 0 : i]));
        ok(cufftExecC2C(plan[i], v[i], v[i], CUFFT_FORWARD));
    }
    for (int i = 0; i < 2; i++) {
        finish(0, s[i]);
        ok(cudaMemcpyAsync(back[i], v[i], sizeof back[i], cudaMemcpyDeviceToHost, s[i]));
        ok(cufftDestroy(plan[i]));
        ok(cudaFree(v[i]));
        ok(cudaFree(work[i]));
        ok(cudaStreamDestroy(s[i]));
    }
    return back[0][0].x == 0 && back[1][0].x > 1;
}

static void a_work_area_shared_by_two_streams_shows(void **state)
{
    int right = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        assert_true(zeros_stay_zeros(seed, false));
        right += zeros_stay_zeros(seed, true);
    }
    assert_true(right < SEEDS * 19 / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fact(transforms_follow_the_definition),
        fact(large_transforms_agree_with_fftw),
        fact(the_inverse_undoes_the_transform_times_the_points),
        fact(bits_do_not_depend_on_the_batch),
        fact(double_precision_is_double_precision),
        fact(plans_say_what_is_wrong_with_them),
        fact(misused_plans_end_the_program),
        fact(destroying_a_plan_runs_what_it_has_queued),
        fact(a_work_area_shared_by_two_streams_shows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
