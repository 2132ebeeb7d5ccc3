/* Validation of a job document by the tables made from openapi.json: a walk along the rules that
 * never stops at an error.  What the tables cannot express is in check_rules.c. */
#include "check.h"

#include "table_find.h"
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 64 /* bytes of foreign text repeated in a message */

static void check_value(xpp_check *check, const xpp_rule *rule, json_t *value, const xpp_place *at);

/* -------------------------------------------------------------------------------- reporting */

/* RFC 6901, written backwards into the end of a buffer; returns where it starts. */
static char *pointer_write(char *end, const xpp_place *at)
{
    for (; at && (at->key || at->up); at = at->up) {
        char number[24];
        const char *key = at->key;

        if (!key) {
            snprintf(number, sizeof number, "%zu", at->index);
            key = number;
        }
        for (size_t i = strlen(key); i > 0; i--) {
            char c = key[i - 1];

            if (c == '~' || c == '/')
                *--end = c == '~' ? '0' : '1';
            *--end = c == '/' ? '~' : c;
        }
        *--end = '/';
    }
    return end;
}

static char *pointer_make(const xpp_place *at, char **storage)
{
    size_t size = 1;

    for (const xpp_place *p = at; p; p = p->up)
        size += p->key ? 2 * strlen(p->key) + 1 : 24;
    *storage = malloc(size);
    if (!*storage)
        return NULL;
    (*storage)[size - 1] = '\0';
    return pointer_write(*storage + size - 1, at);
}

void xpp_check_fail(xpp_check *check, const xpp_place *at, const char *format, ...)
{
    char *storage, *pointer, *detail = NULL;
    va_list arguments;

    if (check->count++ >= XPP_ERRORS_MAX)
        return;
    pointer = pointer_make(at, &storage);
    va_start(arguments, format);
    if (vasprintf(&detail, format, arguments) < 0)
        detail = NULL;
    va_end(arguments);
    xpp_errors_add(check->errors, pointer ? pointer : "", "%s", detail ? detail : "not valid");
    free(detail);
    free(storage);
}

/* Foreign text, short enough for a message. */
typedef struct shown {
    char text[SHOWN_MAX + 4];
} shown;

static shown show(const char *text)
{
    shown out;
    size_t cut = xpp_utf8_cut(text, SHOWN_MAX);

    snprintf(out.text, sizeof out.text, "%.*s%s", (int)cut, text, text[cut] ? "..." : "");
    return out;
}

static const char *kind_text(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

static void append(char *out, size_t size, const char *text)
{
    size_t used = strlen(out);

    snprintf(out + used, size - used, "%s", text);
}

/* The shortest decimal that is the number again. */
typedef struct number_text {
    char text[32];
} number_text;

static number_text show_number(double number)
{
    number_text out;

    snprintf(out.text, sizeof out.text, "%.15g", number);
    if (strtod(out.text, NULL) != number)
        snprintf(out.text, sizeof out.text, "%.17g", number);
    return out;
}

/* "a whole number from 1 to 100", "one of 'auto', 'cxi'", ...: what a rule wants. */
typedef struct wanted {
    char text[256];
} wanted;

static void wanted_range(wanted *out, const xpp_rule *rule)
{
    const char *kind = rule->kind == XPP_KIND_INTEGER ? "a whole number" : "a number";
    size_t size = sizeof out->text;

    if (isinf(rule->minimum) && isinf(rule->maximum))
        snprintf(out->text, size, "%s", kind);
    else if (isinf(rule->maximum))
        snprintf(out->text, size, "%s %s %.10g", kind,
                 rule->above_minimum ? "above" : "of at least", rule->minimum);
    else if (rule->above_minimum)
        snprintf(out->text, size, "%s above %.10g and at most %.10g", kind, rule->minimum,
                 rule->maximum);
    else
        snprintf(out->text, size, "%s from %.10g to %.10g", kind, rule->minimum, rule->maximum);
}

static wanted wanted_of(const xpp_rule *rule)
{
    wanted out = {""};

    switch (rule->kind) {
    case XPP_KIND_NUMBER:
    case XPP_KIND_INTEGER:
        wanted_range(&out, rule);
        break;
    case XPP_KIND_TEXT:
        append(out.text, sizeof out.text,
               !rule->choices     ? (rule->wanted ? rule->wanted : "text")
               : rule->choices[1] ? "one of "
                                  : "");
        for (const char *const *choice = rule->choices; choice && *choice; choice++) {
            append(out.text, sizeof out.text, choice == rule->choices ? "'" : ", '");
            append(out.text, sizeof out.text, *choice);
            append(out.text, sizeof out.text, "'");
        }
        break;
    case XPP_KIND_BOOLEAN:
        append(out.text, sizeof out.text, "true or false");
        break;
    case XPP_KIND_ARRAY:
        append(out.text, sizeof out.text, "an array");
        break;
    case XPP_KIND_ONE_OR_MORE:
        append(out.text, sizeof out.text, "an object or an array of objects");
        break;
    case XPP_KIND_MAP:
    case XPP_KIND_OBJECT:
    case XPP_KIND_ONE_OF:
    case XPP_KIND_ANY:
        append(out.text, sizeof out.text, "an object");
        break;
    }
    return out;
}

/* What a message calls the value of a rule. */
static const char *name_of(const xpp_rule *rule)
{
    return rule->name[0] ? rule->name : "the job";
}

static void fail_kind(xpp_check *check, const xpp_rule *rule, const json_t *value,
                      const xpp_place *at)
{
    xpp_check_fail(check, at, "%s must be %s, not %s", name_of(rule), wanted_of(rule).text,
                   kind_text(value));
}

/* ----------------------------------------------------------------------------- unknown names */

static const char *nearest_name(const xpp_table *table, const char *key)
{
    size_t best = 1 + strlen(key) / 4; /* a name further off than this would be a guess */
    const char *name = NULL;

    for (size_t i = 0; i < table->rule_count; i++) {
        size_t distance = xpp_edit_distance(key, table->rules[i].name, best);

        if (distance < best || (distance == best && !name)) {
            best = distance;
            name = table->rules[i].name;
        }
    }
    return name;
}

static const char *where_known(const char *key)
{
    for (const xpp_table *const *table = xpp_tables; *table; table++)
        if (xpp_table_find(*table, key))
            return (*table)->where;
    return NULL;
}

/* The value of `selector` with which `key` would be known, or NULL. */
static const char *choice_with(const xpp_rule *rule, const char *key)
{
    for (size_t i = 0; rule->kind == XPP_KIND_ONE_OF && i < rule->table_count; i++)
        if (xpp_table_find(rule->tables[i], key))
            return xpp_table_find(rule->tables[i], rule->selector)->choices[0];
    return NULL;
}

static void fail_unknown(xpp_check *check, const xpp_rule *rule, const xpp_table *table,
                         const char *key, const xpp_place *at)
{
    const char *choice, *where, *near;
    char names[512] = "";

    if (check->count >= XPP_ERRORS_MAX) { /* not shown, so not worth a search for a name */
        check->count++;
        return;
    }
    choice = choice_with(rule, key);
    where = where_known(key);
    near = nearest_name(table, key);
    if (choice) {
        xpp_check_fail(check, at, "'%s' belongs to %s '%s' only", key, rule->selector, choice);
    } else if (where) {
        xpp_check_fail(check, at, "unknown key '%s'; it belongs %s%s", key,
                       where[0] ? "in " : "at the top of the job", where);
    } else if (near) {
        xpp_check_fail(check, at, "unknown key '%s'; the nearest known name is '%s'",
                       show(key).text, near);
    } else {
        for (size_t i = 0; i < table->rule_count; i++) {
            append(names, sizeof names, i ? ", " : "");
            append(names, sizeof names, table->rules[i].name);
        }
        xpp_check_fail(check, at, "unknown key '%s'; known here: %s", show(key).text, names);
    }
}

/* ---------------------------------------------------------------------------------- scalars */

static void check_number(xpp_check *check, const xpp_rule *rule, const json_t *value,
                         const xpp_place *at)
{
    double number = json_number_value(value);
    bool whole =
        rule->kind != XPP_KIND_INTEGER || json_is_integer(value) || floor(number) == number;

    if (!json_is_number(value))
        fail_kind(check, rule, value, at);
    else if (!whole || number < rule->minimum || number > rule->maximum ||
             (rule->above_minimum && number <= rule->minimum))
        xpp_check_fail(check, at, "%s is %s; it must be %s", name_of(rule),
                       show_number(number).text, wanted_of(rule).text);
}

bool xpp_is_absolute(const char *text)
{
    return text[0] == '/';
}

bool xpp_is_device(const char *text)
{
    static const char cuda[] = "cuda:";
    const char *number = text + sizeof cuda - 1;
    size_t digits;

    if (strncmp(text, cuda, sizeof cuda - 1) != 0)
        return strcmp(text, "cpu") == 0;
    digits = strspn(number, "0123456789");
    return digits >= 1 && digits <= 4 && !number[digits];
}

static void check_text(xpp_check *check, const xpp_rule *rule, const json_t *value,
                       const xpp_place *at)
{
    const char *text = json_string_value(value);
    size_t count;

    if (!text) {
        fail_kind(check, rule, value, at);
        return;
    }
    count = xpp_utf8_count(text);
    if (rule->choices) {
        if (!xpp_choice_find(rule->choices, text))
            xpp_check_fail(check, at, "%s is '%s'; it must be %s", name_of(rule), show(text).text,
                           wanted_of(rule).text);
    } else if (count < rule->count_min) {
        xpp_check_fail(check, at, "%s has %zu characters; it needs at least %zu", name_of(rule),
                       count, rule->count_min);
    } else if (count > rule->count_max) {
        xpp_check_fail(check, at, "%s has %zu characters; at most %zu are allowed", name_of(rule),
                       count, rule->count_max);
    } else if (rule->matches && !rule->matches(text)) {
        xpp_check_fail(check, at, "%s is '%s'; it must be %s", name_of(rule), show(text).text,
                       rule->wanted);
    }
}

/* ------------------------------------------------------------------------------- containers */

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static void check_unique(xpp_check *check, const xpp_rule *rule, const json_t *value,
                         const xpp_place *at)
{
    for (size_t i = 1; i < json_array_size(value); i++)
        for (size_t j = 0; j < i; j++)
            if (same(json_array_get(value, i), json_array_get(value, j))) {
                const json_t *twice = json_array_get(value, i);
                const number_text number = show_number(json_number_value(twice));

                xpp_check_fail(check, &(xpp_place){at, NULL, i},
                               "%s has %s at index %zu already; each may stand once", name_of(rule),
                               json_is_number(twice) ? number.text : "this value", j);
                break;
            }
}

static void check_array(xpp_check *check, const xpp_rule *rule, const json_t *value,
                        const xpp_place *at)
{
    size_t count = json_array_size(value);

    if (!json_is_array(value)) {
        fail_kind(check, rule, value, at);
        return;
    }
    if (count < rule->count_min || count > rule->count_max) {
        if (rule->count_min == rule->count_max)
            xpp_check_fail(check, at, "%s has %zu entries; it must have %zu", name_of(rule), count,
                           rule->count_min);
        else
            xpp_check_fail(check, at, "%s has %zu entries; it must have %zu to %zu", name_of(rule),
                           count, rule->count_min, rule->count_max);
        return;
    }
    for (size_t i = 0; i < count; i++)
        check_value(check, rule->items, json_array_get(value, i), &(xpp_place){at, NULL, i});
    if (rule->unique)
        check_unique(check, rule, value, at);
}

static void check_map(xpp_check *check, const xpp_rule *rule, json_t *value, const xpp_place *at)
{
    const char *key;
    json_t *member;

    if (!json_is_object(value)) {
        fail_kind(check, rule, value, at);
        return;
    }
    if (json_object_size(value) > rule->count_max) {
        xpp_check_fail(check, at, "%s has %zu entries; at most %zu are allowed", name_of(rule),
                       json_object_size(value), rule->count_max);
        return;
    }
    json_object_foreach (value, key, member) {
        xpp_place inside = {at, key, 0};
        size_t count = xpp_utf8_count(key);

        if (count < 1 || count > rule->name_max)
            xpp_check_fail(check, &inside, "a name in %s has %zu characters; it must have 1 to %zu",
                           name_of(rule), count, rule->name_max);
        check_value(check, rule->items, member, &inside);
    }
}

/* An object whose selector names no table: the selector is at fault, its other members are judged
 * by whatever table knows them. */
static const xpp_rule *find_anywhere(const xpp_rule *rule, const char *key)
{
    for (size_t i = 0; i < rule->table_count; i++) {
        const xpp_rule *found = xpp_table_find(rule->tables[i], key);

        if (found)
            return found;
    }
    return NULL;
}

static void fail_selector(xpp_check *check, const xpp_rule *rule, const json_t *value,
                          const xpp_place *at)
{
    const char *given = json_string_value(json_object_get(value, rule->selector));
    char names[256] = "";

    for (size_t i = 0; i < rule->table_count; i++) {
        append(names, sizeof names, i ? " or '" : "'");
        append(names, sizeof names, xpp_table_find(rule->tables[i], rule->selector)->choices[0]);
        append(names, sizeof names, "'");
    }
    if (given)
        xpp_check_fail(check, &(xpp_place){at, rule->selector, 0}, "%s is '%s'; it must be %s",
                       rule->selector, show(given).text, names);
    else
        xpp_check_fail(check, &(xpp_place){at, rule->selector, 0}, "%s must be %s", rule->selector,
                       names);
}

static void check_object(xpp_check *check, const xpp_rule *rule, json_t *value, const xpp_place *at)
{
    const xpp_table *table = xpp_rule_table(rule, value);
    const char *key;
    json_t *member;

    if (!json_is_object(value)) {
        fail_kind(check, rule, value, at);
        return;
    }
    if (!table)
        fail_selector(check, rule, value, at);
    json_object_foreach (value, key, member) {
        xpp_place inside = {at, key, 0};
        const xpp_rule *known = table ? xpp_table_find(table, key) : find_anywhere(rule, key);

        if (!table && strcmp(key, rule->selector) == 0)
            continue;
        if (known)
            check_value(check, known, member, &inside);
        else
            fail_unknown(check, rule, table ? table : rule->tables[0], key, &inside);
    }
    for (size_t i = 0; table && i < table->rule_count; i++)
        if (table->rules[i].required && !json_object_get(value, table->rules[i].name))
            xpp_check_fail(check, &(xpp_place){at, table->rules[i].name, 0},
                           "%s is missing; it must be %s", table->rules[i].name,
                           wanted_of(&table->rules[i]).text);
    for (size_t i = 0; table && i < table->pair_count; i++) {
        const xpp_pair *pair = &table->pairs[i];

        if (json_object_get(value, pair->first) && json_object_get(value, pair->second))
            xpp_check_fail(check, &(xpp_place){at, pair->second, 0},
                           "%s cannot stand beside %s: %s; give one of the two", pair->second,
                           pair->first, pair->reason);
    }
}

static void check_value(xpp_check *check, const xpp_rule *rule, json_t *value, const xpp_place *at)
{
    switch (rule->kind) {
    case XPP_KIND_TEXT:
        check_text(check, rule, value, at);
        break;
    case XPP_KIND_NUMBER:
    case XPP_KIND_INTEGER:
        check_number(check, rule, value, at);
        break;
    case XPP_KIND_BOOLEAN:
        if (!json_is_boolean(value))
            fail_kind(check, rule, value, at);
        break;
    case XPP_KIND_ARRAY:
        check_array(check, rule, value, at);
        break;
    case XPP_KIND_MAP:
        check_map(check, rule, value, at);
        break;
    case XPP_KIND_ONE_OR_MORE:
        if (json_is_array(value))
            check_array(check, rule, value, at);
        else if (json_is_object(value))
            check_value(check, rule->items, value, at);
        else
            fail_kind(check, rule, value, at);
        break;
    case XPP_KIND_OBJECT:
    case XPP_KIND_ONE_OF:
        check_object(check, rule, value, at);
        break;
    case XPP_KIND_ANY:
        break;
    }
}

json_t *xpp_job_check(const json_t *doc)
{
    const xpp_place top = {NULL, NULL, 0};
    xpp_check check = {json_array(), 0};
    json_t *copy = json_deep_copy(doc),
           *resolved = xpp_job_resolved(doc); /* jansson's loop wants what is not const */

    if (!check.errors || !copy || !resolved) {
        xpp_errors_add(check.errors, "", "memory is exhausted");
        check.count = 1;
        goto done;
    }
    check_value(&check, &xpp_job_rule, copy, &top);
    if (json_is_object(copy))
        xpp_check_rules(&check, resolved);
    if (check.count > XPP_ERRORS_MAX)
        xpp_errors_add(check.errors, "", "%zu more errors are not listed",
                       check.count - XPP_ERRORS_MAX);
done:
    json_decref(resolved);
    json_decref(copy);
    if (check.count == 0) {
        json_decref(check.errors);
        return NULL;
    }
    return check.errors ? check.errors
                        : json_null(); /* never NULL for a document that was not judged */
}
