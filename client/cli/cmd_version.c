/* xptycho version: this program, and the daemon where one answers. */
#include "cli.h"

#include <stdlib.h>
#include <xptychod/protocol.h>

int cmd_version(const cli_args *args)
{
    xpc_client *client = NULL;
    xpc_error err = {0};
    xpc_options options = {.server = cli_args_text(args, "server"),
                           .token_file = cli_args_text(args, "token-file"),
                           .timeout_ms = 5000,
                           .env = getenv};
    json_t *daemon = NULL, *out = NULL;
    int code = CLI_OK;

    /* A missing daemon is part of the answer here, not a failure. */
    if (xpc_open(&client, &options, &err) != XPC_OK ||
        xpc_daemon_version(client, &daemon, &err) != XPC_OK)
        daemon = NULL;
    if (!client && err.status == XPC_INVALID)
        return cli_report(args, NULL, &err);
    if (cli_args_flag(args, "json")) {
        out = json_pack("{s:s, s:s?, s:O?, s:s?}", "version", xpp_version(), "server",
                        client ? xpc_server(client) : NULL, "daemon", daemon, "daemon_fault",
                        daemon ? NULL : err.text);
        code = out ? cli_put_json(out) : CLI_UNEXPECTED;
    } else {
        fprintf(stdout, "xptycho %s\n", xpp_version());
        if (daemon) {
            fputs("xptychod ", stdout);
            cli_put(stdout, cli_member(daemon, "version"), false);
            fputs(" at ", stdout);
            cli_put(stdout, xpc_server(client), false);
            fputs("\nbuild ", stdout);
            cli_put(stdout, cli_member(daemon, "build"), false);
            fputc('\n', stdout);
        } else {
            fputs("xptychod: ", stdout);
            cli_put(stdout, err.text, true);
            fputc('\n', stdout);
        }
    }
    json_decref(out);
    json_decref(daemon);
    xpc_close(client);
    return code;
}
