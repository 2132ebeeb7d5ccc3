/* Takes a command line apart by the option tables of its command.  getopt_long does the reading;
 * here the tables become its arrays, values are checked against their kind, and what is not known
 * is answered with the nearest name. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 64  /* of one command, common ones included */
#define LONG_FIRST 1000 /* codes of getopt_long: this plus the index */

int cli_usage(const cli_command *command, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    cli_warn("%s%s%s", command ? command->name : "", command ? ": " : "", text);
    fprintf(stderr, "Try 'xptycho help%s%s'.\n", command ? " " : "", command ? command->name : "");
    return CLI_USAGE;
}

static size_t edits(const char *a, const char *b)
{
    size_t row[64], i, j, m = strlen(a), n = strlen(b);

    if (m > 63 || n > 63)
        return 64;
    for (j = 0; j <= n; j++)
        row[j] = j;
    for (i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *wrong, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t i, least = strlen(wrong) / 3 + 2; /* more edits than this is another word */

    for (i = 0; i < count; i++) {
        size_t n = edits(wrong, names[i]);
        if (n < least) {
            least = n;
            best = names[i];
        }
    }
    return best;
}

/* All options of a command in one list. */
static size_t collect(const cli_option **out, const cli_command *command)
{
    size_t used = 0, t;
    const cli_option *o;

    for (t = 0; t < 3 && command->options[t]; t++)
        for (o = command->options[t]; o->name && used < OPTIONS_MAX; o++)
            out[used++] = o;
    for (o = cli_common_options; o->name && used < OPTIONS_MAX; o++)
        out[used++] = o;
    return used;
}

static bool whole_integer(const char *text)
{
    char *end = NULL;
    errno = 0;
    (void)strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

static bool integers(const char *text)
{
    char part[32];

    for (;;) {
        size_t length = strcspn(text, ",");
        if (length == 0 || length >= sizeof(part))
            return false;
        memcpy(part, text, length);
        part[length] = '\0';
        if (!whole_integer(part))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

/* What is wrong with a value, or NULL. */
static const char *value_fault(const cli_option *option, const char *value)
{
    char *end = NULL;
    double number;

    switch (option->kind) {
    case CLI_INTEGER:
        return whole_integer(value) ? NULL : "is not a whole number";
    case CLI_NUMBER:
        number = strtod(value, &end);
        return end != value && *end == '\0' && isfinite(number) ? NULL : "is not a number";
    case CLI_INTEGERS:
        return integers(value) ? NULL : "is not a list of whole numbers such as 20,40";
    case CLI_PATH:
    case CLI_REF:
    case CLI_WORDS:
        return value[0] ? NULL : "is empty";
    case CLI_FLAG:
    case CLI_TEXT:
        return NULL;
    }
    return NULL;
}

static bool add(cli_args *args, const cli_option *option, const char *value)
{
    if (args->count == args->room) {
        int room = args->room ? args->room * 2 : 16;
        const cli_option **options = realloc(args->options, (size_t)room * sizeof(*args->options));
        const char **values;

        if (!options)
            return false;
        args->options = options;
        values = realloc(args->values, (size_t)room * sizeof(*args->values));
        if (!values)
            return false;
        args->values = values;
        args->room = room;
    }
    args->options[args->count] = option;
    args->values[args->count] = value;
    args->count++;
    return true;
}

/* An option that getopt_long did not know, could not tell from others, or that misses its value. */
static int refuse(const cli_command *command, const cli_option *const *all, size_t count, int code,
                  const char *word)
{
    const char *names[OPTIONS_MAX], *nearest;
    char wrong[64];
    size_t i, length;

    if (code == ':')
        return cli_usage(command, "option '%.60s' needs a value", word);
    if (strncmp(word, "--", 2) != 0)
        return cli_usage(command, "unknown option '-%c'", optopt ? optopt : word[1]);
    length = strcspn(word + 2, "=");
    if (length >= sizeof(wrong))
        length = sizeof(wrong) - 1;
    memcpy(wrong, word + 2, length);
    wrong[length] = '\0';
    for (i = 0; i < count; i++) {
        names[i] = all[i]->name;
        if (strcmp(wrong, names[i]) == 0)
            return cli_usage(command, "option '--%s' takes no value", wrong);
    }
    nearest = cli_nearest(wrong, names, count);
    return nearest
               ? cli_usage(command, "unknown option '--%s'; did you mean '--%s'?", wrong, nearest)
               : cli_usage(command, "unknown option '--%s'", wrong);
}

int cli_args_parse(cli_args *out, const cli_command *command, int argc, char **argv)
{
    const cli_option *all[OPTIONS_MAX];
    struct option longs[OPTIONS_MAX + 1];
    char shorts[2 * OPTIONS_MAX + 2] =
        ":"; /* leading ':' tells a missing value from an unknown option */
    size_t count = collect(all, command), used = 1, i;

    memset(out, 0, sizeof(*out));
    memset(longs, 0, sizeof(longs));
    out->command = command;
    for (i = 0; i < count; i++) {
        longs[i].name = all[i]->name;
        longs[i].has_arg = all[i]->kind == CLI_FLAG ? no_argument : required_argument;
        longs[i].val = LONG_FIRST + (int)i;
        if (all[i]->letter) {
            shorts[used++] = all[i]->letter;
            if (all[i]->kind != CLI_FLAG)
                shorts[used++] = ':';
        }
    }
    shorts[used] = '\0';
    optind = 0; /* glibc: start anew */
    opterr = 0;
    for (;;) {
        int at = optind ? optind : 1, code = getopt_long(argc, argv, shorts, longs, NULL);
        const cli_option *option = NULL;
        const char *fault;

        if (code == -1)
            break;
        if (code == '?' || code == ':')
            return refuse(command, all, count, code, argv[optind > at ? optind - 1 : at]);
        for (i = 0; i < count && !option; i++)
            if (code == LONG_FIRST + (int)i || (all[i]->letter && code == all[i]->letter))
                option = all[i];
        if (!option)
            return CLI_UNEXPECTED; /* getopt_long returns only what the tables hold */
        fault = option->kind == CLI_FLAG ? NULL : value_fault(option, optarg);
        if (fault)
            return cli_usage(command, "--%s: '%.60s' %s", option->name, optarg, fault);
        if (!add(out, option, option->kind == CLI_FLAG ? NULL : optarg)) {
            cli_warn("memory is exhausted");
            return CLI_UNEXPECTED;
        }
    }
    out->operands = argv + optind;
    out->operand_count = argc - optind;
    if (cli_args_flag(out, "help"))
        return CLI_OK;
    if (out->operand_count < command->operands_min)
        return cli_usage(command, "something is missing; usage: xptycho %s %s", command->name,
                         command->synopsis);
    if (out->operand_count > command->operands_max)
        return cli_usage(command, "'%.60s' is one argument too many",
                         out->operands[command->operands_max]);
    return CLI_OK;
}

void cli_args_release(cli_args *args)
{
    free(args->options);
    free(args->values);
    memset(args, 0, sizeof(*args));
}

bool cli_args_flag(const cli_args *args, const char *name)
{
    int i;

    for (i = 0; i < args->count; i++)
        if (strcmp(args->options[i]->name, name) == 0)
            return true;
    return false;
}

const char *cli_args_text(const cli_args *args, const char *name)
{
    int i;

    for (i = args->count - 1; i >= 0; i--)
        if (strcmp(args->options[i]->name, name) == 0)
            return args->values[i];
    return NULL;
}

int cli_args_integer(const cli_args *args, const char *name, int otherwise)
{
    const char *text = cli_args_text(args, name);
    long long value = text ? strtoll(text, NULL, 10) : otherwise;

    return value > 2147483647 ? 2147483647 : value < -2147483647 ? -2147483647 : (int)value;
}
