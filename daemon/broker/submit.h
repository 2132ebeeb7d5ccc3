/* A submission on its way: document, reader, devices, plan, commit, answer.  Nothing is in the
 * queue before its row is on disk.  Loop thread only. */
#ifndef XPD_SUBMIT_H
#define XPD_SUBMIT_H

#include "broker.h"
#include "request.h"

/* Takes doc.  Answers now or later. */
void xpd_submit(xpd_request *r, json_t *doc, bool dry_run, bool probe);
/* A worker said what devices there are. */
void xpd_submissions_devices_known(xpd_broker *b);
/* At the end of a turn: answers those whose rows were committed in it.  Together, since each answer
 * tells the place in the queue, which is found for all jobs at once. */
void xpd_submissions_answer(xpd_broker *b);
/* The service stops: those that are not on their way to the disk are refused. */
void xpd_submissions_end(xpd_broker *b);
/* JSON merge patch (RFC 7396): a new reference, NULL when memory is exhausted. */
json_t *xpd_merge_patch(const json_t *target, const json_t *patch);

#endif
