/* Opening the client, and turning what went wrong into a line and an exit code. */
#include "cli.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void cli_warn(const char *format, ...)
{
    char text[5000];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)fflush(stdout);
    fputs("xptycho: ", stderr);
    cli_put(stderr, text, true);
    fputc('\n', stderr);
}

int cli_exit_of_status(const xpc_error *err)
{
    switch (err->status) {
    case XPC_OK:
        return CLI_OK;
    case XPC_INVALID:
        return CLI_USAGE;
    case XPC_REFUSED:
        return CLI_REFUSED;
    case XPC_UNREACHABLE:
        return CLI_UNREACHABLE;
    case XPC_STOPPED:
        return CLI_INTERRUPTED;
    case XPC_FAULT:
    case XPC_IO:
    case XPC_NO_MEMORY:
        return CLI_UNEXPECTED;
    }
    return CLI_UNEXPECTED;
}

int cli_exit_of_state(const char *state, const char *reason)
{
    /* What a submission would have been refused for is refused when it shows later, too. */
    static const char *const refusals[] = {"dataset", "dataset-busy",     "dataset-changed",
                                           "refused", "no-device-memory", "output"};
    size_t i;

    if (strcmp(state, "succeeded") == 0)
        return CLI_OK;
    if (strcmp(state, "cancelled") == 0)
        return CLI_CANCELLED;
    if (strcmp(state, "failed") != 0)
        return CLI_UNEXPECTED;
    for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        if (strcmp(reason, refusals[i]) == 0)
            return CLI_REFUSED;
    return CLI_FAILED;
}

int cli_open(xpc_client **out, const cli_args *args)
{
    xpc_options options = {.server = cli_args_text(args, "server"),
                           .token_file = cli_args_text(args, "token-file"),
                           .env = getenv};
    xpc_error err;

    if (xpc_open(out, &options, &err) == XPC_OK)
        return CLI_OK;
    return cli_report(args, NULL, &err);
}

int cli_report(const cli_args *args, const xpc_client *client, const xpc_error *err)
{
    const json_t *problem = client ? xpc_problem(client) : NULL;

    if (problem && err->status == XPC_REFUSED && cli_args_flag(args, "json"))
        (void)cli_put_json(problem);
    cli_warn("%s", err->text);
    if (strcmp(err->type, "unauthenticated") == 0)
        cli_warn("give a token with --token-file, XPTYCHO_TOKEN or XPTYCHO_TOKEN_FILE");
    if (err->retry_after_s > 0)
        cli_warn("try again in %d s", err->retry_after_s);
    return cli_exit_of_status(err);
}

char *cli_id(const char *typed)
{
    char *id = strdup(typed), *p;

    for (p = id; p && *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return id;
}
