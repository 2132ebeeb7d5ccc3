/* The table of commands and their options: what the parser accepts is what the help shows. */
#include "cli.h"

#include <limits.h>
#include <string.h>

const cli_option cli_common_options[] = {
    {"server", 's', CLI_TEXT, "ADDRESS", NULL,
     "daemon to talk to: http://HOST:PORT, unix:/PATH, or its runtime folder (default: looked for, "
     "see "
     "'xptycho help')"},
    {"token-file", 0, CLI_PATH, "FILE", NULL,
     "file that holds the token for TCP (default: XPTYCHO_TOKEN, XPTYCHO_TOKEN_FILE, or the "
     "daemon's "
     "own token file)"},
    {"json", 0, CLI_FLAG, NULL, NULL, "print JSON for programs"},
    {"help", 'h', CLI_FLAG, NULL, NULL, "print this help"},
    {0}};

/* Description, default and range come from the schema unless stated here. */
const cli_option cli_job_options[] = {
    {"name", 'N', CLI_TEXT, "TEXT", "name", NULL},
    {"class", 0, CLI_TEXT, "CLASS", "class", NULL},
    {"priority", 'p', CLI_INTEGER, "N", "priority", NULL},
    {"output", 'o', CLI_PATH, "FILE", "output.path", NULL},
    {"overwrite", 0, CLI_FLAG, NULL, "output.overwrite", NULL},
    {"format", 0, CLI_TEXT, "NAME", "scan.format", NULL},
    {"energy-kev", 0, CLI_NUMBER, "KEV", "scan.geometry.energy_kev", NULL},
    {"wavelength-m", 0, CLI_NUMBER, "M", "scan.geometry.wavelength_m", NULL},
    {"detector-distance-m", 0, CLI_NUMBER, "M", "scan.geometry.detector_distance_m", NULL},
    {"detector-pitch-m", 0, CLI_NUMBER, "M", "scan.geometry.detector_pitch_m", NULL},
    {"distance-m", 0, CLI_NUMBER, "M", "scan.geometry.detector_distance_m", CLI_OTHER_NAME},
    {"pitch-m", 0, CLI_NUMBER, "M", "scan.geometry.detector_pitch_m", CLI_OTHER_NAME},
    {"saturation", 0, CLI_NUMBER, "COUNTS", "scan.saturation", NULL},
    {"probe-modes", 'm', CLI_INTEGER, "K", "model.probe_modes", NULL},
    {"probe", 0, CLI_REF, "PATH[:DATASET]", "probe", NULL},
    {"init", 0, CLI_PATH, "FILE", "init.path",
     "A result to go on from: start object, and start probe where the probe is estimated."},
    {"init-object", 0, CLI_REF, "PATH[:DATASET]", "init_object", NULL},
    {"init-probe", 0, CLI_REF, "PATH[:DATASET]", "init_probe", NULL},
    {"iterations", 'n', CLI_INTEGER, "N", "recon.iterations", NULL},
    {"object-data-fit", 0, CLI_NUMBER, "A", "recon.object_data_fit", NULL},
    {"probe-data-fit", 0, CLI_NUMBER, "A", "recon.probe_data_fit", NULL},
    {"probe-weight-exponent", 0, CLI_NUMBER, "K", "recon.probe_weight_exponent", NULL},
    {"relaxation", 0, CLI_NUMBER, "R", "recon.relaxation", NULL},
    {"mode-schedule", 0, CLI_INTEGERS, "N,N...", "recon.mode_schedule", NULL},
    {"mode-energy-fraction", 0, CLI_NUMBER, "F", "recon.mode_energy_fraction", NULL},
    {"orthogonalize-modes", 0, CLI_FLAG, NULL, "recon.orthogonalize_modes", NULL},
    {"fresnel-distance-m", 0, CLI_NUMBER, "M", "recon.fresnel_distance_m", NULL},
    {"fresnel-radius-pixels", 0, CLI_NUMBER, "R", "recon.fresnel_radius_pixels", NULL},
    {"batch-size", 0, CLI_INTEGER, "N", "recon.batch_size", NULL},
    {"report-every", 0, CLI_INTEGER, "N", "recon.report_every", NULL},
    {"num-devices", 0, CLI_INTEGER, "N", "devices.num_devices", NULL},
    {"devices", 0, CLI_WORDS, "NAME,NAME...", "devices.devices", NULL},
    {"cpu-threads", 't', CLI_INTEGER, "N", "devices.cpu_threads", NULL},
    {"preview-every-s", 0, CLI_NUMBER, "S", "preview_every_s", NULL},
    {"deadline-s", 0, CLI_NUMBER, "S", "deadline_s", NULL},
    {"checkpoint", 0, CLI_TEXT, "exact|off", "checkpoint", NULL},
    {"checkpoint-every-s", 0, CLI_NUMBER, "S", "checkpoint_every_s", NULL},
    {"label", 'l', CLI_TEXT, "KEY=VALUE", NULL,
     "a label, carried unchanged into status and result; may be repeated"},
    {"set", 0, CLI_TEXT, "NAME=VALUE", NULL,
     "any member of the job by its dotted path, such as recon.iterations=50 or "
     "recon.1.algorithm=refine_positions; VALUE is JSON where it parses, else text; may be "
     "repeated; "
     "options apply in the order given"},
    {0}};

#define FOLLOW_OPTIONS                                                                               \
    {"watch", 'w', CLI_FLAG, NULL, NULL, "follow the job to its end, as 'xptycho watch' does"},      \
        {"wait", 0, CLI_FLAG, NULL, NULL, "wait for the job's end in silence, then print one line"}, \
    {                                                                                                \
        "idempotency-key", 0, CLI_TEXT, "KEY", NULL,                                                 \
            "key that makes the same submission twice one job (default: a fresh one)"                \
    }

#define SLURM_OPTIONS                                                                                \
    {"slurm", 0, CLI_FLAG, NULL, NULL,                                                               \
     "as a batch job of Slurm, without a daemon: its files are in a folder that all nodes see"},     \
        {"folder", 0, CLI_PATH, "DIR", NULL,                                                         \
         "with --slurm: the folder, which is made (default: xptycho-... in the current folder)"},    \
        {"partition", 0, CLI_TEXT, "P", NULL, "with --slurm: as sbatch takes it"},                   \
        {"gres", 0, CLI_TEXT, "G", NULL,                                                             \
         "with --slurm: as sbatch takes it (default: gpu:N where the job says num_devices)"},        \
        {"time", 0, CLI_TEXT, "T", NULL,                                                             \
         "with --slurm: the time limit as sbatch takes it; 3 minutes before it the run writes a "    \
         "checkpoint and is queued again"},                                                          \
    {                                                                                                \
        "sbatch-arg", 0, CLI_TEXT, "X", NULL,                                                        \
            "with --slurm: one more argument of sbatch, such as --sbatch-arg=--account=NAME; may "   \
            "be repeated"                                                                            \
    }

static const cli_option submit_options[] = {
    {"job", 'j', CLI_PATH, "FILE", NULL,
     "a whole job as JSON, - for stdin; SCAN and options change it"},
    {"dry-run", 0, CLI_FLAG, NULL, NULL,
     "only ask whether the job would be admitted; with --slurm, print the script"},
    FOLLOW_OPTIONS,
    SLURM_OPTIONS,
    {0}};
static const cli_option sweep_options[] = {
    {"dry-run", 0, CLI_FLAG, NULL, NULL, "with --slurm: print the script"},
    {"wait", 0, CLI_FLAG, NULL, NULL, "wait for the end of all, then print the table once more"},
    {"idempotency-key", 0, CLI_TEXT, "KEY", NULL,
     "the same sweep sent again under its key makes no job twice (default: a fresh one)"},
    {"at-once", 0, CLI_INTEGER, "N", NULL, "with --slurm: most tasks side by side (default: any)"},
    SLURM_OPTIONS,
    {0}};
static const cli_option rerun_options[] = {FOLLOW_OPTIONS, {0}};
static const cli_option watch_options[] = {
    {"wait", 0, CLI_FLAG, NULL, NULL, "print nothing but the last line"}, {0}};
static const cli_option cancel_options[] = {
    {"wait", 0, CLI_FLAG, NULL, NULL, "return when the job has ended (default: at once)"}, {0}};
static const cli_option set_options[] = {
    {"name", 'N', CLI_TEXT, "TEXT", "name", "for people; what it was submitted with stays in its result"},
    {"priority", 'p', CLI_INTEGER, "N", "priority", "higher starts first within a class"},
    {"class", 0, CLI_TEXT, "CLASS", "class",
     "classes start in this order; a job rises one class for every half hour that it waits, but "
     "never into live"},
    {"label", 'l', CLI_TEXT, "KEY=VALUE", NULL, "a label to add or to replace; may be repeated"},
    {"remove-label", 0, CLI_TEXT, "KEY", NULL, "a label to take away; may be repeated"},
    {0}};
static const cli_option dashboard_options[] = {
    {"scope", 0, CLI_TEXT, "SCOPE", NULL,
     "what the browser may: read (see jobs), submit (make, change, cancel and delete them too) or "
     "admin; at most what you may (default read)"},
    {"valid-s", 0, CLI_INTEGER, "S", NULL,
     "seconds in which the link may be opened (default 60; from 1 to 3600)"},
    {"list", 0, CLI_FLAG, NULL, NULL, "show your sessions and the links that were not used"},
    {"revoke", 0, CLI_TEXT, "ID", NULL, "end a session or link of the list"},
    {0}};
static const cli_option list_options[] = {
    {"state", 0, CLI_TEXT, "STATE", NULL,
     "only jobs in this state: queued, starting, running, succeeded, failed or cancelled (default: "
     "all); may be repeated"},
    {"limit", 'n', CLI_INTEGER, "N", NULL, "most jobs to show (default 50)"},
    {"all", 'a', CLI_FLAG, NULL, NULL, "show every job"},
    {0}};
static const cli_option log_options[] = {
    {"tail", 'n', CLI_INTEGER, "N", NULL, "only the last N lines (default 0: all)"}, {0}};
static const cli_option result_options[] = {
    {"output", 'o', CLI_PATH, "FILE", NULL,
     "download the result file (HDF5) to FILE, - for stdout; written beside and renamed when "
     "complete"},
    {"overwrite", 0, CLI_FLAG, NULL, NULL, "replace an existing FILE (default: refuse)"},
    {0}};
static const cli_option preview_options[] = {
    {"what", 0, CLI_TEXT, "NAME", NULL,
     "object_phase, object_magnitude, probe_phase or probe_magnitude (default object_phase)"},
    {"output", 'o', CLI_PATH, "FILE", NULL,
     "where the PNG goes, - for stdout; replaced if it exists"},
    {0}};

static const cli_option admin_options[] = {
    {"finish", 0, CLI_FLAG, NULL, NULL,
     "drain: let what runs come to its end (default: it goes back to the queue)"},
    {"scope", 0, CLI_TEXT, "SCOPE", NULL,
     "tokens new: read, submit or admin; may be repeated (default submit, which holds read)"},
    {"expires", 0, CLI_TEXT, "DATE", NULL,
     "tokens new: a day or a second of UTC, 2027-01-31 or 2027-01-31T18:00:00Z (default: never)"},
    {"class", 0, CLI_TEXT, "CLASS", NULL,
     "tokens new: highest class of jobs submitted with it: live, normal, batch or scavenger "
     "(default live)"},
    {"user", 0, CLI_TEXT, "USER", NULL,
     "tokens new: whose jobs they are, a name or a number (default: the calling user)"},
    {0}};

#define WORKER(name, synopsis, summary)                                                            \
    {                                                                                              \
        name, synopsis, summary, NULL, NULL, {NULL}, 0, 0, NULL, "xptycho-worker"                  \
    }
#define READER(name, synopsis, summary)                                                            \
    {                                                                                              \
        name, synopsis, summary, NULL, NULL, {NULL}, 0, 0, NULL, "xptycho-reader"                  \
    }

const cli_command cli_commands[] = {
    {"submit",
     "[OPTION...] [SCAN|JOB.json]",
     "Submit a job",
     "Prints the id of the new job. SCAN is the scan file, JOB.json a whole job; relative paths are seen from the "
     "current "
     "folder. The exit code is that of the submission, with --watch or --wait that of the job. A "
     "lost "
     "connection is tried again under the same key, so that one job results. With --json the job "
     "is "
     "printed, with --watch one event a line after it.",
     "  xptycho submit scan.h5 --iterations 200 --probe-modes 2 --mode-schedule 20 --watch\n"
     "  xptycho submit --job job.json --set recon.relaxation=0.4 --output out/recon.h5\n"
     "  xptycho submit --slurm --partition gpu --time 2:00:00 --watch job.json",
     {submit_options, cli_job_options},
     0,
     1,
     cmd_submit,
     NULL},
    {"sweep",
     "[OPTION...] TEMPLATE.json SCAN...",
     "Submit one job a scan, all by one template",
     "The template is a job; each scan's path takes the place of its scan.path, and {name} and "
     "{index} in its output.path become the scan's file name without its ending and its number "
     "from 0. As jobs of the daemon, or with --slurm as one array of batch jobs. The exit code is "
     "that of the first that did not go well.",
     "  xptycho sweep template.json tilt_*.h5 --iterations 200 --wait\n"
     "  xptycho sweep template.json tilt_*.h5 --slurm --partition gpu --at-once 8",
     {sweep_options, cli_job_options},
     2,
     INT_MAX,
     cmd_sweep,
     NULL},
    {"watch",
     "[OPTION...] ID|FOLDER",
     "Follow a job to its end",
     "On a terminal: a bar with the data error, the rate and the time left. Elsewhere: the "
     "daemon's "
     "progress lines, one an iteration, and '# ...' for the rest. While the job waits, a line says for "
     "what, its position and by when it should start, and another one each change of that. The last line sums up. A lost "
     "connection is taken up again where it broke. Ctrl-C leaves the job running. The exit code is "
     "that of the job. FOLDER is that of a batch job of Slurm, with a slash: ./xptycho-01KG...",
     "  xptycho watch 01KG7Q3N6W8Y2M4T6V8X0Z1A3C",
     {watch_options},
     1,
     1,
     cmd_watch,
     NULL},
    {"list",
     "[OPTION...]",
     "List jobs, newest first",
     NULL,
     "  xptycho list --state running",
     {list_options},
     0,
     0,
     cmd_list,
     NULL},
    {"show",
     "[OPTION...] ID",
     "Show a job",
     NULL,
     "  xptycho show 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --json",
     {NULL},
     1,
     1,
     cmd_show,
     NULL},
    {"cancel",
     "[OPTION...] ID",
     "Cancel a job",
     "May be repeated. A running job ends within an iteration and keeps what it has as a partial "
     "result.",
     "  xptycho cancel 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --wait",
     {cancel_options},
     1,
     1,
     cmd_cancel,
     NULL},
    {"hold",
     "[OPTION...] ID",
     "Keep a waiting job from starting",
     "It keeps its place. 'xptycho release' lets it go. A job that runs already cannot be held.",
     "  xptycho hold 01KG7Q3N6W8Y2M4T6V8X0Z1A3C",
     {NULL},
     1,
     1,
     cmd_hold,
     NULL},
    {"release",
     "[OPTION...] ID",
     "Let a held job start",
     NULL,
     "  xptycho release 01KG7Q3N6W8Y2M4T6V8X0Z1A3C",
     {NULL},
     1,
     1,
     cmd_release,
     NULL},
    {"set",
     "[OPTION...] ID",
     "Change name, priority, class or labels of a job",
     "Priority and class decide when a job starts, so they count while it waits. What a job computes "
     "is never changed: 'xptycho rerun' makes a new job with other settings.",
     "  xptycho set 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --priority 20 --name 'tile 12, again'\n"
     "  xptycho set 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --class batch --label reviewed=yes",
     {set_options},
     1,
     1,
     cmd_set,
     NULL},
    {"delete",
     "[OPTION...] ID",
     "Delete the record of a job that has ended",
     "Its events, log and pictures go too, and a result in the daemon's own folder; a result at a "
     "path "
     "that the job named stays.",
     "  xptycho delete 01KG7Q3N6W8Y2M4T6V8X0Z1A3C",
     {NULL},
     1,
     1,
     cmd_delete,
     NULL},
    {"log",
     "[OPTION...] ID",
     "Print the log of a job",
     "With --json: each line as a JSON text.",
     "  xptycho log 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --tail 20",
     {log_options},
     1,
     1,
     cmd_log,
     NULL},
    {"rerun",
     "[OPTION...] ID",
     "Submit a job again, with changes",
     "Prints the id of the new job. Members not named stay as they were.",
     "  xptycho rerun 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --iterations 300 --watch",
     {rerun_options, cli_job_options},
     1,
     1,
     cmd_rerun,
     NULL},
    {"result",
     "[OPTION...] ID",
     "Show or download a result",
     NULL,
     "  xptycho result 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --output recon.h5",
     {result_options},
     1,
     1,
     cmd_result,
     NULL},
    {"preview",
     "[OPTION...] ID",
     "Download the latest picture as PNG",
     NULL,
     "  xptycho preview 01KG7Q3N6W8Y2M4T6V8X0Z1A3C --what object_phase --output phase.png",
     {preview_options},
     1,
     1,
     cmd_preview,
     NULL},
    {"queue",
     "[OPTION...]",
     "Show what runs and what waits",
     NULL,
     "  xptycho queue",
     {NULL},
     0,
     0,
     cmd_queue,
     NULL},
    {"devices",
     "[OPTION...]",
     "Show the daemon's devices",
     NULL,
     "  xptycho devices",
     {NULL},
     0,
     0,
     cmd_devices,
     NULL},
    {"dashboard",
     "[OPTION...]",
     "Print a link that opens the daemon in a browser",
     "The link works once and for a minute; the browser then has a session that ends after 12 hours "
     "or as the service is set up. It may see what you may see and, without --scope, change nothing. "
     "Where the daemon is on another machine, use the link with its name, or make "
     "'ssh -L 8270:127.0.0.1:8270 MACHINE' and open the one with 127.0.0.1.",
     "  xptycho dashboard\n"
     "  xptycho dashboard --scope submit\n"
     "  xptycho dashboard --list",
     {dashboard_options},
     0,
     0,
     cmd_dashboard,
     NULL},
    {"admin",
     "[OPTION...] drain|undrain|reload|dump|db-check|tokens new NAME",
     "Run the service: drain, reload, tokens",
     "drain: no new work is taken; returns when nothing runs any more. undrain: work is taken again. "
     "reload: configuration and tokens are read again, all or nothing. dump: the state of the "
     "service goes to its log. db-check: SQLite checks the whole state. These use the admin socket, as root or the service's user. "
     "tokens new: prints a token, once, and the line for the token file, which holds only the "
     "token's hash; the line counts after a reload.",
     "  xptycho admin drain --finish\n"
     "  xptycho admin tokens new daq --user ada --scope submit --expires 2027-01-31",
     {admin_options},
     1,
     3,
     cmd_admin,
     NULL},
    {"version",
     "[OPTION...]",
     "Print the version of program and daemon",
     NULL,
     "  xptycho version",
     {NULL},
     0,
     0,
     cmd_version,
     NULL},
    WORKER("run", "JOB.json", "Run a job here and now, without a daemon"),
    WORKER("simulate", "--output FILE", "Make a scan of a procedural object"),
    WORKER("compare", "A B", "Compare two objects up to one complex scale"),
    WORKER("bench", "[OPTION...]", "Measure the engine on this machine"),
    READER("inspect", "FILE", "Tell what the reader takes from a file"),
    READER("import", "FILE", "Make a scan file from NumPy archives"),
    {0}};
