/* See history.h.  Notes have the keys "time/cpu 1 2/144/64/1" and "use/1000". */
#include "history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT 0.3 /* of the newest measurement */

void xpd_history_release(xpd_history *h)
{
    free(h->timings);
    free(h->accounts);
    *h = (xpd_history){0};
}

/* -------------------------------------------------------------------------------------- time */

static bool same_shape(const xpd_shape *a, const xpd_shape *b)
{
    return strcmp(a->kind, b->kind) == 0 && a->frames == b->frames && a->side == b->side &&
           a->modes == b->modes;
}

/* The entry of that shape; where there is none and no room, the one that was used least lately. */
static xpd_timing *timing_of(xpd_history *h, const xpd_shape *shape)
{
    xpd_timing *oldest = NULL;

    if (!h->timings && !(h->timings = calloc(XPD_TIMINGS_MAX, sizeof *h->timings)))
        return NULL;
    for (size_t i = 0; i < h->timing_count; i++) {
        xpd_timing *t = &h->timings[i];
        if (same_shape(&t->shape, shape))
            return t;
        oldest = !oldest || t->t_ms < oldest->t_ms ? t : oldest;
    }
    xpd_timing *t = h->timing_count < XPD_TIMINGS_MAX ? &h->timings[h->timing_count++] : oldest;
    *t = (xpd_timing){.shape = *shape};
    return t;
}

static bool sensible(double seconds)
{
    return isfinite(seconds) && seconds >= 0 && seconds < 1e9;
}

void xpd_history_learn(xpd_history *h, const xpd_shape *shape, double iteration_s, double rest_s,
                       int64_t now_ms, xpd_note *note)
{
    xpd_timing *t = sensible(iteration_s) && sensible(rest_s) ? timing_of(h, shape) : NULL;

    if (note)
        note->key[0] = '\0';
    if (!t)
        return;
    double weight = t->count > 0 ? WEIGHT : 1;
    t->iteration_s += weight * (iteration_s - t->iteration_s);
    t->rest_s += weight * (rest_s - t->rest_s);
    t->count++;
    t->t_ms = now_ms;
    if (!note)
        return;
    *note = (xpd_note){.a = t->iteration_s, .b = t->rest_s, .n = t->count, .t_ms = now_ms};
    snprintf(note->key, sizeof note->key, "time/%s/%lld/%lld/%lld", shape->kind,
             (long long)shape->frames, (long long)shape->side, (long long)shape->modes);
}

void xpd_history_glimpse(xpd_history *h, const xpd_shape *shape, double iteration_s, int64_t now_ms)
{
    xpd_timing *t = sensible(iteration_s) ? timing_of(h, shape) : NULL;

    if (t && t->count == 0)
        *t = (xpd_timing){.shape = *shape, .iteration_s = iteration_s, .t_ms = now_ms};
}

/* What an iteration costs grows with the pixels of all frames and modes. */
static double work_of(const xpd_shape *shape)
{
    return (double)shape->frames * (double)shape->side * (double)shape->side * (double)shape->modes;
}

bool xpd_history_guess(const xpd_history *h, const xpd_shape *shape, double *iteration_s,
                       double *rest_s)
{
    const xpd_timing *best = NULL;
    double work = work_of(shape), least = INFINITY;

    if (work <= 0)
        return false;
    for (size_t i = 0; i < h->timing_count; i++) {
        const xpd_timing *t = &h->timings[i];
        double distance = fabs(log(work_of(&t->shape) / work)) + (t->shape.side != shape->side) +
                          (t->shape.modes != shape->modes);
        if (strcmp(t->shape.kind, shape->kind) == 0 && distance < least) {
            least = distance;
            best = t;
        }
    }
    if (!best)
        return false;
    double ratio = work / work_of(&best->shape);
    *iteration_s = best->iteration_s * ratio;
    *rest_s = best->rest_s * (ratio > 1 ? ratio : 1);
    return true;
}

/* -------------------------------------------------------------------------------------- users */

static double decayed(const xpd_account *account, int64_t now_ms)
{
    double age = (double)(now_ms - account->t_ms);
    return account->used_s * exp2(-(age > 0 ? age : 0) / XPD_HALF_LIFE_MS);
}

/* Index of the account of uid, or of the place where it belongs. */
static size_t place_of(const xpd_history *h, int64_t uid)
{
    size_t low = 0, high = h->account_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (h->accounts[middle].uid < uid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

double xpd_history_used(const xpd_history *h, uid_t uid, int64_t now_ms)
{
    size_t at = place_of(h, (int64_t)uid);
    return at < h->account_count && h->accounts[at].uid == (int64_t)uid
               ? decayed(&h->accounts[at], now_ms)
               : 0;
}

static xpd_account *account_of(xpd_history *h, int64_t uid)
{
    size_t at = place_of(h, uid);

    if (at < h->account_count && h->accounts[at].uid == uid)
        return &h->accounts[at];
    if (h->account_count == h->account_room) {
        size_t room = h->account_room ? h->account_room * 2 : 16;
        xpd_account *more = realloc(h->accounts, room * sizeof *more);
        if (!more)
            return NULL;
        h->accounts = more;
        h->account_room = room;
    }
    memmove(h->accounts + at + 1, h->accounts + at, (h->account_count - at) * sizeof *h->accounts);
    h->account_count++;
    h->accounts[at] = (xpd_account){.uid = uid};
    return &h->accounts[at];
}

void xpd_history_charge(xpd_history *h, uid_t uid, double seconds, int64_t now_ms, xpd_note *note)
{
    xpd_account *account = sensible(seconds) ? account_of(h, (int64_t)uid) : NULL;

    if (note)
        note->key[0] = '\0';
    if (!account)
        return;
    account->used_s = decayed(account, now_ms) + seconds;
    account->t_ms = now_ms;
    if (!note)
        return;
    *note = (xpd_note){.a = account->used_s, .t_ms = now_ms};
    snprintf(note->key, sizeof note->key, "use/%lld", (long long)uid);
}

/* ------------------------------------------------------------------------------------- notes */

void xpd_history_take(void *history, const xpd_note *note)
{
    xpd_history *h = history;
    xpd_shape shape = {0};
    long long numbers[3];

    if (sscanf(note->key, "use/%lld", &numbers[0]) == 1) {
        xpd_account *account = sensible(note->a) ? account_of(h, numbers[0]) : NULL;
        if (account)
            *account = (xpd_account){numbers[0], note->a, note->t_ms};
    } else if (sscanf(note->key, "time/%31[^/]/%lld/%lld/%lld", shape.kind, &numbers[0],
                      &numbers[1], &numbers[2]) == 4 &&
               numbers[0] > 0 && numbers[1] > 0 && numbers[2] > 0 && sensible(note->a) &&
               sensible(note->b)) {
        shape.frames = numbers[0];
        shape.side = numbers[1];
        shape.modes = numbers[2];
        xpd_timing *t = timing_of(h, &shape);
        if (t)
            *t = (xpd_timing){shape, note->a, note->b, note->n, note->t_ms};
    }
}
