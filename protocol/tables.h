/* The shape of the tables that generate.py makes from openapi.json: what a job may hold.
 * Private to this folder; static data, read by any thread. */
#ifndef XPP_TABLES_H
#define XPP_TABLES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum xpp_kind {
    XPP_KIND_TEXT,
    XPP_KIND_NUMBER,
    XPP_KIND_INTEGER,
    XPP_KIND_BOOLEAN,
    XPP_KIND_OBJECT,      /* tables[0] lists the members */
    XPP_KIND_MAP,         /* any member names, each value as items */
    XPP_KIND_ARRAY,       /* each value as items */
    XPP_KIND_ONE_OF,      /* an object; the member `selector` says which of tables */
    XPP_KIND_ONE_OR_MORE, /* a value as items, or an array of such */
    XPP_KIND_ANY
} xpp_kind;

/* Two members of which at most one may be given, and why. */
typedef struct xpp_pair {
    const char *first, *second, *reason;
} xpp_pair;

typedef struct xpp_rule xpp_rule;

typedef struct xpp_table {
    const char *where; /* where such an object stands: "scan.geometry"; "" for the job itself */
    const xpp_rule *rules;
    size_t rule_count;
    const xpp_pair *pairs;
    size_t pair_count;
} xpp_table;

struct xpp_rule {
    const char *name; /* of the member; of items what a message calls them: "an entry of labels" */
    xpp_kind kind;
    bool required, unique, above_minimum; /* above: the minimum itself is refused */
    double minimum, maximum;
    size_t count_min, count_max; /* characters of a text, items of an array, members of a map */
    size_t name_max;             /* MAP: characters of a member name */
    bool (*matches)(const char *text); /* the pattern; NULL: none */
    const char *wanted;                /* what it stands for */
    const char *const *choices;        /* ends with NULL; NULL: free */
    const char *fallback;              /* the default as JSON; NULL: none */
    const xpp_table *const *tables;
    size_t table_count;
    const char *selector;
    const xpp_rule *items;
};

/* The patterns of a job (generate.py names them). */
bool xpp_is_absolute(const char *text);
bool xpp_is_device(const char *text);

extern const xpp_rule xpp_job_rule;
/* Every table, for a hint where a misplaced name belongs; ends with NULL. */
extern const xpp_table *const xpp_tables[];
extern const char xpp_openapi_text[], xpp_schema_job_text[];

#endif
