/* A field of one frame between row and column passes: pieces that ops_fit.c, ops_probe.c and
 * ops_search.c share.  A row batch is XPE_GROUP rows in a row buffer; a field is
 * [mode][group][row][XPE_GROUP] with one row of padding a group, so that the groups of a
 * power-of-two frame do not share cache sets. */
#ifndef XPE_FRAME_H
#define XPE_FRAME_H

#include "team.h"

#include <string.h>

static inline int64_t xpe_group_size(const xpe_team *team)
{
    return (team->n + 1) * XPE_GROUP;
}

static inline int64_t xpe_field_size(const xpe_team *team)
{
    return team->groups * xpe_group_size(team);
}

static inline xpe_c32 *xpe_group(const xpe_team *team, xpe_c32 *field, int mode, int64_t group)
{
    return field + mode * xpe_field_size(team) + group * xpe_group_size(team);
}

/* Rows of a batch that exist. */
static inline int64_t xpe_batch_rows(const xpe_team *team, int64_t row)
{
    return team->n - row < XPE_GROUP ? team->n - row : XPE_GROUP;
}

/* Zeroes the rows of a batch that do not exist, so that the row transform reads defined numbers. */
static inline void xpe_clear_tail(const xpe_team *team, xpe_c32 *rows, int64_t count)
{
    if (count < XPE_GROUP)
        memset(rows + count * team->stride, 0,
               (size_t)((XPE_GROUP - count) * team->stride) * sizeof *rows);
}

/* Row transform of a batch, then into the field. */
void xpe_rows_to_field(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *rows, xpe_c32 *field,
                       int mode, int64_t row);
/* Out of the field, then the backward row transform. */
void xpe_rows_from_field(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *rows, xpe_c32 *field,
                         int mode, int64_t row);
/* Column transform of one group of one mode. */
void xpe_columns(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *group, int sign);

/* Fields of modes d_k times the patch that starts at `patch` (rows `cols` apart), rows transformed.
 */
void xpe_forward_rows(const xpe_team *team, xpe_scratch *scratch, const xpe_c32 *probe, int modes,
                      const xpe_c32 *patch, int64_t cols, xpe_c32 *field);
/* Squared amplitude misfit of the frame whose row-transformed fields these are. */
double xpe_frame_misfit(const xpe_team *team, xpe_scratch *scratch, xpe_c32 *field, int modes,
                        const float *y);

static inline const float *xpe_frame_y(const xpe_team *team, const xpe_buffer *y, int64_t i)
{
    return (const float *)xpe_data(y) + i * team->groups * XPE_GROUP * team->n;
}

#endif
