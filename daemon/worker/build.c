/* Two builds of one version by one compiler may differ in every bit that they compute: the linker's
 * build id, a hash of what it linked, tells them apart.  The same holds for another version of the
 * libraries below. */
#include "build.h"

#include "xptychod/engine.h"

#include <elf.h>
#include <link.h>
#include <nettle/sha2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool computes(const char *path)
{
    static const char *const names[] = {"libfftw3", "libm.", "libcufft.", "libcudart.", "libnccl."};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return name[0] == '\0'; /* the program itself */
}

/* The notes of one segment; sizes are padded to four bytes. */
static void hash_notes(struct sha256_ctx *hash, const char *at, size_t size)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        size_t name, text;

        memcpy(&note, at, sizeof note);
        name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        text = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name > size - sizeof note || text > size - sizeof note - name)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(at + sizeof note, "GNU", 4) == 0)
            sha256_update(hash, note.n_descsz, (const uint8_t *)at + sizeof note + name);
        at += sizeof note + name + text;
        size -= sizeof note + name + text;
    }
}

static int hash_object(struct dl_phdr_info *info, size_t size, void *hash)
{
    (void)size;
    if (!computes(info->dlpi_name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];

        if (part->p_type == PT_NOTE)
            hash_notes(hash, (const char *)(info->dlpi_addr + part->p_vaddr), part->p_memsz);
    }
    return 0;
}

void xpd_build_text(char *out, size_t size)
{
    struct sha256_ctx hash;
    uint8_t digest[8];

    sha256_init(&hash);
    dl_iterate_phdr(hash_object, &hash);
    sha256_digest(&hash, sizeof digest, digest);
    snprintf(out, size, "%.120s, %02x%02x%02x%02x%02x%02x%02x%02x", xpe_build_identity(), digest[0],
             digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7]);
}
