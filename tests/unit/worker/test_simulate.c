/* The mode `simulate` from flags to file, and its refusals. */
#include "scene.h"

#include "files.h"
#include "io/write/write.h"
#include "modes.h"

#include <getopt.h>

/* The exit code of `simulate` with these flags, blank-separated; FILE stands for a path in the
 * test's folder. */
static int simulate(const char *folder, const char *flags)
{
    char *arguments[40], *copy = strdup(flags), *rest = NULL, path[PATH_MAX];
    int count = 0, code, out = dup(1), null = open("/dev/null", O_WRONLY);

    arguments[count++] = (char[]){"simulate"};
    assert_true(xpd_path_join(path, sizeof path, folder, "scan.h5"));
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        arguments[count++] = strcmp(word, "FILE") == 0 ? path : word;
    arguments[count] = NULL;
    optind = 0; /* getopt begins anew */
    fflush(stdout);
    dup2(null, 1);
    code = xpd_simulate_main(count, arguments);
    fflush(stdout);
    dup2(out, 1);
    close(out);
    close(null);
    free(copy);
    return code;
}

static void scan_is_the_same_for_the_same_seed(void **state)
{
    const char *flags = "--output FILE --overwrite --frames-side 32 --grid 3x4 --seed 5 --step 4";
    char path[PATH_MAX], *first, *second;
    size_t size, again;

    assert_int_equal(simulate(*state, flags), 0);
    assert_true(xpd_path_join(path, sizeof path, *state, "scan.h5"));
    assert_int_equal(xpd_file_read(&first, &size, path, 1 << 24, NULL), XPE_OK);
    assert_int_equal(simulate(*state, flags), 0);
    assert_int_equal(xpd_file_read(&second, &again, path, 1 << 24, NULL), XPE_OK);
    assert_int_equal(size, again);
    assert_memory_equal(first, second, size);
    free(second);
    assert_int_equal(
        simulate(*state, "--output FILE --overwrite --frames-side 32 --grid 3x4 --seed 6 --step 4"),
        0);
    assert_int_equal(xpd_file_read(&second, &again, path, 1 << 24, NULL), XPE_OK);
    assert_true(again != size || memcmp(first, second, size) != 0);
    free(first);
    free(second);
}

static void every_kind_pattern_and_type_is_made(void **state)
{
    static const char *const flags[] = {
        "--object star --pattern spiral --positions 9",
        "--object cells --modes 3 --grid 2x3",
        "--object chip --photons 0 --positions 7 --pattern grid",
        "--photons 1e9 --grid 2x2 --json", /* counts beyond 16 bits */
        "--defocus-m 0 --step 1 --jitter 0 --grid 2x2",
        "--energy-kev 12.4 --distance-m 5 --pitch-m 55e-6 --grid 2x2",
    };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char all[256];

        snprintf(all, sizeof all, "--output FILE --overwrite --frames-side 32 %s", flags[i]);
        assert_int_equal(simulate(*state, all), 0);
    }
}

static void impossible_scans_are_usage_too(void **state)
{
    static const char *const flags[] = {"--frames-side 33", "--frames-side 8",
                                        "--modes 0",        "--modes 17",
                                        "--step 40",        "--jitter 50",
                                        "--photons 1e13",   "--defocus-m 0.1",
                                        "--grid 0x4",       "--grid 2000x2000 --frames-side 2048"};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char all[256];

        snprintf(all, sizeof all, "--output FILE --overwrite --frames-side 32 %s", flags[i]);
        assert_int_equal(simulate(*state, all), 2);
    }
}

static void wrong_flags_are_usage(void **state)
{
    static const char *const flags[] = {"",
                                        "--output",
                                        "--output FILE --object teapot",
                                        "--output FILE --grid 4",
                                        "--output FILE --step -2",
                                        "--output FILE --photons nan",
                                        "--output FILE --seed 1.5",
                                        "--output FILE extra",
                                        "--output FILE --wrong",
                                        "--output FILE --grid 2x2 --positions 4",
                                        "--output FILE --pattern hexagon"};

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        assert_int_equal(simulate(*state, flags[i]), 2);
    assert_int_equal(simulate(*state, "--help"), 0);
}

static void existing_file_stays(void **state)
{
    assert_int_equal(simulate(*state, "--output FILE --overwrite --frames-side 32 --grid 2x2"), 0);
    assert_int_equal(simulate(*state, "--output FILE --frames-side 32 --grid 2x2"), 3);
    assert_int_equal(simulate(*state, "--output /nonexistent/x.h5 --frames-side 32 --grid 2x2"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan_is_the_same_for_the_same_seed),
        cmocka_unit_test(every_kind_pattern_and_type_is_made),
        cmocka_unit_test(impossible_scans_are_usage_too),
        cmocka_unit_test(wrong_flags_are_usage),
        cmocka_unit_test(existing_file_stays),
    };

    xpp_init();
    xpe_write_init();
    return cmocka_run_group_tests(tests, scene_folder_make, scene_folder_remove);
}
