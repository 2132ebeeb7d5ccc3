/* xptycho submit, xptycho rerun: a job document from a file and options, sent once. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static int fill(json_t *doc, const cli_args *args)
{
    char why[256];
    int code = cli_job_labels(doc, args);

    if (code == CLI_OK)
        code = cli_job_fill(doc, args);
    if (code == CLI_OK && !cli_job_paths(doc, why, sizeof(why)))
        code = cli_usage(args->command, "%s", why);
    return code;
}

static void put_bytes_row(const json_t *device)
{
    char needed[32], have[32];

    cli_bytes(needed, sizeof(needed), json_number_value(json_object_get(device, "bytes_needed")));
    cli_bytes(have, sizeof(have), json_number_value(json_object_get(device, "bytes_free")));
    fputs("  ", stdout);
    cli_put(stdout, cli_member(device, "name"), false);
    fprintf(stdout, ": %lld positions, %s needed, %s free\n",
            (long long)json_integer_value(json_object_get(device, "frames")), needed, have);
}

static int put_verdict(const cli_args *args, const json_t *verdict)
{
    const json_t *scan = json_object_get(verdict, "scan"), *warnings, *devices;
    size_t i;

    if (cli_args_flag(args, "json"))
        return cli_put_json(verdict);
    fputs("the job would be admitted\n", stdout);
    if (json_is_object(scan)) {
        fputs("  scan: ", stdout);
        cli_put(stdout, cli_member(scan, "format"), false);
        fprintf(stdout, ", %lld frames of %lld x %lld, object pixel %.4g m\n",
                (long long)json_integer_value(json_object_get(scan, "frames")),
                (long long)json_integer_value(json_object_get(scan, "frame_side")),
                (long long)json_integer_value(json_object_get(scan, "frame_side")),
                json_number_value(json_object_get(scan, "object_pixel_m")));
    }
    devices = json_object_get(verdict, "devices");
    for (i = 0; i < json_array_size(devices); i++)
        put_bytes_row(json_array_get(devices, i));
    warnings = json_object_get(scan, "warnings");
    for (i = 0; i < json_array_size(warnings); i++) {
        const char *warning = json_string_value(json_array_get(warnings, i));
        cli_warn("%s", warning ? warning : "");
    }
    return CLI_OK;
}

/* What follows a new job: its id, and then, as asked, its course. */
static int go_on(const cli_args *args, xpc_client *client, const json_t *job)
{
    char id[64];
    bool json = cli_args_flag(args, "json"), watch = cli_args_flag(args, "watch");
    bool wait = cli_args_flag(args, "wait");
    int code = CLI_OK;

    (void)snprintf(id, sizeof(id), "%s", cli_member(job, "id"));
    if (!json || watch) {
        if (json)
            (void)json_dumpf(job, stdout, JSON_COMPACT);
        else
            cli_put(stdout, id, false);
        fputc('\n', stdout);
        (void)fflush(stdout);
    } else if (!wait) {
        return cli_put_json(job);
    }
    if (watch)
        return cli_follow(args, client, id, json ? CLI_FOLLOW_JSON : CLI_FOLLOW_AUTO);
    if (wait)
        code = cli_follow(args, client, id, CLI_FOLLOW_QUIET);
    if (wait && json && code != CLI_UNREACHABLE && code != CLI_INTERRUPTED) {
        json_t *ended = NULL;
        xpc_error err;

        if (xpc_show(client, id, &ended, &err) != XPC_OK)
            return cli_report(args, client, &err);
        (void)cli_put_json(ended);
        json_decref(ended);
    }
    return code;
}

/* A scan is no text; a job is. */
static bool is_job_file(const char *name)
{
    size_t length = strlen(name);

    return length > 5 && strcmp(name + length - 5, ".json") == 0;
}

int cmd_submit(const cli_args *args)
{
    const char *file = cli_args_text(args, "job"), *key = cli_args_text(args, "idempotency-key");
    const char *scan = args->operand_count > 0 ? args->operands[0] : NULL;
    xpc_client *client = NULL;
    xpc_error err;
    json_t *doc = NULL, *out = NULL;
    int code = CLI_OK;
    char why[256];

    if (!file && scan && is_job_file(scan)) {
        file = scan;
        scan = NULL;
    }
    if (!file && !scan)
        return cli_usage(args->command, "give a scan file, or a whole job with --job");
    doc = file ? cli_job_load(file, &code) : json_object();
    if (!doc)
        goto done;
    code = CLI_OK;
    if (scan && !cli_set(doc, "scan.path", json_string(scan), why, sizeof(why))) {
        code = cli_usage(args->command, "'%.60s': %s", scan, why);
        goto done;
    }
    code = fill(doc, args);
    if (code == CLI_OK && cli_args_flag(args, "slurm")) {
        code = cmd_slurm_submit(args, doc);
        goto done;
    }
    if (code == CLI_OK)
        code = cli_open(&client, args);
    if (code != CLI_OK)
        goto done;
    if (cli_args_flag(args, "dry-run")) {
        code = xpc_dry_run(client, doc, &out, &err) == XPC_OK ? put_verdict(args, out)
                                                              : cli_report(args, client, &err);
    } else {
        code = xpc_submit(client, doc, key, &out, &err) == XPC_OK ? go_on(args, client, out)
                                                                  : cli_report(args, client, &err);
    }
done:
    json_decref(out);
    json_decref(doc);
    xpc_close(client);
    return code;
}

/* A merge patch replaces an array as a whole, so `recon.iterations` would silently drop the other
 * stages of a job that has several. */
static int check_stages(const cli_args *args, xpc_client *client, const char *id,
                        const json_t *changes)
{
    json_t *job = NULL;
    xpc_error err;
    bool several;

    if (!json_is_object(json_object_get(changes, "recon")))
        return CLI_OK;
    if (xpc_show(client, id, &job, &err) != XPC_OK)
        return cli_report(args, client, &err);
    several = json_array_size(json_object_get(json_object_get(job, "job"), "recon")) > 1;
    json_decref(job);
    return several ? cli_usage(args->command, "the job has several stages; give them all: "
                                              "--set 'recon=[{...}, {...}]'")
                   : CLI_OK;
}

int cmd_rerun(const cli_args *args)
{
    xpc_client *client = NULL;
    xpc_error err;
    json_t *changes = json_object(), *out = NULL;
    char *id = cli_id(args->operands[0]);
    int code = CLI_UNEXPECTED;

    if (!changes || !id)
        goto done;
    code = fill(changes, args);
    if (code == CLI_OK)
        code = cli_open(&client, args);
    if (code == CLI_OK)
        code = check_stages(args, client, id, changes);
    if (code == CLI_OK)
        code = xpc_rerun(client, id, changes, cli_args_text(args, "idempotency-key"), &out, &err) ==
                       XPC_OK
                   ? go_on(args, client, out)
                   : cli_report(args, client, &err);
done:
    json_decref(out);
    json_decref(changes);
    free(id);
    xpc_close(client);
    return code;
}
