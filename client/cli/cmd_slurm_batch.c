/* From job documents to a batch that Slurm has taken.  The script is fixed text below two quoted
 * assignments; what varies in Slurm's own options goes to sbatch as arguments, through no shell. */
#include "cmd_slurm.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xptychod/protocol.h>

#define ARGUMENTS_MAX 128
#define ANSWER_MAX 4096

extern const char cli_slurm_script[]; /* deploy/slurm/batch.sh */
extern char **environ;

/* -------------------------------------------------------------------------------- documents */

int slurm_check(const json_t *doc)
{
    json_t *errors = xpp_job_check(doc), *problem;
    char why[4096];

    if (!errors)
        return CLI_OK;
    problem = xpp_problem(XPP_FAULT_INVALID_JOB, "the job cannot be run as it is", errors, NULL);
    xpc_problem_text(why, sizeof(why), problem);
    cli_warn("%s", why);
    json_decref(problem);
    return CLI_REFUSED;
}

int slurm_put_job(const char *folder, json_t *doc)
{
    json_t *output = json_object_get(doc, "output");
    char path[PATH_MAX];
    bool good = true;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        cli_warn("the folder '%s' cannot be made: %s", folder, strerror(errno));
        return CLI_UNEXPECTED;
    }
    if (!json_string_value(json_object_get(output, "path"))) {
        if (!json_is_object(output)) {
            output = json_object();
            good = json_object_set_new(doc, "output", output) == 0;
        }
        /* The folder is the job's own: a second attempt may replace what the first one left. */
        good = good && snprintf(path, sizeof(path), "%s/result.h5", folder) < (int)sizeof(path) &&
               json_object_set_new(output, "path", json_string(path)) == 0 &&
               json_object_set_new(output, "overwrite", json_true()) == 0;
    }
    good = good && snprintf(path, sizeof(path), "%s/job.json", folder) < (int)sizeof(path) &&
           json_dump_file(doc, path, JSON_INDENT(2)) == 0;
    if (!good)
        cli_warn("the job cannot be written to '%s'", folder);
    return good ? CLI_OK : CLI_UNEXPECTED;
}

/* ----------------------------------------------------------------------------------- folder */

static bool printable(const char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char)*text))
            return false;
    return true;
}

char *slurm_folder(const cli_args *args, int *code)
{
    const char *given = cli_args_text(args, "folder");
    char fresh[16 + XPP_JOB_ID_SIZE] = "xptycho-", *here = getcwd(NULL, 0), *folder = NULL;

    *code = CLI_UNEXPECTED;
    if (!here) {
        cli_warn("the current folder cannot be named: %s", strerror(errno));
        return NULL;
    }
    xpp_job_id_make(fresh + strlen(fresh));
    folder = cli_path_absolute(here, given ? given : fresh);
    free(here);
    if (folder && (!printable(folder) || strpbrk(folder, "%\\"))) {
        *code = cli_usage(args->command,
                          "the folder '%.200s' has a character that Slurm reads as its own (%%, \\ "
                          "or a control character); name another with --folder",
                          folder);
    } else if (folder && strlen(folder) > PATH_MAX - 64) {
        *code = cli_usage(args->command, "the folder's path is too long");
    } else if (folder) {
        *code = CLI_OK;
    }
    if (*code == CLI_OK)
        return folder;
    free(folder);
    return NULL;
}

/* ---------------------------------------------------------------------------------- options */

typedef struct arguments {
    char *argv[ARGUMENTS_MAX]; /* malloc'd, NULL after the last */
    int count;
    bool failed; /* memory, or too many */
} arguments;

static void add(arguments *a, const char *option, const char *value)
{
    char *text = NULL;

    if (a->count + 1 < ARGUMENTS_MAX && asprintf(&text, "%s%s", option, value) >= 0)
        a->argv[a->count++] = text;
    else
        a->failed = true;
}

static void arguments_release(arguments *a)
{
    while (a->count > 0)
        free(a->argv[--a->count]);
}

/* Letters that no shell, no Slurm and no terminal reads as anything else. */
static void harmless(char *out, size_t size, const char *name)
{
    size_t used = 0;

    for (; *name && used + 1 < size; name++)
        out[used++] = isalnum((unsigned char)*name) || strchr("._-", *name) ? *name : '_';
    out[used] = '\0';
}

/* "gpu:N" of a job that says how many devices; "" where it does not, or names processors. */
static void gres_of(char *out, size_t size, const json_t *doc)
{
    const json_t *devices = json_object_get(doc, "devices"),
                 *names = json_object_get(devices, "devices");
    json_int_t count = json_integer_value(json_object_get(devices, "num_devices"));
    const char *first = json_string_value(json_array_get(names, 0));

    if (first && strncmp(first, "cuda", 4) == 0)
        count = (json_int_t)json_array_size(names);
    (void)snprintf(out, size, count > 0 ? "gpu:%lld" : "", (long long)count);
}

static int fill(arguments *a, const slurm_batch *batch)
{
    static const struct {
        const char *name, *option;
    } plain[] = {{"partition", "--partition="}, {"gres", "--gres="}, {"time", "--time="}};
    const cli_args *args = batch->args;
    json_int_t threads =
        json_integer_value(json_object_get(json_object_get(batch->doc, "devices"), "cpu_threads"));
    char name[64], text[64];
    int i;

    add(a, "sbatch", "");
    add(a, "--parsable", "");
    harmless(name, sizeof(name), cli_member(batch->doc, "name"));
    add(a, "--job-name=", name[0] ? name : "xptycho");
    add(a, "--output=", batch->folder);
    if (!a->failed) { /* the file beside the job's others */
        char *whole = NULL;

        if (asprintf(&whole, "%s%s/slurm.log", a->argv[a->count - 1], batch->tasks ? "/%a" : "") <
            0)
            return CLI_UNEXPECTED;
        free(a->argv[a->count - 1]);
        a->argv[a->count - 1] = whole;
    }
    if (batch->tasks > 0) {
        (void)snprintf(text, sizeof(text), batch->at_once ? "0-%d%%%d" : "0-%d", batch->tasks - 1,
                       batch->at_once);
        add(a, "--array=", text);
    }
    if (threads > 0) {
        (void)snprintf(text, sizeof(text), "%lld", (long long)threads);
        add(a, "--cpus-per-task=", text);
    }
    gres_of(text, sizeof(text), batch->doc);
    if (text[0] && !cli_args_text(args, "gres"))
        add(a, "--gres=", text);
    for (i = 0; i < (int)(sizeof(plain) / sizeof(plain[0])); i++)
        if (cli_args_text(args, plain[i].name))
            add(a, plain[i].option, cli_args_text(args, plain[i].name));
    for (i = 0; i < args->count; i++) {
        if (strcmp(args->options[i]->name, "sbatch-arg") != 0)
            continue;
        if (args->values[i][0] != '-')
            return cli_usage(args->command,
                             "--sbatch-arg: '%.60s' is no option; give for instance "
                             "--sbatch-arg=--account=NAME",
                             args->values[i]);
        add(a, args->values[i], "");
    }
    for (i = 0; i < a->count; i++)
        if (!printable(a->argv[i]))
            return cli_usage(args->command, "an option of Slurm has a control character in it");
    if (a->failed)
        return cli_usage(args->command, "there are too many options of Slurm");
    return CLI_OK;
}

/* ----------------------------------------------------------------------------------- script */

static void put_quoted(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    }
    fputc('\'', out);
}

static char *script_of(const slurm_batch *batch, const arguments *a)
{
    char program[PATH_MAX], *text = NULL;
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    size_t size = 0;
    FILE *out = length > 0 ? open_memstream(&text, &size) : NULL;
    int i;

    if (!out)
        return NULL;
    program[length] = '\0';
    fputs("#!/bin/bash\n"
          "#SBATCH --nodes=1\n"
          "#SBATCH --ntasks=1\n"
          "#SBATCH --requeue\n"
          "#SBATCH --open-mode=append\n"
          "#SBATCH --signal=B:USR1@180\n"
          "# Written by xptycho.  To submit it by hand:\n#",
          out);
    for (i = 0; i < a->count; i++) {
        fputc(' ', out);
        put_quoted(out, a->argv[i]);
    }
    fputs(" batch.sh\nprogram=", out);
    put_quoted(out, program);
    fputs("\nfolder=", out);
    put_quoted(out, batch->folder);
    fprintf(out, "\n\n%s", cli_slurm_script);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

char *slurm_script(const slurm_batch *batch, int *code)
{
    arguments a = {0};
    char *text = NULL;

    *code = fill(&a, batch);
    if (*code == CLI_OK && !(text = script_of(batch, &a))) {
        cli_warn("memory is exhausted");
        *code = CLI_UNEXPECTED;
    }
    arguments_release(&a);
    return text;
}

/* ------------------------------------------------------------------------------- submission */

static bool put_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    FILE *file = snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path)
                     ? fopen(path, "we")
                     : NULL;
    bool good = file && fputs(text, file) >= 0;

    if (file && fclose(file) != 0)
        good = false;
    if (!good)
        cli_warn("'%s/%s' cannot be written: %s", folder, name, strerror(errno));
    return good;
}

/* Slurm keeps the environment of a job where its administrators can read it; no token goes there.
 */
static char **environment(void)
{
    size_t count = 0, used = 0, i;
    char **out;

    while (environ[count])
        count++;
    out = calloc(count + 1, sizeof(*out));
    for (i = 0; out && i < count; i++)
        if (strncmp(environ[i], "XPTYCHO_TOKEN=", 14) != 0)
            out[used++] = environ[i];
    return out;
}

/* Runs sbatch; its messages go to stderr as they are. */
static bool run(arguments *a, char *answer, size_t size)
{
    posix_spawn_file_actions_t actions;
    int out = memfd_create("sbatch", MFD_CLOEXEC), status = 0, failed;
    char **env = environment();
    ssize_t length = 0;
    pid_t pid;

    if (out < 0 || !env || posix_spawn_file_actions_init(&actions) != 0) {
        if (out >= 0)
            close(out);
        free(env);
        return false;
    }
    failed = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (failed == 0)
        failed = posix_spawnp(&pid, a->argv[0], &actions, NULL, a->argv, env);
    if (failed != 0) {
        cli_warn("sbatch cannot be run: %s; is this a node that submits to Slurm?",
                 strerror(failed));
    } else {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        length = pread(out, answer, size - 1, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            failed = EPROTO;
    }
    answer[length > 0 ? length : 0] = '\0';
    (void)posix_spawn_file_actions_destroy(&actions);
    close(out);
    free(env);
    return failed == 0;
}

int slurm_submit(const slurm_batch *batch, char id[SLURM_ID_SIZE])
{
    arguments a = {0};
    char answer[ANSWER_MAX] = "", path[PATH_MAX], *script = NULL;
    int code = fill(&a, batch);
    size_t length;

    if (code != CLI_OK)
        goto done;
    code = CLI_UNEXPECTED;
    script = script_of(batch, &a);
    if (!script || !put_file(batch->folder, "batch.sh", script) ||
        snprintf(path, sizeof(path), "%s/batch.sh", batch->folder) >= (int)sizeof(path))
        goto done;
    add(&a, path, "");
    if (a.failed || !run(&a, answer, sizeof(answer))) {
        cli_warn("Slurm did not take the job; its files are in '%s'", batch->folder);
        code = CLI_REFUSED;
        goto done;
    }
    length = strspn(answer, "0123456789"); /* "ID" or "ID;CLUSTER" */
    if (length == 0 || length >= SLURM_ID_SIZE || !strchr(";\n", answer[length])) {
        cli_warn("sbatch answered '%.200s', which is no job id", answer);
        goto done;
    }
    answer[length] = '\0';
    memcpy(id, answer, length + 1);
    if (put_file(batch->folder, "slurm-id", id))
        code = CLI_OK;
done:
    arguments_release(&a);
    free(script);
    return code;
}
