/* See roots.h.  Our own folders are on a local disk and are looked at here; a root may lie on a
 * server that is away, so that is done aside, all of a list at once. */
#include "roots.h"

#include "aside.h"
#include "log.h"
#include "people.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_S 2

/* ------------------------------------------------------------------------------------- paths */

/* Without doubled slashes, "." and "..", which nothing is asked about. */
static char *plain_path(const char *path)
{
    char *out = malloc(strlen(path) + 2);
    size_t used = 0;

    if (!out)
        return NULL;
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 2 && strncmp(path, "..", 2) == 0) {
            while (used > 0 && out[--used] != '/')
                ;
        } else if (length > 0 && !(length == 1 && *path == '.')) {
            out[used++] = '/';
            memcpy(out + used, path, length);
            used += length;
        }
        path += length + (path[length] == '/');
    }
    if (used == 0)
        out[used++] = '/';
    out[used] = '\0';
    return out;
}

static bool holds(const char *folder, const char *path)
{
    size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    return strncmp(folder, path, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/* -------------------------------------------------------------------------------------- look */

typedef struct look {
    int count;
    char *paths[2 * XPD_LIST_MAX]; /* as they are written, then as they lead */
} look;

static void look_free(void *context)
{
    look *l = context;
    for (int i = 0; i < l->count; i++)
        free(l->paths[i]);
    free(l);
}

static void look_at(void *context)
{
    look *l = context;
    for (int i = 0; i < l->count; i++) {
        char *real = realpath(l->paths[i], NULL); /* may hang */
        if (!real)                                /* not there yet */
            continue;
        free(l->paths[i]);
        l->paths[i] = real;
    }
}

static bool look_add(look *l, const xpd_list *roots)
{
    for (int i = 0; i < roots->count; i++) {
        char group[96];
        const char *path;
        xpd_root_split(group, sizeof group, &path, roots->items[i]);
        l->paths[l->count] = plain_path(path);
        if (!l->paths[l->count])
            return false;
        l->count++;
    }
    return true;
}

static look *look_create(const xpd_list *first, const xpd_list *second)
{
    look *l = calloc(1, sizeof *l);

    if (l && look_add(l, first) && look_add(l, second))
        return l;
    if (l)
        look_free(l);
    return NULL;
}

/* What the roots lead to, or are written as where that cannot be found out. */
static look *look_up(const xpd_list *first, const xpd_list *second)
{
    look *l = look_create(first, second);

    if (!l || l->count == 0 || xpd_aside(look_at, look_free, l, LOOK_S))
        return l;
    xpd_log(XPD_LOG_WARNING, NULL,
            "the file system of a root has not answered for %d s; whether a link in the roots "
            "leads to the service's own folders is not known",
            LOOK_S);
    return look_create(first, second);
}

/* ------------------------------------------------------------------------------------- apart */

typedef struct place {
    const char *what, *option, *path, *except;
} place;

/* "contains", "is", "lies in", or NULL where they are apart. */
static const char *how(const char *root, const place *own)
{
    if (strcmp(root, own->path) == 0)
        return "is";
    if (holds(root, own->path))
        return "contains";
    if (holds(own->path, root) && !(own->except && holds(own->except, root)))
        return "lies in";
    return NULL;
}

/* The sentence about a root, or false where it is apart from both. */
static bool meets(char *out, size_t size, bool write, const char *root, const char *leads,
                  const place own[2])
{
    for (int i = 0; i < 2; i++) {
        const char *said = how(leads, &own[i]);
        if (!said)
            continue;
        snprintf(out, size,
                 "roots.%s '%s' %s the %s folder '%s' (%s), where a job could %s; name folders "
                 "apart from it",
                 write ? "write" : "data", root, said, own[i].what, own[i].path, own[i].option,
                 write ? "write what the service takes for its own"
                       : "read other users' results and what else the service keeps");
        return true;
    }
    return false;
}

static bool check(const xpd_config *config, const place own[2], json_t *warnings, xpd_error *err)
{
    const xpd_list *write = &config->write_roots, *data = &config->data_roots;
    look *l = look_up(write, data);
    char text[3 * PATH_MAX];
    bool good = true;

    if (!l)
        return xpd_fail(err, XPP_FAULT_INTERNAL, "", "memory is exhausted");
    for (int i = 0; good && i < write->count; i++) {
        if (meets(text, sizeof text, true, write->items[i], l->paths[i], own))
            good = xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s", text);
    }
    for (int i = 0; good && i < data->count; i++) {
        if (!meets(text, sizeof text, false, data->items[i], l->paths[write->count + i], own))
            continue;
        xpd_log(XPD_LOG_WARNING, NULL, "%s", text);
        if (warnings)
            json_array_append_new(warnings, json_string(text));
    }
    look_free(l);
    return good;
}

bool xpd_roots_apart(const xpd_config *config, const char *state_dir, const char *runtime_dir,
                     json_t *warnings, xpd_error *err)
{
    char *state = realpath(state_dir, NULL), *runtime = realpath(runtime_dir, NULL);
    char results[PATH_MAX + 16];

    snprintf(results, sizeof results, "%s/results", state ? state : state_dir);
    const place own[2] = {{"state", "daemon.state_dir", state ? state : state_dir, results},
                          {"runtime", "daemon.runtime_dir", runtime ? runtime : runtime_dir, NULL}};
    bool good = config->user || check(config, own, warnings, err);
    free(runtime);
    free(state);
    return good;
}
