/* Whether a result can be written (daemon/reader/output.c). */
#include "reader/output.h"
#include "sample.h"
#include "temporary.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char folder[256], path[512];

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/out.h5", temporary_make(folder, sizeof folder));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(folder);
    return 0;
}

static void refused(const char *name, bool overwrite, const xpe_roots *roots, const char *word)
{
    xpd_output_place found;
    xpe_error err;

    assert_int_equal(xpd_output_check(&found, name, overwrite, roots, &err), XPE_INVALID);
    assert_false(found.exists);
    assert_string_equal(err.pointer, "/output/path");
    assert_non_null(strstr(err.text, word));
}

static void a_free_name_in_a_write_root_is_good_and_stays_free(void **state)
{
    const char *const folders[] = {folder};
    const xpe_roots roots = {folders, 1};
    xpd_output_place found;
    xpe_error err;

    (void)state;
    assert_int_equal(xpd_output_check(&found, path, false, &roots, &err), XPE_OK);
    assert_int_equal(xpd_output_check(&found, path, true, NULL, &err), XPE_OK);
    assert_false(found.exists);
    assert_int_equal(temporary_count(folder), 0);
}

static void places_that_cannot_be_written_are_refused(void **state)
{
    const char *const folders[] = {"/nowhere"};
    const xpe_roots roots = {folders, 1};
    char missing[600], link[600];

    (void)state;
    snprintf(missing, sizeof missing, "%s/none/out.h5", folder);
    refused(missing, false, NULL, "does not exist");
    refused(path, false, &roots, "outside");
    refused("/proc/out.h5", false, NULL, "cannot be written"); /* not even by the superuser */
    refused("out.h5", false, NULL, "absolute");
    snprintf(missing, sizeof missing, "%s/", folder);
    refused(missing, false, NULL, "folder");
    refused(folder, false, NULL, "folder");
    refused("/proc/version/out.h5", false, NULL, "not a folder");
    /* a link out of the roots is followed before it is judged */
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("/tmp", link), 0);
    snprintf(missing, sizeof missing, "%s/link/out.h5", folder);
    refused(missing, false, &(xpe_roots){(const char *const[]){folder}, 1}, "outside");
}

static void a_folder_without_permission_is_refused(void **state)
{
    (void)state;
    if (geteuid() == 0)
        skip(); /* root may write everywhere */
    assert_int_equal(chmod(folder, 0500), 0);
    refused(path, false, NULL, "Permission denied");
    assert_int_equal(chmod(folder, 0700), 0);
}

static void only_results_are_replaced_and_only_on_request(void **state)
{
    xpd_output_place found;
    xpe_written written;
    xpe_error err;
    char detour[600];
    sample s;
    int fd = open(path, O_CREAT | O_WRONLY, 0600);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    refused(path, false, NULL, "exists");
    refused(path, true, NULL, "not a result");
    sample_make(&s);
    assert_int_equal(xpe_result_write(&written, path, true, &s.result, &err), XPE_OK);
    refused(path, false, NULL, "exists");
    assert_int_equal(xpd_output_check(&found, path, true, NULL, &err), XPE_OK);
    assert_true(found.exists);
    assert_int_equal(found.inode, written.inode);
    assert_int_equal(found.bytes, written.bytes);
    assert_int_equal(found.mtime_ns, written.mtime_ns);
    /* another name of the same file */
    snprintf(detour, sizeof detour, "%s/./%s", folder, strrchr(path, '/') + 1);
    assert_int_equal(xpd_output_check(&found, detour, true, NULL, &err), XPE_OK);
    assert_int_equal(found.inode, written.inode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_free_name_in_a_write_root_is_good_and_stays_free, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(places_that_cannot_be_written_are_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_folder_without_permission_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_results_are_replaced_and_only_on_request, set_up,
                                        tear_down),
    };

    xpe_read_init();
    xpe_write_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
