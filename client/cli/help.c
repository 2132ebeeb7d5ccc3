/* Help texts, from the same tables that the parser reads.  What an option does to a job is
 * described by the job's schema, default and range included. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define LEFT 32 /* column where descriptions begin */
#define WIDTH_MOST 100

static int width(FILE *out)
{
    int columns = cli_columns(out);
    return columns < 60 ? 60 : columns > WIDTH_MOST ? WIDTH_MOST : columns;
}

static void add_value(char *out, size_t size, const char *before, const json_t *value)
{
    size_t used = strlen(out);
    char *text;

    if (!value || used + 1 >= size)
        return;
    if (json_is_real(value)) {
        (void)snprintf(out + used, size - used, "%s%g", before, json_real_value(value));
        return;
    }
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    (void)snprintf(out + used, size - used, "%s%s", before,
                   json_is_string(value) ? json_string_value(value)
                   : text                ? text
                                         : "");
    free(text);
}

static const char *join(const char *text)
{
    return text[0] ? "; " : "";
}

/* " (default 100; from 1 to 100000)" */
static void limits(char *out, size_t size, const json_t *node, bool defaults)
{
    const json_t *values = json_object_get(node, "enum"),
                 *initial = defaults ? json_object_get(node, "default") : NULL;
    char text[512] = "";
    size_t i;

    for (i = 0; i < json_array_size(values); i++)
        add_value(text, sizeof(text), i ? ", " : "one of ", json_array_get(values, i));
    if (json_object_get(node, "minimum") && json_object_get(node, "maximum")) {
        add_value(text, sizeof(text), "from ", json_object_get(node, "minimum"));
        add_value(text, sizeof(text), " to ", json_object_get(node, "maximum"));
    } else if (json_object_get(node, "exclusiveMinimum")) {
        add_value(text, sizeof(text), "above ", json_object_get(node, "exclusiveMinimum"));
        add_value(text, sizeof(text), ", at most ", json_object_get(node, "maximum"));
    }
    if (initial && json_is_array(initial) && json_array_size(initial) == 0) {
        (void)snprintf(out, size, " (default none)");
    } else if (json_is_boolean(initial)) {
        (void)snprintf(out, size, " (default: %s)", json_is_true(initial) ? "yes" : "no");
    } else if (initial && !(json_is_string(initial) && json_string_length(initial) == 0)) {
        char head[64] = "";
        add_value(head, sizeof(head), "default ", initial);
        (void)snprintf(out, size, " (%s%s%s)", head, text[0] ? join(head) : "", text);
    } else {
        (void)snprintf(out, size, text[0] ? " (%s)" : "", text);
    }
}

static void option_line(FILE *out, const cli_option *o, json_t **schema)
{
    char left[80], text[1600], range[640] = "";
    int n = snprintf(left, sizeof(left), "  %c%c%s --%s%s%s", o->letter ? '-' : ' ',
                     o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
                     o->value ? " " : "", o->value ? o->value : "");
    const json_t *node = o->job ? cli_schema_find(schema, o->job) : NULL;
    const char *help = o->help;

    if (!help)
        help = json_string_value(json_object_get(node, "description"));
    if (node)
        limits(range, sizeof(range), node, !o->help); /* a text of its own says it where it holds */
    (void)snprintf(text, sizeof(text), "%s%s", help ? help : "", range);
    fprintf(out, "%-*s", LEFT, left);
    if (n >= LEFT)
        fprintf(out, "\n%*s", LEFT, "");
    cli_put_paragraph(out, text, LEFT, width(out));
}

static void option_lines(FILE *out, const char *head, const cli_option *table, json_t **schema)
{
    const cli_option *o;

    fprintf(out, "\n%s:\n", head);
    for (o = table; o->name; o++)
        if (!o->help || o->help[0])
            option_line(out, o, schema);
}

static void exit_codes(FILE *out)
{
    fputs("\nExit codes:\n"
          "  0  success\n"
          "  1  unexpected failure\n"
          "  2  usage: the command line is wrong, or a file would be overwritten\n"
          "  3  refused: the daemon said no (job, scan, devices, rights)\n"
          "  4  the job failed\n"
          "  5  the job was cancelled\n"
          "  6  the daemon cannot be reached\n",
          out);
}

void cli_help_command(FILE *out, const cli_command *command)
{
    json_t *schema = NULL;
    size_t i;

    fprintf(out, "Usage: xptycho %s %s\n\n", command->name, command->synopsis);
    cli_put_paragraph(out, command->summary, 0, width(out));
    if (command->text) {
        fputc('\n', out);
        cli_put_paragraph(out, command->text, 0, width(out));
    }
    for (i = 0; i < 3 && command->options[i]; i++)
        option_lines(out, command->options[i] == cli_job_options ? "Options of the job" : "Options",
                     command->options[i], &schema);
    option_lines(out, "Common options", cli_common_options, &schema);
    exit_codes(out);
    if (command->example)
        fprintf(out, "\nExample:\n%s\n", command->example);
    json_decref(schema);
}

void cli_help_all(FILE *out)
{
    const cli_command *c;

    fputs("Usage: xptycho COMMAND [OPTION...] [ARGUMENT...]\n\n"
          "Ptychographic reconstructions by a running xptychod, and a few tools beside it.\n\n"
          "Commands:\n",
          out);
    for (c = cli_commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fputs("\n'xptycho help COMMAND' tells all about one.\n\n"
          "The daemon is looked for in this order: --server, XPTYCHO_SERVER,\n"
          "$XDG_RUNTIME_DIR/xptycho/ready.json, ~/.local/state/xptycho/run/ready.json,\n"
          "/run/xptycho/api.sock.  Over TCP a token is needed: --token-file, XPTYCHO_TOKEN,\n"
          "XPTYCHO_TOKEN_FILE, or the token file of a daemon of one's own.\n",
          out);
    exit_codes(out);
}
