/* xptycho admin: verbs of the admin socket, and making a token, which needs no daemon: the secret
 * is made here, shown once and kept nowhere; the daemon's file holds its hash. */
#include "cli.h"

#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_BYTES 32
#define POLL_NS 200000000L

/* ------------------------------------------------------------------------------------ tokens */

static bool good_name(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length < 64 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-") ==
               length;
}

static bool good_scope(const char *text)
{
    return strcmp(text, "read") == 0 || strcmp(text, "submit") == 0 || strcmp(text, "admin") == 0;
}

/* The 31st of February becomes a day of March, by which it is known. */
static bool good_date(const char *text)
{
    static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"};
    int i;

    for (i = 0; i < 2; i++) {
        struct tm when = {0}, same;
        const char *end = strptime(text, forms[i], &when);

        same = when;
        if (end && !*end)
            return timegm(&same) > time(NULL) && same.tm_mday == when.tm_mday;
    }
    return false;
}

static bool good_class(const char *text)
{
    return strcmp(text, "live") == 0 || strcmp(text, "normal") == 0 || strcmp(text, "batch") == 0 ||
           strcmp(text, "scavenger") == 0;
}

/* "read,submit,class=batch"; CLI_OK or CLI_USAGE. */
static int join_scopes(char *out, size_t size, const cli_args *args)
{
    const char *class = cli_args_text(args, "class");
    int i;

    *out = '\0';
    for (i = 0; i < args->count; i++) {
        size_t at = strlen(out);

        if (strcmp(args->options[i]->name, "scope") != 0)
            continue;
        if (!good_scope(args->values[i]) || at > size - 16)
            return cli_usage(args->command, "scope '%.40s' is not read, submit or admin",
                             args->values[i]);
        (void)snprintf(out + at, size - at, "%s%s", at ? "," : "", args->values[i]);
    }
    if (!*out)
        (void)snprintf(out, size, "submit");
    if (class) {
        size_t at = strlen(out);

        if (!good_class(class) || at > size - 32)
            return cli_usage(args->command, "class '%.40s' is not live, normal, batch or scavenger",
                             class);
        (void)snprintf(out + at, size - at, ",class=%s", class);
    }
    return CLI_OK;
}

static bool make_token(char hex[2 * TOKEN_BYTES + 1], char sha[2 * SHA256_DIGEST_SIZE + 1])
{
    uint8_t bytes[TOKEN_BYTES], digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx context;

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return false;
    base16_encode_update(hex, sizeof(bytes), bytes);
    hex[2 * TOKEN_BYTES] = '\0';
    sha256_init(&context);
    sha256_update(&context, 2 * TOKEN_BYTES, (const uint8_t *)hex);
    sha256_digest(&context, sizeof(digest), digest);
    base16_encode_update(sha, sizeof(digest), digest);
    sha[2 * SHA256_DIGEST_SIZE] = '\0';
    explicit_bzero(bytes, sizeof(bytes));
    return true;
}

static int new_token(const cli_args *args)
{
    const char *name = args->operand_count == 3 ? args->operands[2] : "",
               *user = cli_args_text(args, "user"), *expires = cli_args_text(args, "expires");
    char scopes[128], hex[2 * TOKEN_BYTES + 1], sha[2 * SHA256_DIGEST_SIZE + 1], line[512];
    const struct passwd *self = user ? NULL : getpwuid(geteuid());
    int code = join_scopes(scopes, sizeof(scopes), args);

    if (code != CLI_OK)
        return code;
    if (!good_name(name))
        return cli_usage(args->command, "a token needs a name of letters, digits and ._@-: tokens "
                                        "new NAME");
    user = user ? user : self ? self->pw_name : "";
    if (!good_name(user))
        return cli_usage(args->command, "'%.60s' is not the name or number of a user; see --user",
                         user);
    if (expires && !good_date(expires))
        return cli_usage(args->command,
                         "--expires '%.40s' is not a date to come such as 2027-01-31 or "
                         "2027-01-31T18:00:00Z",
                         expires);
    if (!make_token(hex, sha)) {
        cli_warn("the system gives no random bytes");
        return CLI_UNEXPECTED;
    }
    (void)snprintf(line, sizeof(line), "%s:%s:%s:%s%s%s", name, user, sha, scopes,
                   expires ? ":" : "", expires ? expires : "");
    if (cli_args_flag(args, "json")) {
        json_t *out = json_pack("{s:s, s:s}", "token", hex, "line", line);
        code = out ? cli_put_json(out) : CLI_UNEXPECTED;
        json_decref(out);
    } else {
        printf("The token, shown this once:\n  %s\nThe line for the service's token file:\n  %s\n",
               hex, line);
    }
    explicit_bzero(hex, sizeof(hex));
    return code;
}

/* ------------------------------------------------------------------------------------- verbs */

static int64_t number(const json_t *answer, const char *name)
{
    return json_integer_value(json_object_get(answer, name));
}

/* Asks again until nothing runs: the verb may be repeated. */
static xpc_status drain(xpc_client *client, bool finish, bool quiet, json_t **out, xpc_error *err)
{
    const struct timespec pause = {0, POLL_NS};
    int64_t last = -1;

    for (;;) {
        xpc_status st =
            xpc_admin(client, finish ? "drain?finish=true" : "drain?finish=false", out, err);
        if (st != XPC_OK || number(*out, "running") == 0)
            return st;
        if (!quiet && number(*out, "running") != last) {
            last = number(*out, "running");
            fprintf(stderr, "%lld running\n", (long long)last);
        }
        json_decref(*out);
        *out = NULL;
        (void)nanosleep(&pause, NULL);
    }
}

static void tell(const char *verb, const json_t *answer)
{
    const char *rest = cli_member(answer, "needs_restart");
    const json_t *warnings = json_object_get(answer, "warnings"), *warning;
    size_t i;

    json_array_foreach (warnings, i, warning)
        cli_warn("warning: %s", json_is_string(warning) ? json_string_value(warning) : "");
    if (strcmp(verb, "reload") == 0 && *rest) {
        fputs("reloaded; these options change with the next start only: ", stdout);
        cli_put(stdout, rest, false);
        fputc('\n', stdout);
    } else if (strcmp(verb, "reload") == 0) {
        puts("reloaded");
    } else if (strcmp(verb, "db-check") == 0) {
        fputs("the state: ", stdout);
        cli_put(stdout, cli_member(answer, "text"), false);
        fputc('\n', stdout);
    } else if (strcmp(verb, "dump") == 0) {
        printf("%lld lines are in the log\n", (long long)number(answer, "lines"));
    } else {
        printf("%s: %lld running, %lld waiting\n",
               json_is_true(json_object_get(answer, "draining")) ? "drained" : "taking work",
               (long long)number(answer, "running"), (long long)number(answer, "queued"));
    }
}

static int ask(const cli_args *args, const char *verb)
{
    xpc_options options = {.server = cli_args_text(args, "server"), .env = getenv, .admin = true};
    xpc_client *client = NULL;
    xpc_error err = {0};
    json_t *answer = NULL;
    bool json = cli_args_flag(args, "json");
    xpc_status st = xpc_open(&client, &options, &err);
    int code = CLI_OK;

    if (st == XPC_OK && strcmp(verb, "drain") == 0)
        st = drain(client, cli_args_flag(args, "finish"), json, &answer, &err);
    else if (st == XPC_OK)
        st = xpc_admin(client, verb, &answer, &err);
    if (st != XPC_OK)
        code = cli_report(args, client, &err);
    else if (json)
        code = cli_put_json(answer);
    else
        tell(verb, answer);
    if (st == XPC_OK && code == CLI_OK && json_is_false(json_object_get(answer, "ok")))
        code = CLI_FAILED;
    json_decref(answer);
    xpc_close(client);
    return code;
}

int cmd_admin(const cli_args *args)
{
    static const char *const verbs[] = {"drain", "undrain", "reload", "dump", "db-check"};
    const char *verb = args->operands[0];
    size_t i;

    if (strcmp(verb, "tokens") == 0) {
        if (args->operand_count < 2 || strcmp(args->operands[1], "new") != 0)
            return cli_usage(args->command, "tokens knows: new NAME");
        return new_token(args);
    }
    for (i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verb, verbs[i]) == 0) {
            if (args->operand_count > 1)
                return cli_usage(args->command, "'%.60s' is one argument too many",
                                 args->operands[1]);
            return ask(args, verb);
        }
    return cli_usage(args->command,
                     "'%.40s' is not drain, undrain, reload, dump, db-check or tokens", verb);
}
