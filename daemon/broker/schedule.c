/* See schedule.h.  Times are the caller's milliseconds; sets are bits of one word. */
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN_S 600.0 /* what a job of unknown length counts for in its user's account */

static const char *const class_names[XPD_CLASSES] = {"live", "normal", "batch", "scavenger"};
static const char *const pending_names[] = {
    "",           "devices-busy", "order",           "reservation", "user-limit",
    "user-limit", "memory",       "foreign-process", "no-worker"};

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

static double had(const xpd_sched_user *user)
{
    return user->weight > 0 ? user->used_s / user->weight : user->used_s;
}

/* One class and priority, sorted by user: takes the jobs in turn from the user who has used least
 * for its share, what was taken before included.  Users are few, so the list of them is simply
 * walked. */
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
            double used = had(*at), least = had(*best);
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

static uint64_t bit_of(int set)
{
    return (uint64_t)1 << set;
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
        out |= bit_of(best);
        sets &= ~bit_of(best);
        *at = free_ms[best] > *at ? free_ms[best] : *at;
    }
    return out;
}

static void occupy(int64_t *of_sets, uint64_t sets, int64_t value)
{
    for (; sets; sets &= sets - 1)
        of_sets[__builtin_ctzll(sets)] = value;
}

static int64_t end_of(const xpd_sched_job *job, int64_t start_ms)
{
    return job->length_ms > 0 && start_ms != XPD_NEVER ? start_ms + job->length_ms : XPD_NEVER;
}

/* Bytes of every pool. */
typedef struct memory {
    int64_t free[XPD_POOLS_MAX];
} memory;

static void change(int64_t *bytes, int64_t by)
{
    if (*bytes != XPD_NEVER)
        *bytes += by;
}

typedef struct placing {
    const xpd_sched *s;
    int64_t free_ms[XPD_SETS_MAX];                         /* when each set is free */
    int64_t bytes[XPD_SETS_MAX], host_bytes[XPD_SETS_MAX]; /* what it gives back then */
    uint64_t up, busy, free, live_only;
    bool level;    /* all sets are as far apart */
    memory now;    /* what can be had */
    uint64_t kept; /* for the first that cannot start */
    int64_t kept_at;
    memory spare;              /* what it leaves of the memory that will be free by then */
    const xpd_sched_job *head; /* that one, or NULL */
} placing;

/* Whether no two sets are nearer to each other than any other two. */
static bool is_level(const xpd_sched *s)
{
    for (int i = 0; i < s->set_count; i++) {
        for (int k = 0; k < i; k++) {
            if (s->sets[i].far[k] != s->sets[1].far[0])
                return false;
        }
    }
    return true;
}

static void look_at_sets(placing *p, const xpd_sched *s)
{
    *p = (placing){.s = s};
    for (int i = 0; i < s->set_count; i++) {
        const xpd_sched_set *set = &s->sets[i];
        p->free_ms[i] = !set->busy ? s->now_ms : set->until_ms;
        if (p->free_ms[i] < s->now_ms)
            p->free_ms[i] = s->now_ms; /* overdue: any moment */
        p->bytes[i] = set->bytes;
        p->host_bytes[i] = set->host_bytes;
        p->up |= set->up ? bit_of(i) : 0;
        p->busy |= set->busy ? bit_of(i) : 0;
        p->free |= set->up && !set->busy ? bit_of(i) : 0;
        p->live_only |= set->live_only ? bit_of(i) : 0;
    }
    p->level = is_level(s);
    for (int i = 0; i < XPD_POOLS_MAX; i++)
        p->now.free[i] = s->pools && i < s->pool_count ? s->pools[i].free : XPD_NEVER;
}

/* Takes what a job on these sets needs. */
static void take_memory(const xpd_sched *s, memory *m, const xpd_sched_job *job, uint64_t sets)
{
    change(&m->free[XPD_POOL_HOST], -job->host_bytes);
    for (; sets; sets &= sets - 1)
        change(&m->free[s->sets[__builtin_ctzll(sets)].pool], -job->bytes);
}

/* As many of the sets as the job needs that have memory for it, those that are free first; 0 =
 * there are not enough. */
static uint64_t pick(const placing *p, const memory *have, const xpd_sched_job *job, uint64_t sets)
{
    memory left = *have;
    uint64_t out = 0;
    int need = job->need;

    if (left.free[XPD_POOL_HOST] < job->host_bytes)
        return 0;
    change(&left.free[XPD_POOL_HOST], -job->host_bytes);
    while (need > 0 && sets) {
        int best = __builtin_ctzll(sets);
        for (uint64_t rest = sets & (sets - 1); rest; rest &= rest - 1) {
            int i = __builtin_ctzll(rest);
            best = p->free_ms[i] < p->free_ms[best] ? i : best;
        }
        int64_t *free = &left.free[p->s->sets[best].pool];
        sets &= ~bit_of(best);
        if (*free < job->bytes)
            continue;
        change(free, -job->bytes);
        out |= bit_of(best);
        need--;
    }
    return need == 0 ? out : 0;
}

/* A choice among sets that are free at the same time. */
typedef struct choice {
    uint64_t sets;
    int inner, outer; /* sums of distances: between them; to those that are left */
} choice;

static bool is_better(const choice *a, const choice *b)
{
    return a->inner < b->inner || (a->inner == b->inner && a->outer > b->outer);
}

static int distance(const xpd_sched *s, int set, uint64_t others)
{
    int sum = 0;
    for (; others; others &= others - 1)
        sum += s->sets[set].far[__builtin_ctzll(others)];
    return sum;
}

static choice judge(const xpd_sched *s, uint64_t sets, uint64_t all)
{
    choice c = {.sets = sets};
    for (uint64_t rest = sets; rest; rest &= rest - 1) {
        int i = __builtin_ctzll(rest);
        c.inner += distance(s, i, sets & ~bit_of(i)); /* every pair twice */
        c.outer += distance(s, i, all & ~sets);
    }
    return c;
}

/* `first`, then one after the other that which is nearest to what there is, until there are as
 * many as the job needs; 0 = no memory for that. */
static uint64_t grow(const placing *p, memory left, const xpd_sched_job *job, uint64_t sets,
                     uint64_t from, int first)
{
    int near[XPD_SETS_MAX] = {0};

    for (uint64_t rest = sets; rest; rest &= rest - 1)
        near[__builtin_ctzll(rest)] = distance(p->s, __builtin_ctzll(rest), from);
    for (int next = first; next >= 0;) {
        int64_t *free = &left.free[p->s->sets[next].pool];
        sets &= ~bit_of(next);
        if (*free >= job->bytes) {
            change(free, -job->bytes);
            from |= bit_of(next);
            if (count_sets(from) == job->need)
                return from;
            for (uint64_t rest = sets; rest; rest &= rest - 1)
                near[__builtin_ctzll(rest)] += p->s->sets[next].far[__builtin_ctzll(rest)];
        } else if (next == first) {
            return 0;
        }
        next = -1;
        for (uint64_t rest = sets; rest; rest &= rest - 1) {
            int i = __builtin_ctzll(rest);
            next = next < 0 || near[i] < near[next] ? i : next;
        }
    }
    return 0;
}

/* As pick, and of what is free as early the sets that are nearest to each other, then those that
 * are farthest from what is left. */
static uint64_t pick_near(const placing *p, const memory *have, const xpd_sched_job *job,
                          uint64_t sets)
{
    uint64_t taken = pick(p, have, job, sets), last = 0;
    int64_t at = 0;
    memory left = *have;

    if (!taken || p->level)
        return taken;
    for (uint64_t rest = taken; rest; rest &= rest - 1)
        at = p->free_ms[__builtin_ctzll(rest)] > at ? p->free_ms[__builtin_ctzll(rest)] : at;
    for (uint64_t rest = sets; rest; rest &= rest - 1)
        last |= p->free_ms[__builtin_ctzll(rest)] == at ? bit_of(__builtin_ctzll(rest)) : 0;
    uint64_t sooner = taken & ~last; /* there is no choice among these */
    choice best = judge(p->s, taken, sooner | last);
    take_memory(p->s, &left, job, sooner);
    for (uint64_t rest = last; rest; rest &= rest - 1) {
        uint64_t other = grow(p, left, job, last, sooner, __builtin_ctzll(rest));
        choice c = judge(p->s, other, sooner | last);
        if (other && is_better(&c, &best))
            best = c;
    }
    return best.sets;
}

/* Memory with what the jobs give back that end by `at`, or hold one of the sets. */
static memory memory_at(const placing *p, int64_t at, uint64_t sets)
{
    const xpd_sched *s = p->s;
    memory m = p->now;

    for (int i = 0; i < s->set_count; i++) {
        bool gone = at != XPD_NEVER && p->free_ms[i] <= at;
        if (!(p->busy & bit_of(i)) || !(gone || (sets & bit_of(i))))
            continue;
        change(&m.free[s->sets[i].pool], p->bytes[i]);
        change(&m.free[XPD_POOL_HOST], p->host_bytes[i]);
    }
    return m;
}

/* When enough of the sets and of the memory is free if nothing else starts, and which sets those
 * are: by the ends of what runs, one after the other. */
static uint64_t foreseen(const placing *p, const xpd_sched_job *job, uint64_t sets, int64_t *at)
{
    const xpd_sched *s = p->s;

    earliest(p->free_ms, sets, job->need, at);
    while (*at != XPD_NEVER) {
        int64_t next = XPD_NEVER;
        uint64_t free = 0;
        memory m = memory_at(p, *at, 0);
        for (int i = 0; i < s->set_count; i++) {
            free |= p->free_ms[i] <= *at ? bit_of(i) & sets : 0;
            if (p->free_ms[i] > *at && p->free_ms[i] < next)
                next = p->free_ms[i];
        }
        uint64_t taken = pick_near(p, &m, job, free);
        if (taken)
            return taken;
        *at = next;
    }
    return 0;
}

/* The first that cannot start: what is kept for it. */
static void keep(placing *p, const xpd_sched_job *job, uint64_t sets)
{
    p->head = job;
    p->kept = foreseen(p, job, sets, &p->kept_at);
    if (!p->kept)
        p->kept = sets; /* nobody knows when */
    p->spare = memory_at(p, p->kept_at, p->kept);
    uint64_t own = pick(p, &p->spare, job, p->kept);
    take_memory(p->s, &p->spare, job, own ? own : p->kept);
}

/* Where the job can start now without delaying the one that something is kept for. */
static uint64_t place_now(placing *p, const xpd_sched_job *job, uint64_t free)
{
    const xpd_sched *s = p->s;
    bool in_time = !p->head || (p->kept_at != XPD_NEVER && end_of(job, s->now_ms) <= p->kept_at);

    if (in_time)
        return pick_near(p, &p->now, job, free);
    memory both = p->now;
    for (int i = 0; i < XPD_POOLS_MAX; i++)
        both.free[i] = p->spare.free[i] < both.free[i] ? p->spare.free[i] : both.free[i];
    uint64_t taken = pick_near(p, &both, job, free & ~p->kept);
    if (taken)
        take_memory(s, &p->spare, job, taken);
    return taken;
}

/* Why a job does not start that no limit keeps: whose is the memory, or which sets are kept. */
static xpd_pending why_not(const placing *p, const xpd_sched_job *job, uint64_t sets, uint64_t free)
{
    memory all = memory_at(p, XPD_NEVER, ~(uint64_t)0);

    if (!pick(p, &all, job, sets))
        return XPD_PENDING_FOREIGN;
    if (count_sets(free) < job->need)
        return p->head ? XPD_PENDING_ORDER : XPD_PENDING_DEVICES;
    return pick(p, &p->now, job, free) ? XPD_PENDING_RESERVATION : XPD_PENDING_MEMORY;
}

static xpd_pending limited(const xpd_sched *s, const xpd_sched_job *job)
{
    const xpd_sched_user *user = &s->users[job->user];

    if (s->running_max > 0 && user->running >= s->running_max)
        return XPD_PENDING_LIMIT;
    if (s->sets_max > 0 && user->sets + job->need > s->sets_max)
        return XPD_PENDING_SETS;
    return XPD_PENDING_NONE;
}

static uint64_t sets_of(const placing *p, const xpd_sched_job *job)
{
    return job->sets & p->up & (job->class == XPD_CLASS_LIVE ? ~(uint64_t)0 : ~p->live_only);
}

static void start(placing *p, xpd_sched_job *job)
{
    job->start_ms = p->s->now_ms;
    p->free &= ~job->taken;
    p->busy |= job->taken;
    take_memory(p->s, &p->now, job, job->taken);
    occupy(p->free_ms, job->taken, end_of(job, job->start_ms));
    occupy(p->bytes, job->taken, job->bytes);
    occupy(p->host_bytes, job->taken, 0);
    p->host_bytes[__builtin_ctzll(job->taken)] = job->host_bytes;
}

static void place(xpd_sched *s, placing *p, xpd_sched_job *job)
{
    xpd_sched_user *user = &s->users[job->user];
    uint64_t sets = sets_of(p, job), free = sets & p->free;

    job->taken = 0;
    job->start_ms = XPD_NEVER;
    if (count_sets(sets) < job->need || job->need < 1) {
        job->pending = XPD_PENDING_WORKER;
        return;
    }
    job->pending = limited(s, job);
    if (job->pending != XPD_PENDING_NONE)
        return;
    job->taken = place_now(p, job, free);
    if (job->taken) {
        start(p, job);
        user->running++;
        user->sets += job->need;
        return;
    }
    job->pending = why_not(p, job, sets, free);
    if (!p->head && job->pending != XPD_PENDING_FOREIGN)
        keep(p, job, sets);
}

/* One after the other in order, each on the sets that are free first; of memory only the first
 * one's is foreseen. */
static void foresee(placing *p, xpd_sched_job *job)
{
    if (job->pending == XPD_PENDING_NONE || job->pending == XPD_PENDING_WORKER ||
        job->pending == XPD_PENDING_FOREIGN)
        return;
    if (job == p->head) {
        job->taken = p->kept;
        job->start_ms = p->kept_at;
    } else {
        job->taken = earliest(p->free_ms, sets_of(p, job), job->need, &job->start_ms);
    }
    occupy(p->free_ms, job->taken, end_of(job, job->start_ms));
    if (job->pending == XPD_PENDING_LIMIT || job->pending == XPD_PENDING_SETS ||
        (job->pending == XPD_PENDING_MEMORY && job != p->head))
        job->start_ms = XPD_NEVER;
}

/* The set whose job is the first to yield, or -1. */
static int first_to_yield(const xpd_sched *s, uint64_t sets)
{
    int best = -1;
    for (int i = 0; i < s->set_count; i++) {
        const xpd_sched_set *set = &s->sets[i], *other = best < 0 ? NULL : &s->sets[best];
        if (!(sets & bit_of(i)) || !set->up || !set->busy || !set->can_yield || set->leaving ||
            set->class < XPD_CLASS_BATCH)
            continue;
        if (!other || set->class > other->class ||
            (set->class == other->class && set->from_ms > other->from_ms))
            best = i;
    }
    return best;
}

/* Sets whose jobs stand in the way: on the sets of the job, or in the memory that it needs. */
static uint64_t in_the_way(const xpd_sched *s, const xpd_sched_job *job, uint64_t room)
{
    uint64_t out = job->sets & ~room;

    if (count_sets(job->sets & room) < job->need)
        return out;
    for (int i = 0; i < s->set_count; i++)
        out |=
            s->sets[i].busy && (s->sets[i].bytes > 0 || s->sets[i].host_bytes > 0) ? bit_of(i) : 0;
    return out & ~room;
}

static void make_room(xpd_sched *s, const placing *p, const xpd_sched_job *job)
{
    uint64_t room = p->free, chosen = 0;

    for (int i = 0; i < s->set_count; i++) {
        if (s->sets[i].up && s->sets[i].leaving)
            room |= bit_of(i);
    }
    for (;;) {
        memory m = memory_at(p, XPD_NEVER, room);
        if (pick(p, &m, job, room & job->sets))
            break;
        int at = first_to_yield(s, in_the_way(s, job, room));
        if (at < 0)
            return; /* not enough: nobody is disturbed for nothing */
        for (int i = 0; i < s->set_count; i++) {
            if (s->sets[i].busy && s->sets[i].owner == s->sets[at].owner)
                chosen |= bit_of(i);
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
        bool head = p.head != NULL;
        place(s, &p, &s->jobs[i]);
        if (!head && p.head && s->jobs[i].class == XPD_CLASS_LIVE)
            make_room(s, &p, &s->jobs[i]);
    }
    for (size_t i = 0; i < s->job_count && explain; i++)
        foresee(&p, &s->jobs[i]);
}
