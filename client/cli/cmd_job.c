/* xptycho watch, show, cancel, hold, release, set, delete, log: one job by its id. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Client and id for a command on one job. */
static int begin(const cli_args *args, xpc_client **client, char **id)
{
    *client = NULL;
    *id = cli_id(args->operands[0]);
    if (!*id) {
        cli_warn("memory is exhausted");
        return CLI_UNEXPECTED;
    }
    return cli_open(client, args);
}

int cmd_watch(const cli_args *args)
{
    xpc_client *client;
    char *id;
    int code;

    if (strchr(args->operands[0], '/')) /* no id has one */
        return cmd_slurm_watch(args, args->operands[0]);
    code = begin(args, &client, &id);
    if (code == CLI_OK)
        code = cli_follow(args, client, id,
                          cli_args_flag(args, "json")   ? CLI_FOLLOW_JSON
                          : cli_args_flag(args, "wait") ? CLI_FOLLOW_QUIET
                                                        : CLI_FOLLOW_AUTO);
    free(id);
    xpc_close(client);
    return code;
}

static void field(const char *name, const char *value)
{
    if (!value[0])
        return;
    fprintf(stdout, "%-12s ", name);
    cli_put(stdout, value, false);
    fputc('\n', stdout);
}

static void field_time(const char *name, const json_t *job)
{
    char text[64];

    if (!json_is_string(json_object_get(job, name)))
        return;
    cli_time(text, sizeof(text), cli_member(job, name));
    field(name, text);
}

/* Why a job does not run yet; the members of pending that the list has no room for, too. */
static void put_pending(const json_t *pending)
{
    const json_t *blocked_by = json_object_get(pending, "blocked_by"), *id;
    long long hidden = json_integer_value(json_object_get(pending, "blocked_by_hidden"));
    char text[64];
    size_t i;

    if (!json_is_object(pending))
        return;
    field("waits for", cli_member(pending, "detail"));
    json_array_foreach (blocked_by, i, id)
        field("blocked by", json_is_string(id) ? json_string_value(id) : "");
    if (hidden > 0) {
        (void)snprintf(text, sizeof(text), "%lld of other users", hidden);
        field("blocked by", text);
    }
    if (json_is_string(json_object_get(pending, "estimated_start"))) {
        cli_time(text, sizeof(text), cli_member(pending, "estimated_start"));
        field("starts by", text);
    }
}

static void put_job(const json_t *job)
{
    const json_t *progress = json_object_get(job, "progress"), *error;
    const json_t *document = json_object_get(job, "job");
    json_t *labels = json_object_get(job, "labels");
    const char *state = cli_member(job, "state"), *key;
    json_t *value;
    char text[128];

    field("id", cli_member(job, "id"));
    field("name", cli_member(job, "name"));
    fprintf(stdout, "%-12s %s", "state", cli_colour(state));
    cli_put(stdout, state, false);
    fprintf(stdout, "%s\n", cli_colour(""));
    field("reason", cli_member(job, "reason"));
    field("detail", cli_member(job, "detail"));
    field("user", cli_member(job, "user"));
    field("scan", cli_member(json_object_get(document, "scan"), "path"));
    json_object_foreach (labels, key, value) {
        fputs("label        ", stdout);
        cli_put(stdout, key, false);
        fputc('=', stdout);
        cli_put(stdout, json_string_value(value) ? json_string_value(value) : "", false);
        fputc('\n', stdout);
    }
    (void)snprintf(text, sizeof(text), "%lld",
                   (long long)json_integer_value(json_object_get(job, "priority")));
    field("class", cli_member(job, "class"));
    field("priority", text);
    if (json_is_integer(json_object_get(job, "queue_position"))) {
        (void)snprintf(text, sizeof(text), "%lld",
                       (long long)json_integer_value(json_object_get(job, "queue_position")));
        field("in queue", text);
    }
    put_pending(json_object_get(job, "pending"));
    field_time("created", job);
    field_time("started", job);
    field_time("finished", job);
    if (json_is_object(progress)) {
        long long modes = json_integer_value(json_object_get(progress, "modes"));

        (void)snprintf(text, sizeof(text), "%lld of %lld, stage %lld, %lld mode%s",
                       (long long)json_integer_value(json_object_get(progress, "iter")),
                       (long long)json_integer_value(json_object_get(progress, "iterations")),
                       (long long)json_integer_value(json_object_get(progress, "stage")), modes,
                       modes == 1 ? "" : "s");
        field("iteration", text);
        error = json_object_get(progress, "data_error");
        if (json_is_number(error)) {
            (void)snprintf(text, sizeof(text), "%.6f", json_number_value(error));
            field("data error", text);
        }
    }
    field("result", cli_member(json_object_get(job, "result"), "path"));
}

int cmd_show(const cli_args *args)
{
    xpc_client *client;
    xpc_error err;
    json_t *job = NULL;
    char *id;
    int code = begin(args, &client, &id);

    if (code == CLI_OK && xpc_show(client, id, &job, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else if (code == CLI_OK && cli_args_flag(args, "json"))
        code = cli_put_json(job);
    else if (code == CLI_OK)
        put_job(job);
    json_decref(job);
    free(id);
    xpc_close(client);
    return code;
}

int cmd_cancel(const cli_args *args)
{
    xpc_client *client;
    xpc_error err;
    json_t *job = NULL;
    char *id;
    int code = begin(args, &client, &id);

    if (code == CLI_OK && xpc_cancel(client, id, &job, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else if (code == CLI_OK && cli_args_flag(args, "wait"))
        /* That the job ends is what was asked for; how it ended is told, not returned. */
        switch (code = cli_follow(args, client, id, CLI_FOLLOW_QUIET)) {
        case CLI_UNREACHABLE:
        case CLI_INTERRUPTED:
        case CLI_UNEXPECTED:
            break;
        default:
            code = CLI_OK;
        }
    else if (code == CLI_OK && cli_args_flag(args, "json"))
        code = cli_put_json(job);
    else if (code == CLI_OK)
        fprintf(stdout, "%s %s\n", id,
                json_is_true(json_object_get(job, "terminal"))
                    ? cli_member(job, "state")
                    : "will be cancelled within an iteration");
    json_decref(job);
    free(id);
    xpc_close(client);
    return code;
}

static int hold_or_release(const cli_args *args,
                           xpc_status (*verb)(xpc_client *, const char *, json_t **, xpc_error *))
{
    xpc_client *client;
    xpc_error err;
    json_t *job = NULL;
    char *id;
    int code = begin(args, &client, &id);

    if (code == CLI_OK && verb(client, id, &job, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else if (code == CLI_OK && cli_args_flag(args, "json"))
        code = cli_put_json(job);
    else if (code == CLI_OK)
        fprintf(stdout, "%s is %s\n", id, cli_member(job, "state"));
    json_decref(job);
    free(id);
    xpc_close(client);
    return code;
}

int cmd_hold(const cli_args *args)
{
    return hold_or_release(args, xpc_hold);
}

int cmd_release(const cli_args *args)
{
    return hold_or_release(args, xpc_release);
}

/* The merge patch that the options ask for; CLI_OK, or reported. */
static int read_changes(json_t *patch, const cli_args *args)
{
    int i, code = cli_job_labels(patch, args);

    if (code == CLI_OK)
        code = cli_job_fill(patch, args);
    for (i = 0; code == CLI_OK && i < args->count; i++) {
        json_t *labels = json_object_get(patch, "labels");

        if (strcmp(args->options[i]->name, "remove-label") != 0)
            continue;
        if (!labels) {
            labels = json_object();
            (void)json_object_set_new(patch, "labels", labels);
        }
        if (json_object_set_new(labels, args->values[i], json_null()) != 0)
            code = cli_usage(args->command, "--remove-label: '%.60s' is not UTF-8 text",
                             args->values[i]);
    }
    if (code == CLI_OK && json_object_size(patch) == 0)
        code =
            cli_usage(args->command, "what is to change? give --name, --priority, --class, --label "
                                     "or --remove-label");
    return code;
}

/* Asked for anew where the job has changed between: what was asked for does not depend on that. */
static xpc_status change(xpc_client *client, const char *id, const json_t *patch, json_t **job,
                         xpc_error *err)
{
    xpc_status st = XPC_OK;
    int tries;

    for (tries = 0; tries < 5; tries++) {
        json_t *before = NULL;

        st = xpc_show(client, id, &before, err);
        if (st == XPC_OK)
            st = xpc_change(client, id, json_integer_value(json_object_get(before, "rev")), patch,
                            job, err);
        json_decref(before);
        if (st != XPC_REFUSED || err->http_status != 412)
            return st;
    }
    return st;
}

static void put_changed(const char *id, const json_t *job, bool named)
{
    fprintf(stdout, "%s: class %s, priority %lld", id, cli_member(job, "class"),
            (long long)json_integer_value(json_object_get(job, "priority")));
    if (named) {
        fputs(", name '", stdout);
        cli_put(stdout, cli_member(job, "name"), false);
        fputc('\'', stdout);
    }
    fputc('\n', stdout);
}

int cmd_set(const cli_args *args)
{
    xpc_client *client = NULL;
    xpc_error err;
    json_t *job = NULL, *patch = json_object();
    char *id = NULL;
    int code = read_changes(patch, args);

    if (code == CLI_OK)
        code = begin(args, &client, &id);
    if (code == CLI_OK && change(client, id, patch, &job, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else if (code == CLI_OK && cli_args_flag(args, "json"))
        code = cli_put_json(job);
    else if (code == CLI_OK)
        put_changed(id, job, json_object_get(patch, "name") != NULL);
    json_decref(patch);
    json_decref(job);
    free(id);
    xpc_close(client);
    return code;
}

int cmd_delete(const cli_args *args)
{
    xpc_client *client;
    xpc_error err;
    char *id;
    int code = begin(args, &client, &id);

    if (code == CLI_OK && xpc_delete(client, id, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else if (code == CLI_OK)
        fprintf(stdout,
                cli_args_flag(args, "json") ? "{\"id\": \"%s\", \"deleted\": true}\n"
                                            : "%s deleted\n",
                id);
    free(id);
    xpc_close(client);
    return code;
}

int cmd_log(const cli_args *args)
{
    xpc_client *client = NULL;
    xpc_error err;
    xpc_target target = {NULL, false, -1};
    FILE *file = NULL;
    char *id = NULL, *line = NULL;
    size_t room = 0;
    int code, tail = cli_args_integer(args, "tail", 0);

    if (tail < 0)
        return cli_usage(args->command, "--tail: %d is below 0", tail);
    code = begin(args, &client, &id);
    if (code != CLI_OK)
        goto done;
    file = tmpfile();
    if (!file) {
        cli_warn("a temporary file cannot be made");
        code = CLI_UNEXPECTED;
        goto done;
    }
    target.fd = fileno(file);
    if (xpc_log(client, id, tail, &target, &err) != XPC_OK) {
        code = cli_report(args, client, &err);
        goto done;
    }
    rewind(file);
    while (getline(&line, &room, file) >= 0) {
        if (cli_args_flag(args, "json")) {
            json_t *text;
            line[strcspn(line, "\n")] = '\0';
            text = json_string(line);
            if (text && json_dumpf(text, stdout, JSON_ENCODE_ANY) == 0)
                fputc('\n', stdout);
            json_decref(text);
        } else {
            cli_put(stdout, line, true);
        }
    }
done:
    if (file)
        (void)fclose(file);
    free(line);
    free(id);
    xpc_close(client);
    return code;
}
