/* Options: command line, file, and what is refused. */
#include "support.h"

#include "config.h"

static xpd_config_result read_config(xpd_config *config, xpd_error *err, int count,
                                     const char *const *arguments)
{
    char *argv[16];
    argv[0] = strdup("xptychod");
    for (int i = 0; i < count; i++)
        argv[i + 1] = strdup(arguments[i]);
    xpd_config_result result = xpd_config_read(config, count + 1, argv, err);
    for (int i = 0; i <= count; i++)
        free(argv[i]);
    return result;
}
#define READ(config, err, ...)                                                                     \
    read_config(config, err, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),        \
                (const char *[]){__VA_ARGS__})

static void defaults_are_the_documented_ones(void **state)
{
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    (void)state;
    assert_int_equal(READ(&c, &err, "--config", "/dev/null"), XPD_CONFIG_OK);
    assert_int_equal(c.port, 8270);
    assert_string_equal(c.address, "127.0.0.1");
    assert_string_equal(c.state_dir, "/var/lib/xptycho");
    assert_string_equal(c.runtime_dir, "/run/xptycho");
    assert_int_equal(c.unix_mode, 0660);
    assert_int_equal(c.probe_s, 30);
    assert_int_equal(c.data_roots.count, 0);
    assert_int_equal(c.rate, 10);
    assert_int_equal(c.streams_user_max, 64);
    assert_int_equal(c.health_port, -1);
    xpd_config_release(&c);
}

static void the_user_has_own_folders_and_all_roots(void **state)
{
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    (void)state;
    setenv("XDG_STATE_HOME", "/s", 1);
    setenv("XDG_RUNTIME_DIR", "/r", 1);
    assert_int_equal(READ(&c, &err, "--user", "--port=0"), XPD_CONFIG_OK);
    assert_string_equal(c.state_dir, "/s/xptycho");
    assert_string_equal(c.runtime_dir, "/r/xptycho");
    assert_string_equal(c.token_file, "/r/xptycho/token");
    assert_int_equal(c.unix_mode, 0600);
    assert_int_equal(c.port, 0);
    assert_int_equal(c.rate, 0);
    assert_int_equal(c.streams_user_max, 1000);
    assert_int_equal(c.data_roots.count, 1);
    assert_string_equal(c.write_roots.items[0], "/");
    xpd_config_release(&c);
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(READ(&c, &err, "--user"), XPD_CONFIG_OK);
    assert_string_equal(c.runtime_dir, "/s/xptycho/run");
    xpd_config_release(&c);
}

static void the_command_line_goes_over_the_file(void **state)
{
    char path[256];
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    path_in(path, sizeof path, *state, "a.conf");
    write_text(path, "; comment\n[http]\nport = 9\nhost = a\nhost = b\n[roots]\ndata = /one\ndata "
                     "= /two\n[worker]\ncpu_threads = 3\n");
    assert_int_equal(READ(&c, &err, "--config", path, "--port", "10", "--data-root", "/three"),
                     XPD_CONFIG_OK);
    assert_int_equal(c.port, 10);
    assert_int_equal(c.worker_cpu_threads, 3);
    assert_int_equal(c.hosts.count, 2);
    assert_string_equal(c.hosts.items[1], "b");
    assert_int_equal(c.data_roots.count, 1);
    assert_string_equal(c.data_roots.items[0], "/three");
    xpd_config_release(&c);
}

static void refused(const void *folder, const char *text, const char *word)
{
    char path[256];
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    path_in(path, sizeof path, folder, "bad.conf");
    write_text(path, text);
    assert_int_equal(READ(&c, &err, "--config", path), XPD_CONFIG_BAD);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not say '%s'", err.text, word);
    xpd_config_release(&c);
}

static void a_bad_file_is_refused_with_what_is_wrong(void **state)
{
    refused(*state, "[http]\nprot = 9\n", "'http.port'");
    refused(*state, "; one\n\n[http]\nhost = a\nport = no\n", "line 5");
    refused(*state, "[daemon]\nlog = xml\n", "text or json");
    refused(*state, "[htp]\nport = 9\n", "'http.port'");
    refused(*state, "[http]\nport = 70000\n", "from -1 to 65535");
    refused(*state, "[http]\nport = 9x\n", "'9x'");
    refused(*state, "[http]\nport =\n", "empty");
    refused(*state, "[http]\nnonsense\n", "line 2");
    refused(*state, "[http]\nallow_remote = perhaps\n", "true or false");
    refused(*state, "[http]\naddress = 0.0.0.0\n", "allow_remote");
    refused(*state, "[http]\nunix_mode = 0999\n", "octal");
    refused(*state, "[roots]\ndata = data\n", "absolute");
    refused(*state, "[daemon]\nlog_level = loud\n", "loud");
    refused(*state, "[zmq]\nrouter = tcp://127.0.0.1:1\n", "zmq.pub");
}

static void a_reload_takes_what_may_change_and_names_the_rest(void **state)
{
    xpd_config c, fresh;
    xpd_error err = XPD_ERROR_INIT;
    char rest[256];
    (void)state;
    assert_int_equal(READ(&c, &err, "--config", "/dev/null", "--data-root", "/a"), XPD_CONFIG_OK);
    assert_int_equal(READ(&fresh, &err, "--config", "/dev/null", "--data-root", "/b", "--queue-max",
                          "7", "--log-level", "debug", "--port", "9", "--zmq-router", "tcp://x",
                          "--zmq-pub", "tcp://y"),
                     XPD_CONFIG_OK);
    xpd_config_exchange(&c, &fresh, rest, sizeof rest);
    assert_string_equal(c.data_roots.items[0], "/b");
    assert_string_equal(fresh.data_roots.items[0], "/a");
    assert_int_equal(c.queue_max, 7);
    assert_int_equal(c.log_level, 3);
    assert_int_equal(c.port, 8270);
    assert_null(c.zmq_router);
    assert_string_equal(rest, "http.port, zmq.router, zmq.pub");
    xpd_config_release(&fresh);
    xpd_config_release(&c);
}

static void a_missing_file_that_was_named_is_refused(void **state)
{
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    (void)state;
    assert_int_equal(READ(&c, &err, "--config", "/nowhere/x.conf"), XPD_CONFIG_BAD);
    assert_non_null(strstr(err.text, "/nowhere/x.conf"));
    xpd_config_release(&c);
}

static void wrong_usage_names_the_nearest_option(void **state)
{
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    (void)state;
    assert_int_equal(READ(&c, &err, "--user", "--prot", "0"), XPD_CONFIG_USAGE);
    assert_non_null(strstr(err.text, "'--port'"));
    xpd_config_release(&c);
    assert_int_equal(READ(&c, &err, "--user", "--port"), XPD_CONFIG_USAGE);
    xpd_config_release(&c);
    assert_int_equal(READ(&c, &err, "extra"), XPD_CONFIG_USAGE);
    xpd_config_release(&c);
}

/* Every commented option of the sample, taken in, is known and has a value that is accepted. */
static void the_sample_names_every_option_and_no_other(void **state)
{
    char path[256], line[512];
    xpd_config c;
    xpd_error err = XPD_ERROR_INIT;
    int options = 0;
    FILE *in = fopen(XPTYCHOD_SAMPLE, "r");
    path_in(path, sizeof path, *state, "sample.conf");
    FILE *out = fopen(path, "w");
    assert_non_null(in);
    assert_non_null(out);
    while (fgets(line, sizeof line, in)) {
        bool option = line[0] == ';' && line[1] != ' ';
        options += option;
        fputs(option ? line + 1 : line, out);
    }
    fclose(in);
    fclose(out);
    if (READ(&c, &err, "--config", path) != XPD_CONFIG_OK)
        fail_msg("%s", err.text);
    assert_int_equal(options, xpd_config_count());
    assert_int_equal(c.port, 8270);
    assert_int_equal(c.keep_jobs, 100000);
    xpd_config_release(&c);
    assert_int_equal(READ(&c, &err, "--config", XPTYCHOD_SAMPLE), XPD_CONFIG_OK);
    xpd_config_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_documented_ones),
        cmocka_unit_test(the_user_has_own_folders_and_all_roots),
        cmocka_unit_test(the_command_line_goes_over_the_file),
        cmocka_unit_test(a_bad_file_is_refused_with_what_is_wrong),
        cmocka_unit_test(the_sample_names_every_option_and_no_other),
        cmocka_unit_test(a_missing_file_that_was_named_is_refused),
        cmocka_unit_test(a_reload_takes_what_may_change_and_names_the_rest),
        cmocka_unit_test(wrong_usage_names_the_nearest_option),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
