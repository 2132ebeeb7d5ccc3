/* What the Slurm commands share: a batch of jobs in a folder, its script, its submission, and one
 * look at it for all its jobs.
 *
 *   FOLDER/job.json batch.sh slurm-id                     one job
 *   FOLDER/0/job.json FOLDER/1/job.json ... batch.sh ...  an array, one task a job
 *
 * and beside each job.json what the script makes: events.ndjson log.txt checkpoint/ exit.  No text
 * of a job gets into the script or onto a command line, but for its name, cut to harmless
 * characters. */
#ifndef XPC_CMD_SLURM_H
#define XPC_CMD_SLURM_H

#include "cli.h"

#include <limits.h>
#include <stdint.h>

#define SLURM_ID_SIZE 24
#define SLURM_POLL_S 30 /* between two questions to Slurm, for all jobs together */

typedef struct slurm_batch {
    const cli_args *args;
    const char *folder; /* absolute, checked */
    int tasks;          /* of the array; 0 = one job */
    int at_once;        /* tasks that may run side by side; 0 = any */
    const json_t *doc;  /* the job, or the first one */
} slurm_batch;

typedef enum slurm_phase {
    SLURM_UNKNOWN, /* Slurm does not know it: gone */
    SLURM_WAITS,
    SLURM_RUNS,
    SLURM_OVER
} slurm_phase;

typedef struct slurm_task {
    char folder[PATH_MAX];
    slurm_phase phase;
    char state[24];  /* Slurm's word for it */
    int exit;        /* of the run; -1 = not over */
    int64_t gone_ms; /* when Slurm was seen to be done with it; 0 = not yet */
} slurm_task;

/* --folder or a fresh name, absolute (malloc'd); NULL: reported, *code is set. */
char *slurm_folder(const cli_args *args, int *code);
/* Every fault of the document on stderr, as the daemon would tell it; CLI_OK or CLI_REFUSED. */
int slurm_check(const json_t *doc);
/* The script, malloc'd; NULL: reported, *code is set. */
char *slurm_script(const slurm_batch *batch, int *code);
/* Writes batch.sh, submits, writes slurm-id.  CLI_OK, or reported. */
int slurm_submit(const slurm_batch *batch, char id[SLURM_ID_SIZE]);
/* job.json of one job, with an output inside the folder where it has none. */
int slurm_put_job(const char *folder, json_t *doc);
/* Asks Slurm about all tasks, at most once in SLURM_POLL_S, and looks for those that have ended;
 * true once every task has.  `array` says that tasks[i] is task i of an array. */
typedef struct slurm_poll {
    const char *id;
    bool array;
    slurm_task *tasks;
    int count;
    int64_t next_ms;
} slurm_poll;
bool slurm_look(slurm_poll *poll);
/* Fills a task for its folder; false when the path is too long. */
bool slurm_task_init(slurm_task *task, const char *folder, int index);
/* The last `end` event in the folder, or NULL (the caller's). */
json_t *slurm_last_end(const char *folder);

#endif
