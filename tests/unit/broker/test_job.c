/* The states of a job, its row and its document. */
#include "support.h"

#include <math.h>

static void only_the_listed_moves_are_allowed(void **state)
{
    static const char *const moves[] = {
        "queued held",     "queued starting",    "queued failed",    "queued cancelled",
        "held queued",     "held cancelled",     "starting running", "starting queued",
        "starting failed", "starting cancelled", "running queued",   "running succeeded",
        "running failed",  "running cancelled"};
    size_t found = 0;

    (void)state;
    for (int from = 0; from < XPD_JOB_STATES; from++) {
        for (int to = 0; to < XPD_JOB_STATES; to++) {
            char text[64];
            bool listed = false;
            snprintf(text, sizeof text, "%s %s", xpd_state_name((xpd_state)from),
                     xpd_state_name((xpd_state)to));
            for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
                listed = listed || strcmp(moves[i], text) == 0;
            found += listed;
            assert_int_equal(listed, xpd_state_allowed((xpd_state)from, (xpd_state)to));
        }
    }
    assert_int_equal(found, sizeof moves / sizeof *moves);
}

static void nothing_leaves_a_terminal_state(void **state)
{
    (void)state;
    for (int from = XPD_JOB_SUCCEEDED; from < XPD_JOB_STATES; from++) {
        assert_true(xpd_state_terminal((xpd_state)from));
        for (int to = 0; to < XPD_JOB_STATES; to++)
            assert_false(xpd_state_allowed((xpd_state)from, (xpd_state)to));
    }
    assert_false(xpd_state_terminal(XPD_JOB_RUNNING));
}

static void state_names_are_found_and_others_not(void **state)
{
    xpd_state found;
    (void)state;
    for (int i = 0; i < XPD_JOB_STATES; i++) {
        assert_true(xpd_state_find(&found, xpd_state_name((xpd_state)i)));
        assert_int_equal(found, i);
    }
    assert_false(xpd_state_find(&found, "asleep"));
    assert_false(xpd_state_find(&found, ""));
}

static void row_and_back_is_the_same_job(void **state)
{
    xpd_job *job = small_job(3, -5);
    (void)state;
    job->rev = 4;
    job->state = XPD_JOB_RUNNING;
    job->attempts = 1;
    job->started_ms = 17;
    job->queued_ms = 16;
    job->frames = 144;
    job->side = 64;
    job->class = XPD_CLASS_BATCH;
    job->yielded = 2;
    job->needs = (xpd_needs){true, 5, 6, 7, 8};
    job->folder_device = 9;
    job->folder_inode = INT64_C(1) << 40;
    job->artefact_bytes = 11;
    json_t *labels = json_pack("{s:s}", "a", "b");
    assert_true(xpd_job_set_labels(job, labels));
    json_decref(labels);
    json_t *name = json_string("another \"name\"");
    assert_true(xpd_job_set_name(job, name));
    json_decref(name);
    job->idem_key = strdup("key");
    job->idem_sha = strdup("sha");
    job->devices = json_pack("[s, s]", "cpu", "cpu");
    job->result = json_pack("{s:f}", "data_error", 0.1);
    job->progress = (xpd_progress){true, 0, 5, 2, 0.3};
    snprintf(job->detail, sizeof job->detail, "a \"detail\"");
    xpd_row *row = xpd_job_row(job);
    assert_non_null(row);
    xpd_job *back = xpd_job_from_row(row);
    assert_non_null(back);
    json_t *a = xpd_job_document(job, NULL, true), *b = xpd_job_document(back, NULL, true);
    assert_true(json_equal(a, b));
    assert_int_equal(back->number, 3);
    assert_int_equal(back->class, XPD_CLASS_BATCH);
    assert_int_equal(back->yielded, 2);
    assert_true(back->needs.known && back->needs.device == 5 && back->needs.checkpoints == 8);
    assert_int_equal(back->folder_device, 9);
    assert_int_equal(back->folder_inode, INT64_C(1) << 40);
    assert_int_equal(back->artefact_bytes, 11);
    assert_int_equal(back->uid, 1000);
    assert_int_equal(back->queued_ms, 16);
    assert_int_equal(back->frames, 144);
    assert_int_equal(back->side, 64);
    assert_string_equal(json_string_value(json_object_get(json_object_get(b, "labels"), "a")), "b");
    assert_string_equal(xpd_job_name(back), "another \"name\"");
    assert_string_equal(back->idem_key, "key");
    assert_string_equal(back->doc, job->doc);
    json_decref(a);
    json_decref(b);
    xpd_row_free(row);
    xpd_job_unref(back);
    xpd_job_unref(job);
}

static void a_row_without_sense_makes_no_job(void **state)
{
    xpd_job *job = small_job(1, 0);
    (void)state;
    xpd_row *row = xpd_job_row(job);
    snprintf(row->state, sizeof row->state, "sleeping");
    assert_null(xpd_job_from_row(row));
    snprintf(row->state, sizeof row->state, "queued");
    snprintf(row->id, sizeof row->id, "short");
    assert_null(xpd_job_from_row(row));
    memcpy(row->id, job->id, sizeof row->id);
    free(row->resolved);
    row->resolved = strdup("[1");
    assert_null(xpd_job_from_row(row));
    xpd_row_free(row);
    xpd_job_unref(job);
}

static void a_list_entry_is_without_job_and_metadata(void **state)
{
    xpd_job *job = small_job(1, 0);
    (void)state;
    json_t *whole = xpd_job_document(job, json_pack("{s:i}", "position", 2), true),
           *thin = xpd_job_document(job, json_pack("{s:i}", "position", 2), false);
    assert_non_null(json_object_get(whole, "job"));
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(whole, "metadata"), "scan")), "A");
    assert_null(json_object_get(thin, "job"));
    assert_null(json_object_get(thin, "metadata"));
    assert_int_equal(json_integer_value(json_object_get(thin, "queue_position")), 2);
    assert_true(json_is_null(json_object_get(thin, "progress")));
    json_decref(whole);
    json_decref(thin);
    xpd_job_unref(job);
}

static void progress_that_is_not_finite_is_null(void **state)
{
    xpd_job *job = small_job(1, 0);
    (void)state;
    job->progress = (xpd_progress){true, 0, 3, 1, NAN};
    json_t *doc = xpd_job_document(job, NULL, false), *progress = json_object_get(doc, "progress");
    assert_true(json_is_null(json_object_get(progress, "data_error")));
    assert_int_equal(json_integer_value(json_object_get(progress, "iterations")), 7);
    json_decref(doc);
    xpd_job_unref(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_listed_moves_are_allowed),
        cmocka_unit_test(nothing_leaves_a_terminal_state),
        cmocka_unit_test(state_names_are_found_and_others_not),
        cmocka_unit_test(row_and_back_is_the_same_job),
        cmocka_unit_test(a_row_without_sense_makes_no_job),
        cmocka_unit_test(a_list_entry_is_without_job_and_metadata),
        cmocka_unit_test(progress_that_is_not_finite_is_null),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
