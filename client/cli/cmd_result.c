/* xptycho result, preview: what a job made, as figures or as a file. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "-" is stdout, which must not be a terminal: the bytes mean nothing there. */
static int aim(const cli_args *args, const char *output, bool overwrite, xpc_target *target)
{
    target->path = strcmp(output, "-") == 0 ? NULL : output;
    target->overwrite = overwrite;
    target->fd = STDOUT_FILENO;
    if (!target->path && cli_terminal(stdout))
        return cli_usage(args->command, "binary data is not written to a terminal");
    return CLI_OK;
}

static void put_result(const json_t *r)
{
    const json_t *shape = json_object_get(r, "object_shape"),
                 *error = json_object_get(r, "data_error");
    const json_t *devices = json_object_get(r, "devices");
    char bytes[32], seconds[32], total[32];
    size_t i;

    cli_bytes(bytes, sizeof(bytes), json_number_value(json_object_get(r, "bytes")));
    cli_duration(seconds, sizeof(seconds), json_number_value(json_object_get(r, "seconds")));
    cli_duration(total, sizeof(total), json_number_value(json_object_get(r, "seconds_total")));
    fputs("path          ", stdout);
    cli_put(stdout, cli_member(r, "path"), false);
    fprintf(stdout, "%s\n", json_is_true(json_object_get(r, "partial")) ? " (partial)" : "");
    fprintf(stdout, "size          %s\nsha256        ", bytes);
    cli_put(stdout, cli_member(r, "sha256"), false);
    fprintf(stdout, "\niterations    %lld\n",
            (long long)json_integer_value(json_object_get(r, "iterations")));
    if (json_is_number(error))
        fprintf(stdout, "data error    %.6f\n", json_number_value(error));
    fprintf(stdout, "object        %lld x %lld pixels of %.4g m\n",
            (long long)json_integer_value(json_array_get(shape, 0)),
            (long long)json_integer_value(json_array_get(shape, 1)),
            json_number_value(json_object_get(r, "object_pixel_m")));
    fprintf(stdout, "probe modes   %lld\ndevices      ",
            (long long)json_integer_value(json_object_get(r, "probe_modes")));
    for (i = 0; i < json_array_size(devices); i++) {
        const char *name = json_string_value(json_array_get(devices, i));
        fputs(i ? ", " : " ", stdout);
        cli_put(stdout, name ? name : "", false);
    }
    fprintf(stdout, "\ncpu threads   %lld\ntime          %s, %s with reading and writing\n",
            (long long)json_integer_value(json_object_get(r, "cpu_threads")), seconds, total);
}

int cmd_result(const cli_args *args)
{
    const char *output = cli_args_text(args, "output");
    xpc_client *client = NULL;
    xpc_error err;
    xpc_target target;
    json_t *result = NULL;
    char *id = cli_id(args->operands[0]);
    int code = id ? CLI_OK : CLI_UNEXPECTED;

    if (code == CLI_OK && output)
        code = aim(args, output, cli_args_flag(args, "overwrite"), &target);
    if (code == CLI_OK)
        code = cli_open(&client, args);
    if (code == CLI_OK && output && xpc_result_data(client, id, &target, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    /* With the file itself on stdout there is no room for figures. */
    if (code == CLI_OK && !(output && !target.path)) {
        if (xpc_result(client, id, &result, &err) != XPC_OK)
            code = cli_report(args, client, &err);
        else if (cli_args_flag(args, "json"))
            code = cli_put_json(result);
        else if (!output)
            put_result(result);
    }
    json_decref(result);
    free(id);
    xpc_close(client);
    return code;
}

int cmd_preview(const cli_args *args)
{
    const char *output = cli_args_text(args, "output"), *what = cli_args_text(args, "what");
    xpc_client *client = NULL;
    xpc_error err;
    xpc_target target;
    json_t *told = NULL;
    char *id = cli_id(args->operands[0]);
    int code = id ? CLI_OK : CLI_UNEXPECTED;

    if (code == CLI_OK && !output)
        code = cli_usage(args->command, "give --output FILE.png, or --output - for stdout");
    if (!what)
        what = "object_phase";
    /* A picture is replaced by its next version as a matter of course. */
    if (code == CLI_OK)
        code = aim(args, output, true, &target);
    if (code == CLI_OK)
        code = cli_open(&client, args);
    if (code == CLI_OK && xpc_preview(client, id, what, &target, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else if (code == CLI_OK && target.path && cli_args_flag(args, "json")) {
        told = json_pack("{s:s, s:s, s:s}", "id", id, "what", what, "path", target.path);
        code = told ? cli_put_json(told) : CLI_UNEXPECTED;
    }
    json_decref(told);
    free(id);
    xpc_close(client);
    return code;
}
