/* Small text helpers of this folder: UTF-8, near names and nesting. */
#ifndef XPP_TEXT_H
#define XPP_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Characters (code points) of valid UTF-8. */
size_t xpp_utf8_count(const char *text);
/* Largest cut <= size that does not split a character of text. */
size_t xpp_utf8_cut(const char *text, size_t size);
/* Single-character insertions, deletions, replacements and swaps of neighbours that turn one name
 * into the other, letter case aside; at most limit + 1 is returned.  Names beyond 64 bytes are
 * never near. */
size_t xpp_edit_distance(const char *a, const char *b, size_t limit);
/* From now on jansson's allocations are watched (dump.c). */
void xpp_json_watch(void);
/* What failed so far keeps no more text from being written: somebody is told of it. */
void xpp_json_told(void);
/* xpp_parse with another limit of the depth. */
json_t *xpp_parse_within(const char *text, size_t length, int depth_max, json_t **problem);

#endif
