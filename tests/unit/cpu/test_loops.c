/* The loops of every instruction-set level give the bits of the scalar arithmetic of engine/math
 * (cpu/loops.h): at every length, so that vector bodies and their remainders are met, and for zeros
 * of both signs, masked pixels, denormal and large values. */
#include "cpu/loops.h"

#include "math/fit.h"
#include "math/relax.h"
#include "synthetic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define LENGTHS 67
#define ROOM ((LENGTHS + 1) * XPE_GROUP)

/* Everything that a loop reads or writes; compared as a whole, so that writing too far is noticed.
 */
typedef struct scene {
    xpe_c32 a[ROOM], b[ROOM], c[ROOM], d[ROOM];
    float y[ROOM], f[ROOM], positive[ROOM];
    double sums[XPE_GROUP];
    int64_t sum[2 * ROOM], more[2 * ROOM];
    xpe_unit unit;
    int64_t result;
} scene;

typedef struct loop {
    const char *name;
    void (*run)(const xpe_loops *l, scene *s, int64_t n);
    void (*right)(scene *s, int64_t n); /* the same with the scalar functions */
} loop;

/* ----------------------------------------------------------------------------------- the loops */

#define EACH(count)                                                                                \
    int64_t i = 0;                                                                                 \
    i < (count);                                                                                   \
    i++

static void run_product(const xpe_loops *l, scene *s, int64_t n)
{
    l->product(s->a, s->b, s->c, n);
}
static void right_product(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_mul(s->b[i], s->c[i]);
}

static void run_advance_product(const xpe_loops *l, scene *s, int64_t n)
{
    l->advance_product(s->a, s->b, s->c, s->d, 1.3f, n);
}
static void right_advance_product(scene *s, int64_t n)
{
    for (EACH(n)) {
        s->b[i] = xpe_advance(s->b[i], s->c[i], 1.3f);
        s->a[i] = xpe_mul(s->d[i], s->b[i]);
    }
}

static void run_advance(const xpe_loops *l, scene *s, int64_t n)
{
    l->advance(s->a, s->b, 0.7f, n);
}
static void right_advance(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_advance(s->a[i], s->b[i], 0.7f);
}

static void run_intensity(const xpe_loops *l, scene *s, int64_t n)
{
    l->intensity(s->f, s->a, n, false);
}
static void right_intensity(scene *s, int64_t n)
{
    for (EACH(n))
        s->f[i] = xpe_energy(s->a[i]);
}

static void run_intensity_added(const xpe_loops *l, scene *s, int64_t n)
{
    l->intensity(s->f, s->a, n, true);
}
static void right_intensity_added(scene *s, int64_t n)
{
    for (EACH(n))
        s->f[i] += xpe_energy(s->a[i]);
}

static void run_replace(const xpe_loops *l, scene *s, int64_t n)
{
    l->replace(s->a, s->y, n);
}
static void right_replace(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_scale(s->a[i], xpe_gain(s->y[i], xpe_energy(s->a[i])));
}

static void run_gain(const xpe_loops *l, scene *s, int64_t n)
{
    l->gain(s->positive, s->y, n);
}
static void right_gain(scene *s, int64_t n)
{
    for (EACH(n))
        s->positive[i] = xpe_gain(s->y[i], s->positive[i]);
}

static void run_scale(const xpe_loops *l, scene *s, int64_t n)
{
    l->scale(s->a, s->f, n);
}
static void right_scale(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_scale(s->a[i], s->f[i]);
}

/* The sign of a zero, and what is too small for float32 to hold the phase of, says nothing here. */
static void drop_nothings(scene *s, int64_t n)
{
    for (EACH(n)) {
        s->a[i].re = fabsf(s->a[i].re) < 1e-36f ? 0 : s->a[i].re;
        s->a[i].im = fabsf(s->a[i].im) < 1e-36f ? 0 : s->a[i].im;
    }
}
static void run_impose(const xpe_loops *l, scene *s, int64_t n)
{
    l->impose(s->a, s->b, s->positive, n);
    drop_nothings(s, n);
}
/* Where the copy's field is 0 (or its square is, in float32) its phase factor is 1: the amplitude
 * stays, times the checkerboard that the engine's fields carry (trap 5). */
static void right_impose(scene *s, int64_t n)
{
    for (EACH(n)) {
        float wanted = s->positive[i] * sqrtf(xpe_energy(s->b[i])), energy = xpe_energy(s->a[i]);
        if (energy > 0)
            s->a[i] = xpe_scale(s->a[i], xpe_phase_scale(wanted, energy));
        else
            s->a[i] = xpe_c((i / XPE_GROUP + i) % 2 ? -wanted : wanted, 0);
    }
    drop_nothings(s, n);
}

static void run_misfit(const xpe_loops *l, scene *s, int64_t n)
{
    l->misfit(s->sums, s->positive, s->y, n);
}
static void right_misfit(scene *s, int64_t n)
{
    for (EACH(n * XPE_GROUP)) {
        double m = (double)xpe_misfit(s->y[i], s->positive[i]);
        s->sums[i % XPE_GROUP] += m * m;
    }
}

static void run_misfit_one(const xpe_loops *l, scene *s, int64_t n)
{
    l->misfit_one(s->sums, s->a, s->y, n);
}
static void right_misfit_one(scene *s, int64_t n)
{
    for (EACH(n * XPE_GROUP)) {
        double m = (double)xpe_misfit(s->y[i], xpe_energy(s->a[i]));
        s->sums[i % XPE_GROUP] += m * m;
    }
}

static void run_residual(const xpe_loops *l, scene *s, int64_t n)
{
    s->result = l->residual(s->positive, s->y, n);
}
static void right_residual(scene *s, int64_t n)
{
    s->result = 0;
    for (EACH(n)) {
        s->positive[i] = xpe_residual(s->y[i], s->positive[i]);
        s->result |= s->positive[i] > 0;
    }
}

static void run_weigh(const xpe_loops *l, scene *s, int64_t n)
{
    l->weigh(s->a, s->b, s->c, n, false);
}
static void run_weigh_added(const xpe_loops *l, scene *s, int64_t n)
{
    l->weigh(s->a, s->b, s->c, n, true);
}
static void right_weigh_added(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_add(s->a[i], xpe_mul(s->b[i], s->c[i]));
}

static void run_relax(const xpe_loops *l, scene *s, int64_t n)
{
    s->result = l->relax(s->a, s->b, s->c, 0.4f, 1.1f, n);
}
static void right_relax(scene *s, int64_t n)
{
    float most = 0;
    int32_t bits;

    for (EACH(n)) {
        float energy;
        s->a[i] = xpe_blend(s->b[i], s->c[i], 0.4f);
        s->b[i] = xpe_retreat(s->b[i], s->a[i], 1.1f);
        energy = xpe_energy(s->b[i]);
        most = energy > most ? energy : most;
    }
    memcpy(&bits, &most, sizeof bits);
    s->result = bits;
}

static void run_sum_weighted(const xpe_loops *l, scene *s, int64_t n)
{
    l->sum_weighted(s->sum, s->f, s->a, s->unit, n);
}
static void right_sum_weighted(scene *s, int64_t n)
{
    for (EACH(n)) {
        s->sum[2 * i] += xpe_fix(s->f[i] * s->a[i].re, s->unit.magic, s->unit.bias);
        s->sum[2 * i + 1] += xpe_fix(s->f[i] * s->a[i].im, s->unit.magic, s->unit.bias);
    }
}

static void run_sum_plain(const xpe_loops *l, scene *s, int64_t n)
{
    l->sum_plain(s->sum, s->a, s->unit, n);
}
static void right_sum_plain(scene *s, int64_t n)
{
    for (EACH(n)) {
        s->sum[2 * i] += xpe_fix(s->a[i].re, s->unit.magic, s->unit.bias);
        s->sum[2 * i + 1] += xpe_fix(s->a[i].im, s->unit.magic, s->unit.bias);
    }
}

static void run_sum_real(const xpe_loops *l, scene *s, int64_t n)
{
    l->sum_real(s->sum, s->f, s->unit, n);
}
static void right_sum_real(scene *s, int64_t n)
{
    for (EACH(n))
        s->sum[i] += xpe_fix(s->f[i], s->unit.magic, s->unit.bias);
}

static void run_copy_state(const xpe_loops *l, scene *s, int64_t n)
{
    l->copy_state(s->a, s->b, s->c, s->positive, 0.9f, n);
}
static void right_copy_state(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_replace_outlier(xpe_advance(s->a[i], s->b[i], 0.9f), s->c[i], s->positive[i]);
}

static void run_divide(const xpe_loops *l, scene *s, int64_t n)
{
    l->divide(s->a, s->b, s->c, 1e-3f, 0.6f, n);
}
static void right_divide(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_mul(s->b[i], xpe_scale(xpe_divider(s->c[i], 1e-3f), 0.6f));
}

static void run_sum_deviation(const xpe_loops *l, scene *s, int64_t n)
{
    l->sum_deviation(s->sum, s->a, s->b, s->c, 0.9f, s->unit, n);
}
static void right_sum_deviation(scene *s, int64_t n)
{
    for (EACH(n))
        s->sum[i] += xpe_fix(xpe_deviation(xpe_advance(s->a[i], s->b[i], 0.9f), s->c[i]),
                             s->unit.magic, s->unit.bias);
}

static void run_add_int(const xpe_loops *l, scene *s, int64_t n)
{
    l->add_int(s->sum, s->more, n);
}
static void right_add_int(scene *s, int64_t n)
{
    for (EACH(n))
        s->sum[i] += s->more[i];
}

static void run_multiply(const xpe_loops *l, scene *s, int64_t n)
{
    l->multiply(s->a, 0.976f, n);
}
static void right_multiply(scene *s, int64_t n)
{
    for (EACH(n))
        s->a[i] = xpe_scale(s->a[i], 0.976f);
}

#define LOOP(name)                                                                                 \
    {                                                                                              \
#name, run_##name, right_##name                                                            \
    }
static const loop loops[] = {
    LOOP(product),
    LOOP(advance_product),
    LOOP(advance),
    LOOP(intensity),
    LOOP(intensity_added),
    LOOP(replace),
    LOOP(gain),
    LOOP(scale),
    LOOP(impose),
    LOOP(misfit),
    LOOP(misfit_one),
    LOOP(residual),
    {"weigh", run_weigh, right_product},
    LOOP(weigh_added),
    LOOP(relax),
    LOOP(sum_weighted),
    LOOP(sum_plain),
    LOOP(sum_real),
    LOOP(copy_state),
    LOOP(divide),
    LOOP(sum_deviation),
    LOOP(add_int),
    LOOP(multiply),
};
#define LOOPS (sizeof loops / sizeof *loops)

/* ---------------------------------------------------------------------------------- the scenes */

/* Plain numbers, or among them zeros of both signs, denormals, and numbers whose squares are still
 * finite. */
static float number(xpt_random *r, bool special)
{
    static const float rare[] = {0.0f,    -0.0f, 1e-42f, -1e-42f, 1e-20f,
                                 -1e-20f, 1e9f,  -1e9f,  1.0f,    -1.0f};

    if (special && xpt_random_below(r, 3) == 0)
        return rare[xpt_random_below(r, (int64_t)(sizeof rare / sizeof *rare))];
    return (float)xpt_random_sign(r);
}

static void fill(scene *s, uint64_t seed, bool special)
{
    xpt_random r = {seed};
    xpe_c32 *fields[] = {s->a, s->b, s->c, s->d};

    memset(s, 0, sizeof *s);
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < ROOM; i++)
            fields[k][i] = xpe_c(number(&r, special), number(&r, special));
    for (int i = 0; i < ROOM; i++) {
        bool masked = xpt_random_below(&r, 8) == 0;
        s->f[i] = number(&r, special);
        s->positive[i] = fabsf(number(&r, special));
        s->y[i] = masked ? -1.0f : fabsf(number(&r, special));
    }
    for (int i = 0; i < 2 * ROOM; i++) {
        s->sum[i] = (int64_t)(xpt_random_bits(&r) >> 4);
        s->more[i] = (int64_t)(xpt_random_bits(&r) >> 4) - (INT64_C(1) << 58);
    }
    for (int i = 0; i < XPE_GROUP; i++)
        s->sums[i] = xpt_random_unit(&r);
    s->unit = xpe_unit_make(special ? 4e18 : 4.0, 3);
}

static void compare(const xpe_loops *level, const loop *l, bool special)
{
    static scene got, right;

    for (int64_t n = 0; n <= LENGTHS; n++) {
        uint64_t seed = (uint64_t)n * 131 + special;
        fill(&got, seed, special);
        fill(&right, seed, special);
        l->run(level, &got, n);
        l->right(&right, n);
        if (memcmp(&got, &right, sizeof got) != 0)
            fail_msg("level %s, loop %s, length %lld, %s numbers", level->name, l->name,
                     (long long)n, special ? "special" : "plain");
    }
}

static void every_level_gives_the_bits_of_the_scalar_arithmetic(void **state)
{
    (void)state;
    for (int level = 0; xpe_loops_level(level); level++) {
        printf("level %s\n", xpe_loops_level(level)->name);
        for (size_t i = 0; i < LOOPS; i++)
            compare(xpe_loops_level(level), &loops[i], false);
    }
}

static void special_values_give_the_same_bits_too(void **state)
{
    (void)state;
    for (int level = 0; xpe_loops_level(level); level++)
        for (size_t i = 0; i < LOOPS; i++)
            compare(xpe_loops_level(level), &loops[i], true);
}

static void the_best_level_is_the_last_that_the_processor_has(void **state)
{
    int levels = 0;

    (void)state;
    while (xpe_loops_level(levels))
        levels++;
    assert_true(levels >= 1);
    assert_ptr_equal(xpe_loops_best(), xpe_loops_level(levels - 1));
    assert_null(xpe_loops_level(levels + 1));
    assert_null(xpe_loops_level(-1));
}

static void a_nan_gets_through_the_largest_value(void **state)
{
    (void)state; /* so that a diverging run is noticed */
    for (int level = 0; xpe_loops_level(level); level++)
        for (int64_t at = 0; at < LENGTHS; at += 5) {
            static scene s;
            int32_t bits;
            float most;
            fill(&s, 9, false);
            s.b[at].re = NAN;
            bits = xpe_loops_level(level)->relax(s.a, s.b, s.c, 0.4f, 1.1f, LENGTHS);
            memcpy(&most, &bits, sizeof most);
            assert_true(isnan(most));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_gives_the_bits_of_the_scalar_arithmetic),
        cmocka_unit_test(special_values_give_the_same_bits_too),
        cmocka_unit_test(the_best_level_is_the_last_that_the_processor_has),
        cmocka_unit_test(a_nan_gets_through_the_largest_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
