/* Whether a result is still the file that was written. */
#include "support.h"

#include "download.h"

#include <sys/stat.h>

static json_t *result_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return json_pack("{s:s, s:I, s:I, s:I}", "path", path, "inode", (json_int_t)st.st_ino, "bytes",
                     (json_int_t)st.st_size, "mtime_ns",
                     (json_int_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
}

static void the_file_that_was_written_is_known_again(void **state)
{
    char path[256], other[256];

    path_in(path, sizeof path, *state, "r.h5");
    path_in(other, sizeof other, *state, "other.h5");
    write_text(path, "result");
    json_t *result = result_of(path);
    assert_true(xpd_result_is_there(result));
    assert_true(xpd_result_is_there(result));

    write_text(path, "another result");
    assert_false(xpd_result_is_there(result));
    json_decref(result);

    result = result_of(path);
    assert_int_equal(rename(path, other), 0);
    assert_false(xpd_result_is_there(result));
    assert_int_equal(symlink(other, path), 0); /* not through a link */
    assert_false(xpd_result_is_there(result));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(xpd_result_is_there(result));
    json_decref(result);
}

static void a_document_without_a_path_is_none(void **state)
{
    json_t *empty = json_object();
    (void)state;
    assert_false(xpd_result_is_there(empty));
    assert_false(xpd_result_is_there(NULL));
    json_decref(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_that_was_written_is_known_again),
        cmocka_unit_test(a_document_without_a_path_is_none),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
