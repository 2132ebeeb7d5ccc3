/* What the package calls itself, its jobs and its programs. */
#include "xptychod/protocol.h"

#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"; /* Crockford's base 32 */

void xpp_init(void)
{
    xpp_json_watch();
    json_object_seed(0); /* from the system; jansson's own first use is not safe with threads */
}

const char *xpp_version(void)
{
    return XPTYCHOD_VERSION;
}

/* 48 bits of milliseconds, then 80 random ones, most significant first: a ULID. */
void xpp_job_id_make(char out[XPP_JOB_ID_SIZE])
{
    unsigned char bytes[16];
    struct timespec now;
    uint64_t ms, high, low;

    clock_gettime(CLOCK_REALTIME, &now);
    ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    for (int i = 0; i < 6; i++)
        bytes[i] = (unsigned char)(ms >> (40 - 8 * i));
    /* Up to 256 bytes come whole; only a signal before the pool's first filling interrupts. */
    while (getrandom(bytes + 6, 10, 0) != 10)
        if (errno != EINTR)
            abort(); /* a kernel without getrandom: no id would be safe */
    high = low = 0;
    for (int i = 0; i < 8; i++) {
        high = high << 8 | bytes[i];
        low = low << 8 | bytes[8 + i];
    }
    for (int i = XPP_JOB_ID_SIZE - 2; i >= 0; i--) {
        out[i] = alphabet[low & 31];
        low = low >> 5 | high << 59;
        high >>= 5;
    }
    out[XPP_JOB_ID_SIZE - 1] = '\0';
}

bool xpp_job_id_valid(const char *id)
{
    for (size_t i = 0; i < XPP_JOB_ID_SIZE - 1; i++)
        if (id[i] == '\0' || !strchr(alphabet, id[i]))
            return false;
    return id[0] <= '7' && id[XPP_JOB_ID_SIZE - 1] == '\0';
}

bool xpp_program_find(char *out, size_t size, const char *name)
{
    char self[4096], beside[4096 + 64], moved[4096 + 192], installed[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    self[length < 0 ? 0 : length] = '\0';
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(beside, sizeof beside, "%s/%s", self, name);
    /* The installed tree as a whole may stand elsewhere: staged, or unpacked in a home folder. */
    snprintf(moved, sizeof moved, "%s/%s/%s", self, XPTYCHOD_LIBEXEC_FROM_BIN, name);
    snprintf(installed, sizeof installed, "%s/%s", XPTYCHOD_LIBEXECDIR, name);
    if (name[0] != '\0' && !strchr(name, '/')) {
        const char *found = access(beside, X_OK) == 0      ? beside
                            : access(moved, X_OK) == 0     ? moved
                            : access(installed, X_OK) == 0 ? installed
                                                           : NULL;

        if (found && snprintf(out, size, "%s", found) < (int)size)
            return true;
    }
    snprintf(out, size, "neither %s nor %s nor %s", beside, moved, installed);
    return false;
}
