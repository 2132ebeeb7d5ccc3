/* xptycho sweep: one template over many scans, as jobs of the daemon or as one array of Slurm. */
#include "cmd_slurm.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUSY_TRIES 60 /* of a submission that the daemon asks to be sent later */
#define SCANS_MAX 100000

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

typedef struct row {
    json_t *doc;
    char id[64];    /* of the daemon's job; "" = not taken */
    char state[32]; /* what the table says */
    char error[32]; /* data error */
    int code;
} row;

typedef struct sweep {
    const cli_args *args;
    row *rows;
    int count;
} sweep;

/* -------------------------------------------------------------------------------- documents */

/* "/data/tilt_07.h5" -> "tilt_07" */
static void stem(char *out, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');

    (void)snprintf(out, size, "%.*s", (int)(dot && dot > name ? dot - name : (long)strlen(name)),
                   name);
}

/* The template's output path with {name} and {index} filled in (malloc'd). */
static char *output_of(const char *pattern, const char *name, int index)
{
    char *out = NULL;
    size_t size = 0;
    FILE *text = open_memstream(&out, &size);

    if (!text)
        return NULL;
    while (*pattern) {
        if (strncmp(pattern, "{name}", 6) == 0) {
            fputs(name, text);
            pattern += 6;
        } else if (strncmp(pattern, "{index}", 7) == 0) {
            fprintf(text, "%d", index);
            pattern += 7;
        } else {
            fputc(*pattern++, text);
        }
    }
    if (fclose(text) != 0) {
        free(out);
        return NULL;
    }
    return out;
}

/* Job `index` of the sweep. */
static int fill_row(const sweep *s, row *r, const json_t *template, int index)
{
    const char *scan = s->args->operands[1 + index], *pattern, *title;
    char name[256], why[256], *text = NULL;
    int code = CLI_OK;

    stem(name, sizeof(name), scan);
    r->doc = json_deep_copy(template);
    if (!r->doc || !cli_set(r->doc, "scan.path", json_string(scan), why, sizeof(why)))
        return cli_usage(s->args->command, "'%.60s' is not UTF-8 text", scan);
    title = cli_member(r->doc, "name");
    if (asprintf(&text, "%s%s%s", title, title[0] ? " " : "", name) < 0 ||
        json_object_set_new(r->doc, "name", json_string(text)) != 0)
        code = CLI_UNEXPECTED;
    free(text);
    pattern = cli_member(json_object_get(r->doc, "output"), "path");
    if (code == CLI_OK && pattern[0]) {
        text = output_of(pattern, name, index);
        if (!text || !cli_set(r->doc, "output.path", json_string(text), why, sizeof(why)))
            code = CLI_UNEXPECTED;
        free(text);
    }
    if (code == CLI_OK && !cli_job_paths(r->doc, why, sizeof(why)))
        return cli_usage(s->args->command, "%s", why);
    if (code != CLI_OK)
        cli_warn("memory is exhausted");
    return code;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two jobs that write one file would leave one result. */
static int check_outputs(const sweep *s)
{
    const char **paths = calloc((size_t)s->count, sizeof(*paths));
    size_t used = 0, k;
    int i, code = paths ? CLI_OK : CLI_UNEXPECTED;

    for (i = 0; paths && i < s->count; i++) {
        const char *path = cli_member(json_object_get(s->rows[i].doc, "output"), "path");

        if (path[0])
            paths[used++] = path;
    }
    if (used > 1)
        qsort(paths, used, sizeof(*paths), compare_texts);
    for (k = 1; k < used && code == CLI_OK; k++)
        if (strcmp(paths[k - 1], paths[k]) == 0)
            code = cli_usage(s->args->command,
                             "two scans would write '%.200s'; put {name} or {index} into the "
                             "template's output.path",
                             paths[k]);
    free(paths);
    return code;
}

static int fill(sweep *s)
{
    int code = CLI_OK, i;
    json_t *template = cli_job_load(s->args->operands[0], &code);

    if (!template)
        return code;
    code = cli_job_labels(template, s->args);
    if (code == CLI_OK)
        code = cli_job_fill(template, s->args);
    for (i = 0; i < s->count && code == CLI_OK; i++)
        code = fill_row(s, &s->rows[i], template, i);
    json_decref(template);
    return code == CLI_OK ? check_outputs(s) : code;
}

/* ------------------------------------------------------------------------------------ table */

static void take_error(row *r, const json_t *result)
{
    const json_t *error = json_object_get(result, "data_error");

    if (json_is_number(error))
        (void)snprintf(r->error, sizeof(r->error), "%.6f", json_number_value(error));
}

/* "succeeded"; for what a batch job left as a number. */
static const char *state_of(int code)
{
    return code == CLI_OK          ? "succeeded"
           : code == CLI_CANCELLED ? "cancelled"
           : code == CLI_REFUSED   ? "refused"
                                   : "failed";
}

static int put_table(const sweep *s)
{
    static const char *const heads[] = {"#", "ID", "STATE", "DATA ERROR", "SCAN"};
    cli_table table = {.heads = heads, .align = "rllrl", .columns = 5};
    json_t *list = json_array();
    bool json = cli_args_flag(s->args, "json"), good = list != NULL;
    int i, code = CLI_OK;

    for (i = 0; i < s->count && good; i++) {
        const row *r = &s->rows[i];
        const char *scan = cli_member(json_object_get(r->doc, "scan"), "path");
        char number[16];
        const char *cells[] = {number, r->id[0] ? r->id : "-", r->state,
                               r->error[0] ? r->error : "-", scan};

        (void)snprintf(number, sizeof(number), "%d", i);
        if (json)
            good = json_array_append_new(list, json_pack("{s:i, s:s?, s:s, s:s}", "index", i, "id",
                                                         r->id[0] ? r->id : NULL, "state", r->state,
                                                         "scan", scan)) == 0;
        else
            good = cli_table_add(&table, cells);
    }
    if (!good) {
        cli_warn("memory is exhausted");
        code = CLI_UNEXPECTED;
    } else if (json) {
        code = cli_put_json(list);
    } else {
        cli_table_print(stdout, &table);
    }
    (void)fflush(stdout);
    cli_table_release(&table);
    json_decref(list);
    return code;
}

/* The first that did not go well decides. */
static int code_of(const sweep *s)
{
    int i;

    for (i = 0; i < s->count; i++)
        if (s->rows[i].code != CLI_OK)
            return s->rows[i].code;
    return CLI_OK;
}

/* ---------------------------------------------------------------------------------- daemon */

/* Sent again under its key when the daemon says that it has no room for the moment. */
static int submit_row(xpc_client *client, row *r, const char *key)
{
    json_t *job = NULL;
    xpc_error err;
    int tries;

    for (tries = 0; !interrupted; tries++) {
        if (xpc_submit(client, r->doc, key, &job, &err) == XPC_OK) {
            (void)snprintf(r->id, sizeof(r->id), "%s", cli_member(job, "id"));
            (void)snprintf(r->state, sizeof(r->state), "%s", cli_member(job, "state"));
            json_decref(job);
            return CLI_OK;
        }
        if (err.http_status != 429 || tries == BUSY_TRIES)
            break;
        (void)sleep(err.retry_after_s > 0 ? (unsigned)err.retry_after_s : 1);
    }
    (void)snprintf(r->state, sizeof(r->state), "refused");
    if (interrupted)
        return CLI_INTERRUPTED;
    cli_warn("scan '%s': %s", cli_member(json_object_get(r->doc, "scan"), "path"), err.text);
    return cli_exit_of_status(&err);
}

static bool keep_on(void *user)
{
    (void)user;
    return !interrupted;
}

static bool no_event(void *user, const json_t *event)
{
    (void)user;
    (void)event;
    return true;
}

/* The table says that a job did not succeed; this says why.  Of Slurm's also where to read on. */
static void tell_failure(const row *r, const json_t *end, const char *folder)
{
    const char *path = cli_member(json_object_get(r->doc, "scan"), "path");
    const char *detail = cli_member(end, "detail");

    if (strcmp(r->state, "succeeded") == 0)
        return;
    cli_warn("scan '%s': %s%s%s%s%s%s", path, r->state, *detail ? ": " : "", detail,
             folder ? "; see '" : "", folder ? folder : "", folder ? "/log.txt'" : "");
}

static int wait_row(const sweep *s, xpc_client *client, row *r)
{
    xpc_follow_options options = {.tick = keep_on, .event = no_event};
    json_t *end = NULL;
    xpc_error err;
    int code;

    if (xpc_follow(client, r->id, &options, &end, &err) != XPC_OK)
        return interrupted ? CLI_INTERRUPTED : cli_report(s->args, client, &err);
    (void)snprintf(r->state, sizeof(r->state), "%s", cli_member(end, "state"));
    take_error(r, json_object_get(end, "result"));
    code = cli_exit_of_state(cli_member(end, "state"), cli_member(end, "reason"));
    tell_failure(r, end, NULL);
    json_decref(end);
    return code;
}

static int run_daemon(sweep *s)
{
    const char *given = cli_args_text(s->args, "idempotency-key");
    char fresh[XPC_KEY_SIZE], key[256];
    bool wait = cli_args_flag(s->args, "wait");
    xpc_client *client = NULL;
    int i, code = cli_open(&client, s->args);

    if (code != CLI_OK)
        return code;
    xpc_key_make(fresh);
    for (i = 0; i < s->count && code != CLI_UNREACHABLE && code != CLI_INTERRUPTED; i++) {
        /* One key a scan: the same sweep sent again under its key makes no second job. */
        (void)snprintf(key, sizeof(key), "%.200s-%d", given ? given : fresh, i);
        code = s->rows[i].code = submit_row(client, &s->rows[i], key);
    }
    for (; i < s->count; i++) {
        s->rows[i].code = code;
        (void)snprintf(s->rows[i].state, sizeof(s->rows[i].state), "not sent");
    }
    if (!wait || !cli_args_flag(s->args, "json")) /* one JSON document a run */
        (void)put_table(s);
    for (i = 0; wait && i < s->count && !interrupted; i++)
        if (s->rows[i].id[0])
            s->rows[i].code = wait_row(s, client, &s->rows[i]);
    if (interrupted)
        cli_warn("the jobs go on; 'xptycho list' shows them");
    else if (wait)
        (void)put_table(s);
    if (code == CLI_UNREACHABLE && !given)
        cli_warn("sent again with --idempotency-key %s, the sweep makes no job twice", fresh);
    xpc_close(client);
    return interrupted ? CLI_INTERRUPTED : code_of(s);
}

/* ------------------------------------------------------------------------------------ Slurm */

static int wait_slurm(sweep *s, const slurm_batch *batch, const char *id)
{
    const struct timespec pause = {.tv_sec = 1};
    slurm_task *tasks = calloc((size_t)s->count, sizeof(*tasks));
    slurm_poll poll = {.id = id, .array = true, .tasks = tasks, .count = s->count};
    int i;

    if (!tasks) {
        cli_warn("memory is exhausted");
        return CLI_UNEXPECTED;
    }
    for (i = 0; i < s->count; i++)
        (void)slurm_task_init(&tasks[i], batch->folder, i); /* the folder was checked for room */
    while (!slurm_look(&poll) && !interrupted)
        (void)nanosleep(&pause, NULL);
    for (i = 0; i < s->count; i++) {
        json_t *end = slurm_last_end(tasks[i].folder);

        s->rows[i].code = tasks[i].exit < 0 ? CLI_INTERRUPTED : tasks[i].exit;
        (void)snprintf(s->rows[i].state, sizeof(s->rows[i].state), "%s",
                       tasks[i].exit < 0 ? tasks[i].state : state_of(tasks[i].exit));
        take_error(&s->rows[i], json_object_get(end, "result"));
        if (!interrupted)
            tell_failure(&s->rows[i], end, tasks[i].folder);
        json_decref(end);
    }
    free(tasks);
    if (interrupted)
        cli_warn("the jobs go on; 'squeue --jobs %s' shows them, 'scancel %s' ends them", id, id);
    else
        (void)put_table(s);
    return interrupted ? CLI_INTERRUPTED : code_of(s);
}

static int submit_slurm(sweep *s, slurm_batch *batch)
{
    char id[SLURM_ID_SIZE], path[PATH_MAX];
    int i, code = CLI_OK;

    if (mkdir(batch->folder, 0777) != 0) {
        cli_warn("the folder '%s' cannot be made: %s; a sweep gets one of its own, so name another "
                 "with --folder",
                 batch->folder, strerror(errno));
        return CLI_USAGE;
    }
    for (i = 0; i < s->count && code == CLI_OK; i++) {
        (void)snprintf(path, sizeof(path), "%s/%d", batch->folder, i);
        code = slurm_put_job(path, s->rows[i].doc);
    }
    if (code == CLI_OK)
        code = slurm_submit(batch, id);
    if (code != CLI_OK)
        return code;
    for (i = 0; i < s->count; i++) {
        (void)snprintf(s->rows[i].id, sizeof(s->rows[i].id), "%s_%d", id, i);
        (void)snprintf(s->rows[i].state, sizeof(s->rows[i].state), "submitted");
    }
    fprintf(stderr, "xptycho: files of the jobs: %s\n", batch->folder);
    if (cli_args_flag(s->args, "wait"))
        return wait_slurm(s, batch, id);
    return put_table(s);
}

static int run_slurm(sweep *s)
{
    slurm_batch batch = {.args = s->args,
                         .tasks = s->count,
                         .at_once = cli_args_integer(s->args, "at-once", 0),
                         .doc = s->rows[0].doc};
    int i, code = CLI_OK;
    char *folder, *script;

    for (i = 0; i < s->count && code == CLI_OK; i++)
        code = slurm_check(s->rows[i].doc);
    folder = code == CLI_OK ? slurm_folder(s->args, &code) : NULL;
    if (!folder)
        return code;
    batch.folder = folder;
    if (cli_args_flag(s->args, "dry-run")) {
        script = slurm_script(&batch, &code);
        if (script)
            fputs(script, stdout);
        free(script);
    } else {
        code = submit_slurm(s, &batch);
    }
    free(folder);
    return code;
}

/* ---------------------------------------------------------------------------------- command */

int cmd_sweep(const cli_args *args)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    sweep s = {.args = args, .count = args->operand_count - 1};
    int code, i;

    if (s.count > SCANS_MAX)
        return cli_usage(args->command, "there are %d scans; give at most %d", s.count, SCANS_MAX);
    if (cli_args_integer(args, "at-once", 1) < 1)
        return cli_usage(args->command, "--at-once: give at least 1");
    if (cli_args_flag(args, "dry-run") && !cli_args_flag(args, "slurm"))
        return cli_usage(args->command, "--dry-run shows the script of --slurm");
    s.rows = calloc((size_t)s.count, sizeof(*s.rows));
    if (!s.rows) {
        cli_warn("memory is exhausted");
        return CLI_UNEXPECTED;
    }
    (void)sigaction(SIGINT, &action, &before);
    code = fill(&s);
    if (code == CLI_OK)
        code = cli_args_flag(args, "slurm") ? run_slurm(&s) : run_daemon(&s);
    (void)sigaction(SIGINT, &before, NULL);
    for (i = 0; i < s.count; i++)
        json_decref(s.rows[i].doc);
    free(s.rows);
    return code;
}
