/* The command line: what its files share.
 *
 * A command is an entry of the table in main.c: name, what it does, its options and a function. The
 * options of a command are one table, which both the parser (args.c) and the help (help.c) walk, so
 * that they cannot disagree; options that fill in the job document take their description, default
 * and range from the job's schema.  Results go to stdout, everything else to stderr.  One thread.
 */
#ifndef XPC_CLI_H
#define XPC_CLI_H

#include <stdio.h>
#include <xptychod/client.h>

typedef enum cli_exit {
    CLI_OK = 0,
    CLI_UNEXPECTED = 1,
    CLI_USAGE = 2,
    CLI_REFUSED = 3,
    CLI_FAILED = 4,
    CLI_CANCELLED = 5,
    CLI_UNREACHABLE = 6,
    CLI_INTERRUPTED = 130
} cli_exit;

/* ---------------------------------------------------------------------------------- options */

/* What an option's value is, and, where it fills in the job, how it gets there. */
typedef enum cli_kind {
    CLI_FLAG, /* no value; in a job: true */
    CLI_TEXT,
    CLI_INTEGER,
    CLI_NUMBER,
    CLI_PATH,     /* in a job: made absolute */
    CLI_REF,      /* PATH[:DATASET]; in a job: {"path", "dataset"} */
    CLI_INTEGERS, /* with commas between */
    CLI_WORDS     /* with commas between */
} cli_kind;

/* help of an option that is another name of one before; the help leaves it out */
#define CLI_OTHER_NAME ""

typedef struct cli_option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* 0 = none */
    cli_kind kind;
    const char *value; /* its name in the help: "N", "FILE"; NULL for a flag */
    const char *job;   /* dotted path in the job document, or NULL */
    const char *help;  /* with unit and default; NULL = the schema's text for `job` */
} cli_option;

typedef struct cli_command cli_command;

/* A command line taken apart; texts are those of argv. */
typedef struct cli_args {
    const cli_command *command;
    const cli_option **options; /* [count], in the order given */
    const char **values;        /* [count], NULL for flags */
    int count, room;
    char **operands; /* [operand_count] */
    int operand_count;
} cli_args;

struct cli_command {
    const char *name;
    const char *synopsis;         /* what follows the name: "[OPTION...] ID" */
    const char *summary;          /* one line */
    const char *text;             /* paragraphs of the help, or NULL */
    const char *example;          /* lines */
    const cli_option *options[3]; /* tables, NULL after the last; the common options come on top */
    int operands_min, operands_max;
    int (*run)(const cli_args *args);
    const char *program; /* the sibling program that has this command; then run is NULL */
};

extern const cli_command cli_commands[]; /* an entry with name NULL ends it */
extern const cli_option cli_common_options[];
extern const cli_option cli_job_options[];

/* CLI_OK, or CLI_USAGE with the reason on stderr. */
int cli_args_parse(cli_args *out, const cli_command *command, int argc, char **argv);
void cli_args_release(cli_args *args);
bool cli_args_flag(const cli_args *args, const char *name);
const char *cli_args_text(const cli_args *args, const char *name); /* the last one given, or NULL */
int cli_args_integer(const cli_args *args, const char *name, int otherwise);
/* The name among `names` that needs fewest edits, or NULL where none is near. */
const char *cli_nearest(const char *wrong, const char *const *names, size_t count);
/* Says what is wrong and how to get help; returns CLI_USAGE. */
int cli_usage(const cli_command *command, const char *format, ...) XPC_PRINTF(2, 3);

void cli_help_all(FILE *out);
void cli_help_command(FILE *out, const cli_command *command);

/* ---------------------------------------------------------------------------------- job documents
 */

/* Sets a member by its dotted path ("recon.iterations", "recon.0.iterations"), making objects on
 * the way; a number where there is an array is an index, at most one past its end.  Takes value. On
 * failure: false, and a sentence in why. */
bool cli_set(json_t *doc, const char *path, json_t *value, char *why, size_t why_size);
/* "NAME=VALUE"; VALUE is JSON where it parses, else text. */
bool cli_set_text(json_t *doc, const char *assignment, char *why, size_t why_size);
/* The job's own options and --set, in the order given.  CLI_OK or CLI_USAGE, reported. */
int cli_job_fill(json_t *doc, const cli_args *args);
/* "KEY=VALUE" of --label, repeated.  CLI_OK, or reported. */
int cli_job_labels(json_t *doc, const cli_args *args);
/* Makes the paths of a job document absolute, seen from the current folder. */
bool cli_job_paths(json_t *doc, char *why, size_t why_size);
/* An absolute path (malloc'd) without "." and, where this file system knows where they lead,
 * without ".."; NULL when memory is exhausted. */
char *cli_path_absolute(const char *folder, const char *path);
/* A whole file or stdin ("-") as JSON; NULL: reported, *exit is set. */
json_t *cli_job_load(const char *path, int *exit);

/* The schema's node for a dotted path; borrowed from *root, which the caller releases. */
const json_t *cli_schema_find(json_t **root, const char *path);

/* ---------------------------------------------------------------------------------- sessions */

/* Opens the client that the common options describe.  CLI_OK, or reported. */
int cli_open(xpc_client **out, const cli_args *args);
/* Reports a failed call and returns the exit code; with --json the problem document goes to stdout.
 */
int cli_report(const cli_args *args, const xpc_client *client, const xpc_error *err);
int cli_exit_of_status(const xpc_error *err);
/* Exit code for a terminal state and its reason. */
int cli_exit_of_state(const char *state, const char *reason);
/* An id as typed, in upper case (malloc'd, NULL when memory is exhausted). */
char *cli_id(const char *typed);
void cli_warn(const char *format, ...) XPC_PRINTF(1, 2); /* "xptycho: ..." on stderr, escaped */

/* Watches a job to its end. */
typedef enum cli_follow_mode { CLI_FOLLOW_AUTO, CLI_FOLLOW_JSON, CLI_FOLLOW_QUIET } cli_follow_mode;
int cli_follow(const cli_args *args, xpc_client *client, const char *id, cli_follow_mode mode);

/* The same looks for events that come from elsewhere.  `job` is {"job": document}, for the bar. */
typedef struct cli_view cli_view;
cli_view *cli_view_open(cli_follow_mode mode, const json_t *job); /* NULL: memory is exhausted */
bool cli_view_event(cli_view *view, const json_t *event); /* false: stdout cannot be written */
void cli_view_clear(cli_view *view);                      /* before a line on stderr */
void cli_view_end(cli_view *view, const char *id, const json_t *end); /* the line that sums up */
void cli_view_close(cli_view *view);

/* ---------------------------------------------------------------------------------- terminal */

bool cli_terminal(FILE *stream);
int cli_columns(FILE *stream); /* width of the terminal; 80 where it is not known */
/* Text from outside: control characters and broken UTF-8 become \xNN.  With lines, newlines and
 * tabs stay. */
void cli_put(FILE *out, const char *text, bool lines);
void cli_put_paragraph(FILE *out, const char *text, int indent,
                       int width);     /* wrapped; starts in place */
size_t cli_width(const char *text);    /* characters of UTF-8 text */
int cli_put_json(const json_t *value); /* to stdout; CLI_OK or CLI_UNEXPECTED */

/* Values with units a person reads: "3 min 05 s", "1.5 GiB", local time. */
void cli_duration(char *out, size_t size, double seconds);
void cli_bytes(char *out, size_t size, double bytes);
void cli_time(char *out, size_t size, const char *rfc3339);
bool cli_seconds(int64_t *out, const char *rfc3339); /* since 1970; false: it is no such time */
const char *cli_colour(const char *state); /* escape sequence for stdout, "" where colour is off */

/* A table: columns as wide as they must be, numbers to the right. */
typedef struct cli_table {
    const char *const *heads; /* [columns] */
    const char *align;        /* [columns] of 'l' and 'r' */
    int columns, rows, room;
    char **cells; /* [rows][columns], escaped already */
} cli_table;
bool cli_table_add(cli_table *table, const char *const *cells); /* copies */
void cli_table_print(FILE *out, const cli_table *table);
void cli_table_release(cli_table *table);

/* Members of documents from the daemon. */
const char *cli_member(const json_t *object, const char *name); /* text, "" where there is none */

/* ---------------------------------------------------------------------------------- commands */

int cmd_submit(const cli_args *args);
int cmd_sweep(const cli_args *args);
/* submit --slurm with a whole document, and watch with the folder of such a job. */
int cmd_slurm_submit(const cli_args *args, json_t *doc);
int cmd_slurm_watch(const cli_args *args, const char *folder);
int cmd_watch(const cli_args *args);
int cmd_list(const cli_args *args);
int cmd_show(const cli_args *args);
int cmd_cancel(const cli_args *args);
int cmd_delete(const cli_args *args);
int cmd_log(const cli_args *args);
int cmd_rerun(const cli_args *args);
int cmd_result(const cli_args *args);
int cmd_preview(const cli_args *args);
int cmd_queue(const cli_args *args);
int cmd_devices(const cli_args *args);
int cmd_version(const cli_args *args);
int cmd_admin(const cli_args *args);
int cmd_hold(const cli_args *args);
int cmd_release(const cli_args *args);
int cmd_set(const cli_args *args);
int cmd_dashboard(const cli_args *args);

#endif
