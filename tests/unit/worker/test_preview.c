/* The files of a preview, read back with libpng and jansson. */
#include "scene.h"

#include "files.h"
#include "preview.h"

#include <png.h>

static xpd_snapshot snapshot_make(void)
{
    enum { ROWS = 40, COLS = 50, N = 16 };
    xpd_snapshot s = {.stage = 1,
                      .iteration = 12,
                      .rows = ROWS,
                      .cols = COLS,
                      .n = N,
                      .modes = 2,
                      .pixel_m = 1e-8,
                      .scanned = {8, 32, 8, 42}};

    s.object = calloc(ROWS * COLS, sizeof *s.object);
    s.coverage = calloc(ROWS * COLS, sizeof *s.coverage);
    s.probe = calloc(2 * N * N, sizeof *s.probe);
    for (int i = 0; i < ROWS * COLS; i++) {
        double phase = 0.3 + 0.2 * sin(0.7 * (i % COLS));

        s.object[i] = (xpe_c32){(float)cos(phase), (float)sin(phase)};
        s.coverage[i] = i / COLS >= 4 && i / COLS < 36 ? 1.0f : 0.0f;
    }
    for (int i = 0; i < 2 * N * N; i++)
        s.probe[i] = (xpe_c32){(float)(i % N), 1.0f};
    return s;
}

/* Rows, columns, colour type and one text of a PNG. */
static void png_look(const char *path, png_uint_32 *rows, png_uint_32 *cols, int *type,
                     const char *key, char *text, png_uint_32 *per_metre)
{
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    FILE *file = fopen(path, "rb");
    png_textp texts;
    int count, unit;
    png_uint_32 other;

    assert_non_null(file);
    if (setjmp(png_jmpbuf(png)))
        fail_msg("'%s' is not a good PNG", path);
    png_init_io(png, file);
    png_read_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
    *rows = png_get_image_height(png, info);
    *cols = png_get_image_width(png, info);
    *type = png_get_color_type(png, info);
    png_get_text(png, info, &texts, &count);
    text[0] = 0;
    for (int i = 0; i < count; i++)
        if (strcmp(texts[i].key, key) == 0)
            snprintf(text, 80, "%s", texts[i].text);
    *per_metre = 0;
    if (png_get_pHYs(png, info, per_metre, &other, &unit))
        assert_int_equal(unit, PNG_RESOLUTION_METER);
    png_destroy_read_struct(&png, &info, NULL);
    fclose(file);
}

static void preview_writes_four_pictures_four_arrays_and_the_index(void **state)
{
    static const char *const names[] = {"object_phase", "object_magnitude", "probe_phase",
                                        "probe_magnitude"};
    xpd_snapshot s = snapshot_make();
    char path[PATH_MAX], file[64], text[80];
    json_t *index, *items;
    xpe_error err = {0};

    assert_int_equal(xpd_preview_write(&s, *state, &err), XPE_OK);
    assert_true(xpd_path_join(path, sizeof path, *state, "preview.json"));
    index = json_load_file(path, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(index, "stage")), 1);
    assert_int_equal(json_integer_value(json_object_get(index, "iter")), 12);
    items = json_object_get(index, "items");
    assert_int_equal(json_object_size(items), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *shape = json_object_get(json_object_get(items, names[i]), "shape");
        json_t *range = json_object_get(json_object_get(items, names[i]), "range");
        png_uint_32 rows, cols, per_metre;
        char *raw;
        size_t size;
        int type;

        assert_int_equal(json_integer_value(json_array_get(shape, 0)), i < 2 ? 40 : 16);
        assert_int_equal(json_integer_value(json_array_get(shape, 1)), i < 2 ? 50 : 32);
        snprintf(file, sizeof file, "%s.f32", names[i]);
        assert_true(xpd_path_join(path, sizeof path, *state, file));
        assert_int_equal(xpd_file_read(&raw, &size, path, 1 << 20, &err), XPE_OK);
        assert_int_equal(size, (i < 2 ? 40 * 50 : 16 * 32) * 4);
        free(raw);
        snprintf(file, sizeof file, "%s.png", names[i]);
        assert_true(xpd_path_join(path, sizeof path, *state, file));
        png_look(path, &rows, &cols, &type, "Range high", text, &per_metre);
        assert_int_equal(rows, i < 2 ? 40 : 16);
        assert_int_equal(cols, i < 2 ? 50 : 32);
        assert_int_equal(type, i % 2 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_PALETTE);
        assert_int_equal(per_metre, 100000000);
        assert_close(atof(text), json_real_value(json_array_get(range, 1)), 1e-6);
    }
    json_decref(index);
    xpd_snapshot_release(&s);
}

static void picture_text_says_iteration_software_and_pixel(void **state)
{
    xpd_snapshot s = snapshot_make();
    char path[PATH_MAX], text[80];
    png_uint_32 rows, cols, per_metre;
    int type;

    assert_int_equal(xpd_preview_write(&s, *state, NULL), XPE_OK);
    assert_true(xpd_path_join(path, sizeof path, *state, "object_phase.png"));
    png_look(path, &rows, &cols, &type, "Iteration", text, &per_metre);
    assert_string_equal(text, "12");
    png_look(path, &rows, &cols, &type, "Software", text, &per_metre);
    assert_memory_equal(text, "xptychod ", 9);
    png_look(path, &rows, &cols, &type, "Pixel (m)", text, &per_metre);
    assert_close(atof(text), 1e-8, 1e-16);
    xpd_snapshot_release(&s);
}

static void object_without_finite_numbers_still_gives_pictures(void **state)
{
    xpd_snapshot s = snapshot_make();
    xpe_error err = {0};

    for (int i = 0; i < s.rows * s.cols; i++)
        s.object[i] = (xpe_c32){NAN, INFINITY};
    assert_int_equal(xpd_preview_write(&s, *state, &err), XPE_OK);
    xpd_snapshot_release(&s);
}

static void missing_folder_is_an_io_error_that_names_the_file(void **state)
{
    xpd_snapshot s = snapshot_make();
    xpe_error err = {0};

    (void)state;
    assert_int_equal(xpd_preview_write(&s, "/nonexistent/folder", &err), XPE_IO);
    assert_non_null(strstr(err.text, "/nonexistent/folder/object_phase"));
    xpd_snapshot_release(&s);
}

static void scanned_rectangle_spans_the_patch_centres(void **state)
{
    const int32_t first[] = {0, 3, 10, 7, 4, 20};
    int64_t scanned[4];

    (void)state;
    xpd_scanned_rectangle(scanned, first, 3, 16, 26, 36);
    assert_int_equal(scanned[0], 8);
    assert_int_equal(scanned[1], 19);
    assert_int_equal(scanned[2], 11);
    assert_int_equal(scanned[3], 29);
    xpd_scanned_rectangle(scanned, first, 1, 16, 16,
                          19); /* one position: a quarter frame each way */
    assert_int_equal(scanned[0], 4);
    assert_int_equal(scanned[1], 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preview_writes_four_pictures_four_arrays_and_the_index),
        cmocka_unit_test(picture_text_says_iteration_software_and_pixel),
        cmocka_unit_test(object_without_finite_numbers_still_gives_pictures),
        cmocka_unit_test(missing_folder_is_an_io_error_that_names_the_file),
        cmocka_unit_test(scanned_rectangle_spans_the_patch_centres),
    };

    return cmocka_run_group_tests(tests, scene_folder_make, scene_folder_remove);
}
