/* See schedule.h.  Times are the caller's milliseconds; sets are bits of one word. */
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN_S 600.0 /* what a job of unknown length counts for in its user's account */

static const char *const class_names[XPD_CLASSES] = {"live", "normal", "batch", "scavenger"};
static const char *const pending_names[] = {"",           "devices-busy", "order", "reservation",
                                            "user-limit", "no-worker"};

const char *xpd_class_name(xpd_class class)
{
    return class_names[class];
}

bool xpd_class_find(xpd_class *out, const char *name)
{
    for (int i = 0; i < XPD_CLASSES; i++) {
        if (strcmp(class_names[i], name) == 0) {
            *out = (xpd_class)i;
            return true;
        }
    }
    return false;
}

const char *xpd_pending_name(xpd_pending pending)
{
    return pending_names[pending];
}

/* ------------------------------------------------------------------------------------- order */

static void age(xpd_sched_job *job, int64_t now_ms)
{
    int64_t waited = now_ms - job->since_ms, steps = waited > 0 ? waited / XPD_AGE_STEP_MS : 0;
    int64_t climb = (int64_t)job->class - XPD_CLASS_NORMAL;

    job->level = (int)job->class;
    job->rank = job->priority;
    if (job->class == XPD_CLASS_LIVE)
        return;
    job->level = XPD_CLASS_NORMAL + (int)(steps < climb ? climb - steps : 0);
    if (waited >= XPD_OVERDUE_MS)
        job->rank = XPD_PRIORITY_MAX + 1;
}

static int compare(const void *left, const void *right)
{
    const xpd_sched_job *a = left, *b = right;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank > b->rank ? -1 : 1;
    if (a->user != b->user)
        return a->user < b->user ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static double cost_s(const xpd_sched_job *job)
{
    return job->need * (job->length_ms > 0 ? (double)job->length_ms / 1000 : UNKNOWN_S);
}

/* One class and priority, sorted by user: takes the jobs in turn from the user who has used least,
 * what was taken before included.  Users are few, so the list of them is simply walked. */
static void share(xpd_sched *s, const xpd_sched_job *group, size_t count, xpd_sched_job *out)
{
    xpd_sched_user *first = NULL;

    for (size_t i = 0; i < count; i++) {
        xpd_sched_user *user = &s->users[group[i].user];
        if (i == 0 || group[i].user != group[i - 1].user) {
            user->head = i;
            user->next = first;
            first = user;
        }
        user->end = i + 1;
    }
    for (size_t done = 0; done < count; done++) {
        xpd_sched_user **best = &first;
        for (xpd_sched_user **at = &first->next; *at; at = &(*at)->next) {
            double used = (*at)->used_s, least = (*best)->used_s;
            if (used < least ||
                (!(used > least) && group[(*at)->head].number < group[(*best)->head].number))
                best = at;
        }
        xpd_sched_user *user = *best;
        out[done] = group[user->head++];
        user->used_s += cost_s(&out[done]);
        if (user->head == user->end)
            *best = user->next;
    }
}

static void sort(xpd_sched *s, xpd_sched_job *scratch)
{
    for (size_t i = 0; i < s->job_count; i++) {
        age(&s->jobs[i], s->now_ms);
        s->jobs[i].pending = XPD_PENDING_ORDER;
        s->jobs[i].taken = 0;
        scratch[i] = s->jobs[i];
    }
    qsort(scratch, s->job_count, sizeof *scratch, compare);
    for (size_t from = 0, to; from < s->job_count; from = to) {
        for (to = from + 1; to < s->job_count && scratch[to].level == scratch[from].level &&
                            scratch[to].rank == scratch[from].rank;
             to++)
            ;
        share(s, scratch + from, to - from, s->jobs + from);
    }
}

/* -------------------------------------------------------------------------------- allocation */

static int count_sets(uint64_t sets)
{
    return __builtin_popcountll(sets);
}

static uint64_t lowest_sets(uint64_t sets, int need)
{
    uint64_t out = 0;
    for (; need > 0 && sets; need--) {
        out |= sets & -sets;
        sets &= sets - 1;
    }
    return out;
}

/* The `need` sets of those in `sets` that are free first; *at is when the last of them is. */
static uint64_t earliest(const int64_t *free_ms, uint64_t sets, int need, int64_t *at)
{
    uint64_t out = 0;

    *at = 0;
    for (; need > 0 && sets; need--) {
        int best = -1;
        for (uint64_t rest = sets; rest; rest &= rest - 1) {
            int i = __builtin_ctzll(rest);
            if (best < 0 || free_ms[i] < free_ms[best])
                best = i;
        }
        out |= (uint64_t)1 << best;
        sets &= ~((uint64_t)1 << best);
        *at = free_ms[best] > *at ? free_ms[best] : *at;
    }
    return out;
}

static void occupy(int64_t *free_ms, uint64_t sets, int64_t until)
{
    for (; sets; sets &= sets - 1)
        free_ms[__builtin_ctzll(sets)] = until;
}

static int64_t end_of(const xpd_sched_job *job, int64_t start_ms)
{
    return job->length_ms > 0 && start_ms != XPD_NEVER ? start_ms + job->length_ms : XPD_NEVER;
}

typedef struct placing {
    int64_t free_ms[XPD_SETS_MAX]; /* when each set is free */
    uint64_t up, free;
    uint64_t kept; /* for the first that cannot start */
    int64_t kept_at;
    bool head; /* there is such a one */
} placing;

static void look_at_sets(placing *p, const xpd_sched *s)
{
    *p = (placing){0};
    for (int i = 0; i < s->set_count; i++) {
        const xpd_sched_set *set = &s->sets[i];
        uint64_t bit = (uint64_t)1 << i;
        p->free_ms[i] = !set->busy ? s->now_ms : set->until_ms;
        if (p->free_ms[i] < s->now_ms)
            p->free_ms[i] = s->now_ms; /* overdue: any moment */
        p->up |= set->up ? bit : 0;
        p->free |= set->up && !set->busy ? bit : 0;
    }
}

static void place(xpd_sched *s, placing *p, xpd_sched_job *job)
{
    xpd_sched_user *user = &s->users[job->user];
    uint64_t sets = job->sets & p->up, free = job->sets & p->free;

    job->taken = 0;
    job->start_ms = XPD_NEVER;
    if (count_sets(sets) < job->need || job->need < 1) {
        job->pending = XPD_PENDING_WORKER;
        return;
    }
    if (s->running_max > 0 && user->running >= s->running_max) {
        job->pending = XPD_PENDING_LIMIT;
        return;
    }
    uint64_t usable = p->head && end_of(job, s->now_ms) > p->kept_at ? free & ~p->kept : free;
    if (p->head && p->kept_at == XPD_NEVER)
        usable = free & ~p->kept; /* nobody knows when: what is kept stays kept */
    if (count_sets(usable) >= job->need) {
        job->pending = XPD_PENDING_NONE;
        job->start_ms = s->now_ms;
        job->taken = lowest_sets(usable, job->need);
        p->free &= ~job->taken;
        occupy(p->free_ms, job->taken, end_of(job, s->now_ms));
        user->running++;
        return;
    }
    if (!p->head) {
        p->head = true;
        job->pending = XPD_PENDING_DEVICES;
        p->kept = earliest(p->free_ms, sets, job->need, &p->kept_at);
        if (p->kept_at == XPD_NEVER)
            p->kept = sets;
    } else {
        job->pending = count_sets(free) >= job->need ? XPD_PENDING_RESERVATION : XPD_PENDING_ORDER;
    }
}

/* One after the other in order, each on the sets that are free first. */
static void foresee(placing *p, xpd_sched_job *job)
{
    if (job->pending == XPD_PENDING_NONE || job->pending == XPD_PENDING_WORKER)
        return;
    job->taken = earliest(p->free_ms, job->sets & p->up, job->need, &job->start_ms);
    occupy(p->free_ms, job->taken, end_of(job, job->start_ms));
    if (job->pending == XPD_PENDING_LIMIT)
        job->start_ms = XPD_NEVER;
}

/* The set whose job is the first to yield, or -1. */
static int first_to_yield(const xpd_sched *s, uint64_t sets)
{
    int best = -1;
    for (int i = 0; i < s->set_count; i++) {
        const xpd_sched_set *set = &s->sets[i], *other = best < 0 ? NULL : &s->sets[best];
        if (!(sets >> i & 1) || !set->up || !set->busy || !set->can_yield || set->leaving ||
            set->class < XPD_CLASS_BATCH)
            continue;
        if (!other || set->class > other->class ||
            (set->class == other->class && set->from_ms > other->from_ms))
            best = i;
    }
    return best;
}

static void make_room(xpd_sched *s, const placing *p, const xpd_sched_job *job)
{
    uint64_t room = p->free, chosen = 0;

    for (int i = 0; i < s->set_count; i++) {
        if (s->sets[i].up && s->sets[i].leaving)
            room |= (uint64_t)1 << i;
    }
    while (count_sets(room & job->sets) < job->need) {
        int at = first_to_yield(s, job->sets & ~room);
        if (at < 0)
            return; /* not enough: nobody is disturbed for nothing */
        for (int i = 0; i < s->set_count; i++) {
            if (s->sets[i].busy && s->sets[i].owner == s->sets[at].owner)
                chosen |= (uint64_t)1 << i;
        }
        room |= chosen;
    }
    s->yield = chosen;
}

void xpd_sched_run(xpd_sched *s, xpd_sched_job *scratch, bool explain)
{
    placing p;

    sort(s, scratch);
    look_at_sets(&p, s);
    s->yield = 0;
    for (size_t i = 0; i < s->job_count && (explain || p.free || !p.head); i++) {
        bool head = p.head;
        place(s, &p, &s->jobs[i]);
        if (!head && p.head && s->jobs[i].class == XPD_CLASS_LIVE)
            make_room(s, &p, &s->jobs[i]);
    }
    for (size_t i = 0; i < s->job_count && explain; i++)
        foresee(&p, &s->jobs[i]);
}
