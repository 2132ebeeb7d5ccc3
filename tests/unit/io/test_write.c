/* Scans and results written (engine/io/write) and read again (engine/io/read). */
#include "io/read/read.h"
#include "sample.h"
#include "temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[256], path[512];
static sample s;

static int set_up(void **state)
{
    (void)state;
    sample_make(&s);
    snprintf(path, sizeof path, "%s/out.h5", temporary_make(folder, sizeof folder));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(folder);
    return 0;
}

static void a_scan_reads_back_bit_for_bit(void **state)
{
    const xpe_scan_content content = {
        .scan = &s.scan, .name = "small", .probe = s.probe, .probe_modes = MODES};
    xpe_written written;
    xpe_scan_file *file;
    xpe_error err;
    uint16_t frames[J * N * N];
    uint8_t mask[N * N];
    const xpe_scan_info *info;
    xpe_array probe;

    (void)state;
    assert_int_equal(xpe_scan_write(&written, path, false, &content, &err), XPE_OK);
    assert_int_equal(strlen(written.sha256), 64);
    assert_int_equal(xpe_scan_file_open(&file, path, NULL, &err), XPE_OK);
    info = xpe_scan_file_info(file);
    assert_string_equal(info->format, "xptycho");
    assert_string_equal(info->name, "small");
    assert_int_equal(info->num_frames, J);
    assert_int_equal(info->n, N);
    assert_int_equal(info->type, XPE_U16);
    assert_int_equal(info->mask_frames, 1);
    assert_int_equal(info->file.bytes, written.bytes);
    assert_int_equal(info->file.inode, written.inode);
    assert_float_equal(info->saturation, 1000, 0);
    assert_float_equal(info->detector_pitch_m, 2.5e-3, 0);
    assert_memory_equal(xpe_scan_file_positions(file), s.positions, sizeof s.positions);
    assert_int_equal(xpe_scan_file_frames(file, 0, J, frames, &err), XPE_OK);
    assert_memory_equal(frames, s.frames, sizeof frames);
    assert_int_equal(xpe_scan_file_frames(file, 2, 1, frames, &err), XPE_OK);
    assert_memory_equal(frames, s.frames + 2 * N * N, sizeof frames / J);
    assert_int_equal(xpe_scan_file_mask(file, mask, &err), XPE_OK);
    assert_memory_equal(mask, s.mask, sizeof mask);
    assert_int_equal(xpe_scan_file_unchanged(file, &err), XPE_OK);
    xpe_scan_file_close(file);
    assert_int_equal(
        xpe_array_read(&probe, path, NULL, XPE_ARRAY_PROBE, false, NULL, "/init_probe/path", &err),
        XPE_OK);
    assert_string_equal(probe.dataset, "/scan/probe");
    assert_memory_equal(probe.data, s.probe, sizeof s.probe);
    xpe_array_release(&probe);
    assert_false(xpe_file_is_result(path, NULL));
}

static void a_result_gives_object_and_probe_back(void **state)
{
    xpe_written written;
    int64_t owner = 0;
    xpe_array array;
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_result_write(&written, path, false, &s.result, &err), XPE_OK);
    assert_true(xpe_file_is_result(path, &owner));
    assert_int_equal(owner, -1);
    assert_int_equal(
        xpe_array_read(&array, path, NULL, XPE_ARRAY_OBJECT, false, NULL, "/init/path", &err),
        XPE_OK);
    assert_int_equal(array.shape[1], ROWS);
    assert_int_equal(array.shape[2], COLS);
    assert_memory_equal(array.data, s.object, sizeof s.object);
    assert_float_equal(array.pixel_pitch_m, 1e-8, 0);
    xpe_array_release(&array);
    assert_int_equal(xpe_array_read(&array, path, "/sample/probe", XPE_ARRAY_PROBE, true, NULL,
                                    "/probe/path", &err),
                     XPE_OK);
    assert_int_equal(array.shape[0], MODES);
    assert_null(array.data);
    xpe_array_release(&array);
    assert_int_equal(xpe_array_read(&array, path, "/sample/object", XPE_ARRAY_PROBE, true, NULL,
                                    "/probe/path", &err),
                     XPE_INVALID);
    assert_non_null(strstr(err.text, "[6][7]"));
    assert_string_equal(err.pointer, "/probe/path");
}

static void a_result_says_whose_it_is(void **state)
{
    static const int64_t uids[] = {0, 1000, 4294967294};
    xpe_written written;
    xpe_error err;

    (void)state;
    for (size_t i = 0; i < sizeof uids / sizeof *uids; i++) {
        int64_t owner = -1;
        s.result.owner = &uids[i];
        assert_int_equal(xpe_result_write(&written, path, true, &s.result, &err), XPE_OK);
        s.result.owner = NULL;
        assert_int_equal(written.uid, geteuid());
        assert_true(xpe_file_is_result(path, &owner));
        assert_int_equal(owner, uids[i]);
        if (geteuid() == 0) { /* what another can have written says nothing */
            assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
            assert_true(xpe_file_is_result(path, &owner));
            assert_int_equal(owner, -1);
        }
    }
}

static void a_result_without_iterations_or_parameters_is_written(void **state)
{
    xpe_written written;
    xpe_error err;

    (void)state;
    s.result.iterations = 0;
    s.result.data_error = NULL;
    s.result.parameter_count = 0;
    s.result.parameters = NULL;
    s.result.job = s.result.devices = s.result.name = NULL;
    assert_int_equal(xpe_result_write(&written, path, false, &s.result, &err), XPE_OK);
    assert_true(xpe_file_is_result(path, NULL));
}

static void the_file_that_changed_is_noticed(void **state)
{
    const xpe_scan_content content = {.scan = &s.scan};
    xpe_written written;
    xpe_scan_file *file;
    xpe_error err;

    (void)state;
    assert_int_equal(xpe_scan_write(&written, path, false, &content, &err), XPE_OK);
    assert_int_equal(xpe_scan_file_open(&file, path, NULL, &err), XPE_OK);
    assert_int_equal(truncate(path, written.bytes + 1), 0);
    assert_int_equal(xpe_scan_file_unchanged(file, &err), XPE_CHANGED);
    assert_non_null(strstr(err.text, "changed"));
    xpe_scan_file_close(file);
    assert_int_equal(truncate(path, written.bytes), 0);
    assert_int_equal(xpe_scan_file_open(&file, path, NULL, &err), XPE_OK);
    assert_int_equal(xpe_scan_write(&written, path, true, &content, &err), XPE_OK);
    assert_int_equal(xpe_scan_file_unchanged(file, &err), XPE_CHANGED);
    assert_non_null(strstr(err.text, "replaced"));
    xpe_scan_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_scan_reads_back_bit_for_bit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_result_gives_object_and_probe_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_result_says_whose_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_result_without_iterations_or_parameters_is_written,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_file_that_changed_is_noticed, set_up, tear_down),
    };

    xpe_read_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
