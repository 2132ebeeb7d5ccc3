/* One request over a socket: PROBE or READ in, SCAN or REFUSED out, then the process ends. */
#include "reader.h"

#include "arrays.h"
#include "fault.h"
#include "reading.h"
#include "sandbox.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CPU_SECONDS_PROBE 30
#define CPU_SECONDS_READ (4 * 3600)

/* Roots out of a message: folders as they are after links, which is how files are compared. */
typedef struct root_list {
    xpe_roots roots;
    char **folders;
} root_list;

static void roots_release(root_list *list)
{
    for (size_t i = 0; i < list->roots.count; i++)
        free(list->folders[i]);
    free(list->folders);
}

/* NULL for a JSON null (own permissions); a list, maybe empty, for an array. */
static const xpe_roots *roots_take(root_list *list, const json_t *array, bool *good)
{
    memset(list, 0, sizeof *list);
    if (!array || json_is_null(array))
        return NULL;
    *good = *good && json_is_array(array);
    list->folders = calloc(json_array_size(array) + 1, sizeof *list->folders);
    for (size_t i = 0; list->folders && i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));
        char *resolved = text && text[0] == '/' ? realpath(text, NULL) : NULL;
        if (resolved)
            list->folders[list->roots.count++] = resolved;
    }
    list->roots.folders = (const char *const *)list->folders;
    return &list->roots;
}

static int exit_code(xpp_ipc_result result)
{
    return result == XPP_IPC_OK || result == XPP_IPC_CLOSED ? 0 : 1;
}

/* The first error's sentence stands for all of them. */
static xpp_ipc_result answer_refused(int socket, xpd_reading *r)
{
    const char *detail = json_string_value(json_object_get(json_array_get(r->errors, 0), "detail"));
    json_t *problem = xpp_problem(r->fault, detail ? detail : "the files of the job cannot be used",
                                  json_incref(r->errors), NULL);
    json_t *body = json_pack("{s:o}", "problem", problem);
    xpp_ipc_result result =
        body ? xpp_ipc_send(socket, XPP_IPC_REFUSED, body, NULL, 0) : XPP_IPC_FAILED;

    json_decref(body);
    return result;
}

/* A READ for arrays alone, as `compare` sends it. */
static int serve_arrays(int socket, const json_t *body)
{
    root_list list;
    bool good = true;
    const xpe_roots *roots = roots_take(&list, json_object_get(body, "roots"), &good);
    xpp_ipc_result result = XPP_IPC_FAILED;

    if (good && xpd_sandbox_confine(roots, NULL))
        result = xpd_arrays_answer(socket, json_object_get(body, "arrays_only"), roots);
    roots_release(&list);
    return exit_code(result);
}

/* A PROBE or READ of a job. */
static int serve_job(int socket, xpd_reading *reading, json_t *body)
{
    root_list roots, write_roots;
    xpp_ipc_result result = XPP_IPC_BROKEN;
    json_t *doc = json_object_get(body, "job");
    json_t *errors = json_is_object(doc) ? xpp_job_check(doc) : NULL;
    xpp_job *job = json_is_object(doc) && !errors ? xpp_job_decode(doc) : NULL;
    bool good = true;

    reading->job = job;
    reading->roots = roots_take(&roots, json_object_get(body, "roots"), &good);
    reading->write_roots = roots_take(&write_roots, json_object_get(body, "write_roots"), &good);
    reading->output_path = json_string_value(json_object_get(body, "output_path"));
    if (errors) {
        reading->errors = errors;
        reading->fault = XPP_FAULT_INVALID_JOB;
        result = answer_refused(socket, reading);
    } else if (job && good && xpd_sandbox_confine(reading->roots, reading->write_roots)) {
        /* confined to write roots too: a result that may be replaced has to be looked at */
        result = xpd_reading_run(reading) ? xpp_ipc_send(socket, XPP_IPC_SCAN, reading->scan,
                                                         reading->fds, reading->fd_count)
                                          : answer_refused(socket, reading);
    }
    xpd_reading_release(reading);
    xpp_job_free(job);
    roots_release(&write_roots);
    roots_release(&roots);
    return exit_code(result);
}

int xpd_serve(int socket)
{
    xpp_ipc_message message;
    xpp_ipc_result result;
    xpd_reading reading = {.memory_max = xpd_memory_available()}; /* before /proc is out of reach */
    int code = 1;

    xpd_sandbox_limit(CPU_SECONDS_READ);
    result = xpp_ipc_receive(socket, &message);
    if (result != XPP_IPC_OK)
        return exit_code(result);
    if (message.type == XPP_IPC_PROBE)
        xpd_sandbox_limit(CPU_SECONDS_PROBE);
    reading.arrays = message.type == XPP_IPC_READ;
    if (reading.arrays && json_is_array(json_object_get(message.body, "arrays_only")))
        code = serve_arrays(socket, message.body);
    else if (reading.arrays || message.type == XPP_IPC_PROBE)
        code = serve_job(socket, &reading, message.body);
    xpp_ipc_message_release(&message);
    return code;
}
