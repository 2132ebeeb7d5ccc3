/* Child processes: started with one end of a socketpair as descriptor 3, watched, stopped, reaped.
 *
 * Messages from a child are untrusted input; one that breaks the rules ends it.  Loop thread only.
 */
#ifndef XPD_SUPERVISE_H
#define XPD_SUPERVISE_H

#include "broker.h"

#include <sched.h>

typedef struct xpd_child {
    xpd_broker *b;
    const char *name;       /* "xptycho-worker"; for the log */
    const cpu_set_t *cores; /* that it may use; NULL = all; borrowed */
    pid_t pid;              /* 0 = not running */
    xpd_source source;      /* our end of the socketpair; fd -1 = none */
    xpd_timer kill_timer, lost_timer;
    bool may_be_lost; /* when it does not even die of SIGKILL, it is taken for dead */
    /* The message may be emptied (body and descriptors taken); false = it breaks the rules. */
    bool (*on_message)(struct xpd_child *child, xpp_ipc_message *message);
    /* After the last message; the child may be destroyed here. */
    void (*on_exit)(struct xpd_child *child, int wait_status);
    void *context;
    struct xpd_child *next, **link;
} xpd_child;

/* `program` NULL = beside this program; socket false = a child without messages.  argv_rest ends
 * with NULL. oom_score_adj tells the kernel who goes first when memory is short. */
bool xpd_child_start(xpd_child *child, const char *program, const char *const *arguments,
                     bool socket, int oom_score_adj, xpd_error *err);
/* false: the child does not take it (hung or gone). */
bool xpd_child_send(xpd_child *child, xpp_ipc_type type, const json_t *body, const int *fds,
                    int fd_count);
/* A process that waits for a file system that is away may not even die of SIGKILL.  Where it
 * may be lost it is left behind 20 s later, 5 s while the service stops: on_exit is called as if it
 * had died, and it is reaped when it does.  At most four at a time, since each keeps its memory. */
void xpd_child_signal(xpd_child *child, int signal_number);
/* SIGKILL when it is still there after delay_ms. */
void xpd_child_kill_after(xpd_child *child, int64_t delay_ms);
/* For SIGCHLD: reaps those of our children that ended. */
void xpd_children_reap(void);
/* "was ended by signal 11 (Segmentation fault)", "left with status 2" */
void xpd_exit_text(char *out, size_t size, int wait_status);

#endif
