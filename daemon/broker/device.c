/* See device.h. */
#include "device.h"

#include <stdio.h>
#include <string.h>

static bool take_text(char *out, size_t size, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, size, "%s", text ? text : "");
    return text != NULL;
}

/* A worker that knows nothing of links does not say it. */
static bool take_reach(xpe_device_info *d, const json_t *item)
{
    const json_t *list = json_object_get(item, "reach");
    size_t count = json_array_size(list);

    if (list && (!json_is_array(list) || count > XPE_PEERS_MAX))
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *reach = json_array_get(list, i);
        json_int_t value = json_integer_value(reach);
        if (!json_is_integer(reach) || value < 0 || value > XPE_REACH_MAX)
            return false;
        d->reach[i] = (uint8_t)value;
    }
    return true;
}

bool xpd_devices_decode(xpd_devices *out, const json_t *hello)
{
    const json_t *list = json_object_get(hello, "devices");

    memset(out, 0, sizeof *out);
    if (!json_is_array(list))
        return false;
    for (size_t i = 0; i < json_array_size(list) && i < XPP_DEVICES_MAX; i++) {
        const json_t *item = json_array_get(list, i);
        xpe_device_info *d = &out->items[out->count];
        if (!take_text(d->name, sizeof d->name, item, "name") || !d->name[0])
            return false;
        take_text(d->model, sizeof d->model, item, "model");
        take_text(d->absent, sizeof d->absent, item, "absent");
        d->bytes_total = json_integer_value(json_object_get(item, "bytes_total"));
        d->bytes_free = json_integer_value(json_object_get(item, "bytes_free"));
        d->threads = (int)json_integer_value(json_object_get(item, "threads"));
        if (d->bytes_total < 0 || d->bytes_free < 0 || d->threads < 0 || !take_reach(d, item))
            return false;
        out->count++;
    }
    out->known = true;
    return true;
}

const xpe_device_info *xpd_devices_find(const xpd_devices *devices, const char *name)
{
    for (int i = 0; i < devices->count; i++) {
        if (strcmp(devices->items[i].name, name) == 0)
            return &devices->items[i];
    }
    return NULL;
}

bool xpd_devices_update(xpd_devices *devices, const json_t *pong)
{
    const json_t *list = json_object_get(pong, "devices");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        int64_t total = json_integer_value(json_object_get(item, "bytes_total")),
                left = json_integer_value(json_object_get(item, "bytes_free"));

        if (!name || total < 0 || left < 0)
            return false;
        for (int k = 0; k < devices->count; k++) {
            xpe_device_info *d = &devices->items[k];
            if (strcmp(d->name, name) != 0)
                continue;
            d->bytes_total = total;
            d->bytes_free = left;
        }
    }
    return true;
}

bool xpd_devices_usable(const xpd_devices *devices)
{
    for (int i = 0; i < devices->count; i++) {
        if (!devices->items[i].absent[0])
            return true;
    }
    return false;
}

/* -------------------------------------------------------------------------------------- links */

/* What the one says of the other. */
static int far_from(const xpe_device_info *d, const xpe_device_info *other)
{
    int number, end = 0;

    if (sscanf(other->name, "cuda:%2d%n", &number, &end) < 1 || other->name[end] || number < 0 ||
        number >= XPE_PEERS_MAX || d->reach[number] == 0)
        return XPD_FAR;
    return d->reach[number];
}

int xpd_devices_far(const xpd_devices *a, const xpd_devices *b)
{
    int most = 0;

    for (int i = 0; i < a->count; i++) {
        for (int k = 0; k < b->count; k++) {
            const xpe_device_info *d = &a->items[i], *other = &b->items[k];
            if (d->absent[0] || other->absent[0])
                continue;
            int there = far_from(d, other), back = far_from(other, d);
            most = there > most ? there : most;
            most = back > most ? back : most;
        }
    }
    return most ? most : XPD_FAR;
}

/* ------------------------------------------------------------------------------------ choice */

static bool is_gpu(const xpe_device_info *d)
{
    return strncmp(d->name, "cuda", 4) == 0 && !d->absent[0];
}

static void choose(xpd_choice *out, const xpe_device_info *d)
{
    snprintf(out->names[out->count], sizeof out->names[0], "%s", d->name);
    out->bytes_free[out->count] = d->bytes_free;
    out->count++;
}

/* "cpu, cuda:0" */
static void list_usable(char *out, size_t size, const xpd_devices *devices)
{
    size_t at = 0;
    snprintf(out, size, "none");
    for (int i = 0; i < devices->count && at < size; i++) {
        if (!devices->items[i].absent[0])
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "",
                                   devices->items[i].name);
    }
}

/* Why there is no such device: the reason of the device itself, else that of its kind. */
static const char *why_absent(const xpd_devices *devices, const char *name)
{
    const xpe_device_info *d = xpd_devices_find(devices, name);
    if (d)
        return d->absent;
    size_t kind = strcspn(name, ":");
    for (int i = 0; i < devices->count; i++) {
        const xpe_device_info *other = &devices->items[i];
        if (other->absent[0] && strcspn(other->name, ":") == kind &&
            strncmp(other->name, name, kind) == 0)
            return other->absent;
    }
    if (kind == 4 && strncmp(name, "cuda", 4) == 0) {
        for (int i = 0; i < devices->count; i++) {
            if (is_gpu(&devices->items[i]))
                return "there is no device of this number";
        }
        return "built without CUDA";
    }
    return "there is no such device";
}

static bool choose_named(xpd_choice *out, const xpd_devices *devices, const xpp_job *job,
                         xpd_error *err)
{
    for (int i = 0; i < job->devices.count && i < XPP_DEVICES_MAX; i++) {
        const char *name = job->devices.names[i];
        const xpe_device_info *d = xpd_devices_find(devices, name);
        char pointer[64], usable[256];

        snprintf(pointer, sizeof pointer, "/devices/devices/%d", i);
        if (!d || d->absent[0]) {
            list_usable(usable, sizeof usable, devices);
            return xpd_fail(err, XPP_FAULT_NO_DEVICE, pointer, "device '%s': %s; usable here: %s",
                            name, why_absent(devices, name), usable);
        }
        choose(out, d);
    }
    return true;
}

bool xpd_devices_choose(xpd_choice *out, const xpd_devices *devices, const xpp_job *job,
                        xpd_error *err)
{
    int gpus = 0, wanted = job->devices.num_devices;
    const xpe_device_info *cpu = xpd_devices_find(devices, "cpu");
    char usable[256];

    memset(out, 0, sizeof *out);
    if (job->devices.count > 0)
        return choose_named(out, devices, job, err);
    for (int i = 0; i < devices->count; i++)
        gpus += is_gpu(&devices->items[i]);
    if (wanted > gpus && !(wanted == 1 && gpus == 0 && cpu && !cpu->absent[0])) {
        list_usable(usable, sizeof usable, devices);
        return xpd_fail(err, XPP_FAULT_NO_DEVICE, "/devices/num_devices",
                        "num_devices is %d and counts CUDA devices, of which there are %d%s%s; "
                        "usable here: %s; "
                        "\"devices\": [\"cpu\", \"cpu\"] shards a job on the CPU",
                        wanted, gpus, gpus ? "" : ": ", gpus ? "" : why_absent(devices, "cuda"),
                        usable);
    }
    if (gpus > 0) {
        int limit = wanted > 0 ? wanted : gpus;
        for (int i = 0; i < devices->count && out->count < limit; i++) {
            if (is_gpu(&devices->items[i]))
                choose(out, &devices->items[i]);
        }
        return true;
    }
    if (!cpu || cpu->absent[0])
        return xpd_fail(err, XPP_FAULT_NO_DEVICE, "", "no device is usable: %s",
                        cpu ? cpu->absent : "the worker has none");
    choose(out, cpu);
    return true;
}

json_t *xpd_choice_names(const xpd_choice *choice)
{
    json_t *list = json_array();
    for (int i = 0; i < choice->count; i++)
        json_array_append_new(list, json_string(choice->names[i]));
    return list;
}

void xpd_choice_refresh(xpd_choice *choice, const xpd_devices *devices)
{
    for (int i = 0; i < choice->count; i++) {
        const xpe_device_info *d = xpd_devices_find(devices, choice->names[i]);
        if (d)
            choice->bytes_free[i] = d->bytes_free;
    }
}
