/* Runs a problem through engine.h as its users do, and keeps everything that comes out.
 *
 * The backend under test is chosen once a program: `test_backend_x cpu` (default "cpu").  A program
 * whose backend is absent ends with 77, which CTest reports as skipped. */
#ifndef XPT_ENGINE_RUN_H
#define XPT_ENGINE_RUN_H

#include "synthetic.h"

typedef struct xpt_result {
    int64_t n, rows, cols;
    int modes;
    int start_modes;
    int iterations;    /* finished */
    int added, empty;  /* scheduled modes that came, and that had no residual */
    xpe_status status; /* of creation or the last step; XPE_OK where all went well */
    xpe_error error;
    xpe_c32 *object, *probe; /* NULL where the run was not created */
    xpe_c32 *start_object, *start_probe;
    float *coverage;
    double *errors;           /* [iterations asked for], NaN where none was computed */
    double *positions, *gain; /* refine_positions only */
} xpt_result;

/* What a run is divided into; zeros are the engine's defaults and one device. */
typedef struct xpt_division {
    int devices, threads;
    int64_t batch;
} xpt_division;

int xpt_backend_begin(int argc, char **argv); /* 0, or 77 where the backend is absent (says why) */
const char *xpt_backend_name(void);
/* Devices of the backend under test, `count` times; the names live as long as the program. */
xpe_device_list xpt_devices(int count, int threads);

xpe_stage xpt_stage(int iterations);
xpt_result *xpt_run(const xpe_problem_desc *desc, const xpe_stage *stage, xpt_division division);
void xpt_result_destroy(xpt_result *r);

/* Whether every array and number of two results has the same bits; the first difference goes to
 * `what`. */
bool xpt_same(const xpt_result *a, const xpt_result *b, const char **what);

/* Runs, and fails the test with the engine's own text when that does not succeed. */
xpt_result *xpt_run_well(const xpe_problem_desc *desc, const xpe_stage *stage,
                         xpt_division division);
/* Fails the test, naming the array, when two results differ in a bit. */
#define xpt_assert_same(a, b) xpt_assert_same_at((a), (b), __FILE__, __LINE__)
void xpt_assert_same_at(const xpt_result *a, const xpt_result *b, const char *file, int line);
/* Fails the test when value > limit; both are printed. */
#define xpt_assert_below(value, limit)                                                             \
    xpt_assert_below_at((value), (limit), #value, __FILE__, __LINE__)
void xpt_assert_below_at(double value, double limit, const char *text, const char *file, int line);
/* Fails the test unless err has this status and its text contains `part`. */
#define xpt_assert_refused(err, expected, part)                                                    \
    xpt_assert_refused_at((err), (expected), (part), __FILE__, __LINE__)
void xpt_assert_refused_at(const xpe_error *err, xpe_status expected, const char *part,
                           const char *file, int line);

#endif
