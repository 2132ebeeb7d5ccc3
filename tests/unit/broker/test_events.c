/* The event log: order, resume, memory and file, torn ends. */
#include "support.h"

#include "events.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static xpd_events *opened(const char *path)
{
    xpd_events *e = NULL;
    xpd_error err = XPD_ERROR_INIT;
    if (!xpd_events_open(&e, path, &err))
        fail_msg("%s", err.text);
    return e;
}

static void add(xpd_events *e, int count)
{
    for (int i = 0; i < count; i++) {
        json_t *body = json_pack("{s:i}", "iter", i);
        assert_int_not_equal(xpd_events_append(e, 1000, "iter", body), 0);
        json_decref(body);
    }
}

/* Reads everything from `from` and checks that no number is left out. */
static void expect(xpd_events *e, int64_t from, int64_t last)
{
    xpd_cursor c = {.next = from, .offset = -1};
    xpd_event event;
    for (int64_t seq = from; seq <= last; seq++) {
        char head[32];
        assert_true(xpd_events_next(e, &c, &event));
        assert_int_equal(event.seq, seq);
        assert_int_equal(event.gap_from, 0);
        snprintf(head, sizeof head, "{\"seq\":%lld,", (long long)seq);
        assert_memory_equal(event.line, head, strlen(head));
        assert_int_equal(event.line[event.length - 1], '\n');
    }
    assert_false(xpd_events_next(e, &c, &event));
}

static void every_event_comes_once_from_any_start(void **state)
{
    char path[256];
    path_in(path, sizeof path, *state, "a.ndjson");
    xpd_events *e = opened(path);
    expect(e, 1, 0);
    add(e, 3000); /* the oldest have left memory */
    assert_int_equal(xpd_events_last(e), 3000);
    expect(e, 1, 3000);
    expect(e, 257, 3000);
    expect(e, 1900, 3000);
    expect(e, 3000, 3000);
    expect(e, 3001, 3000);
    xpd_events_close(e);
}

static void a_reopened_log_goes_on_with_the_next_number(void **state)
{
    char path[256];
    path_in(path, sizeof path, *state, "b.ndjson");
    xpd_events *e = opened(path);
    add(e, 700);
    xpd_events_close(e);
    e = opened(path);
    assert_int_equal(xpd_events_last(e), 700);
    assert_false(xpd_events_ended(e));
    expect(e, 1, 700);
    add(e, 1);
    xpd_events_park(e);
    add(e, 1); /* takes its descriptor again */
    expect(e, 600, 702);
    xpd_events_close(e);
}

static void a_torn_last_line_is_cut_off(void **state)
{
    char path[256];
    struct stat whole, after;
    path_in(path, sizeof path, *state, "c.ndjson");
    xpd_events *e = opened(path);
    add(e, 5);
    xpd_events_close(e);
    assert_int_equal(stat(path, &whole), 0);
    FILE *file = fopen(path, "a");
    fputs("{\"seq\":6,\"t\":\"2026-01-31T09:15", file);
    fclose(file);
    e = opened(path);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_size, whole.st_size);
    assert_int_equal(xpd_events_last(e), 5);
    add(e, 2);
    expect(e, 1, 7);
    xpd_events_close(e);
}

static void end_is_known_after_reopening(void **state)
{
    char path[256];
    json_t *body = json_pack("{s:s}", "state", "succeeded");
    path_in(path, sizeof path, *state, "d.ndjson");
    xpd_events *e = opened(path);
    add(e, 2);
    xpd_events_append(e, 1, "end", body);
    assert_true(xpd_events_ended(e));
    xpd_events_close(e);
    e = opened(path);
    assert_true(xpd_events_ended(e));
    xpd_events_close(e);
    json_decref(body);
}

static void foreign_lines_are_passed_over(void **state)
{
    char path[256];
    xpd_cursor c = {.next = 1, .offset = -1};
    xpd_event event;
    path_in(path, sizeof path, *state, "e.ndjson");
    write_text(path, "garbage\n{\"seq\":1,\"type\":\"log\"}\n{\"x\":3}\n{\"seq\":4,\"type\":"
                     "\"log\"}\n{\"seq\":2,\"type\":\"log\"}\n");
    xpd_events *e = opened(path);
    assert_int_equal(xpd_events_last(e), 4);
    assert_true(xpd_events_next(e, &c, &event));
    assert_int_equal(event.seq, 1);
    assert_true(xpd_events_next(e, &c, &event));
    assert_int_equal(event.seq, 4);
    assert_int_equal(event.gap_from, 2);
    assert_int_equal(event.gap_to, 3);
    assert_false(xpd_events_next(e, &c, &event));
    xpd_events_close(e);
}

static void an_event_that_is_too_long_becomes_a_warning(void **state)
{
    char path[256], *text = malloc(100000);
    xpd_cursor c = {.next = 1, .offset = -1};
    xpd_event event;
    memset(text, 'x', 99999);
    text[99999] = '\0';
    json_t *body = json_pack("{s:s}", "text", text);
    path_in(path, sizeof path, *state, "f.ndjson");
    xpd_events *e = opened(path);
    assert_int_equal(xpd_events_append(e, 1, "log", body), 1);
    assert_true(xpd_events_next(e, &c, &event));
    assert_non_null(strstr(event.line, "\"warning\""));
    assert_true(event.length < 1000);
    xpd_events_close(e);
    json_decref(body);
    free(text);
}

static void a_full_disk_delays_lines_and_loses_none_in_memory(void **state)
{
    char path[256];
    struct rlimit before, tight;
    path_in(path, sizeof path, *state, "g.ndjson");
    xpd_events *e = opened(path);
    add(e, 10);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 1000; /* in the middle of a line */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    add(e, 50);
    expect(e, 1, 60);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    add(e, 1);
    xpd_events_close(e);
    e = opened(path);
    expect(e, 1, 61);
    xpd_events_close(e);
}

static void what_fell_out_of_memory_on_a_full_disk_is_a_gap(void **state)
{
    char path[256];
    struct rlimit before, tight;
    xpd_cursor c = {.next = 1, .offset = -1};
    xpd_event event;
    int64_t expected = 1, lost = 0;
    path_in(path, sizeof path, *state, "h.ndjson");
    xpd_events *e = opened(path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    add(e, 2000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    add(e, 500);
    for (int pass = 0; pass < 2; pass++) { /* live, then from the file alone */
        c = (xpd_cursor){.next = 1, .offset = -1};
        expected = 1;
        lost = 0;
        while (xpd_events_next(e, &c, &event)) {
            if (event.gap_from) {
                assert_int_equal(event.gap_from, expected);
                lost += event.gap_to - event.gap_from + 1;
                expected = event.gap_to + 1;
            }
            assert_int_equal(event.seq, expected++);
        }
        assert_int_equal(expected, 2501);
        assert_in_range(lost, 900, 1000);
        xpd_events_close(e);
        e = opened(path);
    }
    xpd_events_close(e);
}

static void a_log_that_cannot_be_read_is_no_empty_log(void **state)
{
    xpd_events *e = NULL;
    xpd_error err = XPD_ERROR_INIT;
    (void)state;
    /* its first page is not mapped: EIO */
    assert_false(xpd_events_open(&e, "/proc/self/mem", &err));
    assert_null(e);
    assert_non_null(strstr(err.text, "cannot be read: Input/output error"));
}

static void events_that_cannot_be_read_now_are_no_gap(void **state)
{
    char path[256], aside[256];
    xpd_cursor c = {.next = 1, .offset = -1};
    xpd_event event;
    path_in(path, sizeof path, *state, "i.ndjson");
    path_in(aside, sizeof aside, *state, "i.aside");
    xpd_events *e = opened(path);
    add(e, 3000); /* the oldest have left memory */
    xpd_events_park(e);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(xpd_events_next(e, &c, &event));
    assert_true(xpd_events_unread(e));
    assert_int_equal(c.next, 1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(aside, path), 0);
    expect(e, 1, 3000);
    assert_false(xpd_events_unread(e));
    xpd_events_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_comes_once_from_any_start),
        cmocka_unit_test(a_reopened_log_goes_on_with_the_next_number),
        cmocka_unit_test(a_torn_last_line_is_cut_off),
        cmocka_unit_test(end_is_known_after_reopening),
        cmocka_unit_test(foreign_lines_are_passed_over),
        cmocka_unit_test(an_event_that_is_too_long_becomes_a_warning),
        cmocka_unit_test(a_full_disk_delays_lines_and_loses_none_in_memory),
        cmocka_unit_test(what_fell_out_of_memory_on_a_full_disk_is_a_gap),
        cmocka_unit_test(a_log_that_cannot_be_read_is_no_empty_log),
        cmocka_unit_test(events_that_cannot_be_read_now_are_no_gap),
    };
    xpp_init();
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
