/* xptycho, the command line: picks the command, takes the line apart, runs it.  Commands that need
 * HDF5 or arithmetic are modes of the sibling programs and replace this process. */
#include "cli.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xptychod/protocol.h>

#define COMMANDS_MAX 32

static const cli_command *find(const char *name)
{
    const cli_command *c;

    for (c = cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[COMMANDS_MAX], *nearest;
    size_t count = 0;
    const cli_command *c;

    for (c = cli_commands; c->name && count < COMMANDS_MAX; c++)
        names[count++] = c->name;
    nearest = cli_nearest(name, names, count);
    if (name[0] == '-')
        return cli_usage(NULL, "options come after the command; '%.60s' is none", name);
    return nearest ? cli_usage(NULL, "unknown command '%.60s'; did you mean '%s'?", name, nearest)
                   : cli_usage(NULL, "unknown command '%.60s'", name);
}

/* Becomes the sibling program: "xptycho-worker simulate ARGUMENTS".  Returns only on failure. */
static int become(const cli_command *command, char **arguments, int count)
{
    char path[4096], **argv = calloc((size_t)count + 3, sizeof(*argv));
    int i;

    if (!argv) {
        cli_warn("memory is exhausted");
        return CLI_UNEXPECTED;
    }
    if (!xpp_program_find(path, sizeof(path), command->program)) {
        cli_warn("%s: the program '%s' is not installed: %s", command->name, command->program,
                 path);
        free(argv);
        return CLI_UNEXPECTED;
    }
    /* exec takes pointers to characters that it does not write to. */
    argv[0] = (char *)(uintptr_t)command->program;
    argv[1] = (char *)(uintptr_t)command->name;
    for (i = 0; i < count; i++)
        argv[2 + i] = arguments[i];
    (void)execv(path, argv);
    cli_warn("%s: cannot run '%s': %s", command->name, path, strerror(errno));
    free(argv);
    return CLI_UNEXPECTED;
}

static int help(int argc, char **argv)
{
    static char flag[] = "--help";
    char *arguments[] = {flag};
    const cli_command *command;

    if (argc == 0) {
        cli_help_all(stdout);
        return CLI_OK;
    }
    command = find(argv[0]);
    if (!command)
        return unknown(argv[0]);
    if (command->program)
        return become(command, arguments, 1);
    cli_help_command(stdout, command);
    return CLI_OK;
}

static int run(const cli_command *command, int argc, char **argv)
{
    cli_args args;
    int code = cli_args_parse(&args, command, argc, argv);

    if (code == CLI_OK && cli_args_flag(&args, "help"))
        cli_help_command(stdout, command);
    else if (code == CLI_OK)
        code = command->run(&args);
    cli_args_release(&args);
    return code;
}

int main(int argc, char **argv)
{
    const cli_command *command;
    const char *name = argc > 1 ? argv[1] : NULL;
    int code;

    if (!name) {
        cli_help_all(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    command = find(name);
    if (command && command->program)
        return become(command, argv + 2, argc - 2);
    xpp_init();
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        cli_warn("libcurl cannot start");
        return CLI_UNEXPECTED;
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        code = help(argc - 2, argv + 2);
    else
        code = command ? run(command, argc - 1, argv + 1) : unknown(name);
    /* Output that went nowhere is no success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK) {
        cli_warn("the output cannot be written: %s", strerror(errno));
        code = CLI_UNEXPECTED;
    }
    curl_global_cleanup();
    return code;
}
