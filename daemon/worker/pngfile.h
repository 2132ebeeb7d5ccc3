/* PNG pictures in memory. */
#ifndef XPD_PNGFILE_H
#define XPD_PNGFILE_H

#include "xptychod/engine.h"

typedef struct xpd_png_text {
    const char *key, *value;
} xpd_png_text;

typedef struct xpd_png {
    int64_t rows, cols;
    const uint8_t *pixels;       /* [rows][cols] grey, or places in the palette */
    const uint8_t (*palette)[3]; /* [colours][3], or NULL: grey */
    int colours;
    double pixel_m; /* size of a pixel, 0 = not said */
    const xpd_png_text *texts;
    int text_count;
} xpd_png;

/* *out is malloc'd. */
XPE_MUST_CHECK xpe_status xpd_png_encode(uint8_t **out, size_t *size, const xpd_png *picture,
                                         xpe_error *err);

#endif
