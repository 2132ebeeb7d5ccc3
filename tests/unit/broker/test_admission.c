/* Admission by the plan: what is said to be short is short by exactly that, what is suggested fits,
 * and a byte decides; with random shapes, devices and limits.  `test_broker_admission 100000` makes
 * as many as told. */
#include "support.h"

#include "admission.h"
#include "submit.h"

#include <fcntl.h>
#include <sys/mman.h>

#define GIB ((int64_t)1 << 30)

static int64_t rounds = 1500;

/* Positions on a square, `step` pixels apart. */
static int positions_fd(int count, double step_m, bool sealed)
{
    int fd = memfd_create("positions", MFD_CLOEXEC | MFD_ALLOW_SEALING), side = 1;
    assert_true(fd >= 0);
    while (side * side < count)
        side++;
    for (int i = 0; i < count; i++) {
        double at[2] = {i / side * step_m, i % side * step_m};
        assert_int_equal(write(fd, at, sizeof at), sizeof at);
    }
    if (sealed)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    return fd;
}

static json_t *scan_of(int frames, int side)
{
    return json_pack("{s:i, s:i, s:I, s:f, s:f, s:f, s:[{s:s}]}", "frames", frames, "frame_side",
                     side, "bytes", (json_int_t)frames * side * side * 4, "wavelength_m", 1e-10,
                     "detector_distance_m", 1.0, "detector_pitch_m", 1e-4, "arrays", "name",
                     "positions");
}

/* The CPU and `gpus` GPUs of those sizes. */
static xpd_devices devices_of(int gpus, const int64_t *bytes)
{
    xpd_devices devices = {.known = true, .count = 1 + gpus};
    snprintf(devices.items[0].name, sizeof devices.items[0].name, "cpu");
    devices.items[0].bytes_total = 64 * GIB;
    for (int i = 0; i < gpus; i++) {
        snprintf(devices.items[1 + i].name, sizeof devices.items[0].name, "cuda:%d", i);
        devices.items[1 + i].bytes_total = devices.items[1 + i].bytes_free = bytes[i];
    }
    return devices;
}

static const xpd_room endless = {.host = XPD_ROOM_ENDLESS,
                                 .result = {XPD_ROOM_ENDLESS, XPD_ROOM_ENDLESS},
                                 .state = {XPD_ROOM_ENDLESS, XPD_ROOM_ENDLESS}};

static bool admit(xpd_needs *needs, const json_t *doc, const xpd_devices *devices,
                  const xpd_room *room, const json_t *scan, int fd, xpd_error *err)
{
    json_t *errors = xpp_job_check(doc);
    if (errors)
        fail_msg("%s", json_dumps(errors, 0));
    json_t *resolved = xpp_job_resolved(doc);
    xpp_job *job = xpp_job_decode(resolved);
    xpd_choice choice;
    bool ok = xpd_devices_choose(&choice, devices, job, err);
    if (!ok)
        fail_msg("%s", err->text);
    ok = xpd_admit(needs, &choice, devices, room, job, scan, fd, NULL, err);
    xpp_job_free(job);
    json_decref(resolved);
    return ok;
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void assert_same(const xpd_needs *a, const xpd_needs *b)
{
    assert_true(a->known == b->known && a->device == b->device && a->host == b->host &&
                a->result == b->result && a->checkpoints == b->checkpoints);
}

/* -------------------------------------------------------------------------------------- random */

static uint64_t state_of_dice = 1;

static int64_t dice(int64_t from, int64_t to)
{
    state_of_dice = state_of_dice * 6364136223846793005ULL + 1442695040888963407ULL;
    return from + (int64_t)((state_of_dice >> 33) % (uint64_t)(to - from + 1));
}

static json_t *random_job(bool known, int modes, int gpus)
{
    json_t *doc =
        json_pack("{s:{s:s}, s:{s:i}}", "scan", "path", "/s.h5", "model", "probe_modes", modes);
    json_t *schedule = json_array();
    for (int i = 1; i < modes; i++)
        json_array_append_new(schedule, json_integer(i + 1));
    if (known)
        json_object_set_new(doc, "probe", json_pack("{s:s}", "path", "/p.h5"));
    else
        json_object_set_new(
            doc, "recon",
            json_pack("{s:i, s:o}", "iterations", 20, "mode_schedule", json_incref(schedule)));
    json_decref(schedule);
    switch (dice(0, 3)) {
    case 0:
        json_object_set_new(doc, "devices", json_pack("{s:[s, s]}", "devices", "cpu", "cpu"));
        break;
    case 1:
        json_object_set_new(doc, "devices", json_pack("{s:i}", "num_devices", gpus ? gpus : 1));
        break;
    case 2:
        json_object_set_new(doc, "devices", json_pack("{s:i}", "num_devices", 1));
        break;
    default:
        break;
    }
    return doc;
}

/* Every number of a refusal is right, and every suggestion fits. */
static void look_at_refusal(const xpd_error *err, const json_t *doc, const xpd_devices *devices,
                            const xpd_room *room, const json_t *scan, int fd, int *suggested)
{
    const json_t *resources = json_object_get(err->more, "resources"),
                 *suggestions = json_object_get(err->more, "suggestions");
    xpd_needs needs;

    assert_int_equal(err->fault, XPP_FAULT_NO_DEVICE_MEMORY);
    assert_true(json_array_size(resources) > 0);
    assert_int_equal(number(err->more, "required_bytes") - number(err->more, "available_bytes"),
                     number(err->more, "shortfall_bytes"));
    for (size_t i = 0; i < json_array_size(resources); i++) {
        const json_t *r = json_array_get(resources, i);
        const char *name = json_string_value(json_object_get(r, "name"));
        const xpe_device_info *d = xpd_devices_find(devices, name);
        assert_int_equal(number(r, "shortfall_bytes"),
                         number(r, "required_bytes") - number(r, "available_bytes"));
        assert_true(number(r, "shortfall_bytes") > 0);
        assert_int_equal(number(r, "available_bytes"), d ? xpd_room_of(room, d) : room->host);
    }
    for (size_t i = 0; i < json_array_size(suggestions); i++) {
        const json_t *s = json_array_get(suggestions, i);
        xpd_error again = XPD_ERROR_INIT;
        json_t *bare = json_deep_copy(doc);
        if (json_object_get(json_object_get(s, "change"), "devices"))
            json_object_del(bare, "devices"); /* one way to say it replaces the other */
        json_t *changed = xpd_merge_patch(bare, json_object_get(s, "change"));
        if (!admit(&needs, changed, devices, room, scan, fd, &again))
            fail_msg("'%s' does not help: %s", json_string_value(json_object_get(s, "detail")),
                     again.text);
        ++*suggested;
        json_decref(changed);
        json_decref(bare);
    }
}

/* With exactly what is needed it fits, with one byte less it does not. */
static void look_at_bounds(const xpd_needs *needs, const json_t *doc, xpd_devices *devices,
                           const json_t *scan, int fd, bool cpu)
{
    xpd_room room = endless;
    xpd_error err = XPD_ERROR_INIT;
    xpd_needs same;

    room.host = needs->host + (cpu ? needs->device : 0);
    for (int i = 1; i < devices->count; i++)
        devices->items[i].bytes_total = 64 * GIB;
    assert_true(admit(&same, doc, devices, &room, scan, fd, &err));
    assert_same(&same, needs);
    room.host--;
    assert_false(admit(&same, doc, devices, &room, scan, fd, &err));
    const json_t *first = json_array_get(json_object_get(err.more, "resources"), 0);
    assert_int_equal(number(first, "shortfall_bytes"), 1);
    assert_string_equal(json_string_value(json_object_get(first, "resource")), "host-memory");
    xpd_error_release(&err);
}

static void random_shapes_meet_random_limits(void **state)
{
    int admitted = 0, refused = 0, suggested = 0;

    (void)state;
    for (int64_t i = 0; i < rounds; i++) {
        int frames = (int)dice(8, 60), side = 2 * (int)dice(8, 40), gpus = (int)dice(0, 4);
        bool known = dice(0, 3) == 0;
        json_t *doc = random_job(known, known ? 1 : (int)dice(1, 5), gpus),
               *scan = scan_of(frames, side);
        int fd = positions_fd(frames, xpe_pixel_pitch(1e-10, 1.0, 1e-4, side) * (double)dice(1, 8),
                              true);
        int64_t bytes[4];
        for (int k = 0; k < 4; k++)
            bytes[k] = dice(1 << 16, 1 << 24);
        xpd_devices devices = devices_of(gpus, bytes);
        xpd_room room = endless;
        xpd_error err = XPD_ERROR_INIT;
        xpd_needs needs;
        room.host = dice(16 << 20, 48 << 20);
        if (admit(&needs, doc, &devices, &room, scan, fd, &err)) {
            json_t *wish = json_object_get(json_object_get(doc, "devices"), "devices");
            look_at_bounds(&needs, doc, &devices, scan, fd, gpus == 0 || wish != NULL);
            admitted++;
        } else {
            look_at_refusal(&err, doc, &devices, &room, scan, fd, &suggested);
            xpd_error_release(&err);
            refused++;
        }
        close(fd);
        json_decref(scan);
        json_decref(doc);
    }
    print_message("%lld shapes: %d admitted, %d refused, %d suggestions that fit\n",
                  (long long)rounds, admitted, refused, suggested);
    assert_true(admitted > rounds / 10 && refused > rounds / 10 && suggested > rounds / 20);
}

/* --------------------------------------------------------------------------------------- facts */

/* A byte of a GPU's room, which is a little less than its memory. */
static void a_byte_of_a_device_decides(void **state)
{
    int64_t bytes[1] = {GIB};
    xpd_devices devices = devices_of(1, bytes);
    xpd_error err = XPD_ERROR_INIT;
    xpd_needs needs, same;
    json_t *doc = json_pack("{s:{s:s}}", "scan", "path", "/s.h5"), *scan = scan_of(20, 64);
    int fd = positions_fd(20, 3e-7, true);

    (void)state;
    assert_true(admit(&needs, doc, &devices, &endless, scan, fd, &err));
    assert_true(needs.device > 0 && needs.host > 0 && needs.result > 0 && needs.checkpoints > 0);
    while (xpd_room_of(&endless, &devices.items[1]) >= needs.device)
        devices.items[1].bytes_total -=
            devices.items[1].bytes_total > 2 * needs.device ? needs.device / 2 : 1;
    assert_int_equal(xpd_room_of(&endless, &devices.items[1]), needs.device - 1);
    assert_false(admit(&same, doc, &devices, &endless, scan, fd, &err));
    assert_int_equal(number(err.more, "shortfall_bytes"), 1);
    assert_string_equal(json_string_value(json_object_get(err.more, "device")), "cuda:0");
    assert_non_null(strstr(err.text, "it would fit with the CPU"));
    xpd_error_release(&err);
    close(fd);
    json_decref(scan);
    json_decref(doc);
}

static int64_t device_need(const char *device, bool known, const json_t *scan, int fd)
{
    int64_t bytes[1] = {GIB};
    xpd_devices devices = devices_of(1, bytes);
    xpd_error err = XPD_ERROR_INIT;
    xpd_needs needs;
    json_t *doc =
        json_pack("{s:{s:s}, s:{s:[s]}}", "scan", "path", "/s.h5", "devices", "devices", device);
    if (known)
        json_object_set_new(doc, "probe", json_pack("{s:s}", "path", "/p.h5"));
    assert_true(admit(&needs, doc, &devices, &endless, scan, fd, &err));
    json_decref(doc);
    return needs.device;
}

/* The image that devices keep to go back to, 8 bytes for each pixel of the object. */
static void a_run_takes_a_third_image_on_a_gpu(void **state)
{
    json_t *scan = scan_of(25, 64);
    int fd = positions_fd(25, 10 * xpe_pixel_pitch(1e-10, 1.0, 1e-4, 64), true);

    (void)state;
    for (int known = 0; known < 2; known++)
        assert_int_equal(device_need("cuda:0", known, scan, fd) -
                             device_need("cpu", known, scan, fd),
                         (4 * 10 + 64) * (4 * 10 + 64) * 8);
    close(fd);
    json_decref(scan);
}

static void files_never_fit_or_not_now(void **state)
{
    xpd_needs needs = {.known = true, .result = 100, .checkpoints = 60};
    xpd_room room = {.result = {120, 110}, .state = {70, 65}};
    xpp_job job = {.output_path = "/out.h5"};
    xpd_error err = XPD_ERROR_INIT;

    (void)state;
    assert_true(xpd_admit_files(&needs, &room, &job, &err));
    room.result.free = 99;
    assert_false(xpd_admit_files(&needs, &room, &job, &err));
    assert_int_equal(err.fault, XPP_FAULT_LOW_DISK);
    assert_int_equal(number(err.more, "shortfall_bytes"), 1);
    assert_int_equal(number(err.more, "free_bytes"), 99);
    room.result.total = 90;
    assert_false(xpd_admit_files(&needs, &room, &job, &err));
    assert_int_equal(err.fault, XPP_FAULT_NO_DISK);
    assert_string_equal(err.pointer, "/output/path");
    assert_int_equal(number(err.more, "shortfall_bytes"), 10);
    room.result = (xpd_disk){1000, 1000};
    room.state.total = 59;
    assert_false(xpd_admit_files(&needs, &room, &job, &err));
    assert_int_equal(err.fault, XPP_FAULT_NO_DISK);
    assert_non_null(strstr(err.text, "\"checkpoint\": \"off\""));
    room = (xpd_room){.one_disk = true, .result = {1000, 159}, .state = {1000, 159}};
    job.output_path = NULL;
    assert_false(xpd_admit_files(&needs, &room, &job, &err));
    assert_int_equal(err.fault, XPP_FAULT_LOW_DISK);
    room.result.free = room.state.free = 160;
    assert_true(xpd_admit_files(&needs, &room, &job, &err));
    xpd_error_release(&err);
}

static void more_devices_than_positions_are_no_matter_of_memory(void **state)
{
    xpd_devices devices = devices_of(0, NULL);
    xpd_error err = XPD_ERROR_INIT;
    xpd_needs needs;
    json_t *doc = json_pack("{s:{s:s}, s:{s:[s, s, s]}}", "scan", "path", "/s.h5", "devices",
                            "devices", "cpu", "cpu", "cpu"),
           *scan = scan_of(2, 32);
    int fd = positions_fd(2, 3e-7, true);

    (void)state;
    assert_false(admit(&needs, doc, &devices, &endless, scan, fd, &err));
    assert_int_equal(err.fault, XPP_FAULT_INVALID_JOB);
    assert_non_null(strstr(err.text, "3 devices for 2"));
    assert_false(needs.known);
    close(fd);
    json_decref(scan);
    json_decref(doc);
}

static void positions_that_are_cut_short_or_could_be_are_refused(void **state)
{
    xpd_devices devices = devices_of(0, NULL);
    xpd_error err = XPD_ERROR_INIT;
    xpd_needs needs;
    json_t *doc = json_pack("{s:{s:s}}", "scan", "path", "/s.h5"), *scan = scan_of(6, 32);
    int open_fd = positions_fd(6, 1e-7, false), short_fd = positions_fd(5, 1e-7, true);

    (void)state;
    assert_false(admit(&needs, doc, &devices, &endless, scan, open_fd, &err));
    assert_false(admit(&needs, doc, &devices, &endless, scan, short_fd, &err));
    json_object_set_new(scan, "frames", json_integer(0));
    assert_false(admit(&needs, doc, &devices, &endless, scan, short_fd, &err));
    json_object_set_new(scan, "frames", json_integer(INT64_MAX));
    assert_false(admit(&needs, doc, &devices, &endless, scan, short_fd, &err));
    close(open_fd);
    close(short_fd);
    json_decref(scan);
    json_decref(doc);
}

static void needs_survive_as_json(void **state)
{
    xpd_needs needs = {true, 1, 2, 3, INT64_C(1) << 60}, back;
    json_t *json = xpd_needs_json(&needs);

    (void)state;
    xpd_needs_from(&back, json);
    assert_same(&back, &needs);
    json_decref(json);
    xpd_needs_from(&back, NULL);
    assert_false(back.known);
    json = xpd_needs_json(&back);
    assert_true(json_is_null(json));
    json_decref(json);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_meet_random_limits),
        cmocka_unit_test(a_byte_of_a_device_decides),
        cmocka_unit_test(a_run_takes_a_third_image_on_a_gpu),
        cmocka_unit_test(files_never_fit_or_not_now),
        cmocka_unit_test(more_devices_than_positions_are_no_matter_of_memory),
        cmocka_unit_test(positions_that_are_cut_short_or_could_be_are_refused),
        cmocka_unit_test(needs_survive_as_json),
    };
    if (argc > 1)
        rounds = strtoll(argv[1], NULL, 10);
    xpp_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
