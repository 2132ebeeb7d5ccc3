/* Runs an entry on every seed of a folder and on mutations of them.
 *
 *     fuzz_NAME FOLDER ROUNDS
 *
 * The mutations come from a fixed start, so the same program sees the same inputs.  An input that
 * crashes stands in the file crash-NAME of the working folder, and `fuzz_NAME FILE 0` repeats it.
 */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_MAX 4096
#define SEEDS_MAX 256

typedef struct input {
    uint8_t bytes[INPUT_MAX];
    size_t size;
} input;

static input seeds[SEEDS_MAX];
static size_t seed_count;
static input *shared; /* the current input, in a mapped file: it survives a crash */
static uint64_t random_state = 0x9E3779B97F4A7C15u;

/* xorshift64*; the low bits are the weak ones. */
static size_t pick(size_t count)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (size_t)((random_state * 0x2545F4914F6CDD1Du) >> 33) % count;
}

static void seed_read(const char *path)
{
    FILE *file = fopen(path, "rb");

    if (!file || seed_count == SEEDS_MAX) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    seeds[seed_count].size = fread(seeds[seed_count].bytes, 1, INPUT_MAX, file);
    seed_count++;
    fclose(file);
}

static void seeds_read(const char *path)
{
    struct dirent **entries;
    struct stat status;
    int count;

    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
        seed_read(path);
        return;
    }
    count = scandir(path, &entries, NULL, alphasort); /* in an order that every machine shares */
    for (int i = 0; i < count; i++) {
        char name[4096];

        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            seed_read(name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* One small change; the tokens are what the grammars of the decoders turn on. */
static void mutate(input *in)
{
    static const char *const tokens[] = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"",
                                         "\\u0000",
                                         "\\",
                                         "null",
                                         "true",
                                         "1e400",
                                         "-1",
                                         "0.5",
                                         "99999999999999999999",
                                         "\xff",
                                         "\xC3\xA9",
                                         "\n",
                                         "/",
                                         "pmace",
                                         "cpu",
                                         "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                         "{\"a\":",
                                         "NaN"};
    size_t at = in->size ? pick(in->size) : 0, length, from;
    const char *token;

    switch (pick(6)) {
    case 0: /* flip a bit */
        if (in->size)
            in->bytes[at] ^= (uint8_t)(1u << pick(8));
        break;
    case 1: /* any byte */
        if (in->size)
            in->bytes[at] = (uint8_t)pick(256);
        break;
    case 2: /* cut a piece out */
        length = pick(in->size - at + 1);
        memmove(in->bytes + at, in->bytes + at + length, in->size - at - length);
        in->size -= length;
        break;
    case 3: /* put a token in */
        token = tokens[pick(sizeof tokens / sizeof *tokens)];
        length = strlen(token);
        if (in->size + length <= INPUT_MAX) {
            memmove(in->bytes + at + length, in->bytes + at, in->size - at);
            memcpy(in->bytes + at, token, length);
            in->size += length;
        }
        break;
    case 4: /* repeat a piece */
        length = in->size ? pick(in->size - at) + 1 : 0;
        if (in->size && in->size + length <= INPUT_MAX) {
            memmove(in->bytes + at + length, in->bytes + at, in->size - at);
            in->size += length;
        }
        break;
    default: /* a piece of another seed */
        from = pick(seed_count);
        length = seeds[from].size ? pick(seeds[from].size) + 1 : 0;
        if (length > INPUT_MAX - at)
            length = INPUT_MAX - at;
        memcpy(in->bytes + at, seeds[from].bytes, length);
        if (at + length > in->size)
            in->size = at + length;
    }
}

/* On the heap in its exact size, so that a sanitizer sees the first byte too far. */
static void run(void)
{
    uint8_t *exact = malloc(shared->size ? shared->size : 1);

    if (!exact)
        exit(2);
    memcpy(exact, shared->bytes, shared->size);
    LLVMFuzzerTestOneInput(exact, shared->size);
    free(exact);
}

/* The input as it stands, without the rest of the buffer. */
static int shared_open(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || ftruncate(fd, sizeof *shared) != 0)
        return -1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return shared == MAP_FAILED ? -1 : 0;
}

int main(int argc, char **argv)
{
    char crash[256];
    const char *name = strrchr(argv[0], '/');
    long rounds = argc == 3 ? strtol(argv[2], NULL, 10) : -1;

    snprintf(crash, sizeof crash, "crash-%s", name ? name + 1 : argv[0]);
    if (rounds < 0 || shared_open(crash) != 0) {
        fprintf(stderr, "usage: %s FOLDER ROUNDS\n", argv[0]);
        return 2;
    }
    LLVMFuzzerInitialize(&argc, &argv);
    seeds_read(argv[1]);
    if (seed_count == 0) {
        fprintf(stderr, "no seeds in %s\n", argv[1]);
        return 2;
    }
    for (size_t i = 0; i < seed_count; i++) {
        *shared = seeds[i];
        run();
    }
    for (long i = 0; i < rounds; i++) {
        *shared = seeds[pick(seed_count)];
        for (size_t changes = 1 + pick(8); changes > 0; changes--)
            mutate(shared);
        run();
    }
    unlink(crash);
    printf("%zu seeds, %ld mutations\n", seed_count, rounds);
    return 0;
}
