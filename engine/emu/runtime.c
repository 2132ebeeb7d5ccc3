/* The gate that every call passes, devices and errors.
 *
 * xpe_emu_enter counts the call and says whether it has been told to fail; names are counted in a
 * small table.  The last error belongs to the thread, as in the CUDA runtime; cudaErrorNotReady and
 * cudaErrorPeerAccessAlreadyEnabled are kept there too, which is why their callers must take them
 * away. */
#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define NAMES 128

typedef struct tally {
    const char *name;
    uint64_t count;
} tally;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local const char *inside; /* the call this thread is in */
static _Thread_local int current;
static _Thread_local cudaError_t last_error;
static tally tallies[NAMES]; /* by name; ends at NULL */
static char fail_name[64];   /* "": any call */
static uint64_t fail_after;  /* 0: nothing fails */
static bool fail_onwards;
static const char *failed;

/* ------------------------------------------------------------------------------- the gate */

static void tally_add(const char *call)
{
    for (int i = 0; i < NAMES; i++) {
        if (!tallies[i].name)
            tallies[i] = (tally){call, 0};
        if (strcmp(tallies[i].name, call) == 0) {
            tallies[i].count++;
            return;
        }
    }
    xpe_emu_die("more than %d names of calls", NAMES);
}

static bool fails(const char *call)
{
    if (!fail_after || (fail_name[0] && strcmp(fail_name, call) != 0))
        return false;
    if (fail_after > 1) {
        fail_after--;
        return false;
    }
    fail_after = fail_onwards ? 1 : 0;
    if (!failed)
        failed = call;
    return true;
}

bool xpe_emu_enter(const char *call)
{
    if (inside) /* a test program that catches signals has jumped out of a kernel */
        xpe_emu_die("%s after a crash inside of %s", call ? call : "a call", inside);
    pthread_mutex_lock(&lock);
    inside = call ? call : "a call";
    if (!call)
        return false;
    if (strcmp(call, "xpe_emu_begin") == 0) {
        memset(tallies, 0, sizeof tallies);
        return false;
    }
    xpe_emu_ready();
    xpe_emu.counts.calls++;
    tally_add(call);
    return fails(call);
}

void xpe_emu_leave(void)
{
    inside = NULL;
    pthread_mutex_unlock(&lock);
}

void xpe_emu_fail(const char *name, uint64_t nth, bool onwards)
{
    (void)xpe_emu_enter(NULL);
    (void)snprintf(fail_name, sizeof fail_name, "%s", name ? name : "");
    fail_after = nth;
    fail_onwards = onwards;
    failed = NULL;
    xpe_emu_leave();
}

void xpe_emu_fail_never(void)
{
    (void)xpe_emu_enter(NULL);
    fail_after = 0;
    xpe_emu_leave();
}

const char *xpe_emu_failed(void)
{
    const char *call;

    (void)xpe_emu_enter(NULL);
    call = failed;
    xpe_emu_leave();
    return call;
}

uint64_t xpe_emu_calls(const char *name)
{
    uint64_t count = 0;

    (void)xpe_emu_enter(NULL);
    for (int i = 0; i < NAMES && tallies[i].name; i++)
        if (strcmp(tallies[i].name, name) == 0)
            count = tallies[i].count;
    xpe_emu_leave();
    return count;
}

/* --------------------------------------------------------------------------------- errors */

cudaError_t xpe_emu_note(cudaError_t rc)
{
    if (rc != cudaSuccess)
        last_error = rc;
    return rc;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t rc = last_error;

    last_error = cudaSuccess;
    return rc;
}

#define ERROR_LIST(X)                                                                              \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInsufficientDriver, "the driver is older than the runtime")                         \
    X(cudaErrorNoDevice, "no device")                                                              \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices")    \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorNotReady, "not ready")                                                              \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                         \
    X(cudaErrorLaunchFailure, "launch failure")                                                    \
    X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t rc)
{
    switch (rc) {
#define X(name, text)                                                                              \
    case name:                                                                                     \
        return #name;
        ERROR_LIST(X)
#undef X
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t rc)
{
    switch (rc) {
#define X(name, text)                                                                              \
    case name:                                                                                     \
        return text;
        ERROR_LIST(X)
#undef X
    }
    return "unrecognized error code";
}

/* -------------------------------------------------------------------------------- devices */

int xpe_emu_current(void)
{
    return current;
}

static bool exists(int device)
{
    return device >= 0 && device < xpe_emu.device_count;
}

static cudaError_t usable(int device)
{
    if (!exists(device))
        return xpe_emu.device_count ? cudaErrorInvalidDevice : cudaErrorNoDevice;
    return xpe_emu.devices[device].lost ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t rc = xpe_emu_enter("cudaGetDeviceCount") ? cudaErrorUnknown : cudaSuccess;

    *count = 0;
    if (rc == cudaSuccess && !xpe_emu.device_count)
        rc = cudaErrorNoDevice;
    if (rc == cudaSuccess)
        *count = xpe_emu.device_count;
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t rc = xpe_emu_enter("cudaSetDevice") ? cudaErrorUnknown : usable(device);

    if (rc == cudaSuccess || (exists(device) && xpe_emu.devices[device].lost))
        current = device; /* of a lost one, too: memory is given back on it */
    if (exists(device))
        xpe_emu.counts.devices |= UINT64_C(1) << device;
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t rc = xpe_emu_enter("cudaGetDeviceProperties") ? cudaErrorUnknown : usable(device);

    memset(prop, 0, sizeof *prop);
    if (rc == cudaSuccess) {
        (void)snprintf(prop->name, sizeof prop->name, "cuda (emulated)");
        prop->totalGlobalMem = xpe_emu.devices[device].bytes;
        prop->major = 9;
        prop->multiProcessorCount = 1;
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    cudaError_t rc = xpe_emu_enter("cudaMemGetInfo") ? cudaErrorUnknown : usable(current);

    *free = *total = 0;
    if (rc == cudaSuccess) {
        const xpe_emu_device *d = &xpe_emu.devices[current];
        *total = d->bytes;
        *free = d->used < d->bytes ? d->bytes - d->used : 0;
    }
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t rc = xpe_emu_enter("cudaDeviceCanAccessPeer") ? cudaErrorUnknown : usable(device);

    *can = 0;
    if (rc == cudaSuccess && !exists(peer))
        rc = cudaErrorInvalidDevice;
    if (rc == cudaSuccess)
        *can = xpe_emu.devices[device].can_reach[peer];
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    cudaError_t rc = xpe_emu_enter("cudaDeviceGetP2PAttribute") ? cudaErrorUnknown : usable(device);

    *value = 0;
    if (rc == cudaSuccess && (!exists(peer) || peer == device))
        rc = cudaErrorInvalidDevice;
    if (rc == cudaSuccess && attribute != cudaDevP2PAttrPerformanceRank)
        rc = cudaErrorInvalidValue;
    if (rc == cudaSuccess) /* also where there is no way, of which it says nothing */
        *value = xpe_emu.devices[device].rank[peer];
    xpe_emu_leave();
    return xpe_emu_note(rc);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    cudaError_t rc =
        xpe_emu_enter("cudaDeviceEnablePeerAccess") ? cudaErrorUnknown : usable(current);

    if (rc == cudaSuccess && (!exists(peer) || peer == current))
        rc = cudaErrorInvalidDevice;
    if (rc == cudaSuccess && flags)
        rc = cudaErrorInvalidValue;
    if (rc == cudaSuccess && !xpe_emu.devices[current].can_reach[peer])
        rc = cudaErrorPeerAccessUnsupported;
    if (rc == cudaSuccess && xpe_emu.devices[current].reaches[peer])
        rc = cudaErrorPeerAccessAlreadyEnabled;
    if (rc == cudaSuccess)
        xpe_emu.devices[current].reaches[peer] = true;
    xpe_emu_leave();
    return xpe_emu_note(rc);
}
