/* NumPy arrays and archives of them, as `xptycho import` takes them: whatever a header claims, the
 * elements are those that are there. */
#include "fuzz.h"

#include "reader/npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY_MAX ((int64_t)1 << 20)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

/* Into native order; every byte must be there to be read, and of the real ones a type is known. */
static void normalise(xpd_npy a, const uint8_t *elements, size_t size)
{
    size_t bytes = (size_t)(a.count * a.item);
    void *data = malloc(bytes + 1);
    uint8_t sum = 0;
    xpe_error err;

    FUZZ_CHECK(data && bytes <= size);
    memcpy(data, elements, bytes);
    if (xpd_npy_normalise(&a, &data, &err) == XPE_OK) {
        FUZZ_CHECK(!a.swapped && !a.fortran);
        for (size_t i = 0; i < (size_t)(a.count * a.item); i++)
            sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
    } else {
        FUZZ_CHECK(err.text[0]);
    }
    free(data);
    (void)sum;
}

static void array(const uint8_t *data, size_t size)
{
    size_t header = size >= 12 ? xpd_npy_header_size(data) : 0;
    char shape[128];
    xpd_npy a;
    xpe_error err = {0};

    FUZZ_CHECK(header <= XPD_NPY_HEADER_MAX);
    if (header == 0 || header > size)
        return;
    if (xpd_npy_decode(&a, data, header, "a", &err) != XPE_OK) {
        FUZZ_CHECK(err.text[0] && !strchr(err.text, '\n'));
        return;
    }
    FUZZ_CHECK(a.rank <= XPD_NPY_RANK_MAX && a.count >= 0 && a.item > 0);
    FUZZ_CHECK(a.count <= INT64_MAX / a.item);
    FUZZ_CHECK(strlen(xpd_npy_shape(&a, shape)) < sizeof shape);
    xpd_npy_squeeze(&a, 3);
    if (a.count * a.item <= (int64_t)(size - header))
        normalise(a, data + header, size - header);
}

static void archive(const uint8_t *data, size_t size)
{
    static const char *const wanted[] = {"frames", "positions", NULL};
    char path[64];
    xpd_archive out;
    xpe_error err = {0};
    int64_t loaded = 0;
    int fd = memfd_create("archive", MFD_CLOEXEC);

    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (xpd_archive_read(&out, path, wanted, MEMORY_MAX, &err) == XPE_OK) {
        for (size_t i = 0; i < out.count; i++) {
            const xpd_entry *e = &out.entries[i];
            FUZZ_CHECK(memchr(e->name, 0, sizeof e->name));
            if (e->data) {
                loaded += e->header.count * e->header.item;
                normalise(e->header, e->data, (size_t)(e->header.count * e->header.item));
            }
        }
        FUZZ_CHECK(loaded <= MEMORY_MAX);
        xpd_archive_release(&out);
    } else {
        FUZZ_CHECK(err.text[0]);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    array(data, size);
    archive(data, size);
    return 0;
}
