/* Parts of the simulator: object, probe, positions and the counts a detector would record.
 *
 * All functions are pure: the same arguments give the same arrays.  Lengths are metres where the
 * name says so, else pixels of the object. */
#ifndef XPD_SIM_H
#define XPD_SIM_H

#include "random.h"
#include "xptychod/engine.h"

typedef enum xpd_sim_object_kind { XPD_SIM_CHIP, XPD_SIM_STAR, XPD_SIM_CELLS } xpd_sim_object_kind;

bool xpd_sim_object_find(xpd_sim_object_kind *out, const char *name);
const char *xpd_sim_object_name(xpd_sim_object_kind kind);

/* What an object does to the wave where its material is thickest: exp(-absorption - i phase). */
typedef struct xpd_sim_material {
    double phase_max;  /* radians */
    double absorption; /* of the amplitude, as a fraction of the phase */
} xpd_sim_material;
xpd_sim_material xpd_sim_object_material(xpd_sim_object_kind kind);

/* Complex transmittance, object[rows][cols].  false when memory is exhausted. */
bool xpd_sim_object(xpe_c32 *object, int64_t rows, int64_t cols, xpd_sim_object_kind kind,
                    uint64_t seed);

/* A focused beam seen `defocus_m` after the focus: circular pupil with a central stop. */
typedef struct xpd_sim_optics {
    int64_t n; /* frame side, even */
    int modes; /* K >= 1 */
    double wavelength_m;
    double pixel_m;      /* of the object */
    double pupil_radius; /* detector pixels, half illuminated radius of the beam */
    double stop_radius;  /* detector pixels; 0 = none */
    double defocus_m;
    double photons; /* of all modes together: sum |probe|^2 */
} xpd_sim_optics;

/* Diameter of the beam on the object, geometric, in object pixels. */
double xpd_sim_beam_diameter(const xpd_sim_optics *optics);
/* Defocus that makes the beam `diameter` object pixels wide. */
double xpd_sim_beam_defocus(const xpd_sim_optics *optics, double diameter);
/* Orthogonal modes, probe[modes][n][n], energies falling by XPD_SIM_MODE_RATIO from mode to mode.
 */
#define XPD_SIM_MODE_RATIO 0.35
bool xpd_sim_probe(xpe_c32 *probe, const xpd_sim_optics *optics);

/* Transform of one side for many frames; not shared between threads. */
typedef struct xpd_sim_fft xpd_sim_fft;
xpd_sim_fft *xpd_sim_fft_create(int64_t n); /* NULL when memory is exhausted */
void xpd_sim_fft_destroy(xpd_sim_fft *fft);

/* intensity[n][n] = sum_k |F(d_k P x)|^2, the definition of docs/algorithm.md sections 1 and 3; the
 * patch begins at pixel (row, col) of object[..][cols]. */
void xpd_sim_intensity(xpd_sim_fft *fft, double *intensity, const xpe_c32 *object, int64_t cols,
                       int64_t row, int64_t col, const xpe_c32 *probe, int modes);

/* Positions (row, column) in object pixels around (0, 0), positions[count][2]. */
void xpd_sim_grid(double *positions, int64_t rows, int64_t cols, double step);
void xpd_sim_spiral(double *positions, int64_t count, double step);
void xpd_sim_jitter(double *positions, int64_t count, double jitter, uint64_t seed);

#endif
