/* The engine knows no JSON and states its defaults itself; they are those of openapi.json. */
#include "documents.h"

#include "xptychod/engine.h"

static void engine_defaults_are_those_of_a_job(void **state)
{
    json_t *doc =
        document("{'scan':{'path':'/x.h5'},'recon':[{},{'algorithm':'refine_positions'}]}");
    xpp_job *job = xpp_job_decode(doc);
    const xpp_stage *stage = &job->stages[0];
    xpe_stage engine = xpe_stage_default();

    (void)state;
    assert_int_equal(engine.algorithm, XPE_PMACE);
    assert_int_equal(engine.iterations, stage->iterations);
    assert_true(engine.object_data_fit == stage->object_data_fit);
    assert_true(engine.probe_data_fit == stage->probe_data_fit);
    assert_true(engine.probe_weight_exponent == stage->probe_weight_exponent);
    assert_true(engine.relaxation == stage->relaxation);
    assert_int_equal(engine.schedule_count, stage->mode_schedule_count);
    assert_true(engine.mode_energy_fraction == stage->mode_energy_fraction);
    assert_int_equal(engine.orthogonalize_modes, stage->orthogonalize_modes);
    assert_true(engine.fresnel_distance_m == 0 && engine.fresnel_radius_pixels == 0);
    assert_int_equal(engine.batch_size, stage->batch_size);
    assert_int_equal(engine.report_every, stage->report_every);
    assert_int_equal(engine.max_shift, job->stages[1].max_shift);
    xpp_job_free(job);
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(engine_defaults_are_those_of_a_job)};

    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
