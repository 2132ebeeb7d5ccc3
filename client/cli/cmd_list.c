/* xptycho list, queue, devices: tables of what the daemon has. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 200 /* most jobs that the daemon puts on a page */
#define STATES_MAX 16

static void number(char *out, size_t size, const json_t *value, const char *format)
{
    if (json_is_number(value))
        (void)snprintf(out, size, format[0] ? "%.6f" : "%.0f", json_number_value(value));
    else
        (void)snprintf(out, size, "-");
}

/* ---------------------------------------------------------------------------------- list */

static bool add_job(cli_table *table, const json_t *job)
{
    const json_t *progress = json_object_get(job, "progress");
    char created[64], iteration[64] = "-", error[32];
    const char *reason = cli_member(job, "reason");

    cli_time(created, sizeof(created), cli_member(job, "created"));
    if (json_is_object(progress))
        (void)snprintf(iteration, sizeof(iteration), "%lld/%lld",
                       (long long)json_integer_value(json_object_get(progress, "iter")),
                       (long long)json_integer_value(json_object_get(progress, "iterations")));
    number(error, sizeof(error), json_object_get(progress, "data_error"), "f");
    if (strcmp(reason, "cancelled") == 0)
        reason = ""; /* the state says it */
    return cli_table_add(table, (const char *const[]){cli_member(job, "id"),
                                                      cli_member(job, "state"), reason, iteration,
                                                      error, created, cli_member(job, "name")});
}

static int put_jobs(const json_t *jobs)
{
    static const char *const heads[] = {"ID",         "STATE",   "REASON", "ITERATION",
                                        "DATA ERROR", "CREATED", "NAME"};
    cli_table table = {.heads = heads, .align = "lllrrll", .columns = 7};
    bool ok = true;
    size_t i;

    for (i = 0; ok && i < json_array_size(jobs); i++)
        ok = add_job(&table, json_array_get(jobs, i));
    if (ok)
        cli_table_print(stdout, &table);
    cli_table_release(&table);
    return ok ? CLI_OK : CLI_UNEXPECTED;
}

/* The --state options as a list of words. */
static int read_states(const cli_args *args, const char **states, int *count)
{
    int i;

    *count = 0;
    for (i = 0; i < args->count; i++) {
        if (strcmp(args->options[i]->name, "state") != 0)
            continue;
        if (*count == STATES_MAX)
            return cli_usage(args->command, "--state is given more than %d times", STATES_MAX);
        states[(*count)++] = args->values[i];
    }
    return CLI_OK;
}

int cmd_list(const cli_args *args)
{
    const char *states[STATES_MAX];
    xpc_list_query query = {.states = states};
    xpc_client *client = NULL;
    xpc_error err;
    json_t *jobs = NULL, *page = NULL, *next = NULL, *out = NULL;
    bool all = cli_args_flag(args, "all");
    int left = cli_args_integer(args, "limit", 50), code;

    if (left < 1)
        return cli_usage(args->command, "--limit: %d is below 1", left);
    code = read_states(args, states, &query.state_count);
    if (code == CLI_OK)
        code = cli_open(&client, args);
    if (code != CLI_OK)
        goto done;
    jobs = json_array();
    do {
        query.limit = all || left > PAGE ? PAGE : left;
        query.cursor = json_string_value(next);
        if (xpc_list(client, &query, &page, &err) != XPC_OK) {
            code = cli_report(args, client, &err);
            goto done;
        }
        (void)json_array_extend(jobs, json_object_get(page, "jobs"));
        left -= query.limit;
        json_decref(next);
        next = json_incref(json_object_get(page, "next"));
        json_decref(page);
        page = NULL;
    } while (json_is_string(next) && (all || left > 0));
    if (cli_args_flag(args, "json")) {
        out = json_pack("{s:O, s:o}", "jobs", jobs, "next", next ? next : json_null());
        next = NULL;
        code = out ? cli_put_json(out) : CLI_UNEXPECTED;
    } else {
        code = put_jobs(jobs);
        if (json_is_string(next))
            cli_warn("there are more jobs; --limit N or --all shows them");
    }
done:
    json_decref(out);
    json_decref(next);
    json_decref(page);
    json_decref(jobs);
    xpc_close(client);
    return code;
}

/* ---------------------------------------------------------------------------------- queue, devices
 */

static bool add_entries(cli_table *table, const json_t *entries)
{
    size_t i;
    bool ok = true;

    for (i = 0; ok && i < json_array_size(entries); i++) {
        const json_t *e = json_array_get(entries, i);
        char position[32], priority[32], starts[64] = "-";
        const char *at = cli_member(json_object_get(e, "pending"), "estimated_start");

        if (at[0])
            cli_time(starts, sizeof(starts), at);
        number(position, sizeof(position), json_object_get(e, "position"), "");
        number(priority, sizeof(priority), json_object_get(e, "priority"), "");
        ok = cli_table_add(
            table, (const char *const[]){position, cli_member(e, "id"), cli_member(e, "state"),
                                         priority, cli_member(e, "user"), cli_member(e, "name"),
                                         starts, cli_member(e, "waits_for")});
    }
    return ok;
}

static int put_queue(const json_t *queue)
{
    static const char *const heads[] = {"#",    "ID",   "STATE",         "PRIORITY",
                                        "USER", "NAME", "STARTS BEFORE", "WAITS FOR"};
    cli_table table = {.heads = heads, .align = "rllrllll", .columns = 8};
    long long hidden = json_integer_value(json_object_get(queue, "hidden"));
    bool ok = add_entries(&table, json_object_get(queue, "running")) &&
              add_entries(&table, json_object_get(queue, "queued")) &&
              add_entries(&table, json_object_get(queue, "held"));

    if (ok)
        cli_table_print(stdout, &table);
    if (ok && hidden > 0)
        fprintf(stdout, "and %lld of other users\n", hidden);
    cli_table_release(&table);
    return ok ? CLI_OK : CLI_UNEXPECTED;
}

static int put_devices(const json_t *answer)
{
    static const char *const heads[] = {"DEVICE", "STATE", "FREE", "OF", "THREADS", "MODEL"};
    cli_table table = {.heads = heads, .align = "llrrrl", .columns = 6};
    const json_t *devices = json_object_get(answer, "devices");
    bool ok = true;
    size_t i;

    for (i = 0; ok && i < json_array_size(devices); i++) {
        const json_t *d = json_array_get(devices, i);
        const char *absent = cli_member(d, "absent"), *job = cli_member(d, "job");
        char have[32] = "-", total[32] = "-", threads[32] = "-", state[64] = "free";

        if (!absent[0]) {
            cli_bytes(have, sizeof(have), json_number_value(json_object_get(d, "bytes_free")));
            cli_bytes(total, sizeof(total), json_number_value(json_object_get(d, "bytes_total")));
            number(threads, sizeof(threads), json_object_get(d, "threads"), "");
        }
        if (absent[0])
            (void)snprintf(state, sizeof(state), "absent");
        else if (job[0])
            (void)snprintf(state, sizeof(state), "runs %.40s", job);
        ok = cli_table_add(&table,
                           (const char *const[]){cli_member(d, "name"), state, have, total, threads,
                                                 absent[0] ? absent : cli_member(d, "model")});
    }
    if (ok)
        cli_table_print(stdout, &table);
    cli_table_release(&table);
    return ok ? CLI_OK : CLI_UNEXPECTED;
}

/* One GET, shown by `put` or as it came. */
static int get(const cli_args *args,
               xpc_status (*call)(xpc_client *client, json_t **out, xpc_error *err),
               int (*put)(const json_t *answer))
{
    xpc_client *client = NULL;
    xpc_error err;
    json_t *answer = NULL;
    int code = cli_open(&client, args);

    if (code == CLI_OK && call(client, &answer, &err) != XPC_OK)
        code = cli_report(args, client, &err);
    else if (code == CLI_OK)
        code = cli_args_flag(args, "json") ? cli_put_json(answer) : put(answer);
    json_decref(answer);
    xpc_close(client);
    return code;
}

int cmd_queue(const cli_args *args)
{
    return get(args, xpc_queue, put_queue);
}

int cmd_devices(const cli_args *args)
{
    return get(args, xpc_devices, put_devices);
}
