/* Each array is read whole, sealed in a memory file, and described by its shape and, where its file
 * says so, by the place of its first pixel and the rectangle of the patch centres. */
#include "arrays.h"

#include "memory.h"

#include <string.h>
#include <unistd.h>

/* The true object of a simulated scan has no place of its own among the defaults of a job. */
static xpe_status read_array(xpe_array *out, const char *path, const char *dataset, bool probe,
                             const xpe_roots *roots, const char *pointer, xpe_error *err)
{
    xpe_array_use use = probe ? XPE_ARRAY_PROBE : XPE_ARRAY_OBJECT;
    xpe_status st = xpe_array_read(out, path, dataset, use, false, roots, pointer, err);

    if (st == XPE_INVALID && !dataset &&
        xpe_array_read(out, path, probe ? "/truth/probe" : "/truth/object", use, false, roots,
                       pointer, NULL) == XPE_OK)
        st = XPE_OK;
    return st;
}

static json_t *describe(const xpe_array *a, const char *name, const xpe_array_place *place)
{
    json_t *entry =
        json_pack("{s:s, s:s, s:[I,I,I], s:s, s:o}", "name", name, "type", "complex64", "shape",
                  (json_int_t)a->shape[0], (json_int_t)a->shape[1], (json_int_t)a->shape[2],
                  "dataset", a->dataset, "pixel_m", xpp_number(place->pixel_m));

    if (place->has_origin)
        json_object_set_new(entry, "origin_m",
                            json_pack("[f,f]", place->origin_m[0], place->origin_m[1]));
    if (place->has_extent)
        json_object_set_new(entry, "extent_m",
                            json_pack("[f,f,f,f]", place->extent_m[0], place->extent_m[1],
                                      place->extent_m[2], place->extent_m[3]));
    return entry;
}

/* One wish; appends to entries and returns the descriptor, or -1 with an error added. */
static int take(json_t *entries, json_t *errors, const json_t *wish, size_t index,
                const xpe_roots *roots)
{
    const char *path = json_string_value(json_object_get(wish, "path"));
    const char *dataset = json_string_value(json_object_get(wish, "dataset"));
    const char *use = json_string_value(json_object_get(wish, "use"));
    bool probe = use && strcmp(use, "probe") == 0;
    xpe_array_place place = {0};
    xpe_array array = {0};
    char pointer[64], name[32];
    xpe_error err = {0};
    xpe_status st;
    int fd = -1;

    snprintf(pointer, sizeof pointer, "/arrays_only/%zu/path", index);
    snprintf(name, sizeof name, "array%zu", index);
    if (!path)
        st = xpe_fail(&err, XPE_INVALID, pointer, "array %zu has no path", index);
    else /* no pointer there: the sentence is for a person, who gave files and no document */
        st = read_array(&array, path, dataset, probe, roots, "", &err);
    if (st == XPE_OK && !probe)
        st = xpe_array_place_read(&place, path, array.dataset, roots, "", &err);
    if (st == XPE_OK) {
        fd = xpd_memory_copy(name, array.data, array.shape[0] * array.shape[1] * array.shape[2] * 8,
                             &err);
        if (fd >= 0)
            json_array_append_new(entries, describe(&array, name, &place));
    }
    if (fd < 0)
        xpp_errors_add(errors, pointer, "%s", err.text);
    xpe_array_release(&array);
    return fd;
}

xpp_ipc_result xpd_arrays_answer(int socket, const json_t *wanted, const xpe_roots *roots)
{
    json_t *entries = json_array(), *errors = json_array(), *body = NULL;
    xpp_ipc_result result = XPP_IPC_FAILED;
    int fds[XPP_IPC_FDS_MAX], count = 0;
    const json_t *wish;
    size_t i;

    if (!entries || !errors || json_array_size(wanted) > XPP_IPC_FDS_MAX)
        goto done;
    json_array_foreach (wanted, i, wish) {
        int fd = take(entries, errors, wish, i, roots);

        if (fd >= 0)
            fds[count++] = fd;
    }
    if (json_array_size(errors) > 0) {
        const char *first = json_string_value(json_object_get(json_array_get(errors, 0), "detail"));

        body = json_pack("{s:o}", "problem",
                         xpp_problem(XPP_FAULT_DATASET, first, json_incref(errors), NULL));
        result = body ? xpp_ipc_send(socket, XPP_IPC_REFUSED, body, NULL, 0) : XPP_IPC_FAILED;
    } else {
        body = json_pack("{s:O}", "arrays", entries);
        result = body ? xpp_ipc_send(socket, XPP_IPC_SCAN, body, fds, count) : XPP_IPC_FAILED;
    }
done:
    for (int k = 0; k < count; k++)
        close(fds[k]);
    json_decref(body);
    json_decref(errors);
    json_decref(entries);
    return result;
}
