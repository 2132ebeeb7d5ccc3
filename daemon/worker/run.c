/* `run JOB.json`: one job in the foreground, with the caller's permissions and no service.  The job
 * itself is xpd_work_execute, as in the resident worker; here are the reading of the document, the
 * reader process, the lines on the terminal and the signals.
 *
 * Signals are blocked everywhere and read from a signalfd by the main thread: the first one cancels
 * the job and keeps the partial result, the second leaves at once. */
#include "modes.h"

#include "execute.h"
#include "fault.h"
#include "files.h"
#include "gpu.h"
#include "reader.h"

#include "io/write/checkpoint.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "usage: xptycho run JOB.json [--output FILE] [--preview DIR] [--checkpoint DIR] [--json] "
    "[--quiet]\n"
    "\n"
    "Reconstructs one job in the foreground, without a service, with your own permissions.\n"
    "JOB.json is the document that POST /v1/jobs takes; '-' reads it from standard input.\n"
    "Paths in a job are absolute.  output.path (or --output) says where the result goes.\n"
    "A job that names no devices runs on every GPU that xptycho-worker-cuda can use, else on the "
    "CPU, and\n"
    "says on what.  CUDA_VISIBLE_DEVICES is honoured: cuda:0 is the first that it shows.\n"
    "\n"
    "  --output FILE   the result file, instead of the job's output.path\n"
    "  --overwrite     replace an earlier result\n"
    "  --preview DIR   keep pictures of object and probe there, renewed every preview_every_s\n"
    "  --checkpoint DIR  keep the state there and go on from it where there is one; "
    "checkpoint_every_s\n"
    "                  in the job says how often (absent: at least 30 s apart, 5 % of the time at "
    "most)\n"
    "  --json          events as lines of JSON, as GET /v1/jobs/ID/events gives them\n"
    "  --quiet         nothing but errors\n"
    "\n"
    "Ctrl-C cancels and keeps the last iteration as a partial result; twice leaves at once.\n"
    "With --checkpoint, SIGUSR1 writes a checkpoint and goes on, SIGTERM writes one and leaves: "
    "the same\n"
    "command then goes on from it, also after kill -9, and ends with the same bits.\n"
    "Exit codes: 0 success, 2 usage, 3 refused, 4 failed, 5 cancelled, 1 unexpected.\n";

typedef struct arguments {
    const char *job, *output, *preview, *checkpoint;
    bool json, quiet, overwrite;
} arguments;

typedef struct printer {
    pthread_mutex_t lock; /* seq and the order of lines */
    int64_t seq;
    bool json, quiet, broken;
} printer;

/* --------------------------------------------------------------------------------- printing */

static void line_out(printer *p, const char *line)
{
    /* a reader of the lines that has gone away does not end the job */
    if (!p->broken && (fputs(line, stdout) == EOF || fflush(stdout) == EOF))
        p->broken = true;
}

static void print_json(printer *p, const char *type, const json_t *event)
{
    struct timespec now;
    char *line;

    clock_gettime(CLOCK_REALTIME, &now);
    line =
        xpp_event_line(++p->seq, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, type, event);
    if (line)
        line_out(p, line);
    free(line);
}

static void print_text(printer *p, const char *type, const json_t *event)
{
    char text[800];

    if (strcmp(type, "warning") == 0)
        fprintf(stderr, "xptycho run: warning: %s\n",
                json_string_value(json_object_get(event, "text")));
    else if (strcmp(type, "iter") == 0 && json_is_number(json_object_get(event, "data_error")) &&
             !p->quiet) {
        xpp_event_text(text, sizeof text - 1, event);
        strcat(text, "\n");
        line_out(p, text);
    } else if (strcmp(type, "log") == 0 && !p->quiet) {
        fprintf(stderr, "xptycho run: %s\n", json_string_value(json_object_get(event, "text")));
    }
}

static void on_event(void *context, json_t *event)
{
    printer *p = context;
    const char *type = json_string_value(json_object_get(event, "type"));

    pthread_mutex_lock(&p->lock);
    if (p->json)
        print_json(p, type, event);
    else
        print_text(p, type, event);
    pthread_mutex_unlock(&p->lock);
    json_decref(event);
}

static void print_errors(const json_t *errors)
{
    size_t i;
    const json_t *error;

    json_array_foreach (errors, i, error) {
        const char *pointer = json_string_value(json_object_get(error, "pointer"));

        fprintf(stderr, "xptycho run: %s: %s\n", pointer && pointer[0] ? pointer : "job",
                json_string_value(json_object_get(error, "detail")));
    }
}

/* Every fault on a line of its own; with --json the problem document too. */
static void print_problem(const arguments *a, const json_t *problem)
{
    const json_t *errors = json_object_get(problem, "errors");

    if (json_array_size(errors) > 0)
        print_errors(errors);
    else
        fprintf(stderr, "xptycho run: %s\n", json_string_value(json_object_get(problem, "detail")));
    if (a->json) {
        json_dumpf(problem, stdout, JSON_COMPACT);
        fputc('\n', stdout);
    }
}

static void print_fault(const arguments *a, const xpe_error *err)
{
    json_t *problem = xpd_problem_of(err);

    if (problem)
        print_problem(a, problem);
    json_decref(problem);
}

/* The end, as the last event or as a line. */
static void print_end(printer *p, const xpd_outcome *o)
{
    const json_t *result = o->result;

    if (p->json) {
        json_t *event = json_pack("{s:s, s:s, s:s, s:O?}", "state", o->state, "reason", o->reason,
                                  "detail", o->detail, "result", result);

        print_json(p, "end", event);
        json_decref(event);
    } else if (result && !p->quiet) {
        const json_t *error = json_object_get(result, "data_error");
        char text[PATH_MAX + 160];

        snprintf(text, sizeof text,
                 "# %sresult '%s': %lld iterations in %.2f s (%.2f s in all), data error %.6f\n",
                 json_is_true(json_object_get(result, "partial")) ? "partial " : "",
                 json_string_value(json_object_get(result, "path")),
                 json_integer_value(json_object_get(result, "iterations")),
                 json_number_value(json_object_get(result, "seconds")),
                 json_number_value(json_object_get(result, "seconds_total")),
                 json_is_number(error) ? json_number_value(error) : NAN);
        line_out(p, text);
    }
    if (strcmp(o->state, "failed") == 0)
        fprintf(stderr, "xptycho run: failed (%s): %s\n", o->reason, o->detail);
    else if (o->left)
        fprintf(stderr, "xptycho run: %s, %s\n", o->detail,
                o->kept ? "with a checkpoint: the same command goes on from it"
                        : "without a checkpoint");
    else if (strcmp(o->state, "cancelled") == 0)
        fprintf(stderr, "xptycho run: cancelled%s\n",
                result ? "" : ", before an iteration was done");
}

/* --------------------------------------------------------------------------------- the job */

static bool arguments_read(arguments *a, int argc, char **argv, int *code)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},  {"overwrite", no_argument, NULL, 'w'},
        {"preview", required_argument, NULL, 'p'}, {"checkpoint", required_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},          {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},          {0}};
    int option;

    *a = (arguments){0};
    *code = XPD_EXIT_USAGE;
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (option) {
        case 'o':
            a->output = optarg;
            break;
        case 'w':
            a->overwrite = true;
            break;
        case 'p':
            a->preview = optarg;
            break;
        case 'c':
            a->checkpoint = optarg;
            break;
        case 'j':
            a->json = true;
            break;
        case 'q':
            a->quiet = true;
            break;
        case 'h':
            fputs(help, stdout);
            *code = XPD_EXIT_OK;
            return false;
        default:
            fputs("xptycho run --help says what there is\n", stderr);
            return false;
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "xptycho run: one job file is wanted, there are %d\n\n%s", argc - optind,
                help);
        return false;
    }
    a->job = argv[optind];
    return true;
}

/* The flags of the command line become members of the document, which then is checked as one. */
static bool apply_flags(json_t *doc, const arguments *a)
{
    char path[PATH_MAX];
    json_t *output;

    if (!json_is_object(doc) || (!a->output && !a->overwrite))
        return true;
    output = json_object_get(doc, "output");
    if (!output) {
        output = json_object();
        json_object_set_new(doc, "output", output);
    }
    if (!json_is_object(output))
        return true; /* the check says so */
    if (a->output) {
        if (!xpd_path_absolute(path, sizeof path, a->output))
            return false;
        json_object_set_new(output, "path", json_string(path));
    }
    if (a->overwrite)
        json_object_set_new(output, "overwrite", json_true());
    return true;
}

/* The checked document, or NULL with everything said and *code set. */
static json_t *document_read(const arguments *a, int *code)
{
    json_t *doc, *problem = NULL, *errors;
    xpe_error err = {0};
    char *text;
    size_t length;

    *code = XPD_EXIT_REFUSED;
    if (xpd_file_read(&text, &length, a->job, XPP_BODY_MAX, &err) != XPE_OK) {
        fprintf(stderr, "xptycho run: %s\n", err.text);
        return NULL;
    }
    doc = xpp_parse(text, length, &problem);
    free(text);
    if (!doc) {
        print_problem(a, problem);
        json_decref(problem);
        return NULL;
    }
    if (!apply_flags(doc, a)) {
        fprintf(stderr, "xptycho run: --output: '%s' is too long\n", a->output);
        json_decref(doc);
        return NULL;
    }
    errors = xpp_job_check(doc);
    if (!errors) { /* from here on with every default written out, as a service keeps it */
        json_t *resolved = xpp_job_resolved(doc);

        json_decref(doc);
        doc = resolved;
    }
    if (!errors && !json_is_string(json_object_get(json_object_get(doc, "output"), "path"))) {
        errors = json_array();
        xpp_errors_add(errors, "/output/path",
                       "is missing: without a service there is no result folder; state it "
                       "in the job or give --output FILE");
    }
    if (errors) {
        problem = xpp_problem(XPP_FAULT_INVALID_JOB, "the job is not valid", errors, NULL);
        print_problem(a, problem);
        json_decref(problem);
        json_decref(doc);
        return NULL;
    }
    return doc;
}

/* Scan and arrays through a reader into work->input. */
static int input_read(xpd_work *work, const arguments *a, int signals, const xpd_events *events)
{
    xpd_reader reader = {.socket = -1};
    xpp_ipc_message message = {0};
    xpe_error err = {0};
    xpe_status st = xpd_reader_start(&reader, &err);
    int code = XPD_EXIT_OK;
    size_t i;
    const json_t *warning;

    if (st == XPE_OK)
        st = xpd_reader_send(&reader,
                             json_pack("{s:o, s:n, s:n, s:s}", "job", json_incref(work->job->doc),
                                       "roots", "write_roots", "output_path", work->output_path),
                             &err);
    if (st == XPE_OK)
        st = xpd_reader_receive(&message, &reader, signals, &err);
    if (st == XPE_CANCELLED) {
        fputs("cancelled before an iteration was done\n", stderr);
        code = XPD_EXIT_CANCELLED;
    } else if (st == XPE_OK && message.type == XPP_IPC_REFUSED) {
        print_problem(a, json_object_get(message.body, "problem"));
        code = XPD_EXIT_REFUSED;
    } else if (st == XPE_OK) {
        json_array_foreach (json_object_get(message.body, "warnings"), i, warning)
            xpd_emit_text(events, "warning", "%s", json_string_value(warning));
        st = xpd_input_open(&work->input, work->job, message.body, message.fds, message.fd_count,
                            &err);
    }
    if (st != XPE_OK && st != XPE_CANCELLED) {
        print_fault(a, &err);
        code = XPD_EXIT_FAILED;
    }
    xpp_ipc_message_release(&message);
    xpd_reader_stop(&reader);
    return code;
}

/* --------------------------------------------------------------------------------- signals */

static int signals_take(void)
{
    sigset_t set;
    int signals;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of write */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sigaddset(&set, SIGUSR1); /* waits until there is a run */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signals;
}

/* From now on the descriptor has SIGUSR1 too. */
static bool signals_widen(int signals)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    return signalfd(signals, &set, SFD_CLOEXEC | SFD_NONBLOCK) >= 0;
}

/* --------------------------------------------------------------------------------- running */

typedef struct engine {
    const xpd_work *work;
    xpd_control control;
    xpd_writer *writer;
    const xpd_events *events;
    xpd_outcome outcome;
    int finished; /* eventfd */
    bool expired; /* the deadline passed; a service would have its broker see to it */
} engine;

static void *engine_main(void *argument)
{
    engine *e = argument;
    uint64_t one = 1;

    xpd_work_execute(&e->outcome, e->work, &e->control, e->writer, e->events);
    if (write(e->finished, &one, sizeof one) != sizeof one)
        abort(); /* an eventfd at 0 takes a 1 */
    return NULL;
}

/* Milliseconds for poll until the deadline of the job; -1 = none. */
static int deadline_ms(const engine *e)
{
    double left = e->work->began + e->work->job->deadline_s - xpd_now();

    if (!(e->work->job->deadline_s > 0.0) || e->expired)
        return -1;
    return left <= 0.0 ? 0 : left > 1e6 ? 1000000000 : (int)(1000.0 * left) + 1;
}

/* SIGUSR1: a checkpoint.  SIGTERM where there are checkpoints: one more, and the end.  Else the
 * end. */
static void on_signal(engine *e, int number, bool *asked)
{
    bool kept = e->work->checkpoints != NULL;

    if (number == SIGUSR1) {
        if (kept)
            xpd_control_save(&e->control, false);
        return;
    }
    if (*asked)
        _exit(XPD_EXIT_CANCELLED);
    *asked = true;
    if (number == SIGTERM && kept) {
        fputs("leaving after a checkpoint; once more leaves at once\n", stderr);
        xpd_control_save(&e->control, true);
    } else {
        fputs("cancelling; once more leaves at once\n", stderr);
        xpd_control_cancel(&e->control, false);
    }
}

/* Until the engine is done; the deadline cancels too. */
static void wait_for_engine(engine *e, int signals)
{
    bool asked = false;

    for (;;) {
        struct pollfd fds[2] = {{.fd = e->finished, .events = POLLIN},
                                {.fd = signals, .events = POLLIN}};
        struct signalfd_siginfo info;

        int ready = poll(fds, 2, deadline_ms(e));

        if (ready < 0 && errno != EINTR)
            return;
        if (ready == 0 && deadline_ms(e) == 0) {
            e->expired = true;
            xpd_control_cancel(&e->control, false);
        }
        if (ready > 0 && fds[0].revents)
            return;
        if (ready > 0 && fds[1].revents &&
            read(signals, &info, sizeof info) == (ssize_t)sizeof info)
            on_signal(e, (int)info.ssi_signo, &asked);
    }
}

static int reconstruct(const xpd_work *work, printer *p, const xpd_events *events, int signals)
{
    engine e = {.work = work,
                .events = events,
                .writer = xpd_writer_create(),
                .finished = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    int code = XPD_EXIT_UNEXPECTED;

    xpd_control_init(&e.control);
    if (!e.writer || e.finished < 0 || !signals_widen(signals) ||
        pthread_create(&thread, NULL, engine_main, &e) != 0) {
        fputs("xptycho run: cannot start a thread\n", stderr);
    } else {
        wait_for_engine(&e, signals);
        pthread_join(thread, NULL);
        if (e.expired && strcmp(e.outcome.state, "cancelled") == 0) {
            e.outcome.state = "failed";
            e.outcome.reason = "deadline";
            snprintf(e.outcome.detail, sizeof e.outcome.detail,
                     "not done after deadline_s = %g seconds", work->job->deadline_s);
        }
        if (work->checkpoints && strcmp(e.outcome.state, "succeeded") == 0)
            xpe_checkpoint_remove(work->checkpoints);
        print_end(p, &e.outcome);
        code = xpd_exit_of(e.outcome.state, e.outcome.reason);
        xpd_outcome_release(&e.outcome);
    }
    xpd_writer_destroy(e.writer);
    xpd_control_release(&e.control);
    if (e.finished >= 0)
        close(e.finished);
    return code;
}

/* Absolute, and made where there is none yet; NULL = the path is too long or memory is out. */
static char *folder_make(const char *path)
{
    char folder[PATH_MAX];

    if (!xpd_path_absolute(folder, sizeof folder, path))
        return NULL;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        fprintf(stderr, "xptycho run: warning: cannot make the folder '%s'\n", folder);
    return strdup(folder);
}

static bool work_fill(xpd_work *work, json_t *doc, const arguments *a)
{
    work->job = xpp_job_decode(doc);
    if (!work->job)
        return false;
    work->output_path = strdup(work->job->output_path);
    work->overwrite = work->job->output_overwrite;
    xpp_job_id_make(work->id);
    if (a->preview)
        work->folder = folder_make(a->preview);
    if (a->checkpoint)
        work->checkpoints = folder_make(a->checkpoint);
    return work->output_path && (work->folder || !a->preview) &&
           (work->checkpoints || !a->checkpoint);
}

int xpd_run_main(int argc, char **argv)
{
    arguments a;
    printer p = {0};
    xpd_events events = {on_event, &p};
    xpd_work work = {.began = xpd_now()};
    json_t *doc;
    int code, signals;

    if (!arguments_read(&a, argc, argv, &code))
        return code;
    doc = document_read(&a, &code);
    if (!doc)
        return code;
    xpd_gpu_hand_over(doc, argc, argv, argc - 1); /* getopt left the job file at the end */
    p.json = a.json;
    p.quiet = a.quiet;
    pthread_mutex_init(&p.lock, NULL);
    signals = signals_take();
    if (signals < 0 || !work_fill(&work, doc, &a)) {
        fputs("xptycho run: out of memory\n", stderr);
        code = XPD_EXIT_UNEXPECTED;
    } else {
        code = input_read(&work, &a, signals, &events);
        if (code == XPD_EXIT_OK)
            code = reconstruct(&work, &p, &events, signals);
    }
    xpd_work_release(&work);
    json_decref(doc);
    if (signals >= 0)
        close(signals);
    pthread_mutex_destroy(&p.lock);
    return code;
}
