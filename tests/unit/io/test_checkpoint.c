/* Checkpoint files: what is read is what was written, and nothing else is ever believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/write/checkpoint.h"
#include "temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { FRAMES = 3, SIDE = 4, RECORDS = 5, PAYLOAD = 300000 };

/* fsync can be told to fail; the linker sends the library's calls here. */
static int fsyncs_left = -1; /* that succeed; negative = all */
int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    if (fsyncs_left == 0) {
        errno = EIO;
        return -1;
    }
    if (fsyncs_left > 0)
        fsyncs_left--;
    return __real_fsync(fd);
}

typedef struct fixture {
    char folder[128], said[4][700];
    int said_count;
    xpe_checkpoint_record records[RECORDS];
    double positions[FRAMES * 2], gain[FRAMES];
    xpe_c32 probe[2 * SIDE * SIDE];
    uint8_t payload[PAYLOAD];
    xpe_checkpoint head;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    *state = f;
    fsyncs_left = -1;
    for (int i = 0; i < RECORDS; i++)
        f->records[i] =
            (xpe_checkpoint_record){i == 2 ? NAN : 1.0 / (i + 3), 0.25f * (float)i, 1 + i / 3};
    for (int i = 0; i < FRAMES * 2; i++)
        f->positions[i] = 1e-8 * i;
    for (int i = 0; i < FRAMES; i++)
        f->gain[i] = i;
    for (int i = 0; i < 2 * SIDE * SIDE; i++)
        f->probe[i] = (xpe_c32){(float)i, (float)-i};
    for (int i = 0; i < PAYLOAD; i++)
        f->payload[i] = (uint8_t)(i * 7 + i / 256);
    f->head = (xpe_checkpoint){.build = "build 1",
                               .device = "cpu: some",
                               .job = "01KG7Q3N6W8Y2M4T6V8X0Z1A3C",
                               .stage = 2,
                               .iteration = 3,
                               .start_modes = 2,
                               .num_frames = FRAMES,
                               .n = SIDE,
                               .grid = {6, 7, {1e-9, -2e-9}, 3e-9},
                               .seconds = 12.5,
                               .record_count = RECORDS,
                               .records = f->records,
                               .positions = f->positions,
                               .gain = f->gain,
                               .start_probe = f->probe};
    memset(f->head.scan, 0x5A, sizeof f->head.scan);
    memset(f->head.recon, 0xA5, sizeof f->head.recon);
    return f && temporary_make(f->folder, sizeof f->folder) ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;

    temporary_remove(f->folder);
    free(f);
    return 0;
}

static void hear(void *arg, const char *text)
{
    fixture *f = arg;

    assert_true(f->said_count < 4);
    snprintf(f->said[f->said_count++], sizeof f->said[0], "%s", text);
}

static xpe_status write_slot(fixture *f, int slot, xpe_error *err)
{
    xpe_checkpoint_writer *w = NULL;
    int64_t bytes = 0;
    xpe_status st = xpe_checkpoint_begin(&w, f->folder, slot, &f->head, PAYLOAD, err);

    if (st == XPE_OK) /* in unequal pieces, as the engine does */
        st = xpe_checkpoint_put(w, f->payload, 1000, err);
    if (st == XPE_OK)
        st = xpe_checkpoint_put(w, f->payload + 1000, PAYLOAD - 1000, err);
    if (st == XPE_OK)
        st = xpe_checkpoint_finish(w, &bytes, err);
    if (st == XPE_OK)
        assert_true(bytes > PAYLOAD);
    xpe_checkpoint_writer_destroy(w);
    return st;
}

static void write_good(fixture *f, int slot, int64_t records, int iteration)
{
    xpe_error err = {0};

    f->head.record_count = records;
    f->head.iteration = iteration;
    if (write_slot(f, slot, &err) != XPE_OK)
        fail_msg("%s", err.text);
}

/* The reader, or NULL; the caller's. */
static xpe_checkpoint_reader *find(fixture *f, bool *foreign)
{
    xpe_checkpoint_reader *r = NULL;
    bool other;
    xpe_error err = {0};

    f->said_count = 0;
    assert_int_equal(
        xpe_checkpoint_find(&r, f->folder, &f->head, foreign ? foreign : &other, hear, f, &err),
        XPE_OK);
    return r;
}

static void path_of(char *out, size_t size, const fixture *f, int slot)
{
    snprintf(out, size, "%s/checkpoint.%d", f->folder, slot);
}

/* Iteration of what is found, 0 = nothing. */
static int found_iteration(fixture *f, bool *foreign)
{
    xpe_checkpoint_reader *r = find(f, foreign);
    int iteration = r ? xpe_checkpoint_head(r)->iteration : 0;

    xpe_checkpoint_reader_destroy(r);
    return iteration;
}

static void what_is_found_is_what_was_written(void **state)
{
    fixture *f = *state;
    uint8_t *back = malloc(PAYLOAD);
    const xpe_checkpoint *c;
    xpe_checkpoint_reader *r;

    write_good(f, 0, RECORDS, 3);
    r = find(f, NULL);
    assert_non_null(r);
    assert_int_equal(f->said_count, 0);
    assert_int_equal(xpe_checkpoint_slot(r), 0);
    c = xpe_checkpoint_head(r);
    assert_int_equal(c->stage, 2);
    assert_int_equal(c->start_modes, 2);
    assert_int_equal(c->record_count, RECORDS);
    assert_memory_equal(c->records, f->records, sizeof f->records);
    assert_memory_equal(c->positions, f->positions, sizeof f->positions);
    assert_memory_equal(c->gain, f->gain, sizeof f->gain);
    assert_memory_equal(c->start_probe, f->probe, sizeof f->probe);
    assert_memory_equal(&c->grid, &f->head.grid, sizeof c->grid);
    assert_memory_equal(&c->seconds, &f->head.seconds, sizeof c->seconds);
    assert_int_equal(xpe_checkpoint_take(r, back, 77, NULL), XPE_OK);
    assert_int_equal(xpe_checkpoint_take(r, back + 77, PAYLOAD - 77, NULL), XPE_OK);
    assert_memory_equal(back, f->payload, PAYLOAD);
    assert_int_equal(xpe_checkpoint_take(r, back, 1, NULL), XPE_INVALID);
    xpe_checkpoint_reader_destroy(r);
    free(back);
}

static void first_stage_carries_neither_probe_nor_positions(void **state)
{
    fixture *f = *state;
    xpe_checkpoint_reader *r;

    f->head.positions = f->head.gain = NULL;
    f->head.start_probe = NULL;
    write_good(f, 1, 3, 3);
    r = find(f, NULL);
    assert_non_null(r);
    assert_null(xpe_checkpoint_head(r)->positions);
    assert_null(xpe_checkpoint_head(r)->gain);
    assert_null(xpe_checkpoint_head(r)->start_probe);
    assert_int_equal(xpe_checkpoint_head(r)->start_modes, 0);
    xpe_checkpoint_reader_destroy(r);
}

static void folder_without_checkpoints_has_none(void **state)
{
    fixture *f = *state;
    bool foreign = true;

    assert_int_equal(found_iteration(f, &foreign), 0);
    assert_false(foreign);
    assert_int_equal(f->said_count, 0);
    strcat(f->folder, "-not-there");
    assert_int_equal(found_iteration(f, NULL), 0);
    f->folder[strlen(f->folder) - 10] = 0;
}

static void newest_generation_is_taken_in_whatever_slot(void **state)
{
    fixture *f = *state;

    write_good(f, 0, 4, 2);
    write_good(f, 1, 5, 3);
    assert_int_equal(found_iteration(f, NULL), 3);
    f->head.record_count = 5;
    write_good(f, 0, 5, 4);
    write_good(f, 1, 4, 2);
    assert_int_equal(found_iteration(f, NULL), 4);
}

/* At any length the torn one is passed over, told, and the older one taken. */
static void torn_file_falls_back_to_the_older_generation(void **state)
{
    fixture *f = *state;
    char path[200];
    struct stat s;

    write_good(f, 0, 4, 2);
    write_good(f, 1, 5, 3);
    path_of(path, sizeof path, f, 1);
    assert_int_equal(stat(path, &s), 0);
    for (off_t size = s.st_size - 1; size > 0; size -= 1 + size / 5) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(found_iteration(f, NULL), 2);
        assert_int_equal(f->said_count, 2);
        assert_non_null(strstr(f->said[0], "checkpoint.1"));
        assert_non_null(strstr(f->said[0], "not used"));
        assert_non_null(
            strstr(f->said[1], "going on from the other generation, after iteration 2 of stage 2"));
    }
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(found_iteration(f, NULL), 2);
}

static void flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void flipped_bit_anywhere_is_found(void **state)
{
    fixture *f = *state;
    char path[200];
    struct stat s;

    write_good(f, 0, 5, 3);
    path_of(path, sizeof path, f, 0);
    assert_int_equal(stat(path, &s), 0);
    for (off_t at = 0; at < s.st_size; at += at < 1200 || at > s.st_size - 60 ? 3 : 10007) {
        flip(path, at);
        assert_int_equal(found_iteration(f, NULL), 0);
        assert_int_equal(f->said_count, 1);
        flip(path, at);
    }
    assert_int_equal(found_iteration(f, NULL), 3);
}

static void bytes_at_the_end_are_no_part_of_it(void **state)
{
    fixture *f = *state;
    char path[200];
    int fd;

    write_good(f, 0, 5, 3);
    path_of(path, sizeof path, f, 0);
    fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(found_iteration(f, NULL), 0);
}

static void checkpoint_of_something_else_is_refused_and_said(void **state)
{
    fixture *f = *state;
    const struct {
        size_t offset;
        bool foreign;
        const char *why;
    } cases[] = {{offsetof(xpe_checkpoint, build), false, "another build"},
                 {offsetof(xpe_checkpoint, device), false, "another kind of device"},
                 {offsetof(xpe_checkpoint, job), true, "another job"},
                 {offsetof(xpe_checkpoint, scan), true, "other data"},
                 {offsetof(xpe_checkpoint, recon), true, "other settings"}};

    write_good(f, 0, 5, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *byte = (char *)&f->head + cases[i].offset;
        bool foreign;

        *byte = (char)(*byte + 1);
        assert_int_equal(found_iteration(f, &foreign), 0);
        assert_int_equal(foreign, cases[i].foreign);
        assert_int_equal(f->said_count, 1);
        assert_non_null(strstr(f->said[0], cases[i].why));
        *byte = (char)(*byte - 1);
    }
    f->head.num_frames++;
    assert_int_equal(found_iteration(f, NULL), 0);
    f->head.num_frames--;
    assert_int_equal(found_iteration(f, NULL), 3);
}

static void neither_link_nor_fifo_is_read(void **state)
{
    fixture *f = *state;
    char path[200], other[220];

    write_good(f, 0, 5, 3);
    path_of(path, sizeof path, f, 0);
    snprintf(other, sizeof other, "%s/elsewhere", f->folder);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(found_iteration(f, NULL), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(found_iteration(f, NULL), 0);
    assert_int_equal(f->said_count, 1);
}

static void full_disk_fails_this_generation_only(void **state)
{
    fixture *f = *state;
    struct rlimit before, small;
    xpe_error err = {0};

    write_good(f, 0, 4, 2);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t limit = 0; limit < PAYLOAD; limit += limit < 1500 ? 500 : 100000) {
        small = (struct rlimit){limit, before.rlim_max};
        f->head.record_count = 5;
        f->head.iteration = 3;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        assert_int_equal(write_slot(f, 1, &err), XPE_IO);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_non_null(strstr(err.text, "errno 27"));
        assert_non_null(strstr(err.text, " bytes"));
        assert_int_equal(temporary_count(f->folder), 1); /* nothing half-written stays */
        assert_int_equal(found_iteration(f, NULL), 2);
    }
    write_good(f, 1, 5, 3);
    assert_int_equal(found_iteration(f, NULL), 3);
}

static void failed_sync_fails_this_generation_and_is_not_tried_again(void **state)
{
    fixture *f = *state;
    xpe_checkpoint_writer *w;
    int64_t bytes;
    xpe_error err = {0};

    write_good(f, 0, 4, 2);
    f->head.record_count = 5;
    assert_int_equal(xpe_checkpoint_begin(&w, f->folder, 1, &f->head, PAYLOAD, &err), XPE_OK);
    assert_int_equal(xpe_checkpoint_put(w, f->payload, PAYLOAD, &err), XPE_OK);
    fsyncs_left = 0;
    assert_int_equal(xpe_checkpoint_finish(w, &bytes, &err), XPE_IO);
    assert_non_null(strstr(err.text, "cannot be synced after 30"));
    assert_non_null(strstr(err.text, "errno 5"));
    fsyncs_left = -1;
    assert_int_equal(xpe_checkpoint_finish(w, &bytes, &err),
                     XPE_IO); /* a second sync that succeeds proves nothing */
    xpe_checkpoint_writer_destroy(w);
    assert_int_equal(temporary_count(f->folder), 1);
    assert_int_equal(found_iteration(f, NULL), 2);
}

/* The file is there and whole, but whether its name lasts is not known: that is no success. */
static void failed_sync_of_the_folder_is_a_failure(void **state)
{
    fixture *f = *state;
    xpe_error err = {0};

    fsyncs_left = 1;
    assert_int_equal(write_slot(f, 0, &err), XPE_IO);
    assert_non_null(strstr(err.text, "its folder cannot be synced"));
}

static void more_than_the_disk_has_is_not_begun(void **state)
{
    fixture *f = *state;
    xpe_checkpoint_writer *w;
    xpe_error err = {0};

    assert_int_equal(xpe_checkpoint_begin(&w, f->folder, 0, &f->head, (int64_t)1 << 60, &err),
                     XPE_IO);
    assert_null(w);
    assert_non_null(strstr(err.text, "errno 28"));
    assert_int_equal(temporary_count(f->folder), 0);
}

static void folder_that_is_not_there_is_named(void **state)
{
    fixture *f = *state;
    xpe_checkpoint_writer *w;
    xpe_error err = {0};

    assert_int_equal(xpe_checkpoint_begin(&w, "/nonexistent/folder", 0, &f->head, 1, &err), XPE_IO);
    assert_non_null(strstr(err.text, "/nonexistent/folder"));
    assert_non_null(strstr(err.text, "errno 2"));
}

static void what_a_killed_process_left_is_in_nobodys_way(void **state)
{
    fixture *f = *state;
    char path[200];

    path_of(path, sizeof path, f, 0);
    strcat(path, ".tmp");
    close(open(path, O_WRONLY | O_CREAT, 0600));
    write_good(f, 0, 5, 3);
    assert_int_equal(temporary_count(f->folder), 1);
    close(open(path, O_WRONLY | O_CREAT, 0600));
    write_good(f, 1, 4, 2);
    xpe_checkpoint_remove(f->folder);
    assert_int_equal(temporary_count(f->folder), 0);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(what_is_found_is_what_was_written),
        WITH_FIXTURE(first_stage_carries_neither_probe_nor_positions),
        WITH_FIXTURE(folder_without_checkpoints_has_none),
        WITH_FIXTURE(newest_generation_is_taken_in_whatever_slot),
        WITH_FIXTURE(torn_file_falls_back_to_the_older_generation),
        WITH_FIXTURE(flipped_bit_anywhere_is_found),
        WITH_FIXTURE(bytes_at_the_end_are_no_part_of_it),
        WITH_FIXTURE(checkpoint_of_something_else_is_refused_and_said),
        WITH_FIXTURE(neither_link_nor_fifo_is_read),
        WITH_FIXTURE(full_disk_fails_this_generation_only),
        WITH_FIXTURE(failed_sync_fails_this_generation_and_is_not_tried_again),
        WITH_FIXTURE(failed_sync_of_the_folder_is_a_failure),
        WITH_FIXTURE(more_than_the_disk_has_is_not_begun),
        WITH_FIXTURE(folder_that_is_not_there_is_named),
        WITH_FIXTURE(what_a_killed_process_left_is_in_nobodys_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
