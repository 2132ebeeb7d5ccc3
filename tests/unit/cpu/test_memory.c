/* Memory of the host under control groups (cpu/memory.c), over folders that stand in for the
 * kernel's. */
#include "cpu/memory.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char root[64], list[96];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    strcpy(f->root, "/tmp/xptychod-memory-XXXXXX");
    if (!mkdtemp(f->root))
        return -1;
    snprintf(f->list, sizeof f->list, "%s/list", f->root);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", f->root);
    free(f);
    return system(command);
}

/* A file below the root, its folders made. */
static void put(const fixture *f, const char *name, const char *text)
{
    char path[PATH_MAX];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s", f->root, name);
    for (char *at = path + strlen(f->root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        (void)mkdir(path, 0700);
        *at = '/';
    }
    out = fopen(path, "we");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void expect(const fixture *f, int64_t limit, int64_t room)
{
    int64_t got_limit, got_room;

    xpe_cpu_memory_group(f->list, f->root, &got_limit, &got_room);
    assert_int_equal(got_limit, limit);
    assert_int_equal(got_room, room);
}

static void without_a_limit_there_is_no_limit(void **state)
{
    const fixture *f = *state;

    expect(f, INT64_MAX, INT64_MAX); /* no list */
    put(f, "list", "nonsense\n1:cpu:/a\n0::/a\n");
    expect(f, INT64_MAX, INT64_MAX); /* no files */
    put(f, "a/memory.max", "max\n");
    put(f, "a/memory.current", "77\n");
    expect(f, INT64_MAX, INT64_MAX);
}

static void the_tightest_group_on_the_way_up_counts(void **state)
{
    const fixture *f = *state;

    put(f, "list", "0::/a/b\n");
    put(f, "a/b/memory.max", "2000\n");
    put(f, "a/b/memory.current", "500\n");
    expect(f, 2000, 1500);
    put(f, "a/memory.max", "3000\n"); /* a looser limit, and less of it is left */
    put(f, "a/memory.current", "2900\n");
    expect(f, 2000, 100);
    put(f, "a/memory.current", "3100\n");
    expect(f, 2000, 0);
}

static void pages_of_files_that_lie_idle_are_free(void **state)
{
    const fixture *f = *state;

    put(f, "list", "0::/\n");
    put(f, "memory.max", "2000\n");
    put(f, "memory.current", "1900\n");
    put(f, "memory.stat", "anon 1000\nfile 900\ninactive_file 700\nactive_file 200\n");
    expect(f, 2000, 800);
}

static void the_old_kind_of_groups_is_read_too(void **state)
{
    const fixture *f = *state;

    put(f, "list", "9:cpu:/x\n4:memory:/g\n0::/\n");
    put(f, "memory/g/memory.limit_in_bytes", "9223372036854771712\n");
    put(f, "memory/g/memory.usage_in_bytes", "100\n");
    expect(f, INT64_MAX, INT64_MAX);
    put(f, "memory/memory.limit_in_bytes", "1000\n");
    put(f, "memory/memory.usage_in_bytes", "600\n");
    put(f, "memory/memory.stat", "total_inactive_file 50\n");
    expect(f, 1000, 450);
}

static void what_is_free_is_at_most_what_there_is(void **state)
{
    int64_t total, left;

    (void)state;
    xpe_cpu_memory(&total, &left);
    assert_true(left > 0);
    assert_true(total >= left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_limit_there_is_no_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(the_tightest_group_on_the_way_up_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(pages_of_files_that_lie_idle_are_free, setup, teardown),
        cmocka_unit_test_setup_teardown(the_old_kind_of_groups_is_read_too, setup, teardown),
        cmocka_unit_test(what_is_free_is_at_most_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
