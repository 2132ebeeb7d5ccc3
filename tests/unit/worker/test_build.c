/* The identity of a build: stable while it runs, and told apart from another program of the same
 * sources. */
#include "scene.h"

#include "build.h"

#include <sys/stat.h>

/* "..., 0123456789abcdef" */
static const char *digits(const char *text)
{
    size_t length = strlen(text);

    assert_true(length > 18);
    assert_memory_equal(text + length - 18, ", ", 2);
    assert_int_equal(strspn(text + length - 16, "0123456789abcdef"), 16);
    return text + length - 16;
}

static void build_names_version_and_hash_and_stays(void **state)
{
    char text[160], again[160];

    (void)state;
    xpd_build_text(text, sizeof text);
    xpd_build_text(again, sizeof again);
    digits(text);
    assert_string_equal(text, again);
    assert_memory_equal(text, xpe_build_identity(), strlen(xpe_build_identity()));
}

/* A copy of this program with one bit of its build id flipped. */
static void write_other(int fd)
{
    static const unsigned char head[] = {4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0};
    FILE *self = fopen("/proc/self/exe", "r");
    size_t size, room = (size_t)64 << 20;
    char *bytes = malloc(room), *note;

    assert_non_null(self);
    size = fread(bytes, 1, room, self);
    fclose(self);
    note = memmem(bytes, size, head, sizeof head);
    assert_non_null(note);
    note[sizeof head] ^= 1;
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(fchmod(fd, 0700), 0);
    free(bytes);
}

static void another_build_id_is_another_build(void **state)
{
    char path[] = "/tmp/xptychod-build-XXXXXX", command[64], mine[160], other[160] = "";
    int fd = mkstemp(path);
    FILE *said;

    (void)state;
    assert_true(fd >= 0);
    write_other(fd);
    close(fd);
    snprintf(command, sizeof command, "%s --say", path);
    said = popen(command, "r");
    assert_non_null(fgets(other, sizeof other, said));
    assert_int_equal(pclose(said), 0);
    assert_int_equal(unlink(path), 0);
    xpd_build_text(mine, sizeof mine);
    assert_string_not_equal(digits(mine), digits(other));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(build_names_version_and_hash_and_stays),
        cmocka_unit_test(another_build_id_is_another_build),
    };

    if (argc == 2 && strcmp(argv[1], "--say") == 0) {
        char text[160];

        xpd_build_text(text, sizeof text);
        fputs(text, stdout);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
