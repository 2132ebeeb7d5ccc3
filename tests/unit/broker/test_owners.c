/* Whose results are whose after their jobs are forgotten. */
#include "support.h"

#include "owners.h"

static json_t *file(int inode, int bytes, json_int_t mtime_ns)
{
    return json_pack("{s:i, s:i, s:I}", "inode", inode, "bytes", bytes, "mtime_ns", mtime_ns);
}

static void forget(xpd_owners *owners, uid_t uid, int inode, int bytes, json_int_t mtime_ns)
{
    xpd_job *job = small_job(1, 0);
    xpd_note note;
    job->uid = uid;
    job->result = file(inode, bytes, mtime_ns);
    assert_false(xpd_owners_note(&note, job, 5)); /* in the service's own folder */
    json_object_set_new(job->head, "output", json_string("/out/a.h5"));
    assert_true(xpd_owners_note(&note, job, 5));
    xpd_owners_take(owners, &note);
    xpd_job_unref(job);
}

static bool is_other(const xpd_owners *owners, uid_t uid, int inode, int bytes, json_int_t mtime_ns)
{
    json_t *found = file(inode, bytes, mtime_ns);
    bool other = xpd_owners_other(owners, found, uid);
    json_decref(found);
    return other;
}

static void a_result_stays_its_owners_as_long_as_it_is_the_same_file(void **state)
{
    const json_int_t t = INT64_C(1790000000123456789);
    xpd_owners owners = {0};
    (void)state;
    for (int i = 0; i < 100; i++)
        forget(&owners, 1000, 100 + i, 7, t);
    assert_true(is_other(&owners, 1001, 150, 7, t));
    assert_false(is_other(&owners, 1000, 150, 7, t));
    assert_false(is_other(&owners, 1001, 150, 8, t));     /* written since */
    assert_false(is_other(&owners, 1001, 150, 7, t + 1)); /* the same */
    assert_false(is_other(&owners, 1001, 99, 7, t));
    forget(&owners, 1001, 150, 7, t); /* the newest word counts */
    assert_false(is_other(&owners, 1001, 150, 7, t));
    assert_true(is_other(&owners, 1000, 150, 7, t));
    xpd_owners_release(&owners);
}

static void a_job_without_a_result_leaves_no_word(void **state)
{
    xpd_job *job = small_job(1, 0);
    xpd_note note;
    (void)state;
    json_object_set_new(job->head, "output", json_string("/out/a.h5"));
    assert_false(xpd_owners_note(&note, job, 5));
    job->result = json_pack("{s:s}", "path", "/out/a.h5");
    assert_false(xpd_owners_note(&note, job, 5));
    json_decref(job->result);
    job->result = file(100, 7, 8);
    assert_true(xpd_owners_note(&note, job, 5));
    json_object_set_new(job->result, "owner", json_integer(1000)); /* it says so itself */
    assert_false(xpd_owners_note(&note, job, 5));
    xpd_job_unref(job);
}

static void other_notes_are_left_alone(void **state)
{
    static const char *const keys[] = {"use/1000", "own/1/2", "own/1/2/x", "own/1/2/3/4", "own/"};
    xpd_owners owners = {0};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        xpd_note note = {.n = 1};
        snprintf(note.key, sizeof note.key, "%s", keys[i]);
        xpd_owners_take(&owners, &note);
    }
    assert_int_equal(owners.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_stays_its_owners_as_long_as_it_is_the_same_file),
        cmocka_unit_test(a_job_without_a_result_leaves_no_word),
        cmocka_unit_test(other_notes_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
