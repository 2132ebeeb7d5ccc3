/* See gpuset.h. */
#include "gpuset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOW "it is auto, none, or sets such as 'cuda:0+cuda:1 cuda:2'"

static bool is_name(const char *text, size_t length)
{
    char copy[16], plain[16], *end;

    if (length >= sizeof copy || length < 6 || strncmp(text, "cuda:", 5) != 0)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    long number = strtol(copy + 5, &end, 10);
    snprintf(plain, sizeof plain, "cuda:%ld", number < 0 || number > 9999 ? 0L : number);
    return *end == '\0' && strcmp(plain, copy) == 0; /* not cuda:00, cuda:+1 */
}

static bool has(const xpd_gpu_sets *sets, const char *name)
{
    for (int i = 0; i < sets->count; i++) {
        for (int k = 0; k < sets->sets[i].count; k++) {
            if (strcmp(sets->sets[i].names[k], name) == 0)
                return true;
        }
    }
    return false;
}

static bool add(xpd_gpu_sets *out, const char *text, size_t length, xpd_error *err)
{
    int set = out->count - 1;
    char name[16];

    if (!is_name(text, length))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "workers.cuda: '%.*s' is not a GPU such as cuda:0; " HOW,
                        (int)(length < 40 ? length : 40), text);
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    if (has(out, name))
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "",
                        "workers.cuda: '%s' stands twice; a GPU is in one set only", name);
    if (out->sets[set].count == XPP_DEVICES_MAX)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "workers.cuda: more than %d GPUs in a set",
                        XPP_DEVICES_MAX);
    memcpy(out->sets[set].names[out->sets[set].count++], name, sizeof name);
    return true;
}

bool xpd_gpu_sets_parse(xpd_gpu_sets *out, const char *text, xpd_error *err)
{
    memset(out, 0, sizeof *out);
    out->automatic = strcmp(text, "auto") == 0;
    if (out->automatic || strcmp(text, "none") == 0)
        return true;
    while (*(text += strspn(text, " \t"))) {
        size_t whole = strcspn(text, " \t");
        if (out->count == XPD_GPU_SETS_MAX)
            return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "workers.cuda: more than %d sets",
                            XPD_GPU_SETS_MAX);
        out->count++;
        for (size_t at = 0; at <= whole;) {
            size_t length = strcspn(text + at, "+ \t");
            if (!add(out, text + at, length, err))
                return false;
            at += length + 1;
        }
        text += whole;
    }
    if (out->count == 0)
        return xpd_fail(err, XPP_FAULT_BAD_REQUEST, "", "workers.cuda is empty; " HOW);
    return true;
}
