/* `compare A B`: nrmse after one complex scale (docs/algorithm.md, end of section 3), over the
 * scanned rectangle where one of the files knows its positions.  Arrays come through a reader
 * process, as user's files always do.
 *
 * An estimated probe leaves more free than a scale: a phase ramp of the object that the probe
 * undoes.  The figure with such a ramp taken off is given beside the plain one. */
#include "compare.h"

#include "fault.h"
#include "files.h"
#include "modes.h"
#include "reader.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: xptycho compare A[:DATASET] B[:DATASET] [--region scanned|all] [--json]\n"
    "\n"
    "The error of image A to image B: nrmse = ||c A - B|| / ||B|| with the best complex c.\n"
    "Without DATASET: /sample/object, /object or /truth/object.  Grids of one pixel size are laid "
    "over\n"
    "each other by their origins where both files state them.\n"
    "\n"
    "  --region R   scanned (default where positions are known): the rectangle of the patch "
    "centres;\n"
    "               all: every pixel that both have\n"
    "  --json       the figures as JSON\n";

/* ------------------------------------------------------------------------------- arithmetic */

typedef struct c64 {
    double re, im;
} c64;

static c64 product(xpe_c32 a, xpe_c32 b) /* conj(a) b */
{
    return (c64){(double)a.re * b.re + (double)a.im * b.im,
                 (double)a.re * b.im - (double)a.im * b.re};
}

static xpe_c32 pixel(const xpd_window *w, int64_t r, int64_t c)
{
    return w->v[r * w->stride + c];
}

/* Mean phase step of q = conj(image) truth from a pixel to its neighbour below, or to the right. */
static double ramp_along(const xpd_window *image, const xpd_window *truth, int64_t dr, int64_t dc)
{
    double re = 0.0, im = 0.0;

    for (int64_t r = 0; r + dr < image->rows; r++)
        for (int64_t c = 0; c + dc < image->cols; c++) {
            c64 here = product(pixel(image, r, c), pixel(truth, r, c));
            c64 next = product(pixel(image, r + dr, c + dc), pixel(truth, r + dr, c + dc));

            re += here.re * next.re + here.im * next.im;
            im += here.re * next.im - here.im * next.re;
        }
    return re == 0.0 && im == 0.0 ? 0.0 : atan2(im, re);
}

/* One step towards the ramp that makes |sum q exp(-i ramp . pixel)| largest, which is the one of
 * the smallest nrmse: the remaining phase, taken as small, is fitted by a plane with weights |q|.
 */
static void ramp_refine(double ramp[2], const xpd_window *image, const xpd_window *truth)
{
    double sum[2] = {0.0, 0.0}, weight = 0.0, middle[2] = {0.0, 0.0};
    double m00 = 0.0, m01 = 0.0, m11 = 0.0, v0 = 0.0, v1 = 0.0, det;

    for (int pass = 0; pass < 2; pass++)
        for (int64_t r = 0; r < image->rows; r++)
            for (int64_t c = 0; c < image->cols; c++) {
                c64 q = product(pixel(image, r, c), pixel(truth, r, c));
                double turn = ramp[0] * (double)r + ramp[1] * (double)c, cs = cos(turn),
                       sn = sin(turn);
                double re = q.re * cs + q.im * sn, im = q.im * cs - q.re * sn, size = hypot(re, im);

                if (pass == 0) {
                    sum[0] += re;
                    sum[1] += im;
                    weight += size;
                    middle[0] += size * (double)r;
                    middle[1] += size * (double)c;
                } else {
                    double y = (double)r - middle[0] / weight, x = (double)c - middle[1] / weight;
                    double angle = (im * sum[0] - re * sum[1]) / hypot(sum[0], sum[1]);

                    m00 += size * y * y;
                    m01 += size * y * x;
                    m11 += size * x * x;
                    v0 += angle * y;
                    v1 += angle * x;
                }
            }
    det = m00 * m11 - m01 * m01;
    if (det > 1e-9 * m00 * m11) { /* a single row or column has no plane */
        ramp[0] += (v0 * m11 - v1 * m01) / det;
        ramp[1] += (v1 * m00 - v0 * m01) / det;
    }
}

/* nrmse with the image multiplied by exp(i (ramp . pixel)) and the best scale. */
static double nrmse_of(double scale[2], const xpd_window *image, const xpd_window *truth,
                       const double ramp[2])
{
    double re = 0.0, im = 0.0, image2 = 0.0, truth2 = 0.0;

    for (int64_t r = 0; r < image->rows; r++)
        for (int64_t c = 0; c < image->cols; c++) {
            xpe_c32 a = pixel(image, r, c), b = pixel(truth, r, c);
            double turn = ramp[0] * (double)r + ramp[1] * (double)c, cs = cos(turn), sn = sin(turn);
            c64 q = product(a, b);

            re += q.re * cs + q.im * sn;
            im += q.im * cs - q.re * sn;
            image2 += (double)a.re * a.re + (double)a.im * a.im;
            truth2 += (double)b.re * b.re + (double)b.im * b.im;
        }
    scale[0] = re / image2;
    scale[1] = im / image2;
    /* ||c a - b||^2 = ||b||^2 - |<a, b>|^2 / ||a||^2 at the best c; below 1e-8 its rounding would
     * show, so it is summed */
    double sum = 0.0;

    for (int64_t r = 0; r < image->rows; r++)
        for (int64_t c = 0; c < image->cols; c++) {
            xpe_c32 a = pixel(image, r, c), b = pixel(truth, r, c);
            double turn = ramp[0] * (double)r + ramp[1] * (double)c, cs = cos(turn), sn = sin(turn);
            double tr = a.re * cs - a.im * sn, ti = a.re * sn + a.im * cs;
            double er = scale[0] * tr - scale[1] * ti - b.re,
                   ei = scale[0] * ti + scale[1] * tr - b.im;

            sum += er * er + ei * ei;
        }
    return sqrt(sum / truth2);
}

static double energy(const xpd_window *w)
{
    double sum = 0.0;

    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t c = 0; c < w->cols; c++) {
            xpe_c32 a = pixel(w, r, c);

            sum += (double)a.re * a.re + (double)a.im * a.im;
        }
    return sum;
}

bool xpd_difference_of(xpd_difference *out, const xpd_window *image, const xpd_window *truth)
{
    const double none[2] = {0.0, 0.0};
    double scale[2];

    *out = (xpd_difference){0};
    if (!(energy(image) > 0.0) || !(energy(truth) > 0.0))
        return false;
    out->nrmse = nrmse_of(out->scale, image, truth, none);
    out->ramp[0] = ramp_along(image, truth, 1, 0);
    out->ramp[1] = ramp_along(image, truth, 0, 1);
    for (int step = 0; step < 3; step++)
        ramp_refine(out->ramp, image, truth);
    out->nrmse_ramp = nrmse_of(scale, image, truth, out->ramp);
    return true;
}

/* ---------------------------------------------------------------------------------- images */

typedef struct image {
    char path[PATH_MAX], dataset[256];
    const char *wanted; /* dataset of the command line, or NULL */
    const xpe_c32 *v;
    size_t bytes;
    int64_t planes, rows, cols;
    double pixel_m, origin_m[2]; /* pixel_m 0 = not stated */
    bool has_origin, has_extent;
    double extent_m[4]; /* of the patch centres: first row, last row, first column, last column */
} image;

/* "file.h5:/sample/object"; a file whose name holds a colon is found first. */
static bool image_name(image *out, char *argument)
{
    struct stat st;
    char *colon = strrchr(argument, ':');

    if (stat(argument, &st) != 0 && colon && colon > argument && colon[1]) {
        *colon = 0;
        out->wanted = colon + 1;
    }
    return xpd_path_absolute(out->path, sizeof out->path, argument);
}

static xpe_status image_take(image *out, const json_t *entry, int fd, xpe_error *err)
{
    const json_t *shape = json_object_get(entry, "shape"),
                 *origin = json_object_get(entry, "origin_m");
    const json_t *extent = json_object_get(entry, "extent_m");
    const char *dataset = json_string_value(json_object_get(entry, "dataset"));
    struct stat st;
    void *at;

    out->planes = json_integer_value(json_array_get(shape, 0));
    out->rows = json_integer_value(json_array_get(shape, 1));
    out->cols = json_integer_value(json_array_get(shape, 2));
    out->pixel_m = json_number_value(json_object_get(entry, "pixel_m"));
    snprintf(out->dataset, sizeof out->dataset, "%s", dataset ? dataset : "");
    out->has_origin = json_array_size(origin) == 2 && out->pixel_m > 0.0;
    out->has_extent = json_array_size(extent) == 4;
    for (size_t i = 0; out->has_origin && i < 2; i++)
        out->origin_m[i] = json_number_value(json_array_get(origin, i));
    for (size_t i = 0; out->has_extent && i < 4; i++)
        out->extent_m[i] = json_number_value(json_array_get(extent, i));
    if (out->planes < 1 || out->rows < 1 || out->cols < 1 || out->planes > 65536 ||
        out->rows > INT32_MAX || out->cols > INT32_MAX || fstat(fd, &st) != 0 ||
        (__int128)out->planes * out->rows * out->cols * 8 != (__int128)st.st_size)
        return xpe_fail(err, XPE_INTERNAL, "",
                        "the reader's array does not have the size of its shape");
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return xpe_fail(err, XPE_NO_MEMORY, "", "cannot map an array of %lld bytes",
                        (long long)st.st_size);
    out->v = at;
    out->bytes = (size_t)st.st_size;
    return XPE_OK;
}

static void image_release(image *out)
{
    if (out->v)
        munmap((void *)(uintptr_t)out->v, out->bytes);
    out->v = NULL;
}

static json_t *request(const image images[2])
{
    json_t *list = json_array();

    for (int i = 0; i < 2; i++) {
        bool probe = images[i].wanted && strstr(images[i].wanted, "probe");

        json_array_append_new(list, json_pack("{s:s, s:s?, s:s}", "path", images[i].path, "dataset",
                                              images[i].wanted, "use", probe ? "probe" : "object"));
    }
    return json_pack("{s:o, s:n}", "arrays_only", list, "roots");
}

/* Both arrays; the exit code. */
static int images_read(image images[2])
{
    xpd_reader reader = {.socket = -1};
    xpp_ipc_message message = {0};
    xpe_error err = {0};
    xpe_status st = xpd_reader_start(&reader, &err);
    int code = XPD_EXIT_OK;

    if (st == XPE_OK)
        st = xpd_reader_send(&reader, request(images), &err);
    if (st == XPE_OK)
        st = xpd_reader_receive(&message, &reader, -1, &err);
    if (st == XPE_OK && message.type == XPP_IPC_REFUSED) {
        const json_t *errors = json_object_get(json_object_get(message.body, "problem"), "errors"),
                     *error;
        size_t i;

        json_array_foreach (errors, i, error)
            fprintf(stderr, "%s\n", json_string_value(json_object_get(error, "detail")));
        code = XPD_EXIT_REFUSED;
    } else if (st == XPE_OK) {
        const json_t *arrays = json_object_get(message.body, "arrays");

        if (message.fd_count != 2 || json_array_size(arrays) != 2)
            st = xpe_fail(&err, XPE_INTERNAL, "", "the reader did not answer with two arrays");
        for (size_t i = 0; st == XPE_OK && i < 2; i++)
            st = image_take(&images[i], json_array_get(arrays, i), message.fds[i], &err);
    }
    if (st != XPE_OK) {
        fprintf(stderr, "xptycho compare: %s\n", err.text);
        code = XPD_EXIT_FAILED;
    }
    xpp_ipc_message_release(&message);
    xpd_reader_stop(&reader);
    return code;
}

/* --------------------------------------------------------------------------------- overlay */

typedef struct overlay {
    int64_t first[2][2]; /* [image][axis] first pixel in common */
    int64_t size[2];
    int64_t shift[2]; /* pixel of A = pixel of B + shift */
    bool scanned;
} overlay;

static bool refuse(const char *text)
{
    fprintf(stderr, "%s\n", text);
    return false;
}

/* Whole pixels between two grids that both state their place. */
static bool shifts(overlay *o, const image *a, const image *b)
{
    char text[256];

    if (fabs(a->pixel_m - b->pixel_m) > 1e-5 * b->pixel_m) {
        snprintf(
            text, sizeof text,
            "the pixels differ: A has %.9g m, B %.9g m; images of one pixel size can be compared",
            a->pixel_m, b->pixel_m);
        return refuse(text);
    }
    for (int axis = 0; axis < 2; axis++) {
        double shift = (b->origin_m[axis] - a->origin_m[axis]) / b->pixel_m;

        if (!(fabs(shift) < 1e9)) {
            return refuse("the grids have nothing in common");
        }
        if (fabs(shift - nearbyint(shift)) > 0.02) {
            snprintf(
                text, sizeof text,
                "the grids are %.3f pixels apart along %s: not a whole number, resample one first",
                shift, axis ? "columns" : "rows");
            return refuse(text);
        }
        o->shift[axis] = (int64_t)nearbyint(shift);
    }
    return true;
}

/* Narrows the part in common to the patch centres, in pixels of B. */
static void narrow(overlay *o, const image *place, const double *origin_m, const int64_t *shift)
{
    for (int axis = 0; axis < 2; axis++) {
        double pitch = place->pixel_m;
        int64_t low =
            (int64_t)nearbyint((place->extent_m[2 * axis] - origin_m[axis]) / pitch) - shift[axis];
        int64_t high =
            (int64_t)nearbyint((place->extent_m[2 * axis + 1] - origin_m[axis]) / pitch) -
            shift[axis] + 1;
        int64_t end = o->first[1][axis] + o->size[axis];

        low = low > o->first[1][axis] ? low : o->first[1][axis];
        high = high < end ? high : end;
        o->first[0][axis] += low - o->first[1][axis];
        o->first[1][axis] = low;
        o->size[axis] = high - low;
    }
    o->scanned = true;
}

static bool overlay_make(overlay *o, const image *a, const image *b, const char *region)
{
    const int64_t none[2] = {0, 0}, sides[2][2] = {{a->rows, a->cols}, {b->rows, b->cols}};
    bool placed = a->has_origin && b->has_origin;
    char text[256];

    *o = (overlay){0};
    if (placed && !shifts(o, a, b))
        return false;
    if (a->planes != b->planes || (!placed && (a->rows != b->rows || a->cols != b->cols))) {
        snprintf(text, sizeof text,
                 "the shapes differ: A is %lld x %lld x %lld, B %lld x %lld x %lld, and not both "
                 "state their origin",
                 (long long)a->planes, (long long)a->rows, (long long)a->cols, (long long)b->planes,
                 (long long)b->rows, (long long)b->cols);
        return refuse(text);
    }
    for (int axis = 0; axis < 2; axis++) {
        int64_t low = o->shift[axis] < 0 ? -o->shift[axis] : 0; /* in B */
        int64_t high = sides[0][axis] - o->shift[axis] < sides[1][axis]
                           ? sides[0][axis] - o->shift[axis]
                           : sides[1][axis];

        o->first[1][axis] = low;
        o->first[0][axis] = low + o->shift[axis];
        o->size[axis] = high - low;
    }
    if (strcmp(region, "all") != 0) {
        if (b->has_extent && b->has_origin)
            narrow(o, b, b->origin_m, none);
        else if (a->has_extent && a->has_origin)
            narrow(o, a, a->origin_m, o->shift);
        else if (strcmp(region, "scanned") == 0)
            return refuse("--region scanned: neither file states positions, pixel and origin; use "
                          "--region all");
    }
    return o->size[0] > 0 && o->size[1] > 0 ? true : refuse("the images have no pixel in common");
}

/* ------------------------------------------------------------------------------------ mode */

static void report(const overlay *o, const xpd_difference *d, const image images[2], bool json)
{
    if (json) {
        json_t *out = json_pack(
            "{s:f, s:f, s:[f,f], s:[f,f], s:s, s:[I,I], s:[I,I], s:[s,s]}", "nrmse", d->nrmse,
            "nrmse_ramp", d->nrmse_ramp, "scale", d->scale[0], d->scale[1], "ramp_rad_per_pixel",
            d->ramp[0], d->ramp[1], "region", o->scanned ? "scanned" : "all", "shape",
            (json_int_t)o->size[0], (json_int_t)o->size[1], "shift_pixels", (json_int_t)o->shift[0],
            (json_int_t)o->shift[1], "datasets", images[0].dataset, images[1].dataset);

        if (out)
            json_dumpf(out, stdout, JSON_COMPACT);
        fputc('\n', stdout);
        json_decref(out);
        return;
    }
    printf("nrmse %.6f   (%.6f without the phase ramp) over %s, %lld x %lld pixels\n", d->nrmse,
           d->nrmse_ramp, o->scanned ? "the scanned rectangle" : "all pixels in common",
           (long long)o->size[0], (long long)o->size[1]);
    printf("scale %.6f exp(%+.6f i)   ramp %+.3e, %+.3e rad a pixel\n",
           hypot(d->scale[0], d->scale[1]), atan2(d->scale[1], d->scale[0]), d->ramp[0],
           d->ramp[1]);
}

/* Planes (modes of a probe) are laid under each other: one scale for all. */
static bool difference(xpd_difference *d, const overlay *o, const image images[2])
{
    xpd_window w[2];

    for (int i = 0; i < 2; i++) {
        w[i] = (xpd_window){images[i].v + o->first[i][0] * images[i].cols + o->first[i][1],
                            o->size[0], o->size[1], images[i].cols};
        if (images[i].planes > 1)
            w[i].rows = images[i].planes * images[i].rows;
    }
    return xpd_difference_of(d, &w[0], &w[1]);
}

int xpd_compare_main(int argc, char **argv)
{
    static const struct option options[] = {{"region", required_argument, NULL, 'r'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    image images[2] = {0};
    const char *region = "";
    bool json = false;
    int option, code;
    xpd_difference d;
    overlay o;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return XPD_EXIT_OK;
        }
        if (option == 'r' && (strcmp(optarg, "scanned") == 0 || strcmp(optarg, "all") == 0))
            region = optarg;
        else if (option == 'j')
            json = true;
        else {
            fputs("xptycho compare --help says what there is\n", stderr);
            return XPD_EXIT_USAGE;
        }
    }
    if (argc - optind != 2 || !image_name(&images[0], argv[optind]) ||
        !image_name(&images[1], argv[optind + 1])) {
        fprintf(stderr, "xptycho compare: two files are wanted\n\n%s", help);
        return XPD_EXIT_USAGE;
    }
    code = images_read(images);
    if (code == XPD_EXIT_OK && !overlay_make(&o, &images[0], &images[1], region))
        code = XPD_EXIT_REFUSED;
    if (code == XPD_EXIT_OK && !difference(&d, &o, images)) {
        refuse("an image is zero everywhere in the region");
        code = XPD_EXIT_REFUSED;
    }
    if (code == XPD_EXIT_OK)
        report(&o, &d, images, json);
    image_release(&images[0]);
    image_release(&images[1]);
    return code;
}
