/* Files that appear whole or not at all (engine/io/write/file.c). */
#include "io/read/read.h"
#include "sample.h"
#include "temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

static char folder[256], path[512];
static sample s;

static int set_up(void **state)
{
    (void)state;
    sample_make(&s);
    snprintf(path, sizeof path, "%s/out.h5", temporary_make(folder, sizeof folder));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(folder);
    return 0;
}

static void an_existing_file_is_kept_without_overwrite(void **state)
{
    xpe_written first, second;
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_result_write(&first, path, false, &s.result, &err), XPE_OK);
    assert_int_equal(xpe_result_write(&second, path, false, &s.result, &err), XPE_INVALID);
    assert_string_equal(err.pointer, "/output/path");
    assert_non_null(strstr(err.text, "exists"));
    assert_int_equal(temporary_count(folder), 1);
    assert_int_equal(xpe_result_write(&second, path, true, &s.result, &err), XPE_OK);
    assert_int_equal(temporary_count(folder), 1);
    assert_int_not_equal(first.inode, second.inode);
}

static void only_regular_files_are_replaced(void **state)
{
    xpe_written written;
    xpe_error err;

    (void)state;
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(xpe_result_write(&written, path, true, &s.result, &err), XPE_INVALID);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(temporary_count(folder), 1);
}

/* What a user may do to a folder of their own while the result is written. */
static void swap_the_folder(void *context, const xpe_written *written)
{
    (void)written;
    assert_int_equal(rename(folder, context), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void a_folder_that_was_replaced_is_not_written_into(void **state)
{
    char aside[600];
    xpe_written written;
    struct stat st;
    xpe_error err;
    sample a;

    (void)state;
    sample_make(&a);
    assert_int_equal(stat(folder, &st), 0);
    a.result.folder = (xpe_folder){(uint64_t)st.st_dev, (uint64_t)st.st_ino + 1};
    assert_int_equal(xpe_result_write(&written, path, false, &a.result, &err), XPE_INVALID);
    assert_non_null(strstr(err.text, "its folder was replaced"));
    assert_int_equal(temporary_count(folder), 0);
    /* once it is open, the file stays where it was begun */
    snprintf(aside, sizeof aside, "%s.aside", folder);
    a.result.folder.inode--;
    a.result.whole = swap_the_folder;
    a.result.whole_context = aside;
    assert_int_equal(xpe_result_write(&written, path, false, &a.result, &err), XPE_OK);
    assert_int_equal(temporary_count(folder), 0);
    assert_int_equal(temporary_count(aside), 1);
    temporary_remove(aside);
}

/* What the last writer but one left, and one who is at it still. */
static void what_a_killed_writer_left_is_removed_and_nothing_else(void **state)
{
    static const char *const names[] = {".out.h5.0123456789abcdef", ".out.h5.00000000deadbeef",
                                        ".out.h5.0123456789abcdeg", ".other.h5.0123456789abcdef",
                                        ".out.h5.0123456789abcdef0"};
    char other[600];
    xpe_written written;
    xpe_error err;
    int fds[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, names[i]);
        fds[i] = open(other, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fds[i] >= 0);
    }
    assert_int_equal(flock(fds[1], LOCK_EX), 0); /* a writer that lives */
    assert_int_equal(xpe_result_write(&written, path, false, &s.result, &err), XPE_OK);
    assert_int_equal(temporary_count(folder), 5);
    for (int i = 0; i < 5; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, names[i]);
        assert_int_equal(access(other, F_OK), i == 0 ? -1 : 0);
        close(fds[i]);
    }
}

static void a_missing_folder_and_a_missing_name_are_told(void **state)
{
    char other[600];
    xpe_written written;
    xpe_error err;

    (void)state;
    snprintf(other, sizeof other, "%s/none/out.h5", folder);
    assert_int_equal(xpe_result_write(&written, other, false, &s.result, &err), XPE_IO);
    assert_non_null(strstr(err.text, "No such file"));
    snprintf(other, sizeof other, "%s/", folder);
    assert_int_equal(xpe_result_write(&written, other, false, &s.result, &err), XPE_INVALID);
    assert_int_equal(temporary_count(folder), 0);
}

/* Returns 0, or which expectation failed. */
static int fail_in_mid_write(void)
{
    struct rlimit before, small;
    xpe_written written;
    xpe_error err;
    xpe_status st;

    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &before) != 0)
        return 1;
    small = (struct rlimit){4096, before.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0)
        return 2;
    st = xpe_result_write(&written, path, false, &s.result, &err);
    if (setrlimit(RLIMIT_FSIZE, &before) != 0)
        return 3;
    if (st != XPE_IO)
        return 4;
    if (!strstr(err.text, strerror(EFBIG)))
        return 5;
    if (temporary_count(folder) != 0)
        return 6;
    /* and the next one is none the worse */
    if (xpe_result_write(&written, path, false, &s.result, &err) != XPE_OK)
        return 7;
    return xpe_file_is_result(path, NULL) ? 0 : 8;
}

/* A limit on file sizes stands for a disk that fills up in mid-write.  In a process of its own,
 * since HDF5 never frees a file that it could not close. */
static void a_write_that_fails_leaves_nothing_and_says_why(void **state)
{
    int status = 0;
    pid_t child = fork();

    (void)state;
    if (child == 0)
        _exit(fail_in_mid_write());
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void more_than_the_disk_has_is_refused_before_writing(void **state)
{
    xpe_written written;
    xpe_error err;
    xpe_grid huge = s.grid;

    (void)state;
    huge.rows = (int64_t)1 << 29; /* 20 * 2^58 bytes: nothing of it is touched */
    huge.cols = (int64_t)1 << 29;
    s.result.grid = &huge;
    assert_int_equal(xpe_result_write(&written, path, false, &s.result, &err), XPE_IO);
    assert_non_null(strstr(err.text, "the disk is full"));
    assert_int_equal(temporary_count(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_existing_file_is_kept_without_overwrite, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(only_regular_files_are_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_was_replaced_is_not_written_into, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_a_killed_writer_left_is_removed_and_nothing_else,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_folder_and_a_missing_name_are_told, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_write_that_fails_leaves_nothing_and_says_why, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(more_than_the_disk_has_is_refused_before_writing, set_up,
                                        tear_down),
    };

    xpe_write_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
