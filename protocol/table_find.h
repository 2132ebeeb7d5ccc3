/* Look-ups in the generated tables.  Private to this folder. */
#ifndef XPP_TABLE_FIND_H
#define XPP_TABLE_FIND_H

#include "tables.h"

#include <jansson.h>

/* NULL where the table has no such member. */
const xpp_rule *xpp_table_find(const xpp_table *table, const char *name);
bool xpp_choice_find(const char *const *choices, const char *text);
/* The table of an object under a rule of kind OBJECT or ONE_OF; NULL where its selector names none.
 */
const xpp_table *xpp_rule_table(const xpp_rule *rule, const json_t *object);

#endif
