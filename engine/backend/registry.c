/* Names of devices to backends, and the reason why one is missing.  Compiled with the backend that
 * a program links (XPE_WITH_CPU, XPE_WITH_CUDA), because the two workers must not link each other's
 * transforms. */
#include "backend.h"

#include <stdio.h>
#include <string.h>

#ifdef XPE_WITH_CPU
extern const xpe_backend xpe_backend_cpu;
#endif
#ifdef XPE_WITH_CUDA
extern const xpe_backend xpe_backend_cuda;
#endif

/* What a refusal recommends: a device that this program can serve. */
#ifdef XPE_WITH_CPU
#define USABLE "\"cpu\""
#else
#define USABLE "\"cuda:0\""
#endif

typedef struct kind {
    const char *prefix;
    const xpe_backend *backend;
    const char *absent; /* why backend is NULL */
} kind;

static const kind kinds[] = {
#ifdef XPE_WITH_CPU
    {"cpu", &xpe_backend_cpu, ""},
#else
    {"cpu", NULL, "this worker is built without the CPU backend"},
#endif
#ifdef XPE_WITH_CUDA
    {"cuda", &xpe_backend_cuda, ""},
#else
    {"cuda", NULL, "built without CUDA"},
#endif
};

#define KINDS (sizeof kinds / sizeof *kinds)

static const kind *find(const char *name)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t length = strlen(kinds[i].prefix);
        if (strncmp(name, kinds[i].prefix, length) == 0 &&
            (name[length] == 0 || name[length] == ':'))
            return &kinds[i];
    }
    return NULL;
}

size_t xpe_devices_list(xpe_device_info *out, size_t max)
{
    size_t count = 0;

    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i].backend) {
            count += kinds[i].backend->list(out + (count < max ? count : max),
                                            count < max ? max - count : 0);
            continue;
        }
        if (count < max) {
            memset(&out[count], 0, sizeof out[count]);
            snprintf(out[count].name, sizeof out[count].name, "%s", kinds[i].prefix);
            snprintf(out[count].absent, sizeof out[count].absent, "%s", kinds[i].absent);
        }
        count++;
    }
    return count;
}

static void absent(xpe_device_info *out, const char *name, const char *why)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->absent, sizeof out->absent, "%s", why);
}

static void look(xpe_device_info *out, const char *name)
{
    const kind *k = find(name);

    if (!k || !k->backend) {
        absent(out, name, k ? k->absent : "no device is called so");
    } else if (k->backend->look) {
        k->backend->look(out, name);
    } else {
        (void)k->backend->list(out, 1);
        if (strcmp(out->name, name) != 0)
            absent(out, name, "no device is called so");
    }
}

void xpe_devices_look(xpe_device_info *out, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        look(&out[i], names[i]);
}

void xpe_devices_memory(xpe_device_info *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const kind *k = devices[i].absent[0] ? NULL : find(devices[i].name);

        if (k && k->backend)
            k->backend->memory(&devices[i]);
    }
}

void xpe_devices_links(xpe_device_info *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const kind *k = devices[i].absent[0] ? NULL : find(devices[i].name);

        if (k && k->backend && k->backend->links)
            k->backend->links(&devices[i]);
    }
}

xpe_status xpe_backend_find(const xpe_backend **out, const xpe_device_list *devices, xpe_error *err)
{
    const kind *first = NULL;

    *out = NULL;
    if (devices->count < 1)
        return xpe_fail(err, XPE_INVALID, "/devices",
                        "no device was named; name at least one, for instance \"cpu\"");
    for (int i = 0; i < devices->count; i++) {
        const kind *k = find(devices->names[i]);
        if (!k)
            return xpe_fail(err, XPE_NO_DEVICE, "/devices/devices",
                            "no device is called '%s'; use \"cpu\" or \"cuda:0\"",
                            devices->names[i]);
        if (!k->backend)
            return xpe_fail(err, XPE_NO_DEVICE, "/devices/devices",
                            "device '%s' cannot be used: %s; use " USABLE, devices->names[i],
                            k->absent);
        if (first && k != first)
            return xpe_fail(err, XPE_INVALID, "/devices/devices",
                            "'%s' and '%s' cannot work on one job; name devices of one kind",
                            devices->names[0], devices->names[i]);
        first = k;
    }
    *out = first->backend;
    return XPE_OK;
}
