/* Look-ups in the generated tables: the rule of a member, the table of an object. */
#include "table_find.h"

#include <string.h>

const xpp_rule *xpp_table_find(const xpp_table *table, const char *name)
{
    for (size_t i = 0; i < table->rule_count; i++)
        if (strcmp(table->rules[i].name, name) == 0)
            return &table->rules[i];
    return NULL;
}

bool xpp_choice_find(const char *const *choices, const char *text)
{
    for (; *choices; choices++)
        if (strcmp(*choices, text) == 0)
            return true;
    return false;
}

const xpp_table *xpp_rule_table(const xpp_rule *rule, const json_t *object)
{
    if (rule->kind != XPP_KIND_ONE_OF)
        return rule->tables[0];

    const json_t *given = json_object_get(object, rule->selector);
    for (size_t i = 0; i < rule->table_count; i++) {
        const xpp_rule *selector = xpp_table_find(rule->tables[i], rule->selector);
        if (!given ? selector->fallback != NULL
                   : json_is_string(given) &&
                         xpp_choice_find(selector->choices, json_string_value(given)))
            return rule->tables[i];
    }
    return NULL;
}
