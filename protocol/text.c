/* UTF-8 and near names.  Text from files and paths need not be UTF-8 while JSON must be; xpp_text
 * is the one way from the first to the second. */
#include "text.h"

#include "xptychod/protocol.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 64

size_t xpp_utf8_count(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

size_t xpp_utf8_cut(const char *text, size_t size)
{
    size_t length = strlen(text);

    if (length <= size)
        return length;
    while (size > 0 && ((unsigned char)text[size] & 0xC0) == 0x80)
        size--;
    return size;
}

json_t *xpp_text(const char *text)
{
    json_t *value = json_string(text);
    char *clean;

    if (value)
        return value;
    clean = strdup(text);
    if (!clean)
        return NULL;
    for (char *at = clean; *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    value = json_string(clean);
    free(clean);
    return value;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t xpp_edit_distance(const char *a, const char *b, size_t limit)
{
    size_t rows[3][NAME_MAX_BYTES + 1]; /* of the distance matrix: two back, one back, this one */
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    size_t a_length = strnlen(a, NAME_MAX_BYTES + 1), b_length = strnlen(b, NAME_MAX_BYTES + 1);

    if (a_length > NAME_MAX_BYTES || b_length > NAME_MAX_BYTES)
        return limit + 1;
    for (size_t j = 0; j <= b_length; j++)
        before[j] = last[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *spare = before;

        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);

            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        before = last;
        last = row;
        row = spare;
    }
    return least(last[b_length], limit + 1);
}
