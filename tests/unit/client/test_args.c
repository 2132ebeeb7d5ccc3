/* Command lines taken apart, the tables they are read by, and the help made from the same tables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "capture.h"
#include "cli.h"

static const cli_command *command_of(const char *name)
{
    const cli_command *c;

    for (c = cli_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    fail_msg("no command '%s'", name);
    return NULL;
}

/* Parses words for a command; the last word is followed by NULL. */
static int parse(cli_args *args, const char *command, char **argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    return cli_args_parse(args, command_of(command), argc, argv);
}

#define WORDS(...)                                                                                 \
    (char *[])                                                                                     \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* A line that must be refused as wrong usage, and what must be said about it. */
static void refused(const char *command, char **argv, const char *said)
{
    cli_args args;
    capture c;
    int code;

    capture_begin(&c);
    code = parse(&args, command, argv);
    if (!strstr(capture_end(&c), said))
        fail_msg("'%s' is not in '%s'", said, c.text);
    assert_int_equal(code, CLI_USAGE);
    capture_release(&c);
    cli_args_release(&args);
}

static void options_and_operands_may_be_mixed(void **state)
{
    cli_args args;

    (void)state;
    assert_int_equal(
        parse(&args, "submit", WORDS("submit", "-n", "5", "scan.h5", "--probe-modes=2", "--watch")),
        CLI_OK);
    assert_int_equal(args.operand_count, 1);
    assert_string_equal(args.operands[0], "scan.h5");
    assert_string_equal(cli_args_text(&args, "iterations"), "5");
    assert_string_equal(cli_args_text(&args, "probe-modes"), "2");
    assert_true(cli_args_flag(&args, "watch"));
    assert_false(cli_args_flag(&args, "json"));
    cli_args_release(&args);
}

static void the_last_of_a_repeated_option_counts(void **state)
{
    cli_args args;

    (void)state;
    assert_int_equal(parse(&args, "list", WORDS("list", "-n", "5", "--limit", "7")), CLI_OK);
    assert_int_equal(cli_args_integer(&args, "limit", 50), 7);
    assert_int_equal(cli_args_integer(&args, "absent", 50), 50);
    cli_args_release(&args);
}

static void two_dashes_end_the_options(void **state)
{
    cli_args args;

    (void)state;
    assert_int_equal(parse(&args, "submit", WORDS("submit", "--", "--watch")), CLI_OK);
    assert_string_equal(args.operands[0], "--watch");
    assert_false(cli_args_flag(&args, "watch"));
    cli_args_release(&args);
}

static void an_unknown_option_is_answered_with_the_nearest(void **state)
{
    (void)state;
    refused("submit", WORDS("submit", "--interations", "5"), "did you mean '--iterations'?");
    refused("submit", WORDS("submit", "--interations=5"), "unknown option '--interations'");
    refused("submit", WORDS("submit", "-q"), "unknown option '-q'");
    refused("submit", WORDS("submit", "--zzzzzzzzzzzz"), "unknown option '--zzzzzzzzzzzz'\n");
}

static void values_are_checked_by_their_kind(void **state)
{
    (void)state;
    refused("submit", WORDS("submit", "-n", "5x"), "'5x' is not a whole number");
    refused("submit", WORDS("submit", "-n", "99999999999999999999"), "is not a whole number");
    refused("submit", WORDS("submit", "--relaxation", "half"), "'half' is not a number");
    refused("submit", WORDS("submit", "--relaxation", "nan"), "'nan' is not a number");
    refused("submit", WORDS("submit", "--mode-schedule", "20,"), "is not a list of whole numbers");
    refused("submit", WORDS("submit", "--output", ""), "is empty");
    refused("submit", WORDS("submit", "--output"), "option '--output' needs a value");
    refused("submit", WORDS("submit", "--watch=yes"), "option '--watch' takes no value");
}

static void operands_are_counted(void **state)
{
    (void)state;
    refused("watch", WORDS("watch"), "usage: xptycho watch [OPTION...] ID");
    refused("list", WORDS("list", "x"), "'x' is one argument too many");
}

static void help_needs_no_operand(void **state)
{
    cli_args args;

    (void)state;
    assert_int_equal(parse(&args, "watch", WORDS("watch", "--help")), CLI_OK);
    assert_true(cli_args_flag(&args, "help"));
    cli_args_release(&args);
}

static void the_nearest_name_is_near(void **state)
{
    const char *const names[] = {"submit", "show", "list"};

    (void)state;
    assert_string_equal(cli_nearest("submti", names, 3), "submit");
    assert_string_equal(cli_nearest("lst", names, 3), "list");
    assert_null(cli_nearest("reconstruct", names, 3));
}

static size_t table_size(const cli_option *table)
{
    size_t n = 0;

    while (table[n].name)
        n++;
    return n;
}

/* All tables of a command, the common one last; NULL after it. */
static void tables_of(const cli_command *c, const cli_option *out[5])
{
    size_t i = 0;

    for (; i < 3 && c->options[i]; i++)
        out[i] = c->options[i];
    out[i++] = cli_common_options;
    out[i] = NULL;
}

static void no_command_has_an_option_twice(void **state)
{
    const cli_command *c;

    (void)state;
    for (c = cli_commands; c->name; c++) {
        const cli_option *tables[5], *seen[128];
        size_t count = 0, t, i, k;

        tables_of(c, tables);
        for (t = 0; tables[t]; t++)
            for (i = 0; i < table_size(tables[t]); i++)
                seen[count++] = &tables[t][i];
        for (i = 0; i < count; i++)
            for (k = 0; k < i; k++) {
                if (strcmp(seen[i]->name, seen[k]->name) == 0)
                    fail_msg("%s: --%s twice", c->name, seen[i]->name);
                if (seen[i]->letter && seen[i]->letter == seen[k]->letter)
                    fail_msg("%s: -%c twice", c->name, seen[i]->letter);
            }
    }
}

static void every_job_option_is_in_the_schema(void **state)
{
    json_t *schema = NULL;
    const cli_option *o;

    (void)state;
    for (o = cli_job_options; o->name; o++) {
        if (o->job && !cli_schema_find(&schema, o->job))
            fail_msg("--%s: the schema has no '%s'", o->name, o->job);
        assert_true(o->job || (o->help && o->help[0]));
    }
    assert_null(cli_schema_find(&schema, "recon.iteration"));
    json_decref(schema);
}

static void help_tells_every_option_with_default_and_range(void **state)
{
    const cli_command *c;

    (void)state;
    for (c = cli_commands; c->name; c++) {
        const cli_option *tables[5];
        char *text = NULL, wanted[80];
        size_t size, t, i;
        FILE *out;

        if (c->program)
            continue;
        assert_non_null(c->example);
        out = open_memstream(&text, &size);
        cli_help_command(out, c);
        (void)fclose(out);
        tables_of(c, tables);
        for (t = 0; tables[t]; t++)
            for (i = 0; i < table_size(tables[t]); i++) {
                if (tables[t][i].help && !tables[t][i].help[0])
                    continue; /* another name of one that is told */
                (void)snprintf(wanted, sizeof(wanted), "--%s%s%s ", tables[t][i].name,
                               tables[t][i].value ? " " : "",
                               tables[t][i].value ? tables[t][i].value : "");
                wanted[strlen(wanted) - 1] = '\0';
                if (!strstr(text, wanted))
                    fail_msg("help of %s: no '%s'", c->name, wanted);
            }
        assert_non_null(strstr(text, "Exit codes:"));
        if (strcmp(c->name, "submit") == 0) {
            assert_non_null(strstr(text, "(default 100; from 1 to"));
            assert_non_null(strstr(text, "(default 0.6; from 0 to 1)"));
            assert_non_null(strstr(text, "one of auto, xptycho, cxi"));
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_operands_may_be_mixed),
        cmocka_unit_test(the_last_of_a_repeated_option_counts),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(an_unknown_option_is_answered_with_the_nearest),
        cmocka_unit_test(values_are_checked_by_their_kind),
        cmocka_unit_test(operands_are_counted),
        cmocka_unit_test(help_needs_no_operand),
        cmocka_unit_test(the_nearest_name_is_near),
        cmocka_unit_test(no_command_has_an_option_twice),
        cmocka_unit_test(every_job_option_is_in_the_schema),
        cmocka_unit_test(help_tells_every_option_with_default_and_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
