/* Files that are replaced whole, and files that are read with a limit. */
#include "scene.h"

#include "files.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void replace_writes_all_and_leaves_nothing_beside(void **state)
{
    char path[PATH_MAX], beside[PATH_MAX + 8];
    char *text;
    size_t size;

    assert_true(xpd_path_join(path, sizeof path, *state, "a.txt"));
    assert_int_equal(xpd_file_replace(path, "first", 5, NULL), XPE_OK);
    assert_int_equal(xpd_file_replace(path, "second!", 7, NULL), XPE_OK);
    assert_int_equal(xpd_file_read(&text, &size, path, 100, NULL), XPE_OK);
    assert_int_equal(size, 7);
    assert_string_equal(text, "second!");
    free(text);
    snprintf(beside, sizeof beside, "%s.tmp", path);
    assert_int_equal(access(beside, F_OK), -1);
}

static void replace_says_why_it_cannot(void **state)
{
    xpe_error err = {0};

    (void)state;
    assert_int_equal(xpd_file_replace("/nonexistent/x", "a", 1, &err), XPE_IO);
    assert_non_null(strstr(err.text, "No such file"));
}

static void replace_never_follows_a_link_beside(void **state)
{
    char path[PATH_MAX], beside[PATH_MAX + 8], victim[PATH_MAX];
    struct stat st;

    assert_true(xpd_path_join(path, sizeof path, *state, "b.txt"));
    assert_true(xpd_path_join(victim, sizeof victim, *state, "victim"));
    snprintf(beside, sizeof beside, "%s.tmp", path);
    assert_int_equal(xpd_file_replace(victim, "keep", 4, NULL), XPE_OK);
    assert_int_equal(symlink(victim, beside), 0);
    assert_int_equal(xpd_file_replace(path, "evil text", 9, NULL), XPE_IO);
    assert_int_equal(stat(victim, &st), 0);
    assert_int_equal(st.st_size, 4);
}

/* A limit of file size stands for a full disk: the write itself fails. */
static void write_that_fails_keeps_the_old_file(void **state)
{
    char path[PATH_MAX], beside[PATH_MAX + 8], *text;
    struct rlimit before, small;
    xpe_error err = {0};
    size_t size;

    assert_true(xpd_path_join(path, sizeof path, *state, "d.txt"));
    snprintf(beside, sizeof beside, "%s.tmp", path);
    assert_int_equal(xpd_file_replace(path, "old", 3, NULL), XPE_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(xpd_file_replace(path, "new and longer", 14, &err), XPE_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(err.text, "cannot write"));
    assert_int_equal(access(beside, F_OK), -1);
    assert_int_equal(xpd_file_read(&text, &size, path, 100, NULL), XPE_OK);
    assert_string_equal(text, "old");
    free(text);
}

static void read_refuses_what_is_too_long(void **state)
{
    char path[PATH_MAX];
    xpe_error err = {0};
    char *text = NULL;
    size_t size;

    assert_true(xpd_path_join(path, sizeof path, *state, "c.txt"));
    assert_int_equal(xpd_file_replace(path, "0123456789", 10, NULL), XPE_OK);
    assert_int_equal(xpd_file_read(&text, &size, path, 9, &err), XPE_INVALID);
    assert_null(text);
    assert_int_equal(xpd_file_read(&text, &size, path, 10, &err), XPE_OK);
    free(text);
}

static void paths_that_do_not_fit_are_refused(void **state)
{
    char small[8];

    (void)state;
    assert_false(xpd_path_join(small, sizeof small, "/folder", "name"));
    assert_true(xpd_path_join(small, sizeof small, "/f", "name"));
    assert_true(xpd_path_absolute(small, sizeof small, "/abc"));
    assert_string_equal(small, "/abc");
    assert_false(xpd_path_absolute(small, sizeof small, "relative"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replace_writes_all_and_leaves_nothing_beside),
        cmocka_unit_test(replace_says_why_it_cannot),
        cmocka_unit_test(replace_never_follows_a_link_beside),
        cmocka_unit_test(write_that_fails_keeps_the_old_file),
        cmocka_unit_test(read_refuses_what_is_too_long),
        cmocka_unit_test(paths_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, scene_folder_make, scene_folder_remove);
}
