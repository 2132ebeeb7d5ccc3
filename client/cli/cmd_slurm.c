/* submit --slurm, and watch with a folder: one job as a batch job of Slurm.  Its events come from
 * the file that the run writes, so that following costs Slurm next to nothing. */
#include "cmd_slurm.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 500

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

typedef struct follower {
    const cli_args *args;
    char id[SLURM_ID_SIZE];
    slurm_task task;
    slurm_poll poll;
    cli_view *view;
    FILE *events; /* NULL until there is one */
    char *line;
    size_t room;
    json_t *end; /* the last `end`; the job's own only when the script has left its exit code */
    char told[24];
    bool quiet, json;
} follower;

/* ----------------------------------------------------------------------------------- events */

static void take(follower *f, const char *text)
{
    json_t *event = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *type = cli_member(event, "type");

    if (json_is_object(event) && json_is_integer(json_object_get(event, "seq")) && type[0]) {
        if (f->end) { /* it was the end of an attempt only */
            json_decref(f->end);
            f->end = NULL;
            if (!f->quiet) {
                cli_view_clear(f->view);
                cli_warn("the job goes on from its checkpoint");
            }
        }
        if (strcmp(type, "end") == 0)
            f->end = json_incref(event);
        else if (!f->quiet)
            (void)cli_view_event(f->view, event);
    } else if (json_is_object(event) && json_is_integer(json_object_get(event, "status"))) {
        char why[4096];

        xpc_problem_text(why, sizeof(why), event);
        cli_view_clear(f->view);
        cli_warn("%s", why);
    } /* else a line that a killed attempt left torn */
    json_decref(event);
}

/* Every whole line that has come. */
static void read_events(follower *f)
{
    char path[PATH_MAX + 16];

    if (!f->events) {
        (void)snprintf(path, sizeof(path), "%s/events.ndjson", f->task.folder);
        f->events = fopen(path, "re");
    }
    while (f->events) {
        off_t before = ftello(f->events);
        ssize_t length = getline(&f->line, &f->room, f->events);

        if (length <= 0 || f->line[length - 1] != '\n') {
            clearerr(f->events);
            (void)fseeko(f->events, before, SEEK_SET);
            break;
        }
        take(f, f->line);
    }
}

static void tell_state(follower *f)
{
    if (f->quiet || !f->task.state[0] || strcmp(f->told, f->task.state) == 0)
        return;
    (void)snprintf(f->told, sizeof(f->told), "%s", f->task.state);
    cli_view_clear(f->view);
    fprintf(stderr, "xptycho: Slurm job %s: %s\n", f->id, f->told);
}

/* ---------------------------------------------------------------------------------- the loop */

static void rest(void)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};

    (void)nanosleep(&pause, NULL); /* a signal ends it early, and that is wanted */
}

static int follow(follower *f)
{
    bool over = false;

    while (!over && !interrupted && !ferror(stdout)) {
        over = slurm_look(&f->poll); /* before the events, so that none is left unread after it */
        read_events(f);
        tell_state(f);
        if (!over)
            rest();
    }
    cli_view_clear(f->view);
    if (!over) {
        if (interrupted)
            cli_warn("the job goes on; 'xptycho watch %s' comes back to it, 'scancel %s' ends it",
                     f->task.folder, f->id);
        return interrupted ? CLI_INTERRUPTED : CLI_UNEXPECTED;
    }
    if (f->end && f->json)
        (void)cli_view_event(f->view, f->end);
    else if (f->end)
        cli_view_end(f->view, f->id, f->end);
    else if (f->task.exit != CLI_OK)
        cli_warn("Slurm job %s ended with %d; see '%s/log.txt' and '%s/slurm.log'", f->id,
                 f->task.exit, f->task.folder, f->task.folder);
    return f->task.exit;
}

static int follow_folder(const cli_args *args, const char *folder)
{
    follower f = {.args = args,
                  .quiet = cli_args_flag(args, "wait") && !cli_args_flag(args, "watch"),
                  .json = cli_args_flag(args, "json")};
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    char path[PATH_MAX + 16];
    json_t *doc = NULL, *job = NULL;
    FILE *file;
    int code = CLI_USAGE;

    (void)snprintf(path, sizeof(path), "%s/slurm-id", folder);
    file = fopen(path, "re");
    if (!slurm_task_init(&f.task, folder, -1) || !file || fscanf(file, "%23[0-9]", f.id) != 1) {
        cli_warn("'%s' is no folder of a Slurm job: it has no slurm-id", folder);
        goto done;
    }
    (void)snprintf(path, sizeof(path), "%s/job.json", folder);
    doc = json_load_file(path, 0, NULL);
    if (!doc) {
        cli_warn("'%s' has no job.json; of a sweep, watch the folder of one scan", folder);
        goto done;
    }
    job = json_pack("{s:O}", "job", doc);
    f.view = job ? cli_view_open(f.json    ? CLI_FOLLOW_JSON
                                 : f.quiet ? CLI_FOLLOW_QUIET
                                           : CLI_FOLLOW_AUTO,
                                 job)
                 : NULL;
    code = CLI_UNEXPECTED;
    if (!f.view) {
        cli_warn("memory is exhausted");
        goto done;
    }
    f.poll = (slurm_poll){.id = f.id, .tasks = &f.task, .count = 1};
    interrupted = 0;
    (void)sigaction(SIGINT, &action, &before);
    code = follow(&f);
    (void)sigaction(SIGINT, &before, NULL);
done:
    if (file)
        (void)fclose(file);
    if (f.events)
        (void)fclose(f.events);
    free(f.line);
    json_decref(f.end);
    cli_view_close(f.view);
    json_decref(job);
    json_decref(doc);
    return code;
}

int cmd_slurm_watch(const cli_args *args, const char *folder)
{
    char *here = getcwd(NULL, 0), *whole = here ? cli_path_absolute(here, folder) : NULL;
    int code = CLI_UNEXPECTED;

    if (!whole)
        cli_warn("the current folder cannot be named: %s", strerror(errno));
    else if (strlen(whole) >= PATH_MAX - 16)
        code = cli_usage(args->command, "the folder's path is too long");
    else
        code = follow_folder(args, whole);
    free(whole);
    free(here);
    return code;
}

/* ----------------------------------------------------------------------------------- submit */

static int put_script(const slurm_batch *batch)
{
    int code;
    char *script = slurm_script(batch, &code);

    if (script)
        fputs(script, stdout);
    free(script);
    return code;
}

int cmd_slurm_submit(const cli_args *args, json_t *doc)
{
    slurm_batch batch = {.args = args, .doc = doc};
    char id[SLURM_ID_SIZE], *folder = NULL;
    int code = slurm_check(doc);

    if (code == CLI_OK)
        folder = slurm_folder(args, &code);
    if (!folder)
        return code;
    batch.folder = folder;
    if (cli_args_flag(args, "dry-run")) {
        code = put_script(&batch);
        goto done;
    }
    if (access(folder, F_OK) == 0) {
        code = cli_usage(args->command,
                         "the folder '%.200s' exists; a job gets one of its own, so name another "
                         "with --folder",
                         folder);
        goto done;
    }
    code = slurm_put_job(folder, doc);
    if (code == CLI_OK)
        code = slurm_submit(&batch, id);
    if (code != CLI_OK)
        goto done;
    if (cli_args_flag(args, "json")) {
        json_t *told = json_pack("{s:s, s:s}", "slurm_id", id, "folder", folder);

        (void)json_dumpf(told, stdout, JSON_COMPACT);
        fputc('\n', stdout);
        json_decref(told);
    } else {
        fprintf(stdout, "%s\n", id);
        fprintf(stderr, "xptycho: files of the job: %s\n", folder);
    }
    (void)fflush(stdout);
    if (cli_args_flag(args, "watch") || cli_args_flag(args, "wait"))
        code = follow_folder(args, folder);
done:
    free(folder);
    return code;
}
