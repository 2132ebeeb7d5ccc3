/* The simulated beam, the scan pattern and the intensity of one frame.
 *
 * The beam is made in the detector plane, where a focusing optic is simply a lit disc with a dark
 * middle: the defocus is the phase exp(-i pi lambda z f^2), the same sign as the Fresnel step of
 * docs/algorithm.md section 2.  Further modes are the first one times polynomials of growing
 * degree, made orthogonal in double precision: what a beam that trembles a little looks like.
 *
 * The centred transform is a plain one between two checkerboards (n even); behind |.|^2 the second
 * one does nothing and is left out. */
#include "sim.h"

#include <fftw3.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct xpd_sim_fft {
    int64_t n;
    fftw_complex *field; /* [n][n] */
    fftw_plan forward, backward;
};

xpd_sim_fft *xpd_sim_fft_create(int64_t n)
{
    xpd_sim_fft *fft = calloc(1, sizeof *fft);

    if (!fft)
        return NULL;
    fft->n = n;
    fft->field = fftw_alloc_complex((size_t)(n * n));
    if (fft->field) {
        /* estimate: a measured plan may give other bits in another run */
        fft->forward =
            fftw_plan_dft_2d((int)n, (int)n, fft->field, fft->field, FFTW_FORWARD, FFTW_ESTIMATE);
        fft->backward =
            fftw_plan_dft_2d((int)n, (int)n, fft->field, fft->field, FFTW_BACKWARD, FFTW_ESTIMATE);
    }
    if (!fft->field || !fft->forward || !fft->backward) {
        xpd_sim_fft_destroy(fft);
        return NULL;
    }
    return fft;
}

void xpd_sim_fft_destroy(xpd_sim_fft *fft)
{
    if (!fft)
        return;
    if (fft->forward)
        fftw_destroy_plan(fft->forward);
    if (fft->backward)
        fftw_destroy_plan(fft->backward);
    fftw_free(fft->field);
    free(fft);
}

void xpd_sim_intensity(xpd_sim_fft *fft, double *intensity, const xpe_c32 *object, int64_t cols,
                       int64_t row, int64_t col, const xpe_c32 *probe, int modes)
{
    int64_t n = fft->n;
    double scale = 1.0 / (double)(n * n);

    memset(intensity, 0, (size_t)(n * n) * sizeof *intensity);
    for (int k = 0; k < modes; k++) {
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < n; c++) {
                xpe_c32 d = probe[(k * n + r) * n + c], x = object[(row + r) * cols + col + c];
                double sign = (r + c) & 1 ? -1.0 : 1.0;

                fft->field[r * n + c][0] = sign * ((double)d.re * x.re - (double)d.im * x.im);
                fft->field[r * n + c][1] = sign * ((double)d.re * x.im + (double)d.im * x.re);
            }
        fftw_execute(fft->forward);
        for (int64_t i = 0; i < n * n; i++)
            intensity[i] +=
                scale * (fft->field[i][0] * fft->field[i][0] + fft->field[i][1] * fft->field[i][1]);
    }
}

/* ----------------------------------------------------------------------------------- probe */

/* A ray through detector pixel q meets the object z q p / D = z q lambda / (n dx) off the axis. */
static double rays_per_metre(const xpd_sim_optics *o)
{
    return 2.0 * o->pupil_radius * o->wavelength_m / ((double)o->n * o->pixel_m * o->pixel_m);
}

double xpd_sim_beam_diameter(const xpd_sim_optics *optics)
{
    double waist = 1.22 * (double)optics->n / optics->pupil_radius; /* Airy disc, first zero */
    double geometric = fabs(optics->defocus_m) * rays_per_metre(optics);

    return geometric > waist ? geometric : waist;
}

double xpd_sim_beam_defocus(const xpd_sim_optics *optics, double diameter)
{
    return diameter / rays_per_metre(optics);
}

/* Share of the pixel at radius q that a disc of radius `radius` lights: a rim one pixel soft. */
static double lit(double q, double radius)
{
    double t = radius - q + 0.5;

    return t <= 0.0 ? 0.0 : t >= 1.0 ? 1.0 : t;
}

static void first_mode(fftw_complex *mode, xpd_sim_fft *fft, const xpd_sim_optics *o)
{
    int64_t n = o->n;
    double step = 1.0 / ((double)n * o->pixel_m); /* cycles per metre between detector pixels */

    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            double y = (double)(r - n / 2), x = (double)(c - n / 2), q = hypot(y, x);
            double sign = (r + c) & 1 ? -1.0 : 1.0;
            double a = sign * (lit(q, o->pupil_radius) -
                               (o->stop_radius > 0.0 ? lit(q, o->stop_radius) : 0.0));
            double phase = -M_PI * o->wavelength_m * o->defocus_m * (q * step) * (q * step);

            fft->field[r * n + c][0] = a * cos(phase);
            fft->field[r * n + c][1] = a * sin(phase);
        }
    fftw_execute(fft->backward);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            double sign = (r + c) & 1 ? -1.0 : 1.0;

            mode[r * n + c][0] = sign * fft->field[r * n + c][0];
            mode[r * n + c][1] = sign * fft->field[r * n + c][1];
        }
}

/* Power of the row and of the column coordinate in mode k: 00, 01, 10, 02, 11, 20, ... */
static void powers(int k, int *row, int *col)
{
    int degree = 0;

    while (k > degree) {
        k -= degree + 1;
        degree++;
    }
    *row = k;
    *col = degree - k;
}

/* Gram-Schmidt against the modes before, twice, because once loses digits; then unit energy. */
static void orthonormalise(fftw_complex *modes, int k, int64_t size)
{
    fftw_complex *a = modes + k * size;
    double energy = 0.0;

    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < k; j++) {
            const fftw_complex *b = modes + j * size;
            double re = 0.0, im = 0.0;

            for (int64_t i = 0; i < size; i++) { /* <b, a> */
                re += b[i][0] * a[i][0] + b[i][1] * a[i][1];
                im += b[i][0] * a[i][1] - b[i][1] * a[i][0];
            }
            for (int64_t i = 0; i < size; i++) {
                a[i][0] -= re * b[i][0] - im * b[i][1];
                a[i][1] -= re * b[i][1] + im * b[i][0];
            }
        }
    for (int64_t i = 0; i < size; i++)
        energy += a[i][0] * a[i][0] + a[i][1] * a[i][1];
    for (int64_t i = 0; i < size; i++) {
        a[i][0] /= sqrt(energy);
        a[i][1] /= sqrt(energy);
    }
}

bool xpd_sim_probe(xpe_c32 *probe, const xpd_sim_optics *optics)
{
    int64_t n = optics->n, size = n * n;
    double width = 0.25 * xpd_sim_beam_diameter(optics), total = 0.0;
    fftw_complex *modes = fftw_alloc_complex((size_t)(size * optics->modes));
    xpd_sim_fft *fft = xpd_sim_fft_create(n);
    bool good = modes && fft;

    for (int k = 0; k < optics->modes; k++)
        total += pow(XPD_SIM_MODE_RATIO, k);
    for (int k = 0; good && k < optics->modes; k++) {
        double scale = sqrt(optics->photons * pow(XPD_SIM_MODE_RATIO, k) / total);
        int row_power, col_power;

        powers(k, &row_power, &col_power);
        first_mode(modes + k * size, fft, optics);
        for (int64_t i = 0; i < size; i++) {
            double y = (double)(i / n - n / 2) / width, x = (double)(i % n - n / 2) / width;
            /* the bell keeps the powers from lifting the far tails over the beam */
            double factor =
                k == 0 ? 1.0 : pow(y, row_power) * pow(x, col_power) * exp(-0.25 * (y * y + x * x));

            modes[k * size + i][0] *= factor;
            modes[k * size + i][1] *= factor;
        }
        orthonormalise(modes, k, size);
        for (int64_t i = 0; i < size; i++)
            probe[k * size + i] = (xpe_c32){(float)(scale * modes[k * size + i][0]),
                                            (float)(scale * modes[k * size + i][1])};
    }
    xpd_sim_fft_destroy(fft);
    fftw_free(modes);
    return good;
}

/* ------------------------------------------------------------------------------- positions */

void xpd_sim_grid(double *positions, int64_t rows, int64_t cols, double step)
{
    for (int64_t i = 0; i < rows * cols; i++) {
        positions[2 * i] = step * ((double)(i / cols) - 0.5 * (double)(rows - 1));
        positions[2 * i + 1] = step * ((double)(i % cols) - 0.5 * (double)(cols - 1));
    }
}

/* Fermat's spiral: turns by the golden angle, one point in each step^2 of area. */
void xpd_sim_spiral(double *positions, int64_t count, double step)
{
    const double golden = M_PI * (3.0 - sqrt(5.0));

    for (int64_t i = 0; i < count; i++) {
        double r = step * sqrt(((double)i + 0.5) / M_PI), angle = golden * (double)i;

        positions[2 * i] = r * sin(angle);
        positions[2 * i + 1] = r * cos(angle);
    }
}

void xpd_sim_jitter(double *positions, int64_t count, double jitter, uint64_t seed)
{
    xpd_random random;

    xpd_random_init(&random, seed, 2);
    for (int64_t i = 0; i < 2 * count; i++)
        positions[i] += xpd_random_range(&random, -jitter, jitter);
}
