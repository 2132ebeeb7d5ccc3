/* Job documents from options: dotted paths, references, absolute paths, files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "capture.h"
#include "cli.h"

static json_t *parse(const char *text)
{
    json_t *doc = json_loads(text, 0, NULL);
    assert_non_null(doc);
    return doc;
}

static void equals(json_t *doc, const char *wanted)
{
    json_t *other = parse(wanted);
    char *text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);

    if (!json_equal(doc, other))
        fail_msg("%s is not %s", text, wanted);
    free(text);
    json_decref(other);
    json_decref(doc);
}

/* `before` with one --set is `after`. */
static void sets(const char *before, const char *assignment, const char *after)
{
    json_t *doc = parse(before);
    char why[256] = "";

    if (!cli_set_text(doc, assignment, why, sizeof(why)))
        fail_msg("%s: %s", assignment, why);
    equals(doc, after);
}

static void refuses(const char *before, const char *assignment, const char *said)
{
    json_t *doc = parse(before);
    char why[256] = "";

    assert_false(cli_set_text(doc, assignment, why, sizeof(why)));
    if (!strstr(why, said))
        fail_msg("'%s' is not in '%s'", said, why);
    json_decref(doc);
}

static void set_takes_json_where_it_parses_and_text_else(void **state)
{
    (void)state;
    sets("{}", "recon.iterations=50", "{\"recon\": {\"iterations\": 50}}");
    sets("{}", "recon.relaxation=0.25", "{\"recon\": {\"relaxation\": 0.25}}");
    sets("{}", "recon.orthogonalize_modes=true", "{\"recon\": {\"orthogonalize_modes\": true}}");
    sets("{}", "recon.mode_schedule=[20, 40]", "{\"recon\": {\"mode_schedule\": [20, 40]}}");
    sets("{}", "name=tile 12", "{\"name\": \"tile 12\"}");
    sets("{}", "name=\"12\"", "{\"name\": \"12\"}");
    sets("{}", "name=", "{\"name\": \"\"}");
    sets("{}", "name=a=b", "{\"name\": \"a=b\"}");
    sets("{}", "metadata=null", "{\"metadata\": null}");
}

static void set_replaces_what_is_there(void **state)
{
    (void)state;
    sets("{\"recon\": {\"iterations\": 1, \"relaxation\": 0.5}}", "recon.iterations=2",
         "{\"recon\": {\"iterations\": 2, \"relaxation\": 0.5}}");
    sets("{\"recon\": 5}", "recon.iterations=2", "{\"recon\": {\"iterations\": 2}}");
}

static void set_reaches_into_arrays_by_number(void **state)
{
    (void)state;
    sets("{\"recon\": [{\"iterations\": 1}]}", "recon.0.iterations=2",
         "{\"recon\": [{\"iterations\": 2}]}");
    sets("{\"recon\": [{}]}", "recon.1.algorithm=refine_positions",
         "{\"recon\": [{}, {\"algorithm\": \"refine_positions\"}]}");
    sets("{\"a\": [1]}", "a.1=2", "{\"a\": [1, 2]}");
}

static void set_refuses_what_names_nothing(void **state)
{
    (void)state;
    refuses("{}", "iterations", "is not NAME=VALUE");
    refuses("{}", "=5", "is not NAME=VALUE");
    refuses("{}", "recon..iterations=5", "is no name of a member");
    refuses("{}", ".recon=5", "is no name of a member");
    refuses("{}", "recon.=5", "is no name of a member");
    refuses("{\"recon\": [{}]}", "recon.iterations=5", "for instance recon.0.iterations");
    refuses("{\"recon\": [{}]}", "recon.5.iterations=5", "'5' is no element of the array");
    refuses("{\"recon\": [{}]}", "recon.-1=5", "there is an array here");
    refuses("{}", "name=\xff", "not UTF-8");
    refuses("{}", "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=1",
            "is no name of a member");
}

static json_t *filled(char **argv)
{
    const cli_command *command = cli_commands; /* submit */
    cli_args args;
    json_t *doc = json_object();
    int argc = 0;

    while (argv[argc])
        argc++;
    assert_string_equal(command->name, "submit");
    assert_int_equal(cli_args_parse(&args, command, argc, argv), CLI_OK);
    assert_int_equal(cli_job_fill(doc, &args), CLI_OK);
    cli_args_release(&args);
    return doc;
}

static void options_fill_the_job_in_the_order_given(void **state)
{
    (void)state;
    equals(filled((char *[]){"submit", "-n", "5", "--set", "recon.iterations=6", "--energy-kev",
                             "8.8", "--mode-schedule", "3,4", "--devices", "cpu,cpu", "--overwrite",
                             "--orthogonalize-modes", "--name", "5", NULL}),
           "{\"recon\": {\"iterations\": 6, \"mode_schedule\": [3, 4], \"orthogonalize_modes\": "
           "true}, "
           "\"scan\": {\"geometry\": {\"energy_kev\": 8.8}}, \"devices\": {\"devices\": [\"cpu\", "
           "\"cpu\"]}, \"output\": {\"overwrite\": true}, \"name\": \"5\"}");
    equals(filled((char *[]){"submit", "--set", "recon.iterations=6", "-n", "5", NULL}),
           "{\"recon\": {\"iterations\": 5}}");
}

static void a_reference_is_a_path_and_maybe_a_dataset(void **state)
{
    (void)state;
    equals(filled((char *[]){"submit", "--probe", "/a/b.h5:/truth/probe", NULL}),
           "{\"probe\": {\"path\": \"/a/b.h5\", \"dataset\": \"/truth/probe\"}}");
    equals(filled((char *[]){"submit", "--probe", "/a/b.h5", NULL}),
           "{\"probe\": {\"path\": \"/a/b.h5\"}}");
    equals(filled((char *[]){"submit", "--probe", "/a/b:c.h5", NULL}),
           "{\"probe\": {\"path\": \"/a/b:c.h5\"}}");
}

static void paths_become_absolute(void **state)
{
    static const char *const cases[][3] = {
        {"/x/y", "a/b", "/x/y/a/b"},
        {"/x/y", "./a", "/x/y/a"},
        {"/usr/bin", "../a", "/usr/a"},
        {"/usr", "../../a", "/a"},
        {"/x/y", "/a//b/", "/a/b"},
        {"/", "a", "/a"},
        {"/usr", "..", "/"},
        {"/usr", "bin/./../c", "/usr/c"},
        {"/x", "...", "/x/..."},
        {"/x", ".../b", "/x/.../b"},
        {"/no/such", "../a", "/no/such/../a"}, /* left to who can see it */
    };
    char folder[] = "/tmp/xptycho-paths-XXXXXX", text[4][128], *found;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *path = cli_path_absolute(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
    /* FOLDER/link leads to FOLDER/deep/inner: its parent is FOLDER/deep, not FOLDER */
    assert_non_null(mkdtemp(folder));
    (void)snprintf(text[0], sizeof(text[0]), "%s/deep", folder);
    (void)snprintf(text[1], sizeof(text[1]), "%s/deep/inner", folder);
    (void)snprintf(text[2], sizeof(text[2]), "%s/link", folder);
    (void)snprintf(text[3], sizeof(text[3]), "%s/deep/scan.h5", folder);
    assert_int_equal(mkdir(text[0], 0700) | mkdir(text[1], 0700) | symlink(text[1], text[2]), 0);
    found = cli_path_absolute(text[2], "../scan.h5");
    assert_string_equal(found, text[3]);
    free(found);
    assert_int_equal(unlink(text[2]) | rmdir(text[1]) | rmdir(text[0]) | rmdir(folder), 0);
}

static void every_path_of_a_job_becomes_absolute(void **state)
{
    json_t *doc =
        parse("{\"scan\": {\"path\": \"s\"}, \"probe\": {\"path\": \"p\", \"dataset\": \"d\"}, "
              "\"init\": {\"path\": \"/i\"}, \"output\": {\"path\": \"../o\"}, "
              "\"init_object\": {\"path\": \"\"}, \"init_probe\": 5}");
    char why[256];

    (void)state;
    assert_int_equal(chdir("/usr/bin"), 0);
    assert_true(cli_job_paths(doc, why, sizeof(why)));
    equals(doc,
           "{\"scan\": {\"path\": \"/usr/bin/s\"}, \"probe\": {\"path\": \"/usr/bin/p\", "
           "\"dataset\": \"d\"}, \"init\": {\"path\": \"/i\"}, \"output\": {\"path\": \"/usr/o\"}, "
           "\"init_object\": {\"path\": \"\"}, \"init_probe\": 5}");
}

static void a_broken_job_file_is_told_by_its_name(void **state)
{
    static const char *const contents[] = {"{\"a\": ", "[1]", "{\"a\": 1, \"a\": 2}"};
    char path[] = "/tmp/xptycho-test-XXXXXX";
    int fd = mkstemp(path), code;
    size_t i;
    capture c;

    (void)state;
    assert_true(fd >= 0);
    for (i = 0; i < sizeof(contents) / sizeof(contents[0]); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, contents[i], strlen(contents[i]), 0),
                         (ssize_t)strlen(contents[i]));
        capture_begin(&c);
        assert_null(cli_job_load(path, &code));
        assert_non_null(strstr(capture_end(&c), path));
        assert_int_equal(code, CLI_REFUSED);
        capture_release(&c);
    }
    (void)close(fd);
    (void)unlink(path);
    capture_begin(&c);
    assert_null(cli_job_load(path, &code));
    assert_non_null(strstr(capture_end(&c), "No such file"));
    capture_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_takes_json_where_it_parses_and_text_else),
        cmocka_unit_test(set_replaces_what_is_there),
        cmocka_unit_test(set_reaches_into_arrays_by_number),
        cmocka_unit_test(set_refuses_what_names_nothing),
        cmocka_unit_test(options_fill_the_job_in_the_order_given),
        cmocka_unit_test(a_reference_is_a_path_and_maybe_a_dataset),
        cmocka_unit_test(paths_become_absolute),
        cmocka_unit_test(every_path_of_a_job_becomes_absolute),
        cmocka_unit_test(a_broken_job_file_is_told_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
