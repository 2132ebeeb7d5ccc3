/* Units, wavelengths and roots (engine/io/read/format.c, h5.c). */
#include "io/read/format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void units_scale_and_unknown_ones_are_told(void **state)
{
    (void)state;
    assert_true(xpe_unit_length("nm", 1) == 1e-9);
    assert_true(xpe_unit_length("", 1) == 1);
    assert_true(xpe_unit_length("furlong", 1) == 0);
    assert_true(xpe_unit_energy("eV", 0) == 1e-3);
    assert_true(xpe_unit_energy("J", 0) == 1 / 1.602176634e-16);
    assert_true(xpe_unit_energy("GeV", 7) == 0);
}

static void electrons_of_300_kev_have_a_relativistic_wavelength(void **state)
{
    (void)state;
    assert_true(fabs(xpe_wavelength(300, true) * 1e12 - 1.96875) < 1e-4);
    assert_true(fabs(xpe_wavelength(12.398419843320026, false) * 1e10 - 1) < 1e-12);
}

static void roots_cover_whole_folder_names_only(void **state)
{
    const char *const folders[] = {"/data/scans", "/other/"};
    const xpe_roots roots = {folders, 2}, everything = {(const char *const[]){"/"}, 1},
                    none = {NULL, 0};

    (void)state;
    assert_true(xpe_roots_cover(&roots, "/data/scans/a.h5"));
    assert_true(xpe_roots_cover(&roots, "/data/scans"));
    assert_true(xpe_roots_cover(&roots, "/other/b.h5"));
    assert_false(xpe_roots_cover(&roots, "/data/scans2/a.h5"));
    assert_false(xpe_roots_cover(&roots, "/data"));
    assert_true(xpe_roots_cover(&everything, "/etc/passwd"));
    assert_false(xpe_roots_cover(&none, "/data/scans/a.h5"));
    assert_true(xpe_roots_cover(NULL, "/anywhere"));
}

static void notes_stop_growing(void **state)
{
    xpe_notes notes = {.count = 0};

    (void)state;
    for (int i = 0; i < 100; i++)
        xpe_notes_add(&notes, "note %d", i);
    assert_int_equal(notes.count, 32);
    assert_string_equal(notes.items[31], "note 31");
    xpe_notes_release(&notes);
    assert_int_equal(notes.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_scale_and_unknown_ones_are_told),
        cmocka_unit_test(electrons_of_300_kev_have_a_relativistic_wavelength),
        cmocka_unit_test(roots_cover_whole_folder_names_only),
        cmocka_unit_test(notes_stop_growing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
