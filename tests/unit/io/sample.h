/* A small scan and result for tests of writing. */
#ifndef TESTS_IO_SAMPLE_H
#define TESTS_IO_SAMPLE_H

#include "io/write/write.h"

#include <math.h>

enum { J = 3, N = 4, ROWS = 6, COLS = 7, MODES = 2 };

typedef struct sample {
    uint16_t frames[J * N * N];
    double positions[2 * J], data_error[2];
    uint8_t mask[N * N];
    xpe_c32 object[ROWS * COLS], probe[MODES * N * N];
    float coverage[ROWS * COLS];
    xpe_grid grid;
    xpe_scan scan;
    xpe_parameter parameters[1];
    xpe_result result;
} sample;

static inline void sample_make(sample *s)
{
    *s = (sample){.positions = {1e-8, 2e-8, 3e-8, 2e-8, 3e-8, 4e-8}, .data_error = {0.5, NAN}};
    for (int i = 0; i < J * N * N; i++)
        s->frames[i] = (uint16_t)(i * 3 + 1);
    for (int i = 0; i < ROWS * COLS; i++) {
        s->object[i] = (xpe_c32){(float)i, (float)-i};
        s->coverage[i] = (float)i / 2;
    }
    for (int i = 0; i < MODES * N * N; i++)
        s->probe[i] = (xpe_c32){1, (float)i};
    s->mask[5] = 1;
    s->grid = (xpe_grid){.rows = ROWS, .cols = COLS, .origin_m = {1e-9, -2e-9}, .pitch_m = 1e-8};
    s->scan = (xpe_scan){.num_frames = J,
                         .n = N,
                         .frames = s->frames,
                         .type = XPE_U16,
                         .mask = s->mask,
                         .mask_frames = 1,
                         .saturation = 1000,
                         .positions = s->positions,
                         .wavelength_m = 1e-10,
                         .detector_distance_m = 1,
                         .detector_pitch_m = 2.5e-3};
    s->parameters[0] = (xpe_parameter){"probe", "estimated", "", "given"};
    s->result = (xpe_result){.name = "chip",
                             .grid = &s->grid,
                             .object = s->object,
                             .probe = s->probe,
                             .probe_modes = MODES,
                             .n = N,
                             .coverage = s->coverage,
                             .positions = s->positions,
                             .num_frames = J,
                             .mask = s->mask,
                             .mask_frames = 1,
                             .data_error = s->data_error,
                             .iterations = 2,
                             .parameters = s->parameters,
                             .parameter_count = 1,
                             .job = "{\"scan\": {}}",
                             .scan_path = "/data/scan.h5",
                             .scan_sha256 = "00",
                             .program = "xptychod 0",
                             .build = "test",
                             .devices = "cpu",
                             .end_time = "2026-01-31T09:15:02.123Z"};
}

#endif
