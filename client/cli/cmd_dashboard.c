/* xptycho dashboard: a link that opens a session of a browser, and the sessions there are. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* {"scope", "valid_s"} as far as they are given; NULL: memory is exhausted. */
static json_t *read_wish(const cli_args *args)
{
    const char *scope = cli_args_text(args, "scope");
    json_t *wish = json_object();

    if (scope && json_object_set_new(wish, "scope", json_string(scope)) != 0) {
        json_decref(wish);
        return NULL;
    }
    if (cli_args_text(args, "valid-s"))
        (void)json_object_set_new(wish, "valid_s",
                                  json_integer(cli_args_integer(args, "valid-s", 0)));
    return wish;
}

static int make_link(const cli_args *args, xpc_client *client)
{
    json_t *wish = read_wish(args), *link = NULL, *url;
    xpc_error err;
    size_t i;
    int code = CLI_OK;

    if (!wish) {
        code = cli_usage(args->command, "--scope is not UTF-8 text");
    } else if (xpc_session_link(client, wish, &link, &err) != XPC_OK) {
        code = cli_report(args, client, &err);
    } else if (cli_args_flag(args, "json")) {
        code = cli_put_json(link);
    } else {
        json_array_foreach (json_object_get(link, "urls"), i, url) {
            cli_put(stdout, json_string_value(url) ? json_string_value(url) : "", false);
            fputc('\n', stdout);
        }
        if (i == 0) {
            cli_warn("dashboard: the daemon does not listen on TCP (http.port), so no browser can "
                     "reach it");
            code = CLI_REFUSED;
        } else {
            char text[64];
            cli_time(text, sizeof(text), cli_member(link, "expires"));
            fprintf(stderr, "Open %s in a browser until %s; it works once.\n",
                    i > 1 ? "one of them" : "it", text);
        }
    }
    json_decref(link);
    json_decref(wish);
    return code;
}

static bool add_session(cli_table *table, const json_t *session)
{
    const json_t *scopes = json_object_get(session, "scopes");
    const char *token = cli_member(session, "token"),
               *scope = json_string_value(json_array_get(scopes, json_array_size(scopes) - 1));
    char created[64], expires[64];

    cli_time(created, sizeof(created), cli_member(session, "created"));
    cli_time(expires, sizeof(expires), cli_member(session, "expires"));
    return cli_table_add(
        table, (const char *const[]){cli_member(session, "id"), cli_member(session, "kind"),
                                     cli_member(session, "user"), scope ? scope : "",
                                     *token ? token : "-", created, expires});
}

static int list(const cli_args *args, xpc_client *client)
{
    static const char *const heads[] = {"ID",    "KIND",    "USER",   "SCOPE",
                                        "TOKEN", "CREATED", "EXPIRES"};
    cli_table table = {.heads = heads, .align = "lllllll", .columns = 7};
    json_t *answer = NULL, *session;
    xpc_error err;
    bool ok = true;
    size_t i;
    int code = CLI_OK;

    if (xpc_sessions(client, &answer, &err) != XPC_OK) {
        code = cli_report(args, client, &err);
    } else if (cli_args_flag(args, "json")) {
        code = cli_put_json(answer);
    } else {
        json_array_foreach (json_object_get(answer, "sessions"), i, session)
            ok = ok && add_session(&table, session);
        if (ok)
            cli_table_print(stdout, &table);
        code = ok ? CLI_OK : CLI_UNEXPECTED;
    }
    cli_table_release(&table);
    json_decref(answer);
    return code;
}

static int revoke(const cli_args *args, xpc_client *client)
{
    char *id = cli_id(cli_args_text(args, "revoke"));
    xpc_error err;
    int code = CLI_OK;

    if (!id)
        code = CLI_UNEXPECTED;
    else if (xpc_session_end(client, id, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else
        fprintf(stdout,
                cli_args_flag(args, "json") ? "{\"id\": \"%s\", \"ended\": true}\n" : "%s ended\n",
                id);
    free(id);
    return code;
}

int cmd_dashboard(const cli_args *args)
{
    xpc_client *client = NULL;
    int code = cli_open(&client, args);

    if (code == CLI_OK && cli_args_text(args, "revoke"))
        code = revoke(args, client);
    else if (code == CLI_OK && cli_args_flag(args, "list"))
        code = list(args, client);
    else if (code == CLI_OK)
        code = make_link(args, client);
    xpc_close(client);
    return code;
}
