/* What the tests of the worker share: cmocka, a temporary folder, a small scan, sealed memfds. */
#ifndef SCENE_H
#define SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim.h"
#include "xptychod/protocol.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* cmocka's own comparison is in float. */
#define assert_close(a, b, tolerance) assert_true(fabs((double)(a) - (double)(b)) <= (tolerance))

#define SCENE_N 32
#define SCENE_J 25

/* A noise-free scan with its truth: 5 x 5 positions, frames of 32 x 32. */
typedef struct scene {
    double positions[SCENE_J * 2]; /* metres */
    int32_t first[SCENE_J * 2];
    float frames[SCENE_J * SCENE_N * SCENE_N];
    xpe_c32 probe[SCENE_N * SCENE_N];
    xpe_c32 *object; /* [grid.rows][grid.cols] */
    xpe_grid grid;
    xpe_scan scan;
} scene;

static inline scene *scene_make(void)
{
    scene *s = calloc(1, sizeof *s);
    xpd_sim_optics optics = {.n = SCENE_N,
                             .modes = 1,
                             .wavelength_m = 1.409e-10,
                             .pupil_radius = 7.0,
                             .stop_radius = 2.0,
                             .photons = 1e5};
    xpd_sim_fft *fft = xpd_sim_fft_create(SCENE_N);
    double intensity[SCENE_N * SCENE_N];

    assert_non_null(s);
    assert_non_null(fft);
    optics.pixel_m = xpe_pixel_pitch(optics.wavelength_m, 2.0, 75e-6, SCENE_N);
    optics.defocus_m = xpd_sim_beam_defocus(&optics, 11.0);
    xpd_sim_grid(s->positions, 5, 5, 4.0);
    xpd_sim_jitter(s->positions, SCENE_J, 0.8, 7);
    for (int i = 0; i < SCENE_J * 2; i++)
        s->positions[i] *= optics.pixel_m;
    s->scan = (xpe_scan){.num_frames = SCENE_J,
                         .n = SCENE_N,
                         .frames = s->frames,
                         .type = XPE_F32,
                         .positions = s->positions,
                         .wavelength_m = optics.wavelength_m,
                         .detector_distance_m = 2.0,
                         .detector_pitch_m = 75e-6};
    assert_int_equal(xpe_grid_derive(&s->grid, s->first, &s->scan, &(xpe_grid_wish){0}, NULL),
                     XPE_OK);
    s->object = calloc((size_t)(s->grid.rows * s->grid.cols), sizeof *s->object);
    assert_true(xpd_sim_object(s->object, s->grid.rows, s->grid.cols, XPD_SIM_CHIP, 3));
    assert_true(xpd_sim_probe(s->probe, &optics));
    for (int j = 0; j < SCENE_J; j++) {
        xpd_sim_intensity(fft, intensity, s->object, s->grid.cols, s->first[2 * j],
                          s->first[2 * j + 1], s->probe, 1);
        for (int i = 0; i < SCENE_N * SCENE_N; i++)
            s->frames[j * SCENE_N * SCENE_N + i] = (float)intensity[i];
    }
    xpd_sim_fft_destroy(fft);
    return s;
}

static inline void scene_free(scene *s)
{
    free(s->object);
    free(s);
}

/* A memfd with these bytes, sealed unless told otherwise. */
static inline int scene_memfd(const void *bytes, size_t size, bool sealed)
{
    int fd = memfd_create("scene", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    if (sealed)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    return fd;
}

/* The body of `scan` for the scene and its descriptors: frames, positions, and the probe where
 * known. */
static inline json_t *scene_message(const scene *s, bool known, int *fds, int *count)
{
    json_t *arrays = json_array();

    json_array_append_new(arrays, json_pack("{s:s, s:s, s:[i,i,i]}", "name", "frames", "type",
                                            "float32", "shape", SCENE_J, SCENE_N, SCENE_N));
    json_array_append_new(arrays, json_pack("{s:s, s:s, s:[i,i]}", "name", "positions", "type",
                                            "float64", "shape", SCENE_J, 2));
    fds[0] = scene_memfd(s->frames, sizeof s->frames, true);
    fds[1] = scene_memfd(s->positions, sizeof s->positions, true);
    *count = 2;
    if (known) {
        json_array_append_new(arrays, json_pack("{s:s, s:s, s:[i,i,i]}", "name", "probe", "type",
                                                "complex64", "shape", 1, SCENE_N, SCENE_N));
        fds[(*count)++] = scene_memfd(s->probe, sizeof s->probe, true);
    }
    return json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:{s:s}, s:o}", "name", "scene", "frames",
                     SCENE_J, "frame_side", SCENE_N, "wavelength_m", s->scan.wavelength_m,
                     "detector_distance_m", s->scan.detector_distance_m, "detector_pitch_m",
                     s->scan.detector_pitch_m, "saturation", 0.0, "file", "sha256", "00", "arrays",
                     arrays);
}

/* A checked job document from text with ' for ". */
static inline json_t *scene_job(const char *text)
{
    char *copy = strdup(text);
    json_t *doc, *errors;

    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    doc = json_loads(copy, 0, NULL);
    assert_non_null(doc);
    errors = xpp_job_check(doc);
    if (errors)
        fail_msg("the job is refused: %s", json_dumps(errors, 0));
    free(copy);
    return doc;
}

/* A new folder, in the state of the test. */
static inline int scene_folder_make(void **state)
{
    char *folder = strdup("/tmp/xptychod-worker-XXXXXX");

    *state = folder;
    return folder && mkdtemp(folder) ? 0 : -1;
}

static inline int scene_folder_remove(void **state)
{
    char command[PATH_MAX + 16], *folder = *state;

    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    free(folder);
    return system(command);
}

#endif
