/* The log's two forms, on standard error. */
#include "support.h"

#include "log.h"

#include <fcntl.h>

static char text[8192];

/* What log() writes to standard error. */
static void capture(const void *folder, void (*log)(void))
{
    char path[256];
    path_in(path, sizeof path, folder, "stderr");
    int kept = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && fd >= 0);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    log();
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    close(fd);
    close(kept);
}

static void two(void)
{
    xpd_log(XPD_LOG_WARNING, "01KG", "he said \"%s\"\n",
            "no\x1b[31m \xc2\x9b"
            "31m \xc3\xa9 \xff");
    xpd_log(XPD_LOG_DEBUG, NULL, "too much detail");
    xpd_log(XPD_LOG_ERROR, NULL, "second");
}

static void text_is_a_line_with_the_job_and_no_control_characters(void **state)
{
    xpd_log_set_json(false);
    capture(*state, two);
    assert_non_null(
        strstr(text, " warning: job 01KG: he said \"no\\x1b[31m \\xc2\\x9b31m \xc3\xa9 "));
    assert_non_null(strstr(text, " error: second\n"));
    assert_null(strstr(text, "detail"));
    assert_null(strchr(text, 0x1b));
    int lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    assert_int_equal(lines, 2);
}

static void json_is_an_object_a_line(void **state)
{
    json_t *record;
    xpd_log_set_json(true);
    capture(*state, two);
    xpd_log_set_json(false);
    char *end = strchr(text, '\n');
    assert_non_null(end);
    *end = '\0';
    assert_non_null(record = json_loads(text, 0, NULL));
    assert_string_equal(json_string_value(json_object_get(record, "job")), "01KG");
    assert_string_equal(json_string_value(json_object_get(record, "level")), "warning");
    assert_int_equal(json_string_length(json_object_get(record, "t")), 24);
    json_decref(record);
    assert_non_null(record = json_loads(end + 1, JSON_DISABLE_EOF_CHECK, NULL));
    assert_string_equal(json_string_value(json_object_get(record, "message")), "second");
    assert_null(json_object_get(record, "job"));
    json_decref(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_a_line_with_the_job_and_no_control_characters),
        cmocka_unit_test(json_is_an_object_a_line),
    };
    xpp_init();
    unsetenv("JOURNAL_STREAM");
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
