/* Watches a job to its end, in one of four ways: a bar on a terminal, the daemon's own text lines
 * elsewhere, NDJSON, or nothing but the last line.  The events do not tell why a job waits, which
 * changes without one: to people it is said from looks at the job's document.  Ctrl-C leaves the
 * job alone and says so. */
#include "cli.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xptychod/protocol.h>

#define STAGES_MAX 64
#define REDRAW_S 0.1
#define TEXT_COLUMNS 64  /* for the numbers beside the bar */
#define LOOK_FIRST_S 1.0 /* at a job that waits; then twice as long between looks, up to */
#define LOOK_MOST_S 5.0
#define SMALL_CHANGE_S 60 /* between lines that tell no other reason and no other place */

typedef enum look { BAR, PLAIN, JSON_LINES, QUIET } look;

/* Why the job waits, as far as it was said. */
typedef struct waiting {
    xpc_client *client; /* NULL: nobody is to be told */
    const char *id;
    bool waits;
    double pause_s; /* until the next look */
    struct timespec looked_at, said_at;
    json_t *said; /* `pending` of the line before, or NULL */
} waiting;

typedef struct watch {
    look look;
    waiting waiting;
    int iterations[STAGES_MAX]; /* of each stage */
    int stage_count;
    int stage, iteration; /* the last one seen */
    double data_error;    /* the last one known, or NaN */
    double pace_s;        /* seconds an iteration, smoothed; 0 = not known */
    bool drawn;           /* a bar stands on the current line */
    struct timespec drawn_at;
} watch;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static void wipe(watch *w)
{
    if (w->drawn)
        fputs("\r\033[K", stdout);
    w->drawn = false;
}

static double elapsed(const struct timespec *since)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - since->tv_sec) + (double)(now.tv_nsec - since->tv_nsec) * 1e-9;
}

static void lost(void *user, const char *why)
{
    wipe(user);
    cli_warn("%s; trying again", why);
}

/* How many iterations each stage has, from the job's document with its defaults. */
static void read_stages(watch *w, const json_t *job)
{
    const json_t *recon = json_object_get(json_object_get(job, "job"), "recon");
    size_t i, count = json_is_array(recon) ? json_array_size(recon) : 1;

    for (i = 0; i < count && i < STAGES_MAX; i++) {
        const json_t *stage = json_is_array(recon) ? json_array_get(recon, i) : recon;
        json_int_t n = json_integer_value(json_object_get(stage, "iterations"));

        w->iterations[i] = n > 0 && n <= 1000000 ? (int)n : 1; /* a position search is one step */
    }
    w->stage_count = (int)i;
}

/* ---------------------------------------------------------------------------------- waiting */

/* "# waits for 2 jobs before it; position 3, starts by 2026-01-31 10:15:02" */
static void put_pending(const json_t *pending)
{
    const json_t *position = json_object_get(pending, "position");
    const char *start = cli_member(pending, "estimated_start");
    char at[64];

    fputs("# waits for ", stdout);
    cli_put(stdout, cli_member(pending, "detail"), false);
    if (json_is_integer(position))
        fprintf(stdout, "; position %lld", (long long)json_integer_value(position));
    if (start[0]) {
        cli_time(at, sizeof(at), start);
        fprintf(stdout, "%s starts by %s", json_is_integer(position) ? "," : ";", at);
    }
    fputc('\n', stdout);
    (void)fflush(stdout);
}

/* An estimate that moves by less than a minute, or by less than a tenth of what is left, is the
 * same one. */
static bool other_start(const json_t *before, const json_t *after)
{
    const char *a = cli_member(before, "estimated_start"),
               *b = cli_member(after, "estimated_start");
    int64_t a_s = 0, b_s = 0, moved, left;

    if (!cli_seconds(&a_s, a) || !cli_seconds(&b_s, b))
        return strcmp(a, b) != 0;
    moved = a_s > b_s ? a_s - b_s : b_s - a_s;
    left = b_s - (int64_t)time(NULL);
    return moved >= 60 && moved * 10 >= left;
}

/* Another reason or place is worth a line at once; other numbers in the text and another estimate
 * are when the last line is old enough: both may move all the time. */
static bool worth_a_line(const waiting *w, const json_t *pending)
{
    if (!cli_member(pending, "detail")[0])
        return false;
    if (!w->said || strcmp(cli_member(w->said, "reason"), cli_member(pending, "reason")) != 0 ||
        json_integer_value(json_object_get(w->said, "position")) !=
            json_integer_value(json_object_get(pending, "position")))
        return true;
    return elapsed(&w->said_at) >= SMALL_CHANGE_S &&
           (strcmp(cli_member(w->said, "detail"), cli_member(pending, "detail")) != 0 ||
            other_start(w->said, pending));
}

static void say_pending(watch *w, const json_t *job)
{
    json_t *pending = json_object_get(job, "pending");

    if (!worth_a_line(&w->waiting, pending))
        return;
    wipe(w);
    put_pending(pending);
    json_decref(w->waiting.said);
    w->waiting.said = json_incref(pending);
    (void)clock_gettime(CLOCK_MONOTONIC, &w->waiting.said_at);
}

/* The events tell when it waits, and when no more. */
static void note_state(waiting *w, const json_t *event)
{
    const char *state = cli_member(event, "state");

    w->waits = strcmp(state, "queued") == 0 || strcmp(state, "held") == 0;
    if (!w->waits) {
        json_decref(w->said);
        w->said = NULL;
    }
    w->pause_s = LOOK_FIRST_S;
    (void)clock_gettime(CLOCK_MONOTONIC, &w->looked_at);
}

static void look_again(watch *w)
{
    waiting *at = &w->waiting;
    json_t *job = NULL;
    xpc_error err;

    if (!at->client || !at->waits || elapsed(&at->looked_at) < at->pause_s)
        return;
    if (xpc_show(at->client, at->id, &job, &err) == XPC_OK)
        say_pending(w, job);
    json_decref(job);
    at->pause_s = fmin(2 * at->pause_s, LOOK_MOST_S);
    (void)clock_gettime(CLOCK_MONOTONIC, &at->looked_at);
}

static bool tick(void *user)
{
    if (!interrupted)
        look_again(user);
    return !interrupted && !ferror(stdout);
}

/* ---------------------------------------------------------------------------------- the bar */

static void draw(watch *w)
{
    char text[160], error[32] = "-", left[32] = "-", rate[32] = "";
    int all = 0, done = 0, i, cells, filled;
    double share;

    for (i = 0; i < w->stage_count; i++) {
        all += w->iterations[i];
        if (i < w->stage)
            done += w->iterations[i];
    }
    done += w->iteration;
    share = all > 0 ? fmin(1.0, (double)done / all) : 0;
    if (isfinite(w->data_error))
        (void)snprintf(error, sizeof(error), "%.6f", w->data_error);
    if (w->pace_s > 0) {
        double rest = ceil(w->pace_s * (all - done));

        if (rest < 60)
            (void)snprintf(left, sizeof(left), "%.0f s", rest);
        else
            cli_duration(left, sizeof(left), rest);
        if (w->pace_s < 1)
            (void)snprintf(rate, sizeof(rate), "%.1f it/s", 1 / w->pace_s);
        else
            (void)snprintf(rate, sizeof(rate), "%.1f s/it", w->pace_s);
    }
    (void)snprintf(text, sizeof(text), " %d/%d  data error %s  %s  %s left", done, all, error, rate,
                   left);
    /* Of a fixed width, so that it only grows while the text beside it changes its length. */
    cells = cli_columns(stdout) - TEXT_COLUMNS;
    cells = cells > 40 ? 40 : cells < 0 ? 0 : cells;
    filled = (int)(share * cells);
    fputs("\r[", stdout);
    for (i = 0; i < cells; i++)
        fputc(i < filled ? '#' : '.', stdout);
    fprintf(stdout, "]%s\033[K", text);
    (void)fflush(stdout);
    w->drawn = true;
    (void)clock_gettime(CLOCK_MONOTONIC, &w->drawn_at);
}

static void note_iteration(watch *w, const json_t *event)
{
    const json_t *error = json_object_get(event, "data_error");
    json_int_t stage = json_integer_value(json_object_get(event, "stage"));
    json_int_t iteration = json_integer_value(json_object_get(event, "iter"));
    double seconds = json_number_value(json_object_get(event, "seconds"));

    if (stage < 0 || stage > XPP_STAGES_MAX || iteration < 0 || iteration > 10000000)
        return;
    if ((int)stage != w->stage)
        w->pace_s = 0; /* another kind of work */
    w->stage = (int)stage;
    w->iteration = (int)iteration;
    if (json_is_number(error))
        w->data_error = json_number_value(error);
    if (seconds > 0)
        w->pace_s = w->pace_s > 0 ? 0.9 * w->pace_s + 0.1 * seconds : seconds;
}

/* ---------------------------------------------------------------------------------- events */

static void put_line(const json_t *event)
{
    char line[2048];

    if (xpp_event_text(line, sizeof(line), event) <= 0)
        return;
    line[strcspn(line, "\n")] = '\0';
    cli_put(stdout, line, false);
    fputc('\n', stdout);
}

static bool on_event(void *user, const json_t *event)
{
    watch *w = user;
    const char *type = cli_member(event, "type");
    bool iteration = strcmp(type, "iter") == 0;

    if (strcmp(type, "state") == 0 || strcmp(type, "end") == 0)
        note_state(&w->waiting, event);
    switch (w->look) {
    case PLAIN:
        put_line(event);
        (void)fflush(stdout);
        break;
    case JSON_LINES:
        (void)json_dumpf(event, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
        fputc('\n', stdout);
        (void)fflush(stdout);
        break;
    case BAR:
        if (iteration) {
            note_iteration(w, event);
            if (!w->drawn || elapsed(&w->drawn_at) >= REDRAW_S)
                draw(w);
        } else if (strcmp(type, "end") == 0) {
            if (w->iteration > 0)
                draw(w); /* the last iteration may not have been drawn */
            fputs(w->drawn ? "\n" : "", stdout);
            w->drawn = false;
        } else if (strcmp(type, "preview") != 0) {
            wipe(w);
            put_line(event);
        }
        break;
    case QUIET:
        break;
    }
    return !ferror(stdout);
}

/* "01K... succeeded: 100 iterations in 12.3 s, data error 0.012300, result '/data/out.h5'" */
static void put_summary(const watch *w, const char *id, const json_t *end)
{
    const json_t *result = json_object_get(end, "result"), *error;
    const char *state = cli_member(end, "state"), *reason = cli_member(end, "reason");
    const char *detail = cli_member(end, "detail");
    char seconds[32];

    if (w->look == PLAIN)
        fputs("# ", stdout);
    fprintf(stdout, "%s %s", id, cli_colour(state));
    cli_put(stdout, state, false);
    fputs(cli_colour(""), stdout);
    if (reason[0] && strcmp(reason, state) != 0) {
        fputs(" (", stdout);
        cli_put(stdout, reason, false);
        fputc(')', stdout);
    }
    if (detail[0]) {
        fputs(": ", stdout);
        cli_put(stdout, detail, false);
    }
    if (json_is_object(result)) {
        cli_duration(seconds, sizeof(seconds),
                     json_number_value(json_object_get(result, "seconds_total")));
        error = json_object_get(result, "data_error");
        fprintf(stdout, "%s %lld iterations in %s", detail[0] ? ";" : ":",
                (long long)json_integer_value(json_object_get(result, "iterations")), seconds);
        if (json_is_number(error))
            fprintf(stdout, ", data error %.6f", json_number_value(error));
        fprintf(stdout, ", %sresult '",
                json_is_true(json_object_get(result, "partial")) ? "partial " : "");
        cli_put(stdout, cli_member(result, "path"), false);
        fputc('\'', stdout);
    }
    fputc('\n', stdout);
}

static look choose(cli_follow_mode mode)
{
    if (mode == CLI_FOLLOW_JSON)
        return JSON_LINES;
    if (mode == CLI_FOLLOW_QUIET)
        return QUIET;
    return cli_terminal(stdout) ? BAR : PLAIN;
}

/* ---------------------------------------------------------------------------------- a view alone
 */

struct cli_view {
    watch w;
};

cli_view *cli_view_open(cli_follow_mode mode, const json_t *job)
{
    cli_view *view = calloc(1, sizeof(*view));

    if (!view)
        return NULL;
    view->w.look = choose(mode);
    view->w.data_error = NAN;
    read_stages(&view->w, job);
    return view;
}

bool cli_view_event(cli_view *view, const json_t *event)
{
    return on_event(&view->w, event);
}

void cli_view_clear(cli_view *view)
{
    wipe(&view->w);
}

void cli_view_end(cli_view *view, const char *id, const json_t *end)
{
    if (view->w.look != JSON_LINES)
        put_summary(&view->w, id, end);
}

void cli_view_close(cli_view *view)
{
    free(view);
}

int cli_follow(const cli_args *args, xpc_client *client, const char *id, cli_follow_mode mode)
{
    watch w = {.look = choose(mode), .data_error = NAN};
    xpc_follow_options options = {.tick = tick, .lost = lost, .event = on_event, .user = &w};
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    xpc_error err;
    json_t *job = NULL, *end = NULL;
    int code = CLI_OK;

    if (w.look == BAR) {
        if (xpc_show(client, id, &job, &err) != XPC_OK)
            return cli_report(args, client, &err);
        read_stages(&w, job);
        say_pending(&w, job); /* before the first event: a job that is queued would only say so */
        json_decref(job);
    }
    if (w.look == BAR || w.look == PLAIN)
        w.waiting = (waiting){.client = client, .id = id, .said = w.waiting.said};
    interrupted = 0;
    (void)sigaction(SIGINT, &action, &before);
    if (xpc_follow(client, id, &options, &end, &err) == XPC_OK) {
        if (w.look != JSON_LINES && end && !(w.look == QUIET && cli_args_flag(args, "json")))
            put_summary(&w, id, end);
        code = cli_exit_of_state(cli_member(end, "state"), cli_member(end, "reason"));
    } else if (err.status == XPC_STOPPED) {
        wipe(&w);
        if (interrupted)
            cli_warn(
                "the job goes on; 'xptycho watch %s' comes back to it, 'xptycho cancel %s' ends it",
                id, id);
        code = interrupted ? CLI_INTERRUPTED : CLI_UNEXPECTED;
    } else {
        wipe(&w);
        code = cli_report(args, client, &err);
    }
    (void)sigaction(SIGINT, &before, NULL);
    json_decref(w.waiting.said);
    json_decref(end);
    return code;
}
