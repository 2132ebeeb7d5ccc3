/* What goes to people: text from outside made harmless, tables, units, colour. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

bool cli_terminal(FILE *stream)
{
    return isatty(fileno(stream)) == 1;
}

int cli_columns(FILE *stream)
{
    struct winsize size;

    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* Length of the well-formed UTF-8 character at p that is safe to print; 0 = it must be escaped. */
static size_t character(const unsigned char *p)
{
    static const unsigned least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = p[0] < 0x80   ? 1
                    : p[0] < 0xc2 ? 0
                    : p[0] < 0xe0 ? 2
                    : p[0] < 0xf0 ? 3
                    : p[0] < 0xf5 ? 4
                                  : 0;
    unsigned code, i;

    if (length == 1)
        return p[0] >= 0x20 && p[0] != 0x7f;
    if (length == 0)
        return 0;
    code = p[0] & (0xffu >> (length + 1));
    for (i = 1; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0; /* the final zero too */
        code = code << 6 | (p[i] & 0x3fu);
    }
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    /* C1 controls, and the marks that turn the direction of text. */
    if (code < 0xa0 || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
        return 0;
    return length;
}

void cli_put(FILE *out, const char *text, bool lines)
{
    const unsigned char *p = (const unsigned char *)text;

    while (*p) {
        size_t length = lines && (*p == '\n' || *p == '\t') ? 1 : character(p);
        if (length == 0)
            fprintf(out, "\\x%02x", *p++);
        else
            while (length-- > 0)
                fputc(*p++, out);
    }
}

size_t cli_width(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void cli_put_paragraph(FILE *out, const char *text, int indent, int width)
{
    int at = indent;

    while (*text) {
        int length = (int)strcspn(text, " \n");

        if (at > indent && at + 1 + length > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", length, text);
        at += length;
        text += length;
        while (*text == ' ')
            text++;
        if (*text == '\n') { /* a line break of the text's own */
            fputc('\n', out);
            text++;
            if (*text)
                fprintf(out, "%*s", indent, "");
            at = indent;
            for (; *text == ' '; at++) /* keeps the indent of examples */
                fputc(*text++, out);
        }
    }
    fputc('\n', out);
}

int cli_put_json(const json_t *value)
{
    size_t flags = JSON_INDENT(2) | JSON_ENCODE_ANY;

    if (cli_terminal(stdout))
        flags |= JSON_ENSURE_ASCII;
    if (json_dumpf(value, stdout, flags) != 0) {
        cli_warn("the answer cannot be written");
        return CLI_UNEXPECTED;
    }
    fputc('\n', stdout);
    return CLI_OK;
}

const char *cli_member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

/* ---------------------------------------------------------------------------------- units */

void cli_duration(char *out, size_t size, double seconds)
{
    long long s = isfinite(seconds) && fabs(seconds) < 1e15 ? llround(seconds) : 0;

    if (!isfinite(seconds) || seconds < 0)
        (void)snprintf(out, size, "-");
    else if (seconds > 0 && seconds < 0.9995)
        (void)snprintf(out, size, "%.0f ms", seconds * 1000);
    else if (seconds < 59.95)
        (void)snprintf(out, size, "%.1f s", seconds);
    else if (s < 3600)
        (void)snprintf(out, size, "%lld min %02lld s", s / 60, s % 60);
    else if (s < 86400)
        (void)snprintf(out, size, "%lld h %02lld min", s / 3600, s / 60 % 60);
    else
        (void)snprintf(out, size, "%lld d %lld h", s / 86400, s / 3600 % 24);
}

void cli_bytes(char *out, size_t size, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t i = 0;

    while (bytes >= 1023.95 && i < 5) {
        bytes /= 1024;
        i++;
    }
    (void)snprintf(out, size, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
}

bool cli_seconds(int64_t *out, const char *rfc3339)
{
    struct tm utc = {0};
    const char *end = strptime(rfc3339, "%Y-%m-%dT%H:%M:%S", &utc);

    if (!end || (*end != '.' && *end != 'Z'))
        return false;
    *out = (int64_t)timegm(&utc);
    return true;
}

void cli_time(char *out, size_t size, const char *rfc3339)
{
    struct tm local;
    int64_t seconds;
    time_t t;

    if (!cli_seconds(&seconds, rfc3339)) {
        (void)snprintf(out, size, "-");
        return;
    }
    t = (time_t)seconds;
    if (!localtime_r(&t, &local) || strftime(out, size, "%Y-%m-%d %H:%M:%S", &local) == 0)
        (void)snprintf(out, size, "-");
}

const char *cli_colour(const char *state)
{
    static const char *const colours[][2] = {{"succeeded", "\033[32m"}, {"failed", "\033[31m"},
                                             {"cancelled", "\033[33m"}, {"running", "\033[36m"},
                                             {"starting", "\033[36m"},  {"", "\033[0m"}};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    size_t i;

    if (!cli_terminal(stdout) || (no && no[0]) || (term && strcmp(term, "dumb") == 0))
        return "";
    for (i = 0; i < sizeof(colours) / sizeof(colours[0]); i++)
        if (strcmp(state, colours[i][0]) == 0)
            return colours[i][1];
    return "";
}

/* ---------------------------------------------------------------------------------- tables */

static char *escaped(const char *text)
{
    char *out = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&out, &size);

    if (!memory)
        return NULL;
    cli_put(memory, text, false);
    if (fclose(memory) != 0) {
        free(out);
        return NULL;
    }
    return out;
}

bool cli_table_add(cli_table *table, const char *const *cells)
{
    int i, columns = table->columns;

    if (table->rows == table->room) {
        int room = table->room ? table->room * 2 : 16;
        char **grown = realloc(table->cells, (size_t)(room * columns) * sizeof(*grown));

        if (!grown)
            return false;
        table->cells = grown;
        table->room = room;
    }
    for (i = 0; i < columns; i++) {
        char *cell = escaped(cells[i] ? cells[i] : "");
        if (!cell) {
            while (i-- > 0)
                free(table->cells[table->rows * columns + i]);
            return false;
        }
        table->cells[table->rows * columns + i] = cell;
    }
    table->rows++;
    return true;
}

static void put_cell(FILE *out, const char *text, size_t width, char align, bool last)
{
    size_t own = cli_width(text);
    int pad = own < width ? (int)(width - own) : 0;
    const char *colour = cli_colour(text);

    if (align == 'r')
        fprintf(out, "%*s", pad, "");
    fprintf(out, "%s%s%s", colour[0] && text[0] ? colour : "", text,
            colour[0] && text[0] ? cli_colour("") : "");
    if (align != 'r' && !last)
        fprintf(out, "%*s", pad, "");
}

void cli_table_print(FILE *out, const cli_table *table)
{
    size_t width[16] = {0};
    int r, c, columns = table->columns < 16 ? table->columns : 16;

    for (c = 0; c < columns; c++) {
        width[c] = cli_width(table->heads[c]);
        for (r = 0; r < table->rows; r++) {
            size_t own = cli_width(table->cells[r * table->columns + c]);
            if (own > width[c])
                width[c] = own;
        }
    }
    for (r = -1; r < table->rows; r++) {
        for (c = 0; c < columns; c++) {
            if (c)
                fputs("  ", out);
            put_cell(out, r < 0 ? table->heads[c] : table->cells[r * table->columns + c], width[c],
                     table->align[c], c == columns - 1);
        }
        fputc('\n', out);
    }
}

void cli_table_release(cli_table *table)
{
    int i;

    for (i = 0; i < table->rows * table->columns; i++)
        free(table->cells[i]);
    free(table->cells);
    table->cells = NULL;
    table->rows = table->room = 0;
}
