/* See people.h. */
#include "people.h"

#include "loop.h"

#include <ctype.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_MS 60000
#define GROUPS_MAX 256
#define SLOTS 256

typedef struct answer {
    uid_t uid;
    char group[64];
    bool member;
    int64_t until_ms; /* 0 = empty */
} answer;

static answer answers[SLOTS];

typedef struct weighed {
    uid_t uid;
    double weight;
    int64_t until_ms; /* 0 = empty */
} weighed;

static weighed weights[SLOTS];

/* ------------------------------------------------------------------------------------ groups */

static bool find_gid(gid_t *out, const char *group)
{
    struct group entry, *found = NULL;
    char buffer[16384], *end = NULL;

    if (isdigit((unsigned char)group[0])) {
        unsigned long number = strtoul(group, &end, 10);
        *out = (gid_t)number;
        return !*end && number < (gid_t)-1;
    }
    if (getgrnam_r(group, &entry, buffer, sizeof buffer, &found) != 0 || !found)
        return false;
    *out = found->gr_gid;
    return true;
}

static bool look_up(uid_t uid, const char *group)
{
    struct passwd entry, *found = NULL;
    gid_t wanted, groups[GROUPS_MAX];
    int count = GROUPS_MAX;
    char buffer[4096];

    if (!find_gid(&wanted, group) || getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) != 0 ||
        !found)
        return false;
    if (getgrouplist(found->pw_name, found->pw_gid, groups, &count) < 0)
        return false; /* in more than fit: not let in by what was not seen */
    for (int i = 0; i < count; i++) {
        if (groups[i] == wanted)
            return true;
    }
    return false;
}

bool xpd_user_in_group(uid_t uid, const char *group)
{
    unsigned hash = uid;
    int64_t now = xpd_now_ms();

    for (const char *c = group; *c; c++)
        hash = hash * 31 + (unsigned char)*c;
    answer *a = &answers[hash % SLOTS];
    if (now >= a->until_ms || a->uid != uid || strcmp(a->group, group) != 0) {
        if (strlen(group) >= sizeof a->group)
            return false;
        a->uid = uid;
        snprintf(a->group, sizeof a->group, "%s", group);
        a->member = look_up(uid, group);
        a->until_ms = now + KEEP_MS;
    }
    return a->member;
}

void xpd_people_forget(void)
{
    memset(answers, 0, sizeof answers);
    memset(weights, 0, sizeof weights);
}

/* ------------------------------------------------------------------------------------- roots */

void xpd_root_split(char *group, size_t size, const char **path, const char *root)
{
    size_t length = root[0] == '@' ? strcspn(root, ":") : 0;

    snprintf(group, size, "%.*s", length > 0 ? (int)length - 1 : 0, root + 1);
    *path = length > 0 && root[length] ? root + length + 1 : root;
}

json_t *xpd_roots_of(const xpd_list *roots, uid_t uid)
{
    if (roots->count == 1 && strcmp(roots->items[0], "/") == 0)
        return json_null(); /* the process's own permissions */
    json_t *list = json_array();
    for (int i = 0; i < roots->count; i++) {
        char group[64];
        const char *path;
        xpd_root_split(group, sizeof group, &path, roots->items[i]);
        if (!*group || xpd_user_in_group(uid, group))
            json_array_append_new(list, json_string(path));
    }
    return list;
}

/* ----------------------------------------------------------------------------------- classes */

/* One line of limits.class_for, "USER:CLASS" or "@GROUP:CLASS". */
static bool class_line(char *who, size_t size, xpd_class *out, const char *line)
{
    const char *colon = strrchr(line, ':');
    size_t length = colon ? (size_t)(colon - line) : 0;

    if (length == 0 || length >= size || (length == 1 && line[0] == '@'))
        return false;
    snprintf(who, size, "%.*s", (int)length, line);
    return xpd_class_find(out, colon + 1);
}

static bool is_user(uid_t uid, const char *who)
{
    uid_t found;
    return xpd_user_find(&found, who) && found == uid;
}

xpd_class xpd_class_of(const xpd_config *config, uid_t uid)
{
    xpd_class most = XPD_CLASSES, class;
    char who[96];

    for (int i = 0; i < config->class_for.count; i++) {
        if (!class_line(who, sizeof who, &class, config->class_for.items[i]))
            continue; /* it was checked when it was read */
        if (who[0] != '@' && is_user(uid, who))
            return class;
        if (who[0] == '@' && class < most && xpd_user_in_group(uid, who + 1))
            most = class;
    }
    return most < XPD_CLASSES ? most : (xpd_class)config->class_max;
}

xpd_class xpd_class_of_caller(const xpd_config *config, const xpd_caller *caller)
{
    xpd_class class = xpd_class_of(config, caller->uid);
    return caller->class_most > class ? caller->class_most : class;
}

bool xpd_class_allowed(const xpd_config *config, const xpd_caller *caller, xpd_class wanted,
                       xpd_error *err)
{
    xpd_class own = xpd_class_of(config, caller->uid), most = xpd_class_of_caller(config, caller);

    if (wanted >= most)
        return true;
    return xpd_fail(err, XPP_FAULT_FORBIDDEN, "/class",
                    "class '%s' is above '%s', the highest that %s%s%s may use; submit the job "
                    "with \"class\": \"%s\", or ask who runs the service for more",
                    xpd_class_name(wanted), xpd_class_name(most),
                    most > own ? "the token '" : "user '",
                    most > own ? caller->token : caller->user, "'", xpd_class_name(most));
}

/* ------------------------------------------------------------------------------------ shares */

/* One line of limits.share, "USER:WEIGHT" or "@GROUP:WEIGHT"; a weight is from 0.01 to 100. */
static bool share_line(char *who, size_t size, double *out, const char *line)
{
    const char *colon = strrchr(line, ':');
    size_t length = colon ? (size_t)(colon - line) : 0;
    char *end = NULL;

    if (length == 0 || length >= size || (length == 1 && line[0] == '@') || !colon[1])
        return false;
    snprintf(who, size, "%.*s", (int)length, line);
    *out = strtod(colon + 1, &end);
    return !*end && *out >= 0.01 && *out <= 100;
}

static double look_up_weight(const xpd_config *config, uid_t uid)
{
    double most = 0, weight;
    char who[96];

    for (int i = 0; i < config->shares.count; i++) {
        if (!share_line(who, sizeof who, &weight, config->shares.items[i]))
            continue; /* it was checked when it was read */
        if (who[0] != '@' && is_user(uid, who))
            return weight;
        if (who[0] == '@' && weight > most && xpd_user_in_group(uid, who + 1))
            most = weight;
    }
    return most > 0 ? most : 1;
}

double xpd_weight_of(const xpd_config *config, uid_t uid)
{
    weighed *w = &weights[uid % SLOTS];
    int64_t now = xpd_now_ms();

    if (config->shares.count == 0)
        return 1;
    if (now >= w->until_ms || w->uid != uid)
        *w = (weighed){uid, look_up_weight(config, uid), now + KEEP_MS};
    return w->weight;
}

/* ------------------------------------------------------------------------------------- check */

static bool check_who(const char *option, const char *who, xpd_error *err)
{
    uid_t uid;
    gid_t gid;

    if (who[0] == '@')
        return find_gid(&gid, who + 1) || xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                                                   "%s: there is no group '%s'", option, who + 1);
    return xpd_user_find(&uid, who) ||
           xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: there is no user '%s'", option, who);
}

static bool check_shares(const xpd_list *shares, xpd_error *err)
{
    char who[96];
    double weight;

    for (int i = 0; i < shares->count; i++) {
        if (!share_line(who, sizeof who, &weight, shares->items[i]))
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                            "limits.share '%.80s' is not USER:WEIGHT or @GROUP:WEIGHT, with a "
                            "weight from 0.01 to 100",
                            shares->items[i]);
        if (!check_who("limits.share", who, err))
            return false;
    }
    return true;
}

static bool check_group(const char *option, const char *group, xpd_error *err)
{
    gid_t gid;
    return find_gid(&gid, group) ||
           xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "%s: there is no group '%s'", option, group);
}

static bool check_roots(const char *option, const xpd_list *roots, xpd_error *err)
{
    for (int i = 0; i < roots->count; i++) {
        char group[64];
        const char *path;
        xpd_root_split(group, sizeof group, &path, roots->items[i]);
        if (*group && !check_group(option, group, err))
            return false;
    }
    return true;
}

bool xpd_people_check(xpd_config *config, xpd_error *err)
{
    xpd_class class;
    char who[96];
    uid_t uid;

    if (!xpd_class_find(&class, config->class_word))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "limits.class '%.40s' is not live, normal, batch or scavenger",
                        config->class_word);
    config->class_max = class;
    for (int i = 0; i < config->class_for.count; i++) {
        const char *line = config->class_for.items[i];
        if (!class_line(who, sizeof who, &class, line))
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                            "limits.class_for '%.80s' is not USER:CLASS or @GROUP:CLASS, with "
                            "CLASS live, normal, batch or scavenger",
                            line);
        if (who[0] == '@' ? !check_group("limits.class_for", who + 1, err)
                          : !xpd_user_find(&uid, who) &&
                                !xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                                          "limits.class_for: there is no user '%s'", who))
            return false;
    }
    return check_shares(&config->shares, err) &&
           check_roots("roots.data", &config->data_roots, err) &&
           check_roots("roots.write", &config->write_roots, err);
}
