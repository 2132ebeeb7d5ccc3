/* Reads documents, one a line, and writes for each the JSON array of its errors: [] for a good job,
 * a single problem document where the line is not JSON. */
#include "xptychod/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;

    xpp_init();
    while ((length = getline(&line, &size, stdin)) > 0) {
        json_t *problem, *doc = xpp_parse(line, (size_t)length, &problem);
        json_t *errors = doc ? xpp_job_check(doc) : problem;

        if (!errors)
            errors = json_array();
        json_dumpf(errors, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(errors);
        json_decref(doc);
    }
    free(line);
    return 0;
}
