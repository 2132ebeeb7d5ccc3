/* The parts of the ZAP handler that know no socket. */
#include "zap.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool xpd_keys_find(const char *file, const char *key, char *user, size_t user_size)
{
    FILE *list = fopen(file, "re");
    char line[512];
    bool found = false;

    if (!list)
        return false;
    while (!found && fgets(line, sizeof line, list)) {
        char *at = line + strspn(line, " \t"), *name;
        size_t length;

        at[strcspn(at, "\r\n")] = '\0'; /* a '#' may be part of a key */
        length = strcspn(at, " \t");
        if (length != 40)
            continue;
        name = at + length + strspn(at + length, " \t");
        name[strcspn(name, " \t")] = '\0';
        found =
            name[0] && strlen(name) < user_size && strlen(key) == 40 && memcmp(at, key, 40) == 0;
        if (found)
            snprintf(user, user_size, "%s", name);
    }
    fclose(list);
    return found;
}

/* "localhost:UID:GID:PID": libzmq adds what the kernel says to the name of a local peer. */
bool xpd_zap_uid(const char *address, char *out, size_t out_size)
{
    const char *p = address, *uid;
    size_t digits = 0;

    if (strncmp(p, "localhost", 9) == 0)
        p += 9;
    uid = p + 1;
    for (int part = 0; part < 3; part++) {
        size_t n = 0;

        if (*p++ != ':')
            return false;
        while (isdigit((unsigned char)p[n]))
            n++;
        if (n == 0 || n > 10)
            return false;
        if (part == 0)
            digits = n;
        p += n;
    }
    if (*p)
        return false;
    return snprintf(out, out_size, "uid:%.*s", (int)digits, uid) < (int)out_size;
}
