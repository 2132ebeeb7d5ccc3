/* Builds a job document: a file first, then the options and --set in the order given, then relative
 * paths made absolute, because the daemon runs in another folder. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xptychod/protocol.h>

#define NAME_MAX_BYTES 256

/* ---------------------------------------------------------------------------------- setting */

/* Index that a part of a path means in an array; -1 = none. */
static long array_index(const json_t *array, const char *part)
{
    char *end = NULL;
    long i = strtol(part, &end, 10);

    if (part[0] < '0' || part[0] > '9' || *end != '\0' || i < 0 ||
        (size_t)i > json_array_size(array))
        return -1;
    return i;
}

static bool put(json_t *where, const char *part, json_t *value)
{
    long i;

    if (json_is_object(where))
        return json_object_set(where, part, value) == 0;
    i = array_index(where, part);
    if (i < 0)
        return false;
    return (size_t)i == json_array_size(where) ? json_array_append(where, value) == 0
                                               : json_array_set(where, (size_t)i, value) == 0;
}

/* The member of a document on the way to another one, made where it is missing. */
static json_t *enter(json_t *where, const char *part)
{
    json_t *next, *made;
    long i;

    if (json_is_array(where)) {
        i = array_index(where, part);
        if (i < 0)
            return NULL;
        next = json_array_get(where, (size_t)i);
    } else {
        next = json_object_get(where, part);
    }
    if (json_is_object(next) || json_is_array(next))
        return next;
    made = json_object();
    if (!put(where, part, made)) {
        json_decref(made);
        return NULL;
    }
    json_decref(made); /* `where` holds it */
    return made;
}

bool cli_set(json_t *doc, const char *path, json_t *value, char *why, size_t why_size)
{
    const char *rest = path;
    char part[NAME_MAX_BYTES];
    json_t *where = doc;
    int depth = 0;
    bool ok = false;

    for (;;) {
        size_t length = strcspn(rest, ".");

        if (length == 0 || length >= sizeof(part) || ++depth > XPP_DEPTH_MAX) {
            (void)snprintf(why, why_size,
                           "'%.60s' is no name of a member, such as recon.iterations", path);
            break;
        }
        memcpy(part, rest, length);
        part[length] = '\0';
        if (rest[length] == '\0') {
            ok = put(where, part, value);
            if (!ok)
                (void)snprintf(why, why_size,
                               "'%.60s': there is an array here; a number says which element, for "
                               "instance recon.0.iterations",
                               path);
            break;
        }
        where = enter(where, part);
        if (!where) {
            (void)snprintf(why, why_size, "'%.60s': '%.60s' is no element of the array here", path,
                           part);
            break;
        }
        rest += length + 1;
    }
    json_decref(value);
    return ok;
}

bool cli_set_text(json_t *doc, const char *assignment, char *why, size_t why_size)
{
    const char *equals = strchr(assignment, '=');
    char *path;
    json_t *value;
    bool ok;

    if (!equals || equals == assignment) {
        (void)snprintf(why, why_size, "'%.60s' is not NAME=VALUE, such as recon.iterations=50",
                       assignment);
        return false;
    }
    value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!value)
        value = json_string(equals + 1);
    path = strndup(assignment, (size_t)(equals - assignment));
    if (!value || !path) {
        (void)snprintf(why, why_size, "'%.60s': the value is not UTF-8 text", assignment);
        json_decref(value);
        free(path);
        return false;
    }
    ok = cli_set(doc, path, value, why, why_size);
    free(path);
    return ok;
}

/* ---------------------------------------------------------------------------------- options */

static json_t *list_of(const char *text, bool integers)
{
    json_t *list = json_array();

    while (list) {
        size_t length = strcspn(text, ",");
        json_t *item =
            integers ? json_integer(strtoll(text, NULL, 10)) : json_stringn(text, length);

        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    return list;
}

/* "scan.h5:/truth/probe"; a colon inside a file name stays one, if the dataset begins with a slash.
 */
static json_t *reference(const char *text)
{
    const char *colon = NULL, *p;

    for (p = strstr(text, ":/"); p; p = strstr(p + 1, ":/"))
        colon = p;
    if (!colon || colon == text || access(text, F_OK) == 0)
        return json_pack("{s:s}", "path", text);
    return json_pack("{s:s%, s:s}", "path", text, (size_t)(colon - text), "dataset", colon + 1);
}

static json_t *value_of(const cli_option *option, const char *text)
{
    switch (option->kind) {
    case CLI_FLAG:
        return json_true();
    case CLI_TEXT:
    case CLI_PATH:
        return json_string(text);
    case CLI_INTEGER:
        return json_integer(strtoll(text, NULL, 10));
    case CLI_NUMBER:
        return json_real(strtod(text, NULL));
    case CLI_REF:
        return reference(text);
    case CLI_INTEGERS:
    case CLI_WORDS:
        return list_of(text, option->kind == CLI_INTEGERS);
    }
    return NULL;
}

int cli_job_fill(json_t *doc, const cli_args *args)
{
    char why[256];
    int i;

    for (i = 0; i < args->count; i++) {
        const cli_option *option = args->options[i];
        json_t *value;

        if (strcmp(option->name, "set") == 0) {
            if (!cli_set_text(doc, args->values[i], why, sizeof(why)))
                return cli_usage(args->command, "--set: %s", why);
        } else if (option->job) {
            value = value_of(option, args->values[i]);
            if (!value)
                return cli_usage(args->command, "--%s: '%.60s' is not UTF-8 text", option->name,
                                 args->values[i] ? args->values[i] : "");
            if (!cli_set(doc, option->job, value, why, sizeof(why)))
                return cli_usage(args->command, "--%s: %s", option->name, why);
        }
    }
    return CLI_OK;
}

int cli_job_labels(json_t *doc, const cli_args *args)
{
    int i;

    for (i = 0; i < args->count; i++) {
        const char *text = args->values[i], *equals;
        json_t *labels;

        if (strcmp(args->options[i]->name, "label") != 0)
            continue;
        equals = strchr(text, '=');
        if (!equals || equals == text)
            return cli_usage(args->command, "--label: '%.60s' is not KEY=VALUE", text);
        labels = json_object_get(doc, "labels");
        if (!labels) {
            labels = json_object();
            if (json_object_set_new(doc, "labels", labels) != 0)
                return CLI_UNEXPECTED;
        }
        if (json_object_setn_new(labels, text, (size_t)(equals - text), json_string(equals + 1)) !=
            0)
            return cli_usage(args->command, "--label: '%.60s' is not UTF-8 text", text);
    }
    return CLI_OK;
}

/* ---------------------------------------------------------------------------------- paths */

/* The path up to its last ".." as the file system resolves it, links included, and the rest; NULL
 * where there is no such folder here.  What the text says is not where it leads after a link. */
static char *without_parents(const char *path)
{
    char *head = strdup(path), *at = head, *last = NULL, *real = NULL, *out = NULL;

    while (head && (at = strstr(at, "/.."))) {
        if (at[3] == '/' || at[3] == '\0')
            last = at + 3;
        at += 3;
    }
    if (last) {
        const char *rest = path + (last - head);
        *last = '\0';
        real = realpath(head, NULL);
        if (real && asprintf(&out, "%s%s", strcmp(real, "/") == 0 && *rest ? "" : real, rest) < 0)
            out = NULL;
    }
    free(real);
    free(head);
    return out;
}

/* Without doubled slashes and single dots. */
static char *tidy(char *path)
{
    size_t used = 0;
    char *p;

    for (p = path; *p;) {
        size_t length;

        p += strspn(p, "/");
        length = strcspn(p, "/");
        if (length > 0 && !(length == 1 && p[0] == '.')) {
            path[used++] = '/';
            memmove(path + used, p, length);
            used += length;
        }
        p += length;
    }
    if (used == 0)
        path[used++] = '/';
    path[used] = '\0';
    return path;
}

char *cli_path_absolute(const char *folder, const char *path)
{
    char *joined = NULL, *resolved;

    if (asprintf(&joined, "%s/%s", path[0] == '/' ? "" : folder, path) < 0)
        return NULL;
    resolved = without_parents(tidy(joined));
    if (!resolved)
        return joined;
    free(joined);
    return resolved;
}

bool cli_job_paths(json_t *doc, char *why, size_t why_size)
{
    static const char *const holders[] = {"scan",        "probe",      "init",
                                          "init_object", "init_probe", "output"};
    char *folder = getcwd(NULL, 0);
    bool ok = folder != NULL;
    size_t i;

    if (!ok)
        (void)snprintf(why, why_size, "the current folder cannot be named: %s", strerror(errno));
    for (i = 0; ok && i < sizeof(holders) / sizeof(holders[0]); i++) {
        json_t *holder = json_object_get(doc, holders[i]);
        const char *path = json_string_value(json_object_get(holder, "path"));
        char *whole;

        if (!path || !path[0] || path[0] == '/')
            continue;
        whole = cli_path_absolute(folder, path);
        ok = whole && json_object_set_new(holder, "path", json_string(whole)) == 0;
        if (!ok)
            (void)snprintf(why, why_size,
                           "'%.100s' cannot be made absolute: the current folder is "
                           "not UTF-8 text",
                           path);
        free(whole);
    }
    free(folder);
    return ok;
}

/* ---------------------------------------------------------------------------------- files */

json_t *cli_job_load(const char *path, int *exit)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *text = malloc(XPP_BODY_MAX + 1);
    json_t *doc = NULL, *problem = NULL;
    size_t length = 0;

    *exit = CLI_REFUSED;
    if (!text) {
        cli_warn("memory is exhausted");
        *exit = CLI_UNEXPECTED;
    } else if (!file) {
        cli_warn("cannot read the job '%s': %s", path, strerror(errno));
    } else if (length = fread(text, 1, XPP_BODY_MAX + 1, file), ferror(file)) {
        cli_warn("cannot read the job '%s': %s", path, strerror(errno));
    } else if (length > XPP_BODY_MAX) {
        cli_warn("the job '%s' is longer than %d bytes", path, XPP_BODY_MAX);
    } else {
        doc = xpp_parse(text, length, &problem);
        if (!doc) {
            char why[1024];
            xpc_problem_text(why, sizeof(why), problem);
            cli_warn("the job '%s': %s", path, why);
        } else if (!json_is_object(doc)) {
            cli_warn("the job '%s' is no JSON object", path);
            json_decref(doc);
            doc = NULL;
        }
    }
    if (file && file != stdin)
        (void)fclose(file);
    json_decref(problem);
    free(text);
    return doc;
}
