/* libpng reports a fault by a jump, so nothing between setjmp and the end keeps a value in a local
 * that is changed after it: all such state is in struct sink. */
#include "pngfile.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef struct sink {
    uint8_t *bytes;
    size_t used, room;
    char text[96];
    jmp_buf out;
} sink;

static void on_write(png_structp png, png_bytep data, png_size_t length)
{
    sink *s = png_get_io_ptr(png);

    if (length > s->room - s->used) {
        size_t room = 2 * s->room + length + 4096;
        uint8_t *more = realloc(s->bytes, room);

        if (!more)
            png_error(png, "no memory");
        s->bytes = more;
        s->room = room;
    }
    memcpy(s->bytes + s->used, data, length);
    s->used += length;
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void on_error(png_structp png, png_const_charp text)
{
    sink *s = png_get_error_ptr(png);

    strncpy(s->text, text, sizeof s->text - 1);
    longjmp(s->out, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void write_picture(png_structp png, png_infop info, const xpd_png *p)
{
    png_set_IHDR(png, info, (png_uint_32)p->cols, (png_uint_32)p->rows, 8,
                 p->palette ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (p->palette) {
        png_color colours[256];

        for (int i = 0; i < p->colours; i++)
            colours[i] = (png_color){p->palette[i][0], p->palette[i][1], p->palette[i][2]};
        png_set_PLTE(png, info, colours, p->colours);
    }
    /* PNG holds pixels per metre in 31 bits: object pixels from half a nanometre up */
    if (p->pixel_m > 0.0 && 1.0 / p->pixel_m < 2147483647.0 && 1.0 / p->pixel_m >= 1.0) {
        png_uint_32 per_metre = (png_uint_32)(1.0 / p->pixel_m + 0.5);

        png_set_pHYs(png, info, per_metre, per_metre, PNG_RESOLUTION_METER);
    }
    for (int i = 0; i < p->text_count; i++) {
        char key[80], value[256]; /* libpng wants text that it may change */
        png_text text = {.compression = PNG_TEXT_COMPRESSION_NONE, .key = key, .text = value};

        strncpy(key, p->texts[i].key, sizeof key - 1);
        key[sizeof key - 1] = 0;
        strncpy(value, p->texts[i].value, sizeof value - 1);
        value[sizeof value - 1] = 0;
        png_set_text(png, info, &text, 1); /* copies */
    }
    png_write_info(png, info);
    for (int64_t r = 0; r < p->rows; r++)
        png_write_row(png, p->pixels + r * p->cols);
    png_write_end(png, info);
}

xpe_status xpd_png_encode(uint8_t **out, size_t *size, const xpd_png *picture, xpe_error *err)
{
    sink *s = calloc(1, sizeof *s);
    png_structp png =
        s ? png_create_write_struct(PNG_LIBPNG_VER_STRING, s, on_error, on_warning) : NULL;
    png_infop info = png ? png_create_info_struct(png) : NULL;
    xpe_status st = XPE_OK;

    *out = NULL;
    *size = 0;
    if (!info) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "no memory for a picture");
    } else if (setjmp(s->out)) {
        st = xpe_fail(err, XPE_NO_MEMORY, "", "cannot make a picture of %lld x %lld: %s",
                      (long long)picture->rows, (long long)picture->cols, s->text);
    } else {
        png_set_write_fn(png, s, on_write, on_flush);
        png_set_compression_level(png, 4); /* previews are many and short-lived */
        write_picture(png, info, picture);
        *out = s->bytes;
        *size = s->used;
        s->bytes = NULL;
    }
    if (png)
        png_destroy_write_struct(&png, info ? &info : NULL);
    if (s)
        free(s->bytes);
    free(s);
    return st;
}
