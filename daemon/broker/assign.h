/* Which device sets can hold a job, and which devices it gets there.  Loop thread only.
 *
 * A job that names its devices goes where they are.  One that names none, or counts them, goes to
 * GPUs where any can be used, else to the CPU.  A job that has run keeps to the kind and model of
 * its devices: a checkpoint goes on only there, and iterations that were told must not change. */
#ifndef XPD_ASSIGN_H
#define XPD_ASSIGN_H

#include "sets.h"

typedef struct xpd_assign {
    uint64_t sets; /* that can hold it, a bit each */
    int need;      /* how many of them, all at once */
} xpd_assign;

xpd_assign xpd_assign_of(const xpd_broker *b, const xpd_job *job);
/* Kind and number of the devices that it runs on or will get: "cuda", 2. */
void xpd_assign_kind(char *kind, size_t size, int *count, const xpd_broker *b, const xpd_job *job);
/* What it waits for where no set in service can hold it: half a sentence. */
void xpd_assign_missing(char *out, size_t size, const xpd_broker *b, const xpd_job *job);

/* The devices of a job on these sets; sets 0: at submission, where it is not known yet which it
 * will get: those with the most memory. */
bool xpd_assign_choose(xpd_choice *out, const xpd_broker *b, const xpp_job *job, uint64_t sets,
                       xpd_error *err);

#endif
