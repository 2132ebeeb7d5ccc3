/* Finding the daemon and the token: order of the places, ready files, tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "locate.h"

static char folder[64]; /* a private one for every test */
static char runtime[96], state_home[96];

/* The environment that the code under test sees. */
static const char *variables[8][2];

static char *env(const char *name)
{
    static char values[8][256];
    size_t i;

    for (i = 0; i < 8 && variables[i][0]; i++)
        if (strcmp(variables[i][0], name) == 0) {
            (void)snprintf(values[i], sizeof(values[i]), "%s", variables[i][1]);
            return values[i];
        }
    return NULL;
}

static void set(const char *name, const char *value)
{
    size_t i = 0;

    while (variables[i][0] && strcmp(variables[i][0], name) != 0)
        i++;
    variables[i][0] = name;
    variables[i][1] = value;
}

static char *in_folder(const char *name)
{
    static char path[8][192];
    static int next;

    next = (next + 1) % 8;
    (void)snprintf(path[next], sizeof(path[next]), "%s/%s", folder, name);
    return path[next];
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    memset(variables, 0, sizeof(variables));
    (void)snprintf(folder, sizeof(folder), "/tmp/xptycho-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(runtime, sizeof(runtime), "%s/run", folder);
    (void)snprintf(state_home, sizeof(state_home), "%s/state", folder);
    (void)mkdir(runtime, 0700);
    (void)mkdir(in_folder("run/xptycho"), 0700);
    (void)mkdir(state_home, 0700);
    (void)mkdir(in_folder("state/xptycho"), 0700);
    (void)mkdir(in_folder("state/xptycho/run"), 0700);
    return 0;
}

static int drop_folder(void **state)
{
    char command[160];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

static xpc_place found(const char *server)
{
    xpc_options options = {.server = server, .env = env};
    xpc_place place;
    xpc_error err = {0};

    if (xpc_place_find(&place, &options, &err) != XPC_OK)
        fail_msg("%s", err.text);
    return place;
}

static void refused(const xpc_options *options, xpc_status status, const char *said)
{
    xpc_place place;
    xpc_error err;

    assert_int_equal(xpc_place_find(&place, options, &err), status);
    if (!strstr(err.text, said))
        fail_msg("'%s' is not in '%s'", said, err.text);
    assert_int_equal(err.status, status);
}

static void without_anything_it_is_the_systems_socket(void **state)
{
    xpc_place place = found(NULL);

    (void)state;
    assert_string_equal(place.server, "unix:/run/xptycho/api.sock");
    assert_string_equal(place.base, "http://localhost");
    assert_null(place.token);
    xpc_place_release(&place);
}

static void the_places_are_asked_in_order(void **state)
{
    xpc_place place;

    (void)state;
    put("state/xptycho/run/ready.json", "{\"unix\": \"/s/api.sock\"}");
    set("XDG_STATE_HOME", state_home);
    place = found(NULL);
    assert_string_equal(place.server, "unix:/s/api.sock");
    xpc_place_release(&place);

    set("XDG_RUNTIME_DIR", runtime);
    place = found(NULL);
    assert_string_equal(place.server, "unix:/s/api.sock");
    xpc_place_release(&place);

    put("run/xptycho/ready.json", "{\"unix\": \"/r/api.sock\"}");
    place = found(NULL);
    assert_string_equal(place.server, "unix:/r/api.sock");
    assert_non_null(strstr(place.found, "run/xptycho/ready.json"));
    xpc_place_release(&place);

    set("XPTYCHO_SERVER", "unix:/e/api.sock");
    place = found(NULL);
    assert_string_equal(place.server, "unix:/e/api.sock");
    xpc_place_release(&place);

    place = found("http://127.0.0.1:8270/");
    assert_string_equal(place.server, "http://127.0.0.1:8270");
    assert_string_equal(place.base, "http://127.0.0.1:8270");
    assert_string_equal(place.socket, "");
    xpc_place_release(&place);
}

static void home_stands_in_for_a_missing_state_folder(void **state)
{
    xpc_place place;

    (void)state;
    (void)mkdir(in_folder(".local"), 0700);
    (void)mkdir(in_folder(".local/state"), 0700);
    (void)mkdir(in_folder(".local/state/xptycho"), 0700);
    (void)mkdir(in_folder(".local/state/xptycho/run"), 0700);
    put(".local/state/xptycho/run/ready.json", "{\"unix\": \"/h/api.sock\"}");
    set("HOME", folder);
    place = found(NULL);
    assert_string_equal(place.server, "unix:/h/api.sock");
    xpc_place_release(&place);
}

static void a_runtime_folder_names_its_daemon(void **state)
{
    xpc_place place;
    char json[256];

    (void)state;
    put("token", "  s3cret\n");
    (void)snprintf(json, sizeof(json),
                   "{\"http\": \"http://127.0.0.1:4711\", \"token_file\": \"%s\"}",
                   in_folder("token"));
    put("run/ready.json", json);
    place = found(runtime);
    assert_string_equal(place.server, "http://127.0.0.1:4711");
    assert_string_equal(place.token, "s3cret");
    xpc_place_release(&place);
    assert_int_equal(chdir(folder), 0);
    place = found("run");
    assert_string_equal(place.server, "http://127.0.0.1:4711");
    xpc_place_release(&place);
    assert_int_equal(chdir("/"), 0);
    place = found(in_folder("run/ready.json"));
    assert_string_equal(place.server, "http://127.0.0.1:4711");
    xpc_place_release(&place);
}

static void tcp_to_ones_own_daemon_finds_its_token(void **state)
{
    xpc_place place;
    char json[256];

    (void)state;
    put("token", "s3cret");
    (void)snprintf(
        json, sizeof(json),
        "{\"http\": \"http://127.0.0.1:4711\", \"unix\": \"/u\", \"token_file\": \"%s\"}",
        in_folder("token"));
    put("run/xptycho/ready.json", json);
    set("XDG_RUNTIME_DIR", runtime);
    place = found("http://127.0.0.1:4711");
    assert_string_equal(place.token, "s3cret");
    xpc_place_release(&place);
    place = found("http://127.0.0.1:4712");
    assert_null(place.token); /* another daemon's token goes nowhere */
    xpc_place_release(&place);
}

static void tokens_are_taken_in_order(void **state)
{
    xpc_options options = {.server = "http://127.0.0.1:1", .env = env};
    xpc_place place;

    (void)state;
    put("a", "from-file-variable");
    put("b", "from-file-option");
    set("XPTYCHO_TOKEN_FILE", in_folder("a"));
    place = found("http://127.0.0.1:1");
    assert_string_equal(place.token, "from-file-variable");
    xpc_place_release(&place);
    set("XPTYCHO_TOKEN", "from-variable");
    place = found("http://127.0.0.1:1");
    assert_string_equal(place.token, "from-variable");
    xpc_place_release(&place);
    options.token_file = in_folder("b");
    assert_int_equal(xpc_place_find(&place, &options, NULL), XPC_OK);
    assert_string_equal(place.token, "from-file-option");
    xpc_place_release(&place);
    options.token = "given";
    assert_int_equal(xpc_place_find(&place, &options, NULL), XPC_OK);
    assert_string_equal(place.token, "given");
    xpc_place_release(&place);
}

static void broken_tokens_are_refused(void **state)
{
    static const char *const broken[] = {"", "two words", "line\nline", "\x01", "\xc3\xa9"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        xpc_options options = {.token = broken[i]};
        refused(&options, XPC_INVALID, "the token given");
    }
    refused(&(xpc_options){.token_file = "/nowhere/token"}, XPC_IO,
            "'/nowhere/token': No such file");
}

static void broken_servers_are_refused(void **state)
{
    static const char *const broken[] = {"localhost:8270",       "http://",         "ftp://x",
                                         "http://a b",           "http://h:1/path", "unix:relative",
                                         "http://user:pw@host:1"};
    char path[200] = "unix:/";
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        xpc_options options = {.server = broken[i]};
        refused(&options, XPC_INVALID, "server '");
    }
    memset(path + 6, 'x', 150);
    refused(&(xpc_options){.server = path}, XPC_INVALID, "at most 107 bytes");
    refused(&(xpc_options){.server = folder}, XPC_UNREACHABLE, "holds no ready.json");
}

static void broken_ready_files_are_told_by_name(void **state)
{
    static const char *const broken[] = {"", "[]", "{", "{\"pid\": 5}", "{\"unix\": 5}"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        xpc_options options = {.server = runtime};
        put("run/ready.json", broken[i]);
        refused(&options, XPC_IO, "run/ready.json'");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_anything_it_is_the_systems_socket),
        TEST(the_places_are_asked_in_order),
        TEST(home_stands_in_for_a_missing_state_folder),
        TEST(a_runtime_folder_names_its_daemon),
        TEST(tcp_to_ones_own_daemon_finds_its_token),
        TEST(tokens_are_taken_in_order),
        TEST(broken_tokens_are_refused),
        TEST(broken_servers_are_refused),
        TEST(broken_ready_files_are_told_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
