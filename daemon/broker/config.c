/* See config.h.  The file is INI, parsed by libinih; a key may be given several times where the
 * option is a list. */
#include "config.h"

#include "gpuset.h"
#include "log.h"
#include "options.h"
#include "people.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------ values */

static bool set_text(char **where, const char *value)
{
    char *copy = strdup(value);
    if (!copy)
        return false;
    free(*where);
    *where = copy;
    return true;
}

static void list_clear(xpd_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i]);
    list->count = 0;
}

static bool parse_flag(bool *out, const char *value)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no",
                                                                                "off", "0"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *out = strcmp(value, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

static bool set_integer(int64_t *out, const xpd_option *o, const char *value, const char *where,
                        xpd_error *err)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(value, &end, o->kind == XPD_OCTAL ? 8 : 10);
    if (!*value || *end || errno || number < o->minimum || number > o->maximum)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        o->kind == XPD_OCTAL ? "%s: '%s' is not an octal number from %llo to %llo"
                                             : "%s: '%s' is not a number from %lld to %lld",
                        where, value, (long long)o->minimum, (long long)o->maximum);
    *out = number;
    return true;
}

static bool is_root(const char *value)
{
    char group[64];
    const char *path;
    xpd_root_split(group, sizeof group, &path, value);
    return path[0] == '/' && (value[0] == '/' || (*group && strlen(group) + 1 < sizeof group));
}

static bool set_value(xpd_config *config, const xpd_option *o, const char *value, const char *where,
                      xpd_error *err)
{
    void *target = (char *)config + o->offset;

    if (o->kind == XPD_PATHS && !is_root(value))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "%s: '%s' is not an absolute path, nor @GROUP and one with a colon between",
                        where, value);
    if (o->kind != XPD_FLAG && !*value)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: the value is empty", where);
    switch (o->kind) {
    case XPD_FLAG:
        if (!parse_flag(target, value))
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: '%s' is not true or false", where,
                            value);
        return true;
    case XPD_TEXT:
    case XPD_PATH:
        if (!set_text(target, value))
            return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
        return true;
    case XPD_LIST:
    case XPD_PATHS: {
        xpd_list *list = target;
        if (list->count == XPD_LIST_MAX)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: more than %d values", where,
                            XPD_LIST_MAX);
        list->items[list->count] = strdup(value);
        if (!list->items[list->count])
            return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
        list->count++;
        return true;
    }
    case XPD_INTEGER:
    case XPD_OCTAL:
        return set_integer(target, o, value, where, err);
    }
    return false;
}

/* ------------------------------------------------------------------------------ nearest name */

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= 64 || strlen(a) >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; *a; a++, i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (*a != b[j - 1]);
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

static const char *file_name(const xpd_option *o, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", o->section, o->key);
    return out;
}

static bool refuse_unknown(const char *where, const char *name, bool flag, xpd_error *err)
{
    char best[96] = "", candidate[96];
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < xpd_option_count; i++) {
        if (!flag && !xpd_options[i].section)
            continue;
        if (flag)
            snprintf(candidate, sizeof candidate, "--%s", xpd_options[i].flag);
        else
            file_name(&xpd_options[i], candidate, sizeof candidate);
        size_t distance = edit_distance(name, candidate);
        if (distance < least) {
            least = distance;
            snprintf(best, sizeof best, "%s", candidate);
        }
    }
    return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%sunknown option '%s'; the nearest is '%s'",
                    where, name, best);
}

/* -------------------------------------------------------------------------------------- file */

typedef struct file_reading {
    xpd_config *config;
    const char *path;
    FILE *file;
    int line;       /* the one that was read last */
    bool continued; /* the next piece belongs to the same line */
    xpd_error *err;
    bool failed;
} file_reading;

/* The library's reader, with a count of lines: its handler is not told where it is. */
static char *next_line(char *out, int size, void *context)
{
    file_reading *reading = context;
    if (!fgets(out, size, reading->file))
        return NULL;
    reading->line += !reading->continued;
    reading->continued = strchr(out, '\n') == NULL;
    return out;
}

static int take_line(void *context, const char *section, const char *key, const char *value)
{
    file_reading *reading = context;
    char where[512], name[128];

    if (reading->failed)
        return 0;
    snprintf(where, sizeof where, "%s: line %d: %s.%s", reading->path, reading->line, section, key);
    for (size_t i = 0; i < xpd_option_count; i++) {
        const xpd_option *o = &xpd_options[i];
        if (!o->section || strcmp(o->section, section) != 0 || strcmp(o->key, key) != 0)
            continue;
        reading->failed = !set_value(reading->config, o, value, where, reading->err);
        return !reading->failed;
    }
    snprintf(where, sizeof where, "%s: line %d: ", reading->path, reading->line);
    snprintf(name, sizeof name, "%.60s.%.60s", section, key);
    refuse_unknown(where, name, false, reading->err);
    reading->failed = true;
    return 0;
}

bool xpd_config_file(xpd_config *config, const char *path, bool must_exist, xpd_error *err)
{
    file_reading reading = {config, path, fopen(path, "re"), 0, false, err, false};

    if (!reading.file && !must_exist && errno == ENOENT)
        return true;
    if (!reading.file)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: cannot be read: %s", path,
                        strerror(errno));
    int line = ini_parse_stream(next_line, &reading, take_line, &reading);
    bool broken = ferror(reading.file);
    fclose(reading.file);
    if (reading.failed)
        return false;
    if (broken)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: cannot be read", path);
    if (line > 0)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: line %d is not 'key = value'", path,
                        line);
    return true;
}

/* ------------------------------------------------------------------------------ command line */

static void print_help(void)
{
    printf(
        "usage: xptychod [--user] [option ...]\n\n"
        "The broker of xptycho: HTTP, the queue and the processes that read and reconstruct.\n\n");
    for (size_t i = 0; i < xpd_option_count; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s", xpd_options[i].flag,
                 xpd_options[i].kind == XPD_FLAG ? "" : " VALUE");
        printf("  %-28s %s", left, xpd_options[i].help);
        if (xpd_options[i].initial)
            printf(" (default %s)", xpd_options[i].initial);
        printf("\n");
        if (xpd_options[i].section)
            printf("  %-28s in the file: [%s] %s\n", "", xpd_options[i].section,
                   xpd_options[i].key);
    }
    printf("  %-28s this text\n  %-28s the version\n\n", "--help", "--version");
    printf("exit status: 0 stopped, 2 usage, 78 bad configuration, 1 anything else\n");
}

static const xpd_option *find_flag(const char *name, size_t length)
{
    for (size_t i = 0; i < xpd_option_count; i++) {
        if (strlen(xpd_options[i].flag) == length &&
            strncmp(xpd_options[i].flag, name, length) == 0)
            return &xpd_options[i];
    }
    return NULL;
}

/* One argument (and its value) from argv[*at]; `only` limits it to the options that choose the
 * file. */
static bool take_argument(xpd_config *config, int argc, char **argv, int *at, bool *cleared,
                          bool early, xpd_error *err)
{
    const char *argument = argv[*at];
    if (strncmp(argument, "--", 2) != 0 || !argument[2])
        return refuse_unknown("", argument, true, err);
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument - 2) : strlen(argument + 2);
    const xpd_option *o = find_flag(argument + 2, length);
    if (!o)
        return refuse_unknown("", argument, true, err);

    const char *value = equals ? equals + 1 : NULL;
    if (!value && o->kind == XPD_FLAG)
        value = "true";
    if (!value) {
        if (*at + 1 >= argc)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: a value must follow", argument);
        value = argv[++*at];
    }
    if (early != !o->section) /* --user and --config first, the others after the file */
        return true;
    if (o->kind == XPD_LIST || o->kind == XPD_PATHS) {
        if (!cleared[o - xpd_options])
            list_clear((xpd_list *)(void *)((char *)config + o->offset));
        cleared[o - xpd_options] = true;
    }
    return set_value(config, o, value, argument, err);
}

static bool take_arguments(xpd_config *config, int argc, char **argv, bool early, xpd_error *err)
{
    bool cleared[XPD_OPTION_ROOM] = {false};
    for (int i = 1; i < argc; i++) {
        if (!take_argument(config, argc, argv, &i, cleared, early, err))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------ whole */

bool xpd_config_defaults(xpd_config *config, xpd_error *err)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < xpd_option_count; i++) {
        if (xpd_options[i].initial &&
            !set_value(config, &xpd_options[i], xpd_options[i].initial, xpd_options[i].flag, err))
            return false;
    }
    return true;
}

static bool set_default_path(char **where, const char *base, const char *rest, xpd_error *err)
{
    char path[PATH_MAX];
    if (*where)
        return true;
    if (snprintf(path, sizeof path, "%s%s", base, rest) >= (int)sizeof path ||
        !set_text(where, path))
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "the path '%s%s' is too long", base, rest);
    return true;
}

static bool user_folders(xpd_config *config, xpd_error *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *runtime = getenv("XDG_RUNTIME_DIR"),
               *home = getenv("HOME");

    if (state && *state) {
        if (!set_default_path(&config->state_dir, state, "/xptycho", err))
            return false;
    } else if (!config->state_dir) {
        if (!home || !*home)
            return xpd_fail(
                err, XPP_FAULT_BAD_REQUEST, "",
                "no place for the state: neither XDG_STATE_HOME nor HOME is set; give --state-dir");
        if (!set_default_path(&config->state_dir, home, "/.local/state/xptycho", err))
            return false;
    }
    /* Where no session manager made a runtime folder, the sockets live beside the state. */
    if (runtime && *runtime)
        return set_default_path(&config->runtime_dir, runtime, "/xptycho", err);
    return set_default_path(&config->runtime_dir, config->state_dir, "/run", err);
}

static bool set_level(xpd_config *config, xpd_error *err)
{
    static const char *const words[] = {"error", "warning", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(config->log_word, words[i]) == 0) {
            config->log_level = i;
            return true;
        }
    }
    return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                    "log level '%s' is not error, warning, info or debug", config->log_word);
}

static bool make_absolute(char **path, xpd_error *err)
{
    char here[PATH_MAX], whole[PATH_MAX * 2];
    if (!*path || **path == '/')
        return true;
    if (!getcwd(here, sizeof here))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "the current folder has no name: %s",
                        strerror(errno));
    snprintf(whole, sizeof whole, "%s/%s", here, *path);
    return set_text(path, whole) || xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
}

static bool check_sets(const xpd_list *sets, xpd_error *err)
{
    for (int i = 0; i < sets->count; i++) {
        const char *text = sets->items[i];
        char *end = NULL;
        long number = strtol(text, &end, 10);
        if (!isdigit((unsigned char)text[0]) || *end || number >= XPD_SETS_MAX)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                            "workers.live '%.40s' is not the number of a device set, 0 to %d", text,
                            XPD_SETS_MAX - 1);
    }
    return true;
}

bool xpd_config_finish(xpd_config *config, xpd_error *err)
{
    if (!set_level(config, err))
        return false;
    config->log_json = strcmp(config->log_form, "json") == 0;
    if (!config->log_json && strcmp(config->log_form, "text") != 0)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "log '%s' is not text or json",
                        config->log_form);
    xpd_gpu_sets sets;
    if (!xpd_gpu_sets_parse(&sets, config->cuda_sets, err))
        return false;
    if (!xpd_people_check(config, err) || !check_sets(&config->live_sets, err))
        return false;
    if (config->rate < 0)
        config->rate = config->user ? 0 : 10;
    if (config->streams_user_max == 0)
        config->streams_user_max = config->user ? config->streams_max : 64;
    if (config->streams_job_max == 0)
        config->streams_job_max = config->user ? config->streams_max : 4;
    if (config->user) {
        config->unix_mode = 0600;
        if (!user_folders(config, err))
            return false;
        xpd_list *const roots[] = {&config->data_roots, &config->write_roots};
        for (int i = 0; i < 2; i++) {
            if (roots[i]->count == 0 && !(roots[i]->items[roots[i]->count++] = strdup("/")))
                return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
        }
    } else if (!set_default_path(&config->state_dir, "/var/lib/xptycho", "", err) ||
               !set_default_path(&config->runtime_dir, "/run/xptycho", "", err)) {
        return false;
    }
    if (!make_absolute(&config->state_dir, err) || !make_absolute(&config->runtime_dir, err) ||
        !make_absolute(&config->token_file, err))
        return false;
    if (config->user && !set_default_path(&config->token_file, config->runtime_dir, "/token", err))
        return false;
    bool loopback = strncmp(config->address, "127.", 4) == 0 || strcmp(config->address, "::1") == 0;
    if (!loopback && config->port >= 0 && !config->allow_remote)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "http.address '%s' is reachable from other machines and tokens would cross "
                        "the net in the "
                        "clear; put a TLS proxy in front and set http.allow_remote = true",
                        config->address);
    if ((config->zmq_router == NULL) != (config->zmq_pub == NULL))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "zmq.router and zmq.pub must be given together");
    if ((config->zmq_curve_secret == NULL) != (config->zmq_curve_keys == NULL))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "zmq.curve_secret and zmq.curve_keys must be given together");
    return true;
}

xpd_config_result xpd_config_read(xpd_config *config, int argc, char **argv, xpd_error *err)
{
    if (!xpd_config_defaults(config, err))
        return XPD_CONFIG_BAD;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return XPD_CONFIG_EXIT;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("xptychod %s\n", xpp_version());
            return XPD_CONFIG_EXIT;
        }
    }
    if (!take_arguments(config, argc, argv, true, err))
        return XPD_CONFIG_USAGE;
    if (config->config_file) {
        if (!xpd_config_file(config, config->config_file, true, err))
            return XPD_CONFIG_BAD;
    } else if (!config->user &&
               !xpd_config_file(config, "/etc/xptycho/xptychod.conf", false, err)) {
        return XPD_CONFIG_BAD;
    }
    if (!take_arguments(config, argc, argv, false, err))
        return XPD_CONFIG_USAGE;
    return xpd_config_finish(config, err) ? XPD_CONFIG_OK : XPD_CONFIG_BAD;
}

static size_t value_size(const xpd_option *o)
{
    return o->kind == XPD_FLAG                           ? sizeof(bool)
           : o->kind == XPD_TEXT || o->kind == XPD_PATH  ? sizeof(char *)
           : o->kind == XPD_LIST || o->kind == XPD_PATHS ? sizeof(xpd_list)
                                                         : sizeof(int64_t);
}

static bool same_value(const xpd_option *o, const void *a, const void *b)
{
    if (o->kind != XPD_TEXT && o->kind != XPD_PATH) /* lists may all change */
        return memcmp(a, b, value_size(o)) == 0;
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    return one == other || (one && other && strcmp(one, other) == 0);
}

void xpd_config_exchange(xpd_config *current, xpd_config *fresh, char *rest, size_t size)
{
    static unsigned char between[sizeof(xpd_list)];

    *rest = '\0';
    for (size_t i = 0; i < xpd_option_count; i++) {
        const xpd_option *o = &xpd_options[i];
        void *old = (char *)current + o->offset, *new = (char *)fresh + o->offset;
        size_t n = value_size(o), at = strlen(rest);
        if (xpd_option_is_live(o)) {
            memcpy(between, old, n);
            memcpy(old, new, n);
            memcpy(new, between, n);
        } else if (!same_value(o, old, new)) {
            snprintf(rest + at, size - at, "%s%s.%s", at ? ", " : "",
                     o->section ? o->section : "command line", o->section ? o->key : o->flag);
        }
    }
    current->log_level = fresh->log_level; /* made from the words */
    current->class_max = fresh->class_max;
    current->log_json = fresh->log_json;
}

int xpd_config_count(void)
{
    int count = 0;
    for (size_t i = 0; i < xpd_option_count; i++)
        count += xpd_options[i].section != NULL;
    return count;
}

void xpd_config_release(xpd_config *config)
{
    for (size_t i = 0; i < xpd_option_count; i++) {
        void *member = (char *)config + xpd_options[i].offset;
        if (xpd_options[i].kind == XPD_TEXT || xpd_options[i].kind == XPD_PATH)
            free(*(char **)member);
        else if (xpd_options[i].kind == XPD_LIST || xpd_options[i].kind == XPD_PATHS)
            list_clear(member);
    }
    memset(config, 0, sizeof *config);
}
