/* Admission: what a job needs of memory and disk, by the engine's own plan, and whether this
 * machine can ever give it.  Whether it can do so now is the scheduler's question (schedule.h),
 * asked whenever something changes.  Pure apart from reading the positions; loop thread only. */
#ifndef XPD_ADMISSION_H
#define XPD_ADMISSION_H

#include "device.h"

/* Bytes.  device is that of the device that needs most, where several shards may lie; on the CPU it
 * is memory of the host like `host`, which holds the frames as they were read, results and
 * pictures. */
typedef struct xpd_needs {
    bool known;
    int64_t device, host;
    int64_t result, checkpoints; /* at most; two checkpoints */
} xpd_needs;

/* What there is at most.  XPD_ROOM_ENDLESS = nobody knows of an end. */
#define XPD_ROOM_ENDLESS INT64_MAX
typedef struct xpd_disk {
    int64_t total, free; /* bytes that this service may use */
} xpd_disk;
typedef struct xpd_room {
    int64_t host;           /* memory that jobs may have in all */
    xpd_disk result, state; /* where the result goes; where checkpoints go */
    bool one_disk;          /* these are the same */
} xpd_room;

/* Memory that a job may have on the device when it is alone there: on the CPU `room->host`, on a
 * GPU without what a context takes. */
int64_t xpd_room_of(const xpd_room *room, const xpe_device_info *device);

/* Fills needs.  false = it never fits here: err has the faults of all resources, each with what is
 * required, what there is and what is missing, and the changes of the job that would make it fit.
 * `scan` is the reader's answer, positions_fd its memfd, `devices` all devices of this node.
 * verdict (may be NULL) gets [{name, frames, bytes_needed, bytes_free}]. */
bool xpd_admit(xpd_needs *needs, const xpd_choice *choice, const xpd_devices *devices,
               const xpd_room *room, const xpp_job *job, const json_t *scan, int positions_fd,
               json_t **verdict, xpd_error *err);
/* Whether its files fit the disks now; they may not and the job can still come later. */
bool xpd_admit_files(const xpd_needs *needs, const xpd_room *room, const xpp_job *job,
                     xpd_error *err);
/* Index of an array in `scan`.arrays, -1 where there is none. */
int xpd_scan_array(const json_t *scan, const char *name);

json_t *xpd_needs_json(const xpd_needs *needs); /* null where they are not known */
void xpd_needs_from(xpd_needs *out, const json_t *json);
/* "61.2 GiB", at least 32 bytes */
const char *xpd_bytes_text(char out[32], int64_t bytes);

#endif
