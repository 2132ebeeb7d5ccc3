/* Looks into the job's schema, so that help states the defaults and ranges that the daemon checks.
 */
#include "cli.h"

#include <string.h>
#include <xptychod/protocol.h>

/* A property of a node, or of one of its alternatives. */
static const json_t *find(const json_t *node, const char *name, size_t length)
{
    static const char *const alternatives[] = {"oneOf", "anyOf"};
    const json_t *property = json_object_getn(json_object_get(node, "properties"), name, length);
    size_t i, k;

    for (k = 0; !property && k < 2; k++) {
        const json_t *list = json_object_get(node, alternatives[k]);
        for (i = 0; !property && i < json_array_size(list); i++)
            property = find(json_array_get(list, i), name, length);
    }
    return property;
}

const json_t *cli_schema_find(json_t **root, const char *path)
{
    const json_t *node;

    if (!*root)
        *root = json_loads(xpp_schema_job(), 0, NULL);
    node = *root;
    while (node && *path) {
        size_t length = strcspn(path, ".");
        node = find(node, path, length);
        path += length;
        if (*path == '.')
            path++;
    }
    return node;
}
